#!/usr/bin/env python3
"""Random weights in the shape of a known model: for speed at sizes and types that nobody has to download.

    make_synthetic_model.py --shape llama-3.2-1b --type Q4_K_M --out FILE.gguf [--seed 1]
    make_synthetic_model.py --shape opt-1.3b --type BF16 --out FOLDER [--seed 1]
    make_synthetic_model.py --shape armt-160m --type BF16 --out FOLDER [--segment 1024] [--memory 128] [--base FOLDER] [--seed 1]

A GGUF file, or for OPT's shapes a folder as Hugging Face has them, which transformers reads, too. An armt shape is a Llama with recurrent memory, a folder;
--base adds a folder with the plain model of the same weights, as a link to the same file where the file system has them.

Every engine does the same work on it as on trained weights of that shape; its text is noise. Needs gguf and numpy
(docs/quality.md has the environment). The same arguments give the same bytes. One tensor is in memory at a time.

Weights are near normal with standard deviation 0.02, drawn as codes of the type: nothing is quantised. Types are mixed as
llama.cpp's quantiser mixes them: the head (the embedding where it is the head) of a 4-bit file is Q6_K, Q4_K_M has Q6_K in
about half of attn_v and ffn_down, and rows that no block of 256 fits get Q5_0 and Q8_0 instead of Q4_K and Q6_K.

The vocabulary is made up but works: all bytes, then strings of letters with the merges (or scores) that build them.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

try:
    import gguf
    import numpy as np
except ModuleNotFoundError as error:
    sys.exit(f"make_synthetic_model: needs the Python packages gguf and numpy, found no {error.name}; run: "
             "python3 -m venv oracle && oracle/bin/pip install gguf==0.19.0 safetensors numpy, then oracle/bin/python " + sys.argv[0])

import synthetic_hybrid
from synthetic_armt import ARMT_SHAPES, CONTEXT, write_armt
from synthetic_folder import FOLDER_SHAPES, FOLDER_TYPES, write_folder
from synthetic_vocabulary import LETTERS, byte_characters, grown

STD = 0.02  # of a weight
Type = gguf.GGMLQuantizationType


@dataclass
class Shape:
    name: str
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    context: int
    rope_base: float
    tied: bool
    tokenizer: str  # name of the split rule of a byte-level BPE, or "spm"
    specials: list[str]  # at the end of a BPE vocabulary; the first begins a text, the second ends it
    llama3_rope: bool = False
    linear: synthetic_hybrid.Linear | None = None

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def architecture(self) -> str:
        return "qwen35" if self.linear else "llama"


SHAPES = {
    "135m": Shape("SmolLM2-135M's shape", 576, 1536, 30, 9, 3, 49152, 8192, 1e5, True, "smollm",
                  ["<|im_start|>", "<|im_end|>"] + [f"<|reserved_{i}|>" for i in range(15)]),
    "llama-3.2-1b": Shape("Llama-3.2-1B's shape", 2048, 8192, 16, 32, 8, 128256, 131072, 5e5, True, "llama-bpe",
                          ["<|begin_of_text|>", "<|end_of_text|>"] + [f"<|reserved_{i}|>" for i in range(254)], True),
    "qwen3.5-0.65b": Shape("Qwen3.5-0.8B's shape with a smaller vocabulary", 1024, 3584, 24, 8, 2, 151936, 262144, 1e7, True,
                           "qwen35", ["<|im_start|>", "<|im_end|>"] + [f"<|reserved_{i}|>" for i in range(24)],
                           linear=synthetic_hybrid.Linear()),
    "llama-2-7b": Shape("Llama-2-7B's shape", 4096, 11008, 32, 32, 32, 32000, 4096, 1e4, False, "spm", []),
}
FILE_TYPES = {
    "F32": gguf.LlamaFileType.ALL_F32, "F16": gguf.LlamaFileType.MOSTLY_F16, "BF16": gguf.LlamaFileType.MOSTLY_BF16,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
    "Q4_1": gguf.LlamaFileType.MOSTLY_Q4_1, "Q4_K_M": gguf.LlamaFileType.MOSTLY_Q4_K_M,
}


# ---------------------------------------------------------------- weights

def normal_codes(count: int, steps_per_std: float) -> np.ndarray:
    """[256] u8: a uniform byte -> one of `count` codes, near normal around the middle, (count - 1) / 2 or count / 2."""
    middle = count / 2 if count % 2 == 0 else (count - 1) / 2
    x = [middle + steps_per_std * NormalDist().inv_cdf((i + 0.5) / 256) for i in range(256)]
    return np.clip(np.rint(x), 0, count - 1).astype(np.uint8)


class Weights:
    """Random blocks of each type. [rows, row bytes] u8, or [rows, columns] of the type itself where it has no blocks."""

    def __init__(self, seed: int):
        self.random = np.random.Generator(np.random.SFC64(seed))

    def draw(self, kind: Type, rows: int, columns: int) -> np.ndarray:
        if kind in (Type.F32, Type.F16, Type.BF16):
            return self.floats(kind, rows, columns)
        block = gguf.GGML_QUANT_SIZES[kind][0]
        blocks = {Type.Q8_0: self.q8_0, Type.Q4_0: self.q4_0, Type.Q4_1: self.q4_1, Type.Q5_0: self.q5_0,
                  Type.Q4_K: self.q4_k, Type.Q6_K: self.q6_k}[kind](rows * columns // block)
        return blocks.reshape(rows, -1)

    def floats(self, kind: Type, rows: int, columns: int) -> np.ndarray:
        # A table of 65536 normal values: drawing a billion floats one by one takes minutes.
        table = (STD * self.random.standard_normal(1 << 16)).astype(np.float32)
        if kind == Type.BF16:
            table = (table.view(np.uint32) >> 16).astype(np.uint16)
        elif kind == Type.F16:
            table = table.astype(np.float16)
        return table[self.random.integers(0, 1 << 16, (rows, columns), np.uint16)]

    def bytes(self, *shape: int) -> np.ndarray:
        return self.random.integers(0, 256, shape, np.uint8)

    def scale(self, n: int, middle: float) -> np.ndarray:
        """[n, 2] u8: f16 numbers within 20 % of `middle`."""
        values = middle * self.random.uniform(0.8, 1.2, n)
        return values.astype("<f2").view(np.uint8).reshape(n, 2)

    def nibbles(self, n: int, size: int) -> np.ndarray:
        """[n, size] u8, two near normal codes in each, 3.6 steps to a standard deviation."""
        codes = normal_codes(16, 3.6)
        return codes[self.bytes(n, size)] | (codes[self.bytes(n, size)] << 4)

    def q8_0(self, n: int) -> np.ndarray:
        codes = (normal_codes(255, 50) - np.uint8(127)).astype(np.uint8)  # around 0, in two's complement
        return np.hstack([self.scale(n, STD / 50), codes[self.bytes(n, 32)]])

    def q4_0(self, n: int) -> np.ndarray:
        return np.hstack([self.scale(n, STD / 3.6), self.nibbles(n, 16)])

    def q4_1(self, n: int) -> np.ndarray:
        scale = self.scale(n, STD / 3.6)
        lowest = (-8 * scale.view("<f2")).astype("<f2").view(np.uint8)
        return np.hstack([scale, lowest, self.nibbles(n, 16)])

    def q5_0(self, n: int) -> np.ndarray:  # uniform: 32 steps have a standard deviation of 9.2
        return np.hstack([self.scale(n, STD / 9.2), self.bytes(n, 4), self.bytes(n, 16)])

    def q4_k(self, n: int) -> np.ndarray:
        """Eight sub-blocks whose 6-bit scale is also their 6-bit minimum, in units of d and 8 d: codes lie around 8."""
        six = self.random.integers(40, 64, (n, 8), np.uint8)
        low, high = six[:, :4], six[:, 4:]
        packed = low | (high >> 4 << 6)
        scale = self.scale(n, STD / 3.6 / 52)
        minimum = (8 * scale.view("<f2")).astype("<f2").view(np.uint8)
        return np.hstack([scale, minimum, packed, packed, (high & 15) | (high << 4), self.nibbles(n, 128)])

    def q6_k(self, n: int) -> np.ndarray:  # uniform, 64 steps; scales of both signs keep the mean at 0
        scales = self.random.integers(64, 128, (n, 16), np.int8) * self.random.choice(np.array([-1, 1], np.int8), (n, 16))
        return np.hstack([self.bytes(n, 192), scales.view(np.uint8), self.scale(n, STD / 18.5 / 96)])


def uses_more_bits(layer: int, layers: int) -> bool:
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def type_of(name: str, layer: int, columns: int, shape: Shape, file_type: str) -> Type:
    is_head = name == ("token_embd" if shape.tied else "output")
    kind = Type.Q4_K if file_type == "Q4_K_M" else Type[file_type]
    if file_type.startswith("Q4") and is_head:
        kind = Type.Q6_K
    if file_type == "Q4_K_M" and name in ("attn_v", "ffn_down") and uses_more_bits(layer, shape.layers):
        kind = Type.Q6_K
    if columns % 256:
        kind = {Type.Q4_K: Type.Q5_0, Type.Q6_K: Type.Q8_0}.get(kind, kind)
    return kind


def tensors_of(s: Shape, file_type: str) -> Iterator[tuple[str, Type, int, int]]:
    """(name, type, rows, columns) in the order of the file; norms and rope factors are one row of F32."""
    def matrix(name: str, rows: int, columns: int, layer: int = 0, prefix: str = ""):
        return f"{prefix}{name}.weight", type_of(name, layer, columns, s, file_type), rows, columns

    if s.llama3_rope:
        yield "rope_freqs.weight", Type.F32, 1, s.head_dim // 2
    yield matrix("token_embd", s.vocab, s.hidden)
    for layer in range(s.layers if s.linear else 0):
        for name, rows, columns in synthetic_hybrid.layer_of(s, layer):
            plain = rows == 1 or columns < 32
            kind = Type.F32 if plain else type_of(name.removesuffix(".weight"), layer, columns, s, file_type)
            yield f"blk.{layer}.{name}", kind, rows, columns
    kv = s.kv_heads * s.head_dim
    for layer in range(0 if s.linear else s.layers):
        at = f"blk.{layer}."
        yield f"{at}attn_norm.weight", Type.F32, 1, s.hidden
        for name, rows, columns in (("attn_q", s.hidden, s.hidden), ("attn_k", kv, s.hidden), ("attn_v", kv, s.hidden),
                                    ("attn_output", s.hidden, s.hidden)):
            yield matrix(name, rows, columns, layer, at)
        yield f"{at}ffn_norm.weight", Type.F32, 1, s.hidden
        for name, rows, columns in (("ffn_gate", s.ffn, s.hidden), ("ffn_up", s.ffn, s.hidden),
                                    ("ffn_down", s.hidden, s.ffn)):
            yield matrix(name, rows, columns, layer, at)
    yield "output_norm.weight", Type.F32, 1, s.hidden
    if not s.tied:
        yield matrix("output", s.vocab, s.hidden)


def llama3_factors(s: Shape, factor: float = 32, low: float = 1, high: float = 4, trained: int = 8192) -> np.ndarray:
    """What each rotation's wavelength is multiplied by, as llama3's rope scaling says."""
    factors = []
    for i in range(s.head_dim // 2):
        turns = trained / (2 * math.pi * s.rope_base ** (2 * i / s.head_dim))  # within the trained context
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


# ---------------------------------------------------------------- vocabulary

def write_vocabulary(writer: gguf.GGUFWriter, s: Shape) -> None:
    normal, unknown, control, byte = (gguf.TokenType.NORMAL, gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL,
                                      gguf.TokenType.BYTE)
    if s.tokenizer == "spm":
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
        types = [unknown, control, control] + [byte] * 256
        pairs = list(grown(["\u2581", *LETTERS], s.vocab - len(tokens) - 1 - len(LETTERS)))
        tokens += [left + right for left, right in pairs] + ["\u2581", *LETTERS]
        scores = [0.0] * len(types) + [-float(i) for i in range(s.vocab - len(types))]
        writer.add_tokenizer_model("llama")
        writer.add_token_scores(scores)
        begin, end = 1, 2
    else:
        tokens = byte_characters()
        pairs = list(grown([tokens[0x20], *LETTERS], s.vocab - 256 - len(s.specials)))
        tokens += [left + right for left, right in pairs] + s.specials
        types = []
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(s.tokenizer)
        writer.add_token_merges([f"{left} {right}" for left, right in pairs])
        begin = s.vocab - len(s.specials)
        end = begin + 1
    types += [normal] * (s.vocab - len(types) - len(s.specials)) + [control] * len(s.specials)
    assert len(tokens) == len(types) == len(set(tokens)) == s.vocab
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_bos_token_id(begin)
    writer.add_eos_token_id(end)


def write_settings(writer: gguf.GGUFWriter, s: Shape, file_type: str) -> None:
    writer.add_name(f"{s.name}, random weights")
    writer.add_file_type(FILE_TYPES[file_type])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(s.vocab)
    writer.add_context_length(s.context)
    writer.add_embedding_length(s.hidden)
    writer.add_block_count(s.layers)
    writer.add_feed_forward_length(s.ffn)
    writer.add_head_count(s.heads)
    writer.add_head_count_kv(s.kv_heads)
    writer.add_rope_freq_base(s.rope_base)
    writer.add_layer_norm_rms_eps(1e-6 if s.linear else 1e-5)
    if s.linear:
        return synthetic_hybrid.write_settings(writer, s)
    writer.add_rope_dimension_count(s.head_dim)


def write_model(s: Shape, file_type: str, seed: int, path: Path) -> None:
    writer, weights = gguf.GGUFWriter(path, s.architecture), Weights(seed)
    write_settings(writer, s, file_type)
    write_vocabulary(writer, s)
    stored = {Type.F32: np.float32, Type.F16: np.float16, Type.BF16: np.uint16}
    for name, kind, rows, columns in tensors_of(s, file_type):
        block, size = gguf.GGML_QUANT_SIZES[kind]
        row_bytes = columns // block * size
        dims = (rows, columns if kind in stored else row_bytes)
        writer.add_tensor_info(name, dims if rows > 1 else dims[1:], np.dtype(stored.get(kind, np.uint8)),
                               rows * row_bytes, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, kind, rows, columns in tensors_of(s, file_type):
        if name == "rope_freqs.weight":
            data = llama3_factors(s)
        elif rows == 1:
            data = synthetic_hybrid.vector(weights.random, name, columns)
            if data is None:
                data = weights.random.uniform(0.9, 1.1, columns).astype(np.float32)
        else:
            data = weights.draw(kind, rows, columns)
        writer.write_tensor_data(data)
    writer.close()


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=[*SHAPES, *FOLDER_SHAPES, *ARMT_SHAPES], required=True)
    p.add_argument("--type", choices=list(FILE_TYPES), required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--segment", type=int, default=1024, help="tokens of a segment; of armt shapes")
    p.add_argument("--memory", type=int, default=128, help="memory tokens behind each; of armt shapes")
    p.add_argument("--base", type=Path, help="folder for the plain model of the same weights; of armt shapes")
    args = p.parse_args()
    if args.seed < 0:
        p.error(f"--seed {args.seed}: expected at least 0")
    has_memory, is_folder = args.shape in ARMT_SHAPES, args.shape in FOLDER_SHAPES or args.shape in ARMT_SHAPES
    if args.base is not None and not has_memory:
        p.error(f"--base {args.base}: {args.shape} has no memory that its base model would lack")
    if has_memory and not (1 <= args.memory <= 1024 and 1 <= args.segment <= CONTEXT - args.memory):
        p.error(f"--segment {args.segment} --memory {args.memory}: expected 1 to 1024 memory tokens, and with the segment at most {CONTEXT} positions")
    args.out = args.out.resolve()  # a link stays one
    if args.out.exists() and not (args.out.is_dir() if is_folder else args.out.is_file()):
        p.error(f"--out {args.out}: expected a {'folder' if is_folder else 'file'} or nothing")
    if args.base is not None and args.base.exists() and (not args.base.is_dir() or args.base.resolve() == args.out):
        p.error(f"--base {args.base}: expected a folder of its own, or nothing")
    try:
        return make(args, p)
    except OSError as error:
        # numpy's own has a text and neither of its parts.
        print(f"make_synthetic_model: write {error.filename or args.out}: {error.strerror or error}", file=sys.stderr)
        return 1


def make(args: argparse.Namespace, p: argparse.ArgumentParser) -> int:
    if args.shape in FOLDER_SHAPES or args.shape in ARMT_SHAPES:
        if args.type not in FOLDER_TYPES:
            p.error(f"--type {args.type}: a folder has one of {', '.join(FOLDER_TYPES)}")
        if args.shape in FOLDER_SHAPES:
            write_folder(FOLDER_SHAPES[args.shape], args.type, args.seed, args.out)
        else:
            write_armt(args.shape, args.type, args.seed, args.out, args)
        print(f"{args.out}: {sum(f.stat().st_size for f in args.out.iterdir()) / 2**20:.0f} MiB")
        return 0
    part = args.out.with_name(args.out.name + ".part")
    try:
        write_model(SHAPES[args.shape], args.type, args.seed, part)
        part.replace(args.out)
    finally:
        part.unlink(missing_ok=True)
    print(f"{args.out}: {args.out.stat().st_size / 2**20:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
