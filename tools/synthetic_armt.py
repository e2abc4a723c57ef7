"""Random weights in the shape of a Llama with recurrent memory (docs/recurrent-memory.md), as a folder in Hugging Face layout.

Each tensor's numbers follow from the seed and its name alone: models of other segments, and the base model, have the same weights. The base model's are one
shard, the memory's another. Memories stay small, max |A| and max z below 1e4, since the memory's matrices are: with W_mv as large as the others, reads made
the rows of later segments larger, and their keys overshot what z had of the first ones (6.8e7 after 12 segments of 16 and 128 tokens).
"""

import argparse
import json
import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from synthetic_folder import FOLDER_TYPES, STD, narrowed, write_tokenizer

MEMORY_STD = STD / 8  # of W_mq, W_mk and W_mv
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
CONTEXT = 1 << 18  # positions: the base model's longest prompt, and an answer
ROPE_LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


@dataclass
class ArmtShape:
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    rope: dict
    d_mem: int = 64


ARMT_SHAPES = {"armt-160m": ArmtShape(768, 3072, 12, 12, 12, 32000, {"rope_type": "default", "rope_theta": 10000.0}),
               "armt-llama-3.2-1b": ArmtShape(2048, 8192, 16, 32, 8, 128256, ROPE_LLAMA3 | {"rope_theta": 500000.0})}


def base_tensors_of(s: ArmtShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    kv = s.kv_heads * (s.hidden // s.heads)
    yield "model.embed_tokens.weight", (s.vocab, s.hidden)
    yield "model.norm.weight", (s.hidden,)
    for layer in range(s.layers):
        at = f"model.layers.{layer}."
        for name, rows, columns in (("self_attn.q_proj", s.hidden, s.hidden), ("self_attn.k_proj", kv, s.hidden), ("self_attn.v_proj", kv, s.hidden),
                                    ("self_attn.o_proj", s.hidden, s.hidden), ("mlp.gate_proj", s.ffn, s.hidden), ("mlp.up_proj", s.ffn, s.hidden),
                                    ("mlp.down_proj", s.hidden, s.ffn)):
            yield f"{at}{name}.weight", (rows, columns)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{norm}.weight", (s.hidden,)


def memory_tensors_of(s: ArmtShape, memory: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "memory", (memory, s.hidden)
    for layer in range(s.layers):
        at = f"model.layers.{layer}."
        yield f"{at}W_mq.weight", (s.d_mem, s.hidden)
        yield f"{at}W_mk.weight", (s.d_mem, s.hidden)
        yield f"{at}W_mv.weight", (s.hidden, s.hidden)
        yield f"{at}W_mb.weight", (1, s.hidden)
        yield f"{at}W_mb.bias", (1,)


def values_of(name: str, shape: tuple[int, ...], kind: str, seed: int, table: np.ndarray) -> np.ndarray:
    random = np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))
    if name.endswith("norm.weight"):
        return narrowed(random.uniform(0.9, 1.1, shape).astype(np.float32), kind)
    if any(f".{matrix}." in name for matrix in ("W_mq", "W_mk", "W_mv")):
        return narrowed((MEMORY_STD * random.standard_normal(shape)).astype(np.float32), kind)
    return table[random.integers(0, 1 << 16, shape, np.uint16)]


def write_weights(tensors: list[tuple[str, tuple[int, ...]]], kind: str, seed: int, path: Path) -> int:
    """safetensors: the header's bytes, a header of JSON, the tensors one behind another, whose bytes it returns."""
    size, at, header = np.dtype(FOLDER_TYPES[kind][0]).itemsize, 0, {}
    for name, shape in tensors:
        end = at + int(np.prod(shape)) * size
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    text += b" " * (-len(text) % 8)
    normal = np.random.Generator(np.random.SFC64(seed)).standard_normal(1 << 16)  # a billion draws one by one take minutes
    table = narrowed((STD * normal).astype(np.float32), kind)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name, shape in tensors:
                values_of(name, shape, kind, seed, table).tofile(file)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return at


def config_of(s: ArmtShape, kind: str) -> dict:
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": s.hidden, "intermediate_size": s.ffn,
            "num_hidden_layers": s.layers, "num_attention_heads": s.heads, "num_key_value_heads": s.kv_heads, "head_dim": s.hidden // s.heads,
            "vocab_size": s.vocab, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_parameters": s.rope,
            "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False, "dtype": FOLDER_TYPES[kind][1], "bos_token_id": 2, "eos_token_id": 2}


def begin_folder(folder: Path, config: dict, vocab: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.glob("model*.safetensors*"):  # another model's beside this one's settings would look whole
        other.unlink()
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_tokenizer(folder, vocab)


def write_armt(name: str, kind: str, seed: int, folder: Path, args: argparse.Namespace) -> None:
    s = ARMT_SHAPES[name]
    block = {"segment_size": args.segment, "num_mem_tokens": args.memory, "d_mem": s.d_mem}
    begin_folder(folder, config_of(s, kind) | {"armt": block}, s.vocab)
    parts = list(base_tensors_of(s)), list(memory_tensors_of(s, args.memory))
    size = sum(write_weights(tensors, kind, seed, folder / shard) for tensors, shard in zip(parts, SHARDS, strict=True))
    where = {tensor: shard for tensors, shard in zip(parts, SHARDS, strict=True) for tensor, _ in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": where}, indent=1) + "\n")
    if args.base is None:
        return
    begin_folder(args.base, config_of(s, kind), s.vocab)
    whole = args.base / "model.safetensors"
    try:
        os.link(folder / SHARDS[0], whole)
    except OSError:  # another file system
        shutil.copyfile(folder / SHARDS[0], whole)
