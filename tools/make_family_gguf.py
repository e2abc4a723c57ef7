#!/usr/bin/env python3
"""Checkpoints in Hugging Face's layout as F32 GGUF files, with the names and the layouts that llama.cpp's converter gives them.

    make_family_gguf.py CHECKPOINT... --out FOLDER      writes FOLDER/<name of the checkpoint's folder>.gguf

For checkpoints of F32 weights in one model.safetensors whose family llama.cpp has. There is no vocabulary in the files
(tokenizer.ggml.model is "none"). Needs gguf, safetensors, numpy; the same checkpoint gives the same bytes every time.

Where the converter would lose something that these checkpoints have, the file says it in the way llama.cpp reads it:
  - a window in every layer (Mistral) and the pattern of Gemma 3's windows: `attention.sliding_window` and `..._pattern`
  - Gemma 3's query_pre_attn_scalar, for which there is no key: the norms of the query heads are multiplied by what it changes
  - the original context of llama3 rope scaling: the converter takes 8192 where it stands inside rope_parameters
  - GPT-2's n_inner: the converter writes 4 * n_embd
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA, "mixtral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3, "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3, "gpt2": gguf.MODEL_ARCH.GPT2, "gpt_neox": gguf.MODEL_ARCH.GPTNEOX,
}
EXPERT = re.compile(r"model\.layers\.(\d+)\.(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(\w+)\.weight")
EXPERT_NAMES = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}


class Settings:
    """config.json, where the families have different names for the same thing."""

    def __init__(self, folder: Path):
        self.config = json.loads((folder / "config.json").read_text())
        self.family = self.config["model_type"]
        self.hidden = self.first("hidden_size", "n_embd")
        self.heads = self.first("num_attention_heads", "n_head")
        self.kv_heads = self.first("num_key_value_heads") or self.heads
        self.layers = self.first("num_hidden_layers", "n_layer")
        self.head_dim = self.first("head_dim") or self.hidden // self.heads
        rope = self.first("rope_parameters") or {}
        self.rope = rope.get("full_attention", rope)
        self.local_rope = rope.get("sliding_attention")

    def first(self, *keys: str):
        """The value of the first key that is there and not null."""
        return next((self.config[k] for k in keys if self.config.get(k) is not None), None)


def write_settings(writer: gguf.GGUFWriter, s: Settings) -> None:
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(s.first("max_position_embeddings", "n_positions"))
    writer.add_embedding_length(s.hidden)
    writer.add_block_count(s.layers)
    writer.add_feed_forward_length(s.first("intermediate_size", "n_inner") or 4 * s.hidden)
    writer.add_head_count(s.heads)
    writer.add_vocab_size(s.first("vocab_size"))
    writer.add_tokenizer_model("none")
    if (eps := s.first("rms_norm_eps")) is not None:
        writer.add_layer_norm_rms_eps(eps)
    if (eps := s.first("layer_norm_eps", "layer_norm_epsilon")) is not None:
        writer.add_layer_norm_eps(eps)
    if s.family == "gpt2":
        return
    if s.family == "gpt_neox":
        writer.add_parallel_residual(s.config.get("use_parallel_residual", True))
        writer.add_rope_dimension_count(int(s.rope["partial_rotary_factor"] * s.head_dim))
        return
    writer.add_head_count_kv(s.kv_heads)
    if s.first("head_dim") is not None:
        writer.add_key_length(s.head_dim)
        writer.add_value_length(s.head_dim)
    if ARCHITECTURES[s.family] == gguf.MODEL_ARCH.LLAMA:
        writer.add_rope_dimension_count(s.head_dim)
    write_rope(writer, s)
    write_windows(writer, s)
    if (experts := s.first("num_local_experts", "num_experts")) is not None:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(s.config["num_experts_per_tok"])
    if (ffn := s.first("moe_intermediate_size")) is not None:
        writer.add_expert_feed_forward_length(ffn)


def write_rope(writer: gguf.GGUFWriter, s: Settings) -> None:
    writer.add_rope_freq_base(s.rope["rope_theta"])
    if s.local_rope is not None:
        writer.add_rope_freq_base_swa(s.local_rope["rope_theta"])
    kind = s.rope["rope_type"]
    if kind in ("default", "llama3"):  # llama3 is a tensor
        return
    if kind not in ("linear", "yarn"):
        raise SystemExit(f"rope_type '{kind}': expected default, linear, llama3 or yarn")
    writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
    writer.add_rope_scaling_factor(s.rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(s.rope["original_max_position_embeddings"])
        if unknown := {"attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow", "truncate"} & s.rope.keys():
            raise SystemExit(f"rope_parameters: {', '.join(sorted(unknown))}: expected yarn with its usual numbers")


def write_windows(writer: gguf.GGUFWriter, s: Settings) -> None:
    if s.first("sliding_window") is None or s.config.get("use_sliding_window") is False:
        return
    writer.add_sliding_window(s.config["sliding_window"])
    if s.family != "gemma3_text":
        return
    types = s.config["layer_types"]
    period = types.index("full_attention") + 1
    if types != ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(s.layers)]:
        raise SystemExit("layer_types: expected a full layer after each equal number of sliding ones")
    writer.add_sliding_window_pattern(period)


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q and k as architecture `llama` has them: row d + half * head_dim / 2 of a head becomes row 2 d + half."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def unfused(weight: np.ndarray, heads: int) -> np.ndarray:
    """GPT-NeoX's q, k and v of each head behind each other become all q, all k, all v."""
    return weight.reshape(heads, 3, -1, *weight.shape[1:]).swapaxes(0, 1).reshape(weight.shape)


def rearranged(name: str, weight: np.ndarray, s: Settings) -> np.ndarray:
    if ARCHITECTURES[s.family] == gguf.MODEL_ARCH.LLAMA and ".q_proj." in name:
        return interleaved(weight, s.heads)
    if ARCHITECTURES[s.family] == gguf.MODEL_ARCH.LLAMA and ".k_proj." in name:
        return interleaved(weight, s.kv_heads)
    if s.family == "gpt_neox" and ".query_key_value." in name:
        return unfused(weight, s.heads)
    if s.family == "gpt2" and re.search(r"\.(c_attn|c_proj|c_fc)\.weight$", name):
        return weight.T
    if s.family == "gemma3_text" and name.endswith("norm.weight"):
        weight = weight + np.float32(1)
        if name.endswith("q_norm.weight"):  # a reader of GGUF scales the scores by 1 / sqrt(head_dim)
            weight = weight * np.float32(math.sqrt(s.head_dim / s.config["query_pre_attn_scalar"]))
    return weight


def rope_divisors(s: Settings) -> np.ndarray:
    """What llama3 scaling divides each frequency by; see arXiv:2407.21783 and transformers' `llama3`."""
    frequency = s.rope["rope_theta"] ** -(np.arange(0, s.head_dim, 2) / s.head_dim)
    turns = s.rope["original_max_position_embeddings"] * frequency / (2 * np.pi)
    low, high, factor = s.rope["low_freq_factor"], s.rope["high_freq_factor"], s.rope["factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - kept) / factor + kept)).astype(np.float32)


def file_tensors(folder: Path, s: Settings) -> Iterator[tuple[str, np.ndarray]]:
    names = gguf.get_tensor_name_map(ARCHITECTURES[s.family], s.layers)
    experts: dict[str, dict[int, np.ndarray]] = {}
    for name, weight in sorted(load_file(folder / "model.safetensors").items()):
        if weight.dtype != np.float32:
            raise SystemExit(f"{folder}: tensor {name}: expected F32, found {weight.dtype}")
        if expert := EXPERT.fullmatch(name):
            layer, number, matrix = expert.groups()
            experts.setdefault(f"blk.{layer}.ffn_{EXPERT_NAMES[matrix]}_exps.weight", {})[int(number)] = weight
            continue
        if (new_name := names.get_name(name, try_suffixes=(".weight", ".bias"))) is None:
            raise SystemExit(f"{folder}: tensor {name}: llama.cpp has no name for it")
        yield new_name, rearranged(name, weight, s)
    for name, by_number in experts.items():
        yield name, np.stack([by_number[i] for i in range(len(by_number))])
    if s.rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", rope_divisors(s)


def convert(folder: Path, out: Path) -> None:
    s = Settings(folder)
    if s.family not in ARCHITECTURES:
        raise SystemExit(f"{folder}: model_type '{s.family}': expected one of {', '.join(ARCHITECTURES)}")
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[ARCHITECTURES[s.family]])
    write_settings(writer, s)
    for name, weight in file_tensors(folder, s):
        writer.add_tensor(name, np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{out}: {out.stat().st_size} bytes")


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoints", type=Path, nargs="+", metavar="CHECKPOINT")
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for folder in args.checkpoints:
        convert(folder, args.out / f"{folder.resolve().name}.gguf")
    return 0


if __name__ == "__main__":
    sys.exit(main())
