#!/usr/bin/env python3
"""Tests of make_armt_goldens.py: oracle/bin/python tools/make_armt_goldens_test.py (torch, transformers, safetensors)"""

import unittest

import torch

from make_armt_goldens import (CHECKPOINTS, FIRST_KEY, FIRST_VALUE, KEYS, PLACES, VALUES, authors_name, build, num_asked, plain_name, recall_inputs,
                               recall_sample, segment_lengths)


class ArmtGoldens(unittest.TestCase):
    def test_AuthorsNames_GoBackToPlainOnes(self):
        self.assertEqual(authors_name("model.layers.0.mlp.up_proj.weight"), "memory_cell.model.model.layers.0.layer.mlp.up_proj.weight")
        self.assertEqual(authors_name("transformer.h.2.W_mb.bias"), "memory_cell.model.transformer.h.2.W_mb.bias")
        for folder, (seed, config, _) in CHECKPOINTS.items():
            names = list(build(config, seed))
            layers = config.get("num_hidden_layers") or config["n_layer"] if "armt" in config else 0
            self.assertEqual(sum(n.endswith("W_mv.weight") for n in names), layers, folder)
            self.assertEqual([plain_name(authors_name(n)) for n in names], names)
            self.assertEqual([plain_name(authors_name(n, "")) for n in names], names)

    def test_Inputs_HaveAllCountsOfSegments(self):
        for folder, (_, config, lengths) in CHECKPOINTS.items():
            armt, layers = config.get("armt") or config["rmt"], config.get("num_hidden_layers") or config["n_layer"]
            segments = [segment_lengths(n, armt["segment_size"], armt["segment_alignment"]) for n in lengths]
            counts = [len(s) for s in segments]
            self.assertGreater(counts[0], layers, folder)
            self.assertTrue({1, 2, layers} <= set(counts), folder)
            self.assertTrue(armt["segment_size"] == 1 or min(segments[0]) < max(segments[0]), folder)

    def test_RecallSample_AsksForWhatWasSaid(self):
        for facts, each in ((2, 1), (3, 2), (6, 4), (31, 4)):
            asked = num_asked(facts, each)
            for text in recall_sample(8, facts, torch.Generator().manual_seed(facts), each).tolist():
                pairs = list(zip(text[::2], text[1::2], strict=True))
                said, questions, rest = pairs[:facts * PLACES], pairs[facts * PLACES:][:asked], pairs[facts * PLACES + asked:]
                self.assertEqual(len(set(said)), facts * each)
                self.assertEqual(len({key for key, _ in said}), facts * each)
                self.assertTrue(all(FIRST_KEY <= k < FIRST_KEY + KEYS and FIRST_VALUE <= v < FIRST_VALUE + VALUES for k, v in said))
                self.assertEqual(len(set(questions)), asked)
                self.assertTrue(set(questions) <= set(said))
                self.assertEqual(rest, [(0, 0)] * (PLACES - asked))

    def test_RecallInputs_LastThreeEndWithAKeyThatWasSaid(self):
        inputs = [ids[0].tolist() for ids in recall_inputs()]
        self.assertEqual([len(ids) for ids in inputs], [128, 75, 33, 97, 49])
        for ids in inputs[2:]:
            self.assertIn(ids[-1], ids[:-1:2])


if __name__ == "__main__":
    unittest.main()
