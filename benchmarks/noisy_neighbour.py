#!/usr/bin/env python3
"""How much slower one decode step gets when another process keeps one of the cores busy.

  benchmarks/noisy_neighbour.py build/release/bin/bench_child MODEL [--threads 2] [--pairs 15] [--quiet 0.1] [--seconds 300]

One process of tidemill decodes again and again from the same caches, alternately alone and beside a process of one thread that spins
on the same cores, which one comes first being drawn. Printed: the median ratio of the two times of a pair with its 95 % interval. A
pair counts when other processes used at most --quiet cores while it was alone, and as much beside the spinning one, which ran; the machine's own
neighbours would make "alone" anything else. Pairs are taken until enough count or --seconds are over.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

FEWEST_PAIRS = 10  # for an interval that is worth printing


def interval(values: list[float]) -> tuple[float, float]:
    """95 % interval of the median, by resampling."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[1949]


class Decoder:
    def __init__(self, arguments: argparse.Namespace):
        self.settings = {"model": arguments.model, "threads": arguments.threads, "depth": [0], "repeats": 1,
                         "gen_tokens": arguments.steps}
        self.process = subprocess.Popen([arguments.bench_child], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def sample(self) -> dict:
        self.process.stdin.write(json.dumps(self.settings) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"measure {self.settings['model']}: the process ended with {self.process.wait()}")
        return json.loads(line)["tests"][0]["samples"][0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench_child")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2, help="of the decoder, on as many cores")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--quiet", type=float, default=0.1, help="cores that others may use")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--steps", type=int, default=32, help="of a sample")
    arguments = parser.parse_args()
    if arguments.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {arguments.pairs}: expected at least {FEWEST_PAIRS}")
    cores = sorted(os.sched_getaffinity(0))[:arguments.threads]
    if len(cores) < arguments.threads:
        sys.exit(f"--threads {arguments.threads}: expected as many cores, found {len(cores)}")
    os.sched_setaffinity(0, cores)  # the children's, too
    decoder = Decoder(arguments)
    decoder.sample()  # loads the model and fills the caches
    alone, beside, taken = [], [], 0
    draw = random.Random(1)
    end = time.monotonic() + arguments.seconds
    while len(alone) < arguments.pairs and time.monotonic() < end:
        taken += 1
        times, others = {}, {}
        for busy in draw.sample([False, True], 2):
            spinner = subprocess.Popen(["sh", "-c", "while :; do :; done"]) if busy else None
            try:
                sample = decoder.sample()
            finally:
                if spinner is not None:
                    spinner.kill()
                    spinner.wait()
            times[busy] = 1000 * sample["seconds"] / arguments.steps
            others[busy] = sample["others_cores"]
        if others[False] <= arguments.quiet and arguments.quiet < others[True] <= 1 + arguments.quiet:
            alone.append(times[False])
            beside.append(times[True])
    decoder.process.stdin.close()
    decoder.process.wait()
    if len(alone) < FEWEST_PAIRS:
        sys.exit(f"{len(alone)} of {taken} pairs were left in peace, expected at least {FEWEST_PAIRS}: run it again when the machine is less busy")
    ratios = [b / a for a, b in zip(alone, beside)]
    low, high = interval(ratios)
    print(f"step alone {statistics.median(alone):.2f} ms, beside one busy thread {statistics.median(beside):.2f} ms: "
          f"{statistics.median(ratios):.2f}x [{low:.2f}, {high:.2f}], {len(ratios)} pairs of {taken}, {arguments.threads} threads")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"noisy_neighbour: {error}")
