"""The tiny models that goldens are made of: one entry a family, as arguments of its transformers configuration class.

Dimensions are odd on purpose: no power of two where the architecture leaves a choice, other counts of experts, gate and
up together as wide as the hidden size where a transposed tensor would otherwise be told by its shape.
"""

import math

VOCAB = 96
PROMPTS = (1, 21, 50)  # longer than one KV block of 16 tokens and than every window below
WINDOW = 12

COMMON = {"vocab_size": VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
          "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None, "initializer_range": 0.02}

# Rotary parameters by themselves: transformers 4 and 5 spell them differently.
YARN_OSS = {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": 32}
YARN_DEEPSEEK = {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                 "mscale_all_dim": 0.8, "original_max_position_embeddings": 32}

DEEPSEEK = {"hidden_size": 60, "intermediate_size": 44, "moe_intermediate_size": 10, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 18, "qk_nope_head_dim": 10,
            "qk_rope_head_dim": 6, "v_head_dim": 14, "n_routed_experts": 12, "num_experts_per_tok": 3,
            "first_k_dense_replace": 1, "hidden_act": "silu", "attention_bias": False}

FAMILIES = {
    "gpt_oss": {
        "class": "GptOss", "theta": 15000.0, "rope": YARN_OSS,
        "config": {"hidden_size": 60, "intermediate_size": 30, "num_hidden_layers": 3, "num_attention_heads": 6,
                   "num_key_value_heads": 2, "head_dim": 12, "num_local_experts": 5, "num_experts_per_tok": 3,
                   "sliding_window": WINDOW, "attention_bias": True, "hidden_act": "silu",
                   "swiglu_limit": 2.0,  # at 7 a gate that is clamped from below as well would hardly show
                   "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    },
    "gpt_oss_mxfp4": {
        "class": "GptOss", "theta": 15000.0, "rope": YARN_OSS, "mxfp4": True,
        "config": {"hidden_size": 96, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 6,
                   "num_key_value_heads": 3, "head_dim": 12, "num_local_experts": 5, "num_experts_per_tok": 2,
                   "sliding_window": WINDOW, "attention_bias": True, "hidden_act": "silu", "swiglu_limit": 7.0,
                   "layer_types": ["sliding_attention", "full_attention"]},
    },
    "deepseek_v3": {
        "class": "DeepseekV3", "theta": 10000.0, "rope": YARN_DEEPSEEK,
        "config": {**DEEPSEEK, "q_lora_rank": 22, "n_shared_experts": 1, "n_group": 4, "topk_group": 2,
                   "norm_topk_prob": True, "routed_scaling_factor": 2.5, "rope_interleave": True},
    },
    "deepseek_v2": {
        "class": "DeepseekV2", "theta": 10000.0, "rope": YARN_DEEPSEEK,
        # transformers 4 leaves the mscale of YaRN out of this family; version 5 and DeepSeek's own code have it.
        "attention_scale_missing_in_4": (0.1 * YARN_DEEPSEEK["mscale_all_dim"] * math.log(8.0) + 1.0) ** 2,
        "config": {**DEEPSEEK, "q_lora_rank": 22, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
                   "norm_topk_prob": False, "routed_scaling_factor": 16.0, "topk_method": "group_limited_greedy"},
    },
    "deepseek_v2_lite": {
        "class": "DeepseekV2", "theta": 10000.0, "rope": None,
        "config": {**DEEPSEEK, "q_lora_rank": None, "n_shared_experts": 2, "n_group": 1, "topk_group": 1,
                   "norm_topk_prob": False, "routed_scaling_factor": 1.0, "topk_method": "greedy"},
    },
    "mixtral": {
        "class": "Mixtral", "theta": 50000.0, "rope": None,
        "config": {"hidden_size": 60, "intermediate_size": 30, "num_hidden_layers": 2, "num_attention_heads": 6,
                   "num_key_value_heads": 2, "head_dim": 10, "num_local_experts": 5, "num_experts_per_tok": 2,
                   "sliding_window": WINDOW, "hidden_act": "silu"},
    },
    "qwen2_moe": {
        "class": "Qwen2Moe", "theta": 50000.0, "rope": None,
        "config": {"hidden_size": 60, "intermediate_size": 44, "moe_intermediate_size": 10,
                   "shared_expert_intermediate_size": 26, "num_hidden_layers": 3, "num_attention_heads": 6,
                   "num_key_value_heads": 2, "num_experts": 12, "num_experts_per_tok": 4, "norm_topk_prob": False,
                   "mlp_only_layers": [1], "decoder_sparse_step": 1, "qkv_bias": True, "hidden_act": "silu"},
    },
    "qwen3_moe": {
        "class": "Qwen3Moe", "theta": 50000.0, "rope": None,
        "config": {"hidden_size": 44, "intermediate_size": 52, "moe_intermediate_size": 6, "num_hidden_layers": 2,
                   "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "num_experts": 40,
                   "num_experts_per_tok": 7, "norm_topk_prob": True, "attention_bias": True, "hidden_act": "silu"},
    },
    "olmoe": {
        "class": "Olmoe", "theta": 50000.0, "rope": None,
        "config": {"hidden_size": 60, "intermediate_size": 30, "num_hidden_layers": 2, "num_attention_heads": 6,
                   "num_key_value_heads": 3, "num_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": False,
                   "clip_qkv": None, "attention_bias": False, "hidden_act": "silu"},
    },
    "glm4_moe": {
        "class": "Glm4Moe", "theta": 50000.0, "rope": None, "partial_rotary_factor": 0.5, "extra_layer": True,
        "config": {"hidden_size": 52, "intermediate_size": 44, "moe_intermediate_size": 10, "num_hidden_layers": 3,
                   "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "n_routed_experts": 12,
                   "num_experts_per_tok": 3, "n_shared_experts": 1, "n_group": 3, "topk_group": 2,
                   "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5,
                   "use_qk_norm": True, "attention_bias": True, "hidden_act": "silu"},
    },
}


def arguments(family, generation):
    """Arguments of the configuration class in the spelling of transformers 4 or 5."""
    out = {**COMMON, **family["config"]}
    share = family.get("partial_rotary_factor")
    rope = dict(family["rope"] or {"rope_type": "default"})
    if generation == 4:
        out["rope_theta"] = family["theta"]
        out["rope_scaling"] = None if family["rope"] is None else rope
        if share is not None:
            out["partial_rotary_factor"] = share
        return out
    out["rope_parameters"] = {**rope, "rope_theta": family["theta"]}
    if share is not None:
        out["rope_parameters"]["partial_rotary_factor"] = share
    return out
