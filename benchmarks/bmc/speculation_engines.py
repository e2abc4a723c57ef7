"""One answer under one setting: by `tidemill run`, or by the process of a peer that stays alive."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from speculation_settings import Setting

PEER_DRIVER = Path(__file__).resolve().with_name("speculation_peer.py")


class EngineFailed(RuntimeError):
    """A program ended without an answer, or with one that cannot be right."""


def sample_of(answer: dict) -> dict:
    """What is kept of an object of `run --json`. The first token is the prompt's; decoding made those behind it."""
    draft = answer.get("draft", {})
    return {"ids": answer["ids"], "prompt_tokens": answer["prompt_tokens"], "tokens": max(0, answer["generated_tokens"] - 1),
            "seconds": answer["timings"]["decode_ms"] / 1000, "first_s": answer["timings"]["first_token_ms"] / 1000,
            "drafted": draft.get("drafted", 0), "accepted": draft.get("accepted", 0), "acceptance": draft.get("acceptance", []),
            "widths": draft.get("widths", {}), "growths": answer["state"]["growths"], "bytes_copied": answer["state"]["bytes_copied"],
            "cut": draft.get("cut", 0), "grown": draft.get("grown", 0)}


class Ours:
    def __init__(self, tidemill: str, model: str, threads: int, tokens: int, raw: bool):
        self.tidemill, self.model = tidemill, model
        self.form = ["--raw"] if raw else ["--chat"]
        self.flags = ["--json", "--quiet", "--temperature", "0", "--repetition-penalty", "1", "--max-new-tokens", str(tokens),
                      "--threads", str(threads)]

    def run(self, prompt: str, setting: Setting) -> dict:
        """A sample, or {"error"} where the program refuses the setting."""
        model, flags = (setting.draft, ()) if setting.kind == "alone" else (self.model, setting.flags)
        done = subprocess.run([self.tidemill, "run", model, "-", *self.form, *self.flags, *flags], input=prompt, text=True,
                              capture_output=True)
        if done.returncode in (130, 143):  # somebody stopped it, and us
            raise KeyboardInterrupt
        if done.returncode != 0:
            return {"error": done.stderr.strip()[:300] or f"ended with {done.returncode}"}
        return sample_of(json.loads(done.stdout))

    def ids_of(self, prompt: str) -> list[int]:
        """The ids that `run` makes of a prompt: a peer gets the same."""
        command = [self.tidemill, "tokenize", self.model, "--json"]
        if self.form == ["--raw"]:
            done = subprocess.run([*command, "-"], input=prompt, text=True, capture_output=True)
        else:
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump([{"role": "user", "content": prompt}], file)
                file.flush()
                done = subprocess.run([*command, "--chat", file.name], text=True, capture_output=True)
        if done.returncode != 0:
            raise EngineFailed(f"tokenize a prompt: {done.stderr.strip()[:300]}")
        return json.loads(done.stdout)["ids"]


class Peer:
    """Started when it is first asked; its model stays loaded, and it waits without spinning while others are measured."""

    def __init__(self, python: str, model: str, threads: int, tokens: int):
        self.settings = {"model": model, "threads": threads, "tokens": tokens}
        self.python, self.process = python, None

    def run(self, ids: list[int], setting: Setting) -> dict:
        if self.process is None:
            self.process = subprocess.Popen([self.python, str(PEER_DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            text=True, env=os.environ | {"GGML_NO_BACKTRACE": "1"})
        self.process.stdin.write(json.dumps(self.settings | {"ids": ids, "lookup": setting.lookup}) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:  # a library may print lines of its own
            if line.startswith("{"):
                return json.loads(line)
        raise EngineFailed(f"measure {setting.name}: {self.python} {PEER_DRIVER.name} ended with {self.process.wait()}")

    def close(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
