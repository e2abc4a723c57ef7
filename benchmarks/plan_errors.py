#!/usr/bin/env python3
"""How far `tidemill plan` is from what `bench_child` (benchmarks/child), which lies beside that program, measures.

  benchmarks/plan_errors.py build/release/bin/tidemill MODEL.gguf... [--results plan_errors.json] [--threads 2] [--repeats 5] [--again]

For each model: decode steps of one sequence at some depths, of several at one, and a prefill, first as `plan --json` predicts them, then
measured, the median of --repeats. Printed as a Markdown table with the error of each row, predicted / measured - 1, and the median of
the errors' sizes. A model that --results has is taken from there, unless --again: models can be given one at a time. The machine's numbers
are those that `plan` keeps ($XDG_CACHE_HOME); measure them (`plan --recalibrate`) in the same quiet hour. `busy`: cores that other
programs used meanwhile, at most.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

DEPTHS = [0, 2048]     # of one sequence
BATCH = 8              # sequences
BATCH_DEPTH = 512
PROMPT = 512
STEPS = 16             # of a sample of decoding


def fail(message: str) -> None:
    sys.exit(f"plan_errors: {message}")


def predict(arguments: argparse.Namespace, model: str, context: int, batch: int) -> dict:
    command = [arguments.tidemill, "plan", model, "--json", "--threads", str(arguments.threads), "--context", str(context),
               "--batch", str(batch)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        fail(f"{' '.join(command)}: exit code {result.returncode}: {result.stderr.strip()}")
    plan = json.loads(result.stdout)
    for warning in plan["warnings"]:
        print(f"plan_errors: {warning}", file=sys.stderr)
    return plan


def predicted_step(arguments: argparse.Namespace, model: str, depth: int, batch: int) -> float:
    """Of the middle one of the measured steps: a plan has a row for half its context."""
    middle = depth + STEPS // 2
    for step in predict(arguments, model, 2 * middle, batch)["predicted"]["decode"]:
        if step["depth"] == middle:
            return step["seconds"]
    fail(f"the plan of {model} has no step at depth {middle}")


def measure(arguments: argparse.Namespace, model: str) -> list[dict]:
    settings = {"model": model, "threads": arguments.threads, "prompt_tokens": [PROMPT], "depth": DEPTHS, "batch": [BATCH],
                "batch_prompt": [BATCH_DEPTH, BATCH_DEPTH], "gen_tokens": STEPS, "repeats": arguments.repeats}
    result = subprocess.run([Path(arguments.tidemill).with_name("bench_child")], input=json.dumps(settings) + "\n",
                            capture_output=True, text=True)
    if result.returncode != 0:
        fail(f"measure {model}: exit code {result.returncode}: {result.stderr.strip()}")
    return json.loads(result.stdout)["tests"]


def rows_of(arguments: argparse.Namespace, model: str) -> list[dict]:
    predicted = {("prefill", PROMPT): predict(arguments, model, PROMPT, 1)["predicted"]["prefill"]["seconds"]}
    for depth in DEPTHS:
        predicted["decode", depth] = predicted_step(arguments, model, depth, 1)
    predicted["batch", BATCH_DEPTH] = predicted_step(arguments, model, BATCH_DEPTH, BATCH)
    names = {"prefill": f"prefill of {PROMPT}", "batch": f"decode of {BATCH} at {BATCH_DEPTH}"}
    rows = []
    for test in measure(arguments, model):
        kind = test["test"]
        at = {"prefill": PROMPT, "batch": BATCH_DEPTH}.get(kind, test.get("depth"))
        tokens = {"prefill": PROMPT, "batch": BATCH}.get(kind, 1)
        rates = [sample["tokens_per_s"] for sample in test["samples"]]
        rows.append({"test": names.get(kind, f"decode at {at}"), "predicted": predicted[kind, at],
                     "measured": tokens / statistics.median(rates),
                     "busy": max(sample["others_cores"] for sample in test["samples"])})
    return rows


def table(results: dict) -> str:
    lines = ["| model | test | predicted, ms | measured, ms | error | busy |", "| --- | --- | --- | --- | --- | --- |"]
    errors = []
    for model, rows in results.items():
        for row in rows:
            error = row["predicted"] / row["measured"] - 1
            errors.append(abs(error))
            lines.append(f"| {model} | {row['test']} | {row['predicted'] * 1e3:.4g} | {row['measured'] * 1e3:.4g} | "
                         f"{error * 100:+.0f} % | {row['busy']:.2f} |")
    lines += ["", f"Median error {statistics.median(errors) * 100:.0f} %, largest {max(errors) * 100:.0f} %, {len(errors)} rows."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("model", nargs="+")
    parser.add_argument("--results", help="a JSON file that keeps what was measured")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--again", action="store_true", help="also what --results has")
    arguments = parser.parse_args()
    results = {}
    if arguments.results and os.path.exists(arguments.results):
        try:
            with open(arguments.results, encoding="utf-8") as file:
                results = json.load(file)
            if not isinstance(results, dict):
                raise ValueError("no object")
        except ValueError as error:
            fail(f"read {arguments.results}: expected what this program wrote, found {error}; remove it")
    for model in arguments.model:
        name = f"{os.path.basename(model).removesuffix('.gguf')}, {arguments.threads} threads"
        if name in results and not arguments.again:
            continue
        results[name] = rows_of(arguments, model)
        if arguments.results:
            path = os.path.realpath(arguments.results)  # a link stays one
            with open(path + ".part", "w", encoding="utf-8") as file:
                json.dump(results, file, indent=1)
            os.replace(path + ".part", path)
    print(table(results))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"plan_errors: {error}")
