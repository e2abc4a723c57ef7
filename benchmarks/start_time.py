#!/usr/bin/env python3
"""Seconds from the start of the process to the first byte of the answer, the model's file being in the page cache.

  benchmarks/start_time.py build/release/bin/tidemill MODEL... [--runs 5]

Prints for each model the median and all runs, and the processor time of one run beside them, which neighbours change less.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time


def run(tidemill: str, model: str) -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    process = subprocess.Popen([tidemill, "run", model, "--raw", "-p", "The tide comes in and", "-n", "1", "--ignore-eos", "--temperature", "0"],
                               stdout=subprocess.PIPE, bufsize=0)
    first = process.stdout.read(1)
    seconds = time.monotonic() - start
    process.stdout.read()
    if process.wait() != 0 or not first:
        sys.exit(f"run {model}: expected a token, found exit code {process.returncode} and {len(first)} bytes")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error(f"--runs {arguments.runs}: expected at least 1")
    for model in arguments.models:
        run(arguments.tidemill, model)  # brings the file into the page cache
        runs = [run(arguments.tidemill, model) for _ in range(arguments.runs)]
        seconds = sorted(wall for wall, _ in runs)
        print(f"{model}: {statistics.median(seconds):.3f} s to the first token ({', '.join(f'{s:.3f}' for s in seconds)}), "
              f"{statistics.median(cpu for _, cpu in runs):.3f} s of processor time")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"start_time: {error}")
