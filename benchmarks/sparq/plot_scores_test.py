"""Tests of plot_scores.py."""

import json
import tempfile
import unittest
from pathlib import Path

import plot_scores


def record(policy: str, task: str, kl: float, share: float, tokens: int = 10) -> dict:
    return {"policy": policy, "task": task, "kl": kl, "bytes": share, "scored_tokens": tokens}


class PlotScoresTest(unittest.TestCase):
    def test_points_weigh_tasks_alike_and_tokens_within_a_task(self):
        records = [record("sparq:1/8", "a", 0.1, 0.125, 10), record("sparq:1/8", "a", 0.4, 0.125, 20), record("sparq:1/8", "b", 0.7, 0.125, 1),
                   record("sparq:1/2", "a", 0.01, 0.5), record("sparq:1/2", "b", 0.03, 0.5)]
        (half, low), (eighth, high) = plot_scores.points(records)
        self.assertAlmostEqual(half, 2)
        self.assertAlmostEqual(low, 0.02)
        self.assertAlmostEqual(eighth, 8)
        self.assertAlmostEqual(high, (0.3 + 0.7) / 2)

    def test_torn_line_and_header_are_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "scores.jsonl"
            path.write_text('{"eval":1}\n' + json.dumps(record("h2o:1/8", "a", 1, 0.1)) + '\n{"policy":"h2o', encoding="utf-8")
            self.assertEqual([r["policy"] for r in plot_scores.read(path)], ["h2o:1/8"])

    def test_lines_are_those_of_kinds(self):
        records = [record("sparq:1/8", "a", 0.1, 0.125), record("h2o:1/8", "a", 0.2, 0.125)]
        lines = plot_scores.lines_of(records, plot_scores.kind)
        self.assertEqual([line.name for line in lines], ["sparq", "h2o"])
        self.assertEqual(lines[0].points, [(8.0, 0.1)])


if __name__ == "__main__":
    unittest.main()
