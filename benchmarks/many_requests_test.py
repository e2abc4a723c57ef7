#!/usr/bin/env python3
"""Tests of many_requests.py on made-up timings: python3 benchmarks/many_requests_test.py"""

import random
import subprocess
import sys
import unittest

import many_requests


def timing(first: float, decode: float) -> dict:
    return {"ttft_ms": first, "decode_ms": decode}


class RateTogether(unittest.TestCase):
    def test_is_that_of_the_last_request(self):
        # 3 requests get 10 tokens more each in 90 ms.
        self.assertAlmostEqual(many_requests.rate_together([timing(1, 900), timing(50, 500), timing(100, 90)], 11), 3 * 10 / 0.09)

    def test_refuses_times_in_which_not_all_decode(self):
        for timings in ([timing(1, 150), timing(100, 90)],    # the first one ends before the last one does
                        [timing(101, 500), timing(100, 90)]):  # the last one does not begin last
            with self.assertRaises(SystemExit):
                many_requests.rate_together(timings, 11)


class Flags(unittest.TestCase):
    def test_that_cannot_be_meant_are_refused(self):
        for flag, value in (("--threads", "0"), ("--requests", "1"), ("--mean", "0"), ("--new", "1")):
            done = subprocess.run([sys.executable, many_requests.__file__, "none", "none", flag, value], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{flag} {value}: expected at least", done.stderr)


class Lengths(unittest.TestCase):
    def test_are_unequal_around_the_mean(self):
        lengths = many_requests.lengths_of(random.Random(1), 32, 512)
        self.assertEqual((min(lengths), max(lengths)), (64, 960))
        self.assertAlmostEqual(sum(lengths) / 32, 512, delta=1)

    def test_requests_outlast_the_prompts_behind_theirs(self):
        self.assertEqual(many_requests.steps_before_last([5, 64, 33]), [4, 2, 0])  # 97 rows, 33 rows, none


if __name__ == "__main__":
    unittest.main()
