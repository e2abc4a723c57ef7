#!/usr/bin/env python3
"""Writes src/text/jinja_unicode_data.inc: character classes and case mappings as Python's str has them.

    python3 tools/make_jinja_unicode.py > src/text/jinja_unicode_data.inc

Chat templates were written against Python's str; its tables come from the Unicode version named in the output's first line.
"""

import sys
import unicodedata

LIMIT = 0x110000
SURROGATES = range(0xD800, 0xE000)
CHARS = [c for c in range(LIMIT) if c not in SURROGATES]


def strided_ranges(points):
    """[(first, last, stride)] that cover the ascending points, greedily."""
    out, i = [], 0
    while i < len(points):
        stride, j = 1, i
        if i + 1 < len(points) and points[i + 1] - points[i] in (1, 2):
            stride = points[i + 1] - points[i]
            while j + 1 < len(points) and points[j + 1] - points[j] == stride:
                j += 1
        out.append((points[i], points[j], stride))
        i = j + 1
    return out


def print_rows(rows):
    line = " "
    for row in rows:
        cell = " {" + ", ".join(row) + "},"
        if len(line) + len(cell) > 118:
            print(line)
            line = " "
        line += cell
    print(line)


def print_class(name, predicate):
    ranges = strided_ranges([c for c in CHARS if predicate(chr(c))])
    print(f"constexpr std::array<CharRange, {len(ranges)}> {name} = {{{{")
    print_rows([(hex(first), hex(last), str(stride)) for first, last, stride in ranges])
    print("}};")


def print_mapping(name, convert):
    single = [(c, ord(convert(chr(c))) - c) for c in CHARS if convert(chr(c)) != chr(c) and len(convert(chr(c))) == 1]
    several = [(c, convert(chr(c))) for c in CHARS if len(convert(chr(c))) > 1]
    rows = []
    for delta in sorted({delta for _, delta in single}):
        rows += [(first, last, stride, delta) for first, last, stride in strided_ranges([c for c, d in single if d == delta])]
    rows.sort()
    merged = resolve_overlaps(rows)
    print(f"constexpr std::array<CaseRange, {len(merged)}> {name} = {{{{")
    print_rows([(hex(first), hex(last), str(stride), str(delta)) for first, last, stride, delta in merged])
    print("}};")
    print(f"constexpr std::array<CaseExpansion, {max(1, len(several))}> {name}Expansions = {{{{")
    print_rows([(hex(c), '"' + "".join(f"\\x{b:02x}" for b in text.encode()) + '"') for c, text in several] or [("0", '""')])
    print("}};")


def resolve_overlaps(rows):
    """Splits strided ranges that interleave with others, so that a binary search by `first` finds the only candidate."""
    out = []
    for row in rows:
        if out and row[0] <= out[-1][1]:
            first, last, stride, delta = out.pop()
            out += [(c, c, 1, delta) for c in range(first, last + 1, stride)]
        out.append(row)
    while True:
        out.sort()
        bad = [i for i in range(1, len(out)) if out[i][0] <= out[i - 1][1]]
        if not bad:
            return out
        first, last, stride, delta = out.pop(bad[0] - 1)
        out += [(c, c, 1, delta) for c in range(first, last + 1, stride)]


def main():
    print(f"// Written by tools/make_jinja_unicode.py: Unicode {unicodedata.unidata_version} as Python {sys.version_info[0]}.{sys.version_info[1]} has it. Do not edit.")
    print("// clang-format off")
    print_class("kUnprintable", lambda c: not c.isprintable())
    print_class("kDecimal", str.isdecimal)
    print_class("kDigit", str.isdigit)
    print_class("kNumeric", str.isnumeric)
    print_class("kUpper", str.isupper)
    print_class("kLower", str.islower)
    print_class("kTitle", lambda c: unicodedata.category(c) == "Lt")
    print_mapping("kToUpper", str.upper)
    print_mapping("kToLower", str.lower)
    print_mapping("kToTitle", str.title)
    print("// clang-format on")


main()
