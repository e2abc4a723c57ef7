#!/usr/bin/env python3
"""A figure of the journals of compare_peers.py for each peer: every row's ratio, the means of groups and what is asked of them.

    plot_speed_tables.py 'Zen 3=benchmarks/journals/speed_zen3.jsonl' ... --out FOLDER

Writes FOLDER/against_PEER.svg; machines stand in the order given. A row without a ratio, since the peer's answers are wrong, has no dot, and
a mean is dashed where rows of its group have not been measured.
"""

import argparse
import statistics
import sys
from pathlib import Path

import peer_report
from check_speed_table import IK, LLAMA, ROWS, TARGETS, read

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks" / "bmc"))
import svg

NAMES = {"prefill": "prefill 512", "decode at depth 0": "depth 0", "decode at depth 2048": "depth 2048", "decode at depth 8000": "depth 8000",
         "batched decode": "sequences"}


def column_of(records: list[dict], group: str, peer: str) -> svg.Column:
    rows = [r for r in records if peer_report.group(r["row"]) == group and r["pairs"]]
    medians = [statistics.median(found) for r in rows if (found := peer_report.pair_ratios(r, peer))]
    return svg.Column(medians, peer_report.geomean(medians) if medians else 0, len(rows) == ROWS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="+", metavar="NAME=JOURNAL")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    machines = {}
    for text in args.machines:
        name, equals, path = text.partition("=")
        if not equals or name in machines:
            parser.error(f"{text}: expected NAME=JOURNAL, each name once")
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
        groups = [svg.Columns(NAMES[group], asked[peer], [column_of(records, group, peer) for records in machines.values()])
                  for group, (asked, _) in TARGETS.items()]
        figure = svg.columns(f"Speed over {peer}: dots rows, bars means, dashed lines what is asked", "times as fast", list(machines), groups)
        (args.out / f"against_{peer}.svg").write_text(figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
