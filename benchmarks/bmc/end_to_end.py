#!/usr/bin/env python3
"""Whole generations under every growth policy, beside transformers' dynamic and static caches on the same weights.

  benchmarks/bmc/end_to_end.py build/release/bin/tidemill MODEL [MODEL ...] --out cells.jsonl [--transformers PYTHON]
      [--lengths 128:1920 1920:128 1920:1920] [--batch 1 8 32] [--policies bmc iterative ...] [--threads 2] [--minutes 5]

A cell is a model, (prompt tokens, generated tokens), a batch and an engine: one of our policies, or a cache of transformers (the model
must be a folder that it reads, too). All sequences of a cell are equally long, greedy, and do not end early. Timed is the time from the
first prompt to the last token. A cell that would take more than --minutes is sampled: its prompts once, then eight tokens each at
eight depths between the prompt's length and the whole, the rest of the way by linear interpolation. Such a cell says "sampled".

Cells are appended to --out as they end; what is there is not measured again. The order of engines within a cell is drawn.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

POLICIES = ["iterative", "upfront", "bmc", "geometric", "reserve", "paged"]
CACHES = ["dynamic", "static"]
SAMPLED_STEPS, SAMPLED_DEPTHS = 8, 8

TRANSFORMERS = """
import json, resource, sys, time, torch
from transformers import AutoModelForCausalLM
model, given = None, {}
for line in sys.stdin:
    s = json.loads(line)
    torch.set_num_threads(s["threads"])
    if model is None:
        model = AutoModelForCausalLM.from_pretrained(s["model"], torch_dtype="auto").eval()
    ids = torch.randint(10, model.config.vocab_size - 10, (s["batch"], s["prompt"]), generator=torch.Generator().manual_seed(1))
    def run(new):
        start = time.perf_counter()
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=new, max_new_tokens=new,
                           cache_implementation="static" if s["cache"] == "static" else None, pad_token_id=0)
        return time.perf_counter() - start
    first = run(1)
    whole = run(s["new"]) if s["new"] > 1 else first
    print(json.dumps({"first_s": first, "whole_s": whole, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}),
          flush=True)
"""


class Ours:
    def __init__(self, arguments: argparse.Namespace, model: str, policy: str):
        self.arguments, self.model, self.policy = arguments, model, policy
        said = subprocess.run([arguments.tidemill, "inspect", model, "--json"], text=True, capture_output=True, check=True)
        self.vocabulary = json.loads(said.stdout)["vocab_size"]

    def run(self, prompt: int, new: int, batch: int) -> dict:
        draw = random.Random(1)
        lines = "".join(json.dumps({"ids": [draw.randrange(10, self.vocabulary - 10) for _ in range(prompt)], "max_new_tokens": new,
                                    "ignore_eos": True}) + "\n" for _ in range(batch))
        with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as said:
            given.write(lines)
            given.seek(0)
            process = subprocess.Popen([self.arguments.tidemill, "run", self.model, "--prompts", "-", "--stats", "--kv-policy",
                                        self.policy, "--threads", str(self.arguments.threads), "--max-batch", str(batch)],
                                       stdin=given, stdout=out, stderr=said)
            _, status, usage = os.wait4(process.pid, 0)
            out.seek(0)
            said.seek(0)
            written, stats = out.read(), said.read()
        if status != 0:
            return {"error": (written or stats)[:300]}
        results = [json.loads(line) for line in written.splitlines()]
        times = [result["timings"] for result in results]
        step = float(re.search(r"next token +([\d.]+) ms", stats)[1]) / 1000
        return {"first_s": max(t["first_token_ms"] for t in times) / 1000,
                "whole_s": max(t["first_token_ms"] + t["decode_ms"] for t in times) / 1000, "step_s": step,
                "growths": results[0]["state"]["growths"], "bytes_copied": results[0]["state"]["bytes_copied"],
                "peak_mib": usage.ru_maxrss / 1024}

    def close(self) -> None:
        pass


class Transformers:
    def __init__(self, arguments: argparse.Namespace, model: str, cache: str):
        self.settings = {"model": model, "cache": cache, "threads": arguments.threads}
        self.process = subprocess.Popen([arguments.transformers, "-c", TRANSFORMERS], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def run(self, prompt: int, new: int, batch: int) -> dict:
        self.process.stdin.write(json.dumps(self.settings | {"prompt": prompt, "new": new, "batch": batch}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            return {"error": f"transformers ended with {self.process.wait()}"}
        found = json.loads(line)
        return found | {"step_s": (found["whole_s"] - found["first_s"]) / max(1, new - 1)}

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def measure(engine: Ours | Transformers, prompt: int, new: int, batch: int, minutes: float) -> dict:
    look = engine.run(prompt, SAMPLED_STEPS, batch)
    if "error" in look or look["first_s"] + look["step_s"] * new < 60 * minutes:
        return look if "error" in look else engine.run(prompt, new, batch)
    depths = [prompt + i * (new - SAMPLED_STEPS) // (SAMPLED_DEPTHS - 1) for i in range(SAMPLED_DEPTHS)]
    steps = [look["step_s"]]
    for depth in depths[1:]:
        found = engine.run(depth, SAMPLED_STEPS, batch)
        if "error" in found:
            return found
        steps.append(found["step_s"])
    between = sum((a + b) / 2 * (d - c) for a, b, c, d in zip(steps, steps[1:], depths, depths[1:]))
    return look | {"whole_s": look["first_s"] + between, "sampled": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("model", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--transformers", metavar="PYTHON", help="an interpreter that has it and torch")
    parser.add_argument("--lengths", nargs="+", default=["128:1920", "1920:128", "1920:1920"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=POLICIES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=5)
    arguments = parser.parse_args()
    cells = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    done = {json.dumps(cell["cell"], sort_keys=True) for cell in cells}
    draw = random.Random(1)
    for model in arguments.model:
        for lengths in arguments.lengths:
            prompt, new = map(int, lengths.split(":"))
            for batch in arguments.batch:
                engines = arguments.policies + (CACHES if arguments.transformers and Path(model).is_dir() else [])
                for name in draw.sample(engines, len(engines)):
                    cell = {"model": Path(model).name, "prompt": prompt, "new": new, "batch": batch, "engine": name,
                            "threads": arguments.threads}
                    if json.dumps(cell, sort_keys=True) in done:
                        continue
                    engine = (Transformers if name in CACHES else Ours)(arguments, model, name)
                    found = measure(engine, prompt, new, batch, arguments.minutes)
                    engine.close()
                    with arguments.out.open("a") as file:
                        file.write(json.dumps({"cell": cell, **found}) + "\n")
                    rate = batch * new / found["whole_s"] if "whole_s" in found else 0
                    print(f"{cell['model']} {prompt}+{new} x {batch}, {name}: " +
                          (found.get("error") or f"{rate:.1f} tokens/s{' sampled' * ('sampled' in found)}"), flush=True)


if __name__ == "__main__":
    sys.exit(main())
