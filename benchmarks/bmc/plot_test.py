#!/usr/bin/env python3
"""Tests of plot.py with made-up journals: python3 benchmarks/bmc/plot_test.py"""

import json
import math
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import plot
import svg


def cell(policy: str, allocations: int, total: float, **more) -> dict:
    seconds = {"allocate": 0.1 * total, "copy": 0.2 * total, "update": 0.0, "attention": 0.7 * total, "create": 0.0, "total": total}
    record = {"shape": "opt-13b", "tokens": 512, "batch": 8, "policy": policy, "increment": 512 // allocations, "allocations": allocations,
              "backend": "padded", "kv_dtype": "F32", "threads": 1, "draft": 1, "accept": 1, "pages": "default", "sampled": False,
              "key": f"{policy}/{allocations}", "seconds": seconds, "creations": allocations, "steps": 512, "minor_faults": 10.0,
              "major_faults": 0.0, "tlb_misses": None,
              "latency_us": {"p50": 1000.0, "p99": 2000.0, "max": 3000.0, "growth_p50": 2500.0, "between_p50": 1000.0}}
    return record | more


class Plot(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def plot(self, *lines: str, more: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
        (self.folder / "journal").write_text("\n".join(lines))
        return subprocess.run([sys.executable, plot.__file__, str(self.folder / "journal"), "--out", str(self.folder / "out"), *more],
                              capture_output=True, text=True)

    def test_Law_IsThePapers(self):
        self.assertEqual([plot.law(n) for n in (128, 512, 2048)], [4, 8, 16])

    def test_Ticks_CoverTheValues(self):
        for top in (0.003, 0.5, 1.0, 7.3, 10, 4096):
            marks = svg.ticks(top)
            self.assertGreaterEqual(marks[-1], top * (1 - 1e-9))
            self.assertLessEqual(len(marks), 8)

    def test_LogarithmicTicks_CoverTheValues(self):
        for low, high in ((0.64, 5.6), (1, 1), (0.5, 2000), (3, 4), (0.001, 0.002)):
            marks = svg.log_ticks(low, high)
            self.assertLessEqual(marks[0], low * (1 + 1e-9))
            self.assertGreaterEqual(marks[-1], high * (1 - 1e-9))
            self.assertGreater(len(marks), 1)

    def test_Journal_BecomesTablesAndFigures(self):
        cells = [cell("upfront", 1, 2.0), cell("bmc", 2, 1.5), cell("bmc", 8, 1.0), cell("bmc", 32, 1.2), cell("iterative", 512, 4.0),
                 cell("bmc", 8, 0.1, points=[[1, 90.0, True], [2, 80.0, False]], key="bmc/8/latency"),  # of the times of tokens, in no other table
                 cell("reserve", 4, 1.1, points=[[1, 900.0, True], [2, 800.0, False]]), {"key": "x", "refused": "needs 9 MB"} |
                 {k: v for k, v in cell("paged", 16, 1).items() if k not in ("key", "seconds")}]
        done = self.plot(json.dumps({"machine": {"cpu": "a <CPU> & more"}}), *map(json.dumps, cells), '{"cut off')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cut off", done.stderr)
        text = (self.folder / "out" / "tables.md").read_text()
        self.assertIn("| opt-13b | 8 | 8 | 8 | 0.50 | 4.00x | 1 s |", text)
        self.assertIn("| bmc, T 8 | 0.0250 | 0.0500 | 0.0000 | 0.1750 | 0.0000 | 0.2500 |", text)
        self.assertIn("not counted here", text)
        self.assertIn("| x | needs 9 MB |", text)
        figures = sorted(path.name for path in (self.folder / "out").glob("*.svg"))
        self.assertEqual(figures, ["breakdown_opt-13b_padded_f32_b8_n512_t1.svg", "latency_opt-13b_padded_f32_b8_n512_t1.svg",
                                   "total_by_T_padded_f32_b8_n512_t1.svg"])
        for figure in figures:
            ElementTree.parse(self.folder / "out" / figure)  # well formed
            self.assertIn(figure, text)

    def test_Ratios_AreOfTheTurnsInWhichBothRan(self):
        cells = [cell("upfront", 1, 2.0, totals=[2.0, 3.0, 1.0]), cell("bmc", 8, 1.0, totals=[1.0, 2.0, 1.0]), cell("bmc", 32, 1.2)]
        self.assertEqual(self.plot(*map(json.dumps, cells)).returncode, 0)
        text = (self.folder / "out" / "tables.md").read_text()
        self.assertIn("| opt-13b | 8 |  |  | 1.50x [1.00, 2.00] |  |", text)

    def test_PairsOfManyTurns_HaveAnIntervalOfTheirMedian(self):
        turns = [1.0] * 9 + [9.0]  # the range is up to 9, the median of hardly any draw is
        self.assertEqual(plot.paired(cell("upfront", 1, 1.0, totals=turns), cell("bmc", 8, 1.0, totals=[1.0] * 10)), "1.00x [1.00, 1.00]")
        self.assertEqual(plot.paired(cell("upfront", 1, 1.0, totals=turns[-7:]), cell("bmc", 8, 1.0, totals=[1.0] * 7)), "1.00x [1.00, 9.00]")

    def test_CellsThatFollowTheModel_AreChosenWithoutRegret(self):
        n, s, c = 512, 1e-6, 8e-6  # T* = sqrt(512 / 8) = 8

        def of(policy: str, t: int) -> dict:
            seconds = {"allocate": 0.0, "copy": c * n * (t + 1) / 2, "update": 0.0, "attention": s * n**2 * (1 + 1 / t) / 2, "create": 0.0}
            return cell(policy, t, 0.0) | {"seconds": seconds | {"total": sum(seconds.values())}}
        cells = [of("upfront", 1), *(of("bmc", 2**i) for i in range(1, 9)), of("iterative", n)]
        self.assertEqual(self.plot(*map(json.dumps, cells)).returncode, 0)
        text = (self.folder / "out" / "tables.md").read_text()
        self.assertIn("| opt-13b | 1000.0 | 8000.0 | 8 | 8 | 0.0 % | 0 % |", text)
        self.assertIn("Regret: median 0.0 %, worst 0.0 %. Predicted times: median error 0 %.", text)
        cells[4] = of("bmc", 16) | {"seconds": of("bmc", 16)["seconds"] | {"total": 0.05}}  # one that is better than the model knows
        self.assertEqual(self.plot(*map(json.dumps, cells)).returncode, 0)
        self.assertIn("| 8 | 16 | 231.8 % |", (self.folder / "out" / "tables.md").read_text())

    def test_BestT_StandsByTheNumberOfTokens(self):
        cells = [cell(policy, t, abs(math.log2(t / best)) + 1, tokens=n, key=f"{n}/{t}") for n, best in ((128, 4), (512, 8), (2048, 16))
                 for policy, t in (("upfront", 1), ("bmc", 4), ("bmc", 8), ("bmc", 16), ("iterative", n))]
        self.assertEqual(self.plot(*map(json.dumps, cells), more=("--details", "512 tokens")).returncode, 0)
        text = (self.folder / "out" / "tables.md").read_text()
        self.assertIn("| best T, by N | 128 | 512 | 2048 |\n| --- | --- | --- | --- |\n| opt-13b | 4 | 8 | 16 |", text)
        figures = sorted(path.name for path in (self.folder / "out").glob("*.svg"))
        self.assertEqual(figures, ["best_T_f32_b8_t1.svg", "breakdown_opt-13b_padded_f32_b8_n512_t1.svg", "total_by_T_padded_f32_b8_n512_t1.svg"])

    def test_Means_AreOverShapes(self):
        cells = [cell(policy, t, value * scale, shape=shape, key=f"{shape}/{policy}/{t}") for shape, scale in (("opt-13b", 1), ("opt-2.7b", 4))
                 for policy, t, value in (("upfront", 1, 2.0 * scale), ("bmc", 4 * scale, 1.0), ("bmc", 8, 3.0), ("iterative", 512, 5.0))]
        self.assertEqual(self.plot(*map(json.dumps, cells)).returncode, 0)
        self.assertIn("| padded, F32, batch 8, 512 tokens, 1 thread | 2 | 4 to 16 | 5.00 |  | 4.00 |  |  |",
                      (self.folder / "out" / "tables.md").read_text())

    def test_LaterLine_CountsInsteadOfAnEarlierOne(self):
        done = self.plot(*map(json.dumps, [cell("upfront", 1, 2.0), cell("bmc", 8, 9.0), cell("iterative", 512, 4.0), cell("bmc", 8, 1.0)]))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| opt-13b | 8 |", (self.folder / "out" / "tables.md").read_text())

    def test_EmptyJournal_IsAnError(self):
        done = self.plot("")
        self.assertEqual(done.returncode, 1)
        self.assertIn("found none", done.stderr)


if __name__ == "__main__":
    unittest.main()
