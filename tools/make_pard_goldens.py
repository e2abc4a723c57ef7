#!/usr/bin/env python3
"""A seeded tiny PARD checkpoint (arXiv:2504.18583), and what its parallel forward says: tests/fixtures/pard.

    make_pard_goldens.py            writes config.json, model.safetensors, golden.json, golden.safetensors
    make_pard_goldens.py --check    recomputes the goldens from the folder with transformers: exits 1 if they differ

The forward is written out here, in plain torch and without a cache: the text, DRAFT_TOKENS - 1 mask tokens behind it, and the last DRAFT_TOKENS
rows are the draft tokens. A text goes on with as many of its draft tokens as each length in turn keeps, then with an id of its own: so a drafter
that follows it sees draft tokens accepted and rejected. Needs torch and safetensors, --check transformers, too. Run from the repository's root.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

OUT = Path("tests/fixtures/pard")
HIDDEN, LAYERS, HEADS, KV_HEADS, FFN, VOCAB, CONTEXT = 48, 2, 4, 2, 96, 300, 96
HEAD_DIM, THETA, EPS = HIDDEN // HEADS, 1e6, 1e-6
MASK, DRAFT_TOKENS, PROMPT, CASES = VOCAB - 1, 6, 9, 12
SEED, SMALLEST_GAP = 20261122, 0.01

CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": HIDDEN, "intermediate_size": FFN,
          "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCAB,
          "max_position_embeddings": CONTEXT, "rms_norm_eps": EPS, "rope_theta": THETA, "hidden_act": "silu",
          "tie_word_embeddings": False, "use_sliding_window": False, "bos_token_id": 1, "eos_token_id": 2,
          "torch_dtype": "float32", "pard_token": MASK, "spd_type": "pard"}


def make_weights(generator: torch.Generator) -> dict[str, torch.Tensor]:
    weights = {}

    def matrix(name: str, rows: int, columns: int, scale: float = 1.0) -> None:
        weights[name] = torch.randn(rows, columns, generator=generator) * (scale / columns**0.5)

    def vector(name: str, size: int, lowest: float) -> None:
        weights[name] = lowest + torch.rand(size, generator=generator)

    matrix("model.embed_tokens.weight", VOCAB, HIDDEN, 3)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        for name, rows in (("q", HIDDEN), ("k", KV_HEADS * HEAD_DIM), ("v", KV_HEADS * HEAD_DIM)):
            matrix(f"{at}self_attn.{name}_proj.weight", rows, HIDDEN)
            vector(f"{at}self_attn.{name}_proj.bias", rows, -0.5)
        matrix(f"{at}self_attn.o_proj.weight", HIDDEN, HIDDEN)
        matrix(f"{at}mlp.gate_proj.weight", FFN, HIDDEN)
        matrix(f"{at}mlp.up_proj.weight", FFN, HIDDEN)
        matrix(f"{at}mlp.down_proj.weight", HIDDEN, FFN)
        vector(f"{at}input_layernorm.weight", HIDDEN, 0.5)
        vector(f"{at}post_attention_layernorm.weight", HIDDEN, 0.5)
    vector("model.norm.weight", HIDDEN, 0.5)
    matrix("lm_head.weight", VOCAB, HIDDEN, 3)
    weights["lm_head.weight"][MASK] *= 1.9  # the mask token is the likeliest now and then: whoever proposes it is found out
    return weights


def forward(w: dict[str, torch.Tensor], ids: list[int]) -> torch.Tensor:
    """Logits [len, vocab] of a Qwen2 decoder, one causal pass."""
    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return w[name] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS))

    def heads(x: torch.Tensor, name: str) -> torch.Tensor:  # [heads, len, head_dim]
        return (x @ w[f"{name}.weight"].T + w[f"{name}.bias"]).reshape(len(ids), -1, HEAD_DIM).transpose(0, 1)

    angles = torch.outer(torch.arange(len(ids), dtype=torch.float32),
                         1 / THETA ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.float32) / HEAD_DIM))
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def turn(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    hidden = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
    x = w["model.embed_tokens.weight"][ids]
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        y = norm(x, f"{at}input_layernorm.weight")
        q, k, v = (heads(y, f"{at}self_attn.{name}_proj") for name in "qkv")
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 0) for t in (turn(k), v))
        scores = (turn(q) @ k.transpose(1, 2) / HEAD_DIM**0.5).masked_fill(hidden, -torch.inf)
        read = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(ids), HIDDEN)
        x = x + read @ w[f"{at}self_attn.o_proj.weight"].T
        y = norm(x, f"{at}post_attention_layernorm.weight")
        gate = torch.nn.functional.silu(y @ w[f"{at}mlp.gate_proj.weight"].T)
        x = x + (gate * (y @ w[f"{at}mlp.up_proj.weight"].T)) @ w[f"{at}mlp.down_proj.weight"].T
    return norm(x, "model.norm.weight") @ w["lm_head.weight"].T


def with_masks(text: list[int]) -> list[int]:
    return text + [MASK] * (DRAFT_TOKENS - 1)


def best(logits: torch.Tensor) -> tuple[list[int], float]:
    """The likeliest ids but the mask, and the smallest lead of one of them."""
    allowed = logits.clone()
    allowed[:, MASK] = -torch.inf
    two = allowed.topk(2, -1)
    return two.indices[:, 0].tolist(), float((two.values[:, 0] - two.values[:, 1]).min())


def make() -> None:
    generator = torch.Generator().manual_seed(SEED)
    weights = make_weights(generator)

    def draw(count: int) -> list[int]:
        return torch.randint(3, MASK, (count,), generator=generator).tolist()

    text, cases, rows = [], [], []
    for case in range(CASES):
        gap = 0.0
        while gap <= SMALLEST_GAP:  # another id of its own where rounding might turn a draft token
            longer = text + (draw(PROMPT) if case == 0 else cases[-1]["draft_tokens"][: (case - 1) % (DRAFT_TOKENS + 1)] + draw(1))
            logits = forward(weights, with_masks(longer))[-DRAFT_TOKENS:]
            draft_tokens, gap = best(logits)
        text = longer
        rows.append(logits)
        cases.append({"length": len(text), "draft_tokens": draft_tokens, "masks_that_led": int((logits.argmax(-1) == MASK).sum())})
    led = sum(case["masks_that_led"] for case in cases)
    assert 0 < led < CASES * DRAFT_TOKENS, led
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    save_file(weights, OUT / "model.safetensors", metadata={"format": "pt"})
    save_file({"logits": torch.cat(rows).contiguous()}, OUT / "golden.safetensors")
    lines = ",\n".join(json.dumps(case) for case in cases)
    (OUT / "golden.json").write_text(f'{{"torch": "{torch.__version__}", "draft_tokens": {DRAFT_TOKENS}, "text": {json.dumps(text)},\n'
                                     f'"cases": [\n{lines}\n]}}\n')
    print(f"{CASES} cases, {len(text)} ids; the mask token led in {led} of {CASES * DRAFT_TOKENS} rows")


def check() -> int:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(OUT, dtype=torch.float32, attn_implementation="eager").eval()
    golden, expected = json.loads((OUT / "golden.json").read_text()), load_file(OUT / "golden.safetensors")["logits"]
    assert model.config.pard_token == MASK
    worst, same = 0.0, True
    for i, case in enumerate(golden["cases"]):
        logits = model(torch.tensor([with_masks(golden["text"][: case["length"]])])).logits[0, -DRAFT_TOKENS:]
        worst = max(worst, float((logits - expected[i * DRAFT_TOKENS : (i + 1) * DRAFT_TOKENS]).abs().max()))
        same = same and best(logits)[0] == case["draft_tokens"]
    print(f"transformers against the goldens: largest difference {worst:.2e}, the same draft tokens: {same}")
    return int(worst > 1e-4 or not same)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        if args.check:
            return check()
        make()
    return 0


if __name__ == "__main__":
    sys.exit(main())
