"""Ratios, intervals and geometric means of finished rows, and the Markdown section that shows them."""

import functools
import math
import random
import statistics
from pathlib import Path

OURS = "Tidemill"
# Of a row in a journal.
MEMBERS = {"row": dict, "settings": dict, "left_out": dict, "wrong": list, "pairs": list, "peak_rss_mib": dict, "idle_cores": (int, float),
           "beyond_trained_context": bool, "versions": dict, "unused": dict, "commit": str, "date": str}
KINDS = {"prefill": ["tokens"], "decode": ["depth"], "batch": ["batch", "depth"]}


def label(row: dict) -> str:
    return {"prefill": "prefill {tokens}", "decode": "decode at depth {depth}",
            "batch": "decode batch {batch} at {depth}"}[row["kind"]].format(**row)


def where(row: dict) -> str:
    return f"{row['model']}, {row['threads']} thread{'s' * (row['threads'] > 1)}, {label(row)}"


def group(row: dict) -> str:
    return {"prefill": "prefill", "decode": "decode at depth {depth}", "batch": "batched decode"}[row["kind"]].format(**row)


def is_whole(record: object, peers: list[str]) -> bool:
    """Whether it is a row as compare_peers.py writes it, with rates that can be divided."""
    def is_count(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def are_texts(value: object) -> bool:
        return isinstance(value, list) and all(isinstance(text, str) for text in value)

    def is_rate(value: object) -> bool:
        return isinstance(value, (int, float)) and 1e-9 < value < 1e9

    def is_busy(value: object) -> bool:
        return isinstance(value, (int, float)) and 0 <= value < 1e9

    if not isinstance(record, dict) or "plan" not in record or not all(isinstance(record.get(member), kind) for member, kind in MEMBERS.items()):
        return False
    row, pairs, unused, versions = (record[member] for member in ("row", "pairs", "unused", "versions"))
    if not isinstance(row.get("model"), str) or row.get("kind") not in list(KINDS):
        return False
    if not all(is_count(row.get(member)) for member in ["threads", *KINDS[row["kind"]]]) or not are_texts(record["wrong"]):
        return False
    if not versions.keys() >= set(peers) or not all(are_texts(texts) for texts in unused.values()) or not unused.keys() >= {OURS, *peers}:
        return False
    return all(
        isinstance(pair, dict) and pair.keys() == pairs[0].keys() and OURS in pair
        and all(isinstance(rates, dict) and is_rate(rates.get("tokens_per_s")) and is_busy(rates.get("others_cores"))
                and is_busy(rates.get("tokens_per_cpu_s")) for rates in pair.values())
        for pair in pairs)


@functools.cache
def interval(ratios: tuple[float, ...], resamples: int = 10000) -> tuple[float, float]:
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return medians[int(0.025 * resamples)], medians[int(0.975 * resamples) - 1]


def pair_ratios(record: dict, peer: str, field: str = "tokens_per_s") -> list[float]:
    """Our rate over the peer's, pair by pair; none where one of them has no right answer, or took no time that could be counted."""
    pairs = record["pairs"]
    if not pairs or peer not in pairs[0] or {OURS, peer} & set(record["wrong"]):
        return []
    if not all(pair[name][field] for pair in pairs for name in (OURS, peer)):
        return []
    return [pair[OURS][field] / pair[peer][field] for pair in pairs]


def compare(record: dict, peer: str, field: str) -> dict | None:
    if not (found := pair_ratios(record, peer, field)):
        return None
    low, high = interval(tuple(found))
    return {"ratio": statistics.median(found), "low": low, "high": high}


def rate(record: dict, engine: str) -> str:
    values = [pair[engine]["tokens_per_s"] for pair in record["pairs"] if engine in pair]
    if not values:
        return "-"
    text = f"{statistics.median(values):.1f}"
    return f"{text} WRONG" if engine in record["wrong"] else text


def geomean(values: list[float]) -> float:
    return math.exp(statistics.mean(map(math.log, values)))


def ratio_text(found: dict | None) -> str:
    return f"**{found['ratio']:.2f}** [{found['low']:.2f}, {found['high']:.2f}]" if found else "-"


def read_shares(record: dict) -> list[float]:
    """Of the rate at which a plain loop read right after each of our measurements; none in rows without that."""
    return [pair[OURS]["read_share"] for pair in record["pairs"] if "read_share" in pair.get(OURS, {})]


def with_ratios(records: list[dict], peers: list[str]) -> list[dict]:
    return [record | {"wall": {p: compare(record, p, "tokens_per_s") for p in peers},
                      "cpu": {p: compare(record, p, "tokens_per_cpu_s") for p in peers}} for record in records]


def summary(records: list[dict], peers: list[str]) -> list[str]:
    lines = ["| group | " + " | ".join(f"{p}, ratio | {p}, per CPU second" for p in peers) + " |",
             "| --- |" + " --- | --- |" * len(peers)]
    for name in dict.fromkeys(group(r["row"]) for r in records):
        cells = [name]
        for peer in peers:
            for field in ("wall", "cpu"):
                values = [r[field][peer]["ratio"] for r in records if group(r["row"]) == name and r[field][peer]]
                cells.append(f"{geomean(values):.2f}x ({len(values)} row{'s' * (len(values) > 1)})" if values else "-")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def at_reading_alone(records: list[dict], peers: list[str]) -> list[str]:
    """What the means of decode would be of an engine that reads each step's bytes once, as fast as the plain loop."""
    lines = []
    for name in dict.fromkeys(group(r["row"]) for r in records if read_shares(r)):
        rows = [r for r in records if group(r["row"]) == name and read_shares(r)]
        bounds = [f"{geomean(values):.2f}x {peer}" for peer in peers
                  if (values := [r["wall"][peer]["ratio"] / statistics.median(read_shares(r)) for r in rows if r["wall"][peer]])]
        shares = [statistics.median(read_shares(r)) for r in rows]
        above = sum(share > 1 for share in shares)
        lines.append(f"- {name}, {len(rows)} row{'s' * (len(rows) > 1)}: at {geomean(shares):.0%} of the loop's rate on average; at all of "
                     f"it {', '.join(bounds) or '-'}" + f"; above all of it: {above}" * (above > 0))
    return ["", "Decode beside a plain loop that reads as many bytes, right after each measurement of ours (`of reading`: our share of its rate):", "", *lines] if lines else []


def one_by_one_rates(records: list[dict], peer: str) -> dict[tuple, dict[int, float]]:
    """(model, threads) -> depth -> tokens/s of the peer's single request."""
    rates: dict[tuple, dict[int, float]] = {}
    for r in (r for r in records if r["row"]["kind"] == "decode" and r["wall"][peer]):
        by_depth = rates.setdefault((r["row"]["model"], r["row"]["threads"]), {})
        by_depth[r["row"]["depth"]] = statistics.median(pair[peer]["tokens_per_s"] for pair in r["pairs"])
    return rates


def ratio_to_the_faster(record: dict, peer: str, alone: dict[tuple, dict[int, float]]) -> float:
    """The ratio of a row; of a batch, if the peer serves its requests one by one where that is faster. `alone`: one_by_one_rates."""
    row, ratio = record["row"], record["wall"][peer]["ratio"]
    # At a smaller depth than measured a single request is at most as fast as at depth 0.
    rates = alone.get((row["model"], row["threads"]), {}) if row["kind"] == "batch" else {}
    single = rates.get(row.get("depth"), rates.get(0, 0.0))
    batched = statistics.median(pair[peer]["tokens_per_s"] for pair in record["pairs"])
    return ratio * min(1, batched / single) if single else ratio


def one_after_another(records: list[dict], peers: list[str]) -> list[str]:
    """The mean of batched decode if a peer served its requests one by one where that is faster."""
    lines = []
    for peer in peers:
        alone = one_by_one_rates(records, peer)
        rows = [r for r in records if r["row"]["kind"] == "batch" and r["wall"][peer]]
        ratios = [ratio_to_the_faster(r, peer, alone) for r in rows]
        faster = sum(ratio < r["wall"][peer]["ratio"] for ratio, r in zip(ratios, rows))
        if faster:
            lines.append(f"- {peer}: {geomean(ratios):.2f}x, one by one being faster in {faster} of {len(ratios)} rows")
    return ["", "Batched decode beside the faster of a peer's batch and the same requests one by one:", "", *lines] if lines else []


def busy(record: dict) -> float:
    """Cores that other programs took while a row was measured: the median over its engines and pairs."""
    return statistics.median(value["others_cores"] for pair in record["pairs"] for value in pair.values())


def table(records: list[dict], peers: list[str]) -> list[str]:
    head = ["threads", "test", f"{OURS}, tokens/s", "of reading"]
    for peer in peers:
        head += [f"{peer}, tokens/s", "its setting", "ratio [95 %]", "per CPU second [95 %]"]
    head += ["pairs", "busy", "peak MiB"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for r in records:
        mark = "*" if r["beyond_trained_context"] else ""
        cells = [str(r["row"]["threads"]), label(r["row"]) + mark, rate(r, OURS),
                 f"{statistics.median(shares):.0%}" if (shares := read_shares(r)) else "-"]
        for p in peers:
            cells += [rate(r, p), r["settings"].get(p, "-"), ratio_text(r["wall"][p]), ratio_text(r["cpu"][p])]
        rss = [f"{r['peak_rss_mib'][e]:.0f}" if e in r["peak_rss_mib"] else "-" for e in [OURS, *peers]]
        cells += [str(len(r["pairs"])), f"{busy(r):.2f}" if r["pairs"] else "-", " / ".join(rss)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def losses(records: list[dict], peers: list[str]) -> list[str]:
    lines = []
    for r in records:
        for p in peers:
            found = r["wall"][p]
            if found and found["ratio"] < 1:
                unsure = "" if found["high"] < 1 else ", the interval holds 1"
                lines.append(f"- {where(r['row'])}: {found['ratio']:.2f}x {p} ({r['settings'][p]}){unsure}")
    return lines or ["- none"]


def notes(records: list[dict]) -> list[str]:
    lines = []
    for r in records:
        name = where(r["row"])
        if r.get("skipped"):
            lines.append(f"- {name}: not run: {r['skipped']}")
        lines += [f"- {name}: {engine}: {why}" for engine, whys in r["left_out"].items() for why in whys]
        if r["idle_cores"] > 0.02:
            lines.append(f"- {name}: processes that waited took {r['idle_cores']:.2f} cores")
    return lines


def not_yet(missing: list[dict]) -> list[str]:
    lines = []
    for model in dict.fromkeys(row["model"] for row in missing):
        tests = [f"{label(row)} ({row['threads']})" for row in missing if row["model"] == model]
        lines.append(f"- {model}, threads in parentheses: {', '.join(tests)}")
    return lines


def markdown(about: dict, records: list[dict], peers: list[str], missing: list[dict]) -> str:
    records = with_ratios(records, peers)
    lines = [f"## Speed beside {' and '.join(peers)}", "",
             f"{about['cpu']}, {about['cores']} cores, {about['memory_gib']:.0f} GiB, {about['system']}. "
             f"Compiler: {about['compiler']}. Commit {about['commit']}, {about['date']}.", ""]
    lines += [f"- {engine}: {version}" for engine, version in about["versions"].items()]
    lines += ["", "```", *about["commands"], "```", "",
              "Ratios are ours / theirs, above 1 we are faster: the median over interleaved pairs, with its 95 % bootstrap interval.",
              "Each peer runs at its best setting of that row or, at a greater depth, at the one that was best at a depth of at least 512",
              "or, where that fails, of the others (FA: flash attention, rtr: weights repacked while loading). WRONG: logits differ from token by token by a relative",
              "RMS above 0.5; no ratio. `busy`: cores that other programs took meanwhile; above 0.1 read the ratio per CPU second, with one",
              "thread. KV f16. *: longer than the model was trained for. `peak MiB`, in the order of the columns: of a peer with the contexts of",
              "its other settings, made for the deepest test, and of ik_llama.cpp with both copies of its weights.", "",
              "Geometric means of the ratios:", ""]
    lines += summary(records, peers) + one_after_another(records, peers) + at_reading_alone(records, peers)
    for model in dict.fromkeys(r["row"]["model"] for r in records):
        lines += ["", f"### {model}", "", *table([r for r in records if r["row"]["model"] == model and not r.get("skipped")], peers)]
    lines += ["", "### Rows where we lose", "", *losses(records, peers)]
    if missing:
        lines += ["", f"### Not measured yet, {len(missing)} of {len(missing) + len(records)} rows", "", *not_yet(missing)]
    if found := notes(records):
        lines += ["", "### Left out", "", *found]
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    path = path.resolve()  # a link stays one
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)
