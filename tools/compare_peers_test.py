#!/usr/bin/env python3
"""Tests of compare_peers.py with programs that print chosen measurements: python3 tools/compare_peers_test.py"""

import argparse
import hashlib
import json
import random
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import compare_peers
import peer_report
import peer_process
from peer_process import CompareError, Engine, fault_of, settings_of

# Answers every line of settings. RATE, WRONG: expressions of the settings `s`. Each start is noted in FILE.started.
FAKE = """
import json, sys
PACKAGES = {"llama.cpp": "llama-cpp-python", "ik_llama.cpp": "ik-llama-cpp-python"}
open(__file__ + ".started", "a").write("x")
for line in sys.stdin:
    s = json.loads(line)
    rate = RATE
    about = {"gen_tokens": s["gen_tokens"]}
    samples = [{"tokens_per_s": rate, "tokens_per_cpu_s": rate, "seconds": 1.0, "others_cores": 0.0}] * s["repeats"]
    tests = [{"test": "prefill", "prompt_tokens": p, "samples": samples, "disagreement": WRONG} for p in s["prompt_tokens"]]
    limit = {"bytes_per_step": 2e9, "read_gb_per_s": 150.0} if s.get("read_rate") else {}
    tests += [{"test": "decode", "depth": d, "samples": samples} | about | limit for d in s["depth"]]
    tests += [{"test": "batch", "batch": b, "prompt_tokens": s["batch_prompt"], "samples": samples, "disagreement": WRONG} | about for b in s["batch"]]
    print("noise before the measurement")
    print(json.dumps({"engine": s["engine"], "version": PACKAGES.get(s["engine"], "ours") + " 1", "isa": {"used": [], "unused": UNUSED}, "threads": s["threads"],
                      "kv_bytes_per_token": KV, "tests": tests}), flush=True)
"""


def fake(folder: Path, name: str, rate: str, unused: str = "[]", wrong: str = "0.1", kv: str = "1") -> str:
    path = folder / name
    path.write_text(FAKE.replace("RATE", rate).replace("UNUSED", unused).replace("WRONG", wrong).replace("KV", kv))
    return str(path)


class ComparePeers(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "m.gguf").touch()

    def python(self, peer: str) -> str:
        """An interpreter that ignores the driver's path and runs the fake instead."""
        path = self.folder / (Path(peer).stem + ".python")
        path.write_text(f"#!/bin/sh\nexec {sys.executable} {peer}\n")
        path.chmod(0o755)
        return str(path)

    def compare(self, engine: str, peers: dict[str, str], *more: str) -> subprocess.CompletedProcess:
        named = [text for name, peer in peers.items() for text in ("--peer", f"{name}={self.python(peer)}")]
        return subprocess.run([sys.executable, compare_peers.__file__, "--model", str(self.folder / "m.gguf"), *named,
                               "--engine-command", f"{sys.executable} {engine}", "--out", str(self.folder / "out.md"),
                               "--threads", "1", *more], capture_output=True, text=True)

    def records(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "out.md.jsonl").read_text().splitlines()]

    def test_TwoPeers_EachIsTakenAtItsBestSetting(self):
        engine = fake(self.folder, "engine.py", "60")
        llama = fake(self.folder, "llama.py", "30 if s['flash_attn'] else 20")
        ik = fake(self.folder, "ik.py", "(40 if s['flash_attn'] else 50) + 30 * s.get('repack', False)")
        done = self.compare(engine, {"llama.cpp": llama, "ik_llama.cpp": ik})
        self.assertEqual(done.returncode, 0, done.stderr)
        records = self.records()
        self.assertEqual([peer_report.label(r["row"]) for r in records],
                         ["prefill 128", "decode at depth 0", "decode at depth 512", "decode batch 8 at 128"])
        for record in records:
            self.assertEqual(record["settings"], {"Tidemill": "", "llama.cpp": "FA", "ik_llama.cpp": "no FA, rtr"})
            self.assertEqual(len(record["pairs"]), 3)
            self.assertEqual(record["program"], hashlib.sha256(Path(sys.executable).read_bytes()).hexdigest())
            self.assertEqual(peer_report.compare(record, "llama.cpp", "tokens_per_s")["ratio"], 2.0)
            self.assertEqual(peer_report.compare(record, "ik_llama.cpp", "tokens_per_cpu_s")["ratio"], 0.75)
        self.assertIn("**2.00** [2.00, 2.00]", done.stdout)
        self.assertIn("| prefill | 2.00x (1 row) | 2.00x (1 row) | 0.75x (1 row) | 0.75x (1 row) |", done.stdout)
        self.assertEqual(done.stdout.count("0.75x ik_llama.cpp (no FA, rtr)\n"), 4)
        self.assertEqual(done.stdout, (self.folder / "out.md").read_text())
        for program in (engine, llama, ik):
            self.assertEqual(Path(program + ".started").read_text(), "x")  # alive for all rows

    def test_BatchSlowerThanItsSequencesOneByOne_IsTold(self):
        engine, ik = fake(self.folder, "engine.py", "60"), fake(self.folder, "ik.py", "10 if s['batch'] else 30")
        llama = fake(self.folder, "llama.py", "30")
        done = self.compare(engine, {"llama.cpp": llama, "ik_llama.cpp": ik}, "--only", "decode")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| batched decode | 2.00x (1 row) | 2.00x (1 row) | 6.00x (1 row) | 6.00x (1 row) |", done.stdout)
        self.assertIn("one by one:\n\n- ik_llama.cpp: 2.00x, one by one being faster in 1 of 1 rows\n\n", done.stdout)

    def test_SequencesOneByOne_AreThoseBehindAsManyPositions(self):
        def record(rate: float, **row) -> dict:
            pair = {name: {"tokens_per_s": r, "tokens_per_cpu_s": r} for name, r in ((peer_report.OURS, 60.0), ("llama.cpp", rate))}
            return {"row": {"model": "m", "threads": 2} | row, "wrong": [], "pairs": [pair]}

        batch = record(10, kind="batch", batch=8, depth=2048)
        others = [record(50, kind="decode", depth=0), record(20, kind="decode", depth=2048),
                  record(55, kind="decode", depth=2048, threads=1), record(58, kind="decode", depth=2048, model="another")]

        def told(*records: dict) -> list[str]:
            return peer_report.one_after_another(peer_report.with_ratios(list(records), ["llama.cpp"]), ["llama.cpp"])[3:]

        self.assertEqual(told(batch, *others), ["- llama.cpp: 3.00x, one by one being faster in 1 of 1 rows"])
        self.assertEqual(told(batch | {"wrong": ["llama.cpp"]}, *others), [])
        self.assertEqual(told(record(30, kind="batch", batch=8, depth=2048), *others), [])  # the batch is faster
        self.assertEqual(told(batch, *others[2:]), [])  # and where nothing tells of one by one

    def test_TimeThatClocksDidNotSee_GivesNoRatio(self):
        for ours, theirs in ((0.0, 1.0), (1.0, 0.0)):
            pairs = [{peer_report.OURS: {"tokens_per_cpu_s": one}, "llama.cpp": {"tokens_per_cpu_s": other}} for one, other in ((1.0, 1.0), (ours, theirs))]
            self.assertIsNone(peer_report.compare({"wrong": [], "pairs": pairs}, "llama.cpp", "tokens_per_cpu_s"))

    def test_Decode_IsHeldAgainstWhatALoopReads(self):
        engine, peer = fake(self.folder, "engine.py", "60"), fake(self.folder, "llama.py", "30")
        done = self.compare(engine, {"llama.cpp": peer}, "--only", "(prefill|depth)")
        self.assertEqual(done.returncode, 0, done.stderr)
        prefill, decode, _ = self.records()
        self.assertEqual(decode["pairs"][0]["Tidemill"]["read_share"], 0.8)  # 60 steps of 2 GB in a second, of 150
        self.assertEqual(decode["pairs"][0]["Tidemill"]["read_gb_per_s"], 150)
        self.assertNotIn("read_share", prefill["pairs"][0]["Tidemill"] | decode["pairs"][0]["llama.cpp"])
        self.assertIn("- decode at depth 512, 1 row: at 80% of the loop's rate on average; at all of it 2.50x llama.cpp\n", done.stdout)
        self.assertIn("| 60.0 | 80% | 30.0 |", done.stdout)
        self.assertIn("| 60.0 | - | 30.0 |", done.stdout)

    def test_CommandLineThatCannotBeMeant_IsRefused(self):
        engine, peer = fake(self.folder, "engine.py", "60"), fake(self.folder, "llama.py", "30")
        for flags, said in ((["--only", "["], "--only: expected a regular expression"), (["--only", "zzz"], "found none that it matches"),
                            (["--seconds", "nan"], "seconds must be positive"), (["--engine-command", ""], "expected a program, found nothing"),
                            (["--engine-command", "/none"], "/none")):
            done = self.compare(engine, {"llama.cpp": peer}, *flags)
            self.assertNotEqual(done.returncode, 0, flags)
            self.assertIn(said, done.stderr)
            self.assertNotIn("Traceback", done.stderr, flags)

    def test_DecodeAboveItsLoop_IsTold(self):
        def record(share: float, threads: int) -> dict:
            pair = {name: {"tokens_per_s": rate, "tokens_per_cpu_s": rate} for name, rate in ((peer_report.OURS, 60.0), ("llama.cpp", 30.0))}
            pair[peer_report.OURS] |= {"read_share": share}
            return {"row": {"model": "m", "kind": "decode", "depth": 0, "threads": threads}, "wrong": [], "pairs": [pair]}

        def told(*records: dict) -> str:
            return peer_report.at_reading_alone(peer_report.with_ratios(list(records), ["llama.cpp"]), ["llama.cpp"])[-1]

        self.assertTrue(told(record(0.5, 1), record(2.0, 2)).endswith("at all of it 2.00x llama.cpp; above all of it: 1"))
        self.assertTrue(told(record(0.5, 1)).endswith("at all of it 4.00x llama.cpp"))

    def test_LongerContext_TakesTheSettingOfTheShorterOne(self):
        engine = fake(self.folder, "engine.py", "60")
        peer = fake(self.folder, "llama.py", "30 if s['flash_attn'] == (s['depth'] == [512]) else 20")
        args = argparse.Namespace(engine_command=f"{sys.executable} {engine}", peer={"llama.cpp": self.python(peer)}, seed=1,
                                  seconds=0.1, pairs=1, plan="full")
        row = {"model": "m.gguf", "threads": 1, "kind": "decode", "gen": 1}

        def settings(comparison: compare_peers.Comparison, *rows: dict) -> list[str]:
            self.addCleanup(comparison.close)
            return [comparison.measure_row(row | more, self.folder / "m.gguf")["settings"]["llama.cpp"] for more in rows]

        comparison = compare_peers.Comparison(args, [])
        self.assertEqual(settings(comparison, {"depth": 0}, {"depth": 512}, {"depth": 2048}, {"depth": 2048, "threads": 2}),
                         ["no FA", "FA", "FA", "no FA"])
        # A row that an earlier run left in the journal is as good as one of this run.
        earlier = [{"row": row | {"depth": 512}, "settings": {"llama.cpp": "FA"}, "wrong": []}]
        self.assertEqual(settings(compare_peers.Comparison(args, earlier), {"depth": 2048}), ["FA"])
        self.assertEqual(settings(compare_peers.Comparison(args, [earlier[0] | {"wrong": ["llama.cpp"]}]), {"depth": 2048}),
                         ["no FA"])
        # Where that setting fails at a greater depth, another may not.
        fake(self.folder, "llama.py", "30 if not s['flash_attn'] else sys.exit('too deep') if s['depth'] == [2048] else 40")
        deeper = compare_peers.Comparison(args, earlier)
        self.addCleanup(deeper.close)
        record = deeper.measure_row(row | {"depth": 2048}, self.folder / "m.gguf")
        self.assertEqual(record["settings"]["llama.cpp"], "no FA")
        why, = record["left_out"]["llama.cpp"]  # once
        self.assertIn("FA: measure llama.cpp", why)

    def test_WrongLogits_GiveNoRatio(self):
        engine = fake(self.folder, "engine.py", "60")
        some = fake(self.folder, "some.py", "90 if s['flash_attn'] else 30", wrong="0.6 if s['flash_attn'] else 0.1")
        every = fake(self.folder, "every.py", "90", wrong="float('nan')")
        done = self.compare(engine, {"llama.cpp": some, "ik_llama.cpp": every}, "--only", "prefill")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| 90.0 WRONG |", done.stdout)
        self.assertIn("**2.00**", done.stdout)  # of llama.cpp, at the setting that is right
        self.assertEqual(self.records()[0]["wrong"], ["ik_llama.cpp"])
        self.assertIn("llama.cpp: FA: WRONG, logits differ by a relative RMS of 0.60", done.stdout)

    def test_OursWrong_GivesNoRatioAgainstAny(self):
        engine, peer = fake(self.folder, "engine.py", "60", wrong="2.0"), fake(self.folder, "peer.py", "30")
        done = self.compare(engine, {"llama.cpp": peer}, "--only", "prefill")
        self.assertIn("60.0 WRONG", done.stdout)
        self.assertNotIn("**2.00**", done.stdout)

    def test_Deepest_IsOfOneSequenceBehindSomething(self):
        def deepest(**row) -> int:
            return compare_peers.settings_for(row | {"threads": 1}, self.folder / "m.gguf", 1, 8000)["deepest"]

        self.assertEqual(deepest(kind="decode", depth=512), 8000)
        self.assertEqual(deepest(kind="decode", depth=0), 0)
        self.assertEqual(deepest(kind="batch", batch=8, depth=512), 0)  # eight such contexts would not fit
        self.assertEqual(deepest(kind="prefill", tokens=512), 0)

    def test_IkBatch_RunsWithoutFlashAttention(self):
        row = {"kind": "batch", "batch": 8}
        self.assertEqual(list(settings_of("ik_llama.cpp", row)), ["no FA", "no FA, rtr"])
        self.assertEqual(len(settings_of("ik_llama.cpp", row | {"batch": 1})), 4)
        self.assertEqual(list(settings_of("llama.cpp", row)), ["FA", "no FA"])

    def test_SettingThatAborts_IsLeftOutAndTheOthersCompared(self):
        engine = fake(self.folder, "engine.py", "60")
        peer = fake(self.folder, "peer.py", "30 if not s['flash_attn'] or not s['depth'] else sys.exit('GGML_ASSERT')")
        done = self.compare(engine, {"llama.cpp": peer}, "--only", "decode at depth 0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.records()[0]["settings"]["llama.cpp"], "no FA")
        self.assertIn("GGML_ASSERT", done.stdout)

    def test_StoppedRun_GoesOnBehindFinishedRows(self):
        engine, peer = fake(self.folder, "engine.py", "60"), fake(self.folder, "peer.py", "30")
        self.compare(engine, {"llama.cpp": peer})
        journal = self.folder / "out.md.jsonl"
        first, second, *_ = journal.read_text().splitlines(keepends=True)
        journal.write_text(first + second + '{"half a')
        fake(self.folder, "engine.py", "90")
        done = self.compare(engine, {"llama.cpp": peer})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 of 4 rows are in", done.stderr)
        self.assertEqual((done.stdout.count("| **2.00**"), done.stdout.count("| **3.00**")), (4, 4))
        self.compare(engine, {"llama.cpp": peer}, "--pairs", "2")  # another plan
        self.assertEqual(len(journal.read_text().splitlines()), 9)
        journal.write_text(journal.read_text().replace('"cpu": "', '"cpu": "another than '))
        self.assertNotIn("rows are in", self.compare(engine, {"llama.cpp": peer}).stderr)

    def test_JournalsRecordThatLacksSomething_IsNotThere(self):
        engine, peer = fake(self.folder, "engine.py", "60"), fake(self.folder, "peer.py", "30")
        self.compare(engine, {"llama.cpp": peer}, "--only", "prefill", "--threads", "1", "1")
        record, = self.records()  # once
        journal = self.folder / "out.md.jsonl"
        for member in ("row", "settings", "wrong", "versions", "pairs"):
            journal.write_text(json.dumps({key: value for key, value in record.items() if key != member}) + "\n")
            done = self.compare(engine, {"llama.cpp": peer}, "--only", "prefill")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("rows are in", done.stderr)
            self.assertIn("1 rows of ", done.stderr)
            self.assertEqual(len(self.records()), 2)

    def test_ContextsLargerThanMemory_RowIsListedAsNotRun(self):
        engine, peer = fake(self.folder, "engine.py", "60"), fake(self.folder, "peer.py", "30", kv=str(10**10))
        done = self.compare(engine, {"llama.cpp": peer}, "--only", "512")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("decode at depth 512: not run: contexts of", done.stdout)

    def test_PeerLeavesInstructionsUnused_ExitsOneUnlessAllowed(self):
        engine, peer = fake(self.folder, "engine.py", "1"), fake(self.folder, "peer.py", "1", "['AVX512']")
        done = self.compare(engine, {"llama.cpp": peer}, "--pairs", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("AVX512", done.stderr)
        self.assertEqual(self.compare(engine, {"llama.cpp": peer}, "--pairs", "1", "--any-build").returncode, 0)

    def test_EngineFailsOrPrintsNoMeasurement_ExitsOneAndSaysWhich(self):
        peer = fake(self.folder, "peer.py", "1")
        for source, expected in (("import sys; sys.exit('out of luck')", "out of luck"), ("print('hello')", "no measurement")):
            engine = self.folder / "bad.py"
            engine.write_text(source)
            done = self.compare(str(engine), {"llama.cpp": peer}, "--pairs", "1")
            self.assertEqual(done.returncode, 1)
            self.assertIn(expected, done.stderr)
            self.assertIn("measure Tidemill", done.stderr)

    def test_AnswerThatIsNoMeasurementOfWhatWasAsked_IsTold(self):
        asked = {"prompt_tokens": [], "depth": [8], "batch": [], "repeats": 1, "threads": 2, "gen_tokens": 4, "batch_prompt": [8, 8]}
        sample = {"tokens_per_s": 2.0, "seconds": 1.0, "tokens_per_cpu_s": 0.0, "others_cores": 0.0}
        test = {"test": "decode", "depth": 8, "gen_tokens": 4, "samples": [sample]}
        answer = {"engine": "x", "version": "1", "threads": 2, "tests": [test]}
        self.assertIsNone(fault_of(answer, asked))
        told = [([], "found 0 tests"), ([test, test], "found 2 tests"), ([test | {"depth": 9}], "('decode', 'depth', 9)"),
                ([test | {"test": "prefill"}], "('prefill', 'depth', 8)"), ([test | {"gen_tokens": 5}], "expected gen_tokens 4, found [5]"),
                ([{"depth": 8}], "the member 'test'"), (7, "another kind"), (None, "another kind"), ([7], "another kind"),
                ([test | {"samples": []}], "expected 1 samples, found 0"), ([test | {"samples": [sample, sample]}], "expected 1 samples, found 2"),
                ([test | {"samples": [7]}], "another kind"), ([test | {"disagreement": "x"}], "another kind"),
                ([test | {"read_gb_per_s": 1.0}], "'bytes_per_step'"), ([test | {"read_gb_per_s": 0, "bytes_per_step": 1}], "rate of reading"),
                ([test | {"peak_rss_mib": "1"}], "another kind")]
        told += [([test | {"samples": [sample | {field: value}]}], what) for field, value, what in
                 (("tokens_per_s", 0, "expected a rate"), ("tokens_per_s", float("nan"), "tokens_per_s nan"), ("seconds", 0.0, "expected a rate"),
                  ("seconds", None, "another kind"), ("others_cores", -1, "others_cores -1"))]
        for tests, what in told:
            self.assertIn(what, fault_of(answer | {"tests": tests}, asked), tests)
        for member, what in (({"engine": 7}, "another kind"), ({"version": None}, "another kind"), ({"isa": None}, "another kind"),
                             ({"isa": {"unused": [7]}}, "another kind"), ({"kv_bytes_per_token": "many"}, "another kind"),
                             ({"threads": 1}, "expected threads 2, found [1]")):
            self.assertIn(what, fault_of(answer | member, asked), member)
        batch = {"test": "batch", "batch": 3, "gen_tokens": 4, "prompt_tokens": [8, 8], "samples": [sample]}
        of_batch = asked | {"depth": [], "batch": [3]}
        self.assertIsNone(fault_of(answer | {"tests": [batch]}, of_batch))
        self.assertIn("prompts of 8, found [[8, 9]]", fault_of(answer | {"tests": [batch | {"prompt_tokens": [8, 9]}]}, of_batch))
        self.assertIn("'tests'", fault_of({"engine": "x", "version": "1"}, asked))
        peer = fake(self.folder, "peer.py", "0")
        done = self.compare(fake(self.folder, "engine.py", "1"), {"llama.cpp": peer}, "--only", "depth 0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.records()[0]["settings"], {"Tidemill": ""})
        self.assertIn("llama.cpp: FA: measure llama.cpp", done.stdout)
        self.assertIn("expected a rate, found {'tokens_per_s': 0,", done.stdout)

    def test_LineTooMany_IsNotTakenForTheNextAnswer(self):
        engine = fake(self.folder, "engine.py", "60")
        text = Path(engine).read_text().replace("print(json.dumps(", "answer = (json.dumps(").replace(", flush=True)", ")")
        Path(engine).write_text(text + "    for _ in range(1 + bool(s['depth'])): print(answer, flush=True)\n")
        done = self.compare(engine, {"llama.cpp": fake(self.folder, "peer.py", "30")}, "--pairs", "1", "--threads", "1", "2", "--only", "depth 0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("measure Tidemill", done.stderr)
        self.assertIn("expected threads 2, found [1]", done.stderr)

    def test_ProcessThatDoesNothing_IsEnded(self):
        self.addCleanup(setattr, peer_process, "STALLED_S", peer_process.STALLED_S)
        peer_process.STALLED_S = 1
        engine = Engine("x", [sys.executable, "-c", "import time; time.sleep(60)"])
        with self.assertRaisesRegex(CompareError, "took no processor time for 1 s"):
            engine.ask({})
        with self.assertRaisesRegex(CompareError, "took no processor time for 1 s"):  # and what a wrapper waits for
            Engine("x", ["sh", "-c", "sleep 60; true"]).ask({})
        works = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass\nprint('{\"engine\": \"x\", \"version\": \"1\", \"threads\": 1, \"tests\": []}', flush=True)"
        engine = Engine("x", ["sh", "-c", f"{shlex.join([sys.executable, '-c', works])}; true"])  # the shell itself does nothing
        self.addCleanup(engine.close)
        settings = {"prompt_tokens": [], "depth": [], "batch": [], "threads": 1, "gen_tokens": 1, "batch_prompt": [1, 1]}
        self.assertEqual(engine.ask(settings)["engine"], "x")

    def test_BytesThatAreNoText_AreNoise(self):
        engine, peer = fake(self.folder, "engine.py", "60"), fake(self.folder, "peer.py", "30 if not s['flash_attn'] or not s['depth'] else sys.exit('no luck')")
        noise = "import sys\nfor out in (sys.stdout, sys.stderr): out.buffer.write(b'\\xff\\xfe noise\\n'), out.flush()\n"
        Path(peer).write_text(noise + Path(peer).read_text())
        done = self.compare(engine, {"llama.cpp": peer}, "--only", "depth 0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.records()[0]["settings"]["llama.cpp"], "no FA")
        self.assertIn("noise no luck", done.stdout)

    def test_OutThatCannotBeWritten_IsRefusedBeforeAnythingIsMeasured(self):
        engine, peer = fake(self.folder, "engine.py", "60"), fake(self.folder, "peer.py", "30")
        (self.folder / "folder.md.jsonl").mkdir()
        for out in ("/dev/null", str(self.folder / "folder.md"), str(self.folder), str(self.folder / "none" / "out.md")):
            done = self.compare(engine, {"llama.cpp": peer}, "--out", out)
            self.assertEqual(done.returncode, 2, out)
            self.assertIn("--out", done.stderr)
        self.assertFalse(Path(engine + ".started").exists())
        (self.folder / "link.md").symlink_to(self.folder / "out.md")
        self.assertEqual(self.compare(engine, {"llama.cpp": peer}, "--only", "prefill", "--out", str(self.folder / "link.md")).returncode, 0)
        self.assertTrue((self.folder / "link.md").is_symlink())
        self.assertTrue((self.folder / "out.md").is_file())

    def test_ModelNameThatIsNoText_IsRefused(self):
        name = self.folder / "m\udcff.gguf"
        name.touch()
        done = self.compare("engine.py", {"llama.cpp": fake(self.folder, "peer.py", "30")}, "--model", str(name))
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected arguments in UTF-8", done.stderr)

    def test_ProgramOrModelThatIsNotThere_IsNamed(self):
        peer = fake(self.folder, "peer.py", "1")
        with self.assertRaisesRegex(CompareError, "start x: .*/none: expected a program, found: No such file"):
            Engine("x", [str(self.folder / "none")]).ask({})
        done = self.compare("engine.py", {"llama.cpp": peer}, "--model", "none.gguf")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--model none.gguf: expected a file, found none", done.stderr)
        done = self.compare("engine.py", {"llama.cpp": peer}, "--model", str(self.folder / "m.gguf"), str(self.folder / "m.gguf"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected files with different names", done.stderr)

    def test_PeerThatWasUpgradedMeanwhile_BothVersionsAreTold(self):
        engine, peer = fake(self.folder, "engine.py", "60"), fake(self.folder, "peer.py", "30")
        self.compare(engine, {"llama.cpp": peer}, "--only", "prefill")
        Path(peer).write_text(Path(peer).read_text().replace('+ " 1"', '+ " 2"'))
        self.assertIn("- llama.cpp: llama-cpp-python 1, llama-cpp-python 2\n", self.compare(engine, {"llama.cpp": peer}, "--only", "prefill|depth 0").stdout)

    def test_InterpreterWithTheOtherPeersPackage_IsRefused(self):
        engine, peer = fake(self.folder, "engine.py", "60"), fake(self.folder, "peer.py", "30")
        Path(peer).write_text(Path(peer).read_text().replace('PACKAGES.get(s["engine"], "ours")', '"llama-cpp-python"'))
        done = self.compare(engine, {"ik_llama.cpp": peer})
        self.assertEqual(done.returncode, 1)
        self.assertIn("measure ik_llama.cpp: expected an interpreter with ik-llama-cpp-python, found llama-cpp-python 1", done.stderr)

    def test_FileOfAnotherSize_BeginsItsRowsAnew(self):
        engine, peer = fake(self.folder, "engine.py", "60"), fake(self.folder, "peer.py", "30")
        self.compare(engine, {"llama.cpp": peer}, "--only", "prefill")
        self.assertIn("1 of 1 rows are in", self.compare(engine, {"llama.cpp": peer}, "--only", "prefill").stderr)
        (self.folder / "m.gguf").write_bytes(b"more")
        self.assertNotIn("rows are in", self.compare(engine, {"llama.cpp": peer}, "--only", "prefill").stderr)
        self.assertEqual([r["model_bytes"] for r in self.records()], [0, 4])

    def test_Engine_WaitsWithoutProcessorTimeAndStartsAgainAfterAFailure(self):
        settings = {"repeats": 1, "prompt_tokens": [], "depth": [0], "batch": [], "threads": 1, "gen_tokens": 1, "batch_prompt": [1, 1]}
        engine = Engine("x", [sys.executable, fake(self.folder, "x.py", "1 if not s.get('die') else sys.exit(3)")])
        self.assertEqual(engine.ask(settings)["tests"][0]["samples"][0]["tokens_per_s"], 1)
        before = engine.cpu_s()
        time.sleep(0.3)
        self.assertLess(engine.cpu_s() - before, 0.05)
        with self.assertRaisesRegex(CompareError, "ended with 3"):
            engine.ask(settings | {"die": True})
        self.assertEqual(engine.ask(settings)["engine"], "x")
        self.assertEqual(engine.close(), 0)

    def test_Interval_HoldsTheMedianAndNarrowsWithPairs(self):
        rng = random.Random(1)
        few, many = ([rng.gauss(1.2, 0.05) for _ in range(n)] for n in (10, 160))
        widths = []
        for ratios in (few, many):
            low, high = peer_report.interval(tuple(ratios), 2000)
            self.assertTrue(low <= sorted(ratios)[len(ratios) // 2] <= high)
            widths.append(high - low)
        self.assertLess(widths[1], widths[0])


if __name__ == "__main__":
    unittest.main()
