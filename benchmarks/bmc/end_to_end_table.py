#!/usr/bin/env python3
"""Markdown tables of the cells of end_to_end.py: end_to_end_table.py CELLS.jsonl...

A table for each model, lengths and batch; a cell that stands in several files counts as in the last one.
"""

import sys
from collections import defaultdict
from pathlib import Path

from speculation_journal import Journal


def group_name(cell: dict) -> str:
    prompts = f"{cell['prompt']} on average" if cell.get("ragged") else str(cell["prompt"])
    instances = f", {cell['instances']} instances" if cell.get("instances", 1) > 1 else ""
    return (f"{cell['model']}, {prompts} tokens and {cell['new']} more, batch {cell['batch']}{instances}, "
            f"{cell['threads']} thread{'s' if cell['threads'] > 1 else ''}")


def ratio(records: dict[str, dict], name: str, base: str) -> str:
    if not all("whole_s" in records.get(engine, {}) for engine in (name, base)):
        return ""
    return f"{records[base]['whole_s'] / records[name]['whole_s']:.2f}x"


def table(records: dict[str, dict]) -> str:
    lines = ["| cache | tokens/s | over iterative | over transformers' dynamic | TTFT, s | a step, ms | growths per request | copied, MiB "
             "| peak resident, MiB | |", "| --- |" + " --- |" * 9]
    for name, record in sorted(records.items(), key=lambda item: item[1].get("whole_s", float("inf"))):
        cell = record["cell"]
        if "whole_s" not in record:
            lines.append(f"| {name} | | | | | | | | | {record['error'].strip()} |")
            continue
        copied = f"{record['bytes_copied'] / 2**20:.1f}" if "bytes_copied" in record else ""
        lines.append(f"| {name} | {cell['batch'] * cell['new'] / record['whole_s']:.1f} | {ratio(records, name, 'iterative')} | "
                     f"{ratio(records, name, 'dynamic')} | {record['first_s']:.2f} | {1000 * record['step_s']:.1f} | {record.get('growths', '')} | "
                     f"{copied} | {record['peak_mib']:.0f} | |")
    return "\n".join(lines)


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    groups: dict[str, dict[str, dict]] = defaultdict(dict)
    for path in sys.argv[1:]:
        for record in Journal(Path(path)).records.values():
            groups[group_name(record["cell"])][record["cell"]["engine"]] = record
    if not groups:
        sys.exit(f"read {' '.join(sys.argv[1:])}: expected cells, found none: run end_to_end.py first")
    print("\n\n".join(f"### {name}\n\n{table(records)}" for name, records in groups.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
