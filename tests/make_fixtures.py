#!/usr/bin/env python3
"""Writes the fixtures below tests/data that no other program made: run once, results committed.

    python3 tests/make_fixtures.py SHARED [NAME...]     needs numpy, gguf, safetensors

SHARED is the folder of the wider set of fixtures. Everything is drawn from fixed seeds, so a
second run writes the same bytes. Reference logits come from `forward` below, a Llama in numpy
that is first held against logits which transformers computed.
"""
import json
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file, save_file

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


# The Llama that makes reference logits


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, theta, adjacent):
    """x [tokens, heads, dim]: pairs (i, i + dim/2), or (2i, 2i + 1) if `adjacent`."""
    tokens, _, dim = x.shape
    angle = np.arange(tokens)[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = (x[..., ::2], x[..., 1::2]) if adjacent else (x[..., :dim // 2], x[..., dim // 2:])
    turned = a * cos - b * sin, b * cos + a * sin
    return np.stack(turned, -1).reshape(x.shape) if adjacent else np.concatenate(turned, -1)


def forward(ids, layers, embedding, final, head, *, heads, kv_heads, eps, theta, adjacent):
    """Logits [tokens, vocabulary] in float64."""
    x = embedding[ids]
    tokens = len(ids)
    for w in layers:
        h = norm(x, w["attn_norm"], eps)
        q, k, v = ((h @ w[n].T).reshape(tokens, n_heads, -1)
                   for n, n_heads in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        q, k = rotate(q, theta, adjacent), rotate(k, theta, adjacent)
        k, v = (np.repeat(t, heads // kv_heads, 1) for t in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
        scores[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", scores, v).reshape(tokens, -1) @ w["o"].T
        h = norm(x, w["ffn_norm"], eps)
        gate = h @ w["gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["up"].T)) @ w["down"].T
    return norm(x, final, eps) @ head.T


GGUF_NAMES = {"attn_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
              "ffn_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
HF_NAMES = {"attn_norm": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj",
            "v": "self_attn.v_proj", "o": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
            "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}


def gguf_logits(values, ids, layers):
    """Of the fixtures in gguf/: values by name."""
    layers = [{k: values[f"blk.{l}.{n}.weight"] for k, n in GGUF_NAMES.items()} for l in range(layers)]
    embedding = values["token_embd.weight"]
    head = values.get("output.weight", embedding)
    return forward(ids, layers, embedding, values["output_norm.weight"], head, heads=4, kv_heads=2,
                   eps=1e-5, theta=1e4, adjacent=True)


def hf_logits(values, ids, config):
    layers = [{k: values[f"model.layers.{l}.{n}.weight"] for k, n in HF_NAMES.items()}
              for l in range(config["num_hidden_layers"])]
    return forward(ids, layers, values["model.embed_tokens.weight"], values["model.norm.weight"],
                   values["lm_head.weight"], heads=config["num_attention_heads"],
                   kv_heads=config["num_key_value_heads"], eps=config["rms_norm_eps"],
                   theta=config["rope_parameters"]["rope_theta"], adjacent=False)


def check(logits, golden):
    worst = np.abs(logits - golden["logits"][:len(logits)]).max()
    assert worst < 1e-4, f"the reference itself is off by {worst}"


STEPS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def iq4_xs(weight):
    """A plain quantiser: uint8 [rows, bytes]."""
    x = weight.astype(np.float64).reshape(-1, 8, 32)
    peak = np.take_along_axis(x, np.abs(x).argmax(-1, keepdims=True), -1)[..., 0]
    scale = peak / -127
    d = np.float64(np.float16(np.abs(scale).max(-1) / 31))
    level = np.clip(np.rint(scale / d[:, None]), -32, 31)
    unit = (d[:, None] * level)[..., None]
    ratio = np.divide(x, unit, out=np.zeros_like(x), where=unit != 0)
    codes = np.abs(ratio[..., None] - STEPS).argmin(-1).astype(np.uint8)
    level = (level + 32).astype(np.uint16)
    high = sum((level[:, g] >> 4) << (2 * g) for g in range(8)).astype("<u2")
    low = (level[:, ::2] & 15 | (level[:, 1::2] & 15) << 4).astype(np.uint8)
    packed = codes[..., :16] | codes[..., 16:] << 4
    parts = [np.float16(d).reshape(-1, 1).view(np.uint8), high.reshape(-1, 1).view(np.uint8), low,
             packed.reshape(len(x), 128)]
    return np.concatenate(parts, -1).reshape(len(weight), -1)


MIXED = {"token_embd": Type.IQ4_XS, "attn_q": Type.IQ4_XS, "attn_k": Type.Q5_0, "attn_v": Type.Q8_0,
         "attn_output": Type.BF16, "ffn_gate": Type.IQ4_XS, "ffn_up": Type.Q4_1, "ffn_down": Type.F16}


def mixed():
    """gguf/tiny-mixed-*: one layer, a type for each tensor, IQ4_XS among them, in several files."""
    source = gguf.GGUFReader(SHARED / "fixtures/gguf/tiny-f32.gguf")
    golden = load_file(SHARED / "fixtures/gguf/tiny-f32.golden.safetensors")
    exact = {t.name: t.data.reshape(t.shape[::-1]).astype(np.float64) for t in source.tensors}
    check(gguf_logits(exact, golden["input_ids"], 2), golden)
    path = DATA / "gguf/tiny-mixed.gguf"
    for old in path.parent.glob("tiny-mixed-*"):
        old.unlink()
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=5)
    for key, field in source.fields.items():
        value = 1 if key == "llama.block_count" else field.contents()
        if not key.startswith("GGUF.") and key != "general.architecture":
            sub = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, value, field.types[0], sub)
    values = {}
    for name, weight in exact.items():
        if name.startswith("blk.1."):
            continue
        kind = next((k for part, k in MIXED.items() if f"{part}.weight" in name), Type.F32)
        weight = weight.astype(np.float32)
        raw = iq4_xs(weight) if kind == Type.IQ4_XS else gguf.quants.quantize(weight, kind)
        writer.add_tensor(name, raw, raw_dtype=kind)
        values[name] = gguf.quants.dequantize(raw, kind).astype(np.float64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ids = golden["input_ids"][:20]
    logits = gguf_logits(values, ids, 1).astype(np.float32)
    save_file({"input_ids": ids, "logits": logits}, DATA / "gguf/tiny-mixed.golden.safetensors")


def e4m3_values():
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    value = np.where(exponent == 0, mantissa * 2.0 ** -9, (8.0 + mantissa) * 2.0 ** (exponent - 10.0))
    value = np.where(codes & 127 == 127, np.nan, value)
    return np.where(codes >> 7 == 1, -value, value)


def bf16(values):
    """Rounded to the nearest, ties to even, as float32."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def write_safetensors(path, tensors):
    """(dtype, array) by name; the package's numpy form has no eight-bit floats."""
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def fp8():
    """llama-fp8/: eight-bit floats with scales by block, by tensor and by row, one kind a layer."""
    folder = SHARED / "fixtures/llama"
    config = json.loads((folder / "config.json").read_text())
    source, golden = load_file(folder / "model.safetensors"), load_file(folder / "golden.safetensors")
    check(hf_logits({k: v.astype(np.float64) for k, v in source.items()}, golden["input_ids"], config),
          golden)
    table, (high, wide) = e4m3_values(), (48, 32)
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3",
                                     "weight_block_size": [high, wide]}
    out, values = {}, {}
    for name, weight in source.items():
        if "proj" not in name:
            weight = bf16(weight)
            out[name] = "BF16", (weight.view(np.uint32) >> 16).astype("<u2")
            values[name] = weight.astype(np.float64)
            continue
        rows, cols = weight.shape
        layer = int(name.split(".")[2])
        block = [(high, wide), (rows, cols), (1, cols)][layer]
        scale = np.zeros((-(-rows // block[0]), -(-cols // block[1])), np.float32)
        for r, c in np.ndindex(scale.shape):
            part = weight[r * block[0]:(r + 1) * block[0], c * block[1]:(c + 1) * block[1]]
            scale[r, c] = np.abs(part).max() / 448
        full = np.repeat(np.repeat(scale, block[0], 0), block[1], 1)[:rows, :cols]
        codes = np.nanargmin(np.abs((weight / full)[..., None] - table), -1).astype(np.uint8)
        out[name] = "F8_E4M3", codes
        tail, shape = [("_scale_inv", scale.shape), ("_scale", ()), ("_scale", (rows, 1))][layer]
        out[name + tail] = "F32", scale.reshape(shape)
        values[name] = bf16(table[codes].astype(np.float32) * full).astype(np.float64)
    target = DATA / "llama-fp8"
    target.mkdir(exist_ok=True)
    write_safetensors(target / "model.safetensors", out)
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    ids = golden["input_ids"][:24]
    logits = hf_logits(values, ids, config).astype(np.float32)
    save_file({"input_ids": ids, "logits": logits}, target / "golden.safetensors")


ALL = {f.__name__: f for f in (blocks, mixed, fp8)}

if __name__ == "__main__":
    SHARED = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or ALL:
        ALL[name]()
