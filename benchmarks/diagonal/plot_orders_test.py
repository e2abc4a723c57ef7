"""Tests of plot_orders.py, of planted measurements."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import plot_orders


def run(order: str, number: int, seconds: float, size: int = 64, error: float = 0.0, model: str = "armt-160m", want: str = "nothing") -> dict:
    return {"mode": "orders", "model": model, "segment": size, "memory": 16, "threads": 2, "isa": "avx2", "segments": 10, "want": want, "order": order,
            "round": number, "seconds": seconds, "error": error, "max_a": 3.0, "max_z": 5.0}


def full(tokens: int, seconds: float) -> dict:
    return {"mode": "full", "model": "armt-160m-base", "threads": 2, "tokens": tokens, "chunk": 512, "whole": False, "seconds": seconds}


class PlotOrdersTest(unittest.TestCase):
    def test_gain_is_paired_within_rounds(self):
        slow = {i: float(i) for i in range(1, 6)}  # a machine that becomes slower
        self.assertEqual(plot_orders.gain({i: s / 2 for i, s in slow.items()}, slow), (2.0, 2.0, 2.0))
        self.assertEqual(plot_orders.gain({1: 1.0, 2: 1.0, 3: 1.0}, {1: 1.0, 2: 3.0, 3: 2.0, 9: 100.0}), (2.0, 1.0, 3.0))
        with self.assertRaises(ValueError):
            plot_orders.gain({1: 1.0}, {2: 1.0})

    def test_interval_of_many_rounds_lies_within_their_range(self):
        base = {i: 2.0 + i % 3 for i in range(12)}
        middle, low, high = plot_orders.gain(dict.fromkeys(range(12), 1.0), base)
        self.assertTrue(2 <= low <= middle <= high <= 4)

    def test_orders_of_other_settings_are_not_compared(self):
        records = [run("sequential", 1, 20.0), run("diagonal", 1, 10.0), run("sequential", 1, 8.0, size=8), run("diagonal", 1, 2.0, size=8)]
        lines = plot_orders.gain_lines(records, 2, "nothing")
        self.assertEqual([(line.name, line.points) for line in lines], [("diagonal", [(24, 4.0), (80, 2.0)])])
        self.assertEqual(plot_orders.gain_lines(records, 1, "nothing"), [])
        table = plot_orders.orders_table(records)
        self.assertIn("| armt-160m | 64, 16 | 10 | 2 | nothing | diagonal | 1 | 2.00x [2.00, 2.00] | 0 | 3 | 5 |", table)

    def test_layers_are_those_of_the_name(self):
        records = [run(order, 1, seconds) | {"model": f"small-L{layers}"}
                   for layers, pairs in ((16, (("sequential", 8.0), ("diagonal 16", 4.0), ("teams 2 x 1", 2.0))), (4, (("sequential", 3.0), ("diagonal 4", 3.0))))
                   for order, seconds in pairs]
        lines = plot_orders.layer_lines(records + [run("sequential", 1, 1.0), run("diagonal 3", 1, 0.1)], "small")
        self.assertEqual([(line.name, line.points) for line in lines], [("diagonal", [(4, 1.0), (16, 2.0)]), ("teams 2 x 1", [(16, 4.0)])])

    def test_an_error_of_any_round_stands_in_the_table(self):
        table = plot_orders.orders_table([run("sequential", 1, 1.0), run("diagonal", 1, 1.0, error=0.02), run("diagonal", 2, 1.0)])
        self.assertIn("| 0.02 |", table[-1])

    def test_time_is_that_of_whole_segments_in_the_fastest_order(self):
        records = [full(640, 30.0), full(1280, 100.0), run("sequential", 1, 20.0), run("teams 2 x 1", 1, 10.0), run("teams 2 x 1", 1, 1.0, want="logits"),
                   run("diagonal", 1, 1.0, model="another")]
        attention, segments = plot_orders.time_lines(records, "armt-160m-base", 2)
        self.assertEqual(attention.points, [(640, 30.0), (1280, 100.0)])
        self.assertEqual((segments.name, segments.points), ("(64, 16)", [(640, 10.0), (1280, 20.0)]))
        self.assertIn("| armt-160m-base | 2 | 1280 | 100 | 64, 16 | 20 | 5.00x |", plot_orders.full_table(records))

    def test_files_are_written_and_a_torn_line_is_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            journal, out = Path(folder) / "a.jsonl", Path(folder) / "out"
            records = [run("sequential", 1, 2.0), run("diagonal", 1, 1.0), run("sequential", 1, 2.0, size=8), run("diagonal", 1, 1.0, size=8), full(640, 3.0),
                       full(1280, 9.0), {"mode": "decode", "model": "armt-160m", "threads": 2, "tokens": 640, "tail": 64, "seconds": 0.002},
                       {"mode": "rates", "model": "armt-160m", "threads": 2, "operation": "matmul", "group": 1, "rows": 80, "seconds": 1, "flops": 1e9},
                       {"mode": "rates", "model": "armt-160m", "threads": 2, "operation": "matmul", "group": 2, "rows": 80, "seconds": 1, "flops": 2e9}]
            journal.write_text("".join(json.dumps(r) + "\n" for r in records) + '{"mode":"ord', encoding="utf-8")
            program = Path(plot_orders.__file__)
            subprocess.run([sys.executable, program, journal, "--out", out], check=True)
            names = {"tables.md", "gain_t2_nothing.svg", "time_armt-160m-base_t2.svg", "rates_armt-160m.svg"}
            self.assertEqual({f.name for f in out.iterdir()}, names)
            self.assertIn("| armt-160m | 2 | 640 | 64 | 2 |", (out / "tables.md").read_text())
            journal.write_text("\n", encoding="utf-8")
            found = subprocess.run([sys.executable, program, journal, "--out", out], capture_output=True, text=True)
            self.assertEqual(found.returncode, 1)
            self.assertIn("expected lines of diagonal_orders, found none", found.stderr)


if __name__ == "__main__":
    unittest.main()
