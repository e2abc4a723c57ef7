#!/usr/bin/env python3
"""Speed of an engine against llama.cpp on the same GGUF file: paired ratios from one run, as a Markdown table.

    compare_peers.py --model M.gguf --peer-python PEERS/bin/python --engine-command "build/tidemill bench --child"
        [--threads 1 2] [--pairs 10] [--prompt-tokens 512] [--gen-tokens 64] [--depth 0] [--batch] [--json FILE]

One pair is one process of the engine and one process of the peer for each of its settings (flash attention on and
off), in random order, one at a time; a process's value for a test is the median of its repeats. A ratio is
engine / peer of one pair, at that setting of the peer which is faster in this run; printed are the median of the ratios
and its 95 % interval (10000 bootstrap resamples of the pairs, percentiles 2.5 and 97.5). Above 1 the engine is faster.

With one thread, the ratio per second of processor time moves less under outside load. `busy` is the median of
processor time that other processes took while the clock ran, in cores: above 0.1 a rate is not worth quoting.

The engine's command reads its settings as one JSON object from stdin and prints the measurement as the last line of
stdout; peer_llama_cpp.py is the peer's. What is timed: prefill, P tokens into an empty cache until the last token's logits
are readable; decode, G steps of one token after D cached ones, logits readable after each. Nothing is sampled; a warm-up precedes.
Exits 1 if a process fails, or if the peer's build leaves some of this CPU's instructions unused (--any-build allows it).
"""

import argparse
import json
import platform
import random
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

PEER_SETTINGS = {"flash attention": {"flash_attn": True}, "no flash attention": {"flash_attn": False}}
DRIVER = Path(__file__).resolve().with_name("peer_llama_cpp.py")


class CompareError(RuntimeError):
    """A measured process failed or printed something else than a measurement."""


def measure(name: str, command: list[str], settings: dict) -> dict:
    done = subprocess.run(command, input=json.dumps(settings), capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise CompareError(f"measure {name}: {shlex.join(command)}: ended with {done.returncode}\n"
                           f"{done.stderr.strip()[-1500:]}")
    try:
        run = json.loads(lines[-1])
        run["values"] = {key_of(test): value_of(test) for test in run["tests"]}
        run["engine"], run["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise CompareError(f"measure {name}: the last line of its output is no measurement ({error!r}): "
                           f"{lines[-1][:200]}") from error
    return run


def key_of(test: dict) -> tuple:
    """What was measured: the same for the engine and the peer."""
    if test["test"] == "prefill":
        return ("prefill", test["prompt_tokens"])
    if test["test"] == "decode":
        return ("decode", test["gen_tokens"], test["depth"])
    return ("batch", test["batch"], test["gen_tokens"])


def label(key: tuple) -> str:
    return {"prefill": "prefill {1}", "decode": "decode {1} at depth {2}", "batch": "decode {2} x batch {1}"}[key[0]].format(*key)


def value_of(test: dict) -> dict:
    value = {k: statistics.median(s[k] for s in test["samples"])
             for k in ("tokens_per_s", "tokens_per_cpu_s", "others_cores")}
    return value | {"peak_rss_mib": test.get("peak_rss_mib", float("nan"))}


def interval(ratios: list[float], rng: random.Random, resamples: int = 10000) -> tuple[float, float]:
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return medians[int(0.025 * resamples)], medians[int(0.975 * resamples) - 1]


def compare(pairs: list[dict[str, dict]], key: tuple, rng: random.Random) -> dict:
    """One row: the engine against the setting of the peer with the highest median rate."""
    def column(name: str, field: str) -> list[float]:
        return [pair[name]["values"][key][field] for pair in pairs]

    best = max(PEER_SETTINGS, key=lambda name: statistics.median(column(name, "tokens_per_s")))
    row = {"test": label(key), "peer_setting": best, "pairs": len(pairs)}
    for field in ("tokens_per_s", "tokens_per_cpu_s"):
        ours, peers = column("engine", field), column(best, field)
        ratios = [a / b for a, b in zip(ours, peers, strict=True)]
        low, high = interval(ratios, rng)
        row[field] = {"engine": statistics.median(ours), "peer": statistics.median(peers),
                      "ratio": statistics.median(ratios), "low": low, "high": high, "ratios": ratios}
    row["busy_cores"] = statistics.median(column("engine", "others_cores") + column(best, "others_cores"))
    row["peak_rss_mib"] = {"engine": max(column("engine", "peak_rss_mib")), "peer": max(column(best, "peak_rss_mib"))}
    return row


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def commit() -> str:
    done = subprocess.run(["git", "-C", str(DRIVER.parent), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def print_table(report: dict) -> None:
    head = report["about"]
    print(f"{head['model']} on {head['cpu']}, commit {head['commit']}: {head['engine']} against {head['peer']}, "
          f"{head['pairs']} pairs x {head['repeats']} repeats, KV f16\n")
    print("| threads | test | engine, tokens/s | llama.cpp, tokens/s | its setting | ratio [95 %] | ratio per CPU second [95 %] "
          "| busy | peak MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in report["rows"]:
        wall, cpu, rss = row["tokens_per_s"], row["tokens_per_cpu_s"], row["peak_rss_mib"]
        print(f"| {row['threads']} | {row['test']} | {wall['engine']:.1f} | {wall['peer']:.1f} | {row['peer_setting']} | "
              f"**{wall['ratio']:.2f}x** [{wall['low']:.2f}, {wall['high']:.2f}] | "
              f"{cpu['ratio']:.2f}x [{cpu['low']:.2f}, {cpu['high']:.2f}] | {row['busy_cores']:.2f} | "
              f"{rss['engine']:.0f} / {rss['peer']:.0f} |")


def parse_arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", type=Path, required=True)
    p.add_argument("--engine-command", required=True, metavar="COMMAND", help='such as "build/tidemill bench --child"')
    p.add_argument("--peer-python", default=sys.executable, metavar="PYTHON",
                   help="interpreter that has llama-cpp-python; default: this one")
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    p.add_argument("--pairs", type=int, default=10)
    p.add_argument("--repeats", type=int, default=3, help="timed repeats in one process")
    p.add_argument("--prompt-tokens", nargs="*", type=int, default=[512])
    p.add_argument("--gen-tokens", type=int, default=64)
    p.add_argument("--depth", nargs="*", type=int, default=[0])
    p.add_argument("--batch", nargs="*", type=int, default=[], help="sequences decoded together")
    p.add_argument("--batch-prompt", nargs=2, type=int, default=[128, 512], metavar=("MIN", "MAX"))
    p.add_argument("--seed", type=int, default=1, help="of token ids, order and resampling")
    p.add_argument("--json", type=Path, metavar="FILE", help="every number, too")
    p.add_argument("--any-build", action="store_true", help="accept a peer that leaves instructions unused")
    args = p.parse_args()
    if min([*args.threads, *args.prompt_tokens, *args.batch, args.pairs, args.repeats, args.gen_tokens]) < 1:
        p.error("counts must be positive")
    if args.pairs < 10:
        print("compare_peers: fewer than 10 pairs: a look, not a claim", file=sys.stderr)
    return args


def main() -> int:
    args, rows, run = parse_arguments(), [], {}
    rng = random.Random(args.seed)
    settings = {"model": str(args.model.resolve(strict=True)), "prompt_tokens": args.prompt_tokens, "depth": args.depth,
                "gen_tokens": args.gen_tokens, "batch": args.batch, "batch_prompt": args.batch_prompt,
                "repeats": args.repeats, "seed": args.seed, "text": None, "kv_type": "f16", "n_batch": 2048,
                "ubatch": 512, "verbose": False}
    commands = {"engine": (shlex.split(args.engine_command), {"engine": "tidemill", "flash_attn": True})}
    for name, setting in PEER_SETTINGS.items():
        commands[name] = ([args.peer_python, str(DRIVER), "bench"], {"engine": "llama.cpp"} | setting)
    pairs: dict[int, list[dict]] = {threads: [] for threads in args.threads}
    for index in range(args.pairs):
        for threads in rng.sample(args.threads, len(args.threads)):
            pair = {}
            for name in rng.sample(list(commands), len(commands)):
                command, own = commands[name]
                pair[name] = run[name] = measure(name, command, settings | own | {"threads": threads})
            pairs[threads].append(pair)
        print(f"pair {index + 1} of {args.pairs}", file=sys.stderr, flush=True)
    peer = run[next(iter(PEER_SETTINGS))]
    for threads in args.threads:
        for key in peer["values"]:
            if key not in run["engine"]["values"]:
                raise CompareError(f"the engine did not report '{label(key)}'")
            rows.append({"threads": threads} | compare(pairs[threads], key, rng))
    report = {"about": {"model": args.model.name, "cpu": cpu_name(), "commit": commit(), "pairs": args.pairs,
                        "repeats": args.repeats, "engine": f"{run['engine']['engine']} {run['engine']['version']}",
                        "peer": f"{peer['engine']} ({peer['version']})", "peer_isa": peer["isa"]}, "rows": rows}
    print_table(report)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    if peer["isa"]["unused"] and not args.any_build:
        print(f"compare_peers: the peer's build leaves {' '.join(peer['isa']['unused'])} unused: compile it for this CPU",
              file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (CompareError, OSError) as error:
        print(f"compare_peers: {error}", file=sys.stderr)
        sys.exit(1)
