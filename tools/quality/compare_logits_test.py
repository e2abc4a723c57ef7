#!/usr/bin/env python3
"""Tests of compare_logits.py with made-up logits: python3 tools/quality/compare_logits_test.py (numpy, safetensors)"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import compare_logits

LEN, VOCAB = 80, 50


class CompareLogits(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.random = np.random.default_rng(1)
        self.logits = [self.random.normal(0, 2, (LEN, VOCAB)).astype(np.float32) for _ in range(2)]
        ids = [self.random.integers(0, VOCAB, LEN) for _ in range(2)]
        save_file({f"logits.{i}": x for i, x in enumerate(self.logits)} | {f"ids.{i}": x for i, x in enumerate(ids)},
                  str(self.folder / "oracle"))
        self.peer_noise = [self.random.normal(0, 0.1, (LEN, VOCAB)) for _ in range(2)]
        self.save("peer", self.peer_noise)

    def save(self, name: str, noise: list) -> None:
        save_file({f"logits.{i}": (x + n).astype(np.float32) for i, (x, n) in enumerate(zip(self.logits, noise))},
                  str(self.folder / name))

    def run_tool(self, *more: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, compare_logits.__file__, "--oracle", str(self.folder / "oracle"), "--ours",
                               str(self.folder / "ours"), *more], capture_output=True, text=True)

    def with_peer(self) -> subprocess.CompletedProcess:
        return self.run_tool("--peer", str(self.folder / "peer"))

    def test_SameAsPeer_Passes(self):
        self.save("ours", self.peer_noise)
        done = self.with_peer()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("KL ours / peer: 1.000", done.stdout)

    def test_TwiceThePeersNoise_MissesKl(self):
        self.save("ours", [2 * n for n in self.peer_noise])
        done = self.with_peer()
        self.assertEqual(done.returncode, 1)
        self.assertIn("MISSED: KL", done.stdout)

    def test_OneBadRowInAnExactFile_Misses(self):
        for bad in (np.nan, np.inf, 40.0):
            noise = [np.zeros((LEN, VOCAB)), np.zeros((LEN, VOCAB))]
            noise[1][70, 3] = bad
            self.save("ours", noise)
            self.assertEqual(self.with_peer().returncode, 1, bad)

    def test_NoPeer_OnlyNearlyExactPasses(self):
        self.save("ours", [1e-4 * n for n in self.peer_noise])
        self.assertEqual(self.run_tool().returncode, 0)
        self.save("ours", self.peer_noise)
        self.assertEqual(self.run_tool().returncode, 1)

    def test_Misses_ChecksEachBoundOnItsOwn(self):
        peer = {"kl": 0.003, "top1": 0.96, "perplexity": 15.0}
        self.assertEqual(compare_logits.misses({"kl": 0.0033, "top1": 0.9551, "perplexity": 15.07}, peer), [])
        for change in ({"kl": 0.00331}, {"top1": 0.9549}, {"perplexity": 15.08}):
            self.assertEqual(len(compare_logits.misses({"kl": 0.003, "top1": 0.96, "perplexity": 15.0} | change, peer)), 1, change)

    def test_KlAndPerplexity_MatchPlainLoops(self):
        oracle, other = self.logits[0].astype(np.float64), (self.logits[0] + self.peer_noise[0]).astype(np.float32)
        ids = self.random.integers(0, VOCAB, LEN)
        found = compare_logits.positions(self.logits[0], other, ids)
        for t in range(LEN):
            p, q = np.exp(oracle[t]) / np.exp(oracle[t]).sum(), np.exp(other[t], dtype=np.float64)
            q /= q.sum()
            self.assertAlmostEqual(found["kl"][t], sum(p[v] * np.log(p[v] / q[v]) for v in range(VOCAB)), places=10)
            if t + 1 < LEN:
                self.assertAlmostEqual(found["nll"][t], -np.log(q[ids[t + 1]]), places=10)
        self.assertEqual(len(found["nll"]), LEN - 1)

    def test_OtherShapeOrMissingTensor_ExitsTwo(self):
        save_file({"logits.0": self.logits[0]}, str(self.folder / "ours"))
        done = self.with_peer()
        self.assertEqual((done.returncode, "no tensor 'logits.1'" in done.stderr), (2, True))
        save_file({"logits.0": self.logits[0], "logits.1": self.logits[1][1:]}, str(self.folder / "ours"))
        self.assertEqual(self.with_peer().returncode, 2)
        (self.folder / "ours").write_bytes(b"not a safetensors file")
        self.assertEqual(self.with_peer().returncode, 2)


if __name__ == "__main__":
    unittest.main()
