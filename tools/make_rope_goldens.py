#!/usr/bin/env python3
"""Writes tests/fixtures/rope/transformers.json: what transformers makes of rope_scaling={"rope_type": KIND, "factor": FACTOR}.

`tables`: inverse frequencies and attention factor of models' settings. `logits`: seeded checkpoints of tests/fixtures/families with the
scaling in place of their own, fed more ids than their own context has, at a few positions. Needs torch and transformers. Run from the
repository's root:
    python tools/make_rope_goldens.py
"""

import copy
import json
import pathlib
import random

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

FAMILIES = pathlib.Path("tests/fixtures/families")
OUT = pathlib.Path("tests/fixtures/rope/transformers.json")
SEED, LENGTH = 20261122, 300
POSITIONS = (5, 127, 128, 210, 299)  # the checkpoints' own context is 128

CONFIGS = {  # sizes of rope as real models have them
    "qwen2.5-1.5b": transformers.Qwen2Config(hidden_size=1536, num_attention_heads=12, max_position_embeddings=32768,
                                             rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "llama-2-7b": transformers.LlamaConfig(hidden_size=4096, num_attention_heads=32, max_position_embeddings=4096,
                                           rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
    "llama-3.2-1b": transformers.LlamaConfig(  # its own llama3 scaling is replaced
        hidden_size=2048, num_attention_heads=32, head_dim=64, max_position_embeddings=131072,
        rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192}),
    "pythia-410m": transformers.GPTNeoXConfig(hidden_size=1024, num_attention_heads=16, max_position_embeddings=2048,
                                              rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                                               "partial_rotary_factor": 0.25}),
    "tiny": transformers.LlamaConfig(hidden_size=64, num_attention_heads=4, max_position_embeddings=128,
                                     rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
}
SCALINGS = (("linear", 4.0), ("linear", 2.5), ("yarn", 4.0), ("yarn", 1.25), ("yarn", 40.0), ("yarn", 1024.0))
LOGITS = (("qwen2", "yarn", 4.0), ("qwen2", "linear", 4.0), ("llama3_rope", "yarn", 4.0), ("llama_yarn", "linear", 2.5),
          ("gemma3_text", "yarn", 8.0), ("gpt_neox", "yarn", 3.0), ("mistral", "yarn", 2.5))


def scaled(config, kind: str, factor: float):
    """The config with this scaling in place of its own; of two ropes only in that of the layers that see everything."""
    own = config.rope_parameters
    nested = "full_attention" in own
    base = own["full_attention"] if nested else own
    rope = {k: base[k] for k in ("rope_theta", "partial_rotary_factor") if k in base} | {"rope_type": kind, "factor": factor}
    config.rope_parameters = own | {"full_attention": rope} if nested else rope
    config.standardize_rope_params()
    return config


def numbers(tensor: torch.Tensor) -> list[float]:
    return [float(f"{x:.9g}") for x in tensor.tolist()]


def table(name: str, kind: str, factor: float) -> dict:
    config = scaled(copy.deepcopy(CONFIGS[name]), kind, factor)
    frequencies, attention = ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    return {"model": name, "rope_type": kind, "factor": factor, "rope_theta": config.rope_parameters["rope_theta"],
            "max_position_embeddings": config.max_position_embeddings, "rotary_dim": 2 * len(frequencies),
            "attention_factor": attention, "inv_freq": numbers(frequencies)}


def logits_of(family: str, config, ids: list[int]) -> torch.Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(FAMILIES / family, config=config, dtype=torch.float32,
                                                              attn_implementation="eager").eval()
    return model(torch.tensor([ids])).logits[0]


def logits(family: str, kind: str, factor: float, ids: list[int]) -> dict:
    config = transformers.AutoConfig.from_pretrained(FAMILIES / family)
    own = logits_of(family, config, ids)
    other = logits_of(family, scaled(transformers.AutoConfig.from_pretrained(FAMILIES / family), kind, factor), ids)
    moved = [float((own[p] - other[p]).abs().max()) for p in POSITIONS]
    assert min(moved) > 0.01, f"{family} {kind} {factor}: logits that the scaling hardly moves show nothing: {moved}"
    print(f"{family} {kind}={factor:g}: the scaling moves logits by {min(moved):.3f} to {max(moved):.3f}")
    return {"family": family, "rope_type": kind, "factor": factor, "logits": [numbers(other[p]) for p in POSITIONS]}


def main() -> None:
    torch.set_num_threads(1)
    rng = random.Random(SEED)
    ids = [rng.randrange(128) for _ in range(LENGTH)]
    with torch.inference_mode():
        tables = [table(name, kind, factor) for name in CONFIGS for kind, factor in SCALINGS]
        cases = [logits(family, kind, factor, ids) for family, kind, factor in LOGITS]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = {key: "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]"
             for key, rows in (("tables", tables), ("logits", cases))}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(f'{{"versions":{json.dumps(versions)},"ids":{json.dumps(ids)},"positions":{json.dumps(POSITIONS)},\n'
                   f'"tables":{lines["tables"]},\n"logits":{lines["logits"]}}}\n')
    print(f"{OUT}: {len(tables)} tables, {len(cases)} cases, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
