#!/usr/bin/env python3
"""Prints the hashes that src/tensor/dequantize_test.cc keeps: what the Python package gguf makes of seeded bytes.

    python3 tools/make_dequantize_hashes.py        gguf 0.19.0, numpy 2.4.6

Each type gets 64 blocks. Their bytes are the upper bytes of a 64-bit linear congruential sequence that begins with the
type's number in GGUF; then the exponent of each half is cut to below 16, so that scales are finite. The hash is FNV-1a
over the little-endian f32 values.
"""

import gguf
import numpy as np

BLOCKS = 64
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def seeded_bytes(seed, count):
    state, out = seed, bytearray()
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    return out


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


for name, halves in HALVES.items():
    kind = gguf.GGMLQuantizationType[name]
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    data = seeded_bytes(kind.value, BLOCKS * block_bytes)
    for block in range(BLOCKS):
        for half in halves:
            data[block * block_bytes + half + 1] &= 0xBF
    values = gguf.dequantize(np.frombuffer(bytes(data), dtype=np.uint8), kind).astype("<f4")
    assert np.isfinite(values).all()
    print(f"{{DType::k{name}, {kind.value}, 0x{fnv1a(values.tobytes()):016X}}},")
