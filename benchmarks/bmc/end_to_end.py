#!/usr/bin/env python3
"""Whole generations under every growth policy, beside transformers' dynamic and static caches on the same weights.

  benchmarks/bmc/end_to_end.py build/release/bin/tidemill MODEL [MODEL ...] --out cells.jsonl [--transformers PYTHON]
      [--lengths 128:1920 1920:128 1920:1920] [--batch 8 1 32] [--policies iterative bmc ...] [--instances 1] [--ragged]
      [--threads 2] [--minutes 60] [--estimate]

A cell is a model, (prompt tokens, generated tokens), a batch, a number of engines over one mapping of the weights, and a way to hold the
cache: one of our policies, or a cache of transformers (the model must be a folder that it reads, too). Sequences are greedy and do not end
early; all of a cell are equally long, or with --ragged their prompts have an eighth of the prompt tokens to nearly twice as many. Timed is
the time from the first prompt to the last token, all of it. A context that the model does not have is left out.

How long all of it is likely to take is printed first, from what `tidemill plan` predicts; --estimate stops there. Groups of cells that
differ in the cache alone come in the order of --batch, then of --lengths, then of the models, and within one the order is drawn; a group
that does not fit into what is left of --minutes is left for the same command another time. Cells are appended to --out as they end; what
is there is not measured again. end_to_end_table.py makes tables of them.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from speculation_journal import Journal

POLICIES = ["iterative", "upfront", "bmc", "geometric", "reserve", "paged"]
CACHES = ["dynamic", "static"]
# What an estimate takes a cell for, beside a prediction of our steps without growth: that iterative copies everything at each step, that
# transformers' kernels are others, and seconds to load a model. Wrong by a factor of two or three; measured cells do not use them.
ROUGHLY = {"iterative": 2.0, "dynamic": 4.0, "static": 4.0}
LOADING_S = 5.0

TRANSFORMERS = """
import json, resource, sys, time, torch
from transformers import AutoModelForCausalLM
model, given = None, {}
for line in sys.stdin:
    s = json.loads(line)
    torch.set_num_threads(s["threads"])
    if model is None:
        model = AutoModelForCausalLM.from_pretrained(s["model"], torch_dtype="auto").eval()
    longest = max(s["prompts"])
    ids = torch.randint(10, model.config.vocab_size - 10, (len(s["prompts"]), longest), generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[0] * (longest - n) + [1] * n for n in s["prompts"]])
    def run(new):
        start = time.perf_counter()
        with torch.inference_mode():
            model.generate(ids, attention_mask=mask, do_sample=False, min_new_tokens=new, max_new_tokens=new,
                           cache_implementation="static" if s["cache"] == "static" else None, pad_token_id=0)
        return time.perf_counter() - start
    first = run(1)
    whole = run(s["new"]) if s["new"] > 1 else first
    print(json.dumps({"first_s": first, "whole_s": whole, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}),
          flush=True)
"""


class Ours:
    def __init__(self, arguments: argparse.Namespace, model: str, policy: str, instances: int):
        self.arguments, self.model, self.policy, self.instances = arguments, model, policy, instances
        self.vocabulary = inspect(arguments.tidemill, model)["vocab_size"]

    def run(self, prompts: list[int], new: int) -> dict:
        draw = random.Random(1)
        lines = "".join(json.dumps({"ids": [draw.randrange(10, self.vocabulary - 10) for _ in range(prompt)], "max_new_tokens": new,
                                    "ignore_eos": True}) + "\n" for prompt in prompts)
        with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as said:
            given.write(lines)
            given.seek(0)
            process = subprocess.Popen([self.arguments.tidemill, "run", self.model, "--prompts", "-", "--stats", "--kv-policy",
                                        self.policy, "--threads", str(self.arguments.threads), "--instances", str(self.instances),
                                        "--max-batch", str(-(-len(prompts) // self.instances))],
                                       stdin=given, stdout=out, stderr=said)
            _, status, usage = os.wait4(process.pid, 0)
            out.seek(0)
            said.seek(0)
            written, stats = out.read(), said.read()
        if status != 0:
            return {"error": (written or stats)[:300]}
        results = [json.loads(line) for line in written.splitlines()]
        times = [result["timings"] for result in results]
        last = max(times, key=lambda t: t["ttft_ms"])  # beside which all others decode, if they still do
        step = last["decode_ms"] / 1000 / max(1, new - 1)
        return {"first_s": max(t["ttft_ms"] for t in times) / 1000,
                "whole_s": max(t["ttft_ms"] + t["decode_ms"] for t in times) / 1000, "step_s": step,
                "growths": results[0]["state"]["growths"], "bytes_copied": results[0]["state"]["bytes_copied"],
                "peak_mib": usage.ru_maxrss / 1024, "minor_faults": usage.ru_minflt}

    def close(self) -> None:
        pass


class Transformers:
    def __init__(self, arguments: argparse.Namespace, model: str, name: str):
        self.settings = {"model": model, "cache": name, "threads": arguments.threads}
        self.process = subprocess.Popen([arguments.transformers, "-c", TRANSFORMERS], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def run(self, prompts: list[int], new: int) -> dict:
        self.process.stdin.write(json.dumps(self.settings | {"prompts": prompts, "new": new}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            return {"error": f"transformers ended with {self.process.wait()}"}
        found = json.loads(line)
        return found | {"step_s": (found["whole_s"] - found["first_s"]) / max(1, new - 1)}

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


@cache
def inspect(tidemill: str, model: str) -> dict:
    return json.loads(subprocess.run([tidemill, "inspect", model, "--json"], text=True, capture_output=True, check=True).stdout)


@cache
def predicted(tidemill: str, model: str, threads: int, context: int, batch: int) -> dict:
    said = subprocess.run([tidemill, "plan", model, "--json", "--threads", str(threads), "--context", str(context), "--batch", str(batch)],
                          text=True, capture_output=True)
    if said.returncode != 0:
        sys.exit(f"plan {model}: {said.stderr.strip()}")
    return json.loads(said.stdout)["predicted"]


def prompts_of(prompt: int, batch: int, ragged: bool) -> list[int]:
    """Prompt lengths of a cell's sequences; ragged ones have `prompt` tokens on average, shuffled."""
    if not ragged or batch == 1:
        return [prompt] * batch
    lengths = [max(1, prompt // 8 + i * (2 * prompt - 2 * (prompt // 8)) // (batch - 1)) for i in range(batch)]
    random.Random(1).shuffle(lengths)
    return lengths


def likely_s(arguments: argparse.Namespace, cell: dict, model: str) -> float:
    """Seconds that a cell is likely to take."""
    factor, prompt, new, batch = ROUGHLY.get(cell["engine"], 1.0), cell["prompt"], cell["new"], cell["batch"]
    plan = predicted(arguments.tidemill, model, arguments.threads, prompt + new, batch)
    steps = {step["depth"]: step["seconds"] for step in plan["decode"]}
    least, most = steps[min(steps)], steps[max(steps)]
    step = factor * (least + (most - least) * (prompt + new / 2) / (prompt + new))
    prompts = factor * batch * prompt * plan["prefill"]["seconds"] / (prompt + new)
    return LOADING_S + prompts + new * step


def groups_of(arguments: argparse.Namespace) -> list[tuple[str, list[dict]]]:
    """(model, cells that differ in the cache alone), the most telling first."""
    groups = []
    for instances in arguments.instances:
        for batch in arguments.batch:
            for lengths in arguments.lengths:
                prompt, new = map(int, lengths.split(":"))
                for model in arguments.model:
                    longest = max(prompts_of(prompt, batch, arguments.ragged)) + new
                    if longest > inspect(arguments.tidemill, model)["max_position_embeddings"] or batch < instances:
                        continue
                    caches = CACHES if arguments.transformers and Path(model).is_dir() and instances == 1 else []
                    cells = [{"model": Path(model).name, "prompt": prompt, "new": new, "batch": batch, "engine": name,
                              "threads": arguments.threads} for name in arguments.policies + caches]
                    more = ({"ragged": True} if arguments.ragged else {}) | ({"instances": instances} if instances > 1 else {})
                    groups.append((model, [cell | more for cell in cells]))
    return groups


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("model", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--transformers", metavar="PYTHON", help="an interpreter that has it and torch")
    parser.add_argument("--lengths", nargs="+", default=["128:1920", "1920:128", "1920:1920"])
    parser.add_argument("--batch", nargs="+", type=int, default=[8, 1, 32])
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=POLICIES)
    parser.add_argument("--instances", nargs="+", type=int, default=[1], help="engines that divide threads and batch")
    parser.add_argument("--ragged", action="store_true", help="prompts of unequal length")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--estimate", action="store_true", help="print how long it is likely to take and stop")
    arguments = parser.parse_args()
    journal, draw = Journal(arguments.out), random.Random(1)
    todo = []
    for model, cells in groups_of(arguments):
        left = [cell for cell in cells if "whole_s" not in (journal.find(cell) or {})]  # what failed is tried again
        if left:
            todo.append((model, left, sum(likely_s(arguments, cell, model) for cell in left) / 60))
    print(f"{sum(len(left) for _, left, _ in todo)} cells are left to measure, roughly {sum(minutes for *_, minutes in todo):.0f} minutes; "
          f"--minutes is {arguments.minutes:g}", file=sys.stderr)
    for model, left, minutes in todo:
        cell = left[0]
        print(f"{minutes:8.1f} minutes  {cell['model']} {cell['prompt']}+{cell['new']} x {cell['batch']}, {len(left)} caches", file=sys.stderr)
    if arguments.estimate:
        return
    start, skipped, failed = time.monotonic(), 0, 0
    for model, left, minutes in todo:
        if (time.monotonic() - start) / 60 + minutes > arguments.minutes:
            skipped += len(left)
            continue
        for cell in draw.sample(left, len(left)):
            name = cell["engine"]
            engine = Transformers(arguments, model, name) if name in CACHES else Ours(arguments, model, name, cell.get("instances", 1))
            found = engine.run(prompts_of(cell["prompt"], cell["batch"], cell.get("ragged", False)), cell["new"])
            engine.close()
            journal.add({"cell": cell, **found})
            failed += "error" in found
            rate = cell["batch"] * cell["new"] / found["whole_s"] if "whole_s" in found else 0
            print(f"{cell['model']} {cell['prompt']}+{cell['new']} x {cell['batch']}, {name}: " +
                  (found.get("error") or f"{rate:.1f} tokens/s"), flush=True)
    if skipped:
        print(f"{skipped} cells are left, for which {arguments.minutes:g} minutes had no room: run the same command again", file=sys.stderr)
    if failed:
        sys.exit(f"{failed} cells failed, the table says why; the same command tries them again")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"end_to_end: {error}{getattr(error, 'stderr', None) or ''}")
