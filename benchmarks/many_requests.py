#!/usr/bin/env python3
"""What running many unequal requests costs, beside the batched decode of as many equal ones.

  benchmarks/many_requests.py build/release/bin/tidemill MODEL [--threads 2] [--pairs 10] [--requests 32] [--mean 512] [--new 64]

Of a pair one is `run --prompts` with --requests requests whose prompts have --mean tokens on average, from an eighth of that to nearly
twice as much, in random order; the other is `bench_child` (benchmarks/child), which lies beside tidemill, with as many equal sequences at the contexts that those have on average, at
most, when all of them decode. Which comes first is drawn. Prompts join one after another while the others decode, and each request asks for as many
tokens as let it outlast the last one, which asks for --new: while that one decodes, all do, and the rate of the pair is theirs in this
time. It is an error if one ended earlier. Then one run of three times as many requests of --new tokens each, where prompts join while
others decode. Printed: a Markdown table with both rates, the median ratio of the pairs and its 95 % interval, and of the last run the
times to the first token and between tokens, at the median and at the 99th percentile.
"""

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
from pathlib import Path

from noisy_neighbour import FEWEST_PAIRS, interval


def run(command: list[str], given: str = "") -> tuple[str, str]:
    done = subprocess.run(command, input=given, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"run {' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout, done.stderr


JOINING_ROWS = 32  # of prompts in a step beside requests that decode
MORE_TOKENS = 24  # by which requests outlast the last one


def lengths_of(draw: random.Random, count: int, mean: int) -> list[int]:
    lengths = [max(1, mean // 8 + i * (2 * mean - mean // 4) // max(1, count - 1)) for i in range(count)]
    draw.shuffle(lengths)
    return lengths


def steps_before_last(lengths: list[int]) -> list[int]:
    """Tokens that each request gets until the last one's prompt is there, at most: so many steps run the prompts behind its own."""
    return [-(-sum(lengths[i + 1:]) // JOINING_ROWS) for i in range(len(lengths))]


def lines_of(draw: random.Random, lengths: list[int], new: list[int], vocabulary: int) -> str:
    return "".join(json.dumps({"ids": [draw.randrange(vocabulary) for _ in range(length)], "max_new_tokens": tokens,
                               "ignore_eos": True}) + "\n" for length, tokens in zip(lengths, new))


def many(arguments: argparse.Namespace, lines: str) -> tuple[list[dict], dict[str, float]]:
    """The results' timings, and milliseconds of --stats: first and next token, median and 99th percentile."""
    results, said = run([arguments.tidemill, "run", arguments.model, "--prompts", "-", "--prefix-cache", "off", "--stats",
                         "--threads", str(arguments.threads), "--max-batch", str(arguments.requests)], lines)
    found = re.findall(r"(TTFT|inter-token) +([\d.]+) ms p50, ([\d.]+) ms p99", said)
    return ([json.loads(line)["timings"] for line in results.splitlines()],
            {f"{name} {share}": float(value) for name, *values in found for share, value in zip(("p50", "p99"), values)})


def rate_together(timings: list[dict], new: int) -> float:
    """Tokens a second while the last request decodes, and all others with it."""
    ends = [t["ttft_ms"] + t["decode_ms"] for t in timings]
    last = timings[-1]
    if last["ttft_ms"] < max(t["ttft_ms"] for t in timings) or ends[-1] > min(ends):
        sys.exit("measure requests that decode together: expected the last one to begin last and to end first, found another")
    return len(timings) * (new - 1) / last["decode_ms"] * 1000


def equal(arguments: argparse.Namespace, depth: int) -> float:
    # Plain `bench` measures the machine's limits first, and ends where a neighbour does not let it.
    settings = {"model": arguments.model, "threads": arguments.threads, "batch": [arguments.requests],
                "batch_prompt": [depth] * 2, "gen_tokens": arguments.new, "repeats": 1}
    said, _ = run([str(Path(arguments.tidemill).with_name("bench_child"))], json.dumps(settings) + "\n")
    return json.loads(said.splitlines()[-1])["tests"][0]["samples"][0]["tokens_per_s"]


def table(arguments: argparse.Namespace, pairs: list[dict], joined: dict[str, float]) -> str:
    count, middle = arguments.requests, statistics.median
    ratios = [pair["unequal"] / pair["equal"] for pair in pairs]
    low, high = interval(ratios)
    depth = middle(pair["depth"] for pair in pairs)
    rows = [(f"decode of {count} equal requests at depth {depth:.0f}, `bench`", f"{middle(p['equal'] for p in pairs):.0f} tokens/s"),
            (f"decode of {count} unequal requests, the same depth on average", f"{middle(p['unequal'] for p in pairs):.0f} tokens/s"),
            ("unequal / equal", f"{middle(ratios):.2f}x [{low:.2f}, {high:.2f}], {len(ratios)} pairs"),
            (f"{3 * count} requests, {count} at a time, prompts joining: time to the first token, p50 / p99",
             f"{joined['TTFT p50']:.0f} / {joined['TTFT p99']:.0f} ms"),
            ("the same: between tokens, p50 / p99", f"{joined['inter-token p50']:.1f} / {joined['inter-token p99']:.1f} ms")]
    head = f"{Path(arguments.model).name}, {arguments.threads} threads, {arguments.new} tokens each"
    return "\n".join([f"| {head} | |", "| --- | --- |"] + [f"| {name} | {value} |" for name, value in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=FEWEST_PAIRS)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--mean", type=int, default=512, help="tokens of a prompt, on average")
    parser.add_argument("--new", type=int, default=64, help="tokens that are generated while all decode")
    arguments = parser.parse_args()
    if arguments.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {arguments.pairs}: expected at least {FEWEST_PAIRS}")
    for name, least in (("threads", 1), ("requests", 2), ("mean", 1), ("new", 2)):
        if (value := getattr(arguments, name)) < least:
            parser.error(f"--{name} {value}: expected at least {least}")
    vocabulary = json.loads(run([arguments.tidemill, "inspect", arguments.model, "--json"])[0])["vocab_size"]
    draw, pairs = random.Random(1), []
    for _ in range(arguments.pairs):
        lengths = lengths_of(draw, arguments.requests, arguments.mean)
        before = steps_before_last(lengths)
        new = [steps + arguments.new + MORE_TOKENS for steps in before[:-1]] + [arguments.new]
        pair = {"depth": round(statistics.mean(map(sum, zip(lengths, before))))}
        for name in draw.sample(["unequal", "equal"], 2):
            pair[name] = (equal(arguments, pair["depth"]) if name == "equal" else
                          rate_together(many(arguments, lines_of(draw, lengths, new, vocabulary))[0], arguments.new))
        pairs.append(pair)
        print(f"{arguments.requests} unequal {pair['unequal']:.0f} tokens/s, equal {pair['equal']:.0f}", file=sys.stderr, flush=True)
    lengths = lengths_of(draw, 3 * arguments.requests, arguments.mean)
    _, joined = many(arguments, lines_of(draw, lengths, [arguments.new] * len(lengths), vocabulary))
    print(table(arguments, pairs, joined))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"many_requests: {error}")
