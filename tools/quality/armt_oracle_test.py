#!/usr/bin/env python3
"""Tests of armt_oracle.py: oracle/bin/python tools/quality/armt_oracle_test.py (torch)"""

import math
import unittest

import torch

from armt_oracle import EPS, Armt, Rmt, dpfp, plain_name, segment_lengths

VOCAB, HIDDEN, LAYERS, D_MEM = 11, 8, 3, 2


def model(base: str = "llama", memory_tokens: int = 2, dtype: torch.dtype = torch.float64, **settings) -> Armt:
    armt = {"segment_size": 4, "num_mem_tokens": memory_tokens, "d_mem": D_MEM, "nu": 3, "correction": True, "wrap_pos": False,
            "segment_alignment": "left"} | settings
    random = torch.Generator().manual_seed(5)

    def draw(*shape):
        return torch.randn(shape, generator=random, dtype=torch.float64) * shape[-1] ** -0.5

    d, tensors = HIDDEN, {"memory": draw(memory_tokens, HIDDEN)}
    memory = {"W_mq.weight": (D_MEM, d), "W_mk.weight": (D_MEM, d), "W_mv.weight": (d, d), "W_mb.weight": (1, d), "W_mb.bias": (1,)}
    if base == "gpt2":
        config = {"model_type": base, "n_layer": LAYERS, "n_head": 2, "layer_norm_epsilon": 1e-5}
        layer = {"ln_1.weight": (d,), "ln_1.bias": (d,), "attn.c_attn.weight": (d, 3 * d), "attn.c_attn.bias": (3 * d,), "attn.c_proj.weight": (d, d),
                 "attn.c_proj.bias": (d,), "ln_2.weight": (d,), "ln_2.bias": (d,), "mlp.c_fc.weight": (d, 12), "mlp.c_fc.bias": (12,),
                 "mlp.c_proj.weight": (12, d), "mlp.c_proj.bias": (d,)}
        around = {"transformer.wte.weight": (VOCAB, d), "transformer.wpe.weight": (20, d), "transformer.ln_f.weight": (d,), "transformer.ln_f.bias": (d,)}
        prefix = "transformer.h."
    else:
        config = {"model_type": base, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "hidden_size": d, "rms_norm_eps": 1e-5,
                  "rope_parameters": {"rope_theta": 10000.0}}
        layer = {"input_layernorm.weight": (d,), "self_attn.q_proj.weight": (d, d), "self_attn.k_proj.weight": (4, d), "self_attn.v_proj.weight": (4, d),
                 "self_attn.o_proj.weight": (d, d), "post_attention_layernorm.weight": (d,), "mlp.gate_proj.weight": (12, d),
                 "mlp.up_proj.weight": (12, d), "mlp.down_proj.weight": (d, 12)}
        around = {"model.embed_tokens.weight": (VOCAB, d), "model.norm.weight": (d,)}
        prefix = "model.layers."
    shapes = around | {f"{prefix}{i}.{n}": s for i in range(LAYERS) for n, s in (layer | memory).items()}
    return Armt(config | {"armt": armt}, tensors | {n: draw(*s) for n, s in shapes.items()}, dtype)


def some_ids(length: int, batch: int = 1) -> torch.Tensor:
    return torch.randint(VOCAB, (batch, length), generator=torch.Generator().manual_seed(length))


class RmtOracle(unittest.TestCase):
    def setUp(self):
        armt = model()
        config = {"model_type": "llama", "num_hidden_layers": LAYERS, "num_attention_heads": 2, "hidden_size": HIDDEN, "rms_norm_eps": 1e-5,
                  "rope_parameters": {"rope_theta": 10000.0}, "rmt": {"segment_size": 4, "num_mem_tokens": 2, "segment_alignment": "left"}}
        self.model = Rmt(config, armt.tensors)

    def test_Segment_IsTheBaseOverMemoryTokensMemory(self):
        ids, m = some_ids(4), self.model
        x = torch.cat([m.memory[None], m.tensors[m.base.embedding][ids], m.memory[None]], 1)
        for p in m.layers:
            x = m.base.layer(p, x, torch.arange(8))
        x = m.base.last_norm(m.tensors, x)
        rows, state = m.segment(ids, None)
        self.assertTrue(torch.equal(rows, x[:, 2:6]) and torch.equal(state, x[:, 6:]))

    def test_SecondSegment_IsAFirstOneWithTheCarriedMemory(self):
        ids, m = some_ids(7), self.model
        logits, states = m.score(ids)
        greedy, steps = m.generate(ids, 3)
        m.memory = states[0][0]
        self.assertTrue(torch.equal(m.score(ids[:, 4:])[0], logits[:, 4:]))
        self.assertTrue(torch.equal(m.generate(ids[:, 4:], 3)[1], steps))


class ArmtOracle(unittest.TestCase):
    def assert_equal(self, a, b, tolerance=0.0):
        self.assertEqual(a.shape, b.shape)
        self.assertLessEqual(float((a - b).abs().max()), tolerance)

    def test_Dpfp_ByHand(self):
        # c = [2, 0, 0, 3]; rolled by 1: [3, 2, 0, 0], by 2: [0, 3, 2, 0], by 3: [0, 0, 3, 2]
        self.assertEqual(dpfp(torch.tensor([2.0, -3.0]), 3).tolist(), [6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6])
        # c = [2, 5, 0, 0]; rolled by 1: [0, 2, 5, 0]
        self.assertEqual(dpfp(torch.tensor([2.0, 5.0]), 1).tolist(), [0, 10, 0, 0])

    def test_SegmentLengths_ByAlignment(self):
        self.assertEqual(segment_lengths(17, 7, "left"), [7, 7, 3])
        self.assertEqual(segment_lengths(17, 7, "right"), [3, 7, 7])
        self.assertEqual(segment_lengths(17, 7, "center"), [6, 6, 5])
        self.assertEqual(segment_lengths(8, 7, "center"), [4, 4])
        for alignment in ("left", "right", "center"):
            self.assertEqual(segment_lengths(14, 7, alignment), [7, 7])
            self.assertEqual(segment_lengths(1, 7, alignment), [1])
            for length in range(1, 60):
                for size in range(1, 12):
                    lengths = segment_lengths(length, size, alignment)
                    self.assertEqual((sum(lengths), len(lengths)), (length, math.ceil(length / size)))
                    self.assertTrue(all(1 <= n <= size for n in lengths))

    def test_PlainName_OfAuthorsNames(self):
        self.assertEqual(plain_name("memory_cell.memory"), "memory")
        self.assertEqual(plain_name("memory_cell.model.model.layers.0.layer.mlp.up_proj.weight"), "model.layers.0.mlp.up_proj.weight")
        self.assertEqual(plain_name("memory_cell.model.model.layers.3.W_mb.bias"), "model.layers.3.W_mb.bias")
        self.assertEqual(plain_name("memory_cell.model.lm_head.weight"), "lm_head.weight")
        self.assertEqual(plain_name("model.layers.0.mlp.up_proj.weight"), "model.layers.0.mlp.up_proj.weight")

    def test_ReadAndWrite_AreLoopsOverRows(self):
        for correction in (True, False):
            m = model(correction=correction)
            p, random = m.layers[1], torch.Generator().manual_seed(1)
            rows = torch.randn(1, 2, HIDDEN, generator=random, dtype=torch.float64)
            A, z = m.write(p, torch.randn(1, 2, HIDDEN, generator=random, dtype=torch.float64), None)
            next_A, next_z = A[0].clone(), z[0].clone()
            for row in rows[0]:
                f = dpfp(p["W_mq.weight"] @ row, 3)
                self.assert_equal(m.read(p, row[None, None], A, z)[0, 0], row + (A[0].T @ f) / (f @ z[0] + EPS), 1e-14)
                k = dpfp(p["W_mk.weight"] @ row, 3)
                known = k @ z[0] + EPS
                beta = 1 / (1 + torch.exp(-(p["W_mb.weight"][0] @ row + p["W_mb.bias"][0])))
                next_A += beta * torch.outer(k, p["W_mv.weight"] @ row - (A[0].T @ k) / known)
                next_z += (min(max(1 - known / (k @ k + EPS), 0), 1) if correction else 1) * k
            new_A, new_z = m.write(p, rows, (A, z))
            self.assert_equal(new_A[0], next_A, 1e-14)
            self.assert_equal(new_z[0], next_z, 1e-14)

    def test_FirstWrite_SubtractsNothing(self):
        m = model(memory_tokens=1)
        p, row = m.layers[0], torch.randn(HIDDEN, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        k = dpfp(p["W_mk.weight"] @ row, 3)
        A, z = m.write(p, row[None, None], None)
        self.assert_equal(z[0], k)
        self.assert_equal(A[0], torch.sigmoid(p["W_mb.weight"][0] @ row + p["W_mb.bias"][0]) * torch.outer(k, p["W_mv.weight"] @ row), 1e-15)

    def test_Tokens_DoNotSeeMemoryRowsOfTheirSegment(self):
        for base in ("llama", "gpt2"):
            m, ids = model(base), some_ids(4)
            rows, state = m.segment(ids, None)
            without, kept = m.segment(ids, None, with_memory=False)
            self.assertEqual((rows.shape[1], without.shape[1], kept), (6, 4, None))
            self.assert_equal(rows[:, :4], without, 1e-13)
            rows, _ = m.segment(ids, state)
            without, kept = m.segment(ids, state, with_memory=False)
            self.assert_equal(rows[:, :4], without, 1e-13)
            self.assertIs(kept, state)

    def test_Segment_ReadsInFrontOfALayerAndWritesItsLastRows(self):
        for base in ("llama", "gpt2"):
            m, ids = model(base, memory_tokens=3), some_ids(4)
            _, before = m.segment(some_ids(3), None)
            rows, after = m.segment(ids, before)
            positions = torch.arange(7)
            x = m.base.embed(m.tensors, torch.cat([m.tensors[m.base.embedding][ids], m.memory[None]], 1), positions)
            for i, p in enumerate(m.layers):
                x = m.base.layer(p, m.read(p, x, *before[i]), positions)
                for mine, theirs in zip(after[i], m.write(p, x[:, -3:], before[i]), strict=True):
                    self.assert_equal(mine, theirs)
            self.assert_equal(rows, m.base.last_norm(m.tensors, x))

    def test_Score_CarriesOnlyTheStateBetweenSegments(self):
        m, ids = model(), some_ids(10, batch=2)
        logits, states = m.score(ids)
        self.assertEqual((logits.shape, len(states), len(states[0])), ((2, 10, VOCAB), 3, LAYERS))
        alone, _ = m.score(ids[:, :4])
        self.assert_equal(logits[:, :4], alone, 1e-13)
        rows, _ = m.segment(ids[:, 8:], states[1])
        self.assert_equal(logits[:, 8:], m.logits(rows[:, :2]), 1e-13)
        m.reads = False
        self.assertGreater(float((m.score(ids)[0][:, 4:] - logits[:, 4:]).abs().max()), 0.05)

    def test_Generate_LastSegmentGrowsOverAStateThatStays(self):
        for length in (3, 8, 9):
            m, ids = model(), some_ids(length)
            out, steps = m.generate(ids, 6)
            prefix = (length - 1) // 4 * 4
            state = m.score(ids[:, :prefix])[1][-1] if prefix else None
            rows, _ = m.segment(torch.cat([ids[:, prefix:], out[:, :-1]], 1), state, with_memory=False)
            self.assert_equal(m.logits(rows)[:, -6:], steps, 1e-13)
            self.assertEqual(out.tolist(), steps.argmax(-1).tolist())

    def test_WrapPos_MemoryHasTheLastPositions(self):
        self.assertEqual(model("gpt2", wrap_pos=True).positions(3, True).tolist(), [0, 1, 2, 18, 19])
        self.assertEqual(model("gpt2", wrap_pos=True).positions(3, False).tolist(), [0, 1, 2])
        self.assertEqual(model("gpt2").positions(3, True).tolist(), [0, 1, 2, 3, 4])
        rows = [model("gpt2", wrap_pos=wrap).segment(some_ids(3), None)[0] for wrap in (True, False)]
        self.assert_equal(rows[0][:, :3], rows[1][:, :3])
        self.assertGreater(float((rows[0][:, 3:] - rows[1][:, 3:]).abs().max()), 0.05)

    def test_SingleIsNearDouble(self):
        ids = some_ids(13)
        exact, found = model().score(ids)[0], model(dtype=torch.float32).score(ids)[0]
        self.assertEqual(found.dtype, torch.float32)
        self.assertLess(float((found - exact).norm() / exact.norm()), 1e-5)


if __name__ == "__main__":
    unittest.main()
