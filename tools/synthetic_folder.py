"""Random weights in the shape of an OPT model, as a folder in Hugging Face layout."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from synthetic_vocabulary import byte_characters, grown

STD = 0.02  # of a weight
FOLDER_TYPES = {"F32": (np.float32, "float32"), "F16": (np.float16, "float16"), "BF16": (np.uint16, "bfloat16")}


@dataclass
class FolderShape:
    hidden: int
    ffn: int
    layers: int
    heads: int
    vocab: int = 50272
    context: int = 2048


FOLDER_SHAPES = {"opt-125m": FolderShape(768, 3072, 12, 12), "opt-1.3b": FolderShape(2048, 8192, 24, 32)}


def tensors_of(s: FolderShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    root = "model.decoder."
    yield f"{root}embed_tokens.weight", (s.vocab, s.hidden)
    yield f"{root}embed_positions.weight", (s.context + 2, s.hidden)
    for name in ("weight", "bias"):
        yield f"{root}final_layer_norm.{name}", (s.hidden,)
    for layer in range(s.layers):
        at = f"{root}layers.{layer}."
        for name, rows, columns in (("self_attn.q_proj", s.hidden, s.hidden), ("self_attn.k_proj", s.hidden, s.hidden),
                                    ("self_attn.v_proj", s.hidden, s.hidden), ("self_attn.out_proj", s.hidden, s.hidden),
                                    ("fc1", s.ffn, s.hidden), ("fc2", s.hidden, s.ffn)):
            yield f"{at}{name}.weight", (rows, columns)
            yield f"{at}{name}.bias", (rows,)
        for norm in ("self_attn_layer_norm", "final_layer_norm"):
            for name in ("weight", "bias"):
                yield f"{at}{norm}.{name}", (s.hidden,)


def narrowed(values: np.ndarray, kind: str) -> np.ndarray:
    """f32 as the type's numbers; BF16 as its bits, which numpy has no numbers for."""
    return (values.view(np.uint32) >> 16).astype(np.uint16) if kind == "BF16" else values.astype(FOLDER_TYPES[kind][0])


def write_weights(s: FolderShape, kind: str, seed: int, path: Path) -> None:
    """safetensors: the header's bytes, a header of JSON, the tensors one behind another."""
    random, size, at, header = np.random.Generator(np.random.SFC64(seed)), np.dtype(FOLDER_TYPES[kind][0]).itemsize, 0, {}
    for name, shape in tensors_of(s):
        end = at + int(np.prod(shape)) * size
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    text += b" " * (-len(text) % 8)
    table = (STD * random.standard_normal(1 << 16)).astype(np.float32)  # a billion draws one by one take minutes
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors_of(s):
            if "norm.weight" in name:
                values = random.uniform(0.9, 1.1, shape).astype(np.float32)
            else:
                values = table[random.integers(0, 1 << 16, shape, np.uint16)]
            file.write(narrowed(values, kind).tobytes())


def write_tokenizer(folder: Path, vocab: int) -> None:
    """A byte-level BPE of so many tokens, of which four are special; texts begin and end with the third."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    characters = byte_characters()
    pairs = list(grown([characters[0x20]] + [c for c in characters if c.isascii() and c.islower()],
                       vocab - len(specials) - 256))
    tokens = specials + characters + [left + right for left, right in pairs]
    assert len(set(tokens)) == vocab
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None,
                 "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                                   "normalized": False, "special": True} for i, token in enumerate(specials)],
                 "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                           "vocab": {token: i for i, token in enumerate(tokens)},
                           "merges": [f"{left} {right}" for left, right in pairs]}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "</s>",
                                                              "eos_token": "</s>"}) + "\n")


def write_folder(s: FolderShape, kind: str, seed: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").unlink(missing_ok=True)  # another model's beside this one's settings would look whole
    config = {"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": s.hidden, "ffn_dim": s.ffn,
              "num_hidden_layers": s.layers, "num_attention_heads": s.heads, "vocab_size": s.vocab,
              "max_position_embeddings": s.context, "word_embed_proj_dim": s.hidden, "do_layer_norm_before": True,
              "_remove_final_layer_norm": False, "enable_bias": True, "layer_norm_elementwise_affine": True,
              "activation_function": "relu", "dropout": 0.0, "tie_word_embeddings": True, "torch_dtype": FOLDER_TYPES[kind][1],
              "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_tokenizer(folder, s.vocab)
    part = folder / "model.safetensors.part"
    try:
        write_weights(s, kind, seed, part)
        part.replace(folder / "model.safetensors")
    finally:
        part.unlink(missing_ok=True)
