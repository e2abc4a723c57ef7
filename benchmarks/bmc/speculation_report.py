"""The section of Markdown and the figures of a journal of speculation.py."""

from pathlib import Path

import speculation_numbers as numbers
import svg
from plot import table
from speculation_settings import POLICIES, Setting

NOTES = """Tokens/s are pooled: all tokens after the first of each answer, over all their seconds, with draft prefill. Ratios are over plain
decoding of the same prompts in the same hours, with 95 % bootstrap intervals over prompts. Every answer of ours equals plain decoding's, id by id.
If draft prefill cannot pay, an adaptive draft model is not used: it then has fewer steps with drafts, or none.
`accepted`: accepted draft tokens of a step that had some. `step`: tokens of a step, of all steps.

The formula: a step with g draft tokens makes E(g) = (1 - a^(g+1)) / (1 - a) tokens for the price of g c + v plain steps.
a: acceptance rate of a draft token whose predecessors were accepted, over all g. v: the price of verifying g draft tokens, from lookup in all sets.
c: the price of a draft token; if all are made at once, c is the price of that and replaces g c. Steps that draft nothing count as plain ones.

"""
PEERS = {
    "peer": """prompt lookup of llama-cpp-python

Its loop samples and looks up in Python; llama.cpp's own, in C++, is another. Texts may differ after a while.""",
    "llama": """llama.cpp's own speculation

llama-speculative-simple, by its own clock: with the step of the prompt's last token, which ours excludes, and without draft prefill,
which ours includes. Its last steps draft past the token limit. Texts may differ here, too, and are compared as far as both go.
`w`: --spec-draft-n-max."""}


class Set:
    """One set of prompts: the runs of every setting, and what is derived from them."""

    def __init__(self, name: str, samples: dict[str, numbers.Samples], checking: dict[int, float], at_once: set[str]):
        self.name, self.checking, self.at_once = name, checking, at_once
        self.samples = {setting: {p: s for p, s in runs.items() if "error" not in s} for setting, runs in samples.items()}
        self.plain = self.samples["plain"]

    def of(self, setting: str) -> numbers.Samples:
        return self.samples.get(setting, {})

    def ratio_text(self, ours: numbers.Samples, base: numbers.Samples) -> str:
        return ratio_text(numbers.ratio(ours, base))


def ratio_text(found: dict | None) -> str:
    return f"**{found['ratio']:.2f}** [{found['low']:.2f}, {found['high']:.2f}]" if found else "-"


def optional(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def rates(of: Set, settings: list[Setting]) -> str:
    rows = []
    for setting in settings:
        runs = of.of(setting.name)
        if setting.width is not None or setting.kind not in ("chain", "tree") or not runs:
            continue
        found = numbers.drafting(list(runs.values()))
        drafts = [f"{found['accepted']:.2f}", f"{found['step']:.2f}", f"{100 * found['acceptance_rate']:.0f} %",
                  f"{100 * found['with_drafts']:.0f} %"] if setting.drafter else [""] * 4
        rows.append([setting.name, f"{numbers.rate(list(runs.values())):.1f}",
                     of.ratio_text(runs, of.plain) if setting.drafter else "", *drafts, str(len(numbers.shared(runs, of.plain)))])
    return table(["setting", "tokens/s", "over plain [95 %]", "accepted", "step", "acceptance rate", "steps with drafts", "prompts"], rows)


def fixed_widths(of: Set, drafter: str, settings: list[Setting]) -> dict[int, numbers.Samples]:
    return {s.width: of.of(s.name) for s in settings if s.drafter == drafter and s.width is not None and of.of(s.name)}


def prices(by_width: dict[int, numbers.Samples], plain: numbers.Samples) -> dict[int, float]:
    found = {g: numbers.step_price(runs, plain) for g, runs in by_width.items()}
    return {g: price for g, price in found.items() if price is not None}


def draft_token_cost(of: Set, drafter: str, by_width: dict[int, numbers.Samples]) -> tuple[float | None, str]:
    """c, and where it is from."""
    alone = of.of(f"{drafter} alone")
    if drafter == "ngram":
        return 0.0, "taken as nothing; v is from these runs, so that only E(g) is tested"
    prompts = numbers.shared(alone, of.plain)
    if prompts:
        own = numbers.rate([alone[p] for p in prompts])
        return numbers.rate([of.plain[p] for p in prompts]) / own if own > 0 else None, "from the model's own answers to the same prompts"
    return numbers.draft_token_price(prices(by_width, of.plain), of.checking, drafter in of.at_once), "from the steps' times less v"


def sweep(of: Set, drafter: str, settings: list[Setting]) -> tuple[str, list[svg.Line]]:
    """The table of a drafter by number of draft tokens, and its lines: measured, by the formula, adaptive."""
    by_width = fixed_widths(of, drafter, settings)
    if not by_width:
        return "", []
    every = [s for runs in by_width.values() for s in runs.values()]
    a, (c, source), at_once = numbers.acceptance(every), draft_token_cost(of, drafter, by_width), drafter in of.at_once
    rows, measured, predicted = [], [], []
    for g, runs in sorted(by_width.items()):
        found, v = numbers.drafting(list(runs.values())), of.checking.get(g)
        ratio = numbers.ratio(runs, of.plain)
        said = None if None in (a, c, v) else numbers.formula(a, g, c, v, found["with_drafts"], at_once)
        rows.append([str(g), ratio_text(ratio), f"{found['accepted']:.2f}", optional(None if a is None else numbers.expected_tokens(a, g) - 1),
                     f"{100 * found['with_drafts']:.0f} %", optional(v), optional(said)])
        measured += [(g, ratio["ratio"])] if ratio else []
        predicted += [(g, said)] if said is not None else []
    text = f"#### {of.name}: {drafter}, by number of draft tokens\n\n"
    text += f"a = {optional(a, 3)}, c = {optional(c, 3)} ({source}).\n\n"
    text += table(["g", "over plain [95 %]", "accepted", "E(g) - 1", "steps with drafts", "v", "over plain by the formula"], rows)
    lines = [svg.Line(drafter, measured, marked=max(measured, key=lambda p: p[1]))] if measured else []
    lines += [svg.Line(f"{drafter}, formula", predicted, dots=False)] if predicted and drafter != "ngram" else []
    adapting = numbers.ratio(of.of(drafter), of.plain)
    if adapting and measured:
        lines.append(svg.Line(f"{drafter}, adaptive", [(measured[0][0], adapting["ratio"]), (measured[-1][0], adapting["ratio"])], dots=False))
    return text, lines


def regrets(of: Set, settings: list[Setting]) -> str:
    rows = []
    for setting in settings:
        if setting.kind != "chain" or not setting.drafter or setting.width is not None:
            continue
        by_width = fixed_widths(of, setting.drafter, settings)
        if " to " not in setting.name:  # it may not go further than 8
            by_width = {g: runs for g, runs in by_width.items() if g <= 8}
        if found := numbers.regret(of.of(setting.name), {0: of.plain} | by_width):
            rows.append([setting.name, f"{100 * found['regret']:.1f} % [{100 * found['low']:.1f}, {100 * found['high']:.1f}]",
                         f"{found['best']} of 0 to {max(by_width)}", f"{100 * found['of_each']:.1f} %", f"{100 * found['median']:.1f} %, {100 * found['worst']:.1f} %",
                         str(found["prompts"])])
    if not rows:
        return ""
    return f"#### {of.name}: regret of the adaptive number of draft tokens\n\n" + table(
        ["setting", "slower than the best fixed number [95 %]", "which is", "slower than each prompt's own best", "median, worst prompt", "prompts"], rows)


def policies(of: Set, settings: list[Setting]) -> str:
    rows, spare = [], next(iter(POLICIES))
    for setting in [s for s in settings if s.kind == "policy"]:
        runs, (base, _, policy) = of.of(setting.name), setting.name.rpartition(" ")
        if found := numbers.ratio(of.of(f"{base} {spare}"), runs):
            per = [sum(s.get(field, 0) for s in runs.values()) / len(runs) for field in ("growths", "bytes_copied", "cut")]
            behind = numbers.ratio(*map(numbers.without_draft_prefill, (of.of(f"{base} {spare}"), runs)))
            has_draft_prefill = policy != spare and any(s.get("draft_prefill_s") for s in runs.values())
            rows.append([base, policy, f"{numbers.rate(list(runs.values())):.1f}", "" if policy == spare else ratio_text(found),
                         ratio_text(behind) if has_draft_prefill else "",
                         f"{per[0]:.1f}", f"{per[1] / 2**20:.1f}", f"{per[2]:.1f}", str(found["prompts"])])
    if not rows:
        return ""
    return (f"#### {of.name}: unused capacity beside copying caches\n\n`iterative` grows and copies at each step, as a concatenation does; "
            f"`upfront` has all rows from the start. The ratio is of `{spare}`, whose unused rows take draft tokens ({' '.join(POLICIES[spare])}), "
            "over the other. Growths are of an answer, in all layers.\n\n"
            + table(["drafter", "policy", "tokens/s", f"{spare} over it [95 %]", "without draft prefill", "growths", "MiB copied",
                     "draft tokens cut", "prompts"], rows))


def same_answer(one: dict, other: dict) -> bool:
    """Of two texts, the shorter is all of it: llama.cpp's program may end a few tokens later."""
    if "ids" in one:
        return one["ids"] == other["ids"]
    return one["text"].startswith(other["text"]) or other["text"].startswith(one["text"])


def best_width(of: Set, drafter: str, settings: list[Setting], theirs: numbers.Samples) -> str:
    by_width = fixed_widths(of, drafter, settings)
    if not by_width:
        return ""
    best = max(by_width, key=lambda g: numbers.rate(list(by_width[g].values())))
    return f"{ratio_text(numbers.ratio(by_width[best], theirs))} w{best}"


def peers(of: Set, kind: str, settings: list[Setting]) -> str:
    chosen = [s for s in settings if s.kind == kind and of.of(s.name)]
    base = next((of.of(s.name) for s in chosen if s.beside == "plain"), {})
    rows = []
    for setting in chosen:
        runs, is_base = of.of(setting.name), setting.beside == "plain"
        found, prompts = numbers.drafting(list(runs.values())), numbers.shared(runs, base)
        same = sum(same_answer(runs[p], base[p]) for p in prompts)
        rows.append([setting.name, f"{numbers.rate(list(runs.values())):.1f}", "" if is_base else ratio_text(numbers.ratio(runs, base)),
                     *([""] * 3 if is_base else [f"{found['accepted']:.2f}", f"{found['step']:.2f}", f"{100 * found['with_drafts']:.0f} %"]),
                     f"{same} of {len(prompts)}", ratio_text(numbers.ratio(of.of(setting.beside), runs)),
                     best_width(of, setting.beside, settings, runs)])
    if not rows:
        return ""
    return f"#### {of.name}: {PEERS[kind]}\n\n" + table(
        ["setting", "tokens/s", "over its plain [95 %]", "accepted", "step", "steps with drafts", "text as its plain",
         "ours over it [95 %]: plain, or adaptive", "ours at its best number"], rows)


def failures(samples: dict[str, dict[str, numbers.Samples]]) -> str:
    found: dict[tuple[str, str], list[str]] = {}
    for runs_of in samples.values():
        for setting, runs in runs_of.items():
            for prompt, run in runs.items():
                if "error" in run:
                    found.setdefault((setting, run["error"]), []).append(prompt)
    if not found:
        return ""
    return "### Not measured\n\n" + table(["setting", "prompts", "why"], [
        [setting, prompts[0] if len(prompts) == 1 else f"{len(prompts)}, from {prompts[0]} on", why.replace("|", "\\|").replace("\n", " ")]
        for (setting, why), prompts in found.items()])


def figures(of: Set, settings: list[Setting], lines: list[svg.Line], about: dict, out: Path) -> str:
    text, stem = "", f"{Path(about['model']).stem}_{of.name}"
    if any(len(line.points) > 1 for line in lines):
        name = f"speculation_widths_{stem}.svg"
        (out / name).write_text(svg.lines(f"{about['model']}, {of.name}", "draft tokens of a step", "speed over plain", lines))
        text += f"![speed by number of draft tokens]({name})\n\n"
    chosen = [s for s in settings if s.width is None and s.kind in ("chain", "tree") or s.kind in PEERS]
    bars = [svg.Bar(s.name, [numbers.rate(list(of.of(s.name).values()))]) for s in chosen if of.of(s.name)]
    if len(bars) > 1:
        name = f"speculation_rates_{stem}.svg"
        (out / name).write_text(svg.bars(f"{about['model']}, {of.name}", "tokens/s", ["pooled"], bars))
        text += f"![tokens/s]({name})\n\n"
    return text


def check_prices(samples: dict[str, dict[str, numbers.Samples]], settings: list[Setting]) -> dict[int, float]:
    """v by number of draft tokens, from lookup in all sets: a row's cost does not depend on its content."""
    together: dict[str, numbers.Samples] = {}
    for runs_of in samples.values():
        for setting, runs in runs_of.items():
            together.setdefault(setting, {}).update({p: s for p, s in runs.items() if "error" not in s})
    return prices({s.width: together[s.name] for s in settings if s.drafter == "ngram" and s.width is not None}, together["plain"])


def markdown(about: dict, settings: list[Setting], samples: dict[str, dict[str, numbers.Samples]], out: Path) -> str:
    text = f"## Speculation, {about['model']}\n\n"
    text += "".join(f"Machine: {', '.join(f'{k} {v}' for k, v in machine.items())}.\n\n" for machine in about["machines"])
    text += f"{about['threads']} thread{'s' * (about['threads'] > 1)}, greedy, at most {about['tokens']} tokens.\n\n" + NOTES
    checking = check_prices(samples, settings)
    for name, runs_of in samples.items():
        of = Set(name, runs_of, checking, about["at_once"])
        if not of.plain:
            continue
        swept = [sweep(of, drafter, settings) for drafter in dict.fromkeys(s.drafter for s in settings if s.drafter)]
        lines = [line for _, own in swept for line in own]
        text += f"### {name}, {len(of.plain)} of {about['prompts'][name]} prompts\n\n" + figures(of, settings, lines, about, out)
        text += rates(of, settings) + regrets(of, settings) + "".join(part for part, _ in swept) + policies(of, settings)
        text += "".join(peers(of, kind, settings) for kind in PEERS)
    return text + failures(samples)


def write(out: Path, about: dict, settings: list[Setting], samples: dict[str, dict[str, numbers.Samples]]) -> str:
    out.mkdir(parents=True, exist_ok=True)
    text = markdown(about, settings, samples, out)
    (out / "speculation.md").write_text(text)
    return text
