#!/usr/bin/env python3
"""Tests of plot_speed_tables.py with made-up rows: python3 tools/plot_speed_tables_test.py"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

from check_speed_table import IK, LLAMA
from check_speed_table_test import pairs, rows

SVG = "{http://www.w3.org/2000/svg}"


class SpeedFigure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def plot(self, *tables: list[dict]) -> subprocess.CompletedProcess:
        for i, table in enumerate(tables):
            (self.folder / f"{i}.jsonl").write_text("".join(json.dumps({"plan": "full"} | record) + "\n" for record in table))
        return self.plot_files(*(f"M{i}={self.folder / f'{i}.jsonl'}" for i in range(len(tables))))

    def plot_files(self, *machines: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, Path(__file__).with_name("plot_speed_tables.py"), *machines, "--out", self.folder / "out"],
                              capture_output=True, text=True)

    def drawn(self, peer: str) -> ElementTree.Element:
        return ElementTree.parse(self.folder / "out" / f"against_{peer}.svg").getroot()

    def test_EveryRow_IsADot_AndEveryMeanABar(self):
        done = self.plot(rows(), rows()[4:])  # the second machine lacks a row of prefill and three of decode
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for peer in (LLAMA, IK):
            root = self.drawn(peer)
            self.assertEqual(len(root.findall(SVG + "circle")), 80 + 76)
            self.assertEqual(sum(line.get("stroke-width") == "3" for line in root.findall(SVG + "line")), 10)
            dashed = [line.get("stroke-width") for line in root.findall(SVG + "line") if line.get("stroke-dasharray")]
            self.assertEqual((dashed.count(None), dashed.count("3")), (5, 4))  # targets, and means of which a row is missing
            self.assertLessEqual({"M0", "M1", "prefill 512", "batches"}, {text.text for text in root.findall(SVG + "text")})

    def test_RowWithAWrongPeer_HasNoDotThere(self):
        table = rows()
        table[0]["wrong"] = [IK]
        self.assertEqual(self.plot(table).returncode, 0)
        self.assertEqual([len(self.drawn(peer).findall(SVG + "circle")) for peer in (LLAMA, IK)], [80, 79])

    def test_FasterRow_StandsHigher(self):
        table = rows()
        table[0]["pairs"] = pairs(5.0, 0.5)
        self.assertEqual(self.plot(table).returncode, 0)
        first, second = ([float(dot.get("cy")) for dot in self.drawn(peer).findall(SVG + "circle")[:2]] for peer in (LLAMA, IK))
        self.assertGreater(first[0], first[1])  # pixels count from above
        self.assertLess(second[0], second[1])

    def test_BarsOfOneFile_AreRelativeToLlamaCpp_WithTokensPerSecondAbove(self):
        (self.folder / "0.jsonl").write_text("".join(json.dumps({"plan": "full"} | record) + "\n" for record in rows()))
        done = self.plot_files(f"M0={self.folder / '0.jsonl'}", "--file", "m0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        root = ElementTree.parse(self.folder / "out" / "tokens_per_s.svg").getroot()
        heights = [float(bar.get("height")) for bar in root.findall(SVG + "rect") if bar.get("fill") != "white" and bar.get("height") != "11"]
        self.assertEqual(len(heights), 6 * 3)
        self.assertAlmostEqual(heights[2] / heights[0], 4.0, delta=0.01)  # theirs is 25 tokens/s, ours 100
        texts = [text.text for text in root.findall(SVG + "text")]
        self.assertEqual((texts.count("25"), texts.count("40"), texts.count("100")), (6, 6, 6))
        self.assertLessEqual({"prefill 512", "depth 8000", "batch 8", "batch 32"}, set(texts))
        self.assertEqual(self.plot_files(f"M0={self.folder / '0.jsonl'}", "--file", "m9").returncode, 1)
        self.assertEqual(self.plot_files(f"M0={self.folder / '0.jsonl'}", f"M1={self.folder / '0.jsonl'}", "--file", "m0").returncode, 2)

    def test_WhatIsNoJournal_IsNamed(self):
        done = self.plot_files("M0=" + str(self.folder / "none.jsonl"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("No such file", done.stderr)
        (self.folder / "torn.jsonl").write_text('{"row": ')
        done = self.plot_files("M0=" + str(self.folder / "torn.jsonl"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("line 1: no whole record", done.stderr)
        self.assertEqual(self.plot_files("journal").returncode, 2)
        self.assertEqual(self.plot_files("M0=a", "M0=b").returncode, 2)
        self.assertEqual(self.plot([]).returncode, 1)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main()
