#!/usr/bin/env python3
"""Tests of peer_llama.py's measuring with a made-up engine: python3 tools/peer_llama_test.py (needs numpy)"""

import ctypes
import random
import sys
import types
import unittest

VOCAB = 40
LOG = []  # (what, context's number, rows or sequences, first position, threads that it runs with)


class Model:
    def __init__(self, path: str, repack: bool = False):
        self.path, self.repack, self.vocab_size, self.trained_context = path, repack, VOCAB, 100

    def describe(self) -> dict:
        return {"description": "made up"}

    def close(self) -> None:
        pass


class Batch:
    def __init__(self, rows: list[tuple[int, int, int, bool]]):
        self.rows, self.c = rows, types.SimpleNamespace(n_tokens=len(rows))

    def close(self) -> None:
        pass


class Context:
    """Remembers what each sequence holds; logits are drawn from that, and wrongly where `wrong` says so."""

    count, wrong = 0, ""

    def __init__(self, model: Model, num_positions: int, *, threads: int, num_sequences: int = 1, **more):
        Context.count += 1
        self.number, self.model, self.threads, self.batch_threads = Context.count, model, threads, threads
        self.held = [[] for _ in range(num_sequences)]
        LOG.append(("make", self.number, num_sequences, num_positions, threads))

    def decode(self, batch: Batch) -> None:
        threads = self.batch_threads if len(batch.rows) > 1 else self.threads
        LOG.append(("decode", self.number, len(batch.rows), batch.rows[0][1], threads))
        self.last = []
        for token, position, sequence, _ in batch.rows:
            assert position == len(self.held[sequence]), f"position {position} behind {len(self.held[sequence])}"
            self.held[sequence].append(token)
            mixed_up = self.wrong == "batch" and len({row[2] for row in batch.rows}) > 1
            of_several = self.wrong == "prefill" and len(batch.rows) > 1
            self.last.append(str((self.held[sequence], mixed_up, of_several)))

    def logits(self, row: int):
        draw = random.Random(self.last[row])
        return (ctypes.c_float * VOCAB)(*[draw.gauss(0, 1) for _ in range(VOCAB)])

    def fill_with(self, threads: int) -> None:
        self.batch_threads = threads

    def truncate(self, sequence: int, length: int) -> bool:
        del self.held[sequence][length:]
        return True

    def clear(self) -> None:
        self.held = [[] for _ in self.held]

    def state_bytes(self, sequence: int) -> int:
        return 1

    def copy_sequence(self, source: int, targets: list[int]) -> None:
        for target in targets:
            assert not self.held[target]
            self.held[target] = list(self.held[source])

    def close(self) -> None:
        LOG.append(("close", self.number, 0, 0, 0))


sys.modules["llama_library"] = types.SimpleNamespace(
    IS_IK=False, KV_DTYPES={"f16": 1}, VERSION="1", Batch=Batch, Context=Context, EngineError=RuntimeError, Model=Model,
    extensions_of=lambda info: {}, machine_busy_s=lambda: 0.0, proc_value=lambda path, field: "1024 kB", system_info=lambda: "")
import peer_llama  # noqa: E402  (with the made-up engine)


class PeerLlama(unittest.TestCase):
    def setUp(self):
        LOG.clear()
        Context.wrong = ""
        self.bench = peer_llama.Bench()

    def run_test(self, **settings) -> dict:
        """The one test of an answer; LOG holds what it took."""
        LOG.clear()
        base = {"engine": "x", "model": "m", "threads": 1, "fill_threads": 3, "prompt_tokens": [], "depth": [], "batch": [],
                "batch_prompt": [8, 8], "gen_tokens": 4, "repeats": 2, "seed": 1, "kv_type": "f16", "n_batch": 16, "ubatch": 16,
                "flash_attn": True, "deepest": 64}
        test, = self.bench.run(base | settings)["tests"]
        return test

    @staticmethod
    def decodes(rows: int | None = None) -> list[tuple]:
        return [entry for entry in LOG if entry[0] == "decode" and rows in (None, entry[2])]

    def test_Decode_FillsWithAllThreadsAndTimesWithThoseAsked(self):
        test = self.run_test(depth=[40])
        self.assertEqual([s["tokens_per_s"] > 0 for s in test["samples"]], [True, True])
        filling = [entry for entry in self.decodes() if entry[2] > 1]
        self.assertEqual([(rows, position, threads) for _, _, rows, position, threads in filling], [(16, 0, 3), (16, 16, 3), (8, 32, 3)])
        steps = self.decodes(1)[1:]  # the first is that of loading
        self.assertEqual({threads for *_, threads in steps}, {1})
        # Each run starts from the same 40 positions: warming up, then twice timed.
        self.assertEqual([position for *_, position, _ in steps], [40, 41, 42, 43] * 3)

    def test_GreaterDepth_FillsTheDifference_OtherThreadsNothing(self):
        self.run_test(depth=[16])
        self.run_test(depth=[48])
        self.assertEqual([entry[2:4] for entry in self.decodes(16)], [(16, 16), (16, 32)])
        self.assertNotIn("make", [entry[0] for entry in LOG])
        self.run_test(depth=[48], threads=2)
        self.assertEqual(self.decodes(16), [])
        self.assertEqual({threads for *_, threads in self.decodes()}, {2})

    def test_OtherSeedOrDeeperThanPromised_FillsAnew(self):
        for settings in ({"seed": 2}, {"depth": [80]}, {"gen_tokens": 5}):
            self.run_test(depth=[16])
            self.run_test(**{"depth": [16]} | settings)
            self.assertEqual([entry[0] for entry in LOG if entry[0] != "decode"], ["close", "make"], settings)
            self.assertEqual(self.decodes(16)[0][3], 0)
            self.bench = peer_llama.Bench()

    def test_FlashAttentionOnAndOff_KeepTheirContexts(self):
        for attention in (True, False):
            self.run_test(depth=[16], flash_attn=attention)
        for attention in (True, False):
            self.run_test(depth=[16], flash_attn=attention)
            self.assertEqual(self.decodes(16), [])

    def test_Batch_FillsOneSequenceAndStepsAllWithTheThreadsAsked(self):
        test = self.run_test(batch=[3], batch_prompt=[20, 20], threads=2)
        self.assertEqual((test["batch"], test["prompt_tokens"], test["disagreement"]), (3, [20, 20], 0))
        context = LOG[-1][1]
        timed = [entry for entry in self.decodes() if entry[1] == context]
        self.assertEqual([entry[2:] for entry in timed[:2]], [(16, 0, 3), (4, 16, 3)])
        self.assertEqual([entry[2:] for entry in timed[2:]], [(3, 20 + step, 2) for step in range(4)] * 3)

    def test_Prefill_IsTimedWithTheThreadsAskedFromNothing(self):
        test = self.run_test(prompt_tokens=[32], threads=2)
        self.assertEqual(test["disagreement"], 0)
        self.assertEqual([entry[2:] for entry in self.decodes(16)[-4:]], [(16, 0, 2), (16, 16, 2)] * 2)

    def test_WrongLogits_Disagree(self):
        Context.wrong = "prefill"
        self.assertGreater(self.run_test(prompt_tokens=[32])["disagreement"], 1)
        Context.wrong = "batch"
        self.assertGreater(self.run_test(batch=[3])["disagreement"], 1)

    def test_NotANumber_DisagreesInfinitely(self):
        self.assertEqual(peer_llama.relative_rms(peer_llama.np.array([float("nan"), 1.0]), peer_llama.np.array([0.0, 1.0])), float("inf"))


if __name__ == "__main__":
    unittest.main()
