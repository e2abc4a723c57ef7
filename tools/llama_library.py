"""The C API of llama.cpp and of ik_llama.cpp, through the ctypes binding of the Python package that this interpreter has.

The packages' high-level classes are not used: they sample and copy in Python, which would be measured too. Where the two
APIs differ, this file says so once: struct members, the KV cache's functions, the f32 cache that ik_llama.cpp lacks.
"""

import ctypes
import os
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

try:
    import llama_cpp.llama_cpp as api
    IS_IK, PACKAGE = False, "llama-cpp-python"
except ImportError:
    if (_found := find_spec("ik_llama_cpp")) is None:
        sys.exit(f"load a library: expected llama-cpp-python or ik-llama-cpp-python in {sys.executable}, found neither; "
                 "docs/quality.md says how to get them")
    _libraries = Path(_found.origin).parent / "lib"
    ctypes.CDLL(str(_libraries / "libggml.so"))  # a build from source does not find the other library beside it
    import ik_llama_cpp._ctypes_api as api
    IS_IK, PACKAGE = True, "ik-llama-cpp-python"

VERSION = f"{PACKAGE} {version(PACKAGE)}"
KV_DTYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}  # enum ggml_type
# Name in the engine's own report -> flag in /proc/cpuinfo: a build that leaves some unused is not the peer to beat.
EXTENSIONS = {"AVX2": "avx2", "FMA": "fma", "F16C": "f16c", "AVX_VNNI": "avx_vnni", "AVX512": "avx512f",
              "AVX512_VBMI": "avx512vbmi", "AVX512_VNNI": "avx512_vnni", "AVX512_BF16": "avx512_bf16",
              "AMX_INT8": "amx_int8"}
P, I32, U32, SIZE, BOOL, TEXT = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_bool,
                                 ctypes.c_char_p)
LOG_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, TEXT, P)


class EngineError(RuntimeError):
    """A call into the engine failed."""


def function(name: str, result, *arguments):
    """A C function of the library, with types of our own: the bindings do not have all that is used here."""
    return ctypes.CFUNCTYPE(result, *arguments)(ctypes.cast(getattr(api._lib, name), P).value)


_silent = LOG_CALLBACK(lambda level, text, data: None)  # the library keeps the pointer
_decode = function("llama_decode", I32, P, api.llama_batch)
_logits = function("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), P, I32)
_set_threads = function("llama_set_n_threads", None, P, I32, I32)
_flags = [U32] if IS_IK else []  # ik_llama.cpp's functions of one sequence's state have a last argument, flags
_state_size = function("llama_state_seq_get_size", SIZE, P, I32, *_flags)
_state_get = function("llama_state_seq_get_data", SIZE, P, P, SIZE, I32, *_flags)
_state_set = function("llama_state_seq_set_data", SIZE, P, P, SIZE, I32, *_flags)


class Model:
    """`repack` interleaves rows of the weights while loading (ik_llama.cpp's -rtr); llama.cpp always does where it can."""

    def __init__(self, path: str, vocab_only: bool = False, repack: bool = False):
        function("llama_log_set", None, LOG_CALLBACK, P)(_silent, None)
        api.llama_backend_init()
        params = api.llama_model_default_params()
        params.n_gpu_layers, params.vocab_only = 0, vocab_only
        if repack:
            if not IS_IK:
                raise EngineError("repack: a setting of ik_llama.cpp; llama.cpp has none")
            params.repack_tensors, params.use_mmap = True, False
        self.path, self.handle = path, api.llama_model_load_from_file(path.encode(), params)
        if not self.handle:
            raise EngineError(f"load {path}: the engine refused the file")
        self.vocab = api.llama_model_get_vocab(self.handle)
        self.vocab_size = api.llama_vocab_n_tokens(self.vocab)
        self.trained_context = self.number("llama_n_ctx_train" if IS_IK else "llama_model_n_ctx_train", I32)

    def number(self, name: str, kind) -> int:
        return function(name, kind, P)(self.handle)

    def describe(self) -> dict:
        text = ctypes.create_string_buffer(256)
        function("llama_model_desc", I32, P, TEXT, SIZE)(self.handle, text, len(text))
        return {"description": text.value.decode(errors="replace"),
                "parameters": self.number("llama_model_n_params", ctypes.c_uint64),
                "tensor_bytes": self.number("llama_model_size", ctypes.c_uint64),
                "vocab_size": self.vocab_size, "trained_context": self.trained_context}

    def tokenize(self, text: bytes, add_special: bool, parse_special: bool) -> list[int]:
        ids = (I32 * (len(text) + 8))()
        tokenize = function("llama_tokenize", I32, P, TEXT, I32, ctypes.POINTER(I32), I32, BOOL, BOOL)
        count = tokenize(self.handle if IS_IK else self.vocab, text, len(text), ids, len(ids), add_special, parse_special)
        if count < 0:
            raise EngineError(f"tokenize {len(text)} bytes: needs room for {-count} ids, had {len(ids)}")
        return list(ids[:count])

    def close(self) -> None:
        function("llama_free_model" if IS_IK else "llama_model_free", None, P)(self.handle)


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
        if IS_IK and kv_dtype == "f32":
            raise EngineError("KV f32: ik_llama.cpp has no f32 cache; use f16")
        params.n_ctx = -(-num_positions // 256) * 256
        params.n_seq_max = num_sequences
        params.n_batch = min(max(n_batch, 16), params.n_ctx)
        params.n_ubatch = min(ubatch, params.n_batch)
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = KV_DTYPES[kv_dtype]
        if IS_IK:
            params.flash_attn = flash_attn  # its cache is one for all sequences
        else:
            params.flash_attn_type = 1 if flash_attn else 0
            params.n_outputs_max_per_seq = 0 if all_logits else 1  # 0: as many rows as a batch holds
        self.threads, self.handle, self.model = threads, api.llama_init_from_model(model.handle, params), model
        if not self.handle:
            raise EngineError(f"make a context of {params.n_ctx} positions, KV {kv_dtype}, flash attention "
                              f"{'on' if flash_attn else 'off'}: the engine refused")
        memory = self.handle if IS_IK else function("llama_get_memory", P, P)(self.handle)
        remove = function("llama_kv_cache_seq_rm" if IS_IK else "llama_memory_seq_rm", BOOL, P, I32, I32, I32)
        self.truncate = lambda sequence, length: remove(memory, sequence, length, -1)
        if IS_IK:
            self.clear = lambda: api.llama_kv_cache_clear(memory)
        else:
            self.clear = lambda: api.llama_memory_clear(memory, False)

    def decode(self, batch: Batch) -> None:
        if code := _decode(self.handle, batch.c):
            raise EngineError(f"decode {batch.c.n_tokens} tokens: the engine returned {code}")

    def logits(self, row: int):
        """Pointer to the [vocab] f32 logits of the last batch's row; waits for the engine to finish."""
        found = _logits(self.handle, row)
        if not found:
            raise EngineError(f"no logits for row {row} of the last batch")
        return found

    def fill_with(self, threads: int) -> None:
        """Threads of a batch of many tokens; `self.threads` again before anything is timed."""
        _set_threads(self.handle, self.threads, threads)

    def state_bytes(self, sequence: int) -> int:
        return _state_size(self.handle, sequence, *[0] * len(_flags))

    def copy_sequence(self, source: int, targets: list[int]) -> None:
        """Keys and values of `source` into other, empty sequences: really copied, so that reading them costs the same."""
        size, zeros = self.state_bytes(source), [0] * len(_flags)
        room = ctypes.create_string_buffer(size)
        if _state_get(self.handle, room, size, source, *zeros) == 0:
            raise EngineError(f"copy sequence {source}: the engine gives no state")
        for target in targets:
            if _state_set(self.handle, room, size, target, *zeros) == 0:
                raise EngineError(f"copy sequence {source} to {target}: the engine takes no state")

    def close(self) -> None:
        api.llama_free(self.handle)


def system_info() -> str:
    return function("llama_print_system_info", TEXT)().decode().strip()


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


def extensions_of(info: str) -> dict[str, list[str]]:
    told = {part.split("=")[0].strip() for part in info.replace(":", "|").split("|") if part.strip().endswith("= 1")}
    has = set(proc_value("/proc/cpuinfo", "flags").split())
    return {"used": [n for n in EXTENSIONS if n in told],
            "unused": [n for n, flag in EXTENSIONS.items() if flag in has and n not in told]}
