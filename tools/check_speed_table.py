#!/usr/bin/env python3
"""Whether a journal of compare_peers.py (FILE.jsonl) shows what is asked for: the gate of the speed table.

    check_speed_table.py benchmarks/journals/speed_zen5.jsonl

Asked for, in each group of rows: a geometric mean of the ratios to each peer; in prefill and decode at depth 0 together, that at most three
rows lose to a peer whose answers are right, none by more than 15 %, where a row loses whose interval ends below 1; and that in each group at most
two rows lack a peer because its answers are wrong. Printed beside each mean: its least and greatest row, and the mean without its best file; and how many rows ran beside other work. A row that
was not measured is a fault, and its group's means are "incomplete", as are other rows than the plan's, lines of two plans, of a row twice, torn or not as compare_peers.py writes them, of fewer than ten pairs, of a
checkout with changes, or of a peer that leaves instructions unused which ours uses. Rows of several commits are one table. Exits 1 if something is missing,
and names it; 2 if there is no journal.
"""

import argparse
import collections
import json
import re
import signal
import sys
from pathlib import Path

import peer_report
from compare_peers import PLANS, rows_of
from peer_process import is_version_of

LLAMA, IK = "llama.cpp", "ik_llama.cpp"
ROWS = 16  # of each group: eight files with one and two threads, or four files with four batches
# Group -> the geometric mean asked for against each peer, and whether rows that lose are counted.
TARGETS = {
    "prefill": ({IK: 1.3, LLAMA: 2.0}, True),
    "decode at depth 0": ({IK: 1.15, LLAMA: 1.35}, True),
    "decode at depth 2048": ({IK: 1.5, LLAMA: 2.0}, False),
    "decode at depth 8000": ({IK: 1.5, LLAMA: 2.5}, False),
    "batched decode": ({IK: 2.0, LLAMA: 3.0}, False),
}
MAY_LOSE, BY_AT_MOST = 3, 0.15
MAY_BE_WRONG = 2  # rows of a group
FEWEST_PAIRS = 10
BUSY = 0.1  # cores


def loss_of(record: dict) -> float:
    """By how much a row loses at most to a peer that is right; 0 where every interval reaches 1."""
    return max((1 - w["ratio"] for w in record["wall"].values() if w and w["high"] < 1), default=0.0)


def is_planned(rows: list[dict]) -> bool:
    """Whether rows of a group are all those that the full plan has of their files."""
    planned = [row for model in dict.fromkeys(row["model"] for row in rows) for row in rows_of(PLANS["full"], model, [1, 2])
               if peer_report.group(row) == peer_report.group(rows[0])]
    return len(planned) == len(rows) == ROWS and all(row in rows for row in planned)


def read(text: str) -> tuple[list[dict], list[str]]:
    """(records of a journal, faults of its lines)."""
    records, faults = [], []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if peer_report.is_whole(record, [IK, LLAMA]):
            records.append(record)
        else:
            faults.append(f"line {number}: no whole record of compare_peers.py")
    plans = {json.dumps(record["plan"], sort_keys=True) for record in records}
    if len(plans) > 1:
        faults.append(f"{len(plans)} plans, expected one: " + "; ".join(sorted(plans)))
    for peer in (IK, LLAMA):
        if len(versions := {str(record["versions"][peer]) for record in records}) > 1:
            faults.append(f"{peer}: {len(versions)} versions, expected one: " + ", ".join(sorted(versions)))
        faults += [f"{peer}: measured was {version}" for version in sorted(versions) if not is_version_of(peer, version)]
    faults += [f"{peer_report.where(record['row'])}: no row of the plan" for record in records
               if record["row"] not in rows_of(PLANS["full"], record["row"]["model"], [1, 2])]
    rows = collections.Counter(peer_report.where(record["row"]) for record in records)
    faults += [f"{row}: {count} times" for row, count in rows.items() if count > 1]
    return records, faults


def unfair(record: dict) -> list[str]:
    """Why a measured row is not to be quoted."""
    why = []
    for peer, unused in record["unused"].items():
        if more := sorted(set(unused) - set(record["unused"].get(peer_report.OURS, []))):
            why.append(f"{peer} leaves {' '.join(more)} unused, which ours does not")
    if len(record["pairs"]) < FEWEST_PAIRS:
        why.append(f"{len(record['pairs'])} pairs, expected at least {FEWEST_PAIRS}")
    return [f"{peer_report.where(record['row'])}: {text}" for text in why]


def uncommitted(records: list[dict]) -> list[str]:
    """Programs with changes that are in no commit, each with its rows."""
    rows = collections.defaultdict(list)
    for record in records:
        if record["pairs"] and not re.fullmatch("[0-9a-f]{7,40}", record["commit"]):
            rows[record["commit"]].append(peer_report.where(record["row"]))
    return [f"{found[0]}{f' and {len(found) - 1} more' * (len(found) > 1)}: measured at {commit}: with changes that are in no commit"
            for commit, found in rows.items()]


def without_best_file(ratios: list[tuple[str, float]]) -> float | None:
    """The mean of (file, ratio) without the file that has the greatest mean of its own."""
    if len({file for file, _ in ratios}) < 2:
        return None
    best = max({file for file, _ in ratios}, key=lambda file: peer_report.geomean([r for f, r in ratios if f == file]))
    return peer_report.geomean([r for f, r in ratios if f != best])


def check(records: list[dict]) -> tuple[list[str], list[str]]:
    """(lines of a Markdown table, faults)."""
    records = [r | {"wall": {peer: peer_report.compare(r, peer, "tokens_per_s") for peer in (IK, LLAMA)}} for r in records]
    lines = ["| group | peer | asked | found | rows | | from, to | without its best file |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    faults, losers = [], []
    for name, (asked, losses_count) in TARGETS.items():
        rows = [r for r in records if peer_report.group(r["row"]) == name and r["pairs"]]
        faults += [f"{peer_report.where(r['row'])}: left out: {r['skipped']}" for r in records
                   if peer_report.group(r["row"]) == name and "skipped" in r]
        measured = len({peer_report.where(r["row"]) for r in rows})
        if measured < ROWS:
            faults.append(f"{name}: {measured} of {ROWS} rows are measured")
        elif not is_planned([r["row"] for r in rows]):
            faults.append(f"{name}: other rows than the plan's")
        for record in rows:
            if peer_report.OURS in record["wrong"]:
                faults.append(f"{peer_report.where(record['row'])}: our logits are WRONG")
            faults += [f"{peer_report.where(record['row'])}: {peer} was not measured" for peer in asked if peer not in record["pairs"][0]]
            faults += unfair(record)
        for peer, least in asked.items():
            ratios = [(r["row"]["model"], r["wall"][peer]["ratio"]) for r in rows if r["wall"][peer]]
            mean = peer_report.geomean([ratio for _, ratio in ratios]) if ratios else None
            met = mean is not None and mean >= least
            if (left_out := sum(peer in r["wrong"] for r in rows)) > MAY_BE_WRONG:
                faults.append(f"{name}, {peer}: {left_out} rows without it, since it is WRONG there; at most {MAY_BE_WRONG} may be")
            text, spread, rest = "-" if mean is None else f"{mean:.3f}", "-", without_best_file(ratios)
            if ratios:
                spread = f"{min(ratio for _, ratio in ratios):.2f}, {max(ratio for _, ratio in ratios):.2f}"
            lacking = measured < ROWS or len(rows) > ROWS or any(peer not in r["pairs"][0] for r in rows)
            verdict = "incomplete" if lacking or mean is None else "met" if met else "MISSED"
            lines.append(f"| {name} | {peer} | {least} | {text} | {len(ratios)} | {verdict} | {spread} | {'-' if rest is None else f'{rest:.2f}'} |")
            if not met:
                faults.append(f"{name}, {peer}: a geometric mean of {text}, expected at least {least}")
        if losses_count:
            losers += [(loss, peer_report.where(r["row"])) for r in rows if (loss := loss_of(r)) > 0]
    faults += [f"{row}: loses by {loss:.0%}, at most {BY_AT_MOST:.0%} may be lost" for loss, row in losers if loss > BY_AT_MOST]
    if len(losers) > MAY_LOSE:
        faults.append(f"{len(losers)} rows lose, at most {MAY_LOSE} may: " + "; ".join(row for _, row in losers))
    faults += uncommitted(records)
    busy = [peer_report.busy(r) for r in records if r["pairs"]]
    lines += ["", f"Rows beside more than {BUSY} cores of other work: {sum(b > BUSY for b in busy)} of {len(busy)}"]
    lines += ["", "Rows that lose: " + ("; ".join(f"{row} by {loss:.0%}" for loss, row in losers) or "none")]
    return lines, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journal", type=Path)
    journal = parser.parse_args().journal
    sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a journal's names may be anything
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has enough, such as head, ends it silently
    try:
        text = journal.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8"
        print(f"check_speed_table: read {journal}: expected the FILE.jsonl of compare_peers.py, found: {why}", file=sys.stderr)
        return 2
    records, torn = read(text)
    lines, faults = check(records)
    print("\n".join(lines))
    for fault in torn + faults:
        print(f"check_speed_table: {fault}", file=sys.stderr)
    return 1 if torn or faults else 0


if __name__ == "__main__":
    sys.exit(main())
