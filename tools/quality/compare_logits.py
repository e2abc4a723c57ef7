#!/usr/bin/env python3
"""Is a quantised engine as close to the weights as the best peer? Compares logits with those of the f32 oracle.

    compare_logits.py --oracle oracle.safetensors --ours ours.safetensors --peer peer.safetensors [--json]

Files: tensor `logits` [len, vocab] f32, or `logits.0`, `logits.1`, ...; the oracle's file also holds `ids` or `ids.0`, ... [len]
int64, the tokens (oracle.py writes them). Ours comes from `tidemill logits MODEL --ids IDS --out ours.safetensors --kv-dtype f32`,
the peer's from peer_llama.py. Needs numpy and safetensors.

    KL            mean over positions of sum_v p[v] (log p[v] - log q[v]), nats; p: the oracle's softmax, q: the other's
    top-1         share of positions whose highest logit is the oracle's (ties: the lowest id)
    perplexity    exp of the mean of -log q[next token], over positions that have a next token
    relative RMS  of a position's logits: RMS of the difference over the oracle's standard deviation

Exits 1 if ours misses one of: KL <= 1.1 x the peer's, or <= 1e-4; top-1 at most 0.5 points below the peer's; perplexity at most
0.5 % above the peer's; every logit finite. Without --peer: KL <= 1e-4 and finite. Exits 2 if the files cannot be compared.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

KL_FACTOR, KL_FLOOR, TOP1_POINTS, PERPLEXITY_PERCENT = 1.1, 1e-4, 0.5, 0.5
ROWS_AT_ONCE = 64  # 64 x 49152 f64: 25 MB


class FileError(ValueError):
    """The files do not hold the same positions."""


def open_logits(path: Path):
    try:
        return safe_open(str(path), framework="numpy")
    except (SafetensorError, OSError) as error:
        raise FileError(f"read {path}: {error}") from error


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def positions(oracle: np.ndarray, other: np.ndarray, ids: np.ndarray) -> dict[str, np.ndarray]:
    """kl, agree, rms [len]; nll [len - 1]. Logits that are not finite make kl and rms infinite and agree False."""
    out = {"kl": [], "agree": [], "rms": [], "nll": []}
    for at in range(0, len(oracle), ROWS_AT_ONCE):
        a, b = oracle[at:at + ROWS_AT_ONCE].astype(np.float64), other[at:at + ROWS_AT_ONCE].astype(np.float64)
        bad = ~np.isfinite(b).all(axis=1)
        b[bad] = 0.0
        p, q = log_softmax(a), log_softmax(b)
        out["kl"].append(np.where(bad, np.inf, (np.exp(p) * (p - q)).sum(axis=1)))
        out["agree"].append(~bad & (a.argmax(axis=1) == b.argmax(axis=1)))
        out["rms"].append(np.where(bad, np.inf, np.sqrt(((a - b) ** 2).mean(axis=1)) / a.std(axis=1)))
        following = ids[at + 1:at + 1 + len(a)]
        rows = np.arange(len(following))
        out["nll"].append(np.where(bad[rows], np.inf, -q[rows, following]))
    return {k: np.concatenate(v) for k, v in out.items()}


def compare(oracle_path: Path, other_path: Path) -> list[dict[str, np.ndarray]]:
    """Per text, in the order of the oracle's file."""
    oracle, other = open_logits(oracle_path), open_logits(other_path)
    names = sorted((n for n in oracle.keys() if n.partition(".")[0] == "logits"), key=lambda n: int(n.partition(".")[2] or 0))
    if not names:
        raise FileError(f"read {oracle_path}: expected tensors 'logits' or 'logits.0', ..., found {sorted(oracle.keys())[:5]}")
    found = []
    for name in names:
        if name not in other.keys():
            raise FileError(f"read {other_path}: no tensor '{name}', which {oracle_path} has; found {sorted(other.keys())[:5]}")
        a, b = oracle.get_tensor(name), other.get_tensor(name)
        ids = oracle.get_tensor(name.replace("logits", "ids"))
        if a.ndim != 2 or a.shape != b.shape or b.dtype != np.float32 or len(ids) != len(a):
            raise FileError(f"read {other_path}: tensor '{name}': expected f32 {list(a.shape)}, found {b.dtype} {list(b.shape)}")
        found.append(positions(a, b, ids))
    return found


def summary(texts: list[dict[str, np.ndarray]]) -> dict[str, float]:
    all_of = {k: np.concatenate([t[k] for t in texts]) for k in texts[0]}
    kl = all_of["kl"]
    return {"positions": len(kl), "kl": float(kl.mean()), "kl_standard_error": float(kl.std() / len(kl) ** 0.5) if np.isfinite(kl).all() else float("inf"),
            "top1": float(all_of["agree"].mean()), "perplexity": float(np.exp(all_of["nll"].mean())),
            "rms_median": float(np.median(all_of["rms"])), "rms_worst": float(all_of["rms"].max())}


def misses(ours: dict, peer: dict | None) -> list[str]:
    if not np.isfinite(ours["kl"]):
        return ["ours holds logits that are not finite"]
    if peer is None:
        return [] if ours["kl"] <= KL_FLOOR else [f"KL {ours['kl']:.3g} is above {KL_FLOOR:g}, and there is no peer to compare with"]
    found = []
    if not (ours["kl"] <= KL_FACTOR * peer["kl"] or ours["kl"] <= KL_FLOOR):
        found.append(f"KL {ours['kl']:.6f} is above {KL_FACTOR} x the peer's {peer['kl']:.6f}")
    if not ours["top1"] >= peer["top1"] - TOP1_POINTS / 100:
        found.append(f"top-1 {100 * ours['top1']:.2f} % is more than {TOP1_POINTS} points below the peer's {100 * peer['top1']:.2f} %")
    if not ours["perplexity"] <= peer["perplexity"] * (1 + PERPLEXITY_PERCENT / 100):
        found.append(f"perplexity {ours['perplexity']:.4f} is more than {PERPLEXITY_PERCENT} % above the peer's {peer['perplexity']:.4f}")
    return found


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--oracle", type=Path, required=True)
    p.add_argument("--ours", type=Path, required=True)
    p.add_argument("--peer", type=Path)
    p.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    args = p.parse_args()
    texts = {"oracle": compare(args.oracle, args.oracle), "ours": compare(args.oracle, args.ours)}
    if args.peer:
        texts["peer"] = compare(args.oracle, args.peer)
    rows = {name: summary(t) for name, t in texts.items()}
    missed = misses(rows["ours"], rows.get("peer"))
    if args.json:
        per_text = {name: [float(t["kl"].mean()) for t in ts] for name, ts in texts.items() if name != "oracle"}
        print(json.dumps(rows | {"kl_per_text": per_text, "misses": missed}))
        return int(bool(missed))
    print(f"{rows['oracle']['positions']} positions of {len(texts['oracle'])} text(s)\n")
    print("| | mean KL (standard error) | top-1 | perplexity | relative RMS median / worst |\n| --- | --- | --- | --- | --- |")
    for name, r in rows.items():
        print(f"| {name} | {r['kl']:.6f} ({r['kl_standard_error']:.6f}) | {100 * r['top1']:.2f} % | {r['perplexity']:.4f} | "
              f"{r['rms_median']:.3g} / {r['rms_worst']:.3g} |")
    if args.peer:
        print(f"\nKL ours / peer: {rows['ours']['kl'] / rows['peer']['kl']:.3f}; by text: " +
              ", ".join(f"{o['kl'].mean() / c['kl'].mean():.2f}" for o, c in zip(texts["ours"], texts["peer"], strict=True)))
    for miss in missed:
        print(f"MISSED: {miss}")
    if not missed:
        print("\nours is as close to the oracle as asked")
    return int(bool(missed))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FileError as error:
        print(f"compare_logits: {error}", file=sys.stderr)
        sys.exit(2)
