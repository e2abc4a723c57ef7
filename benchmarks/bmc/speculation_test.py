#!/usr/bin/env python3
"""Tests of speculation.py with made-up answers: python3 benchmarks/bmc/speculation_test.py"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import speculation
import speculation_numbers as numbers
from speculation_engines import EngineFailed, sample_of_llama
from speculation_journal import Journal
from speculation_settings import Setting, all_settings, named_draft, prompts_of

# Answers as `tidemill run --json` does: ten ids, at a speed of each setting. A draft of width FAKE_REFUSES is refused; at width FAKE_DIFFERS_AT an id differs.
FAKE_PEER = """#!{python}
import json, sys
for line in sys.stdin:
    s = json.loads(line)
    print("noise of a library")
    print(json.dumps({{"ids": [5] * 10, "prompt_tokens": len(s["ids"]), "tokens": 9, "seconds": 9.0 if s["lookup"] else 18.0, "first_s": 1,
                      "drafted": s["lookup"], "accepted": 3, "with_drafts": 1}}), flush=True)
"""
FAKE = """#!{python}
import json, os, sys
open(__file__ + ".runs", "a").write("x")
flags = sys.argv[1:]
if flags[0] == "--version":
    print("tidemill 9.9.9")
    sys.exit()
if flags[0] == "detokenize":
    print("a prompt", end="")
    sys.exit()
if flags[0] == "tokenize":
    print(json.dumps({{"ids": [1] * int(os.environ.get("FAKE_PROMPT_IDS", 7))}}))
    sys.exit()
def value(name, default):
    return flags[flags.index(name) + 1] if name in flags else default
if value("--draft-min", "") == os.environ.get("FAKE_REFUSES"):
    sys.exit("width 3: refused | by the fake")
prompt, draft = sys.stdin.read(), value("--draft", "")
width = int(value("--draft-min", "2")) if draft else 0
seconds = (9 if not draft else 9 / (1 + width) * (1 + 0.25 * width)) * (2 if value("--kv-policy", "bmc") == "iterative" else 1)
answer = {{"ids": list(range(len(prompt), len(prompt) + 10)), "prompt_tokens": 7, "generated_tokens": 10,
          "timings": {{"decode_ms": 1000 * seconds, "ttft_ms": 5.0}}, "state": {{"growths": 1, "bytes_copied": 1 << 20}}}}
if width:
    steps = 9 // (1 + width)
    answer["draft"] = {{"drafted": steps * width, "accepted": steps * width, "acceptance_rate": [1.0] * width, "steps_by_draft_tokens": {{str(width): steps}}}}
    if draft.endswith(".gguf"):
        answer["draft"]["draft_prefill_ms"] = 2500.0
if str(width) == os.environ.get("FAKE_DIFFERS_AT"):
    answer["ids"][4] = -1
print(json.dumps(answer))
"""

# As llama-speculative-simple: plain makes a token a second, four for each draft token that it is allowed with a draft model.
FAKE_LLAMA = """#!{python}
import os, sys
flags = sys.argv[1:]
def value(name):
    return flags[flags.index(name) + 1]
assert value("-n") == "95" and value("-c") == value("-b") == "256" and value("--top-k") == "1", flags
prompt = open(value("--binary-file"), newline="").read()
drafts, plain = "-md" in flags, "1024" in flags
if drafts and value("--spec-draft-n-max") == os.environ.get("FAKE_REFUSES"):
    sys.exit("failed to create a context")
print("\\n\\n" + prompt + "an answer" + (", longer" if drafts else "") + "\\n\\n\\n")
print("encoded {{:4d}} tokens in    0.100 seconds, speed:   70.000 t/s".format(int(os.environ.get("FAKE_PROMPT_IDS", 7))), file=sys.stderr)
print("decoded   96 tokens in   {{:.3f}} seconds, speed:    1.000 t/s".format(24.0 if drafts else 96.0), file=sys.stderr)
accepted = 0 if plain else 72
print("n_draft   = 3\\nn_predict = 96\\nn_drafted = {{}}\\nn_accept  = {{}}\\naccept    = -nan%".format(2 * accepted, accepted), file=sys.stderr)
print("spec  print_stats: statistics x: #calls(b,g,a) =    1     24     24, #gen drafts = {{:6d}}, #acc drafts =     9".format(accepted // 3), file=sys.stderr)
"""


def sample(tokens: int, seconds: float, accepted: int = 0, drafted: int = 0, **more) -> dict:
    return {"tokens": tokens, "seconds": seconds, "accepted": accepted, "drafted": drafted, "steps_by_draft_tokens": {}, "acceptance_rate": []} | more


class Numbers(unittest.TestCase):
    def test_Rate_IsOfAllTokensOverAllSeconds(self):
        self.assertEqual(numbers.rate([sample(10, 1.0), sample(90, 19.0)]), 5.0)
        self.assertEqual(numbers.rate([]), 0.0)

    def test_Ratio_OfEqualSpeedups_HasNoWidth(self):
        base = {f"p{i}": sample(10 + i, 1.0 + i) for i in range(9)}
        ours = {p: sample(s["tokens"], s["seconds"] / 2) for p, s in base.items()}
        found = numbers.ratio(ours, base)
        for field in ("ratio", "low", "high"):
            self.assertAlmostEqual(found[field], 2.0)
        self.assertEqual(found["prompts"], 9)

    def test_Ratio_Interval_HoldsTheRatioAndIsWiderForFewer(self):
        def widths(count: int) -> float:
            base = {str(i): sample(10, 1.0) for i in range(count)}
            found = numbers.ratio({str(i): sample(10, 0.5 if i % 2 else 1.0) for i in range(count)}, base)
            self.assertLess(found["low"], found["ratio"])
            self.assertGreater(found["high"], found["ratio"])
            return found["high"] - found["low"]
        self.assertGreater(widths(8), 1.5 * widths(80))

    def test_Ratio_TakesPairsOnly(self):
        base = {"a": sample(10, 1.0), "b": sample(10, 100.0)}
        self.assertEqual(numbers.ratio({"a": sample(10, 0.5), "c": sample(10, 9.0)}, base)["ratio"], 2.0)
        self.assertIsNone(numbers.ratio({"c": sample(10, 1.0)}, base))
        self.assertIsNone(numbers.ratio({"a": sample(0, 0.0)}, base))  # an answer of one token has no decode time

    def test_Regret_IsAgainstTheBestOfAllAndOfEach(self):
        fixed = {0: {"a": sample(10, 1.0), "b": sample(10, 1.0)}, 4: {"a": sample(10, 0.5), "b": sample(10, 1.3)}}
        found = numbers.regret({"a": sample(10, 0.6), "b": sample(10, 1.4)}, fixed)
        self.assertEqual(found["best"], 4)
        self.assertAlmostEqual(found["regret"], 1 - 1.8 / 2.0)
        self.assertAlmostEqual(found["of_each"], 1 - 1.5 / 2.0)
        self.assertAlmostEqual(found["median"], (1 - 0.5 / 0.6 + 1 - 1 / 1.4) / 2)
        self.assertAlmostEqual(found["worst"], 1 - 1 / 1.4)
        self.assertIsNone(numbers.regret({"a": sample(10, 0.6)}, {0: fixed[0]}))

    def test_Drafting_CountsStepsWithDrafts(self):
        found = numbers.drafting([sample(20, 1.0, accepted=12, drafted=24, steps_by_draft_tokens={"0": 2, "4": 6})])
        self.assertEqual((found["accepted"], found["acceptance_rate"], found["step"], found["with_drafts"]), (2.0, 0.5, 2.5, 0.75))
        self.assertEqual(numbers.drafting([sample(9, 1.0)])["with_drafts"], 0.0)

    def test_Acceptance_IsOfDraftTokensAfterAcceptedOnes(self):
        # Of 100 steps with 3 draft tokens 50, 25, 12.5 accept the first one, two, three: half of those that were verified.
        self.assertAlmostEqual(numbers.acceptance([sample(1, 1.0, steps_by_draft_tokens={"0": 9, "3": 100}, acceptance_rate=[0.5, 0.25, 0.125])]), 0.5)
        self.assertAlmostEqual(numbers.acceptance([sample(1, 1.0, steps_by_draft_tokens={"9+": 10}, acceptance_rate=[1.0] * 8)]), 1.0)
        self.assertIsNone(numbers.acceptance([sample(1, 1.0)]))

    def test_StepPrice_LeavesOutPlainSteps(self):
        plain = {"a": sample(100, 10.0)}  # 0.1 s a step
        runs = {"a": sample(100, 50 * 0.15 + 10 * 0.1, accepted=40, steps_by_draft_tokens={"2": 50, "0": 10})}
        self.assertAlmostEqual(numbers.step_price(runs, plain), 1.5)
        self.assertIsNone(numbers.step_price(runs, plain, least_steps=51))

    def test_DraftTokenPrice_IsTheSlope(self):
        checking = {g: 1.0 + 0.05 * g for g in (1, 2, 4)}
        self.assertAlmostEqual(numbers.draft_token_price({g: v + 0.3 * g for g, v in checking.items()}, checking, False), 0.3)
        self.assertAlmostEqual(numbers.draft_token_price({g: v + 0.3 for g, v in checking.items()}, checking, True), 0.3)
        self.assertIsNone(numbers.draft_token_price({8: 2.0}, checking, False))

    def test_Formula_AtItsEdges(self):
        self.assertAlmostEqual(numbers.formula(0.8, 4, 0.1, 1.2), (1 - 0.8 ** 5) / (1 - 0.8) / (0.4 + 1.2))
        self.assertEqual(numbers.formula(1.0, 3, 0.0, 1.0), 4.0)   # all right for the price of one
        self.assertEqual(numbers.formula(0.0, 3, 0.0, 1.0), 1.0)
        self.assertEqual(numbers.formula(0.9, 3, 0.5, 2.0, with_drafts=0.0), 1.0)
        self.assertEqual(numbers.formula(1.0, 3, 0.5, 1.5, at_once=True), 2.0)


class Settings(unittest.TestCase):
    def test_Names_AreDifferent(self):
        made = all_settings(dict([("ngram", "ngram"), named_draft("a/small.gguf"), named_draft("half=a/b.gguf"), named_draft("layers:4")]),
                            list(range(1, 17)), True)
        names = [s.name for s in made]
        self.assertEqual(len(set(names)), len(names))
        for name in ("plain", "plain bmc64", "plain iterative", "ngram w16", "ngram to 16", "small tree optimal", "small alone", "half w1", "layers:4 upfront",
                     "llama.cpp lookup 10"):
            self.assertIn(name, names)
        self.assertNotIn("layers:4 alone", names)  # it is no model of its own
        self.assertFalse([n for n in names if n.startswith("ngram tree")])

    def test_Head_AnswersNothingAlone(self):
        fixtures = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
        for draft, answers in (("eagle/eagle1", False), ("eagle/eagle3", False), ("eagle/target", True)):
            names = [s.name for s in all_settings({"d": str(fixtures / draft)}, [2], False)]
            self.assertIn("d w2", names)
            self.assertEqual("d alone" in names, answers, draft)

    def test_UnusedCapacity_RunsOut(self):
        found = {s.name: s.flags for s in all_settings({"ngram": "ngram", "small": "small.gguf"}, [2], False)}
        self.assertEqual(found["plain bmc64"], ("--kv-policy", "bmc", "--kv-increment", "64"))
        self.assertEqual(found["ngram bmc64"], ("--draft", "ngram", "--kv-policy", "bmc", "--kv-increment", "64"))
        self.assertEqual(found["small iterative"][2:], ("--draft-min", "1", "--kv-policy", "iterative"))

    def test_ForcedWidth_HasOneNumber(self):
        found = next(s for s in all_settings({"ngram": "ngram"}, [5], False) if s.name == "ngram w5")
        self.assertEqual(found.flags, ("--draft", "ngram", "--draft-min", "5", "--draft-max", "5"))

    def test_LlamasOwn_TakeDraftsThatItReads(self):
        drafts = dict([("ngram", "ngram"), named_draft("0.5B=a/small.gguf"), named_draft("layers:4"), named_draft("folder=a/b")])
        found = {s.name: s for s in all_settings(drafts, [2], False, True) if s.kind == "llama"}
        self.assertEqual(found["llama.cpp draft 0.5B w4"].flags, ("--spec-type", "draft-simple", "-md", "a/small.gguf", "--spec-draft-n-max", "4"))
        self.assertEqual(found["llama.cpp ngram-mod"].flags, ("--spec-type", "ngram-mod"))
        self.assertEqual(found["llama.cpp ngram-simple n3 m8"].flags[:4], ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"))
        self.assertEqual({s.beside for s in found.values()}, {"plain", "ngram", "0.5B"})
        self.assertFalse([s for s in all_settings(drafts, [2], True) if s.kind == "llama"])

    def test_PromptFiles_AreWhatTheyShouldBe(self):
        folder = Path(speculation.__file__).parent
        for name in speculation.SETS:
            prompts = prompts_of(name, folder, None)
            self.assertEqual(len(prompts), 40)
            self.assertEqual(len({p["id"] for p in prompts}), 40)
            self.assertEqual(len({p["prompt"] for p in prompts}), 40)
            self.assertEqual(prompts_of(name, folder, 3), prompts[:3])
        for short, long in zip(prompts_of("edit", folder, None), prompts_of("long", folder, None)):
            self.assertTrue(long["prompt"].endswith("\n\n" + short["prompt"]))
            self.assertTrue(4000 < len(long["prompt"]) < 6000, long["id"])
            self.assertEqual(long["id"].split("-"), ["long", short["id"].split("-")[1]])


class Answers(unittest.TestCase):
    def test_AnotherId_IsNamed(self):
        settings = [Setting("plain"), Setting("ngram w2"), Setting("small alone", kind="alone")]
        found = {"plain": {"ids": [1, 2, 3]}, "ngram w2": {"ids": [1, 2, 3]}, "small alone": {"ids": [9]}}
        speculation.compare_answers(found, settings, "p")
        with self.assertRaisesRegex(speculation.AnswersDiffer, r"p, ngram w2: id 1 of 3 is \[7\], plain's 3 have \[2\]"):
            speculation.compare_answers(found | {"ngram w2": {"ids": [1, 7, 3]}}, settings, "p")
        with self.assertRaisesRegex(speculation.AnswersDiffer, r"id 2 of 2 is \[\], plain's 3 have \[3\]"):
            speculation.compare_answers(found | {"ngram w2": {"ids": [1, 2]}}, settings, "p")


class Program(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.fake = self.folder / "tidemill"
        self.fake.write_text(FAKE.format(python=sys.executable))
        self.fake.chmod(0o755)
        self.journal = self.folder / "journal"

    def measure(self, *more: str, **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, speculation.__file__, str(self.fake), "m.gguf", "--journal", str(self.journal), "--out",
                               str(self.folder / "out"), "--prompts", "2", "--widths", "2", "3", "8", "--only", "ngram", *more],
                              capture_output=True, text=True, env=os.environ | variables)

    def runs(self) -> int:
        return len(Path(f"{self.fake}.runs").read_text())

    def test_Measuring_GoesOnWhereItStopped(self):
        done = self.measure("--sets", "edit")
        self.assertEqual(done.returncode, 0, done.stderr)
        first, lines = self.runs(), self.journal.read_text().splitlines()
        self.assertEqual(first, 1 + 2 * 8)  # the version; plain, ngram, 3 widths, 3 policies for each prompt
        self.assertEqual(json.loads(lines[0])["machine"]["program"], "tidemill 9.9.9")
        self.journal.write_text("\n".join(lines[:-2]) + "\n" + lines[-1][:20])  # two runs lost, one of them half-way
        done = self.measure("--sets", "edit")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cut off", done.stderr)
        self.assertEqual(self.runs(), first + 1 + 2)
        self.assertEqual(len(Journal(self.journal).records), 16)
        self.assertEqual(self.measure("--sets", "edit", "--report").returncode, 0)
        self.assertEqual(self.runs(), first + 1 + 2)

    def test_PromptsThatAreNotComplete_AreMeasuredAnewElsewhere(self):
        self.measure("--sets", "edit")
        first, lines = self.runs(), self.journal.read_text().splitlines()
        elsewhere = json.dumps({"machine": json.loads(lines[0])["machine"] | {"sha256": "1a2b3c4"}})
        self.journal.write_text("\n".join([elsewhere, *lines[1:-1]]) + "\n")  # one run of the second prompt is missing
        done = self.measure("--sets", "edit")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.runs(), first + 1 + 8)
        places = [record["on"] for record in Journal(self.journal).records.values()]
        self.assertEqual(sorted(places), [0] * 8 + [1] * 8)

    def test_Pairs_AreOfOnePlace(self):
        base = {"a": sample(10, 1.0, on=0), "b": sample(10, 1.0, on=1)}
        self.assertEqual(numbers.shared(base, {"a": sample(10, 1.0, on=0), "b": sample(10, 1.0, on=0)}), ["a"])

    def test_FailedRuns_AreTriedAgain(self):
        done = self.measure("--sets", "edit", FAKE_REFUSES="3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("2 runs failed", done.stderr)
        self.assertIn("width 3: refused", done.stdout)
        before = self.runs()
        done = self.measure("--sets", "edit")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.runs(), before + 1 + 2)
        self.assertNotIn("refused", done.stdout)

    def test_Journal_BecomesTablesAndFigures(self):
        done = self.measure(FAKE_REFUSES="3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("4 runs failed, the journal says why", done.stderr)
        text = (self.folder / "out" / "speculation.md").read_text()
        self.assertEqual(text, done.stdout)
        self.assertIn("### coding, 2 of 2 prompts", text)
        self.assertIn("| ngram | 2.0 | **2.00** [2.00, 2.00] | 2.00 | 3.00 | 100 % | 100 % | 2 |", text)  # 9 tokens in 4.5 s
        self.assertIn("| ngram | 33.3 % [33.3, 33.3] | 8 of 0 to 8 | 33.3 % | 33.3 %, 33.3 % | 2 |", text)                 # 9 tokens in 3 s
        self.assertIn("| ngram | iterative | 1.0 | **2.00** [2.00, 2.00] |  | 1.0 | 1.0 | 0.0 | 2 |", text)
        self.assertIn("| ngram w3 | 4, from coding-01 on | width 3: refused \\| by the fake |", text)
        figures = sorted(path.name for path in (self.folder / "out").glob("*.svg"))
        self.assertEqual(figures, [f"speculation_{kind}_m_{name}.svg" for kind in ("rates", "widths") for name in ("coding", "edit")])
        for figure in figures:
            ElementTree.parse(self.folder / "out" / figure)  # well formed
            self.assertIn(figure, text)

    def test_Policies_AreComparedBehindTheDraftPrefillToo(self):
        done = self.measure("--draft", "small=a/b.gguf", "--only", "^small (bmc64|iterative)$", "--sets", "edit")
        self.assertEqual(done.returncode, 0, done.stderr)
        # 5.625 s and 11.25 s, of which 2.5 s are draft prefill.
        self.assertIn("| small | iterative | 0.8 | **2.00** [2.00, 2.00] | **2.80** [2.80, 2.80] | 1.0 | 1.0 |", done.stdout)

    def test_Peer_StandsBesideItsOwnPlain(self):
        python = self.folder / "python"
        python.write_text(FAKE_PEER.format(python=sys.executable))
        python.chmod(0o755)
        peer = ("--peer", f"llama.cpp={python}", "--only", "^(ngram|llama.*)$")
        done = self.measure(*peer)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| llama.cpp plain | 0.5 |  |  |  |  | 2 of 2 | **2.00** [2.00, 2.00] |  |", done.stdout)
        self.assertIn("| llama.cpp lookup 4 | 1.0 | **2.00** [2.00, 2.00] | 3.00 | 1.50 | 17 % | 2 of 2 | **2.00** [2.00, 2.00] |  |", done.stdout)
        self.journal.unlink()
        done = self.measure(*peer, FAKE_PROMPT_IDS="8")  # another tokenizer, or another template
        self.assertEqual(done.returncode, 1)
        self.assertIn("coding-01: prompts of [7, 8] ids", done.stderr)
        self.assertIn("expected llama.cpp=PYTHON", self.measure("--peer", "other=python3").stderr)

    def test_LlamasProgram_StandsBesideOurs(self):
        program = self.folder / "llama-speculative-simple"
        program.write_text(FAKE_LLAMA.format(python=sys.executable))
        program.chmod(0o755)
        llama = ("--llama-speculative", str(program), "--draft", "small=a/b.gguf", "--only", "^(ngram|small|small w[28]|llama.*)$", "--sets", "edit")
        done = self.measure(*llama, FAKE_REFUSES="8")
        self.assertEqual(done.returncode, 1)
        self.assertIn("edit-01, llama.cpp draft small w8: failed to create a context", done.stderr)
        done = self.measure(*llama)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| llama.cpp C++ plain | 1.0 |  |  |  |  | 2 of 2 | **1.00** [1.00, 1.00] |  |", done.stdout)
        self.assertIn("| llama.cpp ngram-map-k | 1.0 | **1.00** [1.00, 1.00] | 3.00 | 4.00 | 100 % | 2 of 2 | **2.00** [2.00, 2.00] |  |", done.stdout)
        self.assertIn("| llama.cpp draft small w8 | 4.0 | **4.00** [4.00, 4.00] | 3.00 | 4.00 | 100 % | 2 of 2 | **0.50** [0.50, 0.50] | **0.75** [0.75, 0.75] w8 |",
                      done.stdout)
        self.journal.unlink()
        done = self.measure(*llama, FAKE_PROMPT_IDS="8")
        self.assertEqual(done.returncode, 1)
        self.assertIn("edit-01: prompts of [7, 8] ids", done.stderr)

    def test_LlamasProgram_HasToSayAllOfIt(self):
        said = ("0.01.2 I encoded   12 tokens in    0.153 seconds, speed:   78.431 t/s\ndecoded   97 tokens in   10.456 seconds, speed:    9.277 t/s\n\nn_draft   = 3\n"
                "n_predict = 97\nn_drafted = 40\nn_accept  = 21\nstatistics ngram-mod: #calls(b,g,a) = 1 76 76, #gen drafts =     10, #acc drafts =  9\n")
        self.assertEqual(sample_of_llama(said, "\n\nWhy?\n\n\nThis.\n\n\n\n\n", "Why?\n\n"),
                         {"prompt_tokens": 12, "tokens": 97, "seconds": 10.456, "drafted": 40, "accepted": 21, "with_drafts": 10, "text": "\nThis.\n"})
        with self.assertRaisesRegex(EngineFailed, "expected seconds, tokens|expected tokens, seconds"):
            sample_of_llama(said.replace("decoded", "made"), "", "")

    def test_AnotherAnswer_EndsTheProgram(self):
        for _ in range(2):  # also when it is all in the journal
            done = self.measure(FAKE_DIFFERS_AT="8")
            self.assertEqual(done.returncode, 1)
            self.assertIn("coding-01, ngram w8: id 4 of 10 is [-1]", done.stderr)


if __name__ == "__main__":
    unittest.main()
