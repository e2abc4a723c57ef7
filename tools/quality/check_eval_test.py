#!/usr/bin/env python3
"""Tests of check_eval.py with made-up summaries, each fault planted once: python3 tools/quality/check_eval_test.py"""

import copy
import unittest

from check_eval import POLICIES, TASKS, faults

KL = {"dense": 0, "sparq:1/2": 0.01, "sparq:1/8": 0.2, "topk:1/2": 0.013, "topk:1/8": 0.04, "h2o:1/2": 0.2, "h2o:1/8": 0.9, "window:1/2": 0.4,
      "window:1/8": 1.7}


def summary() -> dict:
    rows = [{"task": task, "policy": policy, "questions": TASKS[task], "nll": 1.0, "kl": KL[policy], "ratio": 1.0 + KL[policy],
             "agreement": 1.0 - KL[policy] / 2} | ({"alpha_estimate": 0.98 if policy.endswith("2") else 0.9} if policy[0] in "st" else {})
            for task in TASKS for policy in POLICIES]
    return {"eval": 1, "rows": rows}


class CheckEval(unittest.TestCase):
    def expect(self, fault: str, change) -> None:
        planted = copy.deepcopy(summary())
        change(planted["rows"])
        found = faults(planted)
        self.assertTrue(any(fault in one for one in found), found)

    def expect_value(self, fault: str, policy: str, key: str, value: float) -> None:
        def change(rows: list) -> None:
            for row in rows:
                if row["policy"] == policy:
                    row[key] = value
        self.expect(fault, change)

    def test_good_summary_has_no_fault(self):
        self.assertEqual(faults(summary()), [])

    def test_each_fault_is_found(self):
        self.expect("repetition, dense: expected a row, found none", lambda rows: rows.pop(0))
        self.expect("notes, window:1/8: expected a row", lambda rows: rows.pop())
        self.expect("repetition, dense: expected 8 questions, found 7", lambda rows: rows[0].update(questions=7))
        self.expect("notes, window:1/8: expected finite numbers", lambda rows: rows[-1].update(nll=float("nan")))
        self.expect("dense: expected no divergence", lambda rows: rows[0].update(kl=1e-9))
        self.expect_value("sparq:1/2: expected at least 0.95", "sparq:1/2", "agreement", 0.94)
        self.expect_value("a part of h2o's", "sparq:1/2", "kl", 0.051)
        self.expect_value("a part of window's", "window:1/2", "kl", 0.039)
        self.expect_value("less divergence than h2o's", "sparq:1/8", "kl", 0.9)
        self.expect_value("less divergence than window's", "window:1/8", "kl", 0.19)
        self.expect_value("topk:1/8: expected less divergence than sparq's", "topk:1/8", "kl", 0.3)
        self.expect_value("alpha of sparq", "sparq:1/2", "alpha_estimate", 0.8)


if __name__ == "__main__":
    unittest.main()
