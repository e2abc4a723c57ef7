#!/usr/bin/env python3
"""Tests of end_to_end.py and its tables with a made-up engine: python3 benchmarks/bmc/end_to_end_test.py"""

import json
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import end_to_end
import end_to_end_table

# Answers as tidemill does: a second for a prompt's thousand tokens, a millisecond a step.
TIDEMILL = f"""#!{sys.executable}
import json, sys
command, flags = sys.argv[1], sys.argv[2:]
if command == "inspect":
    print(json.dumps({{"vocab_size": 100, "max_position_embeddings": 2048}}))
elif command == "plan":
    context = int(flags[flags.index("--context") + 1])
    print(json.dumps({{"predicted": {{"prefill": {{"seconds": context / 1000}},
                                    "decode": [{{"depth": 0, "seconds": 0.001}}, {{"depth": context - 1, "seconds": 0.003}}]}}}}))
else:
    for at, line in enumerate(sys.stdin, 1):
        given = json.loads(line)
        print(json.dumps({{"line": at, "timings": {{"ttft_ms": len(given["ids"]), "decode_ms": given["max_new_tokens"]}},
                          "state": {{"growths": 3, "bytes_copied": 1048576}}}}))
    print("inter-token  1.0 ms p50, 2.0 ms p99", file=sys.stderr)
"""


class EndToEnd(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.tidemill = self.folder / "tidemill"
        self.tidemill.write_text(TIDEMILL)
        self.tidemill.chmod(self.tidemill.stat().st_mode | stat.S_IXUSR)
        self.out = self.folder / "cells.jsonl"

    def run_it(self, *more: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, end_to_end.__file__, str(self.tidemill), "a.gguf", "--out", str(self.out), *more],
                              capture_output=True, text=True)

    def cells(self) -> list[dict]:
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    def test_Cells_AreMeasuredOnceAndTabulated(self):
        first = self.run_it("--lengths", "100:50", "--batch", "2", "--policies", "bmc", "iterative")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("2 cells are left to measure", first.stderr)
        self.assertEqual(len(self.cells()), 2)
        again = self.run_it("--lengths", "100:50", "--batch", "2", "--policies", "bmc", "iterative", "reserve")
        self.assertIn("1 cells are left to measure", again.stderr)
        self.assertEqual([cell["cell"]["engine"] for cell in self.cells()][2:], ["reserve"])
        tables = subprocess.run([sys.executable, end_to_end_table.__file__, str(self.out)], capture_output=True, text=True)
        self.assertIn("### a.gguf, 100 tokens and 50 more, batch 2, 2 threads", tables.stdout)
        self.assertIn("| bmc | 666.7 | 1.00x |  | 0.10 | 1.0 | 3 | 1.0 |", tables.stdout)

    def test_GroupsThatDoNotFit_AreLeftAndSmallerOnesMeasured(self):
        done = self.run_it("--lengths", "100:50", "--batch", "1000", "1", "--policies", "bmc", "--minutes", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([cell["cell"]["batch"] for cell in self.cells()], [1])
        self.assertIn("1 cells are left, for which 1 minutes had no room", done.stderr)

    def test_ContextsThatAModelLacks_AreLeftOut(self):
        done = self.run_it("--lengths", "1920:1920", "1024:16", "--batch", "8", "--ragged", "--policies", "bmc", "--estimate")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 cells are left to measure", done.stderr)
        self.assertFalse(self.out.exists())

    def test_RaggedPrompts_HaveTheMean(self):
        lengths = end_to_end.prompts_of(512, 32, True)
        self.assertEqual((min(lengths), max(lengths), len(lengths)), (64, 960, 32))
        self.assertAlmostEqual(sum(lengths) / 32, 512, delta=1)

    def test_FailedCell_SaysWhyAndOthersGoOn(self):
        self.tidemill.write_text(TIDEMILL.replace("    for at,", "    if 'paged' in flags: sys.exit('no memory')\n    for at,"))
        command = ["--lengths", "100:50", "--batch", "2", "--policies", "bmc", "paged"]
        done = self.run_it(*command)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("1 cells failed", done.stderr)
        self.assertEqual({cell["cell"]["engine"]: cell.get("error", "").strip() for cell in self.cells()}, {"bmc": "", "paged": "no memory"})
        self.tidemill.write_text(TIDEMILL)
        again = self.run_it(*command)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("1 cells are left to measure", again.stderr)
        tables = subprocess.run([sys.executable, end_to_end_table.__file__, str(self.out)], capture_output=True, text=True)
        self.assertNotIn("no memory", tables.stdout)


if __name__ == "__main__":
    unittest.main()
