#!/usr/bin/env python3
"""Tests of sparq_oracle.py: python3 tools/quality/sparq_oracle_test.py (numpy)"""

import unittest

import numpy as np

from sparq_oracle import SINK, Form, HeavyHitters, approximate, attention, components, dense, group_scores, select, softmax, transfers


def inputs(seed: int, heads: int, kv_heads: int, n: int, d: int):
    random = np.random.default_rng(seed)
    q, keys, values = (random.normal(size=s).astype(np.float32) for s in ((heads, d), (kv_heads, n, d), (kv_heads, n, d)))
    return 2 * q, keys, values, d ** -0.5


class SparqOracle(unittest.TestCase):
    def test_KOfAllPositions_IsDense(self):
        for group in (1, 4):
            for n in (1, 7, 200):
                for d in (16, 80, 128):
                    for rule in ("paper", "eval"):
                        for k in (n, n + 5):
                            q, keys, values, scale = inputs(n + d, 5 * group, 5, n, d)
                            row = attention(Form(rule=rule, r=d // 4, k=k, local=max(1, k // 4)), q, keys, values, scale)
                            np.testing.assert_allclose(row.out, dense(q, keys, values, scale), rtol=0, atol=1e-12)
                            np.testing.assert_array_equal(row.alpha, 1)
                            np.testing.assert_array_equal(row.kept[0], np.arange(n))

    def test_AllComponents_TauIsRootOfDAndSelectionIsTopK(self):
        for heads, kv_heads in ((5, 5), (8, 2)):
            q, keys, values, scale = inputs(3, heads, kv_heads, 200, 80)
            group = heads // kv_heads
            for rule in ("paper", "eval"):
                form = Form(rule=rule, r=80, k=25, local=6, reallocate=False)
                row = attention(form, q, keys, values, scale)
                for h in range(kv_heads):
                    exact = q[h * group:(h + 1) * group].astype(np.float64) @ keys[h].astype(np.float64).T / np.sqrt(80)
                    mine = approximate(q[h * group:(h + 1) * group], keys[h], np.arange(80), scale)
                    np.testing.assert_allclose(mine, exact, rtol=0, atol=1e-12)
                    scores = (softmax(exact) if rule == "paper" else exact).sum(axis=0)
                    best = sorted(range(194), key=lambda j: -scores[j])[:19]
                    self.assertEqual(list(row.kept[h]), sorted(best) + list(range(194, 200)))
                    for g in range(group):  # alpha is the exact mass; the output is a plain loop's over what is kept
                        p = softmax(exact[g])[row.kept[h]]
                        self.assertAlmostEqual(row.alpha[h * group + g], p.sum(), places=12)
                        np.testing.assert_allclose(row.out[h * group + g], p @ values[h][row.kept[h]] / p.sum(), atol=1e-12)
                np.testing.assert_allclose(attention(Form("topk", rule, k=25, local=6), q, keys, values, scale).out, row.out)

    def test_GroupSelection_ByHand(self):
        q = np.array([[1, 10], [-20, 2], [30, 3], [4, 40]], np.float32)
        keys = np.array([[[1, 10]], [[20, 2]]], np.float32)
        for h, (chosen, products, shares) in enumerate(((0, (1, -20), (1 / 11, 20 / 22)), (1, (6, 80), (3 / 33, 40 / 44)))):
            own = q[2 * h:2 * h + 2]
            i1, _ = components(own, 1)
            self.assertEqual(list(i1), [chosen])
            a = approximate(own, keys[h], i1, 2 ** -0.5)
            np.testing.assert_allclose(a[:, 0], np.array(products) / np.sqrt(2 * np.array(shares)), rtol=1e-12)

    def test_RulesDiffer_ByHand(self):
        # Head 0 is sure of position 0. Head 1 is as sure against it, which its softmax can say only by 0.
        a = np.array([[9.0, 0.0, 0.0, 0.0], [-9.0, 1.0, 0.5, 0.0]])
        self.assertEqual(list(select(group_scores(a, "paper"), 2, 1)[0]), [0, 3])
        self.assertEqual(list(select(group_scores(a, "eval"), 2, 1)[0]), [1, 3])

    def test_Select_TiesGoToTheLowerAndLocalIsKept(self):
        kept, margin, _ = select(np.array([1.0, 5, 5, 5, 2, 0, 0]), 4, 2)
        self.assertEqual((list(kept), margin), ([1, 2, 5, 6], 0))
        kept, margin, relative = select(np.array([1.0, 5, 4, 8, 2, 0, 0]), 4, 2)
        self.assertEqual((list(kept), margin, relative), ([1, 3, 5, 6], 1, 0.2))
        self.assertEqual(list(select(np.array([9.0, 9, 0, 0]), 2, 2)[0]), [2, 3])

    def test_Reallocation_GivesTheRestToTheMeanOfAll(self):
        q, keys, values, scale = inputs(5, 6, 2, 100, 16)
        form = Form(r=4, k=12, local=3)
        with_mean, without = (attention(Form(r=4, k=12, local=3, reallocate=x), q, keys, values, scale) for x in (True, False))
        self.assertTrue((with_mean.alpha < 0.99).all())
        mean = np.zeros((2, 16))  # running, as an engine has it
        for j in range(100):
            mean += (values[:, j] - mean) / (j + 1)
        for h in range(6):
            expected = with_mean.alpha[h] * without.out[h] + (1 - with_mean.alpha[h]) * mean[h // 3]
            np.testing.assert_allclose(with_mean.out[h], expected, atol=1e-12)
        self.assertEqual([len(x) for x in with_mean.kept], [form.k] * 2)

    def test_ZeroQuery_HasNoNan(self):
        _, keys, values, scale = inputs(7, 2, 1, 30, 16)
        row = attention(Form(r=4, k=8, local=2), np.zeros((2, 16), np.float32), keys, values, scale)
        self.assertEqual(list(row.kept[0]), [0, 1, 2, 3, 4, 5, 28, 29])
        np.testing.assert_allclose(row.alpha, 8 / 30)

    def test_Floor_GroupBelowItIsDense(self):
        q, keys, values, scale = inputs(8, 4, 2, 100, 16)
        plain = attention(Form(r=4, k=12, local=3), q, keys, values, scale)
        least = [plain.alpha[:2].min(), plain.alpha[2:].min()]
        low, high = (0, 1) if least[0] < least[1] else (1, 0)
        row = attention(Form(r=4, k=12, local=3, floor=sum(least) / 2), q, keys, values, scale)
        exact = dense(q, keys, values, scale)
        np.testing.assert_allclose(row.out[2 * low:2 * low + 2], exact[2 * low:2 * low + 2])
        np.testing.assert_array_equal(row.out[2 * high:2 * high + 2], plain.out[2 * high:2 * high + 2])

    def test_SoftCap_LimitsScores(self):
        q, keys, values, scale = inputs(9, 2, 1, 50, 16)
        a = approximate(10 * q, keys[0], np.arange(16), scale, 3.0)
        self.assertTrue((np.abs(a) <= 3).all() and np.abs(a).max() > 2.9)

    def test_Window_KeepsFirstAndLast(self):
        q, keys, values, scale = inputs(10, 2, 1, 100, 16)
        row = attention(Form("window", k=24, local=8), q, keys, values, scale)
        self.assertEqual(list(row.kept[0]), [*range(SINK), *range(92, 100)])

    def test_HeavyHitters_EvictedNeverComeBack(self):
        q, keys, values, scale = inputs(11, 2, 1, 40, 16)
        weights = np.zeros((2, 10, 10))
        weights[:, :, 2], weights[:, :, 5] = 0.3, 0.7
        hitters = HeavyHitters(Form("h2o", k=4, local=2), 1)
        hitters.prefill(weights)
        row = hitters.attention(q, keys[:, :11], values[:, :11], scale)
        self.assertEqual(list(row.kept[0]), [2, 5, 8, 9, 10])  # two greatest, two last, its own
        self.assertAlmostEqual(row.scores[0].sum(), 2 * 10 + 2, places=10)  # the sums of what is evicted, 0 here, are gone
        before = set(row.kept[0])
        for n in range(12, 41):
            row = hitters.attention(q, keys[:, :n], values[:, :n], scale)
            now = list(row.kept[0])
            self.assertEqual(len(now), 5)
            self.assertEqual(now[-3:], [n - 3, n - 2, n - 1])
            self.assertTrue(set(now) - {n - 1} <= before)
            before = set(now)

    def test_HeavyHitters_EnoughRoom_IsDense(self):
        q, keys, values, scale = inputs(12, 4, 2, 30, 16)
        hitters = HeavyHitters(Form("h2o", k=30, local=7), 2)
        hitters.prefill(np.full((4, 29, 29), 1 / 29))
        np.testing.assert_allclose(hitters.attention(q, keys, values, scale).out, dense(q, keys, values, scale), atol=1e-12)

    def test_Transfers_AreThePapers(self):
        published = {1024: (0.189, 0.252, 0.377), 2048: (0.126, 0.188, 0.313), 16384: (0.070, 0.133, 0.258)}
        for n, ratios in published.items():
            for r, ratio in zip((16, 32, 64), ratios):
                whole, sparse = transfers(n, 128, r, 128)
                self.assertAlmostEqual(sparse / whole, ratio, delta=0.0006, msg=f"{n} {r}")


if __name__ == "__main__":
    unittest.main()
