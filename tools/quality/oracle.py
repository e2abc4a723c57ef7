#!/usr/bin/env python3
"""The f32 oracle: a quantised GGUF file dequantised to f32 and run in f32 by transformers, independent of every engine.

    oracle.py ids    --model M.gguf --texts DIR --out ids.json [--tokens 576]        the first tokens of each text, at most that
    oracle.py logits --model M.gguf --ids ids.json --out oracle.safetensors          logits of every position
    oracle.py greedy --model M.gguf --prompts prompts.json --out greedy.json         32 greedy tokens and their leads
    oracle.py top    --model M.gguf --texts DIR --ids ids.json --oracle oracle.safetensors --peer peer.safetensors
                     --out top.json      the 20 best of the first positions of some texts, and the peer's distance from them

Needs torch, transformers, accelerate, gguf, safetensors, numpy, jinja2 (tests/fixtures/oracle/README.md has the versions).

ids.json: a list of lists of ids, one for each text DIR/*.txt in the order of their names, as `tidemill logits --ids` reads it.
Special tokens in a text are read as such.
Families: those whose GGUF transformers can read.
"""

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

GREEDY_TOKENS, TOP_LAST, TOP_POSITION = 32, 50, 20
SMALLEST_GAP = 0.02  # f32 sums in another order move a logit by less than 1e-3: they cannot flip such a lead


def about(model: Path | None) -> dict:
    made = {"tool": "tools/quality/oracle.py",
            "versions": {name: version(name) for name in ("torch", "transformers", "gguf", "tokenizers")}}
    return ({"model": model.name} if model else {}) | made


def write_json(path: Path, content: dict | list) -> None:
    """Indented, but each leaf list on one line, so that a change can be read in a diff."""
    def render(value, depth: int) -> str:
        pad = " " * (depth + 1)
        if isinstance(value, dict):
            rows = ",\n".join(f"{pad}{json.dumps(k)}: {render(v, depth + 1)}" for k, v in value.items())
            return "{\n" + rows + "\n" + " " * depth + "}"
        if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            return "[\n" + ",\n".join(pad + render(v, depth + 1) for v in value) + "\n" + " " * depth + "]"
        return json.dumps(value, ensure_ascii=False)
    path.write_text(render(content, 0) + "\n", encoding="utf-8")


def load_tokenizer(model: Path):
    from transformers import AutoTokenizer
    return AutoTokenizer.from_pretrained(str(model.parent), gguf_file=model.name)


def load_model(model: Path, threads: int):
    """Every weight dequantised to f32, plain (eager) attention."""
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(threads)
    loaded = AutoModelForCausalLM.from_pretrained(str(model.parent), gguf_file=model.name, dtype=torch.float32,
                                                  attn_implementation="eager").eval()
    other = {str(p.dtype) for p in loaded.parameters()} - {"torch.float32"}
    if other:
        raise SystemExit(f"oracle: {model}: weights were loaded as {sorted(other)}, expected float32 only")
    check_dequantised(loaded, model)
    return loaded


def check_dequantised(loaded, model: Path) -> None:
    """The file's tensors, dequantised by the gguf package, are the model's parameters, bit by bit."""
    import gguf
    tensors = {t.name: t for t in gguf.GGUFReader(model).tensors}
    for ours, theirs in (("token_embd.weight", "model.embed_tokens.weight"), ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
                         ("blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight")):
        expected = gguf.quants.dequantize(tensors[ours].data, tensors[ours].tensor_type)
        if not np.array_equal(expected, loaded.get_parameter(theirs).detach().numpy()):
            raise SystemExit(f"oracle: {model}: {theirs} is not {ours} dequantised to f32")


def read_ids(path: Path) -> list[list[int]]:
    given = json.loads(path.read_text())
    return given if given and isinstance(given[0], list) else [given]


def text_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.txt"))


def make_ids(args: argparse.Namespace) -> None:
    tokenizer, ids = load_tokenizer(args.model), []
    for path in text_paths(args.texts):
        ids.append(tokenizer(path.read_text(encoding="utf-8")).input_ids[:args.tokens])
        if len(ids[-1]) < args.tokens:
            print(f"{path}: all of it, {len(ids[-1])} tokens of {args.tokens}")
    write_json(args.out, ids)
    print(f"{len(ids)} texts, {sum(map(len, ids))} positions: {args.out}")


def make_logits(args: argparse.Namespace) -> None:
    import torch
    from safetensors.torch import save_file
    model, tensors = load_model(args.model, args.threads), {}
    lists = read_ids(args.ids)
    with torch.inference_mode():
        for i, row in enumerate(lists):
            tensors[f"logits.{i}"] = model(torch.tensor([row])).logits[0].contiguous()
            tensors[f"ids.{i}"] = torch.tensor(row)
            print(f"text {i}: {len(row)} positions", file=sys.stderr, flush=True)
    save_file(tensors, str(args.out), metadata={k: json.dumps(v) for k, v in about(args.model).items()})


def greedy_path(model, ids: list[int], count: int):
    """Greedy ids, the lead of the best logit over the second at each step, and the last prompt position's logits."""
    import torch
    given = torch.tensor([ids])
    cache, generated, gaps, first = None, [], [], None
    for _ in range(count):
        out = model(given, past_key_values=cache, use_cache=True)
        cache, logits = out.past_key_values, out.logits[0, -1]
        first = logits if first is None else first
        best = torch.topk(logits, 2)
        generated.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        given = torch.tensor([[generated[-1]]])
    at_once = model(torch.tensor([ids + generated[:-1]])).logits[0, len(ids) - 1:].argmax(dim=1).tolist()
    if at_once != generated:
        raise SystemExit(f"oracle: tokens one by one gave {generated}, all at once {at_once}")
    return generated, gaps, first


def make_greedy(args: argparse.Namespace) -> None:
    import torch
    tokenizer, model, found = load_tokenizer(args.model), load_model(args.model, args.threads), []
    for prompt in json.loads(args.prompts.read_text(encoding="utf-8")):
        text = prompt.get("text") or tokenizer.apply_chat_template(prompt["messages"], tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text).input_ids
        with torch.inference_mode():
            generated, gaps, logits = greedy_path(model, ids, GREEDY_TOKENS)
        top = torch.topk(logits, TOP_LAST)
        smallest = min(gaps)
        print(f"{prompt['name']}: {len(ids)} tokens, smallest lead {smallest:.4f}: {tokenizer.decode(generated)!r}")
        if smallest <= SMALLEST_GAP or len(ids) > 60:
            raise SystemExit(f"oracle: prompt '{prompt['name']}': {len(ids)} tokens (at most 60), smallest lead {smallest:.4f} "
                             f"(more than {SMALLEST_GAP}): choose another")
        found.append(prompt | {"text": text, "ids": ids, "greedy_ids": generated, "greedy_text": tokenizer.decode(generated),
                               "smallest_gap": round(smallest, 6), "gaps": [round(g, 6) for g in gaps],
                               "last_top_ids": top.indices.tolist(), "last_top_logits": [round(v, 6) for v in top.values.tolist()]})
    write_json(args.out, about(args.model) | {"prompts": found})


def make_top(args: argparse.Namespace) -> None:
    """Log-probabilities of the oracle's best tokens, and the peer's divergence from them over the same classes.

    Coarse KL: the 20 best tokens and all others taken together as one more; never above the full KL. The bound is the peer's
    mean plus three of its standard errors: so few positions cannot tell two equally good engines apart more closely.
    """
    from safetensors import safe_open
    names, lists = [path.stem for path in text_paths(args.texts)], read_ids(args.ids)
    oracle, peer = (safe_open(str(path), framework="numpy") for path in (args.oracle, args.peer))
    texts, coarse_all, full_all, agree_all = [], [], [], []

    def log_softmax(x: np.ndarray) -> np.ndarray:
        x = x.astype(np.float64)
        x = x - x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    for name in args.names:
        i = names.index(name)
        p, q = (log_softmax(f.get_slice(f"logits.{i}")[:args.positions]) for f in (oracle, peer))
        top = np.argsort(-p, axis=1, kind="stable")[:, :TOP_POSITION]
        pt, qt = np.take_along_axis(p, top, 1), np.take_along_axis(q, top, 1)
        pr, qr = 1 - np.exp(pt).sum(axis=1), 1 - np.exp(qt).sum(axis=1)
        coarse = (np.exp(pt) * (pt - qt)).sum(axis=1) + pr * np.log(pr / qr)
        full = (np.exp(p) * (p - q)).sum(axis=1)
        agree = q.argmax(axis=1) == top[:, 0]
        coarse_all.append(coarse), full_all.append(full), agree_all.append(agree)
        texts.append({"name": name, "ids": lists[i][:args.positions], "top_ids": top.tolist(),
                      "top_log_probabilities": np.round(pt, 6).tolist(), "peer_coarse_kl": float(f"{coarse.mean():.6g}"),
                      "peer_top1": float(agree.mean())})
    coarse, full, agree = (np.concatenate(x) for x in (coarse_all, full_all, agree_all))
    error = coarse.std() / len(coarse) ** 0.5
    bounds = {"positions": len(coarse), "peer": peer.metadata(), "peer_mean_kl": float(f"{full.mean():.6g}"),
              "peer_mean_coarse_kl": float(f"{coarse.mean():.6g}"),
              "peer_coarse_kl_standard_error": float(f"{error:.3g}"),
              "coarse_kl_bound": float(f"{coarse.mean() + 3 * error:.6g}"),
              "peer_top1": float(f"{agree.mean():.6g}")}
    write_json(args.out, about(args.model) | bounds | {"texts": texts})
    print(json.dumps(bounds))


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    made = {name: commands.add_parser(name) for name in ("ids", "logits", "greedy", "top")}
    for name, command in made.items():
        command.add_argument("--model", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True)
        if name in ("logits", "greedy"):
            command.add_argument("--threads", type=int, default=1)
        if name in ("logits", "top"):
            command.add_argument("--ids", type=Path, required=True)
    for name in ("ids", "top"):
        made[name].add_argument("--texts", type=Path, required=True)
    made["ids"].add_argument("--tokens", type=int, default=576)
    made["greedy"].add_argument("--prompts", type=Path, required=True)
    for name in ("oracle", "peer"):
        made["top"].add_argument(f"--{name}", type=Path, required=True)
    made["top"].add_argument("--names", nargs="+", default=["prose_story", "code_python"])
    made["top"].add_argument("--positions", type=int, default=64)
    args = p.parse_args()
    {"ids": make_ids, "logits": make_logits, "greedy": make_greedy, "top": make_top}[args.command](args)


if __name__ == "__main__":
    main()
