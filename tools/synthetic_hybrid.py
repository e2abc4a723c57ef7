"""The tensors and settings of a Qwen3.5 in llama.cpp's names, for make_synthetic_model.py: linear attention in three of four layers."""

from collections.abc import Iterator
from dataclasses import dataclass

import gguf
import numpy as np

Type = gguf.GGMLQuantizationType


@dataclass
class Linear:
    """Of linear attention layers, and of what else a hybrid's attention has."""
    key_heads: int = 16
    value_heads: int = 16
    dim: int = 128  # of keys and of values
    conv: int = 4
    interval: int = 4  # every so many layers one has full attention
    head_dim: int = 256  # of that
    rotary: int = 64

    @property
    def channels(self) -> int:
        return (2 * self.key_heads + self.value_heads) * self.dim


def layer_of(s, layer: int) -> Iterator[tuple[str, int, int]]:
    """(name, rows, columns); one row: a vector."""
    n, inner = s.linear, s.linear.value_heads * s.linear.dim
    yield "attn_norm.weight", 1, s.hidden
    if (layer + 1) % n.interval == 0:
        wide = s.heads * n.head_dim
        yield "attn_q.weight", 2 * wide, s.hidden
        yield "attn_k.weight", s.kv_heads * n.head_dim, s.hidden
        yield "attn_v.weight", s.kv_heads * n.head_dim, s.hidden
        yield "attn_output.weight", s.hidden, wide
        yield "attn_q_norm.weight", 1, n.head_dim
        yield "attn_k_norm.weight", 1, n.head_dim
    else:
        yield "attn_qkv.weight", n.channels, s.hidden
        yield "attn_gate.weight", inner, s.hidden
        yield "ssm_beta.weight", n.value_heads, s.hidden
        yield "ssm_alpha.weight", n.value_heads, s.hidden
        yield "ssm_conv1d.weight", n.channels, n.conv
        yield "ssm_dt.bias", 1, n.value_heads
        yield "ssm_a", 1, n.value_heads
        yield "ssm_norm.weight", 1, n.dim
        yield "ssm_out.weight", s.hidden, inner
    yield "post_attention_norm.weight", 1, s.hidden
    yield "ffn_gate.weight", s.ffn, s.hidden
    yield "ffn_up.weight", s.ffn, s.hidden
    yield "ffn_down.weight", s.hidden, s.ffn


def write_settings(writer: gguf.GGUFWriter, s) -> None:
    n = s.linear
    writer.add_key_length(n.head_dim)
    writer.add_value_length(n.head_dim)
    writer.add_rope_dimension_count(n.rotary)
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_ssm_conv_kernel(n.conv)
    writer.add_ssm_state_size(n.dim)
    writer.add_ssm_group_count(n.key_heads)
    writer.add_ssm_time_step_rank(n.value_heads)
    writer.add_ssm_inner_size(n.value_heads * n.dim)
    writer.add_uint32(f"{s.architecture}.full_attention_interval", n.interval)


def vector(random: np.random.Generator, name: str, size: int) -> np.ndarray | None:
    """What is not drawn as a norm's weight: decays of about 1 to 16 tokens' memory and more."""
    if name.endswith("ssm_a"):
        return -np.exp(random.uniform(-4, 1, size)).astype(np.float32)
    if name.endswith("ssm_dt.bias"):
        return random.uniform(-3, 1, size).astype(np.float32)
    return None
