#!/usr/bin/env python3
"""Writes tests/fixtures/rope/keys.json: the ropes that transformers makes of the keys of config.json, in all their shapes.

Each case is a config.json over `base`, the same for all; `ropes` has inverse frequencies and attention factor of each kind of layer ("all", or
"full_attention" and "sliding_attention"). Where transformers fails, or leaves keys aside that say something, `ropes` is not there: such a file is to be
refused, and `refused` says the key that the message names.
"""
import importlib
import json
import logging
import pathlib
import sys
import tempfile

import transformers
from transformers import AutoConfig

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/rope/keys.json"
BASE = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
        "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 32}
CLASSES = {"llama": ("llama", "Llama"), "qwen3": ("qwen3", "Qwen3"), "mixtral": ("mixtral", "Mixtral"),
           "gpt_neox": ("gpt_neox", "GPTNeoX"), "gemma3_text": ("gemma3", "Gemma3")}
LAYERS = {family: {"layer_types": ["full_attention", "sliding_attention"]} if family == "gemma3_text" else {} for family in CLASSES}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
DEFAULT = {"rope_type": "default", "rope_theta": 5e5}

CASES = [
    ("llama", {}), ("mixtral", {}), ("gpt_neox", {}), ("gemma3_text", {}),
    ("llama", {"rope_theta": 5e5}),
    ("llama", {"rope_parameters": DEFAULT}),
    ("llama", {"rope_parameters": DEFAULT, "rope_theta": 7e5}),
    ("llama", {"rope_parameters": {"rope_type": "default"}, "rope_theta": 7e5}),
    ("qwen3", {"rope_parameters": DEFAULT, "rope_scaling": YARN, "rope_theta": 7e5}),
    ("qwen3", {"rope_parameters": DEFAULT, "rope_scaling": YARN}),
    ("mixtral", {"rope_parameters": DEFAULT, "rope_scaling": YARN}),
    ("qwen3", {"rope_parameters": DEFAULT, "rope_scaling": {**YARN, "rope_theta": 3e5}, "rope_theta": 7e5}),
    ("qwen3", {"rope_parameters": {**DEFAULT, "rope_type": "linear", "factor": 8.0}, "rope_scaling": {}}),
    ("qwen3", {"rope_parameters": {**DEFAULT, "rope_type": "linear", "factor": 8.0}, "rope_scaling": None}),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("llama", {"rope_scaling": {"type": "yarn", "rope_type": "linear", "factor": 2.0}}),
    ("llama", {"rope_parameters": {"type": "linear", "factor": 2.0, "rope_theta": 3e5}}),
    ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    ("llama", {"rope_scaling": YARN, "original_max_position_embeddings": 32}),
    ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
    ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 32}),
    ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
               "original_max_position_embeddings": 128}),
    ("llama", {"rope_scaling": {**YARN, "truncate": False, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.5}}),
    ("llama", {"rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5}}),
    ("gpt_neox", {"rotary_pct": 0.5, "rotary_emb_base": 20000}),
    ("gpt_neox", {"rotary_pct": 0.5, "rope_parameters": {"partial_rotary_factor": 1.0, "rope_type": "default"}}),
    ("gpt_neox", {"rope_parameters": {"rope_theta": 3e5, "rope_type": "default"}, "rotary_emb_base": 20000}),
    ("gpt_neox", {"rope_theta": 3e5, "partial_rotary_factor": 0.5}),
    ("gpt_neox", {"rope_scaling": {"type": "linear", "factor": 2.0}, "rotary_pct": 1.0}),
    ("gemma3_text", {"rope_theta": 2e6, "rope_local_base_freq": 20000.0}),
    ("gemma3_text", {"rope_theta": 2e6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ("gemma3_text", {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
                                         "sliding_attention": {"rope_type": "default", "rope_theta": 3e4}}}),
    ("gemma3_text", {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
                                         "sliding_attention": {"rope_type": "default"}},
                     "rope_scaling": {"factor": 4.0}, "rope_theta": 5e6, "rope_local_base_freq": 20000.0}),
    ("gemma3_text", {"rope_parameters": {"full_attention": {"rope_type": "default"}}, "rope_theta": 5e6,
                     "rope_local_base_freq": 20000.0, "rope_scaling": YARN}),
    ("gemma3_text", {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}, "rope_theta": 5e6}),
]
# What transformers ignores although it says something, or fails with: (family, config, key).
REFUSED = [
    ("llama", {"rope_parameters": {"full_attention": DEFAULT}}, "rope_parameters.full_attention"),
    ("qwen3", {"rope_parameters": {"sliding_attention": DEFAULT}}, "rope_parameters.sliding_attention"),
    ("llama", {"rope_scaling": "linear"}, "rope_scaling"),
    ("llama", {"rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ("gemma3_text", {"rope_parameters": DEFAULT}, "rope_parameters"),
    ("gemma3_text", {"rope_scaling": {"type": "linear", "factor": 8.0}}, "rope_scaling.type"),
]


def rope_of(inv_freq, factor):
    return {"inv_freq": [float(f"{x:.9g}") for x in inv_freq.tolist()], "attention_factor": float(f"{factor:.9g}")}


def ropes_of(family, config):
    module, name = CLASSES[family]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps({"model_type": family, **BASE, **LAYERS[family], **config}))
        read = AutoConfig.from_pretrained(folder)
    rope = getattr(importlib.import_module(f"transformers.models.{module}.modeling_{module}"), name + "RotaryEmbedding")(read)
    if family != "gemma3_text":
        return {"all": rope_of(rope.inv_freq, rope.attention_scaling)}
    return {kind: rope_of(getattr(rope, kind + "_inv_freq"), getattr(rope, kind + "_attention_scaling"))
            for kind in ("full_attention", "sliding_attention")}


def main():
    logging.disable(logging.WARNING)
    cases = [{"family": family, "config": {**LAYERS[family], **config}, "ropes": ropes_of(family, config)} for family, config in CASES]
    cases += [{"family": family, "config": {**LAYERS[family], **config}, "refused": key} for family, config, key in REFUSED]
    lines = [json.dumps({"versions": {"transformers": transformers.__version__}, "base": BASE})] + [json.dumps(case) for case in cases]
    OUT.write_text("\n".join(lines) + "\n")
    print(len(cases), "cases,", OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    sys.exit(main())
