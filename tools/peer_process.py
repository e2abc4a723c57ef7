"""Engines as processes that stay alive: settings go in as a line of JSON, a measurement comes out as a line."""

import json
import math
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

STALLED_S = 300  # without processor time: it waits for what never comes
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


def fault_of(answer: dict, settings: dict) -> str | None:
    """What makes an answer no measurement of what was asked for."""
    def amounts(of: dict, *fields: str) -> list[float]:
        found = [of[field] for field in fields]
        if not all(0 <= value < math.inf for value in found):
            raise ValueError(f"expected amounts, found {', '.join(f'{field} {value}' for field, value in zip(fields, found))}")
        return found

    asked = [(kind, member, value) for kind, member in (("prefill", "prompt_tokens"), ("decode", "depth"), ("batch", "batch"))
             for value in settings[member]]
    try:
        "".join([answer["engine"], answer["version"], *answer.get("isa", {}).get("unused", [])])  # texts, or it raises
        amounts({"kv_bytes_per_token": 0} | answer, "kv_bytes_per_token")
        tests = answer["tests"]
        found = [(test["test"], member, test[member]) for test, (_, member, _) in zip(tests, asked)]
        if len(tests) != len(asked) or found != asked:
            return f"expected {asked}, found {len(tests)} tests: {found}"
        # What else tells an answer from one to other settings.
        for member, where in (("threads", [answer]), ("gen_tokens", [test for test in tests if test["test"] != "prefill"])):
            if any(one[member] != settings[member] for one in where):
                return f"expected {member} {settings[member]}, found {[one[member] for one in where]}"
        low, high = settings["batch_prompt"]
        if low == high and any(test["prompt_tokens"] != [low, high] for test in tests if test["test"] == "batch"):
            return f"expected prompts of {low}, found {[test['prompt_tokens'] for test in tests]}"
        for test in tests:
            if len(test["samples"]) != settings["repeats"]:
                return f"expected {settings['repeats']} samples, found {len(test['samples'])}"
            for sample in test["samples"]:
                if min(amounts(sample, "tokens_per_s", "seconds", "tokens_per_cpu_s", "others_cores")[:2]) == 0:
                    return f"expected a rate, found {sample}"
            amounts({"peak_rss_mib": 0} | test, "peak_rss_mib")
            if "read_gb_per_s" in test and not min(amounts(test, "read_gb_per_s", "bytes_per_step")) > 0:
                return f"expected a rate of reading, found {test}"
            0.0 + (test.get("disagreement") or 0) + test.get("beyond_trained_context", False)  # numbers, or it raises
    except KeyError as error:
        return f"expected the member {error}"
    except (ValueError, TypeError, AttributeError) as error:
        return f"expected a measurement, found another kind of value: {error}"
    return None


def cpu_s_of(session: int) -> float:
    """Processor time of a session's processes so far, a wrapper's program among them; 0 when there are none."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def kill_session(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Engine:
    """One engine's process, started in a session of its own when it is first asked and again after it failed."""

    def __init__(self, name: str, command: list[str]):
        self.name, self.command, self.process = name, command, None
        self.said = ""  # the end of what it wrote to stderr, once it has ended
        self.stalled = False

    def ask(self, settings: dict) -> dict:
        if self.process is None:
            self.errors = tempfile.TemporaryFile("w+", errors="replace")
            try:
                self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, errors="replace",
                                                stderr=self.errors, start_new_session=True, env=os.environ | {"GGML_NO_BACKTRACE": "1"})
            except OSError as error:
                self.errors.close()
                raise CompareError(f"start {self.name}: {self.command[0]}: expected a program, found: {error.strerror}; "
                                   "build it, or correct --engine-command or --peer") from error
        last, fault, answered, self.stalled = "", None, threading.Event(), False
        threading.Thread(target=self.watch, args=(self.process, answered), daemon=True).start()
        try:
            self.process.stdin.write(json.dumps(settings | {"engine": self.name}) + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                last = line.strip() or last
                if (answer := self.parse(line)) is not None:
                    if (fault := fault_of(answer, settings)) is None:
                        return answer
                    break
        except BrokenPipeError:
            pass
        except BaseException:  # interrupted: what it would answer is not wanted any more
            self.close()
            raise
        finally:
            answered.set()
        code = self.close()
        what = f"ended with {code}" if code or not last else f"its last line is no measurement: {last[:200]}"
        if self.stalled or fault:
            what = f"took no processor time for {STALLED_S} s" if self.stalled else f"{fault[:300]}, in {last[:200]}"
        raise CompareError(f"measure {self.name}: {shlex.join(self.command)}: {what}\n{self.said}".strip())

    @staticmethod
    def parse(line: str) -> dict | None:
        """The JSON object in a line; None for anything else that a library may print."""
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return answer if isinstance(answer, dict) else None

    def watch(self, process: subprocess.Popen, answered: threading.Event) -> None:
        """Kills a process that does nothing while it is asked."""
        before = cpu_s_of(process.pid)
        while not answered.wait(STALLED_S):
            if (now := cpu_s_of(process.pid)) == before:
                self.stalled = True
                kill_session(process)
                return
            before = now

    def cpu_s(self) -> float:
        return 0.0 if self.process is None else cpu_s_of(self.process.pid)

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
            kill_session(process)
            code = process.wait()
        process.stdout.close()
        self.errors.seek(0)
        self.said = self.errors.read().strip()[-1500:]
        self.errors.close()
        return code
