#!/usr/bin/env python3
"""Writes seeded checkpoints with what transformers answers where generated tokens attend sparsely.

    python tools/make_sparse_goldens.py [FOLDER...]        from the repository's root; writes tests/fixtures/sparse/FOLDER
    python tools/make_sparse_goldens.py --check            recomputes the goldens from the folders: exits 1 if they differ

transformers runs the model, f32, eager, one thread. Where a step has one token and keys before it, its attention is
tools/quality/sparq_oracle.py's, in double; layers with a window stay dense. A prompt is fed at once, then 32 forced tokens one by one.
Prompts are drawn until no selection hangs on rounding: a run in double selects the same, and margins of cuts are far above it.
Parameters are BF16; queries and keys have sizes that make attention peaked. Needs torch, transformers, safetensors.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, AutoModelForCausalLM
from transformers.masking_utils import eager_mask

sys.path.insert(0, str(pathlib.Path(__file__).parent / "quality"))
import sparq_oracle  # noqa: E402
from sparq_oracle import Form, HeavyHitters  # noqa: E402

OUT = pathlib.Path("tests/fixtures/sparse")
NEW_TOKENS, VOCAB, CONTEXT, SHARPNESS = 32, 128, 512, 1.7
KERNEL_STEPS = (0, 7, 20, 31)
LEAST_SCORE_MARGIN, LEAST_COMPONENT_MARGIN, LARGEST_SPREAD = 2e-4, 1e-4, 4e-5  # the first two relative; logits are compared within 1e-4

COMMON = {"attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "dtype": "bfloat16", "vocab_size": VOCAB,
          "max_position_embeddings": CONTEXT, "num_hidden_layers": 2, "tie_word_embeddings": False, "use_cache": True,
          "transformers_version": transformers.__version__}
ROPE = {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}
LLAMA = COMMON | ROPE | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False,
                         "hidden_act": "silu", "rms_norm_eps": 1e-6, "pretraining_tp": 1, "initializer_range": 0.02}
SPARQ = [Form(rule="paper"), Form(rule="eval")]
OTHERS = [Form(rule="paper", reallocate=False), Form("topk", "paper"), Form("topk", "eval"), Form("h2o"), Form("window")]

# Folder -> (seed, config.json, ids of the prompt, r, k, forms). k / 4 positions are the last ones.
CHECKPOINTS = {
    "llama_group4": (1, LLAMA | {"hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
                                 "head_dim": 64}, 260, 16, 32, SPARQ + OTHERS),
    "llama_group7": (2, LLAMA | {"hidden_size": 56, "intermediate_size": 64, "num_attention_heads": 7, "num_key_value_heads": 1,
                                 "head_dim": 64}, 300, 8, 24, SPARQ),
    "llama_group6": (3, LLAMA | {"hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 6, "num_key_value_heads": 1,
                                 "head_dim": 128}, 257, 32, 32, SPARQ),
    "gpt_neox": (4, COMMON | {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "attention_bias": True,
                              "classifier_dropout": 0.1, "hidden_act": "gelu", "hidden_dropout": 0.0, "hidden_size": 160,
                              "intermediate_size": 64, "num_attention_heads": 2, "layer_norm_eps": 1e-5, "initializer_range": 0.02,
                              "use_parallel_residual": True, "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000.0,
                                                                                 "rope_type": "default"}}, 256, 20, 32, SPARQ),
    "mistral": (5, COMMON | ROPE | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_act": "silu",
                                    "hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 1,
                                    "head_dim": 128, "rms_norm_eps": 1e-6, "sliding_window": None, "initializer_range": 0.02},
                270, 32, 32, SPARQ),
    "gemma3_text": (6, COMMON | {"_sliding_window_pattern": 6, "architectures": ["Gemma3ForCausalLM"], "attention_bias": False,
                                 "attn_logit_softcapping": None, "final_logit_softcapping": None, "head_dim": 256,
                                 "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 48, "initializer_range": 0.02,
                                 "intermediate_size": 48, "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                                 "model_type": "gemma3_text", "num_attention_heads": 3, "num_hidden_layers": 3,
                                 "num_key_value_heads": 1, "query_pre_attn_scalar": 80, "rms_norm_eps": 1e-6,
                                 "rope_parameters": {"full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
                                                     "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
                                 "sliding_window": 64, "tie_word_embeddings": True, "use_bidirectional_attention": False},
                    264, 64, 32, SPARQ),
}


class Run:
    """What attention does in the run at hand, and what it has seen."""

    def __init__(self, form: Form, prompt: int, kernel_layer: int):
        self.form, self.prompt, self.kernel_layer = form, prompt, kernel_layer
        self.rows: dict[int, list] = {}  # layer -> sparq_oracle.Row of each step
        self.audits: dict[int, list] = {}  # the same of sparq_oracle.audit
        self.hitters: dict[int, HeavyHitters] = {}
        self.q: list[np.ndarray] = []  # of the kernel's layer
        self.keys = self.values = None
        self.scale = 0.0


RUN: Run | None = None


def attention(module, query, key, value, attention_mask, scaling, dropout=0.0, sliding_window=None, **_):
    """query [1, heads, len, d], key and value [1, kv_heads, kv_len, d] -> [1, len, heads, d]"""
    group, layer, step = query.shape[1] // key.shape[1], module.layer_idx, query.shape[2] == 1 and key.shape[2] > RUN.prompt
    if step and sliding_window is None:
        q, keys, values = (x[0].numpy() for x in (query[:, :, 0], key, value))
        if RUN.form.kind == "h2o":
            row = RUN.hitters[layer].attention(q, keys, values, scaling)
        else:
            row = sparq_oracle.attention(RUN.form, q, keys, values, scaling)
            if RUN.form.kind != "window":
                RUN.audits.setdefault(layer, []).append(sparq_oracle.audit(RUN.form, row, q, keys, values, scaling))
        RUN.rows.setdefault(layer, []).append(row)
        if layer == RUN.kernel_layer:
            RUN.q.append(q)
            RUN.keys, RUN.values, RUN.scale = keys, values, scaling
        return torch.from_numpy(row.out).to(query.dtype)[None, None], None
    scores = query @ key.repeat_interleave(group, 1).transpose(2, 3) * scaling
    weights = torch.softmax(scores + attention_mask, dim=-1)
    if not step and RUN.form.kind == "h2o" and sliding_window is None:
        RUN.hitters[layer] = HeavyHitters(RUN.form, key.shape[1])
        RUN.hitters[layer].prefill(weights[0].numpy())
    return (weights @ value.repeat_interleave(group, 1)).transpose(1, 2).contiguous(), None


AttentionInterface.register("oracle", attention)
AttentionMaskInterface.register("oracle", eager_mask)


def sizes(d: int) -> torch.Tensor:
    """Of components of queries and keys: a few are large, as in trained models. Their fourth powers are 1 on average."""
    size = torch.exp(0.6 * torch.randn(d, generator=torch.Generator().manual_seed(d)))
    return SHARPNESS * size / (size ** 4).mean() ** 0.25


def draw(name: str, shape, config, random: torch.Generator) -> torch.Tensor:
    """Logits of attention deviate by about SHARPNESS^2, those of the model by about 3. Query heads of a group want much the same."""
    normal, gemma = torch.randn(shape, generator=random), config.model_type == "gemma3_text"
    heads, d = config.num_attention_heads, getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return sizes(d) * (config.query_pre_attn_scalar / d) ** 0.25 - 1
    if len(shape) == 1:
        return 0.2 * normal + (0.0 if name.endswith("bias") or gemma else 1.0)
    std = shape[-1] ** -0.5
    if "embed_in" in name or "embed_tokens" in name:
        return normal * (0.5 if config.tie_word_embeddings else 1.0)
    if name.startswith(("lm_head", "embed_out")):
        return 3 * std * normal
    if "query_key_value" in name:  # by head: query, key, value
        return std * torch.cat((sizes(d), sizes(d), torch.ones(d))).repeat(heads)[:, None] * normal
    if "q_proj" in name:
        own = normal.reshape(config.num_key_value_heads, -1, d, shape[1])
        shared = torch.randn(own[:, :1].shape, generator=random)
        normal = (0.85 * shared + 0.53 * own).reshape(shape)
    if ("q_proj" in name or "k_proj" in name) and not gemma:
        return std * sizes(d).repeat(shape[0] // d)[:, None] * normal
    return std * normal


def build(config: dict, seed: int):
    settings = AutoConfig.for_model(**config)
    model = AutoModelForCausalLM.from_config(settings, attn_implementation="oracle", dtype=torch.float32).eval()
    random = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        p.copy_(draw(name, tuple(p.shape), model.config, random).to(torch.bfloat16))
    return model


def follow(model, form: Form, prompt: list[int], forced: list[int], kernel_layer: int) -> tuple[torch.Tensor, Run]:
    """Logits [steps, vocab] behind each forced token."""
    global RUN
    RUN = Run(form, len(prompt), kernel_layer)
    cache = model(torch.tensor([prompt]), use_cache=True).cache
    logits = []
    for token in forced:
        logits.append(model(torch.tensor([[token]]), cache=cache, use_cache=True).logits[0, -1])
    return torch.stack(logits), RUN


def name_of(form: Form) -> str:
    return "_".join([form.kind, *([form.rule] if form.kind in ("sparq", "topk") else []), *([] if form.reallocate else ["no_mean"])])


def kept_of(run: Run) -> np.ndarray:
    return np.stack([np.stack([np.stack(row.kept) for row in run.rows[layer]]) for layer in sorted(run.rows)])


def as_f32(x) -> torch.Tensor:
    return torch.tensor(np.asarray(x), dtype=torch.float32).contiguous()


def audits_of(run: Run) -> torch.Tensor:
    """[layers, 3] means over the steps."""
    return as_f32([np.mean(run.audits[layer], axis=0) for layer in sorted(run.audits)])


def short(x) -> float:
    return float(f"{float(x):.3g}")


def cells(run: Run) -> list:
    return [row for rows in run.rows.values() for row in rows]


def hangs_on_rounding(row) -> bool:
    return row.relative_margin < LEAST_SCORE_MARGIN or row.component_margin < LEAST_COMPONENT_MARGIN


def variant(model, double, form: Form, prompt: list[int], forced: list[int], layer: int):
    """What golden.json says of a form, its tensors and the run; none where rounding might turn a selection."""
    logits, run = follow(model, form, prompt, forced, layer)
    if any(hangs_on_rounding(row) for row in cells(run)):
        return None
    exact, exact_run = follow(double, form, prompt, forced, layer)
    spread = float((logits - exact).abs().max())
    if spread > LARGEST_SPREAD or not np.array_equal(kept_of(run), kept_of(exact_run)):
        return None
    alpha, mass = np.stack([r.alpha for r in cells(run)]), np.stack([r.mass for r in cells(run)])
    name, layers = name_of(form), sorted(run.rows)
    about = {"name": name, "kind": form.kind, "rule": form.rule, "reallocate": form.reallocate, "r": form.r, "k": form.k, "local": form.local,
             "layers": layers, "spread": short(spread), "smallest_relative_margin": short(min(r.relative_margin for r in cells(run))),
             "smallest_component_margin": short(min(r.component_margin for r in cells(run))),
             "alpha": [short(x) for x in (alpha.min(), alpha.mean(), alpha.max())],
             "kept_mass": [short(x) for x in (mass.min(), mass.mean(), mass.max())]}
    kept = kept_of(run)
    tensors = {f"{name}.logits": logits, f"{name}.kept": as_f32(kept.reshape(-1, kept.shape[-1])),
               f"{name}.alpha": as_f32([r.alpha for i in layers for r in run.rows[i]]),
               f"{name}.margin": as_f32([[min(r.margin, 1e30) for r in run.rows[i]] for i in layers]),
               f"{name}.attention": as_f32([run.rows[layer][s].out.reshape(-1) for s in KERNEL_STEPS])}
    if run.audits:
        tensors[f"{name}.audits"] = audits_of(run)
    return {k: v for k, v in about.items() if v != np.inf}, tensors, run


def kernel(run: Run, forms: list[Form], prompt: int) -> dict[str, torch.Tensor] | None:
    """One layer's rows of a few steps of `run` by themselves: q f32, keys and values BF16, and what the oracle makes of them."""
    keys, values = (torch.tensor(x).to(torch.bfloat16) for x in (run.keys, run.values))
    tensors = {"kernel.q": as_f32([run.q[s].reshape(-1) for s in KERNEL_STEPS]),
               "kernel.keys": keys.reshape(-1, keys.shape[-1]), "kernel.values": values.reshape(-1, keys.shape[-1])}
    for form in forms:
        rows = [sparq_oracle.attention(form, run.q[s], keys[:, :prompt + s + 1].float().numpy(), values[:, :prompt + s + 1].float().numpy(),
                                       run.scale) for s in KERNEL_STEPS]
        if any(hangs_on_rounding(row) for row in rows):
            return None
        name = f"kernel.{name_of(form)}"
        tensors |= {f"{name}.kept": as_f32([np.concatenate(r.kept) for r in rows]), f"{name}.alpha": as_f32([r.alpha for r in rows]),
                    f"{name}.out": as_f32([r.out.reshape(-1) for r in rows])}
    return tensors


def compute(model, folder: str) -> tuple[dict, dict[str, torch.Tensor]]:
    """golden.json and golden.safetensors of a model."""
    seed, config, length, r, k, forms = CHECKPOINTS[folder]
    layer = config["num_hidden_layers"] - 1
    components = {"sparq": r, "topk": config.get("head_dim")}
    forms = [Form(f.kind, f.rule, f.reallocate, components.get(f.kind, 0), k, k // 4) for f in forms]
    double, random, tries = build(config, seed).double(), torch.Generator().manual_seed(100 + seed), 0
    tensors: dict[str, torch.Tensor] | None = None
    while tensors is None:
        tries, abouts, runs = tries + 1, [], []
        ids = torch.randint(3, VOCAB, (length + NEW_TOKENS,), generator=random).tolist()
        prompt, forced, tensors = ids[:length], ids[length:], {}
        for form in forms:
            if (found := variant(model, double, form, prompt, forced, layer)) is None:
                tensors = None
                break
            abouts.append(found[0])
            runs.append(found[2])
            tensors |= found[1]
        if tensors is not None:
            more = kernel(runs[0], [f for f in forms if f.kind in ("sparq", "topk")], length)
            tensors = None if more is None else tensors | more
    tensors["dense.logits"] = follow(double, Form(r=1, k=CONTEXT, local=1), prompt, forced, layer)[0].float()
    about = {"tool": "tools/make_sparse_goldens.py", "seed": seed, "prompts_drawn": tries,
             "versions": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "numpy": np.__version__}}
    return {"about": about, "kernel_layer": layer, "kernel_steps": list(KERNEL_STEPS), "kernel_scale": runs[0].scale,
            "prompts": [{"input_ids": prompt, "forced_ids": forced}], "forms": abouts}, {f"prompt0.{n}": t.contiguous() for n, t in tensors.items()}


def write(folder: str) -> None:
    seed, config = CHECKPOINTS[folder][:2]
    out = OUT / folder
    out.mkdir(parents=True, exist_ok=True)
    model = build(config, seed)
    state = {n: p.to(torch.bfloat16).contiguous() for n, p in model.state_dict().items()
             if not n.endswith("inv_freq") and not (n == "lm_head.weight" and config["tie_word_embeddings"])}
    if config["model_type"] == "gpt_neox":  # released folders, and transformers before 5.24, call it so
        state["embed_out.weight"] = state.pop("lm_head.weight")
    save_file(state, str(out / "model.safetensors"), metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")
    golden, tensors = compute(model, folder)
    save_file(tensors, str(out / "golden.safetensors"))
    (out / "golden.json").write_text(json.dumps(golden).replace('{"name"', '\n{"name"') + "\n")
    for form in golden["forms"]:
        print(folder, golden["about"]["prompts_drawn"], *(f"{k} {v}" for k, v in form.items()))


def check(folder: str) -> bool:
    """The folder as transformers loads it gives the goldens, and its own attention the dense ones, for which the oracle read all positions."""
    golden, tensors = json.loads((OUT / folder / "golden.json").read_text()), load_file(str(OUT / folder / "golden.safetensors"))
    model = AutoModelForCausalLM.from_pretrained(str(OUT / folder), dtype=torch.float32, attn_implementation="oracle").eval()
    own = AutoModelForCausalLM.from_pretrained(str(OUT / folder), dtype=torch.float32, attn_implementation="eager").eval()
    ids, forced, worst = golden["prompts"][0]["input_ids"], golden["prompts"][0]["forced_ids"], 0.0
    for f in golden["forms"]:
        form = Form(f["kind"], f["rule"], f["reallocate"], f["r"], f["k"], f["local"])
        logits, run = follow(model, form, ids, forced, golden["kernel_layer"])
        worst = max(worst, float((logits - tensors[f"prompt0.{f['name']}.logits"]).abs().max()))
        kept = tensors[f"prompt0.{f['name']}.kept"].numpy().reshape(kept_of(run).shape)
        worst = max(worst, float(np.abs(kept_of(run) - kept).max()))
        if run.audits:
            worst = max(worst, float((audits_of(run) - tensors[f"prompt0.{f['name']}.audits"]).abs().max()))
    dense = own(torch.tensor([ids + forced])).logits[0, -NEW_TOKENS:]
    all_read = tensors["prompt0.dense.logits"]
    away = float((tensors[f"prompt0.{golden['forms'][0]['name']}.logits"] - dense).abs().max())
    sizes = {p.name: p.stat().st_size for p in sorted((OUT / folder).iterdir())}
    print(f"{folder}: goldens {worst:.1e}, dense {float((all_read - dense).abs().max()):.1e}, sparse from dense {away:.2f}, "
          f"deviation {float(dense.std()):.2f}, {sizes}")
    return worst < 1e-4 and float((all_read - dense).abs().max()) < 1e-4


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folders", nargs="*", default=list(CHECKPOINTS))
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        for folder in args.folders if not args.check else []:
            write(folder)
        return int(not all([check(folder) for folder in args.folders]))


if __name__ == "__main__":
    sys.exit(main())
