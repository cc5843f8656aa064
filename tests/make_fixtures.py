#!/usr/bin/env python3
"""Writes the fixtures below tests/data that no other program made: run once, results committed.

    python3 tests/make_fixtures.py [NAME...]       needs numpy, gguf, safetensors

Everything is drawn from fixed seeds, so a second run writes the same bytes.
"""
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

DATA = pathlib.Path(__file__).resolve().parent / "data"

# Half floats of a block: d, and dmin where there is one.
HALVES = {
    Type.Q2_K: (80, 82), Type.Q3_K: (108,), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,),
    Type.IQ4_NL: (0,), Type.IQ4_XS: (0,),
}


def random_blocks(rng, kind, count):
    """`count` blocks of any bits but with sane scales: uint8 [count, bytes]."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in HALVES[kind]:
        scale = rng.uniform(-0.01, 0.01, count).astype("<f2")
        raw[:, at:at + 2] = scale.view(np.uint8).reshape(count, 2)
    return raw


def blocks():
    """blocks/FORMAT.bin: three blocks, then their values as gguf's own decoder gives them."""
    (DATA / "blocks").mkdir(exist_ok=True)
    for seed, kind in enumerate(HALVES):
        raw = random_blocks(np.random.default_rng(seed), kind, 3)
        values = gguf.quants.dequantize(raw, kind).astype("<f4")
        path = DATA / "blocks" / f"{kind.name.lower()}.bin"
        path.write_bytes(raw.tobytes() + values.tobytes())


ALL = {f.__name__: f for f in (blocks,)}

if __name__ == "__main__":
    for name in sys.argv[1:] or ALL:
        ALL[name]()
