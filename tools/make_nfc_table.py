#!/usr/bin/env python3
"""Writes src/text/nfc_table.cc: decompositions, compositions and combining classes, as the PyPI package `tokenizers` has them.

    python tools/make_nfc_table.py            (re)writes the table
    python tools/make_nfc_table.py --check    compares the table with the package, changes nothing

The package follows an older Unicode version than Python, ICU or utf8proc do, and what counts is its behaviour: it is asked
about all 1 112 064 code points. Python's own data only proposes; a proposal that the package does not confirm is left out or
ends the script. 20 000 random texts are then normalised by the tables, in plain Python, and by the package.
"""

import argparse
import pathlib
import random
import sys
import unicodedata

import tokenizers
from tokenizers import normalizers

TABLE = pathlib.Path(__file__).resolve().parent.parent / "src/text/nfc_table.cc"
SEED = 20261121
HANGUL = range(0xAC00, 0xAC00 + 11172)  # decomposed by arithmetic
ABOVE, OVERLAY = "\u0345", "\u0334"  # the highest combining class, 240, and the lowest, 1

nfc = normalizers.NFC().normalize_str
nfd = normalizers.NFD().normalize_str


def code_points():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and c not in HANGUL)


def find_classes():
    """The combining class of each code point that has one."""
    def is_mark(c):
        return nfd(c) == c and (nfd(ABOVE + c) != ABOVE + c or nfd(c + OVERLAY) != c + OVERLAY)

    marks = [c for c in code_points() if is_mark(chr(c))]
    classes = {c: unicodedata.combining(chr(c)) for c in marks}
    representatives = {cls: chr(c) for c, cls in classes.items()}
    for c, cls in classes.items():
        assert cls > 0, hex(c)
        for other, mark in representatives.items():
            assert (nfd(chr(c) + mark) != chr(c) + mark) == (other < cls), (hex(c), other)
    return classes


def find_decompositions():
    """One step each: {code point: (first, second or 0)}."""
    steps = {}
    for c in code_points():
        if nfd(chr(c)) != chr(c):
            step = tuple(int(part, 16) for part in unicodedata.decomposition(chr(c)).split())
            assert 1 <= len(step) <= 2, hex(c)
            steps[c] = (*step, 0)[:2]

    def expand(c):
        return "".join(map(expand, filter(None, steps[c]))) if c in steps else chr(c)

    for c in steps:
        assert expand(c) == nfd(chr(c)), hex(c)
    return steps


def find_compositions(steps):
    """(first, second, code point) of the steps that NFC undoes, ascending by pair."""
    return sorted((first, second, c) for c, (first, second) in steps.items() if nfc(chr(c)) == chr(c))


def normalize(text, steps, composed, classes):
    """NFC by the tables alone."""

    def expand(c):
        if c in HANGUL:
            lv, t = divmod(c - 0xAC00, 28)
            return [0x1100 + lv // 21, 0x1161 + lv % 21] + ([0x11A7 + t] if t else [])
        return [d for part in filter(None, steps[c]) for d in expand(part)] if c in steps else [c]

    def compose(a, b):
        if 0x1100 <= a < 0x1113 and 0x1161 <= b < 0x1176:
            return 0xAC00 + ((a - 0x1100) * 21 + b - 0x1161) * 28
        if a in HANGUL and (a - 0xAC00) % 28 == 0 and 0x11A8 <= b < 0x11C3:
            return a + b - 0x11A7
        return composed.get((a, b))

    chars = [d for c in text for d in expand(ord(c))]
    begin = 0
    for i in range(len(chars) + 1):
        if i == len(chars) or classes.get(chars[i], 0) == 0:
            chars[begin:i] = sorted(chars[begin:i], key=lambda c: classes.get(c, 0))
            begin = i + 1
    out, starter, last = [], None, 0
    for c in chars:
        cls = classes.get(c, 0)
        if starter is not None and (last < cls or last == 0 == len(out) - 1 - starter):
            if (whole := compose(out[starter], c)) is not None:
                out[starter] = whole
                continue
        if cls == 0:
            starter = len(out)
        out.append(c)
        last = cls
    return "".join(map(chr, out))


def check_texts(steps, compositions, classes):
    rng = random.Random(SEED)
    composed = {(first, second): c for first, second, c in compositions}
    pools = [list(classes), list(steps), [p for s in steps.values() for p in s if p], list(HANGUL), list(range(0x1100, 0x1200)),
             [*range(0x20, 0x7F)], [*range(0x80, 0xD800)], [*range(0x10000, 0x30000)]]
    for _ in range(20000):
        text = "".join(chr(rng.choice(rng.choice(pools))) for _ in range(rng.randrange(1, 12)))
        assert normalize(text, steps, composed, classes) == nfc(text), ascii(text)


def wrap(entries):
    lines = []
    for entry in entries:
        if lines and len(lines[-1]) + 1 + len(entry) <= 126:
            lines[-1] += " " + entry
        else:
            lines.append("    " + entry)
    return lines


def render(steps, compositions, classes):
    ranges = []
    for c, cls in sorted(classes.items()):
        if ranges and ranges[-1][1:] == [c - 1, cls]:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, cls])
    return "\n".join(
        [
            "// Generated by tools/make_nfc_table.py; do not edit.",
            f"// As the PyPI package tokenizers {tokenizers.__version__} normalises: an older Unicode version than that of its regular expressions.",
            '#include "text/nfc.h"',
            "",
            "namespace tidemill {",
            "namespace {",
            "",
            "// clang-format off",
            "constexpr Decomposition kDecompositions[] = {",
            *wrap(f"{{0x{c:X}, 0x{a:X}, 0x{b:X}}}," for c, (a, b) in sorted(steps.items())),
            "};",
            "",
            "// Indices into kDecompositions.",
            "constexpr uint16_t kCompositions[] = {",
            *wrap(f"{sorted(steps).index(c)}," for a, b, c in compositions),
            "};",
            "",
            "constexpr CombiningRange kCombiningRanges[] = {",
            *wrap(f"{{0x{first:X}, 0x{last:X}, {cls}}}," for first, last, cls in ranges),
            "};",
            "// clang-format on",
            "",
            "}  // namespace",
            "",
            "std::span<const Decomposition> Decompositions() { return kDecompositions; }",
            "std::span<const uint16_t> Compositions() { return kCompositions; }",
            "std::span<const CombiningRange> CombiningRanges() { return kCombiningRanges; }",
            "",
            "}  // namespace tidemill",
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 on a difference")
    arguments = parser.parse_args()
    classes = find_classes()
    steps = find_decompositions()
    compositions = find_compositions(steps)
    check_texts(steps, compositions, classes)
    text = render(steps, compositions, classes)
    if arguments.check:
        if TABLE.read_text(encoding="utf-8") != text:
            sys.exit(f"{TABLE}: differs from what tokenizers {tokenizers.__version__} says; run without --check")
        print(f"{TABLE}: as tokenizers {tokenizers.__version__} says, for all code points")
        return
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
