"""Qwen3-MoE in numpy, float64, from the published description of the architecture; slow and obvious.

Writes random checkpoints with every option that the engine reads, and computes what they should answer.
"""

import json
import math

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file


def default_config(**changes):
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
        "hidden_size": 96, "moe_intermediate_size": 64, "intermediate_size": 112, "num_hidden_layers": 3,
        "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": True, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1024, "max_position_embeddings": 256,
        "attention_bias": False, "mlp_only_layers": [], "rope_theta": 10000.0, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
    }
    config.update(changes)
    return config


def is_moe(config, layer):
    return layer not in config["mlp_only_layers"] and (layer + 1) % config.get("decoder_sparse_step", 1) == 0


def random_weights(config, seed):
    """Tensors by checkpoint name, as float32 values that bf16 holds exactly."""
    rng = np.random.default_rng(seed)
    tensors = {}

    def add(name, *shape, mean=0.0, spread=1.0):
        values = mean + spread * rng.standard_normal(shape)
        tensors[name] = values.astype(ml_dtypes.bfloat16).astype(np.float32)

    def matrix(name, rows, cols, gain=1.0):
        add(name, rows, cols, spread=gain / math.sqrt(cols))

    h, d = config["hidden_size"], config["head_dim"]
    matrix("model.embed_tokens.weight", config["vocab_size"], h, 3.0)
    if not config["tie_word_embeddings"]:
        matrix("lm_head.weight", config["vocab_size"], h, 3.0)
    add("model.norm.weight", h, mean=1.0, spread=0.2)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            add(f"{p}{norm}.weight", h, mean=1.0, spread=0.2)
        for name, rows, cols in (("q", config["num_attention_heads"] * d, h), ("k", config["num_key_value_heads"] * d, h),
                                 ("v", config["num_key_value_heads"] * d, h), ("o", h, config["num_attention_heads"] * d)):
            matrix(f"{p}self_attn.{name}_proj.weight", rows, cols)
            if config["attention_bias"]:
                add(f"{p}self_attn.{name}_proj.bias", rows, spread=0.3)
        add(f"{p}self_attn.q_norm.weight", d, mean=1.5, spread=0.3)
        add(f"{p}self_attn.k_norm.weight", d, mean=1.5, spread=0.3)
        prefixes = [f"{p}mlp."]
        i = config["intermediate_size"]
        if is_moe(config, layer):
            matrix(f"{p}mlp.gate.weight", config["num_experts"], h, 2.0)
            prefixes = [f"{p}mlp.experts.{e}." for e in range(config["num_experts"])]
            i = config["moe_intermediate_size"]
        for prefix in prefixes:
            matrix(f"{prefix}gate_proj.weight", i, h, 2.0)
            matrix(f"{prefix}up_proj.weight", i, h, 0.5)
            matrix(f"{prefix}down_proj.weight", h, i, 1.5)
    return tensors


def stack_experts(config, tensors):
    """The same weights with one 3-D tensor a projection and layer, gate above up."""
    stacked = dict(tensors)
    for layer in range(config["num_hidden_layers"]):
        if not is_moe(config, layer):
            continue
        p = f"model.layers.{layer}.mlp.experts."

        def take(name, p=p):
            return [stacked.pop(f"{p}{e}.{name}_proj.weight") for e in range(config["num_experts"])]

        gate, up, down = take("gate"), take("up"), take("down")
        stacked[f"{p}gate_up_proj"] = np.stack([np.concatenate(pair) for pair in zip(gate, up)])
        stacked[f"{p}down_proj"] = np.stack(down)
    return stacked


def write_checkpoint(folder, config, tensors):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: t.astype(ml_dtypes.bfloat16) for name, t in tensors.items()}, folder / "model.safetensors")


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def activation(name):
    erf = np.vectorize(math.erf)
    return {
        "silu": lambda x: x / (1 + np.exp(-x)),
        "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
        "gelu_pytorch_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    }[name]


def rope_frequencies(config):
    """(inverse frequencies, factor of cos and sin) of the rope types, by their published formulas."""
    d = config["head_dim"]
    section = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = section.get("rope_theta", config.get("rope_theta"))
    inv = theta ** (-np.arange(0, d, 2) / d)
    kind = section.get("rope_type", section.get("type", "default"))
    if kind == "default":
        return inv, 1.0
    factor = section["factor"]
    if kind == "linear":
        return inv / factor, 1.0
    original = section["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = section["low_freq_factor"], section["high_freq_factor"]
        keep = np.clip((original * inv / (2 * math.pi) - low) / (high - low), 0, 1)
        return inv * keep + inv / factor * (1 - keep), 1.0
    assert kind == "yarn"

    def pair(turns):
        return d * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair(section.get("beta_fast", 32))), 0)
    high = min(math.ceil(pair(section.get("beta_slow", 1))), d - 1)
    stretch = np.clip((np.arange(d // 2) - low) / (high - low), 0, 1)
    return inv * (1 - stretch) + inv / factor * stretch, 0.1 * math.log(factor) + 1


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attention(config, w, p, x):
    n, d = len(x), config["head_dim"]
    heads, kv_heads, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]

    def project(name, count):
        y = x @ w[f"{p}{name}_proj.weight"].T
        if config["attention_bias"]:
            y = y + w[f"{p}{name}_proj.bias"]
        return y.reshape(n, count, d)

    inv, factor = rope_frequencies(config)
    angles = np.arange(n)[:, None] * inv
    cos, sin = np.cos(angles)[:, None] * factor, np.sin(angles)[:, None] * factor
    q = rotate(rms_norm(project("q", heads), w[f"{p}q_norm.weight"], eps), cos, sin)
    k = rotate(rms_norm(project("k", kv_heads), w[f"{p}k_norm.weight"], eps), cos, sin)
    v = project("v", kv_heads)
    out = np.empty((n, heads, d))
    causal = np.tril(np.ones((n, n), bool))
    for head in range(heads):
        kv = head // (heads // kv_heads)
        scores = np.where(causal, q[:, head] @ k[:, kv].T / math.sqrt(d), -np.inf)
        out[:, head] = softmax(scores) @ v[:, kv]
    y = out.reshape(n, heads * d) @ w[f"{p}o_proj.weight"].T
    return y + w[f"{p}o_proj.bias"] if config["attention_bias"] else y


def ffn(config, w, p, x):
    act = activation(config["hidden_act"])
    return (act(x @ w[f"{p}gate_proj.weight"].T) * (x @ w[f"{p}up_proj.weight"].T)) @ w[f"{p}down_proj.weight"].T


def experts(config, w, p, x):
    probabilities = softmax(x @ w[f"{p}gate.weight"].T)
    y = np.zeros_like(x)
    for t, row in enumerate(probabilities):
        chosen = np.argsort(-row, kind="stable")[: config["num_experts_per_tok"]]
        weights = row[chosen] / (row[chosen].sum() if config["norm_topk_prob"] else 1.0)
        for e, weight in zip(chosen, weights):
            y[t] += weight * ffn(config, w, f"{p}experts.{e}.", x[t])
    return y


def decoder_logits(config, tensors, ids, attention, block_of):
    """[n, vocab] float64 of a decoder whose layer i has attention(config, w, prefix, x) and block_of(i)(same)."""
    w = {name: t.astype(np.float64) for name, t in tensors.items()}
    eps = config["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = x + attention(config, w, f"{p}self_attn.", rms_norm(x, w[f"{p}input_layernorm.weight"], eps))
        x = x + block_of(layer)(config, w, f"{p}mlp.", rms_norm(x, w[f"{p}post_attention_layernorm.weight"], eps))
    head = "model.embed_tokens.weight" if config.get("tie_word_embeddings") else "lm_head.weight"
    return rms_norm(x, w["model.norm.weight"], eps) @ w[head].T


def logits(config, tensors, ids):
    return decoder_logits(config, tensors, ids, attention, lambda layer: experts if is_moe(config, layer) else ffn)


def write_reference(folder, config, tensors, prompts, new_tokens, model=logits):
    """reference.safetensors as `sluice verify` reads it; `model` computes logits from (config, tensors, ids)."""
    out = {}
    for i, prompt in enumerate(prompts):
        ids = list(prompt)
        rows = model(config, tensors, ids)
        logprobs = rows - rows.max(axis=-1, keepdims=True)
        logprobs = logprobs - np.log(np.exp(logprobs).sum(axis=-1, keepdims=True))
        out[f"prompt{i}.input_ids"] = np.array(ids, np.int32)
        out[f"prompt{i}.last_logits"] = rows[-1].astype(np.float32)
        out[f"prompt{i}.logprob_of_next"] = np.array(
            [logprobs[t, ids[t + 1]] for t in range(len(ids) - 1)], np.float32)
        greedy = []
        for _ in range(new_tokens):
            greedy.append(int(np.argmax(model(config, tensors, ids + greedy)[-1])))
        out[f"prompt{i}.greedy"] = np.array(greedy, np.int32)
    save_file(out, folder / "reference.safetensors")
