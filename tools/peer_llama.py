#!/usr/bin/env python3
"""llama.cpp or ik_llama.cpp, whichever this interpreter has the package of: speed, logits and token ids of a GGUF file.

    peer_llama.py bench < settings           measurements, as `bench_child` speaks
    peer_llama.py logits --model M.gguf --ids ids.json --out logits.safetensors
    peer_llama.py tokenize --model M.gguf --text FILE [--parse-special]

Needs llama-cpp-python or ik-llama-cpp-python (docs/quality.md says how to compile them for this CPU), numpy and, for
`logits`, safetensors.

`bench` reads settings as one JSON object a line and answers each with one line, until its input ends. The model stays
loaded, repacked and not; the filled caches of the last kind of test stay, with flash attention and without, for the same
test (`repeats` and `threads` may differ) and for decode at a greater depth, up to `deepest`. Caches are filled with
`fill_threads` (all cores), what is timed runs with `threads`. Sequences of one length hold copies of one sequence's keys
and values. `disagreement`: relative RMS of logits that should be equal but for rounding.

`logits` asks for the least rounding the engine offers: an f32 KV cache (f16 in ik_llama.cpp, which has none) and no
flash attention (which rounds keys and values to f16). `--ids` is a JSON list of ids, or a list of such lists; the tensors are `logits` [len, vocab] f32, or
`logits.0`, `logits.1`, ...
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from llama_library import (IS_IK, KV_DTYPES, VERSION, Batch, Context, EngineError, Model, extensions_of, machine_busy_s,
                           proc_value, system_info)


def timed(tokens: int, work) -> dict[str, float]:
    others, own, start = machine_busy_s(), time.process_time(), time.perf_counter()
    work()
    seconds, own = time.perf_counter() - start, time.process_time() - own
    others = machine_busy_s() - others - own
    return {"tokens_per_s": tokens / seconds, "tokens_per_cpu_s": tokens / own, "seconds": seconds,
            "others_cores": max(0.0, others / seconds)}


def reset_peak_resident() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # where the system does not allow it, peaks are those since the start


def logits_row(context: Context, row: int) -> np.ndarray:
    return np.ctypeslib.as_array(context.logits(row), (context.model.vocab_size,)).copy()


def relative_rms(a: np.ndarray, b: np.ndarray) -> float:
    """Of a - b, over the standard deviation of b; infinity if either holds a NaN."""
    error = float(np.sqrt(np.mean((a - b) ** 2)) / np.std(b))
    return error if error == error else float("inf")


def run_once(context: Context, rows: list[tuple[int, int, int, bool]]) -> None:
    batch = Batch(rows)
    context.decode(batch)
    batch.close()


def uses_flash_attn(settings: dict, num_sequences: int) -> bool:
    # ik_llama.cpp 0.1.5 skips keys of other sequences there: wrong logits, or an abort.
    return bool(settings["flash_attn"]) and not (IS_IK and num_sequences > 1)


class Test:
    """One test with its filled context, measured as often as asked."""

    def __init__(self, model: Model, settings: dict, kind: str, prompts: list[int]):
        self.s, self.model, self.kind, self.prompts = settings, model, kind, prompts
        self.source = random.Random(settings["seed"])
        self.gen = settings["gen_tokens"] if kind != "prefill" else 0
        self.room, count = max([*prompts, settings.get("deepest") or 0]) + self.gen, len(prompts)
        self.disagreement = {"prefill": self.check_prefill, "decode": lambda: None, "batch": self.check_batch}[kind]()
        self.context = self.make_context(count * (-(-self.room // 256) * 256), count)
        if kind == "prefill":
            self.calls = self.calls_of(0, self.draw(prompts[0]))
            self.run_prompt(self.calls)
        else:
            self.fill([0] * count)
            self.decode_steps(min(8, self.gen))

    def go_on(self, settings: dict, prompts: list[int]) -> bool:
        """Whether the settings could be served from what is filled; it is filled up then."""
        same = all(settings[k] == self.s[k] for k in ("gen_tokens", "seed", "kv_type", "n_batch", "ubatch"))
        longer = self.kind == "decode" and self.prompts[0] < prompts[0]
        if not same or max(prompts) + self.gen > self.room or not (longer or prompts == self.prompts):
            return False
        filled, self.s, self.prompts, self.context.threads = self.prompts, settings, prompts, settings["threads"]
        if longer:
            self.fill(filled)
        self.context.fill_with(settings["threads"])
        return True

    def draw(self, count: int) -> list[int]:
        return [self.source.randrange(self.model.vocab_size) for _ in range(count)]

    def make_context(self, num_positions: int, num_sequences: int, **more) -> Context:
        s = self.s
        return Context(self.model, num_positions, threads=s["threads"], num_sequences=num_sequences, n_batch=s["n_batch"],
                       flash_attn=uses_flash_attn(s, num_sequences), kv_dtype=s["kv_type"], ubatch=s["ubatch"], **more)

    def calls_of(self, sequence: int, tokens: list[int], first: int = 0) -> list[Batch]:
        """The tokens from position `first` on in calls of at most n_batch; only the last asks for logits."""
        n, last = self.s["n_batch"], len(tokens) - 1
        return [Batch([(t, first + at + i, sequence, at + i == last) for i, t in enumerate(tokens[at:at + n])])
                for at in range(0, len(tokens), n)]

    def run_prompt(self, calls: list[Batch]) -> None:
        for batch in calls:
            self.context.decode(batch)
        self.context.logits(calls[-1].c.n_tokens - 1)

    def fill(self, filled: list[int]) -> None:
        """Each sequence from the `filled` positions that it holds on; several sequences hold none."""
        self.context.fill_with(self.s.get("fill_threads") or len(os.sched_getaffinity(0)))
        for length in sorted(set(self.prompts) - {0}):
            first, *others = [b for b, n in enumerate(self.prompts) if n == length]
            calls = self.calls_of(first, self.draw(length - filled[first]), filled[first])
            self.run_prompt(calls)
            for batch in calls:
                batch.close()
            self.context.copy_sequence(first, others)
        self.context.fill_with(self.s["threads"])

    def decode_steps(self, num_steps: int, keep_time: bool = False) -> dict | None:
        """Steps of one token for each sequence, from the same filled caches each time; nothing is sampled."""
        count = len(self.prompts)
        batches = [Batch([(t, self.prompts[b] + j, b, True) for b, t in enumerate(self.draw(count))])
                   for j in range(num_steps)]

        def generate() -> None:
            for batch in batches:
                self.context.decode(batch)
                self.context.logits(count - 1)

        sample = timed(num_steps * count, generate) if keep_time else generate()
        for batch in batches:
            batch.close()
        for b, length in enumerate(self.prompts):
            if not self.context.truncate(b, length):
                raise EngineError(f"cut sequence {b} back to {length} tokens: the engine cannot")
        return sample

    def measure(self, repeats: int, kept: bool) -> dict:
        samples = []
        if kept and self.kind != "prefill":
            self.decode_steps(min(2, self.gen))  # warm-up, as others ran meanwhile
        for _ in range(repeats):
            if self.kind == "prefill":
                self.context.clear()
                samples.append(timed(self.prompts[0], lambda: self.run_prompt(self.calls)))
            else:
                samples.append(self.decode_steps(self.gen, True))
        what = {"prefill": {"prompt_tokens": self.prompts[0]},
                "decode": {"depth": self.prompts[0], "gen_tokens": self.gen},
                "batch": {"batch": len(self.prompts), "prompt_tokens": [min(self.prompts), max(self.prompts)],
                          "gen_tokens": self.gen}}[self.kind]
        checked = {} if self.disagreement is None else {"disagreement": self.disagreement}
        status = "/proc/self/status"
        return {"test": self.kind, "flash_attn": uses_flash_attn(self.s, len(self.prompts)), **what, "samples": samples,
                **checked, "peak_rss_mib": int(proc_value(status, "VmHWM").split()[0]) / 1024,
                "anon_rss_mib": int(proc_value(status, "RssAnon").split()[0]) / 1024,
                "beyond_trained_context": max(self.prompts) + self.gen > self.model.trained_context}

    def check_prefill(self) -> float:
        """Tokens at once against the same one by one: the median of the last 8 positions."""
        tokens = self.draw(min(64, self.prompts[0]))
        context, last = self.make_context(256, 1, all_logits=True), range(max(0, len(tokens) - 8), len(tokens))
        run_once(context, [(t, i, 0, i in last) for i, t in enumerate(tokens)])
        together = {i: logits_row(context, i) for i in last}
        context.clear()
        errors = []
        for i, t in enumerate(tokens):
            run_once(context, [(t, i, 0, True)])
            if i in last:
                errors.append(relative_rms(together[i], logits_row(context, 0)))
        context.close()
        return statistics.median(errors)

    def check_batch(self) -> float:
        """A step for all sequences against each alone: the worst of three. Prompts are short: what shows is a mix-up."""
        count = len(self.prompts)
        prompts = [self.draw(min(length, 16 + b % 16)) for b, length in enumerate(self.prompts)]
        step, context, chosen = self.draw(count), self.make_context(256 * count, count), {0, count // 2, count - 1}

        def prompt(b: int, sequence: int) -> None:
            run_once(context, [(t, i, sequence, i == len(prompts[b]) - 1) for i, t in enumerate(prompts[b])])

        for b in range(count):
            prompt(b, b)
        run_once(context, [(t, len(prompts[b]), b, True) for b, t in enumerate(step)])
        together, worst = {b: logits_row(context, b) for b in chosen}, 0.0
        for b in chosen:
            context.clear()
            prompt(b, 0)
            run_once(context, [(step[b], len(prompts[b]), 0, True)])
            worst = max(worst, relative_rms(together[b], logits_row(context, 0)))
        context.close()
        return worst

    def close(self) -> None:
        self.context.close()


class Loaded:
    """A model, and its filled tests of one kind: with flash attention and without."""

    def __init__(self, s: dict):
        start = time.perf_counter()
        self.model, self.tests, self.kind = Model(s["model"], repack=bool(s.get("repack"))), {}, None
        self.load_s = time.perf_counter() - start
        context = Context(self.model, 512, threads=s["threads"], flash_attn=uses_flash_attn(s, 1), kv_dtype=s["kv_type"])
        run_once(context, [(0, 0, 0, True)])
        context.logits(0)
        self.ttft_s, self.kv_bytes = time.perf_counter() - start, context.state_bytes(0)
        context.close()

    def measure(self, s: dict, kind: str, prompts: list[int]) -> dict:
        reset_peak_resident()
        if kind != self.kind:
            self.forget()
        self.kind, which = kind, bool(s["flash_attn"])
        kept = which in self.tests and self.tests[which].go_on(s, prompts)
        if not kept:
            if which in self.tests:
                self.tests.pop(which).close()
            self.tests[which] = Test(self.model, s, kind, prompts)
        return self.tests[which].measure(s["repeats"], kept)

    def forget(self) -> None:
        for test in self.tests.values():
            test.close()
        self.tests = {}

    def close(self) -> None:
        self.forget()
        self.model.close()


class Bench:
    """What stays between settings: the last model, repacked and not."""

    def __init__(self):
        self.path, self.loaded = None, {}

    def load(self, s: dict, kind: str | None) -> Loaded:
        if self.path != s["model"]:
            for loaded in self.loaded.values():
                loaded.close()
            self.path, self.loaded = s["model"], {}
        for loaded in self.loaded.values():
            if loaded.kind != kind:
                loaded.forget()  # room for this one's contexts
        repacked = bool(s.get("repack"))
        if repacked not in self.loaded:
            self.loaded[repacked] = Loaded(s)
        return self.loaded[repacked]

    def run(self, s: dict) -> dict:
        info = system_info()
        about = {"engine": s["engine"], "version": VERSION, "system_info": info, "isa": extensions_of(info)}
        if s.get("info"):
            return about
        low, high = s["batch_prompt"]
        wanted = [("prefill", [n]) for n in s["prompt_tokens"]] + [("decode", [depth]) for depth in s["depth"]]
        wanted += [("batch", [low + (high - low) * (2 * b + 1) // (2 * batch) for b in range(batch)])
                   for batch in s["batch"]]  # lengths evenly over low..high
        loaded = self.load(s, wanted[0][0] if wanted else None)
        tests = [loaded.measure(s, kind, prompts) for kind, prompts in wanted]
        return about | {"threads": s["threads"], "model": loaded.model.describe(), "load_s": [loaded.load_s],
                        "ttft_s": [loaded.ttft_s], "kv_bytes_per_token": loaded.kv_bytes, "tests": tests}


def write_logits(args: argparse.Namespace) -> None:
    from safetensors.numpy import save_file
    given = json.loads(args.ids.read_text())
    many = bool(given) and isinstance(given[0], list)
    model, tensors = Model(str(args.model)), {}
    for index, ids in enumerate(given if many else [given]):
        context = Context(model, len(ids), threads=args.threads, flash_attn=args.flash_attn, kv_dtype=args.kv_dtype,
                          n_batch=args.n_batch, all_logits=True)
        rows = np.empty((len(ids), model.vocab_size), np.float32)
        for at in range(0, len(ids), args.n_batch):
            part = ids[at:at + args.n_batch]
            run_once(context, [(t, at + i, 0, True) for i, t in enumerate(part)])
            for i in range(len(part)):
                rows[at + i] = logits_row(context, i)
        context.close()
        tensors[f"logits.{index}" if many else "logits"] = rows
    model.close()
    save_file(tensors, str(args.out), metadata={"engine": VERSION, "kv_dtype": args.kv_dtype,
                                                "flash_attn": str(args.flash_attn)})


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    commands.add_parser("bench", help="settings as JSON on stdin, one line of stdout for each")
    logits = commands.add_parser("logits", help="logits of every position to a safetensors file")
    logits.add_argument("--ids", type=Path, required=True)
    logits.add_argument("--out", type=Path, required=True)
    logits.add_argument("--threads", type=int, default=1)
    logits.add_argument("--kv-dtype", choices=list(KV_DTYPES), default="f16" if IS_IK else "f32")
    logits.add_argument("--flash-attn", action="store_true")
    logits.add_argument("--n-batch", type=int, default=512, help="1: token by token, as generation does")
    tokenize = commands.add_parser("tokenize", help="prints the ids as a JSON list")
    tokenize.add_argument("--text", type=Path, required=True, help="UTF-8 file")
    tokenize.add_argument("--parse-special", action="store_true")
    for command in (logits, tokenize):
        command.add_argument("--model", type=Path, required=True)
    args = p.parse_args()
    if args.command == "bench":
        bench = Bench()
        for line in sys.stdin:
            if line.strip():
                print(json.dumps(bench.run(json.loads(line))), flush=True)
    elif args.command == "logits":
        write_logits(args)
    else:
        print(json.dumps(Model(str(args.model), vocab_only=True).tokenize(args.text.read_bytes(), True,
                                                                          args.parse_special)))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (EngineError, OSError, json.JSONDecodeError) as error:
        print(f"peer_llama: {error}", file=sys.stderr)
        sys.exit(1)
