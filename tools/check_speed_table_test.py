#!/usr/bin/env python3
"""Tests of check_speed_table.py with made-up rows, each fault planted once: python3 tools/check_speed_table_test.py"""

import json
import subprocess
import sys
import unittest

import check_speed_table
from check_speed_table import IK, LLAMA, check, read
from peer_report import OURS
from peer_report import group as group_of


def rows(ik: float = 2.5, llama: float = 4.0) -> list[dict]:
    """A whole table in which we are so many times as fast, with one pair in ten that is 4 % slower."""
    tests = [{"kind": "prefill", "tokens": 512}] + [{"kind": "decode", "depth": n, "gen": 16} for n in (0, 2048, 8000)]
    all_rows = [{"model": f"m{m}", "threads": t} | test for m in range(8) for t in (1, 2) for test in tests]
    all_rows += [{"model": f"m{m}", "threads": 2, "kind": "batch", "batch": b, "depth": d, "gen": 8}
                 for m in range(4) for b in (8, 32) for d in (512, 2048)]
    section = {"settings": {}, "left_out": {}, "peak_rss_mib": {}, "idle_cores": 0.0, "beyond_trained_context": False, "date": "2026-11-28"}
    return [section | {"row": row, "wrong": [], "pairs": pairs(ik, llama), "unused": {OURS: ["AMX"], IK: ["AMX"], LLAMA: []}, "commit": "1a2b3c4",
             "versions": {OURS: "0.1.0", IK: "ik-llama-cpp-python 0.1.5", LLAMA: "llama-cpp-python 0.3.36"}}
            for row in all_rows]


def pairs(ik: float, llama: float) -> list[dict]:
    rates = [{OURS: ours, IK: 100 / ik, LLAMA: 100 / llama} for ours in [100.0] * 9 + [96.0]]
    return [{name: {"tokens_per_s": rate, "tokens_per_cpu_s": rate, "others_cores": 0.0} for name, rate in pair.items()} for pair in rates]


class SpeedTable(unittest.TestCase):
    def faults(self, table: list[dict]) -> list[str]:
        return check(table)[1]

    def test_WholeAndFastTable_Passes(self):
        lines, faults = check(rows())
        self.assertEqual(faults, [])
        self.assertEqual(sum("| met |" in line for line in lines), 10)
        self.assertEqual(lines[-1], "Rows that lose: none")

    def test_MeanBelowTheTarget_IsNamed(self):
        self.assertEqual(self.faults(rows(ik=1.4))[0],
                         "decode at depth 2048, ik_llama.cpp: a geometric mean of 1.400, expected at least 1.5")
        self.assertEqual(self.faults(rows(llama=2.6)),
                         ["batched decode, llama.cpp: a geometric mean of 2.600, expected at least 3.0"])

    def test_RowThatIsMissing_IsAFault(self):
        lines, faults = check(rows()[1:])
        self.assertEqual(faults, ["prefill: 15 of 16 rows are measured"])
        self.assertEqual(sum("| incomplete |" in line for line in lines), 2)
        self.assertEqual(sum("| met |" in line for line in lines), 8)
        lines, faults = check(rows()[1:] + rows()[4:5])  # another one twice
        self.assertEqual(faults, ["prefill: 15 of 16 rows are measured"])
        self.assertEqual(sum("| incomplete |" in line for line in lines), 2)

    def test_RowOfNoGroup_IsAFault(self):
        other = rows()[1] | {"plan": {}}
        self.assertEqual(read(json.dumps(other))[1], [])
        self.assertEqual(read(json.dumps(other | {"row": other["row"] | {"depth": 512}}))[1], ["m0, 1 thread, decode at depth 512: no row of the plan"])

    def test_Spread_IsPrintedWithAndWithoutTheBestFile(self):
        table = rows(ik=2.0)
        for record in table[:8:4]:  # prefill of m0
            record["pairs"] = pairs(8.0, 4.0)
        self.assertIn("| prefill | ik_llama.cpp | 1.3 | 2.378 | 16 | met | 2.00, 8.00 | 2.00 |", check(table)[0])

    def test_RowThatLosesMuch_IsAFault(self):
        table = rows()
        table[0]["pairs"] = pairs(0.8, 4.0)
        self.assertEqual(self.faults(table), ["m0, 1 thread, prefill 512: loses by 20%, at most 15% may be lost"])

    def test_RowThatLosesToTheOtherPeer_IsAFault(self):
        table = rows()
        table[0]["pairs"] = pairs(1.2, 0.8)
        self.assertEqual(self.faults(table), ["m0, 1 thread, prefill 512: loses by 20%, at most 15% may be lost"])

    def test_ThreeRowsThatLoseALittle_AreNamedAndAllowed_AFourthIsNot(self):
        table = rows()
        for index in (0, 1, 4):
            table[index]["pairs"] = pairs(0.9, 4.0)
        lines, faults = check(table)
        self.assertEqual(faults, [])
        self.assertEqual(lines[-1].count(" by 10%"), 3)
        table[5]["pairs"] = pairs(0.9, 4.0)
        self.assertEqual(len(self.faults(table)), 1)

    def test_RowThatLosesToThePeerWithTheHigherRatio_IsAFault(self):
        table = rows()
        table[0]["pairs"] = pairs(0.8, 0.75)
        for pair in table[0]["pairs"][:4]:  # against llama.cpp the interval reaches 1
            pair[LLAMA]["tokens_per_s"] = 50.0
        self.assertEqual(self.faults(table), ["m0, 1 thread, prefill 512: loses by 20%, at most 15% may be lost"])

    def test_RowThatWasLeftOut_IsNamed(self):
        table = rows()
        table[0] |= {"pairs": [], "skipped": "contexts of 9 GiB, room for 1 GiB"}
        self.assertEqual(self.faults(table), ["m0, 1 thread, prefill 512: left out: contexts of 9 GiB, room for 1 GiB",
                                              "prefill: 15 of 16 rows are measured"])

    def test_Journal_TornLinesPlansAndDoubles_AreFaults(self):
        lines = [json.dumps(row | {"plan": {"engine": ["bench"]}}) for row in rows()]
        self.assertEqual(read("\n".join(lines))[1], [])
        self.assertEqual(read("\n".join(lines[:2] + [lines[2][:40]]))[1], ["line 3: no whole record of compare_peers.py"])
        self.assertEqual(read("{}\n[1]\n7")[1], [f"line {n}: no whole record of compare_peers.py" for n in (1, 2, 3)])
        self.assertEqual(read("\n".join(lines + lines[:1]))[1], ["m0, 1 thread, prefill 512: 2 times"])
        other = json.dumps(rows()[1] | {"plan": {"engine": ["bench", "--isa", "avx2"]}})
        self.assertIn("2 plans, expected one", read("\n".join(lines[:1] + [other]))[1][0])

    def test_RecordThatNobodyWrote_IsAFault(self):
        whole = rows()[0] | {"plan": {}}
        pair = whole["pairs"][0]
        self.assertEqual(read(json.dumps(whole))[1], [])
        rated = [{"pairs": [pair | {OURS: pair[OURS] | {"tokens_per_s": rate}}]} for rate in (float("nan"), float("inf"), 0, -1, "x", None, 10**400, 5e-324)]
        rated += [{"pairs": [pair | {OURS: pair[OURS] | {"others_cores": busy}}]} for busy in (float("nan"), -1, "x", None)]
        members = [{"row": None}, {"row": whole["row"] | {"threads": "1"}}, {"row": {"kind": "x"}}, {"row": whole["row"] | {"kind": ["prefill"]}}, {"pairs": 1}, {"pairs": [1]}, {"pairs": [{}]},
                   {"pairs": [pair, {OURS: pair[OURS]}]}, {"wrong": None}, {"wrong": [[]]}, {"unused": {}}, {"unused": whole["unused"] | {IK: None}},
                   {"commit": None}, {"versions": None}, {"versions": {IK: "ik-llama-cpp-python 0.1.5"}}]
        for damage in rated + members:
            self.assertEqual(read(json.dumps(whole | damage))[1], ["line 1: no whole record of compare_peers.py"], damage)
        self.assertEqual(read("[" * 100000)[1], ["line 1: no whole record of compare_peers.py"])

    def test_RowsOfAnotherPlan_AreAFault(self):
        table = rows()
        for i, record in enumerate(table):
            record["row"] |= {"model": "m0", "threads": i + 1}
        self.assertIn("prefill: other rows than the plan's", self.faults(table))
        self.assertIn("batched decode: other rows than the plan's", self.faults(table))

    def test_OtherTestsThanThePlans_AreAFault(self):
        for group, member, value in (("prefill", "tokens", 128), ("decode at depth 2048", "gen", 32), ("batched decode", "gen", 16)):
            table = rows()
            for record in table:
                if group_of(record["row"]) == group:
                    record["row"] |= {member: value}
            self.assertEqual(self.faults(table), [f"{group}: other rows than the plan's"])

    def test_PeersOfAnotherPackageOrOfTwoVersions_AreFaults(self):
        first, second, *_ = (row | {"plan": {}} for row in rows())
        swapped = first | {"versions": first["versions"] | {IK: "llama-cpp-python 0.3.36"}}
        self.assertEqual(read(json.dumps(swapped))[1], ["ik_llama.cpp: measured was llama-cpp-python 0.3.36"])
        newer = second | {"versions": second["versions"] | {LLAMA: "llama-cpp-python 0.4"}}
        self.assertEqual(read(json.dumps(first) + "\n" + json.dumps(newer))[1],
                         ["llama.cpp: 2 versions, expected one: llama-cpp-python 0.3.36, llama-cpp-python 0.4"])

    def test_PeerThatIsWrongInMostRows_IsAFault(self):
        table = rows()
        for record in table[:3 * 4:4]:  # prefill
            record["wrong"] = [IK]
        self.assertEqual(self.faults(table), ["prefill, ik_llama.cpp: 3 rows without it, since it is WRONG there; at most 2 may be"])
        table[0]["wrong"] = []
        self.assertEqual(self.faults(table), [])

    def test_IntervalThatReachesOne_IsNoLoss(self):
        table = rows()
        for pair in table[0]["pairs"][:4]:
            pair[OURS]["tokens_per_s"] = 39.0
        self.assertEqual(self.faults(table), [])

    def test_PeerThatIsWrong_LeavesTheRowToTheOther(self):
        table = rows()
        table[0]["wrong"], table[0]["pairs"] = [IK], pairs(9.0, 0.7)
        self.assertEqual(self.faults(table), ["m0, 1 thread, prefill 512: loses by 30%, at most 15% may be lost"])

    def test_PeerThatHasNoNumber_IsAFault(self):
        table = rows()
        for pair in table[0]["pairs"]:
            del pair[IK]
        lines, faults = check(table)
        self.assertEqual(faults, ["m0, 1 thread, prefill 512: ik_llama.cpp was not measured"])
        self.assertEqual(sum("| incomplete |" in line for line in lines), 1)

    def test_RowThatIsNotToBeQuoted_IsAFault(self):
        for more, why in (({"unused": {OURS: ["AMX"], IK: ["AMX", "AVX512"]}}, "ik_llama.cpp leaves AVX512 unused, which ours does not"),
                          ({"pairs": pairs(2.5, 4.0)[:9]}, "9 pairs, expected at least 10"),
                          ({"commit": "1a2b3c4-dirty"}, "measured at 1a2b3c4-dirty: with changes that are in no commit"),
                          ({"commit": "before 1a2b3c4"}, "measured at before 1a2b3c4: with changes that are in no commit")):
            table = rows()
            table[0] |= more
            self.assertEqual(self.faults(table), [f"m0, 1 thread, prefill 512: {why}"])

    def test_RowsOfOneUncommittedProgram_AreNamedTogether(self):
        table = rows()
        for record in table[:3]:
            record["commit"] = "1a2b3c4-dirty"
        self.assertEqual(self.faults(table),
                         ["m0, 1 thread, prefill 512 and 2 more: measured at 1a2b3c4-dirty: with changes that are in no commit"])

    def test_BusyRows_AreCounted(self):
        table = rows()
        for rates in (rates for pair in table[0]["pairs"] for rates in pair.values()):
            rates["others_cores"] = 1.0
        self.assertIn("Rows beside more than 0.1 cores of other work: 1 of 80", check(table)[0])
        self.assertIn("Rows beside more than 0.1 cores of other work: 0 of 80", check(rows())[0])

    def test_NoJournal_IsSaid(self):
        done = subprocess.run([sys.executable, check_speed_table.__file__, "none.jsonl"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("read none.jsonl: expected the FILE.jsonl of compare_peers.py, found: No such file", done.stderr)

    def test_OursWrong_IsAFault(self):
        table = rows()
        table[3]["wrong"] = [OURS]
        self.assertEqual(self.faults(table), ["m0, 1 thread, decode at depth 8000: our logits are WRONG"])


if __name__ == "__main__":
    unittest.main()
