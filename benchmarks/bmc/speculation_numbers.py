"""Rates, intervals, regret and the formula of speculation, from samples: no files, no clock.

A sample is an answer under a setting: `tokens` behind the first one, made in `seconds`, with `drafted` guesses of which `accepted` were right,
`widths` (steps by their guesses) and `acceptance` (the share of steps in which the first, the first two, ... were right). `Samples` is
one setting's, by prompt.

    rate          sum of tokens / sum of seconds: of all answers as one text, so that no short answer counts for more than it is
    ratio         of two rates over the same prompts; its interval by drawing the prompts anew, with both answers of each
    regret        1 - (rate of the adapting width) / (rate of the best fixed one, none among them); median and worst are of single prompts
    formula       of a step with g guesses, in plain steps: E(g) = (1 - a^(g+1)) / (1 - a) tokens for a price of g c + v
"""

import random
import statistics

Samples = dict[str, dict]
RESAMPLES = 2000


def rate(samples: list[dict]) -> float:
    seconds = sum(s["seconds"] for s in samples)
    return sum(s["tokens"] for s in samples) / seconds if seconds > 0 else 0.0


def without_reading(samples: Samples) -> Samples:
    """Less the time in which the draft model read the prompt and made its first guesses (`reading_s`)."""
    return {prompt: sample | {"seconds": sample["seconds"] - sample.get("reading_s", 0)} for prompt, sample in samples.items()}


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


def steps_with_guesses(sample: dict) -> int:
    return sample.get("with_guesses") or sum(n for width, n in sample.get("widths", {}).items() if width != "0")


def drafting(samples: list[dict]) -> dict:
    """accepted: right guesses of a step that had some. step: tokens of a step. with_guesses: steps that had some, of all."""
    guessing, accepted = sum(map(steps_with_guesses, samples)), sum(s["accepted"] for s in samples)
    tokens, drafted = sum(s["tokens"] for s in samples), sum(s["drafted"] for s in samples)
    steps = tokens - accepted
    return {"accepted": accepted / guessing if guessing else 0.0, "right": accepted / drafted if drafted else 0.0,
            "step": tokens / steps if steps > 0 else 0.0, "with_guesses": min(1.0, guessing / steps) if steps > 0 else 0.0}


def acceptance(samples: list[dict]) -> float | None:
    """a: how often a guess is right where those before it were, over the first to the eighth position of all these chains."""
    reached = right = 0.0
    for sample in samples:
        checked = [sum(n for width, n in sample["widths"].items() if int(width.rstrip("+")) > i) for i in range(8)]
        so_far = 1.0  # share of steps in which all guesses before this one were right
        for share, steps in zip(sample["acceptance"], checked):
            reached += so_far * steps
            right += share * steps
            so_far = share
    return min(1.0, right / reached) if reached else None


def step_price(samples: Samples, plain: Samples, least_steps: int = 30) -> float | None:
    """What a step with guesses costs, in plain steps of the same prompt; None where there were too few of them.

    The other steps of these answers are taken to cost what plain ones do.
    """
    extra = worth = steps = 0.0
    for prompt in shared(samples, plain):
        sample, one = samples[prompt], plain[prompt]["seconds"] / plain[prompt]["tokens"]
        guessing = steps_with_guesses(sample)
        others = max(0, sample["tokens"] - sample["accepted"] - guessing)
        extra += sample["seconds"] - others * one
        worth += guessing * one
        steps += guessing
    return extra / worth if steps >= least_steps and extra > 0 else None


def guess_price(prices: dict[int, float], checking: dict[int, float], at_once: bool) -> float | None:
    """c by least squares from what steps cost (prices) and what checking alone costs (v), by width; where all guesses are made
    at once, c is the price of that."""
    pairs = [(1 if at_once else g, prices[g] - checking[g]) for g in prices if g in checking]
    return max(0.0, sum(g * d for g, d in pairs) / sum(g * g for g, _ in pairs)) if pairs else None


def expected_tokens(a: float, g: int) -> float:
    return g + 1.0 if a >= 1 else (1 - a ** (g + 1)) / (1 - a)


def formula(a: float, g: int, c: float, v: float, with_guesses: float = 1.0, at_once: bool = False) -> float:
    """Speed over plain. Steps without guesses, which lookup has, cost one plain step and make one token."""
    price = (c if at_once else g * c) + v
    none = 1 - with_guesses
    return (none + with_guesses * expected_tokens(a, g)) / (none + with_guesses * price)
