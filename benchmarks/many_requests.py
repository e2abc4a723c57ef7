#!/usr/bin/env python3
"""What running many unequal requests costs, beside the batched decode of as many equal ones.

  benchmarks/many_requests.py build/release/bin/tidemill MODEL [--threads 2] [--pairs 10] [--requests 32] [--mean 512] [--new 64]

Of a pair one is `run --prompts` with --requests requests whose prompts have --mean tokens on average, from an eighth of that to nearly
twice as much, in random order; the other is `bench` with as many equal sequences at that depth. Which comes first is drawn. The rate of
the first is the number of requests over the median time between two tokens of one, which is a step in which all decode. Then one run of
three times as many requests, where prompts join while others decode. Printed: a Markdown table with both rates, the median ratio of the
pairs and its 95 % interval, and of both kinds of run the times to the first token and between tokens, at the median and at the 99th
percentile.
"""

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
from pathlib import Path


def run(command: list[str], given: str = "") -> tuple[str, str]:
    done = subprocess.run(command, input=given, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"run {' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout, done.stderr


def prompts(draw: random.Random, count: int, arguments: argparse.Namespace, vocabulary: int) -> str:
    lengths = [max(1, arguments.mean // 8 + i * (2 * arguments.mean - arguments.mean // 4) // max(1, count - 1))
               for i in range(count)]
    draw.shuffle(lengths)
    return "".join(json.dumps({"ids": [draw.randrange(vocabulary) for _ in range(length)],
                               "max_new_tokens": arguments.new, "ignore_eos": True}) + "\n" for length in lengths)


def many(arguments: argparse.Namespace, lines: str) -> dict[str, float]:
    """Milliseconds of --stats: first and next token, median and 99th percentile."""
    _, said = run([arguments.tidemill, "run", arguments.model, "--prompts", "-", "--stats", "--threads", str(arguments.threads),
                   "--max-batch", str(arguments.requests)], lines)
    found = re.findall(r"(first|next) token +([\d.]+) ms in the middle, ([\d.]+) ms", said)
    return {f"{name} {share}": float(value) for name, *values in found for share, value in zip(("p50", "p99"), values)}


def equal(arguments: argparse.Namespace) -> float:
    said, _ = run([arguments.tidemill, "bench", arguments.model, "--json", "--prompt-tokens", "1", "--gen-tokens",
                   str(arguments.new), "--depth", str(arguments.mean), "--batch", str(arguments.requests), "--repeat", "1",
                   "--threads", str(arguments.threads)])
    return next(r["tokens_per_s"]["median"] for r in json.loads(said)["results"] if r["test"] == "decode")


def interval(values: list[float]) -> tuple[float, float]:
    """95 % interval of the median, by resampling."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[1949]


def table(arguments: argparse.Namespace, pairs: list[dict], joined: dict[str, float]) -> str:
    count, middle = arguments.requests, statistics.median
    ratios = [pair["rate"] / pair["equal"] for pair in pairs]
    low, high = interval(ratios)
    together = {name: middle(pair["many"][name] for pair in pairs) for name in joined}

    def times(what: str, found: dict[str, float]) -> list[tuple[str, str]]:
        return [(f"{what}: time to the first token, p50 / p99", f"{found['first p50']:.0f} / {found['first p99']:.0f} ms"),
                (f"{what}: between tokens, p50 / p99", f"{found['next p50']:.1f} / {found['next p99']:.1f} ms")]

    rows = [(f"decode of {count} equal sequences at {arguments.mean}, `bench`", f"{middle(p['equal'] for p in pairs):.0f} tokens/s"),
            (f"decode of {count} unequal requests, {arguments.mean} on average", f"{middle(p['rate'] for p in pairs):.0f} tokens/s"),
            ("unequal / equal", f"{middle(ratios):.2f}x [{low:.2f}, {high:.2f}], {len(ratios)} pairs"),
            *times(f"{count} requests, all there at once", together),
            *times(f"{3 * count} requests, {count} at a time, prompts joining", joined)]
    head = f"{Path(arguments.model).name}, {arguments.threads} threads, {arguments.new} tokens each"
    return "\n".join([f"| {head} | |", "| --- | --- |"] + [f"| {name} | {value} |" for name, value in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--mean", type=int, default=512, help="tokens of a prompt, on average")
    parser.add_argument("--new", type=int, default=64, help="tokens that are generated")
    arguments = parser.parse_args()
    vocabulary = json.loads(run([arguments.tidemill, "inspect", arguments.model, "--json"])[0])["vocab_size"]
    draw, pairs = random.Random(1), []
    for _ in range(arguments.pairs):
        lines = prompts(draw, arguments.requests, arguments, vocabulary)
        pair = {}
        for name in draw.sample(["many", "equal"], 2):
            pair[name] = many(arguments, lines) if name == "many" else equal(arguments)
        pair["rate"] = arguments.requests / pair["many"]["next p50"] * 1000
        pairs.append(pair)
        print(f"{arguments.requests} unequal {pair['rate']:.0f} tokens/s, equal {pair['equal']:.0f}", file=sys.stderr, flush=True)
    joined = many(arguments, prompts(draw, 3 * arguments.requests, arguments, vocabulary))
    print(table(arguments, pairs, joined))


if __name__ == "__main__":
    main()
