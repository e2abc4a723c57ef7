#!/usr/bin/env python3
"""Checks what `tidemill eval` says of sparse attention on a model whose dense answers are good enough to lose something.

    check_eval.py TIDEMILL MODEL     runs `eval MODEL --quick --json`; prints a line for each policy and each fault, exits 1 if there is one

The bounds are of SmolLM2-135M-Instruct at 1024 tokens, far from what it does there: sparq:1/2 has 0.970 of the tokens and a divergence of 0.006, h2o
0.51 and a window 0.52; at 1/8 they are 0.43, 1.03 and 1.44, and topk's 0.044.

  every task has every policy, with all of its questions
  dense       is what it is compared with: no divergence from itself
  sparq:1/2   at least 0.95 of dense attention's likeliest tokens; its divergence is at most a quarter of that of either form that evicts and reads as much
  sparq:1/8   diverges less than either form that evicts and reads as much, and more than topk, which chooses exactly; at 1/2 the mean value that
              only sparq has makes up for more than its choice loses
  alpha       sparq's estimate is a share, and lies higher with more bytes
"""

import json
import math
import subprocess
import sys

TASKS = {"repetition": 8, "passkey": 4, "codes": 8, "choice": 8, "notes": 4}  # questions of --quick
SHARES = ["1/2", "1/8"]
POLICIES = ["dense"] + [f"{kind}:{share}" for kind in ("sparq", "topk", "h2o", "window") for share in SHARES]
MIN_AGREEMENT = 0.95     # of sparq at 1/2
MAX_KL_OF_EVICTING = 0.25  # of sparq at 1/2, as a share


def means(rows: list[dict], key: str) -> dict[str, float]:
    """Of each policy over tasks, which count alike."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if key in row:
            values.setdefault(row["policy"], []).append(row[key])
    return {policy: sum(own) / len(own) for policy, own in values.items()}


def faults(summary: dict) -> list[str]:
    rows = {(row["task"], row["policy"]): row for row in summary["rows"]}
    found = [f"{task}, {policy}: expected a row, found none"
             for task in TASKS for policy in POLICIES if (task, policy) not in rows]
    if found:
        return found
    for (task, policy), row in rows.items():
        if row["questions"] != TASKS.get(task):
            found.append(f"{task}, {policy}: expected {TASKS.get(task)} questions, found {row['questions']}")
        if not all(math.isfinite(row[key]) and row[key] >= 0 for key in ("nll", "kl", "ratio", "agreement")):
            found.append(f"{task}, {policy}: expected finite numbers, found {row}")
        if policy == "dense" and (row["kl"] != 0 or row["agreement"] != 1 or row["ratio"] != 1):
            found.append(f"{task}, dense: expected no divergence from itself, found {row['kl']}")

    def expect(holds: bool, what: str) -> None:
        if not holds:
            found.append(what)

    kl, agreement, alpha = (means(summary["rows"], key) for key in ("kl", "agreement", "alpha_estimate"))
    expect(agreement["sparq:1/2"] >= MIN_AGREEMENT,
           f"sparq:1/2: expected at least {MIN_AGREEMENT} of dense attention's tokens, found {agreement['sparq:1/2']:.3f}")
    for evicting in ("h2o", "window"):
        bound = MAX_KL_OF_EVICTING * kl[f"{evicting}:1/2"]
        expect(kl["sparq:1/2"] <= bound,
               f"sparq:1/2: expected a divergence of at most {bound:.4f}, a part of {evicting}'s, found {kl['sparq:1/2']:.4f}")
        expect(kl["sparq:1/8"] < kl[f"{evicting}:1/8"],
               f"sparq:1/8: expected less divergence than {evicting}'s {kl[f'{evicting}:1/8']:.4f}, found {kl['sparq:1/8']:.4f}")
    expect(kl["topk:1/8"] < kl["sparq:1/8"],
           f"topk:1/8: expected less divergence than sparq's {kl['sparq:1/8']:.4f}, found {kl['topk:1/8']:.4f}")
    expect(0 < alpha["sparq:1/8"] < alpha["sparq:1/2"] < 1,
           f"alpha of sparq: expected shares that rise with the bytes, found {alpha['sparq:1/8']} and {alpha['sparq:1/2']}")
    return found


def main() -> int:
    if len(sys.argv) != 3:
        print("check_eval.py: expected TIDEMILL MODEL", file=sys.stderr)
        return 2
    run = subprocess.run([sys.argv[1], "eval", sys.argv[2], "--quick", "--json"], stdout=subprocess.PIPE, check=False)
    if run.returncode != 0:
        print(f"check_eval.py: eval exited with {run.returncode}, see above", file=sys.stderr)
        return 1
    summary = json.loads(run.stdout)
    kl, agreement, ratio = (means(summary["rows"], key) for key in ("kl", "agreement", "ratio"))
    for policy in kl:
        print(f"{policy:<12} kl {kl[policy]:.4f}  top-1 {agreement[policy]:.3f}  ratio {ratio[policy]:.3f}")
    found = faults(summary)
    for fault in found:
        print(f"check_eval.py: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
