#!/usr/bin/env python3
"""Tiny seeded Llama checkpoints as F32 GGUF files, and what transformers computes from them.

    make_tiny_goldens.py --out tests/fixtures/llama             writes NAME.gguf, NAME.json, NAME.safetensors
    make_tiny_goldens.py --out tests/fixtures/llama --check     reads them back and recomputes: exits 1 if they differ

NAME.json: the config, and for each prompt its ids, the 32 greedy ids that follow and the lead of each over the second best.
NAME.safetensors: `logits.P` f32 [len, vocab] for prompt P, every position; of the last prompt the last position only, [1, vocab].
The logits come from the seeded model itself, before it is written; the file is then read by transformers' own GGUF reader (which
undoes the row order of q and k) and must give them again. Needs torch, transformers, accelerate, gguf, safetensors, numpy.
"""

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

CONFIGS = {  # sizes keep each file below 1 MB; head_dim 24 and 40 are no multiples of 16; the large eps shows whether it is read
    "tied": {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "intermediate_size": 160,
             "num_hidden_layers": 3, "vocab_size": 997, "tie_word_embeddings": True, "rope_theta": 10000.0, "rms_norm_eps": 1e-5},
    "untied": {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 128,
               "num_hidden_layers": 2, "vocab_size": 997, "tie_word_embeddings": False, "rope_theta": 10000.0, "rms_norm_eps": 1e-6},
    "theta_1e5": {"hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 40, "intermediate_size": 96,
                  "num_hidden_layers": 3, "vocab_size": 517, "tie_word_embeddings": True, "rope_theta": 100000.0, "rms_norm_eps": 1e-3},
}
PROMPT_TOKENS = (12, 70, 300)
GREEDY_TOKENS, SMALLEST_GAP, CONTEXT = 32, 0.02, 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "l l", "Ġ t", "Ġt he", "i n", "e r")
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def build(config: dict, seed: int) -> LlamaForCausalLM:
    """Attention scores deviate by about 1, logits by about 3, norm weights lie in 0.5..1.5: an error anywhere shows, rounding does not."""
    own = dict(config)
    theta = own.pop("rope_theta")
    model = LlamaForCausalLM(LlamaConfig(**own, max_position_embeddings=CONTEXT, attn_implementation="eager",
                                         rope_parameters={"rope_type": "default", "rope_theta": theta},
                                         bos_token_id=1, eos_token_id=2, pad_token_id=2)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():  # a tied head is not named twice
            if p.dim() == 1:
                p.copy_(0.5 + torch.rand(p.shape, generator=generator))
            else:
                scale = 3.0 if "embed" in name or "lm_head" in name else 1.0
                p.copy_(torch.randn(p.shape, generator=generator) * (scale / p.shape[1] ** 0.5))
    return model


def byte_characters() -> list[str]:
    """The printable stand-in of each byte in byte-level BPE: itself if it prints, else from U+0100 on."""
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins, following = [], 0x100
    for byte in range(256):
        stand_ins.append(chr(byte if byte in prints else following))
        following += byte not in prints
    return stand_ins


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """q and k rows as `llama` files keep them: the two halves that rotate together lie side by side in each head.

    Row d + h * head_dim / 2 of a head (h: half) moves to row 2 d + h.
    """
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).transpose(0, 2, 1, 3).reshape(rows, columns).copy()


def write_gguf(path: Path, name: str, config: dict, model: LlamaForCausalLM) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"tidemill tiny llama, {name}")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    if config["head_dim"] * config["num_attention_heads"] != config["hidden_size"]:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    tokens = [*SPECIAL, *byte_characters(), *(m.replace(" ", "") for m in MERGES)]
    types = [gguf.TokenType.CONTROL] * len(SPECIAL)
    tokens += [f"filler{i}" for i in range(config["vocab_size"] - len(tokens))]
    types += [gguf.TokenType.NORMAL] * (len(tokens) - len(types))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)
    state = {k: v.detach().numpy() for k, v in model.state_dict().items()}
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    for i in range(config["num_hidden_layers"]):
        for ours, theirs, heads in (("attn_norm", "input_layernorm", 0), ("attn_q", "self_attn.q_proj", config["num_attention_heads"]),
                                    ("attn_k", "self_attn.k_proj", config["num_key_value_heads"]), ("attn_v", "self_attn.v_proj", 0),
                                    ("attn_output", "self_attn.o_proj", 0), ("ffn_norm", "post_attention_layernorm", 0),
                                    ("ffn_gate", "mlp.gate_proj", 0), ("ffn_up", "mlp.up_proj", 0), ("ffn_down", "mlp.down_proj", 0)):
            weight = state[f"model.layers.{i}.{theirs}.weight"]
            writer.add_tensor(f"blk.{i}.{ours}.weight", interleaved(weight, heads) if heads else weight)
    writer.add_tensor("output_norm.weight", state["model.norm.weight"])
    if not config["tie_word_embeddings"]:
        writer.add_tensor("output.weight", state["lm_head.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def follow(model, ids: list[int]) -> tuple[torch.Tensor, list[int], list[float]]:
    """Logits of the prompt's positions, the greedy ids after it, and the lead of each."""
    sequence, generated, gaps = list(ids), [], []
    for _ in range(GREEDY_TOKENS):
        best = torch.topk(model(torch.tensor([sequence])).logits[0, -1], 2)
        gaps.append(float(best.values[0] - best.values[1]))
        generated.append(int(best.indices[0]))
        sequence.append(generated[-1])
    return model(torch.tensor([ids])).logits[0].contiguous(), generated, gaps


def goldens(model, vocab: int, generator: torch.Generator) -> tuple[list[dict], dict[str, torch.Tensor]]:
    """Random prompts; one whose smallest lead rounding might turn is drawn again."""
    prompts, tensors = [], {}
    for index, length in enumerate(PROMPT_TOKENS):
        gaps = [0.0]
        while min(gaps) <= SMALLEST_GAP:
            ids = torch.randint(0, vocab, (length,), generator=generator).tolist()
            logits, generated, gaps = follow(model, ids)
        last_only = index == len(PROMPT_TOKENS) - 1
        tensors[f"logits.{index}"] = logits[-1:].clone() if last_only else logits
        prompts.append({"ids": ids, "greedy_ids": generated, "gaps": [round(g, 5) for g in gaps],
                        "smallest_gap": round(min(gaps), 5)})
    return prompts, tensors


def largest_difference(path: Path, prompts: list[dict], tensors: dict[str, torch.Tensor]) -> float:
    """Between the goldens and the file as transformers' GGUF reader loads it; infinite if a greedy id differs."""
    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    worst = 0.0
    for index, prompt in enumerate(prompts):
        logits, generated, _ = follow(model, prompt["ids"])
        golden = tensors[f"logits.{index}"]
        worst = max(worst, float((logits[-len(golden):] - golden).abs().max()))
        if generated != prompt["greedy_ids"]:
            return float("inf")
    return worst


def make(out: Path) -> None:
    for seed, (name, config) in enumerate(CONFIGS.items(), 1):
        model, path = build(config, seed), out / f"{name}.gguf"
        prompts, tensors = goldens(model, config["vocab_size"], torch.Generator().manual_seed(100 + seed))
        write_gguf(path, name, config, model)
        about = {"tool": "tools/quality/make_tiny_goldens.py", "seed": seed,
                 "versions": {n: version(n) for n in ("torch", "transformers", "gguf")}}
        body = {"about": about, "config": config | {"max_position_embeddings": CONTEXT}, "prompts": prompts}
        (out / f"{name}.json").write_text(json.dumps(body).replace('{"ids"', '\n{"ids"') + "\n")
        save_file(tensors, str(out / f"{name}.safetensors"))


def check(out: Path) -> int:
    bad = 0
    for name in CONFIGS:
        prompts, tensors = json.loads((out / f"{name}.json").read_text())["prompts"], load_file(str(out / f"{name}.safetensors"))
        worst, deviation = largest_difference(out / f"{name}.gguf", prompts, tensors), float(tensors["logits.0"].std())
        sizes = [(out / f"{name}.{suffix}").stat().st_size for suffix in ("gguf", "safetensors", "json")]
        print(f"{name}: file against goldens: largest difference {worst:.2e} (deviation of logits {deviation:.2f}), "
              f"smallest lead {min(p['smallest_gap'] for p in prompts):.4f}, bytes {sizes}")
        bad += worst > 1e-4
    return int(bad > 0)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        if not args.check:
            args.out.mkdir(parents=True, exist_ok=True)
            make(args.out)
        return check(args.out)


if __name__ == "__main__":
    sys.exit(main())
