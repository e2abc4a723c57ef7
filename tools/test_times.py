#!/usr/bin/env python3
"""Print what a run of ctest took, by test program, and what was skipped.

    test_times.py TESTS.xml    the file of ctest --output-junit
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

SKIPPED = re.compile(r"^.*: Skipped\n(.+)$", re.MULTILINE)  # GoogleTest's reason stands in the line behind
LEVELS = re.compile(r"levels that ran: .*")


def main() -> int:
    if len(sys.argv) != 2:
        print("test_times: expected one file, found", len(sys.argv) - 1, file=sys.stderr)
        return 2
    tests = ElementTree.parse(sys.argv[1]).getroot().findall("testcase")
    tests.sort(key=lambda test: -float(test.get("time", 0)))
    total = sum(float(test.get("time", 0)) for test in tests)
    print(f"\nSeconds of {len(tests)} test programs, {total:.0f} in all:")
    for test in tests:
        print(f"  {float(test.get('time', 0)):7.1f}  {test.get('name')}")
    levels, skipped = {}, []
    for test in tests:
        output = test.findtext("system-out") or ""
        for line in LEVELS.findall(output):
            levels.setdefault(line, []).append(test.get("name"))
        skipped += [(test.get("name"), reason) for reason in SKIPPED.findall(output)]
    for line in levels:
        print(f"Instruction-set {line}")
    if skipped:
        print(f"SKIPPED inside of these programs: {len(skipped)}")
        for name, reason in sorted(set(skipped)):
            print(f"  {skipped.count((name, reason)):3}  {name}: {reason}")
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
