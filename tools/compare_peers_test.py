#!/usr/bin/env python3
"""Tests of compare_peers.py with programs that print chosen measurements: python3 tools/compare_peers_test.py"""

import json
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import compare_peers

FAKE = """
import json, sys
s = json.load(sys.stdin)
rate = RATE
def samples(r): return [{"tokens_per_s": r, "tokens_per_cpu_s": r, "seconds": 1.0, "others_cores": 0.0}] * s["repeats"]
tests = [{"test": "prefill", "prompt_tokens": p, "samples": samples(10 * rate)} for p in s["prompt_tokens"]]
tests += [{"test": "decode", "depth": d, "gen_tokens": s["gen_tokens"], "samples": samples(rate)} for d in s["depth"]]
print("noise before the measurement")
print(json.dumps({"engine": s["engine"], "version": "1", "isa": {"used": [], "unused": UNUSED}, "tests": tests}))
"""


def fake(folder: Path, name: str, rate: str, unused: str = "[]") -> str:
    path = folder / name
    path.write_text(FAKE.replace("RATE", rate).replace("UNUSED", unused))
    return str(path)


class ComparePeers(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "m.gguf").touch()

    def compare(self, engine: str, peer: str, *more: str) -> subprocess.CompletedProcess:
        # The peer's interpreter is a script that ignores the driver's path and runs the fake instead.
        python = self.folder / "python"
        python.write_text(f"#!/bin/sh\nexec {sys.executable} {peer}\n")
        python.chmod(0o755)
        return subprocess.run([sys.executable, compare_peers.__file__, "--model", str(self.folder / "m.gguf"), "--peer-python",
                               str(python), "--engine-command", f"{sys.executable} {engine}", "--json",
                               str(self.folder / "out.json"), *more], capture_output=True, text=True)

    def test_EngineTwiceAsFastAsBestSetting_RatioIsTwo(self):
        engine = fake(self.folder, "engine.py", "60")
        peer = fake(self.folder, "peer.py", "(30 if s['flash_attn'] else 20) / s['threads']")
        done = self.compare(engine, peer, "--threads", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads((self.folder / "out.json").read_text())["rows"]
        self.assertEqual([r["test"] for r in rows], ["prefill 512", "decode 64 at depth 0"])
        for row in rows:
            self.assertEqual((row["peer_setting"], row["tokens_per_s"]["ratio"], row["pairs"]), ("flash attention", 2.0, 10))
        self.assertIn("**2.00x** [2.00, 2.00]", done.stdout)

    def test_PeerWithoutFlashAttentionFaster_IsTheOneComparedWith(self):
        done = self.compare(fake(self.folder, "engine.py", "10"), fake(self.folder, "peer.py", "10 if s['flash_attn'] else 40"),
                            "--threads", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no flash attention | **0.25x**", done.stdout)

    def test_PeerLeavesInstructionsUnused_ExitsOneUnlessAllowed(self):
        engine, peer = fake(self.folder, "engine.py", "1"), fake(self.folder, "peer.py", "1", "['AVX512']")
        done = self.compare(engine, peer, "--threads", "1", "--pairs", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("AVX512", done.stderr)
        self.assertEqual(self.compare(engine, peer, "--threads", "1", "--pairs", "1", "--any-build").returncode, 0)

    def test_EngineFailsOrPrintsNoMeasurement_ExitsOneAndSaysWhich(self):
        peer = fake(self.folder, "peer.py", "1")
        for source, expected in (("import sys; sys.exit('out of luck')", "out of luck"), ("print('hello')", "no measurement")):
            engine = self.folder / "bad.py"
            engine.write_text(source)
            done = self.compare(str(engine), peer, "--threads", "1", "--pairs", "1")
            self.assertEqual(done.returncode, 1)
            self.assertIn(expected, done.stderr)
            self.assertIn("measure engine", done.stderr)

    def test_Interval_HoldsTheMedianAndNarrowsWithPairs(self):
        rng = random.Random(1)
        few, many = ([rng.gauss(1.2, 0.05) for _ in range(n)] for n in (10, 160))
        widths = []
        for ratios in (few, many):
            low, high = compare_peers.interval(ratios, random.Random(2), 2000)
            self.assertTrue(low <= sorted(ratios)[len(ratios) // 2] <= high)
            widths.append(high - low)
        self.assertLess(widths[1], widths[0])


if __name__ == "__main__":
    unittest.main()
