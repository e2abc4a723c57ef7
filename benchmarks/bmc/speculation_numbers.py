"""Rates, intervals, regret and the formula of speculation, from samples: no files, no clock.

A sample is an answer under a setting: `tokens` after the first one, made in `seconds`; `drafted` and `accepted` draft tokens;
`steps_by_draft_tokens`; `acceptance_rate`, of the first draft token, the first two, ... of a step. `Samples` are one setting's, by prompt.

    rate          sum of tokens / sum of seconds: of all answers as one text, so that no short answer counts for more than it is
    ratio         of two rates over the same prompts; its interval by drawing the prompts anew, with both answers of each
    regret        1 - (rate with an adaptive number) / (rate of the best fixed one, 0 among them); median and worst are of single prompts
    formula       of a step with g draft tokens, in plain steps: E(g) = (1 - a^(g+1)) / (1 - a) tokens for a price of g c + v
"""

import random
import statistics

Samples = dict[str, dict]
RESAMPLES = 2000


def rate(samples: list[dict]) -> float:
    seconds = sum(s["seconds"] for s in samples)
    return sum(s["tokens"] for s in samples) / seconds if seconds > 0 else 0.0


def without_draft_prefill(samples: Samples) -> Samples:
    """Without the time of draft prefill and of the first draft tokens (`draft_prefill_s`)."""
    return {prompt: sample | {"seconds": sample["seconds"] - sample.get("draft_prefill_s", 0)} for prompt, sample in samples.items()}


def shared(*all_samples: Samples) -> list[str]:
    """Prompts that all of them have, measured at one place, with tokens to be timed: the pairs."""
    first, *_ = all_samples
    return [p for p in first if all(p in s and s[p]["seconds"] > 0 and s[p].get("on") == first[p].get("on") for s in all_samples)]


def draws(count: int, resamples: int = RESAMPLES) -> list[list[int]]:
    """The same for all ratios over so many prompts: the draw says nothing about the settings."""
    source = random.Random(count)
    return [source.choices(range(count), k=count) for _ in range(resamples)]


def interval(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[int(0.025 * len(ordered))], ordered[max(0, int(0.975 * len(ordered)) - 1)]


def ratio(ours: Samples, base: Samples) -> dict | None:
    """{"ratio", "low", "high", "prompts"} of the pooled rates; None without pairs."""
    prompts = shared(ours, base)
    if not prompts:
        return None
    a, b = [ours[p] for p in prompts], [base[p] for p in prompts]
    of_draws = []
    for chosen in draws(len(prompts)):
        drawn = rate([b[i] for i in chosen])
        of_draws.append(rate([a[i] for i in chosen]) / drawn if drawn > 0 else 0.0)
    low, high = interval(of_draws)
    return {"ratio": rate(a) / rate(b), "low": low, "high": high, "prompts": len(prompts)}


def regret(adapting: Samples, fixed: dict[int, Samples]) -> dict | None:
    """Against the best width over all prompts, and against each prompt's own best, which also picks up the noise of its times.

    `fixed`: by width, 0 is plain. The interval lets each draw of prompts have a best width of its own.
    """
    prompts = shared(adapting, *fixed.values())
    if not prompts or len(fixed) < 2:
        return None

    def of(chosen: list[str]) -> tuple[float, int]:
        rates = {g: rate([samples[p] for p in chosen]) for g, samples in fixed.items()}
        best = max(rates, key=rates.get)
        return 1 - rate([adapting[p] for p in chosen]) / rates[best], best

    value, best = of(prompts)
    low, high = interval([of([prompts[i] for i in chosen])[0] for chosen in draws(len(prompts), RESAMPLES // 4)])
    fastest = [max((samples[p] for samples in fixed.values()), key=lambda s: s["tokens"] / s["seconds"]) for p in prompts]
    behind = [1 - rate([adapting[p]]) / rate([s]) for p, s in zip(prompts, fastest)]
    return {"regret": value, "low": low, "high": high, "best": best, "prompts": len(prompts),
            "of_each": 1 - rate([adapting[p] for p in prompts]) / rate(fastest), "median": statistics.median(behind), "worst": max(behind)}


def steps_with_drafts(sample: dict) -> int:
    return sample.get("with_drafts") or sum(n for width, n in sample.get("steps_by_draft_tokens", {}).items() if width != "0")


def drafting(samples: list[dict]) -> dict:
    """accepted: accepted draft tokens of a step that had some. step: tokens of a step. with_drafts: steps that had some, of all."""
    drafting_steps, accepted = sum(map(steps_with_drafts, samples)), sum(s["accepted"] for s in samples)
    tokens, drafted = sum(s["tokens"] for s in samples), sum(s["drafted"] for s in samples)
    steps = tokens - accepted
    return {"accepted": accepted / drafting_steps if drafting_steps else 0.0, "acceptance_rate": accepted / drafted if drafted else 0.0,
            "step": tokens / steps if steps > 0 else 0.0, "with_drafts": min(1.0, drafting_steps / steps) if steps > 0 else 0.0}


def acceptance(samples: list[dict]) -> float | None:
    """a: acceptance rate of a draft token whose predecessors were accepted, over the first to the eighth of all these chains."""
    reached = accepted = 0.0
    for sample in samples:
        checked = [sum(n for width, n in sample["steps_by_draft_tokens"].items() if int(width.rstrip("+")) > i) for i in range(8)]
        so_far = 1.0  # share of steps that accepted all draft tokens before this one
        for share, steps in zip(sample["acceptance_rate"], checked):
            reached += so_far * steps
            accepted += share * steps
            so_far = share
    return min(1.0, accepted / reached) if reached else None


def step_price(samples: Samples, plain: Samples, least_steps: int = 30) -> float | None:
    """What a step with draft tokens costs, in plain steps of the same prompt; None where there were too few of them.

    The other steps of these answers are taken to cost what plain ones do.
    """
    extra = worth = steps = 0.0
    for prompt in shared(samples, plain):
        sample, one = samples[prompt], plain[prompt]["seconds"] / plain[prompt]["tokens"]
        drafting_steps = steps_with_drafts(sample)
        others = max(0, sample["tokens"] - sample["accepted"] - drafting_steps)
        extra += sample["seconds"] - others * one
        worth += drafting_steps * one
        steps += drafting_steps
    return extra / worth if steps >= least_steps and extra > 0 else None


def draft_token_price(prices: dict[int, float], checking: dict[int, float], at_once: bool) -> float | None:
    """c by least squares from what steps cost (prices) and what verification alone costs (v), by number of draft tokens; where all are made
    at once, c is the price of that."""
    pairs = [(1 if at_once else g, prices[g] - checking[g]) for g in prices if g in checking]
    return max(0.0, sum(g * d for g, d in pairs) / sum(g * g for g, _ in pairs)) if pairs else None


def expected_tokens(a: float, g: int) -> float:
    return g + 1.0 if a >= 1 else (1 - a ** (g + 1)) / (1 - a)


def formula(a: float, g: int, c: float, v: float, with_drafts: float = 1.0, at_once: bool = False) -> float:
    """Speed over plain. Steps that draft nothing, which lookup has, cost one plain step and make one token."""
    price = (c if at_once else g * c) + v
    none = 1 - with_drafts
    return (none + with_drafts * expected_tokens(a, g)) / (none + with_drafts * price)
