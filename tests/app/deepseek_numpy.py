"""DeepSeek-V2 and V3 in numpy, float64, from the published description of the architecture; slow and obvious.

Keys and values are made from the latent for every head (the engine never does that: it attends to the latent itself).
Writes random checkpoints with every option that the engine reads, and computes what they should answer.
"""

import json
import math

import ml_dtypes
import numpy as np
from qwen3_moe_numpy import activation, decoder_logits, rms_norm, softmax
from safetensors.numpy import save_file

MLA_EPSILON = 1e-6  # of the norms of both latents, whatever rms_norm_eps says


def default_config(**changes):
    config = {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "torch_dtype": "bfloat16",
        "hidden_size": 104, "moe_intermediate_size": 40, "intermediate_size": 72, "num_hidden_layers": 3,
        "n_routed_experts": 12, "num_experts_per_tok": 3, "n_shared_experts": 1, "n_group": 4, "topk_group": 2,
        "norm_topk_prob": True, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_attention_heads": 5, "num_key_value_heads": 5,
        "q_lora_rank": 48, "kv_lora_rank": 56, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 20,
        "vocab_size": 1024, "max_position_embeddings": 256, "rope_theta": 10000.0, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "attention_bias": False, "num_nextn_predict_layers": 1,
    }
    config.update(changes)
    return config


def is_moe(config, layer):
    return layer >= config["first_k_dense_replace"] and layer % config["moe_layer_freq"] == 0


class Tensors(dict):
    """Tensors by checkpoint name: float32 values that bf16 holds exactly."""

    def __init__(self, seed):
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def add(self, name, *shape, mean=0.0, spread=1.0):
        values = mean + spread * self.rng.standard_normal(shape)
        self[name] = values.astype(ml_dtypes.bfloat16).astype(np.float32)

    def matrix(self, name, rows, cols, gain=1.0):
        self.add(name, rows, cols, spread=gain / math.sqrt(cols))

    def norm(self, name, n):
        self.add(name, n, mean=1.0, spread=0.2)

    def ffn(self, prefix, hidden, inner):
        self.matrix(f"{prefix}gate_proj.weight", inner, hidden, 2.0)
        self.matrix(f"{prefix}up_proj.weight", inner, hidden, 0.5)
        self.matrix(f"{prefix}down_proj.weight", hidden, inner, 1.5)


def add_attention(t, config, p):
    h, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope, v = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    q_rank, kv_rank = config["q_lora_rank"], config["kv_lora_rank"]
    if q_rank is None:
        t.matrix(f"{p}q_proj.weight", heads * (nope + rope), h, 2.0)
    else:
        t.matrix(f"{p}q_a_proj.weight", q_rank, h, 0.3)
        t.norm(f"{p}q_a_layernorm.weight", q_rank)
        t.matrix(f"{p}q_b_proj.weight", heads * (nope + rope), q_rank, 2.0)
    t.matrix(f"{p}kv_a_proj_with_mqa.weight", kv_rank + rope, h, 1.5)
    t.norm(f"{p}kv_a_layernorm.weight", kv_rank)
    t.matrix(f"{p}kv_b_proj.weight", heads * (nope + v), kv_rank)
    t.matrix(f"{p}o_proj.weight", h, heads * v)


def add_block(t, config, layer):
    h, p = config["hidden_size"], f"model.layers.{layer}."
    t.norm(f"{p}input_layernorm.weight", h)
    t.norm(f"{p}post_attention_layernorm.weight", h)
    add_attention(t, config, f"{p}self_attn.")
    if not is_moe(config, layer):
        t.ffn(f"{p}mlp.", h, config["intermediate_size"])
        return
    experts, inner = config["n_routed_experts"], config["moe_intermediate_size"]
    t.matrix(f"{p}mlp.gate.weight", experts, h, 1.5)
    if config["topk_method"] == "noaux_tc":
        # As large as differences of scores, some negative; float32 that bf16 could not hold.
        bias = t.rng.standard_normal(experts) * 0.2
        t[f"{p}mlp.gate.e_score_correction_bias"] = bias.astype(np.float32)
    for e in range(experts):
        t.ffn(f"{p}mlp.experts.{e}.", h, inner)
    if config["n_shared_experts"]:
        t.ffn(f"{p}mlp.shared_experts.", h, inner * config["n_shared_experts"])


def random_weights(config, seed, predicted_layers=0):
    t = Tensors(seed)
    h = config["hidden_size"]
    t.matrix("model.embed_tokens.weight", config["vocab_size"], h, 3.0)
    t.matrix("lm_head.weight", config["vocab_size"], h, 3.0)
    t.norm("model.norm.weight", h)
    for layer in range(config["num_hidden_layers"] + predicted_layers):
        add_block(t, config, layer)
    return dict(t)


def write_checkpoint(folder, config, tensors):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    stored = {n: t if "correction_bias" in n else t.astype(ml_dtypes.bfloat16) for n, t in tensors.items()}
    save_file(stored, folder / "model.safetensors")


def yarn_mscale(factor, mscale):
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def rope_parameters(config):
    """(inverse frequencies, factor of cos and sin, factor of the softmax scale)."""
    d = config["qk_rope_head_dim"]
    inv = config["rope_theta"] ** (-np.arange(0, d, 2) / d)
    yarn = config.get("rope_scaling")
    if yarn is None:
        return inv, 1.0, 1.0
    factor, original = yarn["factor"], yarn["original_max_position_embeddings"]

    def pair(turns):
        return d * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(config["rope_theta"]))

    low = max(math.floor(pair(yarn["beta_fast"])), 0)
    high = min(math.ceil(pair(yarn["beta_slow"])), d - 1)
    stretch = np.clip((np.arange(d // 2) - low) / max(high - low, 0.001), 0, 1)
    inv = inv * (1 - stretch) + inv / factor * stretch
    rotation = yarn_mscale(factor, yarn["mscale"]) / yarn_mscale(factor, yarn["mscale_all_dim"])
    return inv, rotation, yarn_mscale(factor, yarn["mscale_all_dim"]) ** 2


def rotate(config, x, cos, sin):
    if config.get("rope_interleave", True):
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(config, w, p, x):
    n, heads = len(x), config["num_attention_heads"]
    nope, rope, v_dim = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    if config["q_lora_rank"] is None:
        q = x @ w[f"{p}q_proj.weight"].T
    else:
        q_latent = rms_norm(x @ w[f"{p}q_a_proj.weight"].T, w[f"{p}q_a_layernorm.weight"], MLA_EPSILON)
        q = q_latent @ w[f"{p}q_b_proj.weight"].T
    q = q.reshape(n, heads, nope + rope)
    kv = x @ w[f"{p}kv_a_proj_with_mqa.weight"].T
    latent = rms_norm(kv[:, :config["kv_lora_rank"]], w[f"{p}kv_a_layernorm.weight"], MLA_EPSILON)
    inv, rotation, scale_factor = rope_parameters(config)
    angles = np.arange(n)[:, None] * inv
    cos, sin = np.cos(angles) * rotation, np.sin(angles) * rotation
    key_rope = rotate(config, kv[:, config["kv_lora_rank"]:], cos, sin)
    query_rope = rotate(config, q[:, :, nope:], cos[:, None], sin[:, None])
    kv_heads = (latent @ w[f"{p}kv_b_proj.weight"].T).reshape(n, heads, nope + v_dim)
    scale = scale_factor / math.sqrt(nope + rope)
    causal = np.tril(np.ones((n, n), bool))
    out = np.empty((n, heads, v_dim))
    for head in range(heads):
        query = np.concatenate([q[:, head, :nope], query_rope[:, head]], axis=-1)
        key = np.concatenate([kv_heads[:, head, :nope], key_rope], axis=-1)
        scores = np.where(causal, query @ key.T * scale, -np.inf)
        out[:, head] = softmax(scores) @ kv_heads[:, head, nope:]
    return out.reshape(n, heads * v_dim) @ w[f"{p}o_proj.weight"].T


def ffn(config, w, p, x):
    act = activation(config["hidden_act"])
    return (act(x @ w[f"{p}gate_proj.weight"].T) * (x @ w[f"{p}up_proj.weight"].T)) @ w[f"{p}down_proj.weight"].T


def choose(config, scores, bias):
    """Ids of the experts of one token."""
    keys = scores if bias is None else scores + bias
    groups = 1 if config["topk_method"] == "greedy" else config["n_group"]
    by_group = keys.reshape(groups, -1)
    if config["topk_method"] == "noaux_tc":
        group_scores = np.sort(by_group, axis=-1)[:, -2:].sum(axis=-1)
    else:
        group_scores = by_group.max(axis=-1)
    kept = np.argsort(-group_scores, kind="stable")[: groups if groups == 1 else config["topk_group"]]
    allowed = np.zeros(groups, bool)
    allowed[kept] = True
    keys = np.where(np.repeat(allowed, by_group.shape[1]), keys, -np.inf)
    return np.argsort(-keys, kind="stable")[: config["num_experts_per_tok"]]


def experts(config, w, p, x):
    router = x @ w[f"{p}gate.weight"].T
    scores = softmax(router) if config["scoring_func"] == "softmax" else 1 / (1 + np.exp(-router))
    bias = w.get(f"{p}gate.e_score_correction_bias")
    y = np.zeros_like(x)
    for t, row in enumerate(scores):
        chosen = choose(config, row, bias)
        weights = row[chosen] / (row[chosen].sum() if config["norm_topk_prob"] else 1.0)
        for e, weight in zip(chosen, weights * config["routed_scaling_factor"]):
            y[t] += weight * ffn(config, w, f"{p}experts.{e}.", x[t])
    if config["n_shared_experts"]:
        y += ffn(config, w, f"{p}shared_experts.", x)
    return y


def logits(config, tensors, ids):
    return decoder_logits(config, tensors, ids, attention, lambda layer: experts if is_moe(config, layer) else ffn)
