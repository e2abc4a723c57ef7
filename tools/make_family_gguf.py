#!/usr/bin/env python3
"""Checkpoints in Hugging Face's layout as F32 GGUF files, with the names and the layouts that llama.cpp's converter gives them.

    make_family_gguf.py CHECKPOINT... --out FOLDER      writes FOLDER/<name of the checkpoint's folder>.gguf

For checkpoints of F32 weights in one model.safetensors whose family llama.cpp has. There is no vocabulary in the files
(tokenizer.ggml.model is "none"). Needs gguf, safetensors, numpy; the same checkpoint gives the same bytes every time.

Gated delta nets (qwen3next, qwen35, qwen35moe), of Hk key heads and Hv value heads:
  - attn_qkv has all q, all k, all v; attn_gate has z; Qwen3-Next's in_proj_qkvz has them key head by key head
  - qwen3next: value head h belongs to key head h / (Hv / Hk), as in the checkpoint; ssm_ba keeps the checkpoint's rows
  - qwen35, qwen35moe: value head h belongs to key head h mod Hk; so are the rows of v, z, a, b, A, dt, v's part of the convolution
    and the columns of ssm_out
  - ssm_a is -exp(A_log), computed in f64 and rounded once; every norm but ssm_norm is the checkpoint's plus 1
  - a draft head (mtp.*) is the block behind the layers; block_count counts it, nextn_predict_layers says so
  - full_attention_interval is always there, attention.recurrent_layers if config.json has layer_types: older files lack it

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
from collections.abc import Iterable, Iterator
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA, "mixtral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3, "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3, "gpt2": gguf.MODEL_ARCH.GPT2, "gpt_neox": gguf.MODEL_ARCH.GPTNEOX,
    "qwen3_next": gguf.MODEL_ARCH.QWEN3NEXT, "qwen3_5_text": gguf.MODEL_ARCH.QWEN35, "qwen3_5_moe_text": gguf.MODEL_ARCH.QWEN35MOE,
}
TILED = (gguf.MODEL_ARCH.QWEN35, gguf.MODEL_ARCH.QWEN35MOE)
DELTA_NETS = (gguf.MODEL_ARCH.QWEN3NEXT, *TILED)
EXPERT = re.compile(r"model\.layers\.(\d+)\.(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(\w+)\.weight")
ALL_EXPERTS = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up_proj|down_proj)")
DRAFT_NAMES = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm"}
EXPERT_NAMES = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}


class Settings:
    """config.json, where the families have different names for the same thing."""

    def __init__(self, folder: Path, tensors: Iterable[str]):
        self.config = json.loads((folder / "config.json").read_text())
        self.config = self.config.get("text_config", self.config)
        self.family = self.config["model_type"]
        self.architecture = ARCHITECTURES.get(self.family)
        self.hidden = self.first("hidden_size", "n_embd")
        self.heads = self.first("num_attention_heads", "n_head")
        self.kv_heads = self.first("num_key_value_heads") or self.heads
        self.layers = self.first("num_hidden_layers", "n_layer")
        self.head_dim = self.first("head_dim") or self.hidden // self.heads
        self.draft_layers = 1 if any(name.startswith("mtp.") for name in tensors) else 0
        rope = self.first("rope_parameters") or {"rope_type": "default"} | {
            k: self.config[k] for k in ("rope_theta", "partial_rotary_factor") if k in self.config}
        self.rope = rope.get("full_attention", rope)
        self.local_rope = rope.get("sliding_attention")

    def first(self, *keys: str):
        """The value of the first key that is there and not null."""
        return next((self.config[k] for k in keys if self.config.get(k) is not None), None)


def write_settings(writer: gguf.GGUFWriter, s: Settings) -> None:
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(s.first("max_position_embeddings", "n_positions"))
    writer.add_embedding_length(s.hidden)
    writer.add_block_count(s.layers + s.draft_layers)
    if (ffn := s.first("intermediate_size", "n_inner") or (4 * s.hidden if s.family == "gpt2" else None)) is not None:
        writer.add_feed_forward_length(ffn)
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
    if s.architecture == gguf.MODEL_ARCH.LLAMA:
        writer.add_rope_dimension_count(s.head_dim)
    write_rope(writer, s)
    write_windows(writer, s)
    if (experts := s.first("num_local_experts", "num_experts")) is not None:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(s.config["num_experts_per_tok"])
    if (ffn := s.first("moe_intermediate_size")) is not None:
        writer.add_expert_feed_forward_length(ffn)
    if (ffn := s.first("shared_expert_intermediate_size")) is not None:
        writer.add_expert_shared_feed_forward_length(ffn)
    if s.architecture in DELTA_NETS:
        write_delta_net(writer, s)


def write_delta_net(writer: gguf.GGUFWriter, s: Settings) -> None:
    writer.add_ssm_conv_kernel(s.config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(s.config["linear_key_head_dim"])
    writer.add_ssm_group_count(s.config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(s.config["linear_num_value_heads"])
    writer.add_ssm_inner_size(s.config["linear_value_head_dim"] * s.config["linear_num_value_heads"])
    if (types := s.first("layer_types")) is not None:
        recurrent = [t == "linear_attention" for t in types] + [False] * s.draft_layers
        writer.add_array(f"{gguf.MODEL_ARCH_NAMES[s.architecture]}.attention.recurrent_layers", recurrent)
    writer.add_full_attention_interval(s.config.get("full_attention_interval", 4))
    writer.add_rope_dimension_count(int(s.head_dim * s.rope.get("partial_rotary_factor", 0.25)))
    if s.architecture in TILED:  # the positions of a text are equal in all sections; the key is required
        writer.add_rope_dimension_sections((s.rope.get("mrope_section", [11, 11, 10]) + [0] * 4)[:4])
    if s.draft_layers > 0:
        writer.add_nextn_predict_layers(s.draft_layers)


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


def split_qkvz(weight: np.ndarray, s: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Of Qwen3-Next's q, k, v and z of each key head behind each other: all q, all k, all v; and all z."""
    key_heads, key_dim = s.config["linear_num_key_heads"], s.config["linear_key_head_dim"]
    values = s.config["linear_num_value_heads"] // key_heads * s.config["linear_value_head_dim"]
    parts = np.split(weight.reshape(key_heads, -1, weight.shape[1]), np.cumsum([key_dim, key_dim, values]), axis=1)
    q, k, v, z = (part.reshape(-1, weight.shape[1]) for part in parts)
    return np.concatenate((q, k, v)), z


def tiled(weight: np.ndarray, s: Settings) -> np.ndarray:
    """Along the first dimension: value heads key head by key head become those first of each key head, then the second."""
    key_heads, value_heads = s.config["linear_num_key_heads"], s.config["linear_num_value_heads"]
    return weight.reshape(key_heads, value_heads // key_heads, -1, *weight.shape[1:]).swapaxes(0, 1).reshape(weight.shape)


def delta_net(name: str, weight: np.ndarray, s: Settings) -> np.ndarray:
    if name.endswith(".conv1d.weight"):
        weight = weight.squeeze(1)
    if s.architecture in TILED and ".linear_attn." in name and not name.endswith(".norm.weight"):
        if name.endswith(".out_proj.weight"):
            weight = tiled(weight.T, s).T
        elif re.search(r"\.(in_proj_qkv|conv1d)\.", name):
            keys = 2 * s.config["linear_num_key_heads"] * s.config["linear_key_head_dim"]
            weight = np.concatenate((weight[:keys], tiled(weight[keys:], s)))
        else:
            weight = tiled(weight, s)
    if name.endswith(".A_log"):
        return (-np.exp(weight.astype(np.float64))).astype(np.float32)
    if name.endswith("norm.weight") and not name.endswith(".linear_attn.norm.weight") or re.search(r"\.pre_fc_norm_", name):
        return weight + np.float32(1)
    return weight


def rearranged(name: str, weight: np.ndarray, s: Settings) -> np.ndarray:
    if s.architecture == gguf.MODEL_ARCH.LLAMA and ".q_proj." in name:
        return interleaved(weight, s.heads)
    if s.architecture == gguf.MODEL_ARCH.LLAMA and ".k_proj." in name:
        return interleaved(weight, s.kv_heads)
    if s.architecture in DELTA_NETS:
        return delta_net(name, weight, s)
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


def text_name(name: str, s: Settings) -> str | None:
    """As the text model alone has it, a draft head's layer as one more layer; None for an image encoder's."""
    if name.startswith("model.visual."):
        return None
    name = name.replace("model.language_model.", "model.", 1)
    return name.replace("mtp.layers.0.", f"model.layers.{s.layers}.", 1)


def file_tensors(folder: Path, tensors: dict[str, np.ndarray], s: Settings) -> Iterator[tuple[str, np.ndarray]]:
    names = gguf.get_tensor_name_map(s.architecture, s.layers + s.draft_layers)
    experts: dict[str, dict[int, np.ndarray]] = {}
    for file_name, weight in sorted(tensors.items()):
        if weight.dtype != np.float32:
            raise SystemExit(f"{folder}: tensor {file_name}: expected F32, found {weight.dtype}")
        if (name := text_name(file_name, s)) is None:
            continue
        if draft := re.fullmatch(r"mtp\.(\w+)\.weight", name):
            yield f"blk.{s.layers}.nextn.{DRAFT_NAMES[draft[1]]}.weight", rearranged(name, weight, s)
            continue
        if name.endswith(".in_proj_qkvz.weight"):
            block = f"blk.{name.split('.')[2]}"
            for part, rows in zip(("attn_qkv", "attn_gate"), split_qkvz(weight, s)):
                yield f"{block}.{part}.weight", rows
            continue
        if fused := ALL_EXPERTS.fullmatch(name):
            layer, matrix = fused.groups()
            parts = ("gate", "up") if matrix == "gate_up_proj" else ("down",)
            for part, half in zip(parts, np.split(weight, len(parts), axis=1)):
                yield f"blk.{layer}.ffn_{part}_exps.weight", half
            continue
        name = name.replace(".dt_bias", ".dt_proj.bias")
        if expert := EXPERT.fullmatch(name):
            layer, number, matrix = expert.groups()
            experts.setdefault(f"blk.{layer}.ffn_{EXPERT_NAMES[matrix]}_exps.weight", {})[int(number)] = weight
            continue
        if (new_name := names.get_name(name, try_suffixes=(".weight", ".bias"))) is None:
            raise SystemExit(f"{folder}: tensor {file_name}: llama.cpp has no name for it")
        yield new_name, rearranged(name, weight, s)
    for name, by_number in experts.items():
        yield name, np.stack([by_number[i] for i in range(len(by_number))])
    if s.rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", rope_divisors(s)


def convert(folder: Path, out: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    s = Settings(folder, tensors)
    if s.architecture is None:
        raise SystemExit(f"{folder}: model_type '{s.family}': expected one of {', '.join(ARCHITECTURES)}")
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[s.architecture])
    write_settings(writer, s)
    for name, weight in file_tensors(folder, tensors, s):
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
