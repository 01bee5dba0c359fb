"""Writes full-size checkpoints whose data are file holes: true names, shapes, types and descriptions, no disk space.

    python tests/gen/sparse_checkpoints.py NAME FOLDER        NAME of MODELS below, or "list"

For `sluice check` and `sluice explain`, which must tell everything about a model of hundreds of gigabytes from its
headers. One-element tensors (tensor scales) hold a real value, because a scale of zero is an error; all other data
reads as zeros. Names and sizes are those of the published checkpoints as far as their documentation and loaders tell.
"""

import json
import math
import pathlib
import struct
import sys

SHARD_BYTES = 5_000_000_000
BITS = {"U8": 8, "F8_E4M3": 8, "BF16": 16, "F32": 32}
SCALAR = 0.0078125


class Tensors:
    """The tensors of one checkpoint, in the order in which they are written."""

    def __init__(self):
        self.items = []

    def add(self, name, dtype, *shape):
        self.items.append((name, dtype, list(shape)))

    def plain(self, module, rows, cols):
        self.add(f"{module}.weight", "BF16", rows, cols)

    def nvfp4(self, module, rows, cols):
        self.add(f"{module}.weight", "U8", rows, cols // 2)
        self.add(f"{module}.weight_scale", "F8_E4M3", rows, cols // 16)
        self.add(f"{module}.weight_scale_2", "F32")
        self.add(f"{module}.input_scale", "F32")

    def fp8_block(self, module, rows, cols, scale="F32"):
        self.add(f"{module}.weight", "F8_E4M3", rows, cols)
        self.add(f"{module}.weight_scale_inv", scale, math.ceil(rows / 128), math.ceil(cols / 128))

    def ffn(self, linear, module, hidden, inner):
        linear(f"{module}.gate_proj", inner, hidden)
        linear(f"{module}.up_proj", inner, hidden)
        linear(f"{module}.down_proj", hidden, inner)


def write(folder, config, tensors, side_files=()):
    """Shards of SHARD_BYTES, an index, and the configuration."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shards, filled = [[]], 0
    for name, dtype, shape in tensors.items:
        size = math.prod(shape) * BITS[dtype] // 8
        if filled and filled + size > SHARD_BYTES:
            shards.append([])
            filled = 0
        shards[-1].append((name, dtype, shape, size))
        filled += size
    index, total = {}, 0
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        total += write_shard(folder / file, shard)
        index.update({name: file for name, *_ in shard})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}))
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    for file, value in side_files:
        (folder / file).write_text(json.dumps(value, indent=2))


def write_shard(path, shard):
    """Scalars first and written out, then holes. Returns the bytes of data."""
    shard = sorted(shard, key=lambda t: (t[3] > 4, -BITS[t[1]]))
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, size in shard:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    scalars = sum(1 for *_, size in shard if size <= 4)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + struct.pack("<f", SCALAR) * scalars)
        file.truncate(8 + len(text) + at)
    return at


def deepseek_config(**changes):
    return {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "attention_bias": False,
            "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432,
            "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "moe_layer_freq": 1,
            "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": True, "num_attention_heads": 128,
            "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
            "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
            "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                             "original_max_position_embeddings": 4096, "type": "yarn"},
            "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": False,
            "topk_group": 4, "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "v_head_dim": 128, "vocab_size": 129280,
            **changes}


def deepseek_attention(t, linear, layer, c):
    base, hidden, heads = f"model.layers.{layer}.self_attn", c["hidden_size"], c["num_attention_heads"]
    nope, rope, value, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
    linear(f"{base}.q_a_proj", c["q_lora_rank"], hidden)
    t.add(f"{base}.q_a_layernorm.weight", "BF16", c["q_lora_rank"])
    linear(f"{base}.q_b_proj", heads * (nope + rope), c["q_lora_rank"])
    linear(f"{base}.kv_a_proj_with_mqa", rank + rope, hidden)
    t.add(f"{base}.kv_a_layernorm.weight", "BF16", rank)
    linear(f"{base}.kv_b_proj", heads * (nope + value), rank)
    linear(f"{base}.o_proj", hidden, heads * value)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        t.add(f"model.layers.{layer}.{norm}.weight", "BF16", hidden)


def deepseek_experts(t, linear, layer, c, bias="F32"):
    base, hidden, inner = f"model.layers.{layer}.mlp", c["hidden_size"], c["moe_intermediate_size"]
    t.plain(f"{base}.gate", c["n_routed_experts"], hidden)
    t.add(f"{base}.gate.e_score_correction_bias", bias, c["n_routed_experts"])
    for expert in range(c["n_routed_experts"]):
        t.ffn(linear, f"{base}.experts.{expert}", hidden, inner)
    t.ffn(linear, f"{base}.shared_experts", hidden, inner)


def deepseek_layers(t, attention, ffn, c):
    t.plain("model.embed_tokens", c["vocab_size"], c["hidden_size"])
    for layer in range(c["num_hidden_layers"]):
        deepseek_attention(t, attention, layer, c)
        if layer < c["first_k_dense_replace"]:
            t.ffn(ffn, f"model.layers.{layer}.mlp", c["hidden_size"], c["intermediate_size"])
        else:
            deepseek_experts(t, ffn, layer, c)
    t.add("model.norm.weight", "BF16", c["hidden_size"])
    t.plain("lm_head", c["vocab_size"], c["hidden_size"])


def deepseek_next_token_layer(t, linear, c):
    """The layer that predicts one more token; NVIDIA's FP4 files keep it in bf16."""
    layer, hidden = c["num_hidden_layers"], c["hidden_size"]
    base = f"model.layers.{layer}"
    t.plain(f"{base}.embed_tokens", c["vocab_size"], hidden)
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        t.add(f"{base}.{norm}.weight", "BF16", hidden)
    t.plain(f"{base}.eh_proj", hidden, 2 * hidden)
    t.plain(f"{base}.shared_head.head", c["vocab_size"], hidden)
    deepseek_attention(t, linear, layer, c)
    deepseek_experts(t, linear, layer, c)


def deepseek_v3_fp4(folder):
    c, t = deepseek_config(), Tensors()
    deepseek_layers(t, t.plain, t.nvfp4, c)
    deepseek_next_token_layer(t, t.plain, c)
    exclude = ["lm_head"] + [f"model.layers.{layer}.self_attn*" for layer in range(61)] + ["model.layers.61*"]
    quantization = {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": exclude}
    write(folder, c, t, [("hf_quant_config.json", {"producer": {"name": "modelopt", "version": "0.23.0"}, "quantization": quantization})])


def kimi_k2(folder):
    c = deepseek_config(model_type="kimi_k2", first_k_dense_replace=1, max_position_embeddings=131072, n_group=1, topk_group=1,
                        n_routed_experts=384, num_attention_heads=64, num_key_value_heads=64, num_nextn_predict_layers=0,
                        routed_scaling_factor=2.827, rope_theta=50000.0, vocab_size=163840,
                        rope_scaling={"beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                                      "original_max_position_embeddings": 4096, "type": "yarn"},
                        quantization_config={"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                             "weight_block_size": [128, 128]})
    t = Tensors()
    deepseek_layers(t, t.fp8_block, t.fp8_block, c)
    write(folder, c, t)


def qwen3_config(**changes):
    return {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "attention_bias": False, "decoder_sparse_step": 1,
            "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144,
            "max_position_embeddings": 40960, "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": True,
            "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
            "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000.0,
            "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_sliding_window": False,
            "vocab_size": 151936, **changes}


def qwen3_tensors(t, linear, c, kv_scales):
    hidden, head = c["hidden_size"], c["head_dim"]
    queries, keys = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    t.plain("model.embed_tokens", c["vocab_size"], hidden)
    for layer in range(c["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        linear(f"{base}.self_attn.q_proj", queries, hidden)
        linear(f"{base}.self_attn.k_proj", keys, hidden)
        linear(f"{base}.self_attn.v_proj", keys, hidden)
        linear(f"{base}.self_attn.o_proj", hidden, queries)
        if kv_scales:
            t.add(f"{base}.self_attn.k_proj.k_scale", "F32")
            t.add(f"{base}.self_attn.v_proj.v_scale", "F32")
        for norm, width in (("self_attn.q_norm", head), ("self_attn.k_norm", head), ("input_layernorm", hidden),
                            ("post_attention_layernorm", hidden)):
            t.add(f"{base}.{norm}.weight", "BF16", width)
        t.plain(f"{base}.mlp.gate", c["num_experts"], hidden)
        for expert in range(c["num_experts"]):
            t.ffn(linear, f"{base}.mlp.experts.{expert}", hidden, c["moe_intermediate_size"])
    t.add("model.norm.weight", "BF16", hidden)
    t.plain("lm_head", c["vocab_size"], hidden)


def qwen3_30b_fp4(folder):
    c, t = qwen3_config(), Tensors()
    qwen3_tensors(t, t.nvfp4, c, kv_scales=True)
    exclude = ["lm_head"] + [f"model.layers.{layer}.mlp.gate" for layer in range(48)]
    quantization = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": exclude}
    write(folder, c, t, [("hf_quant_config.json", {"producer": {"name": "modelopt", "version": "0.33.0"}, "quantization": quantization})])


def qwen3_30b_fp8(folder):
    keep = ["lm_head"] + [f"model.layers.{layer}.{name}" for layer in range(48)
                          for name in ("input_layernorm", "mlp.gate", "post_attention_layernorm")]
    c = qwen3_config(quantization_config={"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                          "weight_block_size": [128, 128], "modules_to_not_convert": keep})
    t = Tensors()
    qwen3_tensors(t, lambda module, rows, cols: t.fp8_block(module, rows, cols, "BF16"), c, kv_scales=False)
    write(folder, c, t)


def gpt_oss_120b(folder):
    hidden, inner, experts, layers, head, heads, kv, vocab = 2880, 2880, 128, 36, 64, 64, 8, 201088
    c = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": True, "head_dim": head,
         "hidden_act": "silu", "hidden_size": hidden, "initial_context_length": 4096, "intermediate_size": inner,
         "layer_types": ["sliding_attention", "full_attention"] * (layers // 2), "max_position_embeddings": 131072,
         "num_attention_heads": heads, "num_experts_per_tok": 4, "num_hidden_layers": layers, "num_key_value_heads": kv,
         "num_local_experts": experts, "rms_norm_eps": 1e-05, "rope_theta": 150000,
         "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                          "rope_type": "yarn", "truncate": False},
         "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": vocab,
         "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
             "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}
    t = Tensors()
    t.plain("model.embed_tokens", vocab, hidden)
    for layer in range(layers):
        base = f"model.layers.{layer}"
        for name, rows, cols in (("q", heads * head, hidden), ("k", kv * head, hidden), ("v", kv * head, hidden), ("o", hidden, heads * head)):
            t.plain(f"{base}.self_attn.{name}_proj", rows, cols)
            t.add(f"{base}.self_attn.{name}_proj.bias", "BF16", rows)
        t.add(f"{base}.self_attn.sinks", "BF16", heads)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            t.add(f"{base}.{norm}.weight", "BF16", hidden)
        t.plain(f"{base}.mlp.router", experts, hidden)
        t.add(f"{base}.mlp.router.bias", "BF16", experts)
        for name, rows, cols in (("gate_up_proj", 2 * inner, hidden), ("down_proj", hidden, inner)):
            t.add(f"{base}.mlp.experts.{name}_blocks", "U8", experts, rows, cols // 32, 16)
            t.add(f"{base}.mlp.experts.{name}_scales", "U8", experts, rows, cols // 32)
            t.add(f"{base}.mlp.experts.{name}_bias", "BF16", experts, rows)
    t.add("model.norm.weight", "BF16", hidden)
    t.plain("lm_head", vocab, hidden)
    write(folder, c, t)


MODELS = {"DeepSeek-V3-0324-FP4": deepseek_v3_fp4, "gpt-oss-120b": gpt_oss_120b, "Qwen3-30B-A3B-FP4": qwen3_30b_fp4,
          "Qwen3-30B-A3B-FP8": qwen3_30b_fp8, "Kimi-K2": kimi_k2}


def main():
    if len(sys.argv) == 2 and sys.argv[1] == "list":
        print("\n".join(MODELS))
    elif len(sys.argv) == 3 and sys.argv[1] in MODELS:
        MODELS[sys.argv[1]](sys.argv[2])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
