#!/usr/bin/env python3
"""Figures of the journals of compare_peers.py: for each peer every row's ratio with the means and targets of groups, or one file's tokens/s.

    plot_speed_tables.py 'Zen 3=benchmarks/journals/speed_zen3.jsonl' ... --out FOLDER
    plot_speed_tables.py 'Zen 3=benchmarks/journals/speed_zen3.jsonl' --file FILE.gguf --out FOLDER

The first form writes FOLDER/against_PEER.svg; machines stand in the order given. A row without a ratio, since the peer's answers are wrong, has
no dot, and a mean is dashed where rows of its group have not been measured. The second form writes FOLDER/tokens_per_s.svg: one machine, one
file, two threads; bars are relative to llama.cpp, labels are tokens/s.
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
         "batched decode": "batches"}
# The bars of one file, all with two threads.
BARS = {"prefill 512": {"kind": "prefill", "tokens": 512}, "depth 0": {"kind": "decode", "depth": 0}, "depth 2048": {"kind": "decode", "depth": 2048},
        "depth 8000": {"kind": "decode", "depth": 8000}, "batch 8": {"kind": "batch", "batch": 8, "depth": 512},
        "batch 32": {"kind": "batch", "batch": 32, "depth": 512}}


def column_of(records: list[dict], group: str, peer: str) -> svg.Column:
    rows = [r for r in records if peer_report.group(r["row"]) == group and r["pairs"]]
    medians = [statistics.median(found) for r in rows if (found := peer_report.pair_ratios(r, peer))]
    return svg.Column(medians, peer_report.geomean(medians) if medians else 0, len(rows) == ROWS)


def bars_of(records: list[dict], model: str) -> list[svg.Group]:
    """The bars of every test whose row is measured and has a right answer of each engine."""
    groups = []
    for name, test in BARS.items():
        for record in records:
            wanted = {"model": model, "threads": 2} | test
            if wanted.items() <= record["row"].items() and all(peer_report.pair_ratios(record, peer) for peer in (LLAMA, IK)):
                rates = [statistics.median(pair[engine]["tokens_per_s"] for pair in record["pairs"]) for engine in (LLAMA, IK, peer_report.OURS)]
                groups.append(svg.Group(name, [(rate / rates[0], f"{rate:.3g}") for rate in rates]))
    return groups


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="+", metavar="NAME=JOURNAL")
    parser.add_argument("--file", help="the bars of this model file alone")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.file and len(args.machines) > 1:
        parser.error("--file: expected one machine")
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
    if args.file:
        (name, records), = machines.items()
        if not (groups := bars_of(records, args.file)):
            print(f"plot_speed_tables: {args.file}: no row with two threads in which all engines are right", file=sys.stderr)
            return 1
        args.out.mkdir(parents=True, exist_ok=True)
        title = f"{args.file.removesuffix('.gguf')}, two threads, {name}; labels are tokens/s"
        (args.out / "tokens_per_s.svg").write_text(svg.grouped(title, "times llama.cpp", [LLAMA, IK, peer_report.OURS], groups))
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    for peer in (LLAMA, IK):
        groups = [svg.Columns(NAMES[group], asked[peer], [column_of(records, group, peer) for records in machines.values()])
                  for group, (asked, _) in TARGETS.items()]
        figure = svg.columns(f"Speed over {peer}: dots are rows, bars means, dashed lines targets", "times as fast", list(machines), groups)
        (args.out / f"against_{peer}.svg").write_text(figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
