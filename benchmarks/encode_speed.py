#!/usr/bin/env python3
"""Megabytes of text a second that become ids, beside the PyPI package `tokenizers`, on one thread in the same run.

    python benchmarks/encode_speed.py build/release/bin/encode_speed TEXT FOLDER...

FOLDER has a tokenizer.json. Rounds of both alternate; the fastest of each counts.
"""

import os
import pathlib
import subprocess
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers  # noqa: E402

SIZES = [1 << 16, 1 << 18, 1 << 20, 1 << 22]
ROUNDS = 3


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    program, source = sys.argv[1], sys.argv[2]
    once = pathlib.Path(source).read_bytes()
    if not once.isascii():
        sys.exit(f"{source}: expected ASCII, which can be cut anywhere")
    for folder in sys.argv[3:]:
        tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
        ours, theirs = dict.fromkeys(SIZES, 1e9), dict.fromkeys(SIZES, 1e9)
        for _ in range(ROUNDS):
            command = [program, folder, source, *map(str, SIZES)]
            for line in subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines():
                size, count, seconds = line.split()
                ours[int(size)] = min(ours[int(size)], float(seconds))
                text = (once * (int(size) // len(once) + 1))[:int(size)].decode()
                start = time.monotonic()
                found = len(tokenizer.encode(text).ids)
                theirs[int(size)] = min(theirs[int(size)], time.monotonic() - start)
                if found != int(count):
                    sys.exit(f"{folder}: {size} bytes: {count} tokens, tokenizers {found}")
        for size in SIZES:
            print(f"{pathlib.Path(folder).name:12} {size:8} bytes: {size / ours[size] / 1e6:7.1f} MB/s, "
                  f"tokenizers {size / theirs[size] / 1e6:6.1f} MB/s, {theirs[size] / ours[size]:5.1f} times")


if __name__ == "__main__":
    main()
