#!/usr/bin/env python3
"""Writes checkpoints of recurrent memory transformers (ARMT, RMT) with what tools/quality/armt_oracle.py makes of them.

    python tools/make_armt_goldens.py [FOLDER...]        from the repository's root; writes tests/fixtures/armt/FOLDER
    python tools/make_armt_goldens.py recall --recall GIVEN   takes config, weights and tokenizer of `recall` from the folder GIVEN first
    python tools/make_armt_goldens.py [FOLDER...] --check     recomputes the goldens from the folders: exits 1 if they differ

Seeded checkpoints are F32; their memory's parameters are as large as the others, since with W_mv zero memory would do nothing. Goldens are computed in
double. Beside each stands how far the same in f32 is from it. Over one segment the base model is transformers' own, which --check compares, with the
memory tokens behind the others. Needs torch, transformers, safetensors.
"""

import argparse
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).parent / "quality"))
from armt_oracle import Armt, Gpt2, Llama, model_of, plain_name, segment_lengths  # noqa: E402

OUT = pathlib.Path("tests/fixtures/armt")
NEW_TOKENS, RECALL_NEW_TOKENS, VOCAB, CONTEXT = 12, 6, 96, 64
LARGEST_SPREAD, LEAST_GAP, LEAST_EFFECT = 5e-6, 0.02, 0.1  # relative; in logits, between the best two; relative, of memory on logits
TOLERANCE, BASE_TOLERANCE = 1e-6, 1e-5  # relative: of doubles rounded to f32; of transformers in f32

ARMT = {"correction": True, "d_mem": 6, "nu": 3, "num_mem_tokens": 3, "segment_alignment": "left", "segment_size": 7, "wrap_pos": False}
COMMON = {"attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "dtype": "float32", "initializer_range": 0.02, "tie_word_embeddings": True,
          "transformers_version": transformers.__version__, "use_cache": True, "vocab_size": VOCAB}
ROPE = {"hidden_act": "silu", "hidden_size": 40, "intermediate_size": 56, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5}
LLAMA = COMMON | ROPE | {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "head_dim": 8, "mlp_bias": False, "model_type": "llama",
                         "num_attention_heads": 4, "num_hidden_layers": 5, "num_key_value_heads": 2, "pretraining_tp": 1,
                         "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}
QWEN2 = COMMON | ROPE | {"architectures": ["Qwen2ForCausalLM"], "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 5,
                         "num_hidden_layers": 4, "num_key_value_heads": 1, "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
                         "sliding_window": None, "tie_word_embeddings": False, "use_sliding_window": False}
GPT2 = COMMON | {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.0, "embd_pdrop": 0.0,
                 "layer_norm_epsilon": 1e-5, "model_type": "gpt2", "n_embd": 40, "n_head": 5, "n_inner": 56, "n_layer": 4, "n_positions": CONTEXT,
                 "reorder_and_upcast_attn": False, "resid_pdrop": 0.0, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True}


def config_of(base: dict, memory: dict | None = None, **changes) -> dict:
    return base | changes | {"armt": ARMT | (memory or {})}


def rmt_config_of(base: dict, **changes) -> dict:
    return base | changes | {"rmt": {"num_mem_tokens": 3, "segment_alignment": "left", "segment_size": 7}}


def usual_lengths(size: int, layers: int) -> list[int]:
    """More segments than layers with a short last one; one segment, full and short; two; three with a short last one; as many as layers."""
    lengths = [(2 * layers + 1) * size + size // 2, size, max(1, size - 2), 2 * size, 2 * size + 1, layers * size]
    return list(dict.fromkeys(lengths))


# Folder -> (seed, config.json, lengths of inputs).
CHECKPOINTS = {
    "center": (1, config_of(LLAMA, {"segment_alignment": "center"}, num_hidden_layers=4), [29, 7, 5, 8, 15, 23]),
    "gpt2": (2, config_of(GPT2), usual_lengths(7, 4)),
    "gpt2_wrap": (3, config_of(GPT2, {"num_mem_tokens": 2, "wrap_pos": True}, n_layer=3), usual_lengths(7, 3)),
    "llama": (4, config_of(LLAMA), usual_lengths(7, 5)),
    "no_correction": (5, config_of(LLAMA, {"correction": False, "num_mem_tokens": 1}, num_hidden_layers=4), usual_lengths(7, 4)),
    "qwen2": (6, config_of(QWEN2, {"d_mem": 5, "nu": 2, "num_mem_tokens": 2, "segment_size": 6}), usual_lengths(6, 4)),
    "rmt_gpt2": (9, rmt_config_of(GPT2, n_layer=3), usual_lengths(7, 3)),
    "rmt_llama": (10, rmt_config_of(LLAMA, num_hidden_layers=4), usual_lengths(7, 4)),
    "right": (7, config_of(LLAMA, {"segment_alignment": "right"}, num_hidden_layers=3), usual_lengths(7, 3)),
    "short_segments": (8, config_of(LLAMA, {"num_mem_tokens": 1, "segment_size": 1}, num_hidden_layers=3), usual_lengths(1, 3)),
}
PLAIN_NAMES = {"qwen2"}
GIVEN = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

# The recall task: a segment has four places for a key and its value; the last segment asks for keys of earlier ones.
PLACES, FIRST_KEY, KEYS, VALUES = 4, 1, 128, 32
FIRST_VALUE = FIRST_KEY + KEYS
FACT_SEGMENTS, FACTS_EACH, QUESTIONS, QUESTION_SEED = (2, 3, 4, 6, 8, 12, 15, 24, 31), (1, 2, 4), 64, 1234


def base_config(config: dict):
    """transformers' settings of the base model, eager."""
    known = {k: v for k, v in config.items() if k not in ("armt", "rmt", "architectures", "dtype", "torch_dtype", "transformers_version")}
    model_type = "llama" if known.pop("model_type") == "armt" else config["model_type"]
    if config.get("armt", {}).get("wrap_pos"):
        known["n_positions"] += config["armt"]["num_mem_tokens"]
    return AutoConfig.for_model(model_type, **known, attn_implementation="eager")


def draw(name: str, shape: tuple, random: torch.Generator) -> torch.Tensor:
    normal = torch.randn(shape, generator=random)
    if len(shape) == 1:
        return 0.2 * normal + (1.0 if name.endswith("weight") else 0.0)
    if name.endswith(("embed_tokens.weight", "wte.weight", "wpe.weight", "memory")):
        return 0.5 * normal
    fan_in = shape[0] if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")) else shape[1]
    return normal * fan_in ** -0.5


def build(config: dict, seed: int) -> dict[str, torch.Tensor]:
    """Parameters by plain name."""
    shapes = {n: tuple(p.shape) for n, p in AutoModelForCausalLM.from_config(base_config(config)).named_parameters()}
    hidden, settings, base = config.get("hidden_size") or config["n_embd"], config.get("armt") or config["rmt"], Gpt2 if config["model_type"] == "gpt2" else Llama
    shapes["memory"] = (settings["num_mem_tokens"], hidden)
    for i in range(config.get("num_hidden_layers") or config["n_layer"]) if "armt" in config else ():
        own = {"W_mq.weight": (settings["d_mem"], hidden), "W_mk.weight": (settings["d_mem"], hidden), "W_mv.weight": (hidden, hidden),
               "W_mb.weight": (1, hidden), "W_mb.bias": (1,)}
        shapes |= {f"{base.layers}{i}.{n}": shape for n, shape in own.items()}
    random = torch.Generator().manual_seed(seed)
    return {n: draw(n, shape, random) for n, shape in sorted(shapes.items())}


def authors_name(name: str, layer: str = "layer") -> str:
    """model.layers.0.mlp.up_proj.weight -> memory_cell.model.model.layers.0.layer.mlp.up_proj.weight; of RMT without `.layer`."""
    if name == "memory":
        return "memory_cell.memory"
    parts = name.split(".")
    if parts[1] in ("layers", "h") and not parts[3].startswith("W_m"):
        parts.insert(3, layer)
    return "memory_cell.model." + ".".join(p for p in parts if p)


def recall_sample(batch: int, facts: int, random: torch.Generator, each: int = PLACES) -> torch.Tensor:
    """ids [batch, (facts + 1) * 8]: `facts` segments with `each` facts, all keys different, then one that asks for up to four keys and tells their values;
    at most half of the facts are asked for. Behind the last question stands the filler 0."""
    pairs, asked = facts * each, num_asked(facts, each)
    keys = torch.rand(batch, KEYS, generator=random).argsort(1)[:, :pairs] + FIRST_KEY
    values = torch.randint(FIRST_VALUE, FIRST_VALUE + VALUES, (batch, pairs), generator=random)
    known = torch.stack([keys, values], -1).view(batch, facts, each, 2)
    ids = torch.zeros(batch, facts + 1, PLACES, 2, dtype=torch.long)
    places = torch.cat([torch.arange(each), torch.randint(each, (PLACES - each,), generator=random)])
    ids[:, :facts] = known[:, :, places[torch.rand(PLACES, generator=random).argsort()]]
    choice = torch.rand(batch, pairs, generator=random).argsort(1)[:, :asked]
    ids[:, facts, :asked] = torch.stack([keys.gather(1, choice), values.gather(1, choice)], -1)
    return ids.flatten(1)


def num_asked(facts: int, each: int) -> int:
    return min(PLACES, max(1, facts * each // 2))


def recall_inputs() -> list[torch.Tensor]:
    """Two texts that are scored, of 16 segments and of nine and a short one; three that end with a key."""
    random, size = torch.Generator().manual_seed(17), 2 * PLACES
    scored = [recall_sample(1, 15, random), recall_sample(1, 9, random)[:, :9 * size + 3]]
    return scored + [recall_sample(1, facts, random, each)[:, :facts * size + 1] for facts, each in ((4, 1), (12, 1), (6, 2))]


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """Distance from b by its norm."""
    return float((a.double() - b.double()).norm() / b.double().norm())


def short(x: float) -> float:
    return float(f"{x:.3g}")


def goldens(model: Armt, ids: torch.Tensor, new_tokens: int, states: str) -> dict[str, torch.Tensor]:
    """Of ids [1, len]. states: all (behind every segment), last or none."""
    logits, behind = model.score(ids)
    greedy, steps = model.generate(ids, new_tokens)
    tensors = {"input_ids": ids[0], "logits": logits[0], "greedy_ids": greedy[0], "step_logits": steps[0]}
    if states != "none":
        tensors |= model.named(behind[-1])
    for segment, state in enumerate(behind if states == "all" else []):
        tensors |= {f"{n}.{segment}": t for n, t in model.named(state).items()}
    return tensors


def smallest_gap(logits: torch.Tensor) -> float:
    top = logits.topk(2, -1).values
    return float((top[..., 0] - top[..., 1]).min())


def spreads(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> dict[str, float]:
    return {n: short(relative(found[n], t)) for n, t in exact.items() if t.is_floating_point()}


def effect_of_memory(model: Armt, ids: torch.Tensor, logits: torch.Tensor) -> float:
    """How far the logits behind the first segment are from those that nothing is read for."""
    first = segment_lengths(ids.shape[1], model.settings["segment_size"], model.settings["segment_alignment"])[0]
    if first == ids.shape[1]:
        return 0.0
    model.reads = False
    without = model.score(ids)[0][0]
    model.reads = True
    return relative(without[first:], logits[first:])


def load(folder: str) -> tuple[dict, dict[str, torch.Tensor]]:
    return json.loads((OUT / folder / "config.json").read_text()), load_file(str(OUT / folder / "model.safetensors"))


def inputs_of(folder: str):
    """For each input candidates, ids [1, len]."""
    if folder == "recall":
        yield from ([ids] for ids in recall_inputs())
        return
    seed, _, lengths = CHECKPOINTS[folder]
    random = torch.Generator().manual_seed(100 + seed)
    for length in lengths:
        yield (torch.randint(3, VOCAB, (1, length), generator=random) for _ in range(1000))


def states_of(folder: str, index: int) -> str:
    if folder == "recall":
        return "last" if index < 2 else "none"
    return "last" if index else "all"


def compute(folder: str, inputs, limit: float = LARGEST_SPREAD) -> tuple[dict, dict[str, torch.Tensor]]:
    """golden.json and golden.safetensors of a folder that has its config and weights. Of each input's candidates the first that f32 gets right is taken."""
    config, weights = load(folder)
    double, single = model_of(config, weights), model_of(config, weights, torch.float32)
    new_tokens, records, tensors = RECALL_NEW_TOKENS if folder == "recall" else NEW_TOKENS, [], {}
    for i, candidates in enumerate(inputs):
        states = states_of(folder, i)
        for ids in candidates:
            exact, found = goldens(double, ids, new_tokens, states), goldens(single, ids, new_tokens, states)
            gap, spread = smallest_gap(exact["step_logits"]), spreads(found, exact)
            if torch.equal(found["greedy_ids"], exact["greedy_ids"]) and gap >= LEAST_GAP and max(spread.values()) <= limit:
                break
        else:
            raise SystemExit(f"{folder}: input {i} hangs on rounding: gap {gap}, spread {spread}")
        effect = effect_of_memory(double, ids, exact["logits"])
        lengths = [part.shape[1] for part in double.parts(ids)]
        assert len(lengths) == 1 or effect > LEAST_EFFECT, (folder, i, effect)
        records.append({"input_ids": ids[0].tolist(), "segment_lengths": lengths, "greedy_ids": exact["greedy_ids"].tolist(), "states": states,
                        "smallest_top2_gap": short(gap), "effect_of_memory": short(effect), "spread": spread})
        tensors |= {f"input{i}.{n}": (t.float() if t.is_floating_point() else t.int()).contiguous() for n, t in exact.items()}
    about = {"tool": "tools/make_armt_goldens.py", "versions": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}}
    if folder != "recall":
        about["seed"] = CHECKPOINTS[folder][0]
    return {"about": about, "inputs": records}, tensors


def ask(model: Armt, ids: torch.Tensor, asked: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The best ids where a value is asked for and their distance from the second best, both [batch, asked]."""
    state, last = model.before_last(ids)
    logits = model.logits(model.segment(last, state, with_memory=False)[0])[:, :2 * asked:2]
    top = logits.topk(2, -1).values
    return logits.argmax(-1), top[..., 0] - top[..., 1]


def questions() -> tuple[dict[str, torch.Tensor], list[dict]]:
    """questions.safetensors, and for each cell the share of exact answers."""
    config, weights = load("recall")
    double, single, tensors, table = Armt(config, weights), Armt(config, weights, torch.float32), {}, []
    for facts in FACT_SEGMENTS:
        for each in FACTS_EACH:
            ids, asked = recall_sample(QUESTIONS, facts, torch.Generator().manual_seed(QUESTION_SEED + facts), each), num_asked(facts, each)
            answers, gaps = ask(double, ids, asked)
            goal = ids[:, facts * 2 * PLACES:][:, 1:2 * asked:2]
            cell = f"facts{facts}x{each}"
            tensors |= {f"{cell}.input_ids": ids.to(torch.int16), f"{cell}.answers": answers.to(torch.int16), f"{cell}.gaps": gaps.float()}
            table.append({"fact_segments": facts, "facts_each": each, "questions": QUESTIONS * asked, "exact": int((answers == goal).sum()),
                          "accuracy": short(float((answers == goal).double().mean())), "smallest_gap": short(float(gaps.min())),
                          "f32_differs": int((ask(single, ids, asked)[0] != answers).sum())})
    return {n: t.contiguous() for n, t in tensors.items()}, table


def base_gap(folder: str) -> float:
    """transformers' base model over a full segment of tokens and the memory tokens: relative distance of all rows behind the last norm, and of logits."""
    config, weights = load(folder)
    settings, tensors = base_config(config), {plain_name(n): t for n, t in weights.items()}
    base = AutoModelForCausalLM.from_config(settings, dtype=torch.float32).eval()
    missing, unexpected = base.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"lm_head.weight"} and all(".W_m" in n or n == "memory" for n in unexpected), (missing, unexpected)
    base.tie_weights()
    ours = model_of(config, weights)
    if "rmt" in config:
        ids = torch.randint(3, config["vocab_size"], (2, config["rmt"]["segment_size"]), generator=torch.Generator().manual_seed(1))
        memory = tensors["memory"].expand(2, -1, -1)
        out = base.base_model(inputs_embeds=torch.cat([memory, base.get_input_embeddings()(ids), memory], 1), use_cache=False).last_hidden_state
        rows = ours.rows(ids, None)
        return max(relative(out, rows), relative(base.get_output_embeddings()(out), ours.logits(rows)))
    size, count = config["armt"]["segment_size"], config["armt"]["num_mem_tokens"]
    ids = torch.randint(3, config["vocab_size"], (2, size), generator=torch.Generator().manual_seed(1))
    embedded = torch.cat([base.get_input_embeddings()(ids), tensors["memory"].expand(2, -1, -1)], 1)
    last = settings.max_position_embeddings if config["armt"]["wrap_pos"] else size + count
    positions = torch.cat([torch.arange(size), torch.arange(last - count, last)])[None]
    ones = torch.ones(2, size + count, dtype=torch.long)  # without a mask, a leap of positions means to transformers that another text begins
    out = base.base_model(inputs_embeds=embedded, position_ids=positions, attention_mask=ones, use_cache=False).last_hidden_state
    rows, _ = ours.segment(ids, None)
    return max(relative(out, rows), relative(base.get_output_embeddings()(out), ours.logits(rows)))


def write(folder: str, given: pathlib.Path | None) -> None:
    out = OUT / folder
    out.mkdir(parents=True, exist_ok=True)
    if folder != "recall":
        seed, config, _ = CHECKPOINTS[folder]
        name = (lambda n: n) if folder in PLAIN_NAMES else lambda n: authors_name(n, "layer" if "armt" in config else "")
        save_file({name(n): t.contiguous() for n, t in build(config, seed).items()}, str(out / "model.safetensors"), metadata={"format": "pt"})
        (out / "config.json").write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")
    elif given is not None:
        for name in GIVEN:
            shutil.copyfile(given / name, out / name)
    golden, tensors = compute(folder, inputs_of(folder))
    if folder == "recall":
        cells, golden["questions"] = questions()
        save_file(cells, str(out / "questions.safetensors"))
        if given is not None:
            agree_with_given(given, tensors)
    save_file(tensors, str(out / "golden.safetensors"))
    (out / "golden.json").write_text(json.dumps(golden).replace('{"input_ids"', '\n{"input_ids"').replace('{"fact_segments"', '\n{"fact_segments"') + "\n")


def agree_with_given(given: pathlib.Path, tensors: dict[str, torch.Tensor]) -> None:
    """The given goldens, computed in f32 by other code, are of the same inputs and as close as f32 lets them be."""
    theirs, worst = load_file(str(given / "golden.safetensors")), 0.0
    for name, t in theirs.items():
        group, rest = name.split(".", 1)
        ours = tensors[name if group.startswith("input") else f"input{2 + int(group.removeprefix('recall'))}.{rest}"]
        if t.is_floating_point():
            worst = max(worst, relative(t, ours))
        else:
            assert torch.equal(t, ours), name
    print(f"recall: the given goldens are the same inputs and greedy ids; values at most {worst:.1e} away")
    assert worst < LARGEST_SPREAD


def differences(found: dict[str, torch.Tensor], stored: dict[str, torch.Tensor]) -> float:
    """The largest relative distance; infinite where names, shapes or ids differ."""
    if found.keys() != stored.keys() or any(found[n].shape != t.shape for n, t in stored.items()):
        return torch.inf
    return max(relative(found[n], t) if t.is_floating_point() else (0.0 if torch.equal(found[n], t) else torch.inf) for n, t in stored.items())


def check(folder: str) -> bool:
    golden, stored = json.loads((OUT / folder / "golden.json").read_text()), load_file(str(OUT / folder / "golden.safetensors"))
    again, tensors = compute(folder, [[torch.tensor([r["input_ids"]])] for r in golden["inputs"]], limit=4 * LARGEST_SPREAD)  # another machine rounds otherwise
    worst, base = differences(tensors, stored), base_gap(folder)
    same = all(a[k] == b[k] for a, b in zip(again["inputs"], golden["inputs"], strict=True) for k in ("input_ids", "greedy_ids", "segment_lengths", "states"))
    if folder == "recall":
        same = same and all(torch.equal(a[0], torch.tensor(b["input_ids"])) for a, b in zip(recall_inputs(), golden["inputs"], strict=True))
        cells, table = questions()
        worst = max(worst, differences(cells, load_file(str(OUT / folder / "questions.safetensors"))))
        same = same and [c["exact"] for c in table] == [c["exact"] for c in golden["questions"]]
        for cell in golden["questions"]:
            print("recall:", *(f"{k} {v}" for k, v in cell.items()))
    spread = {kind: max(v for r in again["inputs"] for n, v in r["spread"].items() if n.startswith(kind)) for kind in ("logits", "step_logits", "A.", "z.", "memory") if any(n.startswith(kind) for r in again["inputs"] for n in r["spread"])}
    sizes = {p.name: p.stat().st_size for p in sorted((OUT / folder).iterdir())}
    print(f"{folder}: goldens {worst:.1e}, transformers {base:.1e}, spread {spread}, top-2 gap {min(r['smallest_top2_gap'] for r in golden['inputs'])}, "
          f"memory {min(r['effect_of_memory'] for r in golden['inputs'] if len(r['segment_lengths']) > 1)}, {sizes}")
    return same and worst < TOLERANCE and base < BASE_TOLERANCE


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folders", nargs="*", default=[*CHECKPOINTS, "recall"])
    p.add_argument("--recall", type=pathlib.Path, metavar="GIVEN", help="take config, weights and tokenizer of the folder recall from here")
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        for folder in args.folders if not args.check else []:
            write(folder, args.recall)
        return int(not all([check(folder) for folder in args.folders]))


if __name__ == "__main__":
    sys.exit(main())
