#!/usr/bin/env python3
"""The table of speed on README's first screen, from the journals of compare_peers.py.

    front_page_table.py benchmarks/journals/speed_*.jsonl --named benchmarks/journals/speed_emerald_rapids.jsonl --model synthetic-1b-q4_k_m.gguf

A cell of a range holds the lowest and the highest of the journals' geometric means. A journal counts where it has at least half of a test's rows.
In a batch a peer runs its requests batched or one by one, whichever is faster. Tokens/s are of the named journal, of two threads, batches at depth 512.
"""

import argparse
import json
import statistics
from pathlib import Path

import peer_report

PEERS = ["llama.cpp", "ik_llama.cpp"]
TESTS = {"prefill, 512 tokens": ("prefill", "tokens", 512, 16), "decode at depth 0": ("decode", "depth", 0, 16),
         "decode at depth 2048": ("decode", "depth", 2048, 16), "decode at depth 8000": ("decode", "depth", 8000, 16),
         "batch of 8": ("batch", "batch", 8, 8), "batch of 32": ("batch", "batch", 32, 8)}


def read(path: Path) -> list[dict]:
    return peer_report.with_ratios([json.loads(line) for line in path.read_text().splitlines()], PEERS)


def is_of(record: dict, test: tuple) -> bool:
    kind, key, value, _ = test
    return record["row"]["kind"] == kind and record["row"][key] == value


def mean(records: list[dict], test: tuple, peer: str) -> float | None:
    rows = [record for record in records if is_of(record, test) and record["wall"][peer]]
    if 2 * len(rows) < test[3]:
        return None
    alone = peer_report.one_by_one_rates(records, peer)
    return peer_report.geomean([peer_report.ratio_to_the_faster(row, peer, alone) for row in rows])


def tokens_per_s(records: list[dict], test: tuple, model: str, engine: str) -> str:
    for record in records:
        if is_of(record, test) and record["row"]["model"] == model and record["row"]["threads"] == 2 and record["row"].get("depth", 0) in (512, test[2], 0):
            value = statistics.median(pair[engine]["tokens_per_s"] for pair in record["pairs"])
            return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
    return "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journals", nargs="+", type=Path)
    parser.add_argument("--named", type=Path, required=True)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    journals = [read(path) for path in args.journals]
    named = read(args.named)
    print("| | tables | times as fast as llama.cpp | times as fast as ik_llama.cpp | Tidemill, tokens/s | llama.cpp | ik_llama.cpp |\n" + "| --- " * 7 + "|")
    for name, test in TESTS.items():
        means = {peer: [value for records in journals if (value := mean(records, test, peer))] for peer in PEERS}
        ranges = [f"{min(values):.1f} to {max(values):.1f}x" for values in means.values()]
        rates = [tokens_per_s(named, test, args.model, engine) for engine in [peer_report.OURS, *PEERS]]
        print("| " + " | ".join([name, str(max(map(len, means.values()))), *ranges, *rates]) + " |")


if __name__ == "__main__":
    main()
