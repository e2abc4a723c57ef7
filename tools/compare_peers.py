#!/usr/bin/env python3
"""Speed of Tidemill beside llama.cpp and ik_llama.cpp on the same GGUF files: paired ratios, as a section of Markdown.

    compare_peers.py --model M.gguf [N.gguf ...] --engine-command "build/release/bin/bench_child"
        --peer llama.cpp=PEER/bin/python --peer ik_llama.cpp=IK/bin/python --plan quick --out speed.md

Rows: prefill, decode after so many cached tokens, for each thread count; batched decode for the largest. One process
per engine stays alive for all rows and waits, without spinning, while another is measured. For each row

  1. every setting of each peer is tried (flash attention on and off, ik_llama.cpp's -rtr on and off), and once more if it
     came within 10 % of the fastest; of those whose logits are right, in prefill and batches, the fastest is taken; at a
     greater depth it is the one that was fastest at a depth of at least 512 or, where that fails, of the others;
  2. in each pair every engine is measured once, in random order, from a context that it filled once, for a depth and
     greater ones, and for all thread counts. A short test is repeated within the measurement until it takes --seconds,
     16 times at most, and the median counts. After each decode of ours a plain loop reads as many bytes as a step of it, 512 MiB
     at most, for a fifth of a second: about the rate at which an engine could do no more than read them once, as far as memory
     gives both the same.

What is timed: prefill, P tokens into an empty cache until the last token's logits are readable; decode, G steps of one
token for each request, logits readable after each. Nothing is sampled. Rows whose contexts do not fit into memory for all
engines at once are left out and listed.

Finished rows are in FILE.jsonl beside the section: the same command again continues after them; another plan, other flags of
the engine or another kind of processor starts over, as does a file of another size for its own rows.
Exits 1 if ours fails, or a peer while pairs are measured (one that fails with all its settings is listed as left out), or if a peer's
build leaves some of this CPU's instructions unused (--any-build allows it). A process fails, too, that takes no processor time for 300 seconds.
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import platform
import random
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import peer_report
from peer_process import DRIVER, PACKAGES, PEER_SETTINGS, CompareError, Engine, is_version_of, settings_of
from peer_report import OURS

# Chosen, not derived: right logits differ by 0.01 to 0.35 where activations are rounded to 8 bits, wrong ones by 2.6 and more. What lies between,
# llama.cpp's prefill of Gemma 3 with flash attention, 0.54 to 0.64 by the machine, is left out as well.
WRONG_ABOVE = 0.5
PLANS = {
    "quick": {"pairs": 3, "seconds": 0.3, "prefill": [128], "depth": [0, 512], "batch": [(8, 128)], "gen": 16, "batch_gen": 4},
    "full": {"pairs": 10, "seconds": 1.0, "prefill": [512], "depth": [0, 2048, 8000],
             "batch": [(8, 512), (8, 2048), (32, 512), (32, 2048)], "gen": 16, "batch_gen": 8},
}


def rows_of(plan: dict, model: str, threads: list[int]) -> list[dict]:
    all_counts = [{"model": model, "threads": count} for count in threads]
    rows = [base | {"kind": "prefill", "tokens": n} for n in plan["prefill"] for base in all_counts]
    rows += [base | {"kind": "decode", "depth": n, "gen": plan["gen"]} for n in plan["depth"] for base in all_counts]
    # Nobody serves many on a part of the machine, and their contexts take long to fill.
    return rows + [{"model": model, "threads": max(threads), "kind": "batch", "batch": b, "depth": n, "gen": plan["batch_gen"]}
                   for b, n in plan["batch"]]


def work_of(row: dict, pairs: int) -> float:
    """How long a row takes beside others, roughly: in tokens prefilled by one thread."""
    if row["kind"] == "prefill":
        return row["tokens"] * (pairs + 8) / row["threads"]
    batch = row.get("batch", 1)
    steps = (8 if batch == 1 else 2) * batch * row["gen"] * (pairs + 8)
    return (row["depth"] * (3 + batch / 4) + steps) / row["threads"]


def positions_of(row: dict) -> int:
    return row["tokens"] if row["kind"] == "prefill" else row.get("batch", 1) * (row["depth"] + row["gen"] + 256)


def settings_for(row: dict, path: Path, seed: int, deepest: int = 0) -> dict:
    test = {"prefill": {"prompt_tokens": [row.get("tokens")]}, "decode": {"depth": [row.get("depth")]},
            "batch": {"batch": [row.get("batch")], "batch_prompt": [row.get("depth")] * 2}, "none": {}}[row["kind"]]
    return {"model": str(path), "threads": row["threads"], "prompt_tokens": [], "depth": [], "batch": [],
            "batch_prompt": [1, 1], "gen_tokens": row.get("gen", 1), "repeats": 1, "seed": seed, "text": None,
            "kv_type": "f16", "n_batch": 2048, "ubatch": 512, "flash_attn": True,
            # One sequence's context is made for all depths but 0, which needs none.
            "deepest": deepest if row["kind"] == "decode" and row["depth"] else 0} | test


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 0


class Comparison:
    """The engines of one run, and what is known of them."""

    def __init__(self, args: argparse.Namespace, records: list[dict]):
        self.args, self.rng = args, random.Random(args.seed)
        self.engines = {OURS: Engine(OURS, shlex.split(args.engine_command))}
        for name, python in args.peer.items():
            self.engines[name] = Engine(name, [python, str(DRIVER), "bench"])
        self.versions, self.unused, self.last_best, self.known_best = {}, {}, {}, {}
        for record in records:
            for name in record["settings"].keys() & args.peer.keys() - set(record["wrong"]):
                self.remember(name, record["row"], record["settings"][name])
        self.kv_bytes = self.room = 0

    def open_model(self, path: Path, threads: int) -> None:
        """Every engine loads the model; what is left of the memory is the room for contexts."""
        for name, engine in self.engines.items():
            answer = engine.ask(settings_for({"kind": "none", "threads": threads}, path, 1))
            self.versions[name] = answer["version"]
            if not is_version_of(name, answer["version"]):
                raise CompareError(f"measure {name}: expected an interpreter with {PACKAGES[name]}, found {answer['version']}; "
                                   f"correct --peer {name}=PYTHON")
            self.unused[name] = answer.get("isa", {}).get("unused", [])
            self.kv_bytes = answer.get("kv_bytes_per_token", self.kv_bytes)
        self.room = available_bytes() - 2 * path.stat().st_size  # copies that repacking makes

    @staticmethod
    def alike(name: str, row: dict) -> tuple:
        return name, row["model"], row["threads"], row["kind"], row.get("batch")

    def remember(self, name: str, row: dict, best: str) -> None:
        if row.get("depth", 0) >= 512:
            self.known_best[self.alike(name, row)] = best

    def try_settings(self, name: str, row: dict, settings: dict) -> tuple[str | None, dict, list[str], bool]:
        """(name of the fastest right setting, its members, what was left out and why, whether the answer is wrong)."""
        choices = settings_of(name, row) if name != OURS else {"": {"flash_attn": True}}
        known = self.known_best.get(self.alike(name, row))
        if known not in choices:
            return self.try_each(choices, name, row, settings)
        # Long contexts take minutes to fill, once for each setting: those of others only where this one is not right.
        first = self.try_each({known: choices.pop(known)}, name, row, settings)
        if first[0] is not None and not first[3] or not choices:
            return first
        best, own, left_out, wrong = self.try_each(choices, name, row, settings)
        if best is None:
            best, own, _, wrong = first
        return best, own, first[2] + left_out, wrong

    def try_each(self, choices: dict, name: str, row: dict, settings: dict) -> tuple[str | None, dict, list[str], bool]:
        tried, left_out, fastest = {}, [], 0.0
        # The best of the row before comes last: if it is the best again, its context is filled already.
        order = sorted(choices, key=lambda choice: choice == self.last_best.get(name))
        for attempt in range(2):
            for choice in order if attempt == 0 else [c for c in order if c in tried and tried[c][1] > 0.9 * fastest]:
                try:
                    test = self.engines[name].ask(settings | choices[choice])["tests"][0]
                except CompareError as error:
                    if name == OURS:
                        raise
                    left_out.append(f"{choice}: {' '.join(str(error).split())[:300]}")
                    tried.pop(choice, None)
                    continue
                wrong, sample = test.get("disagreement") or 0, test["samples"][0]
                if attempt == 0 and not wrong <= WRONG_ABOVE:
                    left_out.append(f"{choice}{': ' * bool(choice)}WRONG, logits differ by a relative RMS of {wrong:.2f}")
                found = (wrong <= WRONG_ABOVE, sample["tokens_per_s"], choice, sample["seconds"])
                tried[choice] = max(found, tried.get(choice, found))
            fastest = max(tried.values(), default=(True, 0.0))[1]  # a right one, if there is one
        if not tried:
            return None, {}, left_out, False
        right, _, best, seconds = max(tried.values())
        self.last_best[name] = best
        if right:
            self.remember(name, row, best)
        repeats = max(1, min(16, math.ceil(self.args.seconds / seconds)))
        return best, choices[best] | {"repeats": repeats}, left_out, not right

    def need(self, row: dict) -> int:
        """Bytes of the contexts that engines hold at once: one for each setting that is tried."""
        contexts = sum(1 if name == OURS or row["kind"] == "prefill" else len(settings_of(name, row)) for name in self.engines)
        return self.kv_bytes * positions_of(row) * contexts

    def measure_row(self, row: dict, path: Path) -> dict:
        deepest = max((depth for depth in PLANS[self.args.plan]["depth"] if self.need(row | {"depth": depth}) <= self.room),
                      default=0)
        settings = settings_for(row, path, self.args.seed, deepest)
        record = {"row": row, "settings": {}, "left_out": {}, "wrong": [], "pairs": [], "peak_rss_mib": {}, "idle_cores": 0.0,
                  "beyond_trained_context": False}
        if (need := self.need(row)) > self.room:
            return record | {"skipped": f"contexts of {need / 2**30:.1f} GiB, room for {max(0, self.room) / 2**30:.1f} GiB"}
        chosen = {}
        for name in self.engines:
            best, own, left_out, wrong = self.try_settings(name, row, settings)
            if left_out:
                record["left_out"][name] = left_out
            if wrong:
                record["wrong"].append(name)
            if best is not None:
                record["settings"][name], chosen[name] = best, settings | own
        chosen[OURS] = chosen[OURS] | {"read_rate": row["kind"] == "decode"}
        for _ in range(self.args.pairs):
            record["pairs"].append(pair := {})
            for name in self.rng.sample(list(chosen), len(chosen)):
                pair[name] = self.measure(name, chosen[name], record)
        return record

    def measure(self, name: str, settings: dict, record: dict) -> dict:
        others = [engine for engine in self.engines.values() if engine.name != name]
        idle, start = sum(engine.cpu_s() for engine in others), time.monotonic()
        answer = self.engines[name].ask(settings)
        idle, passed = sum(engine.cpu_s() for engine in others) - idle, time.monotonic() - start
        if passed > 0.5:  # processor time is counted in hundredths of a second
            record["idle_cores"] = max(record["idle_cores"], idle / passed)
        test = answer["tests"][0]
        rss = record["peak_rss_mib"]
        rss[name] = max(rss.get(name, 0), test.get("peak_rss_mib", 0))
        record["beyond_trained_context"] |= test.get("beyond_trained_context", False)
        found = {field: statistics.median(sample[field] for sample in test["samples"])
                 for field in ("tokens_per_s", "tokens_per_cpu_s", "others_cores")}
        if "read_gb_per_s" in test:
            found |= {"read_gb_per_s": test["read_gb_per_s"],
                      "read_share": test["bytes_per_step"] * found["tokens_per_s"] / (1e9 * test["read_gb_per_s"])}
        return {field: float(f"{value:.5g}") for field, value in found.items()}

    def close(self) -> None:
        for engine in self.engines.values():
            engine.close()


class Journal:
    """Finished rows, one a line. A row that ended with half a line is not there."""

    def __init__(self, path: Path, plan: dict):
        self.path, self.plan, self.records = path, plan, []
        refused = 0
        if path.exists():
            for line in path.read_text(errors="replace").splitlines():
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if not isinstance(record, dict) or record.get("plan") != plan:
                    continue
                if peer_report.is_whole(record, plan["peers"]):
                    self.records.append(record)
                else:
                    refused += 1
        if refused:
            print(f"compare_peers: {refused} rows of {path} lack something, and are measured again", file=sys.stderr)

    def find(self, row: dict, paths: dict[str, Path]) -> dict | None:
        """None of a file of another size with the same name. Rows of before sizes were noted are taken for this file's."""
        size = paths[row["model"]].stat().st_size
        return next((r for r in self.records if r["row"] == row and r.get("model_bytes", size) == size), None)

    def add(self, record: dict) -> None:
        record = record | {"plan": self.plan}
        before = self.path.read_bytes() if self.path.exists() else b""
        with self.path.open("ab") as file:
            file.write((b"" if not before or before.endswith(b"\n") else b"\n") + json.dumps(record).encode() + b"\n")
        self.records.append(record)


def first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return (done.stdout.splitlines() or ["unknown"])[0]


def compiler_of(program: str) -> str:
    """What the program says it was compiled with, and the compiler of this machine, which may have compiled the peers."""
    here = first_line("c++", "--version")
    try:
        found = re.findall(rb"GCC: \([^)]{1,40}\) [\d.]+|clang version [\d.]+", Path(program).read_bytes())
    except OSError:
        return here
    told = ", ".join(sorted({text.decode() for text in found}))
    return f"{told} (ours); this machine's: {here}" if told else here


def cpu_name() -> str:
    """With family and model, where there are: a name may be no more than that of a whole line of processors."""
    found = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    name, family, model = (found.get(key) for key in ("model name", "cpu family", "model"))
    return f"{name}, family {family} model {model}" if name and family and model else name or platform.machine()


def commit() -> str:
    """Of this checkout, with "-dirty" where it has changes: of the program, too, where it was built here and now."""
    return first_line("git", "-C", str(DRIVER.parent), "describe", "--always", "--dirty", "--exclude=*")


def sha256(program: str) -> str:
    """Of the program that is measured: the checkout's commit may not be its own."""
    try:
        return hashlib.sha256(Path(shutil.which(program) or program).read_bytes()).hexdigest()
    except OSError:
        return "unknown"  # starting it says why


def engine_flags(command: str) -> list[str]:
    """What belongs to a plan: the program may stand anywhere, its flags choose what is measured."""
    return shlex.split(command)[1:]


def about(args: argparse.Namespace, versions: dict, records: list[dict]) -> dict:
    dates = [r["date"] for r in records] or [datetime.date.today().isoformat()]
    return {"cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)),
            "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
            "system": f"{platform.system()} {platform.release()}", "versions": versions,
            "compiler": compiler_of(shlex.split(args.engine_command)[0]),
            "commit": ", ".join(dict.fromkeys(r["commit"] for r in records)) or commit(),
            "date": " to ".join(dict.fromkeys([min(dates), max(dates)])),
            "commands": ["python3 " + shlex.join(sys.argv),
                         *(f"{name}: {shlex.join([python, os.path.relpath(DRIVER), 'bench'])}"
                           for name, python in args.peer.items())]}


def parse_peer(text: str) -> tuple[str, str]:
    name, _, python = text.partition("=")
    if name not in PEER_SETTINGS:
        raise argparse.ArgumentTypeError(f"unknown peer '{name}'; known: {', '.join(PEER_SETTINGS)}")
    return name, python or sys.executable


def parse_arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", type=Path, nargs="+", required=True)
    p.add_argument("--engine-command", required=True, metavar="COMMAND", help='such as "build/bench_child"')
    p.add_argument("--peer", type=parse_peer, action="append", required=True, metavar="NAME=PYTHON",
                   help=f"{' or '.join(PEER_SETTINGS)}, and the interpreter that has its package; may be repeated")
    p.add_argument("--plan", choices=list(PLANS), default="quick")
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    p.add_argument("--pairs", type=int, help="of each row; default: 3 in the quick plan, 10 in the full one")
    p.add_argument("--seconds", type=float, help="a measurement takes about so long, 16 runs at most; default: 0.3, 1 in the full plan")
    p.add_argument("--only", metavar="REGEX", help="rows whose 'MODEL, 1 thread, decode at depth 0' matches")
    p.add_argument("--seed", type=int, default=1, help="of token ids and order")
    p.add_argument("--out", type=Path, required=True, metavar="FILE", help="the Markdown section; FILE.jsonl: the journal")
    p.add_argument("--any-build", action="store_true", help="accept a peer that leaves instructions unused")
    args = p.parse_args()
    args.peer = dict(args.peer)
    plan = PLANS[args.plan]
    args.pairs = plan["pairs"] if args.pairs is None else args.pairs
    args.seconds = plan["seconds"] if args.seconds is None else args.seconds
    if min([*args.threads, args.pairs]) < 1 or not (math.isfinite(args.seconds) and args.seconds > 0):
        p.error("counts and seconds must be positive")
    try:
        if not shlex.split(args.engine_command):
            p.error("--engine-command: expected a program, found nothing")
        re.compile(args.only or "")
    except ValueError as error:
        p.error(f"--engine-command: expected a command line, found {args.engine_command!r}: {error}")
    except re.error as error:
        p.error(f"--only: expected a regular expression, found {args.only!r}: {error}")
    try:
        "".join([*sys.argv, *(str(path.resolve()) for path in args.model)]).encode()
    except UnicodeEncodeError as error:
        p.error(f"expected arguments in UTF-8, as the section is, found {error.object[max(0, error.start - 40):error.end + 40]!r}")
    args.threads = list(dict.fromkeys(args.threads))
    for out in (args.out, args.out.with_name(args.out.name + ".jsonl")):
        if not os.access(out if out.exists() else out.resolve().parent, os.W_OK) or out.exists() and not out.is_file():
            p.error(f"--out {args.out}: expected {out} to be a file or a new name, in a folder that can be written to")
    if len({path.name for path in args.model}) < len(args.model):
        p.error("--model: expected files with different names, which rows are known by, found one twice; rename it")
    for path in args.model:
        if not path.is_file():
            p.error(f"--model {path}: expected a file, found none")
    if args.pairs < 10:
        print("compare_peers: fewer than 10 pairs: a look, not a claim", file=sys.stderr)
    return args


def main() -> int:
    args = parse_arguments()
    paths = {path.name: path.resolve() for path in args.model}
    plan = {"pairs": args.pairs, "seconds": args.seconds, "seed": args.seed, "peers": list(args.peer), "cpu": cpu_name(),
            "engine": engine_flags(args.engine_command)}
    journal = Journal(args.out.with_name(args.out.name + ".jsonl"), plan)
    rows = [row for name in paths for row in rows_of(PLANS[args.plan], name, args.threads)
            if not args.only or re.search(args.only, peer_report.where(row))]
    if not rows:
        sys.exit(f"compare_peers: --only {args.only!r}: expected rows of the plan, found none that it matches")
    todo = [row for row in rows if not journal.find(row, paths)]
    if len(todo) < len(rows):
        print(f"{len(rows) - len(todo)} of {len(rows)} rows are in {journal.path}", file=sys.stderr)
    measured_at = commit()  # before the engine starts: it stays as it is when the checkout moves on
    program = sha256(shlex.split(args.engine_command)[0])
    comparison, opened, done_work, start = Comparison(args, journal.records), None, 0.0, time.monotonic()
    try:
        for index, row in enumerate(todo):
            if opened != row["model"]:
                opened = row["model"]
                comparison.open_model(paths[opened], row["threads"])
            began = time.monotonic()
            record = comparison.measure_row(row, paths[opened])
            journal.add(record | {"versions": comparison.versions, "unused": comparison.unused, "commit": measured_at, "program": program,
                                  "model_bytes": paths[opened].stat().st_size, "date": datetime.date.today().isoformat()})
            done_work += work_of(row, args.pairs)
            left = sum(work_of(r, args.pairs) for r in todo[index + 1:]) * (time.monotonic() - start) / done_work
            print(f"{index + 1} of {len(todo)}: {peer_report.where(row)}: {time.monotonic() - began:.0f} s, "
                  f"about {left / 60:.0f} min left", file=sys.stderr, flush=True)
            write_section(args, journal, rows, paths)
    finally:
        comparison.close()
    print(write_section(args, journal, rows, paths), end="")
    unused = {name: isa for r in journal.records for name, isa in r["unused"].items() if isa and name != OURS}
    for name, isa in unused.items():
        print(f"compare_peers: {name}'s build leaves {' '.join(isa)} unused: compile it for this CPU", file=sys.stderr)
    return 1 if unused and not args.any_build else 0


def write_section(args: argparse.Namespace, journal: Journal, rows: list[dict], paths: dict[str, Path]) -> str:
    records = [found for row in rows if (found := journal.find(row, paths))]
    versions = {name: ", ".join(dict.fromkeys(r["versions"][name] for r in records if name in r["versions"]))
                for name in dict.fromkeys(name for r in records for name in r["versions"])}
    missing = [row for row in rows if not journal.find(row, paths)]
    text = peer_report.markdown(about(args, versions, records), records, list(args.peer), missing)
    peer_report.write(args.out, text)
    return text


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (CompareError, OSError) as error:
        print(f"compare_peers: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("compare_peers: stopped; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
