#!/usr/bin/env python3
"""Tables and figures of what diagonal_orders printed: plot_orders.py JOURNAL... --out FOLDER

Writes FOLDER/tables.md:
  orders      seconds a segment, and how many times as fast as sequential each order is: the median over rounds, paired, and its 95 % bootstrap interval; of
              fewer than 8 rounds the range. The largest error between orders, max |A| and max z stand beside it
  full        seconds of a prompt with full attention beside those of each recurrent-memory model of the same text, whole segments by their seconds
  decode      seconds of a generated token behind a long text
and gain_*.svg (gain of each order by S + M), layers_*.svg (by the number of layers, of models named NAME-L4, NAME-L8, ...), time_*.svg (seconds by tokens)
and rates_*.svg (operations a second by the number of layers in one call).
The base model of folders armt-160m... is that of a folder armt-160m-base.
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bmc"))
import svg
from speculation_numbers import draws, interval

FEWEST_ROUNDS = 8  # of an interval by drawing them anew


def read(paths: list[Path]) -> list[dict]:
    """Lines of the program; one that is torn is left out."""
    records = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if "mode" in record:
                records.append(record)
    return records


def setting(r: dict) -> tuple:
    """What an order is compared within."""
    return (r["model"], r["segment"], r["memory"], r["segments"], r["threads"], r["want"])


def gain(rounds: dict[int, float], base: dict[int, float]) -> tuple[float, float, float]:
    """Base over the order's seconds: median, low, high of rounds in which both ran."""
    ratios = [base[i] / rounds[i] for i in sorted(rounds.keys() & base.keys())]
    if not ratios:
        raise ValueError("expected rounds in which both orders ran, found none")
    if len(ratios) < FEWEST_ROUNDS:
        return statistics.median(ratios), min(ratios), max(ratios)
    low, high = interval([statistics.median(ratios[i] for i in chosen) for chosen in draws(len(ratios))])
    return statistics.median(ratios), low, high


def by_order(records: list[dict]) -> dict[tuple, dict[str, dict[int, float]]]:
    """setting -> order -> round -> seconds; a round that stands twice counts as it stands last."""
    found = defaultdict(lambda: defaultdict(dict))
    for r in records:
        if r["mode"] == "orders":
            found[setting(r)][r["order"]][r["round"]] = r["seconds"]
    return found


def orders_table(records: list[dict]) -> list[str]:
    lines = ["| model | S, M | segments | threads | want | order | s / segment | gain | error | max A | max z |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for key, orders in by_order(records).items():
        model, size, memory, segments, threads, want = key
        for order, rounds in orders.items():
            own = [r for r in records if r["mode"] == "orders" and setting(r) == key and r["order"] == order]
            times = "-"
            if "sequential" in orders and order != "sequential":
                times = "{:.2f}x [{:.2f}, {:.2f}]".format(*gain(rounds, orders["sequential"]))
            seconds = statistics.median(rounds.values()) / segments
            lines.append(f"| {model} | {size}, {memory} | {segments} | {threads} | {want} | {order} | {seconds:.4g} | {times} | "
                         f"{max(r['error'] for r in own):.2g} | {max(r['max_a'] for r in own):.3g} | {max(r['max_z'] for r in own):.3g} |")
    return lines


def best_of(records: list[dict], name: str, threads: int) -> dict[tuple[int, int], float]:
    """(S, M) -> seconds a segment in the fastest order, of recurrent-memory models of this base."""
    best = {}
    for (model, size, memory, segments, used, want), orders in by_order(records).items():
        if not model.startswith(name) or used != threads or want != "nothing":
            continue
        seconds = min(statistics.median(rounds.values()) for rounds in orders.values()) / segments
        best[size, memory] = min(seconds, best.get((size, memory), seconds))
    return best


def base_name(model: str) -> str:
    return model.removesuffix("-base")


def full_table(records: list[dict]) -> list[str]:
    lines = ["| model | threads | tokens | full attention, s | S, M | in segments, s | times as fast |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for r in (r for r in records if r["mode"] == "full"):
        best = best_of(records, base_name(r["model"]), r["threads"]) or {(0, 0): None}
        for (size, memory), seconds in best.items():
            head = f"| {r['model']} | {r['threads']} | {r['tokens']}{' (whole)' if r['whole'] else ''} | {r['seconds']:.4g} |"
            if seconds is None:
                lines.append(f"{head} | | |")
                continue
            own = seconds * r["tokens"] / size
            lines.append(f"{head} {size}, {memory} | {own:.4g} | {r['seconds'] / own:.2f}x |")
    return lines


def decode_table(records: list[dict]) -> list[str]:
    groups = defaultdict(list)
    for r in records:
        if r["mode"] == "decode":
            groups[r["model"], r["threads"], r["tokens"], r.get("tail", r["tokens"])].append(r["seconds"])
    lines = ["| model | threads | tokens | cached | ms / token |", "| --- | --- | --- | --- | --- |"]
    return lines + [f"| {model} | {threads} | {tokens} | {tail} | {1000 * statistics.median(seconds):.4g} |"
                    for (model, threads, tokens, tail), seconds in groups.items()]


def gain_lines(records: list[dict], threads: int, want: str) -> list[svg.Line]:
    points = defaultdict(list)
    for (model, size, memory, _, used, wants), orders in by_order(records).items():
        if used != threads or wants != want or "sequential" not in orders:
            continue
        for order, rounds in orders.items():
            if order != "sequential":
                points[order].append((size + memory, gain(rounds, orders["sequential"])[0]))
    return [svg.Line(order, sorted(found)) for order, found in points.items()]


def layer_lines(records: list[dict], name: str) -> list[svg.Line]:
    points = defaultdict(list)
    for (model, *_), orders in by_order(records).items():
        if family(model) != name or "sequential" not in orders:
            continue
        for order, rounds in orders.items():
            if order == "sequential":
                continue
            kind = order if " x " in order else order.split(" ")[0]  # W follows the layers
            points[kind].append((int(model.rpartition("-L")[2]), gain(rounds, orders["sequential"])[0]))
    return [svg.Line(order, sorted(found)) for order, found in points.items()]


def family(model: str) -> str:
    """armt-d128-L4 -> armt-d128; of other names nothing."""
    name, _, layers = model.rpartition("-L")
    return name if layers.isdigit() else ""


def time_lines(records: list[dict], model: str, threads: int) -> list[svg.Line]:
    full = sorted((r["tokens"], r["seconds"]) for r in records if r["mode"] == "full" and r["model"] == model and r["threads"] == threads)
    best = best_of(records, base_name(model), threads)
    segments = [svg.Line(f"({size}, {memory})", [(tokens, seconds * tokens / size) for tokens, _ in full]) for (size, memory), seconds in sorted(best.items())]
    return [svg.Line("full attention", full), *segments]


def rate_lines(records: list[dict], model: str) -> list[svg.Line]:
    points = defaultdict(list)
    for r in records:
        if r["mode"] == "rates" and r["model"] == model:
            points[f"{r['operation']}, {r['rows']} rows, {r['threads']} threads"].append((r["group"], r["flops"] / 1e9))
    return [svg.Line(name, sorted(found)) for name, found in points.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journals", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    records = read(args.journals)
    if not records:
        sys.exit(f"plot_orders: {args.journals[0]}: expected lines of diagonal_orders, found none")
    args.out.mkdir(parents=True, exist_ok=True)
    tables = [orders_table(records), full_table(records), decode_table(records)]
    (args.out / "tables.md").write_text("\n\n".join("\n".join(table) for table in tables if len(table) > 2) + "\n", encoding="utf-8")
    figures = {}
    for threads, want in sorted({(r["threads"], r["want"]) for r in records if r["mode"] == "orders"}):
        figures[f"gain_t{threads}_{want}"] = svg.lines, (f"orders against sequential, {threads} threads, {want}", "rows of a segment, S + M", "times as fast",
                                                         gain_lines(records, threads, want))
    for name in sorted({family(r["model"]) for r in records if r["mode"] == "orders"} - {""}):
        figures[f"layers_{name}"] = svg.lines, (f"{name}: orders against sequential", "layers", "times as fast", layer_lines(records, name))
    for model, threads in sorted({(r["model"], r["threads"]) for r in records if r["mode"] == "full"}):
        figures[f"time_{model}_t{threads}"] = svg.lines, (f"{model}, {threads} threads", "tokens", "seconds", time_lines(records, model, threads))
    for model in sorted({r["model"] for r in records if r["mode"] == "rates"}):
        figures[f"rates_{model}"] = svg.lines, (f"{model}: one call of the rows of several layers", "layers", "Gflop/s", rate_lines(records, model))
    for name, (draw, arguments) in figures.items():
        if arguments[-1]:
            (args.out / f"{name}.svg").write_text(draw(*arguments, log=True), encoding="utf-8")


if __name__ == "__main__":
    main()
