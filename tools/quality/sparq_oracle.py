"""SparQ attention of one query row over one sequence, in numpy: what our kernels are compared with.        arXiv:2312.04985

    q [heads, d]        keys, values [kv_heads, n, d], the row's own position last; rope is applied

Written from the paper and the authors' code, in double; only components of a query are chosen by f32 sums. Beside SparQ: exact top-k, heavy hitters
(arXiv:2306.14048), and the first positions with the last ones (arXiv:2309.17453). The authors' code keeps k + 1 positions and local + 1 last ones;
here k and local are what they say, for both rules. Ties go to the lower index.
"""

from dataclasses import dataclass, field

import numpy as np

SINK = 16  # of Form.kind "window": first positions that are kept


@dataclass(frozen=True)
class Form:
    kind: str = "sparq"  # sparq, topk, h2o, window
    rule: str = "paper"  # paper: softmaxes are summed over a group; eval: logits are
    reallocate: bool = True  # of sparq: the mean value has the mass of what is not read
    r: int = 0  # components
    k: int = 0  # positions
    local: int = 0  # of them, the last ones
    floor: float = 0.0  # a group is dense unless alpha is above it for all its heads; 0: never


@dataclass
class Row:
    out: np.ndarray  # [heads, d]
    alpha: np.ndarray  # [heads]; 1 where all is read
    kept: list = field(default_factory=list)  # [kv_heads] positions, ascending
    scores: list = field(default_factory=list)  # [kv_heads] of every position, [n]
    margin: float = np.inf  # smallest distance of a kept score from one that is not, over KV heads
    relative_margin: float = np.inf  # the same by the greatest of the two, in size
    component_margin: float = np.inf  # smallest relative distance at the cut between components
    mass: np.ndarray | None = None  # [heads] exact softmax weight of what is kept


def softmax(a: np.ndarray) -> np.ndarray:
    p = np.exp(a - a.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def capped(a: np.ndarray, cap: float) -> np.ndarray:
    return cap * np.tanh(a / cap) if cap else a


def greatest(scores: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` greatest, ascending; of equal ones the lower."""
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def components(q: np.ndarray, r: int) -> tuple[np.ndarray, float]:
    """i1 of a group's queries [g, d], and how far apart the last that is chosen and the first that is not are, by the former."""
    sums = np.zeros(q.shape[1], np.float32)
    for head in q.astype(np.float32):
        sums = (sums + np.abs(head)).astype(np.float32)
    chosen = greatest(sums, r)
    rest, least = np.delete(sums, chosen), float(sums[chosen].min())
    return chosen, np.inf if not len(rest) else (least - float(rest.max())) / least if least > 0 else 0.0


def approximate(q: np.ndarray, keys: np.ndarray, i1: np.ndarray, scale: float, cap: float = 0.0) -> np.ndarray:
    """Logits [g, n] by the components i1; scale / sqrt(share of |q|) is 1 / tau where scale is 1 / sqrt(d)."""
    q, keys = q.astype(np.float64), keys.astype(np.float64)
    among, all_ = np.abs(q[:, i1]).sum(axis=1), np.abs(q).sum(axis=1)
    factor = np.where(among > 0, scale / np.sqrt(np.where(among > 0, among, 1) / np.where(all_ > 0, all_, 1)), 0)
    return capped(factor[:, None] * (q[:, i1] @ keys[:, i1].T), cap)


def group_scores(a: np.ndarray, rule: str) -> np.ndarray:
    return (softmax(a) if rule == "paper" else a).sum(axis=0)


def select(scores: np.ndarray, k: int, local: int) -> tuple[np.ndarray, float, float]:
    """i2: the last `local` positions and the k - local greatest of the others; and the margin of the cut, also relative."""
    n = len(scores)
    if n <= k:
        return np.arange(n), np.inf, np.inf
    chosen = greatest(scores[:n - local], k - local)
    if not len(chosen):
        return np.arange(n - local, n), np.inf, np.inf
    low, high = scores[chosen].min(), np.delete(scores[:n - local], chosen).max()
    return np.concatenate((chosen, np.arange(n - local, n))), float(low - high), float((low - high) / max(abs(low), abs(high)))


def attend(q: np.ndarray, keys: np.ndarray, values: np.ndarray, positions: np.ndarray, scale: float, cap: float = 0.0):
    """Exact attention of a group over some positions: outputs [g, d] and weights [g, positions]."""
    logits = capped(scale * (q.astype(np.float64) @ keys[positions].astype(np.float64).T), cap)
    weights = softmax(logits)
    return weights @ values[positions].astype(np.float64), weights


def dense(q: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float, cap: float = 0.0) -> np.ndarray:
    """[heads, d]"""
    group = len(q) // len(keys)
    return np.concatenate([attend(q[h * group:(h + 1) * group], keys[h], values[h], np.arange(keys.shape[1]), scale, cap)[0]
                           for h in range(len(keys))])


def attention(form: Form, q: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float, cap: float = 0.0) -> Row:
    """A row of kind sparq, topk or window."""
    heads, (kv_heads, n, d) = len(q), keys.shape
    group = heads // kv_heads
    row = Row(np.empty((heads, d)), np.ones(heads), mass=np.ones(heads))
    for h in range(kv_heads):
        own = slice(h * group, (h + 1) * group)
        everything = np.arange(n)
        if form.kind == "window":
            last = form.k - SINK
            kept = everything if n <= form.k else np.concatenate((np.arange(SINK), np.arange(n - last, n)))
        else:
            i1, component_margin = components(q[own], form.r) if form.kind == "sparq" else (np.arange(d), np.inf)
            a = approximate(q[own], keys[h], i1, scale, cap)
            scores = group_scores(a, form.rule)
            kept, margin, relative = select(scores, form.k, form.local)
            row.scores.append(scores)
            if n > form.k:
                row.margin, row.relative_margin = min(row.margin, margin), min(row.relative_margin, relative)
                row.component_margin = min(row.component_margin, component_margin)
                row.alpha[own] = softmax(a)[:, kept].sum(axis=1)
        row.kept.append(kept)
        if form.floor > 0 and not (row.alpha[own] > form.floor).all():
            row.out[own] = attend(q[own], keys[h], values[h], everything, scale, cap)[0]
            continue
        y = attend(q[own], keys[h], values[h], kept, scale, cap)[0]
        row.mass[own] = attend(q[own], keys[h], values[h], everything, scale, cap)[1][:, kept].sum(axis=1)
        if form.kind == "sparq" and form.reallocate and n > form.k:
            alpha = row.alpha[own][:, None]
            y = alpha * y + (1 - alpha) * values[h].astype(np.float64).mean(axis=0)
        row.out[own] = y
    return row


def audit(form: Form, row: Row, q: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float, cap: float = 0.0) -> tuple[float, float, float]:
    """Of a row of kind sparq or topk against dense attention on the same keys and values: weight of what is kept, mean over heads; relative error
    of the output; share of the positions that exact scores choose, mean over KV heads."""
    group, exact = len(q) // len(keys), dense(q, keys, values, scale, cap)
    shares = []
    for h, kept in enumerate(row.kept):
        a = approximate(q[h * group:(h + 1) * group], keys[h], np.arange(keys.shape[2]), scale, cap)
        best = select(group_scores(a, form.rule), form.k, form.local)[0]
        shares.append(len(np.intersect1d(kept, best)) / len(kept))
    return float(row.mass.mean()), float(np.linalg.norm(row.out - exact) / np.linalg.norm(exact)), float(np.mean(shares))


class HeavyHitters:
    """Kind h2o. Before a row at position n, each KV head keeps of what it has kept so far the last `local` positions before n and the k - local
    others with the greatest sums of attention weights, over all queries up to then and the heads of its group. The row attends to these and to
    itself: k + 1 positions. What is evicted never comes back."""

    def __init__(self, form: Form, kv_heads: int):
        self.form, self.kept, self.sums = form, [np.arange(0)] * kv_heads, [np.zeros(0)] * kv_heads

    def prefill(self, weights: np.ndarray) -> None:
        """Softmax weights [heads, n, n] of a dense prompt."""
        group, n = len(weights) // len(self.kept), weights.shape[-1]
        for h in range(len(self.kept)):
            self.kept[h] = np.arange(n)
            self.sums[h] = weights[h * group:(h + 1) * group].astype(np.float64).sum(axis=(0, 1))

    def attention(self, q: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float, cap: float = 0.0) -> Row:
        group, n = len(q) // len(keys), keys.shape[1]
        row = Row(np.empty(q.shape), np.ones(len(q)), mass=np.ones(len(q)))
        for h in range(len(keys)):
            own = slice(h * group, (h + 1) * group)
            # All of the last `local` positions are among the kept ones: they came one by one.
            places, margin, relative = select(self.sums[h], self.form.k, self.form.local)
            row.margin, row.relative_margin = min(row.margin, margin), min(row.relative_margin, relative)
            self.kept[h] = np.append(self.kept[h][places], n - 1)
            self.sums[h] = np.append(self.sums[h][places], 0.0)
            row.out[own], weights = attend(q[own], keys[h], values[h], self.kept[h], scale, cap)
            self.sums[h] += weights.sum(axis=0)
            row.kept.append(self.kept[h])
            row.scores.append(self.sums[h].copy())
            row.mass[own] = attend(q[own], keys[h], values[h], np.arange(n), scale, cap)[1][:, self.kept[h]].sum(axis=1)
        return row


def transfers(n: int, d: int, r: int, k: int) -> tuple[int, int]:
    """Elements that a head reads and writes in a step: densely, and with SparQ."""
    return 2 * n * d + 2 * d, n * r + 2 * k * d + 4 * d
