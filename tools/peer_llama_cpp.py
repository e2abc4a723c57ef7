#!/usr/bin/env python3
"""llama.cpp through the ctypes binding of llama-cpp-python: speed, logits and token ids of a GGUF file.

    peer_llama_cpp.py bench < settings.json                          one measurement, as `tidemill bench --child` speaks
    peer_llama_cpp.py logits --model M.gguf --ids ids.json --out logits.safetensors
    peer_llama_cpp.py tokenize --model M.gguf --text FILE [--parse-special]

Needs llama-cpp-python (docs/quality.md says how to compile it for this CPU) and, for `logits`, numpy and safetensors.
The package's high-level class is not used: it samples and copies in Python, which would be measured too.

`logits` asks for the least rounding the engine offers: an f32 KV cache and no flash attention (which rounds keys and
values to f16). `--ids` is a JSON list of ids, or a list of such lists; the tensors are `logits` [len, vocab] f32, or
`logits.0`, `logits.1`, ...
"""

import argparse
import ctypes
import json
import os
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path

import llama_cpp.llama_cpp as api

KV_DTYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}  # enum ggml_type
# Name in the engine's own report -> flag in /proc/cpuinfo: a build that leaves some unused is not the peer to beat.
EXTENSIONS = {"AVX2": "avx2", "FMA": "fma", "F16C": "f16c", "AVX_VNNI": "avx_vnni", "AVX512": "avx512f",
              "AVX512_VBMI": "avx512vbmi", "AVX512_VNNI": "avx512_vnni", "AVX512_BF16": "avx512_bf16",
              "AMX_INT8": "amx_int8"}


class EngineError(RuntimeError):
    """A call into the engine failed."""


_silent = api.llama_log_callback(lambda level, text, data: None)  # the library keeps the pointer


class Model:
    def __init__(self, path: str, vocab_only: bool = False):
        api.llama_log_set(_silent, None)
        api.llama_backend_init()
        params = api.llama_model_default_params()
        params.n_gpu_layers, params.vocab_only = 0, vocab_only
        self.path, self.handle = path, api.llama_model_load_from_file(path.encode(), params)
        if not self.handle:
            raise EngineError(f"load {path}: the engine refused the file")
        self.vocab = api.llama_model_get_vocab(self.handle)
        self.vocab_size = api.llama_vocab_n_tokens(self.vocab)

    def tokenize(self, text: bytes, add_special: bool, parse_special: bool) -> list[int]:
        ids = (ctypes.c_int32 * (len(text) + 8))()
        count = api.llama_tokenize(self.vocab, text, len(text), ids, len(ids), add_special, parse_special)
        if count < 0:
            raise EngineError(f"tokenize {len(text)} bytes: needs room for {-count} ids, had {len(ids)}")
        return list(ids[:count])

    def close(self) -> None:
        api.llama_model_free(self.handle)


class Batch:
    """Tokens of some sequences, filled once and decoded many times. rows: (token, position, sequence, wants logits)."""

    def __init__(self, rows: list[tuple[int, int, int, bool]]):
        self.c = api.llama_batch_init(len(rows), 0, 1)
        self.c.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            self.c.token[i], self.c.pos[i], self.c.logits[i] = token, position, wanted
            self.c.n_seq_id[i], self.c.seq_id[i][0] = 1, sequence

    def close(self) -> None:
        api.llama_batch_free(self.c)


class Context:
    """A KV cache for `num_sequences` sequences that hold num_positions tokens together, and its compute buffers."""

    def __init__(self, model: Model, num_positions: int, *, threads: int, flash_attn: bool, kv_dtype: str,
                 num_sequences: int = 1, n_batch: int = 2048, ubatch: int = 512, all_logits: bool = False):
        params = api.llama_context_default_params()
        if (params.n_ctx, params.n_batch, params.n_ubatch) != (512, 2048, 512):
            raise EngineError(f"default parameters read as n_ctx={params.n_ctx} n_batch={params.n_batch} n_ubatch="
                              f"{params.n_ubatch}, expected 512, 2048, 512: the binding does not match its library")
        params.n_ctx = -(-num_positions // 256) * 256
        params.n_seq_max = num_sequences
        params.n_batch = min(max(n_batch, 16), params.n_ctx)
        params.n_ubatch = min(ubatch, params.n_batch)
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = KV_DTYPES[kv_dtype]
        params.flash_attn_type = 1 if flash_attn else 0
        params.n_outputs_max_per_seq = 0 if all_logits else 1  # 0: as many rows as a batch holds
        self.handle, self.model = api.llama_init_from_model(model.handle, params), model
        if not self.handle:
            raise EngineError(f"make a context of {params.n_ctx} positions, KV {kv_dtype}, flash attention "
                              f"{'on' if flash_attn else 'off'}: the engine refused")
        self.memory = api.llama_get_memory(self.handle)

    def decode(self, batch: Batch) -> None:
        if code := api.llama_decode(self.handle, batch.c):
            raise EngineError(f"decode {batch.c.n_tokens} tokens: the engine returned {code}")

    def logits(self, row: int):
        """Pointer to the [vocab] f32 logits of the last batch's row; waits for the engine to finish."""
        found = api.llama_get_logits_ith(self.handle, row)
        if not found:
            raise EngineError(f"no logits for row {row} of the last batch")
        return found

    def clear(self) -> None:
        api.llama_memory_clear(self.memory, False)

    def truncate(self, sequence: int, length: int) -> bool:
        return api.llama_memory_seq_rm(self.memory, sequence, length, -1)

    def close(self) -> None:
        api.llama_free(self.handle)


# ---------------------------------------------------------------- speed

def proc_value(path: str, field: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return ""


def machine_busy_s() -> float:
    """Processor seconds spent by the whole machine since it started, steal included."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def extensions_of(system_info: str) -> dict[str, list[str]]:
    told = {part.split("=")[0].strip() for part in system_info.replace(":", "|").split("|") if part.strip().endswith("= 1")}
    has = set(proc_value("/proc/cpuinfo", "flags").split())
    return {"used": [n for n in EXTENSIONS if n in told],
            "unused": [n for n, flag in EXTENSIONS.items() if flag in has and n not in told]}


def timed(tokens: int, work) -> dict[str, float]:
    others, own, start = machine_busy_s(), time.process_time(), time.perf_counter()
    work()
    seconds, own = time.perf_counter() - start, time.process_time() - own
    others = machine_busy_s() - others - own
    return {"tokens_per_s": tokens / seconds, "tokens_per_cpu_s": tokens / own, "seconds": seconds,
            "others_cores": max(0.0, others / seconds)}


class Bench:
    def __init__(self, settings: dict):
        self.s = settings
        start = time.perf_counter()
        self.model = Model(settings["model"])
        self.load_s = time.perf_counter() - start
        context = self.context(512)
        self.fill(context, 0, [0])
        self.first_token_s = time.perf_counter() - start
        context.close()
        source = random.Random(settings["seed"])
        self.draw = lambda n: [source.randrange(self.model.vocab_size) for _ in range(n)]
        self.tests = []

    def run(self) -> dict:
        for tokens in self.s["prompt_tokens"]:
            self.prefill(tokens)
        for depth in self.s["depth"]:
            self.decode("decode", [self.draw(depth)], depth=depth)
        for batch in self.s["batch"]:
            low, high = self.s["batch_prompt"]
            lengths = [low + (high - low) * (2 * b + 1) // (2 * batch) for b in range(batch)]  # evenly over low..high
            self.decode("batch", [self.draw(n) for n in lengths], batch=batch,
                        prompt_tokens=[min(lengths), max(lengths)])
        info = api.llama_print_system_info().decode().strip()
        description = ctypes.create_string_buffer(256)
        api.llama_model_desc(self.model.handle, description, len(description))
        return {"engine": self.s["engine"], "version": f"llama-cpp-python {version('llama-cpp-python')}",
                "threads": self.s["threads"], "system_info": info, "isa": extensions_of(info),
                "model": {"description": description.value.decode(errors="replace"),
                          "parameters": api.llama_model_n_params(self.model.handle),
                          "tensor_bytes": api.llama_model_size(self.model.handle),
                          "vocab_size": self.model.vocab_size,
                          "trained_context": api.llama_model_n_ctx_train(self.model.handle)},
                "load_s": [self.load_s], "first_token_s": [self.first_token_s], "tests": self.tests}

    def context(self, num_positions: int, num_sequences: int = 1) -> Context:
        s = self.s
        return Context(self.model, num_positions, threads=s["threads"], flash_attn=s["flash_attn"],
                       kv_dtype=s["kv_type"], num_sequences=num_sequences, n_batch=s["n_batch"], ubatch=s["ubatch"])

    def prompt(self, sequence: int, tokens: list[int]) -> list[Batch]:
        """The tokens from position 0 on in calls of at most n_batch; only the last asks for logits."""
        n, last = self.s["n_batch"], len(tokens) - 1
        return [Batch([(t, at + i, sequence, at + i == last) for i, t in enumerate(tokens[at:at + n])])
                for at in range(0, len(tokens), n)]

    def fill(self, context: Context, sequence: int, tokens: list[int]) -> None:
        if tokens:
            batches = self.prompt(sequence, tokens)
            decode_all(context, batches)
            for batch in batches:
                batch.close()

    def prefill(self, tokens: int) -> None:
        context = self.context(tokens)
        batches, samples = self.prompt(0, self.draw(tokens)), []
        decode_all(context, batches)
        for _ in range(self.s["repeats"]):
            context.clear()
            samples.append(timed(tokens, lambda: decode_all(context, batches)))
        self.report("prefill", samples, tokens, prompt_tokens=tokens)
        for batch in batches:
            batch.close()
        context.close()

    def decode(self, test: str, prompts: list[list[int]], **what) -> None:
        """Times gen_tokens steps of one token for each sequence, from the same filled caches each time."""
        gen, count = self.s["gen_tokens"], len(prompts)
        longest = max(map(len, prompts)) + gen
        context = self.context(count * (-(-longest // 256) * 256), count)  # each sequence has a cache of one length
        samples = []
        for b, tokens in enumerate(prompts):
            self.fill(context, b, tokens)

        def steps(num_steps: int) -> list[Batch]:
            return [Batch([(t, len(prompts[b]) + j, b, True) for b, t in enumerate(self.draw(count))])
                    for j in range(num_steps)]

        def generate(batches: list[Batch]) -> None:
            for batch in batches:
                context.decode(batch)
                context.logits(count - 1)

        for i in range(self.s["repeats"] + 1):
            batches = steps(gen if i else min(8, gen))
            if i:
                samples.append(timed(gen * count, lambda: generate(batches)))
            else:
                generate(batches)
            for batch in batches:
                batch.close()
            for b, tokens in enumerate(prompts):
                if not context.truncate(b, len(tokens)):
                    raise EngineError(f"cut sequence {b} back to {len(tokens)} tokens: the engine cannot")
        self.report(test, samples, longest, gen_tokens=gen, **what)
        context.close()

    def report(self, test: str, samples: list[dict], longest: int, **what) -> None:
        status = "/proc/self/status"
        self.tests.append({"test": test, "flash_attn": self.s["flash_attn"], **what, "samples": samples,
                           "peak_rss_mib": int(proc_value(status, "VmHWM").split()[0]) / 1024,
                           "anon_rss_mib": int(proc_value(status, "RssAnon").split()[0]) / 1024,
                           "beyond_trained_context": longest > api.llama_model_n_ctx_train(self.model.handle)})


def decode_all(context: Context, batches: list[Batch]) -> None:
    for batch in batches:
        context.decode(batch)
    context.logits(batches[-1].c.n_tokens - 1)


# ---------------------------------------------------------------- logits and ids

def write_logits(args: argparse.Namespace) -> None:
    import numpy as np
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
            batch = Batch([(t, at + i, 0, True) for i, t in enumerate(part)])
            context.decode(batch)
            for i in range(len(part)):
                rows[at + i] = np.ctypeslib.as_array(context.logits(i), (model.vocab_size,))
            batch.close()
        context.close()
        tensors[f"logits.{index}" if many else "logits"] = rows
    model.close()
    save_file(tensors, str(args.out), metadata={"engine": f"llama-cpp-python {version('llama-cpp-python')}",
                                                "kv_dtype": args.kv_dtype, "flash_attn": str(args.flash_attn)})


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    commands.add_parser("bench", help="settings as JSON on stdin, the measurement as the last line of stdout")
    logits = commands.add_parser("logits", help="logits of every position to a safetensors file")
    logits.add_argument("--ids", type=Path, required=True)
    logits.add_argument("--out", type=Path, required=True)
    logits.add_argument("--threads", type=int, default=1)
    logits.add_argument("--kv-dtype", choices=list(KV_DTYPES), default="f32")
    logits.add_argument("--flash-attn", action="store_true")
    logits.add_argument("--n-batch", type=int, default=512, help="1: token by token, as generation does")
    tokenize = commands.add_parser("tokenize", help="prints the ids as a JSON list")
    tokenize.add_argument("--text", type=Path, required=True, help="UTF-8 file")
    tokenize.add_argument("--parse-special", action="store_true")
    for command in (logits, tokenize):
        command.add_argument("--model", type=Path, required=True)
    args = p.parse_args()
    if args.command == "bench":
        print(json.dumps(Bench(json.load(sys.stdin)).run()), flush=True)
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
        print(f"peer_llama_cpp: {error}", file=sys.stderr)
        sys.exit(1)
