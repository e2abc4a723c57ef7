#!/usr/bin/env python3
"""A figure of the journals of compare_peers.py for each peer: every row's ratio, the means of groups and what is asked of them.

    plot_speed_tables.py 'Zen 3=benchmarks/journals/speed_zen3.jsonl' ... --out FOLDER

Writes FOLDER/against_PEER.svg; machines stand in the order given. A row without a ratio, since the peer's answers are wrong, has no dot.
"""

import argparse
import statistics
import sys
from pathlib import Path

import peer_report
from check_speed_table import TARGETS, IK, LLAMA, read

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks" / "bmc"))
import svg

NAMES = {"prefill": "prefill 512", "decode at depth 0": "at depth 0", "decode at depth 2048": "at 2048", "decode at depth 8000": "at 8000",
         "batched decode": "sequences"}


def medians(records: list[dict], group: str, peer: str) -> list[float]:
    found = [peer_report.ratios(r, peer) for r in records if peer_report.group(r["row"]) == group]
    return [statistics.median(one) for one in found if one]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="+", metavar="NAME=JOURNAL")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    machines = {}
    for text in args.machines:
        name, equals, path = text.partition("=")
        if not equals:
            parser.error(f"{text}: expected NAME=JOURNAL")
        try:
            records, faults = read(Path(path).read_text())
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "no UTF-8"
            print(f"plot_speed_tables: read {path}: expected the FILE.jsonl of compare_peers.py, found: {why}", file=sys.stderr)
            return 2
        if not records:
            faults.append("no row")
        if faults:
            print("\n".join(f"plot_speed_tables: {path}: {fault}" for fault in faults), file=sys.stderr)
            return 1
        machines[name] = records
    args.out.mkdir(parents=True, exist_ok=True)
    for peer in (LLAMA, IK):
        groups = [svg.Columns(NAMES[group], asked[peer], [medians(records, group, peer) for records in machines.values()])
                  for group, (asked, _) in TARGETS.items()]
        figure = svg.columns(f"Speed over {peer} on the same file; bars: means, dashed: asked", "times as fast", list(machines), groups)
        (args.out / f"against_{peer}.svg").write_text(figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
