#!/usr/bin/env python3
"""Tables and figures of a journal of bmc_attention_block: plot.py JOURNAL... --out FOLDER

Writes FOLDER/tables.md (with the best T over the ends, `reserve` beside it, and what the rule T* = sqrt(N s / c) would have chosen)
and, beside it, best_T_*.svg (the best number of allocations by the number of tokens), total_by_T_*.svg (the time of a generation by the
number of allocations, with the paper's T* and the best measured), breakdown_*.svg (where the time goes, by policy) and latency_*.svg (the time
of single tokens; journals made with --latency). A cell that stands in several journals counts as in the last one. The whole sweep has some
sixty settings: --details draws total_by_T and breakdown of those alone whose name, as it stands in tables.md, matches.
"""

import argparse
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import svg
from speculation_numbers import draws, interval

PARTS = ["allocate", "copy", "update", "attention", "create"]
PAPER_C = 0.1  # C' that the paper measured on its machine: T* = sqrt(C' N), section VIII-A
PAPER_T = {("opt-13b", 8, 1024): 16,  # what the paper's figures show as best: (shape, batch, tokens); Figs. 5, 7, 8, 9
           ("opt-2.7b", 8, 512): 8, ("opt-6.7b", 8, 512): 8, ("opt-13b", 8, 512): 8,
           ("opt-6.7b", 8, 128): 8, ("opt-6.7b", 8, 2048): 32,
           ("llama-3-8b", 32, 1024): 16, ("llama-3-8b", 32, 4096): 32}


def law(tokens: int) -> int:
    """T* of the paper's equation 7 with its constant, rounded to a power of two as the paper does."""
    return 2 ** max(0, round(math.log2(math.sqrt(PAPER_C * tokens))))


def read(paths: list[str]) -> tuple[list[dict], list[dict]]:
    machines, cells = [], {}
    for path in paths:
        for at, line in enumerate(Path(path).read_text().splitlines(), 1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                print(f"{path}:{at}: a line that was cut off, left out", file=sys.stderr)
                continue
            if "machine" in record:
                if record["machine"] not in machines:
                    machines.append(record["machine"])
            else:
                cells[record["key"]] = record
    return machines, list(cells.values())


def setting(cell: dict) -> tuple:
    """What a figure holds constant, but for the shape."""
    return (cell["backend"], cell["kv_dtype"], cell["threads"], cell["batch"], cell["tokens"], cell["draft"], cell["accept"], cell["pages"])


def setting_name(key: tuple) -> str:
    backend, kv_dtype, threads, batch, tokens, draft, accept, pages = key
    return (f"{backend}, {kv_dtype}, batch {batch}, {tokens} tokens, {threads} thread{'s' if threads > 1 else ''}"
            + (f", {draft} draft tokens, {accept} accepted" if draft > 1 else "")
            + (f", {pages} pages" if pages != "default" else ""))


def file_name(key: tuple, shape: str = "") -> str:
    backend, kv_dtype, threads, batch, tokens, draft, accept, pages = key
    name = f"{backend}_{kv_dtype}_b{batch}_n{tokens}_t{threads}".lower()
    name += f"_k{draft}_m{accept}" if draft > 1 else ""
    name += f"_{pages}" if pages != "default" else ""
    return (shape + "_" if shape else "") + name


def total(cell: dict) -> float:
    return cell["seconds"]["total"]


def curve(cells: list[dict]) -> dict[int, float]:
    """Total by T. Upfront is 1; iterative is N, and with drafts beside the curve, since it then makes as many blocks as steps."""
    return {cell["allocations"]: total(cell) for cell in cells
            if cell["policy"] in ("upfront", "bmc") or cell["policy"] == "iterative" and cell["draft"] == 1}


def by_setting(cells: list[dict]) -> dict[tuple, dict[str, list[dict]]]:
    grouped: dict[tuple, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        if "refused" not in cell:
            grouped[setting(cell)][cell["shape"]].append(cell)
    return grouped


def table(header: list[str], rows: list[list[str]]) -> str:
    def line(fields: list[str]) -> str:
        return "| " + " | ".join(fields) + " |\n"
    return line(header) + "|" + " --- |" * len(header) + "\n" + "".join(map(line, rows)) + "\n"


def total_by_t(key: tuple, shapes: dict[str, list[dict]], out: Path) -> str:
    tokens, batch, plain = key[4], key[3], key[5] == 1
    curves = {shape: curve(cells) for shape, cells in shapes.items()}
    curves = {shape: points for shape, points in curves.items() if len(points) > 2}
    if not curves:
        return ""
    lines, rows = [], []
    for shape, points in curves.items():
        # Relative to upfront where that was measured, as in the paper's tables of drafts; else to the worst.
        base = points.get(1, max(points.values()))
        best = min(points, key=points.get)
        normalised = sorted((t, value / base) for t, value in points.items())
        lines.append(svg.Line(shape, normalised, marked=(best, points[best] / base)))
        paper = PAPER_T.get((shape, batch, tokens)) if plain else None
        iterative = next((total(cell) for cell in shapes[shape] if cell["policy"] == "iterative"), None)
        rows.append([shape, str(best), str(law(tokens)) if plain else "", str(paper or ""), f"{points[best] / base:.2f}",
                     f"{iterative / points[best]:.2f}x" if iterative else "", f"{points[best]:.4g} s"])
    verticals = [(law(tokens), f"T* = {law(tokens)}")] if plain else []
    name = f"total_by_T_{file_name(key)}.svg"
    (out / name).write_text(svg.lines(f"Attention block, {setting_name(key)}", "allocations T", "time / upfront's", lines,
                                      log=True, verticals=verticals))
    text = f"### {setting_name(key)}\n\n![total by T]({name})\n\n"
    text += table(["shape", "best T", "T* of the law", "best T in the paper", "best / upfront", "best over iterative", "best"], rows)
    every_t = sorted({t for points in curves.values() for t in points})
    text += table(["time / upfront's, by T"] + [str(t) for t in every_t],
                  [[line.name] + [f"{dict(line.points)[t]:.2f}" if t in dict(line.points) else "" for t in every_t] for line in lines])
    return text


def best_by_tokens(grouped: dict, out: Path) -> str:
    """Padded and without drafts: the best T by the number of tokens, a figure for each batch that has at least three numbers."""
    best: dict[tuple, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for key, shapes in grouped.items():
        backend, kv_dtype, threads, batch, tokens, draft, _, pages = key
        for shape, cells in shapes.items() if backend == "padded" and draft == 1 else []:
            if points := curve(cells):
                best[(kv_dtype, threads, batch, pages)][shape][tokens] = min(points, key=points.get)
    text = ""
    for (kv_dtype, threads, batch, pages), shapes in sorted(best.items()):
        every = sorted({n for points in shapes.values() for n in points})
        if len(every) < 3:
            continue
        name = f"best_T_{kv_dtype.lower()}_b{batch}_t{threads}" + (f"_{pages}" if pages != "default" else "") + ".svg"
        drawn = [svg.Line(shape, sorted(points.items())) for shape, points in shapes.items()]
        drawn.append(svg.Line("the paper's law", [(n, math.sqrt(PAPER_C * n)) for n in every], dots=False))
        title = f"Best number of allocations, padded, {kv_dtype}, batch {batch}, {threads} thread{'s' if threads > 1 else ''}"
        (out / name).write_text(svg.lines(title, "tokens N", "best T", drawn, log=True))
        text += f"### Batch {batch}, {kv_dtype}, {threads} thread{'s' if threads > 1 else ''}\n\n![best T by N]({name})\n\n"
        text += table(["best T, by N"] + [str(n) for n in every],
                      [[shape] + [str(points.get(n, "")) for n in every] for shape, points in shapes.items()])
    return "## The best number of allocations by the number of tokens\n\n" + text if text else ""


def of_policy(cells: list[dict], policy: str) -> dict | None:
    return next((cell for cell in cells if cell["policy"] == policy), None)


def best_bmc(cells: list[dict]) -> dict | None:
    return min((cell for cell in cells if cell["policy"] == "bmc"), key=total, default=None)


def paired(a: dict, b: dict) -> str:
    """a's time over b's, the median over the turns in which both were run, and its 95 % bootstrap interval; of fewer than 8 turns the range."""
    ratios = sorted(x / y for x, y in zip(a.get("totals", [total(a)]), b.get("totals", [total(b)])))
    low, high = ratios[0], ratios[-1]
    if len(ratios) >= 8:
        low, high = interval([statistics.median(ratios[i] for i in chosen) for chosen in draws(len(ratios))])
    return f"{statistics.median(ratios):.2f}x [{low:.2f}, {high:.2f}]"


def ratios(grouped: dict) -> str:
    rows = []
    for key, shapes in grouped.items():
        for shape, cells in shapes.items():
            best = best_bmc(cells)
            if best is None:
                continue
            over = [of_policy(cells, name) for name in ("iterative", "iterative, pool", "upfront", "reserve")]
            rows.append([setting_name(key), shape, str(best["allocations"]), *(paired(cell, best) if cell else "" for cell in over)])
    return table(["setting", "shape", "best T", "iterative over bmc", "iterative, pool over bmc", "upfront over bmc", "reserve over bmc"], rows)


def means_of_shapes(grouped: dict) -> str:
    """The geometric mean over shapes of each policy's time over that of the best T; without drafts."""
    text = ""
    for backend in ("padded", "exact"):
        names = ["iterative", "iterative, pool", "upfront", "geometric", "reserve"] + (["paged"] if backend == "exact" else [])
        rows = []
        for key, shapes in sorted((k, s) for k, s in grouped.items() if k[0] == backend and k[5] == 1):
            found = [(cells, best) for cells in shapes.values() if (best := best_bmc(cells)) is not None]
            if len(found) < 2:
                continue
            means = []
            for name in names:
                over = [total(cell) / total(best) for cells, best in found if (cell := of_policy(cells, name))]
                means.append(f"{statistics.geometric_mean(over):.2f}" if over else "")
            ts = [best["allocations"] for _, best in found]
            rows.append([setting_name(key), str(len(found)), str(min(ts)) if min(ts) == max(ts) else f"{min(ts)} to {max(ts)}", *means])
        if rows:
            text += table([f"time over that of the best T, means, {backend}", "shapes", "best T", *names], rows)
    return "## Means of all shapes\n\n" + text if text else ""


def chosen_by_the_rule(grouped: dict) -> str:
    """Padded and without drafts: s and c as the two ends show them, and what follows for all that lies between."""
    rows, regrets, errors = [], [], []
    for key, shapes in grouped.items():
        n = key[4]
        if key[0] != "padded" or key[5] != 1:
            continue
        for shape, cells in shapes.items():
            iterative, upfront = of_policy(cells, "iterative"), of_policy(cells, "upfront")
            measured = {t: value for t, value in curve(cells).items() if 1 <= t <= n}
            if iterative is None or upfront is None or len(measured) < 4:
                continue
            s = upfront["seconds"]["attention"] / n**2
            c = (iterative["seconds"]["allocate"] + iterative["seconds"]["copy"]) / (n * (n + 1) / 2)
            wanted = 2 ** round(math.log2(min(n, max(1, math.sqrt(n * s / c)))))
            chosen = min(measured, key=lambda t: abs(math.log2(t / wanted)))
            regret = measured[chosen] / min(measured.values()) - 1
            off = []
            for cell in (cell for cell in cells if cell["policy"] == "bmc"):
                t, took = cell["allocations"], total(cell) - cell["seconds"]["create"]
                predicted = s * n**2 * (1 + 1 / t) / 2 + c * n * (t + 1) / 2 + upfront["seconds"]["update"]
                off.append(abs(predicted / took - 1))
            regrets.append(regret)
            errors += off
            rows.append([setting_name(key), shape, f"{1e9 * s:.1f}", f"{1e9 * c:.1f}", str(chosen), str(min(measured, key=measured.get)),
                         f"{100 * regret:.1f} %", f"{100 * statistics.median(off):.0f} %"])
    if not rows:
        return ""
    return ("## What the rule T* = sqrt(N s / c) chooses\n\ns and c are those of upfront and of iterative; times between are predicted from them.\n\n"
            + table(["setting", "shape", "s, ns", "c, ns", "T*", "best T", "regret", "error of predicted times, median"], rows)
            + f"Regret: median {100 * statistics.median(regrets):.1f} %, worst {100 * max(regrets):.1f} %. "
            + f"Predicted times: median error {100 * statistics.median(errors):.0f} %.\n\n")


def one_of_each_policy(cells: list[dict]) -> list[dict]:
    """All policies, of bmc the best T."""
    best = best_bmc(cells)
    return [c for c in cells if c["policy"] != "bmc" or c is best]


def policy_name(cell: dict) -> str:
    if cell["policy"] == "bmc":
        return f"bmc, T {cell['allocations']}"
    return f"paged, {cell['increment']}" if cell["policy"] == "paged" else cell["policy"]


def breakdown(key: tuple, shape: str, cells: list[dict], out: Path) -> str:
    chosen = one_of_each_policy(cells)
    if len(chosen) < 2:
        return ""
    name = f"breakdown_{file_name(key, shape)}.svg"
    (out / name).write_text(svg.bars(f"{shape}, {setting_name(key)}", "seconds", PARTS,
                                     [svg.Bar(policy_name(c), [c["seconds"][p] for p in PARTS]) for c in chosen]))
    base = next((total(c) for c in chosen if c["policy"] == "iterative"), max(map(total, chosen)))
    rows = []
    for cell in chosen:
        misses = "not counted here" if cell["tlb_misses"] is None else f"{cell['tlb_misses']:.3g}"
        rows.append([policy_name(cell)] + [f"{cell['seconds'][p] / base:.4f}" for p in PARTS] + [f"{total(cell) / base:.4f}",
                    f"{cell['creations']:.0f}", f"{cell['minor_faults']:.3g}", f"{cell['major_faults']:.3g}", misses,
                    "sampled" if cell["sampled"] else "every step"])
    return f"### {shape}, {setting_name(key)}\n\n![where the time goes]({name})\n\n" + table(
        ["policy, fractions of iterative's time", *PARTS, "total", "primitives made", "minor faults", "major faults", "TLB misses", "steps timed"], rows)


def latency(key: tuple, shape: str, cells: list[dict], out: Path) -> str:
    timed = [c for c in one_of_each_policy(cells) if c.get("points")]
    if not timed:
        return ""
    name = f"latency_{file_name(key, shape)}.svg"
    lines = [svg.Line(policy_name(c), [(p[0], p[1] / 1000) for p in c["points"]], dots=False) for c in timed]
    (out / name).write_text(svg.lines(f"{shape}, {setting_name(key)}", "token", "milliseconds", lines))
    rows = [[policy_name(c)] + [f"{c['latency_us'][p] / 1000:.3f}" for p in ("p50", "p99", "max", "between_p50", "growth_p50")] for c in timed]
    return f"### {shape}, {setting_name(key)}\n\n![latency of a token]({name})\n\n" + table(
        ["policy, milliseconds", "p50", "p99", "max", "p50 between growths", "p50 at a growth"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journal", nargs="+")
    parser.add_argument("--out", type=Path, required=True, help="folder, made where it is not there")
    parser.add_argument("--details", default="", metavar="REGEX")
    arguments = parser.parse_args()
    machines, cells = read(arguments.journal)
    if not cells:
        sys.exit(f"read {' '.join(arguments.journal)}: expected cells, found none: run bmc_attention_block --journal first")
    arguments.out.mkdir(parents=True, exist_ok=True)
    # The time of single tokens is measured by runs of its own.
    grouped, timed = by_setting([c for c in cells if "points" not in c]), by_setting([c for c in cells if "points" in c])
    text = "# The attention block of one layer under each growth policy\n\n"
    text += "".join(f"Machine: {', '.join(f'{k} {v}' for k, v in machine.items())}\n\n" for machine in machines)
    text += "## The best T beside the others\n\n" + ratios(grouped) + means_of_shapes(grouped) + chosen_by_the_rule(grouped)
    text += best_by_tokens(grouped, arguments.out)
    detailed = {key: shapes for key, shapes in grouped.items() if re.search(arguments.details, setting_name(key))}
    text += "## Time of a generation by the number of allocations\n\n"
    for key, shapes in detailed.items():
        text += total_by_t(key, shapes, arguments.out)
    text += "## Where the time goes\n\n"
    for key, shapes in detailed.items():
        for shape, members in shapes.items():
            text += breakdown(key, shape, members, arguments.out)
    parts = [latency(key, shape, members, arguments.out) for key, shapes in timed.items() for shape, members in shapes.items()]
    if any(parts):
        text += "## Latency of single tokens\n\n" + "".join(parts)
    refused = [c for c in cells if "refused" in c]
    if refused:
        text += "## Not measured\n\n" + table(["cell", "why"], [[c["key"], c["refused"]] for c in refused])
    (arguments.out / "tables.md").write_text(text)


if __name__ == "__main__":
    main()
