"""One answer under one setting: by `tidemill run`, by the process of a peer that stays alive, or by a run of llama.cpp's program."""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from speculation_settings import Setting

PEER_DRIVER = Path(__file__).resolve().with_name("speculation_peer.py")


class EngineFailed(RuntimeError):
    """A program ended without an answer, or with one that cannot be right."""


def sample_of(answer: dict) -> dict:
    """What is kept of an object of `run --json`. The first token is the prompt's; decoding made those after it."""
    draft = answer.get("draft", {})
    return {"ids": answer["ids"], "prompt_tokens": answer["prompt_tokens"], "tokens": max(0, answer["generated_tokens"] - 1),
            "seconds": answer["timings"]["decode_ms"] / 1000, "first_s": answer["timings"]["ttft_ms"] / 1000,
            "drafted": draft.get("drafted", 0), "accepted": draft.get("accepted", 0), "acceptance_rate": draft.get("acceptance_rate", []),
            "steps_by_draft_tokens": draft.get("steps_by_draft_tokens", {}), "growths": answer["state"]["growths"], "bytes_copied": answer["state"]["bytes_copied"],
            "cut": draft.get("cut", 0), "grown": draft.get("grown", 0),
            "draft_prefill_s": draft.get("draft_prefill_ms", 0) / 1000}


class Ours:
    def __init__(self, tidemill: str, model: str, threads: int, tokens: int, raw: bool):
        self.tidemill, self.model = tidemill, model
        self.form = ["--raw"] if raw else ["--chat"]
        self.flags = ["--json", "--quiet", "--temperature", "0", "--repetition-penalty", "1", "--allow-repetition", "--max-new-tokens", str(tokens),
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

    def text_of(self, ids: list[int]) -> str:
        done = subprocess.run([self.tidemill, "detokenize", self.model, "--keep-special"], input=" ".join(map(str, ids)).encode(),
                              capture_output=True)
        if done.returncode != 0:
            raise EngineFailed(f"detokenize a prompt: {done.stderr.decode(errors='replace').strip()[:300]}")
        return done.stdout.decode()


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


# Of what llama-speculative-simple says: the first of each.
LLAMA_SAYS = {"prompt_tokens": r"encoded +(\d+) tokens", "tokens": r"decoded +(\d+) tokens", "seconds": r"decoded .* in +([\d.]+) seconds",
              "drafted": r"n_drafted += +(\d+)", "accepted": r"n_accept += +(\d+)", "with_drafts": r"#gen drafts = +(\d+)"}
LLAMA_ROOM = 128  # rows after an answer: draft tokens of its last steps, up to 64, may exceed the token limit


def sample_of_llama(said: str, printed: str, prompt: str) -> dict:
    """`said` on standard error; `printed`: the prompt and the answer, with two newlines before them and four behind."""
    found = {name: re.search(pattern, said) for name, pattern in LLAMA_SAYS.items()}
    if missing := [name for name, match in found.items() if not match]:
        raise EngineFailed(f"read what llama.cpp's program says: expected {', '.join(missing)}, found none: {said.strip()[-300:]}")
    sample = {name: float(match[1]) if name == "seconds" else int(match[1]) for name, match in found.items()}
    return sample | {"text": printed.removeprefix("\n\n").removeprefix(prompt).removesuffix("\n\n\n\n")}


class Llama:
    """llama-speculative-simple, a run for each answer. It always makes a token more than -n says, and starts to count time behind the prompt's
    last token but one: its seconds are those of all tokens and the steps that made them, the first one's too, without the prompt, which the
    draft model has read by then, too."""

    def __init__(self, program: str, ours: Ours, threads: int, tokens: int):
        self.program, self.ours, self.threads, self.tokens = program, ours, str(threads), tokens

    def run(self, ids: list[int], setting: Setting) -> dict:
        """A sample, or {"error"}. It gets the text of `ids`; whether it makes as many ids of it, `prompt_tokens` says."""
        prompt, room = self.ours.text_of(ids), str(-(-(len(ids) + self.tokens + LLAMA_ROOM) // 256) * 256)
        with tempfile.NamedTemporaryFile("wb", suffix=".txt") as file:
            file.write(prompt.encode())
            file.flush()
            done = subprocess.run([self.program, "-m", self.ours.model, "--binary-file", file.name, "--no-escape", "-n", str(self.tokens - 1),
                                   "--samplers", "top_k", "--top-k", "1", "-t", self.threads, "-tb", self.threads, "-fa", "on", "-c", room,
                                   "-b", room, "-lv", "4", *setting.flags], capture_output=True)
        said, printed = (stream.decode(errors="replace") for stream in (done.stderr, done.stdout))
        if done.returncode != 0:
            return {"error": said.strip()[-300:] or f"ended with {done.returncode}"}
        return sample_of_llama(said, printed, prompt)
