#!/usr/bin/env python3
"""Speculation over many prompts: every drafter, number of draft tokens, tree and growth policy beside plain decoding of the same answers.

  benchmarks/bmc/speculation.py build/release/bin/tidemill MODEL --journal spec.jsonl --out FOLDER [--draft 0.5B=DRAFT_MODEL ...]
      [--peer llama.cpp=PYTHON] [--llama-speculative PROGRAM] [--sets coding edit long verse] [--prompts N] [--widths 1 2 4 8] [--tokens 96]
      [--threads 2] [--raw]

Sets are files of prompts beside this program: `coding` asks for short programs, `edit` gives a passage and asks for it with a small change,
or for a part of it; `long` is `edit` behind passages of its other prompts, for a context of 1000 to 2000 tokens; `verse` are
first lines of speeches by Shakespeare, for small models that were trained on such. Each prompt runs under all settings, in an order that is drawn, before the next prompt: what changes on the machine
meanwhile meets all settings alike. Each run is a process of its own, greedy; what is timed is from the first token to the last, with
draft prefill. Answers of all settings have to be plain's, id by id: where one is not, the program says which and ends.

Settings: plain; lookup (`--draft ngram`) and each --draft, adaptive (up to 8, and up to the largest of --widths), with every number of draft tokens of --widths,
and with the trees; each of plain, lookup and --draft also with caches that grow at each step and with caches of full size. A draft model
also answers alone, for the price of its steps. --peer adds the prompt lookup of llama-cpp-python beside its own plain
decoding; its answers may differ from ours and from its own. --llama-speculative adds llama.cpp's own speculation, by its program
llama-speculative-simple: its types that look up in the text, and each --draft that is a GGUF file with --spec-draft-n-max 2, 4 and 8
(--spec-draft-p-min stays at its default, 0: no draft token is too unlikely), beside a type that never drafts. It gets the text of the same ids and loads
its models for each answer. Its time is what it says it decoded in: the step of the prompt's last token, which ours excludes, is part of it, and
draft prefill, which ours includes, is not. Its last steps draft past the token limit, so that answers may be some tokens
longer, all of which are counted; they may differ here, too. Run nothing beside it: its threads spin while they wait for each other.

Runs are appended to --journal as they end; what is there is not measured again, and the same command continues after it. --out gets
speculation.md and its figures; --report writes them from the journal without measuring.
"""

import argparse
import hashlib
import itertools
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import speculation_report
from speculation_engines import EngineFailed, Llama, Ours, Peer
from speculation_journal import Journal
from speculation_settings import Setting, all_settings, cell_of, is_at_once, named_draft, prompts_of

SETS = ["coding", "edit", "long", "verse"]


class AnswersDiffer(RuntimeError):
    """A setting's answer is not plain's: a bug, or a journal of two programs."""


def first_line(*command: str) -> str:
    try:
        return (subprocess.run(command, text=True, capture_output=True).stdout.splitlines() or [""])[0].strip()
    except OSError:
        return ""


def about_machine(arguments: argparse.Namespace) -> dict:
    text = Path("/proc/cpuinfo").read_text()
    found = [re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE) for name in ("model name", "cpu family", "model")]
    cpu = "{}, family {} model {}".format(*(match[1] for match in found)) if all(found) else platform.machine()
    program = Path(shutil.which(arguments.tidemill) or arguments.tidemill)
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "system": platform.release(),
            "program": first_line(arguments.tidemill, "--version"), "sha256": hashlib.sha256(program.read_bytes()).hexdigest()}


def compare_answers(found: dict[str, dict], settings: list[Setting], where: str) -> None:
    """`found`: by setting. All of one prompt that should be plain's answer have to be, id by id."""
    if "ids" not in found.get("plain", {}):
        return
    expected = found["plain"]["ids"]
    for setting in settings:
        ids = found.get(setting.name, {}).get("ids")
        if ids is None or setting.kind in ("alone", "peer", "llama") or ids == expected:
            continue
        at = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), min(len(ids), len(expected)))
        raise AnswersDiffer(f"{where}, {setting.name}: id {at} of {len(ids)} is {ids[at:at + 1]}, plain's {len(expected)} have "
                            f"{expected[at:at + 1]}: expected the same ids under every setting")


class Measurement:
    def __init__(self, arguments: argparse.Namespace):
        self.arguments, self.journal = arguments, Journal(arguments.journal)
        self.settings = [s for s in all_settings(arguments.draft, arguments.widths, bool(arguments.peer), bool(arguments.llama_speculative))
                         if s.name == "plain" or re.search(arguments.only, s.name)]
        self.ours = Ours(arguments.tidemill, arguments.model, arguments.threads, arguments.tokens, arguments.raw)
        self.peer = Peer(arguments.peer, arguments.model, arguments.threads, arguments.tokens) if arguments.peer else None
        self.llama = Llama(arguments.llama_speculative, self.ours, arguments.threads, arguments.tokens)
        here = Path(__file__).resolve().parent
        self.prompts = {name: prompts_of(name, here, arguments.prompts) for name in arguments.sets}

    def cell(self, set_name: str, prompt: dict, setting: Setting) -> dict:
        return cell_of(self.arguments.model, set_name, prompt, setting, self.arguments)

    def in_turn(self) -> list[tuple[str, dict]]:
        """The first prompt of each set, then the second: a journal that is not complete has something of all."""
        rows = itertools.zip_longest(*[[(name, p) for p in prompts] for name, prompts in self.prompts.items()])
        return [item for row in rows for item in row if item]

    def of_prompt(self, set_name: str, prompt: dict) -> dict[str, dict]:
        found = {s.name: self.journal.find(self.cell(set_name, prompt, s)) for s in self.settings}
        return {name: record for name, record in found.items() if record}

    def is_done(self, set_name: str, prompt: dict, setting: Setting) -> bool:
        """Settings of a prompt are compared with each other: all of one machine and program."""
        found = {name: record["on"] for name, record in self.of_prompt(set_name, prompt).items() if "error" not in record}
        if len(found) == len(self.settings) and len(set(found.values())) == 1:
            return True
        return found.get(setting.name) == self.journal.here

    def run_one(self, set_name: str, prompt: dict, setting: Setting) -> None:
        if setting.kind in ("peer", "llama"):
            other = self.peer if setting.kind == "peer" else self.llama
            sample = other.run(self.ours.ids_of(prompt["prompt"]), setting)
        else:
            sample = self.ours.run(prompt["prompt"], setting)
        self.journal.add({"cell": self.cell(set_name, prompt, setting), **sample})
        if "error" in sample:
            print(f"{prompt['id']}, {setting.name}: {sample['error']}", file=sys.stderr, flush=True)

    def run(self) -> None:
        self.journal.on(about_machine(self.arguments))
        turns, start, done = self.in_turn(), time.monotonic(), 0
        todo = sum(not self.is_done(*turn, s) for turn in turns for s in self.settings)
        for set_name, prompt in turns:
            order = random.Random(f"{set_name}/{prompt['id']}").sample(self.settings, len(self.settings))
            missing = [s for s in order if not self.is_done(set_name, prompt, s)]
            for setting in missing:
                self.run_one(set_name, prompt, setting)
            done += len(missing)
            self.compare(set_name, prompt)
            if missing:
                left = (todo - done) * (time.monotonic() - start) / done
                print(f"{prompt['id']}: {done} of {todo} runs, about {left / 60:.0f} min left", file=sys.stderr, flush=True)

    def compare(self, set_name: str, prompt: dict) -> None:
        found = self.of_prompt(set_name, prompt)
        compare_answers(found, self.settings, f"{self.journal.path}: {prompt['id']}")
        ours = {r["prompt_tokens"] for name, r in found.items() if "prompt_tokens" in r and not name.endswith(" alone")}
        if len(ours) > 1:
            raise EngineFailed(f"{self.journal.path}: {prompt['id']}: prompts of {sorted(ours)} ids: expected the same for all settings")

    def report(self) -> str:
        samples = {}
        for set_name, prompts in self.prompts.items():
            for prompt in prompts:
                self.compare(set_name, prompt)
            samples[set_name] = {s.name: {p["id"]: r for p in prompts if (r := self.journal.find(self.cell(set_name, p, s)))}
                                 for s in self.settings}
        about = {"model": Path(self.arguments.model).name, "machines": self.journal.machines, "tokens": self.arguments.tokens,
                 "threads": self.arguments.threads, "at_once": {name for name, d in self.arguments.draft.items() if is_at_once(d)},
                 "prompts": {name: len(prompts) for name, prompts in self.prompts.items()}}
        return speculation_report.write(self.arguments.out, about, self.settings, samples)


def peer_python(text: str) -> str:
    name, _, python = text.partition("=")
    if name != "llama.cpp" or not python:
        raise argparse.ArgumentTypeError(f"{text}: expected llama.cpp=PYTHON, an interpreter that has llama-cpp-python")
    return python


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("model")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder, made where it is not there")
    parser.add_argument("--draft", nargs="+", type=named_draft, default=[], metavar="[NAME=]MODEL",
                        help="draft models with a name for tables, or layers:M; lookup is always measured")
    parser.add_argument("--peer", type=peer_python, metavar="llama.cpp=PYTHON")
    parser.add_argument("--llama-speculative", metavar="PROGRAM", help="llama.cpp's llama-speculative-simple")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["coding", "edit"])
    parser.add_argument("--prompts", type=int, help="of each set; default: all")
    parser.add_argument("--widths", nargs="+", type=int, default=list(range(1, 17)))
    parser.add_argument("--only", default="", metavar="REGEX", help="settings whose name matches, and plain")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--raw", action="store_true", help="prompts without the chat template")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    names = ["ngram"] + [name for name, _ in arguments.draft]
    if len(set(names)) < len(names):
        parser.error(f"--draft: expected different names, found {' '.join(names)}; say NAME=MODEL")
    arguments.draft = {"ngram": "ngram"} | dict(arguments.draft)
    return arguments


def main() -> int:
    measurement = Measurement(parse_arguments())
    try:
        if not measurement.arguments.report:
            measurement.run()
        print(measurement.report(), end="")
        failed = sum(not measurement.is_done(*turn, s) for turn in measurement.in_turn() for s in measurement.settings)
        if failed and not measurement.arguments.report:
            raise EngineFailed(f"{failed} runs failed, the journal says why; the same command tries them again")
    finally:
        if measurement.peer:
            measurement.peer.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (AnswersDiffer, EngineFailed, OSError) as error:
        print(f"speculation: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("speculation: stopped; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
