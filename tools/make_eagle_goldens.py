#!/usr/bin/env python3
"""Writes tests/fixtures/eagle: a tiny seeded target, an EAGLE and an EAGLE-3 draft head for it, and what the heads draft.

The heads are transcribed here in plain torch from their papers and their authors' code (arXiv:2401.15077, arXiv:2503.01840,
github.com/SafeAILab/EAGLE at cb7e084: cnets1.py, cnets.py), row by row over the whole context, without caches. The target is
transformers' Llama. Weights follow rules of their own beside the noise, so that some draft tokens are right. Needs torch, transformers
and safetensors. Run from the repository's root:
    python tools/make_eagle_goldens.py
"""

import json
import math
import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file

OUT = pathlib.Path("tests/fixtures/eagle")
SEED, STEPS = 6, 4
LEAST_GAP, LEAST_RANK_GAP = 1e-3, 2.5e-4  # logits are compared within 1e-4
HIDDEN, LAYERS, VOCAB, DRAFT_VOCAB, EPS = 32, 8, 96, 40, 1e-6
PROMPT_LENGTHS = (11, 1)
# EAGLE's fixed tree: ranks along the path of each node (choices.py, mc_sim_7b_63).
TREE = ((0,), (1,), (2,), (3,), (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (0, 0, 0), (0, 0, 1), (0, 0, 2),
        (0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1), (1, 0, 0), (0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 0, 2), (0, 0, 0, 0, 0),
        (0, 0, 0, 0, 1))
PARENTS = [TREE.index(path[:-1]) if len(path) > 1 else -1 for path in TREE]

random = torch.Generator().manual_seed(SEED)


def drawn(*shape: int, std: float) -> torch.Tensor:
    return std * torch.randn(shape, generator=random)


def weights(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return drawn(*shape, std=scale / math.sqrt(shape[-1]))


def norm_weight(size: int = HIDDEN) -> torch.Tensor:
    return 1 + drawn(size, std=0.1)


def head_config(**more) -> dict:
    """As the authors' training folders have it."""
    return {"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": HIDDEN,
            "initializer_range": 0.02, "intermediate_size": 48, "max_position_embeddings": 128, "model_type": "llama",
            "num_attention_heads": 4, "num_hidden_layers": 1, "pad_token_id": 0, "rms_norm_eps": EPS, "tie_word_embeddings": False,
            "torch_dtype": "float32", "transformers_version": "4.28.1", "use_cache": True, "vocab_size": VOCAB} | more


def write_target(folder: pathlib.Path) -> None:
    """The id behind v is v's image under a permutation, but for what the layers add."""
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=EPS, tie_word_embeddings=False, pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            parameter.copy_(norm_weight(*shape) if "norm" in name else weights(*shape, scale=0.5))
        embedding = drawn(VOCAB, HIDDEN, std=1.0)
        model.model.embed_tokens.weight.copy_(embedding)
        model.lm_head.weight[torch.randperm(VOCAB, generator=random)] = 0.5 * embedding + drawn(VOCAB, HIDDEN, std=0.15)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def layer_weights(prefix: str, kv_heads: int, columns: int) -> dict[str, torch.Tensor]:
    size = HIDDEN // 4 * kv_heads
    shapes = {"self_attn.q_proj": (HIDDEN, columns), "self_attn.k_proj": (size, columns), "self_attn.v_proj": (size, columns),
              "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (48, HIDDEN), "mlp.up_proj": (48, HIDDEN),
              "mlp.down_proj": (HIDDEN, 48)}
    return {f"{prefix}{name}.weight": weights(*shape, scale=0.6) for name, shape in shapes.items()} | {
        f"{prefix}post_attention_layernorm.weight": norm_weight()}


def write_head(folder: pathlib.Path, config: dict, tensors: dict[str, torch.Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})


def write_eagle1(folder: pathlib.Path, target: dict[str, torch.Tensor], _: list[int]) -> None:
    fuse = torch.cat((torch.eye(HIDDEN), 0.2 * torch.eye(HIDDEN)), dim=1) + drawn(HIDDEN, 2 * HIDDEN, std=0.11)
    write_head(folder, head_config(num_key_value_heads=2),
               {"embed_tokens.weight": target["model.embed_tokens.weight"], "fc.weight": fuse, "fc.bias": drawn(HIDDEN, std=0.1)} |
               layer_weights("layers.0.", 2, HIDDEN))


def write_eagle3(folder: pathlib.Path, target: dict[str, torch.Tensor], likely: list[int]) -> None:
    """Its head is the target's for the ids that the target says most. Its attention looks mostly at the row itself."""
    ids = torch.sort(torch.tensor(likely[:DRAFT_VOCAB])).values
    known = torch.zeros(VOCAB, dtype=torch.bool)
    known[ids] = True
    layer = layer_weights("midlayer.", 4, 2 * HIDDEN)
    for name, strength in (("q", 1.5), ("k", 1.5), ("v", 2.0)):
        layer[f"midlayer.self_attn.{name}_proj.weight"][:, :HIDDEN] += strength * torch.eye(HIDDEN)
    layer["midlayer.self_attn.o_proj.weight"] += 2 * torch.eye(HIDDEN)
    write_head(folder, head_config(draft_vocab_size=DRAFT_VOCAB),
               {"d2t": ids - torch.arange(DRAFT_VOCAB), "t2d": known, "fc.weight": weights(HIDDEN, 3 * HIDDEN, scale=0.7),
                "lm_head.weight": target["lm_head.weight"][ids], "norm.weight": norm_weight(),
                "midlayer.hidden_norm.weight": norm_weight(), "midlayer.input_layernorm.weight": norm_weight()} | layer)


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS))


def rotated(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    size = x.shape[-1]
    angles = positions[:, None].float() * (1.0 / 10000 ** (torch.arange(0, size, 2).float() / size))
    cos, sin = (torch.cat((part, part), dim=-1)[:, None] for part in (angles.cos(), angles.sin()))
    return x * cos + torch.cat((-x[..., size // 2:], x[..., :size // 2]), dim=-1) * sin


class Head:
    """Either head. Rows are [token, feature] pairs; `seen` says which rows a row's attention sees."""

    def __init__(self, folder: pathlib.Path, target: dict[str, torch.Tensor]):
        self.w = load_file(folder / "model.safetensors")
        self.third = "midlayer.hidden_norm.weight" in self.w
        self.layer = "midlayer." if self.third else "layers.0."
        self.embedding = target["model.embed_tokens.weight"]
        self.lm_head = self.w["lm_head.weight"] if self.third else target["lm_head.weight"]

    def target_ids(self, drafted: torch.Tensor) -> torch.Tensor:
        return drafted + self.w["d2t"][drafted] if self.third else drafted

    def attended(self, x: torch.Tensor, positions: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        q, k, v = (x @ self.w[f"{self.layer}self_attn.{name}_proj.weight"].T for name in "qkv")
        q, k, v = (y.view(len(x), -1, HIDDEN // 4) for y in (q, k, v))
        q, k = rotated(q, positions), rotated(k, positions)
        k, v = (y.repeat_interleave(4 // y.shape[1], dim=1) for y in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(HIDDEN // 4)
        shares = scores.masked_fill(~seen, -math.inf).softmax(dim=-1)
        return torch.einsum("hij,jhd->ihd", shares, v).reshape(len(x), HIDDEN) @ self.w[f"{self.layer}self_attn.o_proj.weight"].T

    def run(self, tokens: list[int], features: list[torch.Tensor], positions: list[int], seen: torch.Tensor):
        """Logits and next features of all rows."""
        embedded = self.embedding[tokens]
        if self.third:  # only features of the target go through fc
            x = torch.stack([self.w["fc.weight"] @ f if len(f) != HIDDEN else f for f in features])
            source = torch.cat((rms(embedded, self.w["midlayer.input_layernorm.weight"]),
                                rms(x, self.w["midlayer.hidden_norm.weight"])), dim=-1)
        else:
            x = torch.cat((embedded, torch.stack(features)), dim=-1) @ self.w["fc.weight"].T + self.w["fc.bias"]
            source = x
        x = x + self.attended(source, torch.tensor(positions), seen)
        y = rms(x, self.w[f"{self.layer}post_attention_layernorm.weight"])
        gate, up, down = (self.w[f"{self.layer}mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        x = x + (torch.nn.functional.silu(y @ gate.T) * (y @ up.T)) @ down.T
        return (rms(x, self.w["norm.weight"]) if self.third else x) @ self.lm_head.T, x

    def draft(self, tokens: list[int], features: list[torch.Tensor]):
        """The fixed tree behind a context: ids of its nodes, logits of the context's rows, logits and next features of the nodes."""
        n = len(tokens)
        seen = torch.zeros(n + len(TREE), n + len(TREE), dtype=torch.bool)
        seen[:n, :n] = torch.ones(n, n).tril().bool()
        seen[n:, :n] = True
        for i in range(len(TREE)):
            node = i
            while node >= 0:
                seen[n + i, n + node] = True
                node = PARENTS[node]
        tokens, features = list(tokens), list(features)
        positions = list(range(n)) + [n + len(path) - 1 for path in TREE]
        context_logits, gap = None, math.inf
        for depth in range(1, max(map(len, TREE)) + 2):
            rows = len(tokens)
            logits, x = self.run(tokens, features, positions[:rows], seen[:rows, :rows])
            context_logits = logits[:n] if context_logits is None else context_logits
            for path in (p for p in TREE if len(p) == depth):
                row = n - 1 if depth == 1 else n + TREE.index(path[:-1])
                best = torch.topk(logits[row], 5)  # ranks up to 3 are used
                gap = min(gap, (best.values[:-1] - best.values[1:]).min().item())
                tokens.append(self.target_ids(best.indices[path[-1]]).item())
                features.append(x[row])
        return tokens[n:], context_logits, logits[n:], x[n:], gap


class Target:
    def __init__(self, folder: pathlib.Path):
        self.model = transformers.LlamaForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()

    def run(self, ids: list[int], third: bool):
        out = self.model(torch.tensor([ids]), output_hidden_states=True)
        hidden = out.hidden_states  # [i]: in front of layer i; the last one is behind the final norm
        features = torch.cat([hidden[i][0] for i in (2, LAYERS // 2, LAYERS - 3)], dim=-1) if third else hidden[-1][0]
        return out.logits[0], features

    def likely_ids(self) -> list[int]:
        """All ids, those first that it says most often behind single ids and behind what it said."""
        counts = torch.zeros(VOCAB)
        ids = torch.arange(VOCAB)[:, None]
        for _ in range(12):
            ids = torch.cat((ids, self.model(ids).logits[:, -1].argmax(dim=-1, keepdim=True)), dim=1)
            counts += torch.bincount(ids[:, -1], minlength=VOCAB)
        return torch.sort(counts, descending=True, stable=True).indices.tolist()

    def next_id(self, ids: list[int]) -> int:
        best = torch.topk(self.run(ids, False)[0][-1], 2)
        assert best.values[0] - best.values[1] > LEAST_GAP, "two logits are too close: take another seed"
        return best.indices[0].item()


def drafted(target: Target, head: Head, prompt: list[int], name: str, tensors: dict[str, torch.Tensor]) -> tuple[dict, float]:
    ids, pending, steps, gap, fed = list(prompt), target.next_id(prompt), [], math.inf, 0
    greedy = [pending]
    tensors[f"{name}.features"] = target.run(ids, head.third)[1]
    for step in range(STEPS):
        features = target.run(ids, head.third)[1]
        nodes, context_logits, logits, hidden, step_gap = head.draft(ids[1:] + [pending], list(features))
        gap = min(gap, step_gap)
        tensors |= {f"{name}.step{step}.fed_logits": context_logits[fed:], f"{name}.step{step}.node_logits": logits,
                    f"{name}.step{step}.node_hidden": hidden}
        fed = len(ids)
        ids, parent, accepted = ids + [pending], -1, []
        while True:
            pending = target.next_id(ids)
            greedy.append(pending)
            right = [i for i in range(len(TREE)) if PARENTS[i] == parent and nodes[i] == pending]
            if not right:
                break
            parent = right[0]
            accepted.append(parent)
            ids.append(pending)
        steps.append({"node_ids": nodes, "accepted_nodes": accepted})
    return {"input_ids": prompt, "greedy_ids": greedy, "steps": steps}, gap


@torch.no_grad()
def main() -> None:
    torch.use_deterministic_algorithms(True)
    write_target(OUT / "target")
    weights_of_target = load_file(OUT / "target" / "model.safetensors")
    target = Target(OUT / "target")
    likely = target.likely_ids()
    prompts = [torch.randint(3, VOCAB, (n,), generator=random).tolist() for n in PROMPT_LENGTHS]
    for name, write in (("eagle1", write_eagle1), ("eagle3", write_eagle3)):
        folder = OUT / name
        write(folder, weights_of_target, likely)
        head, tensors = Head(folder, weights_of_target), {}
        runs = [drafted(target, head, prompt, f"prompt{i}", tensors) for i, prompt in enumerate(prompts)]
        gap = min(run[1] for run in runs)
        assert gap > LEAST_RANK_GAP, f"{name}: two logits {gap} apart decide a rank: take another seed"
        golden = {"versions": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__},
                  "smallest_rank_gap": float(f"{gap:.3g}"), "parents": PARENTS, "prompts": [run[0] for run in runs]}
        (folder / "golden.json").write_text(json.dumps(golden) + "\n")
        save_file({key: value.contiguous().clone() for key, value in tensors.items()}, folder / "golden.safetensors")
        largest = max(value.abs().max().item() for value in tensors.values())
        print(name, "largest", largest, "accepted", [[len(s["accepted_nodes"]) for s in run[0]["steps"]] for run in runs], "gap", gap)


if __name__ == "__main__":
    main()
