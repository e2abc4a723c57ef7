"""Engines as processes that stay alive: settings go in as a line of JSON, a measurement comes out as a line."""

import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

DRIVER = Path(__file__).resolve().with_name("peer_llama.py")
# The package that a peer's interpreter must have: with the other's it would be measured under this name.
PACKAGES = {"llama.cpp": "llama-cpp-python", "ik_llama.cpp": "ik-llama-cpp-python"}
# What is tried for each peer: name -> members of the settings.
PEER_SETTINGS = {
    "llama.cpp": {"FA": {"flash_attn": True}, "no FA": {"flash_attn": False}},
    "ik_llama.cpp": {"FA": {"flash_attn": True, "repack": False}, "no FA": {"flash_attn": False, "repack": False},
                     "FA, rtr": {"flash_attn": True, "repack": True},
                     "no FA, rtr": {"flash_attn": False, "repack": True}},
}


class CompareError(RuntimeError):
    """A measured process failed or answered something else than a measurement."""


def is_version_of(peer: str, version: object) -> bool:
    """Whether a measurement's `version` is of the package that the peer is known by; any is of ours."""
    return peer not in PACKAGES or (isinstance(version, str) and version.split(" ")[0] == PACKAGES[peer])


def settings_of(peer: str, row: dict) -> dict[str, dict]:
    """The settings of a peer that are tried for a row. ik_llama.cpp 0.1.5 with flash attention mixes up sequences."""
    wrong = peer == "ik_llama.cpp" and row["kind"] == "batch" and row["batch"] > 1
    return {name: own for name, own in PEER_SETTINGS[peer].items() if not (wrong and own["flash_attn"])}


class Engine:
    """One engine's process, started when it is first asked and again after it failed."""

    def __init__(self, name: str, command: list[str]):
        self.name, self.command, self.process = name, command, None
        self.said = ""  # the end of what it wrote to stderr, once it has ended

    def ask(self, settings: dict) -> dict:
        if self.process is None:
            self.errors = tempfile.TemporaryFile("w+")
            try:
                self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                                stderr=self.errors, env=os.environ | {"GGML_NO_BACKTRACE": "1"})
            except OSError as error:
                self.errors.close()
                raise CompareError(f"start {self.name}: {self.command[0]}: expected a program, found: {error.strerror}; "
                                   "build it, or correct --engine-command or --peer") from error
        last = ""
        try:
            self.process.stdin.write(json.dumps(settings | {"engine": self.name}) + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                last = line.strip() or last
                if (answer := self.parse(line)) is not None:
                    return answer
        except BrokenPipeError:
            pass
        except BaseException:  # interrupted: what it would answer is not wanted any more
            self.close()
            raise
        code = self.close()
        what = f"ended with {code}" if code or not last else f"its last line is no measurement: {last[:200]}"
        raise CompareError(f"measure {self.name}: {shlex.join(self.command)}: {what}\n{self.said}".strip())

    @staticmethod
    def parse(line: str) -> dict | None:
        """The measurement in a line; None for anything else that a library may print."""
        try:
            answer = json.loads(line)
            for test in answer.get("tests", []):
                for sample in test["samples"]:
                    sample["tokens_per_cpu_s"], sample["others_cores"]
                    if not sample["tokens_per_s"] > 0:
                        return None
            return answer if {"engine", "version"} <= answer.keys() else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def cpu_s(self) -> float:
        """Processor time so far; 0 when there is no process."""
        if self.process is None:
            return 0.0
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> int | None:
        """Ends it by ending its input, after 10 seconds by force; its exit status."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            code = process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        process.stdout.close()
        self.errors.seek(0)
        self.said = self.errors.read().strip()[-1500:]
        self.errors.close()
        return code
