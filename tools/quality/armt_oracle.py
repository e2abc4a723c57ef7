"""Recurrent memory transformers in torch, segment by segment: what our engine is compared with. With associative memories (ARMT):        arXiv:2407.04841

    one cell, layer l of segment s, rows x [S + M, hidden]: the tokens' rows and behind them those of M learned memory tokens
    read     x + (phi(W_mq x) A) / (phi(W_mq x) z + eps)                        all rows, unnormalised; not in the first segment
    layer    y = the base model's layer, causal over the S + M rows of this segment
    write    k = phi(W_mk y), v = W_mv y, b = sigmoid(W_mb y)                   the last M rows; all of them see the old A, z
             A += b k (v - (k A) / (k z + eps))^T, z += gamma k                 gamma = clip(1 - (k z + eps) / (k k + eps), 0, 1)
    phi      DPFP: c = [relu(x), relu(-x)], then c * roll(c, j) for j = 1 .. nu; 2 nu d_mem features

A [features, hidden] and z [features] of each layer are zero before the first segment. It writes with gamma 1 and subtracts nothing. Base models: Llama,
Qwen2, GPT-2, in the names of their checkpoints; memory_cell.model. in front and .layer. within a layer, as the authors write them, may be there.

Without (RMT, arXiv:2207.06881): a segment's rows are [memory, tokens, memory], and the next one's memory is what the last norm gives of the last M rows.
"""

import math

import torch
from torch.nn import functional as F

EPS = 1e-5  # in all three denominators


def plain_name(name: str) -> str:
    """memory_cell.model.model.layers.0.layer.mlp.up_proj.weight -> model.layers.0.mlp.up_proj.weight"""
    if name.startswith("memory_cell."):
        name = name.removeprefix("memory_cell.").removeprefix("model.")
    return name.replace(".layer.", ".")


def dpfp(x: torch.Tensor, nu: int) -> torch.Tensor:
    """[..., n] -> [..., 2 nu n]"""
    c = torch.cat([F.relu(x), F.relu(-x)], -1)
    return torch.cat([c * torch.roll(c, j, -1) for j in range(1, nu + 1)], -1)


def segment_lengths(length: int, size: int, alignment: str) -> list[int]:
    """left: the short segment is last. right: it is first. center: ceil(length / size) segments of one length, the last one perhaps shorter."""
    count = math.ceil(length / size)
    if alignment == "center":
        return [len(part) for part in torch.arange(length).chunk(count)]
    short = length - (count - 1) * size
    return [short] + [size] * (count - 1) if alignment == "right" else [size] * (count - 1) + [short]


def rotate(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """x [batch, heads, rows, head_dim]"""
    d = x.shape[-1]
    angles = torch.outer(positions.to(x.dtype), theta ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)).repeat(1, 2)
    low, high = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-high, low], -1) * angles.sin()


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q [batch, heads, rows, head_dim], k and v with fewer heads perhaps -> [batch, rows, heads x head_dim]"""
    group, rows = q.shape[1] // k.shape[1], q.shape[2]
    scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) * q.shape[-1] ** -0.5
    later = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    y = scores.masked_fill(later, -torch.inf).softmax(-1) @ v.repeat_interleave(group, 1)
    return y.transpose(1, 2).flatten(2)


class Llama:
    """Llama's layers, and Qwen2's, which have biases on queries, keys and values."""

    layers, embedding = "model.layers.", "model.embed_tokens.weight"

    def __init__(self, config: dict):
        self.eps, self.theta = config["rms_norm_eps"], config["rope_parameters"]["rope_theta"]
        self.head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]

    def embed(self, tensors: dict, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return rows

    def layer(self, p: dict, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        h = rms_norm(x, p["input_layernorm.weight"], self.eps)
        q, k, v = (F.linear(h, p[f"self_attn.{n}_proj.weight"], p.get(f"self_attn.{n}_proj.bias")).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
                   for n in "qkv")
        q, k = rotate(q, positions, self.theta), rotate(k, positions, self.theta)
        x = x + F.linear(attention(q, k, v), p["self_attn.o_proj.weight"])
        h = rms_norm(x, p["post_attention_layernorm.weight"], self.eps)
        return x + F.linear(F.silu(F.linear(h, p["mlp.gate_proj.weight"])) * F.linear(h, p["mlp.up_proj.weight"]), p["mlp.down_proj.weight"])

    def last_norm(self, tensors: dict, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, tensors["model.norm.weight"], self.eps)


class Gpt2:
    """Weights of projections are [in, out]."""

    layers, embedding = "transformer.h.", "transformer.wte.weight"

    def __init__(self, config: dict):
        self.eps, self.heads = config["layer_norm_epsilon"], config["n_head"]

    def norm(self, x: torch.Tensor, p: dict, name: str) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"], self.eps)

    def project(self, x: torch.Tensor, p: dict, name: str) -> torch.Tensor:
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def embed(self, tensors: dict, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return rows + tensors["transformer.wpe.weight"][positions]

    def layer(self, p: dict, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        parts = self.project(self.norm(x, p, "ln_1"), p, "attn.c_attn").chunk(3, -1)
        x = x + self.project(attention(*(part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)), p, "attn.c_proj")
        return x + self.project(F.gelu(self.project(self.norm(x, p, "ln_2"), p, "mlp.c_fc"), approximate="tanh"), p, "mlp.c_proj")

    def last_norm(self, tensors: dict, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x, tensors, "transformer.ln_f")


class Armt:
    """A state is a list over layers of (A [batch, features, hidden], z [batch, features]), or None before the first segment."""

    def __init__(self, config: dict, tensors: dict[str, torch.Tensor], dtype: torch.dtype = torch.float64):
        self.settings, self.base = config.get("armt") or config["rmt"], (Gpt2 if config["model_type"] == "gpt2" else Llama)(config)
        self.tensors = {plain_name(n): t.to(dtype) for n, t in tensors.items()}
        self.memory, self.layers = self.tensors["memory"], []
        for i in range(config.get("num_hidden_layers") or config["n_layer"]):
            prefix = f"{self.base.layers}{i}."
            self.layers.append({n.removeprefix(prefix): t for n, t in self.tensors.items() if n.startswith(prefix)})
        self.reads = True  # False: what the logits are without memory

    def phi(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return dpfp(F.linear(x, weight), self.settings["nu"])

    def read(self, p: dict, x: torch.Tensor, A: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        f = self.phi(x, p["W_mq.weight"])
        return x + (f @ A) / (f @ z[..., None] + EPS)

    def write(self, p: dict, rows: torch.Tensor, state: tuple | None) -> tuple[torch.Tensor, torch.Tensor]:
        k, v = self.phi(rows, p["W_mk.weight"]), F.linear(rows, p["W_mv.weight"])
        beta = torch.sigmoid(F.linear(rows, p["W_mb.weight"], p["W_mb.bias"]))
        if state is None:
            return k.transpose(1, 2) @ (beta * v), k.sum(1)
        A, z = state
        known = k @ z[..., None] + EPS
        gamma = (1 - known / (k.pow(2).sum(-1, keepdim=True) + EPS)).clamp(0, 1) if self.settings["correction"] else torch.ones_like(known)
        return A + k.transpose(1, 2) @ (beta * (v - (k @ A) / known)), z + (gamma * k).sum(1)

    def positions(self, tokens: int, with_memory: bool) -> torch.Tensor:
        """They start at 0 in every segment. Memory follows the tokens, or with wrap_pos has the last rows of the position table."""
        count = len(self.memory) if with_memory else 0
        first = len(self.tensors["transformer.wpe.weight"]) - count if self.settings["wrap_pos"] else tokens
        return torch.cat([torch.arange(tokens), torch.arange(first, first + count)])

    def segment(self, ids: torch.Tensor, state: list | None, with_memory: bool = True) -> tuple[torch.Tensor, list | None]:
        """ids [batch, S] -> all rows behind the last norm [batch, S + M, hidden], and the state behind the segment."""
        x = self.tensors[self.base.embedding][ids]
        if with_memory:
            x = torch.cat([x, self.memory.expand(len(ids), -1, -1)], 1)
        positions, new = self.positions(ids.shape[1], with_memory), []
        x = self.base.embed(self.tensors, x, positions)
        for i, p in enumerate(self.layers):
            if state is not None and self.reads:
                x = self.read(p, x, *state[i])
            x = self.base.layer(p, x, positions)
            if with_memory:
                new.append(self.write(p, x[:, ids.shape[1]:], state[i] if state else None))
        return self.base.last_norm(self.tensors, x), new if with_memory else state

    def named(self, state: list) -> dict[str, torch.Tensor]:
        return {n: t[0] for layer, (A, z) in enumerate(state) for n, t in ((f"A.{layer}", A), (f"z.{layer}", z))}

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        return F.linear(rows, self.tensors.get("lm_head.weight", self.tensors[self.base.embedding]))

    def parts(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return ids.split(segment_lengths(ids.shape[1], self.settings["segment_size"], self.settings["segment_alignment"]), 1)

    def score(self, ids: torch.Tensor) -> tuple[torch.Tensor, list[list]]:
        """ids [batch, len] -> logits [batch, len, vocab] and the states behind each segment. Every segment writes, the last one, too."""
        state, states, logits = None, [], []
        for part in self.parts(ids):
            rows, state = self.segment(part, state)
            logits.append(self.logits(rows[:, :part.shape[1]]))
            states.append(state)
        return torch.cat(logits, 1), states

    def before_last(self, ids: torch.Tensor) -> tuple[list | None, torch.Tensor]:
        """The state in front of the last segment, and that segment's ids."""
        state, parts = None, self.parts(ids)
        for part in parts[:-1]:
            state = self.segment(part, state)[1]
        return state, parts[-1]

    def generate(self, ids: torch.Tensor, new_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Greedy ids [batch, new_tokens] and the logits they are the best of. The last segment, full or not, has no memory tokens, reads a state that
        stays, and grows by the new tokens beyond segment_size."""
        state, last = self.before_last(ids)
        logits = []
        for _ in range(new_tokens):
            rows, _ = self.segment(last, state, with_memory=False)
            logits.append(self.logits(rows[:, -1]))
            last = torch.cat([last, logits[-1].argmax(-1, keepdim=True)], 1)
        return last[:, -new_tokens:], torch.stack(logits, 1)


class Rmt(Armt):
    """A state is the memory of the next segment [batch, M, hidden], or None before the first segment, whose memory is learned."""

    def rows(self, ids: torch.Tensor, state: torch.Tensor | None, with_memory: bool = True) -> torch.Tensor:
        """All rows of a segment behind the last norm."""
        memory = self.memory.expand(len(ids), -1, -1) if state is None or not self.reads else state
        x = torch.cat([memory, self.tensors[self.base.embedding][ids], memory][:3 if with_memory else 2], 1)
        positions = torch.arange(x.shape[1])
        x = self.base.embed(self.tensors, x, positions)
        for p in self.layers:
            x = self.base.layer(p, x, positions)
        return self.base.last_norm(self.tensors, x)

    def segment(self, ids: torch.Tensor, state: torch.Tensor | None, with_memory: bool = True) -> tuple[torch.Tensor, torch.Tensor | None]:
        x, count = self.rows(ids, state, with_memory), len(self.memory)
        return x[:, count:count + ids.shape[1]], x[:, -count:] if with_memory else state

    def named(self, state: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"memory": state[0]}


def model_of(config: dict, tensors: dict[str, torch.Tensor], dtype: torch.dtype = torch.float64) -> Armt:
    return (Armt if "armt" in config else Rmt)(config, tensors, dtype)
