#!/usr/bin/env python3
"""Writes a Hugging Face checkpoint as the GGUF file that its family's files look like.

    python3 tests/gguf_families.py FOLDER OUT.gguf       needs numpy, gguf

Names of tensors and keys are those of the `gguf` package; what a family's files do to the values
is written out below: which reorder the rows of q and k, which hold norm weights with their 1.
"""
import json
import pathlib
import re
import sys

import gguf
import numpy as np
from gguf import MODEL_ARCH as Arch

ARCH = {
    "llama": Arch.LLAMA, "mistral": Arch.LLAMA, "mixtral": Arch.LLAMA, "qwen2": Arch.QWEN2,
    "qwen3": Arch.QWEN3, "qwen3_moe": Arch.QWEN3MOE, "gemma2": Arch.GEMMA2,
    "gemma3_text": Arch.GEMMA3, "phi3": Arch.PHI3, "smollm3": Arch.SMOLLM3, "olmo2": Arch.OLMO2,
    "granite": Arch.GRANITE, "deepseek_v2": Arch.DEEPSEEK2,
}
# Rotary pairs lie side by side in the files of these.
ADJACENT = {Arch.LLAMA, Arch.SMOLLM3, Arch.GRANITE}
# Norm weights are stored with the 1 that the family adds.
PLUS_ONE = {Arch.GEMMA2, Arch.GEMMA3}


def load(folder):
    out = {}
    for path in sorted(folder.glob("model*.safetensors")):
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + size])
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            first, end = entry["data_offsets"]
            data = raw[8 + size + first:8 + size + end]
            if entry["dtype"] == "BF16":
                wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
                values = wide.view(np.float32)
            else:
                values = np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]])
            out[name] = values.astype(np.float32).reshape(entry["shape"])
    return out


def adjacent(rows, heads):
    """Halves of each head to side-by-side pairs."""
    shape = (heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return rows.reshape(shape).swapaxes(1, 2).reshape(rows.shape)


def stack_experts(tensors):
    """Experts as one tensor per layer and matrix."""
    out, groups = {}, {}
    for name, values in tensors.items():
        found = re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name)
        if found:
            groups.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = values
        else:
            out[name] = values
    for name, group in groups.items():
        out[name] = np.stack([group[e] for e in sorted(group)])
    return out


def split_latents(tensors, config):
    """What makes keys and values from a latent as newer files have it: apart, keys transposed."""
    out = {}
    for name, values in tensors.items():
        if "kv_b_proj" in name:
            by_head = values.reshape(config["num_attention_heads"], -1, config["kv_lora_rank"])
            keys, values = np.split(by_head, [config["qk_nope_head_dim"]], axis=1)
            out[name.replace("kv_b_proj", "k_b_proj")] = keys.swapaxes(1, 2)
            out[name.replace("kv_b_proj", "v_b_proj")] = values
        else:
            out[name] = values
    return out


def write_latent_keys(writer, config, split):
    """Newer files say the cached row where older ones say a head."""
    rope = config["qk_rope_head_dim"]
    head, value = config["qk_nope_head_dim"] + rope, config["v_head_dim"]
    rank = config["kv_lora_rank"]
    writer.add_kv_lora_rank(rank)
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_rope_dimension_count(rope)
    writer.add_head_count_kv(1 if split else config["num_attention_heads"])
    writer.add_key_length(rank + rope if split else head)
    writer.add_value_length(rank if split else value)
    if split:
        writer.add_key_length_mla(head)
        writer.add_value_length_mla(value)
    writer.add_expert_weights_norm(config["norm_topk_prob"])


def write_keys(writer, config, split):
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head = config.get("head_dim") or hidden // heads
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    if "kv_lora_rank" in config:
        write_latent_keys(writer, config, split)
    else:
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(head)
        writer.add_value_length(head)
        writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    optional = {
        "sliding_window": writer.add_sliding_window,
        "attn_logit_softcapping": writer.add_attn_logit_softcapping,
        "final_logit_softcapping": writer.add_final_logit_softcapping,
        "attention_multiplier": writer.add_attention_scale,
        "embedding_multiplier": writer.add_embedding_scale,
        "residual_multiplier": writer.add_residual_scale,
        "logits_scaling": writer.add_logit_scale,
        "num_local_experts": writer.add_expert_count,
        "n_routed_experts": writer.add_expert_count,
        "n_shared_experts": writer.add_expert_shared_count,
        "first_k_dense_replace": writer.add_leading_dense_block_count,
        "routed_scaling_factor": writer.add_expert_weights_scale,
        "num_experts_per_tok": writer.add_expert_used_count,
        "moe_intermediate_size": writer.add_expert_feed_forward_length,
    }
    for key, add in optional.items():
        if config.get(key) is not None:
            add(config[key])


def main(folder, out):
    config = json.loads((folder / "config.json").read_text())
    arch = ARCH[config["model_type"]]
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[arch])
    tensors = load(folder)
    # Both ways of such files: the newer one where q is narrow, too.
    split = bool(config.get("q_lora_rank"))
    if split:
        tensors = split_latents(tensors, config)
    write_keys(writer, config, split)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    for name, values in stack_experts(tensors).items():
        if arch in ADJACENT:
            for part, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads")):
                if f".{part}_proj." in name:
                    values = adjacent(values, config[heads])
        if arch in PLUS_ONE and name.endswith("norm.weight"):
            values = values + 1
        to = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert to, f"{name} has no name in {arch}"
        writer.add_tensor(to, np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
