#!/usr/bin/env python3
"""Figures of what `tidemill eval --out` wrote: KL divergence from dense attention against the share of bytes that attention reads.

    plot_scores.py SCORES.jsonl --out FOLDER [--title 'Qwen2.5-Coder 0.5B, 2048 tokens']

Writes FOLDER/kl_by_policy.svg, a line for each policy, mean over tasks, and FOLDER/kl_by_task.svg, a line for each task of sparq. A point is the mean over
the tokens of all answers. Both axes are logarithmic; x is dense bytes over the policy's.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bmc"))
import svg

SMALLEST = 1e-4  # of a logarithmic axis


def read(path: Path) -> list[dict]:
    """The records of answers; a last line that is torn is left out."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "policy" in record:
            records.append(record)
    return records


def mean_kl(records: list[dict]) -> float:
    tokens = sum(r["scored_tokens"] for r in records)
    return max(SMALLEST, sum(r["kl"] * r["scored_tokens"] for r in records) / tokens)


def points(records: list[dict]) -> list[tuple[float, float]]:
    """(dense bytes over the policy's, KL) of each policy, ascending: over tasks first, so that long answers do not count more."""
    by_policy = defaultdict(lambda: defaultdict(list))
    for r in records:
        by_policy[r["policy"]][r["task"]].append(r)
    found = []
    for tasks in by_policy.values():
        every = [r for task in tasks.values() for r in task]
        share = sum(r["bytes"] for r in every) / len(every)
        found.append((1 / share, sum(mean_kl(task) for task in tasks.values()) / len(tasks)))
    return sorted(found)


def lines_of(records: list[dict], key) -> list[svg.Line]:
    groups = defaultdict(list)
    for r in records:
        groups[key(r)].append(r)
    return [svg.Line(name, points(group)) for name, group in groups.items()]


def kind(record: dict) -> str:
    return record["policy"].split(":")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    records = [r for r in read(args.scores) if kind(r) != "dense"]
    if not records:
        sys.exit(f"plot_scores: {args.scores}: expected records of policies, found none; tidemill eval --out writes them")
    args.out.mkdir(parents=True, exist_ok=True)
    labels = ("dense bytes / bytes read", "KL(dense || policy), nats a token")
    (args.out / "kl_by_policy.svg").write_text(
        svg.lines(f"{args.title}: policies, mean over tasks", *labels, lines_of(records, kind), log=True), encoding="utf-8")
    of_sparq = [r for r in records if kind(r) == "sparq"]
    (args.out / "kl_by_task.svg").write_text(
        svg.lines(f"{args.title}: sparq, by task", *labels, lines_of(of_sparq, lambda r: r["task"]), log=True), encoding="utf-8")


if __name__ == "__main__":
    main()
