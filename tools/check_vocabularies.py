#!/usr/bin/env python3
"""Compares ids with those that another engine's vocabulary suite expects.

    check_vocabularies.py TIDEMILL FOLDER [--min-vocabularies N]

FOLDER: vendor/llama.cpp/models of the PyPI source package llama-cpp-python 0.3.36: files ggml-vocab-NAME.gguf, each with texts (.gguf.inp) and,
line for line, their ids (.gguf.out). None of it is part of this project. Prints one line a vocabulary; exit code 1 when one differs.
"""

import argparse
import pathlib
import subprocess
import sys

SEPARATOR = "\n__ggml_vocab_test__\n"


def tokenize(tidemill, model, text):
    command = [tidemill, "tokenize", model, "--no-add-special", "--no-parse-special", "-"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{model.name}: {done.stderr.decode(errors='replace').strip()}")
    return [int(word) for word in done.stdout.split()]


def check(tidemill, model):
    """What differs: (text, expected, found) of each text."""
    texts = pathlib.Path(f"{model}.inp").read_text(encoding="utf-8").split(SEPARATOR)
    lines = pathlib.Path(f"{model}.out").read_text(encoding="utf-8").split("\n")
    if texts[-1] == "":  # a separator stands behind the last one, too
        texts.pop()
    expected = [[int(word) for word in line.split()] for line in lines[: len(texts)]]
    found = [tokenize(tidemill, model, text) for text in texts]
    return len(texts), [(t, e, f) for t, e, f in zip(texts, expected, found, strict=True) if e != f]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--min-vocabularies", type=int, default=1)
    arguments = parser.parse_args()
    tidemill, folder = arguments.tidemill, arguments.folder
    models = [path for path in sorted(folder.glob("ggml-vocab-*.gguf")) if pathlib.Path(f"{path}.inp").exists()]
    if len(models) < arguments.min_vocabularies:
        raise SystemExit(f"{folder}: expected {arguments.min_vocabularies} files ggml-vocab-NAME.gguf with .inp and .out, found {len(models)}")
    failed = 0
    for model in models:
        count, wrong = check(tidemill, model)
        failed += bool(wrong)
        print(f"{model.stem}: {count - len(wrong)} of {count} texts")
        for text, expected, found in wrong[:3]:
            print(f"  {text[:60]!r}\n    expected {expected[:16]}\n    found    {found[:16]}")
    print(f"{len(models) - failed} of {len(models)} vocabularies")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
