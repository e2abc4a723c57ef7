#!/usr/bin/env python3
"""What running many unequal requests costs, beside the batched decode of as many equal ones.

  benchmarks/many_requests.py build/release/bin/tidemill MODEL [--threads 2] [--pairs 5] [--requests 32] [--mean 512] [--new 64]

Of a pair one is `run --prompts` with --requests requests whose prompts have --mean tokens on average, from an eighth of that to nearly
twice as much, in random order; the other is `bench` with as many equal sequences at that depth. The rate of the first is the number of
requests over the median time between two tokens of one, once all decode. Printed: both rates, the median ratio of the pairs, and for a
run of three times as many requests, where prompts join while others decode, the times to the first and to the next token.
"""

import argparse
import json
import random
import re
import statistics
import subprocess
import sys


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--mean", type=int, default=512, help="tokens of a prompt, on average")
    parser.add_argument("--new", type=int, default=64, help="tokens that are generated")
    arguments = parser.parse_args()
    vocabulary = json.loads(run([arguments.tidemill, "inspect", arguments.model, "--json"])[0])["vocab_size"]
    draw, rates = random.Random(1), []
    for _ in range(arguments.pairs):
        lines = prompts(draw, arguments.requests, arguments, vocabulary)
        order = draw.sample(["many", "equal"], 2)
        pair = {name: arguments.requests / many(arguments, lines)["next p50"] * 1000 if name == "many" else equal(arguments)
                for name in order}
        rates.append(pair)
        print(f"{arguments.requests} unequal {pair['many']:.0f} tokens/s, equal {pair['equal']:.0f}", flush=True)
    ratios = [pair["many"] / pair["equal"] for pair in rates]
    print(f"ratio {statistics.median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} pairs)")
    joined = many(arguments, prompts(draw, 3 * arguments.requests, arguments, vocabulary))
    print(", ".join(f"{name} {value:.0f} ms" for name, value in joined.items()),
          f"with {3 * arguments.requests} requests, of which {arguments.requests} at a time")


if __name__ == "__main__":
    main()
