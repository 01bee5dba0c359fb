"""Independent numpy versions of routing, activations and a MoE layer, and access to the probe binary.

Written from the rules (formulas in float64, explicit rounding points), not from the C++ code. Faults can be switched on by name, so
that the tests can prove that each would be noticed.
"""

import functools
import json
import os
import pathlib
import subprocess
import tempfile

import ml_dtypes
import numpy as np

F32, F64 = np.float32, np.float64
FLT_MAX = np.finfo(F32).max
BF16 = ml_dtypes.bfloat16
ACTIVATION_DEFAULTS = {"alpha": 1.702, "beta": 1.0, "limit": 7.0, "linear_beta": 25.0}


def probe_path():
    build = os.environ.get("SLUICE_BUILD_DIR")
    assert build, "SLUICE_BUILD_DIR must name the build directory"
    path = pathlib.Path(build) / "tests" / "moe" / "moe_probe"
    assert path.is_file(), f"{path} is missing: build the target moe_probe"
    return str(path)


def run_probe(command, spec, inputs, outputs):
    """Runs `moe_probe command` on files; outputs is {file name: dtype}. Returns the arrays, flat, or None where missing."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        for file, array in inputs.items():
            (folder / file).write_bytes(np.ascontiguousarray(array).tobytes())
        done = subprocess.run([probe_path(), command, name], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ProbeError(done.returncode, done.stderr)
        return {f: np.frombuffer((folder / f).read_bytes(), t) if (folder / f).exists() else None for f, t in outputs.items()}


class ProbeError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


@functools.cache
def dot_bound(length, segment, exact_products):
    """(gamma, underflow): |error of a dot product| <= gamma * sum |a b| + underflow."""
    words = [probe_path(), "bound", str(length), str(segment), str(int(exact_products))]
    gamma, underflow = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return float(gamma), float(underflow)


def to_bf16(values):
    return np.asarray(values, F32).astype(BF16).astype(F32)


# ---- Activations, float64 ----------------------------------------------------------------------------------------------------------


def sigmoid(x):
    x = np.asarray(x, F64)
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def erf(x):
    import mpmath

    return np.vectorize(lambda v: float(mpmath.erf(v)), otypes=[F64])(x)


def activate(kind, gate, up, p, fault=""):
    """p has alpha, beta, limit, linear_beta. Faults: no_clamp, no_plus_one, alpha_one, swapped."""
    g, u = (up, gate) if fault == "swapped" else (gate, up)
    g, u = np.asarray(g, F64), np.asarray(u, F64)
    limit = np.inf if fault == "no_clamp" else p["limit"]
    alpha = 1.0 if fault == "alpha_one" else p["alpha"]
    plus = 0.0 if fault == "no_plus_one" else p["beta"]
    low, both = np.minimum(g, limit), np.clip(u, -limit, limit)
    if kind == "swiglu":
        return g * sigmoid(g) * u
    if kind == "geglu-erf":
        return g * (1 + erf(g / np.sqrt(2.0))) / 2 * u
    if kind == "geglu-tanh":
        return g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3))) / 2 * u
    if kind == "swiglu-oai":
        return low * sigmoid(alpha * low) * (both + plus)
    if kind == "swiglu-clamped":
        return low * sigmoid(low) * both
    if kind == "swiglu-step":
        return np.minimum(g * sigmoid(g), limit) * both
    if kind == "situ":
        linear = p["linear_beta"] * np.tanh(u / p["linear_beta"]) if p["linear_beta"] else u
        return p["beta"] * np.tanh(g / p["beta"]) * sigmoid(g) * linear
    assert kind == "relu2"
    return np.maximum(u, 0) ** 2


def activation_bound(kind, gate, up, p):
    """Error of the fp32 evaluation: at most 16 roundings of the value, of the argument of an exponential (whose error multiplies
    the value), and of terms that cancel."""
    g, u = np.abs(np.asarray(gate, F64)), np.abs(np.asarray(up, F64))
    value = np.abs(activate(kind, gate, up, p))
    size = value * (1 + np.maximum(p["alpha"], 1) * np.minimum(g, 100))
    if kind.startswith("geglu"):
        size = size + g * u * (1 + g)  # 1 + erf and 1 + tanh cancel for negative gates
    if kind == "swiglu-oai":
        low = np.minimum(np.asarray(gate, F64), p["limit"])
        size = size + np.abs(low) * sigmoid(p["alpha"] * low) * (np.minimum(u, p["limit"]) + abs(p["beta"]))
    return 16 * 2.0**-24 * size + 16 * 2.0**-126 * (1 + g + u)


# ---- Routing -----------------------------------------------------------------------------------------------------------------------

ROUTE_DEFAULTS = {
    "method": "score-topk",
    "scoring": "softmax",
    "groups": 1,
    "top_groups": 1,
    "fused_shared": 0,
    "renormalize": False,
    "epsilon": 0.0,
    "scaling": 1.0,
    "valid_tokens": -1,
}


def clean(row):
    """NaN counts as -inf, +inf as the largest finite float32; a row with nothing above -inf counts as zeros."""
    x = np.where(np.isnan(row), -np.inf, row).astype(F64)
    x = np.minimum(x, F64(FLT_MAX))
    return np.zeros_like(x) if np.all(np.isneginf(x)) else x


def scores_of(x, scoring):
    if scoring == "softmax":
        e = np.exp(x - x.max())
        return e / e.sum()
    if scoring == "sigmoid":
        return sigmoid(x)
    return np.sqrt(np.logaddexp(0, x))


def order_of(keys):
    """Descending, equal keys by ascending index."""
    return np.argsort(-keys, kind="stable")


def unclear(keys, count):
    """Whether different keys that matter to the first `count` are so close that float32 rounding may order them otherwise."""
    keys = np.sort(keys)[::-1]
    last = keys[count - 1]
    keys = keys[np.isfinite(keys) & (keys >= last - 1e-6 * max(1, abs(last)))]
    gaps = keys[:-1] - keys[1:]
    return bool(np.any((gaps > 0) & (gaps < 1e-6 * np.maximum(1, np.abs(keys[:-1])))))


def allowed_experts(spec, keys, fault):
    groups, kept = spec["groups"], spec["top_groups"]
    split = keys.reshape(groups, -1)
    if groups == kept or spec["method"] not in ("grouped-max", "grouped-top2"):
        return np.ones(keys.shape, bool), False
    use_max = spec["method"] == "grouped-max" or fault == "group_max"
    group_scores = split.max(1) if use_max else np.sort(split, 1)[:, -2:].sum(1)
    keep = np.zeros(groups, bool)
    keep[order_of(group_scores)[:kept]] = True
    return np.repeat(keep, split.shape[1]), unclear(group_scores, kept)


def choose(spec, x, scores, bias, fault):
    """Ids in order, and whether rounding makes the choice unclear."""
    k = spec["top_k"] - (1 if fault == "k_minus_1" else 0)
    by_score = bias is not None or spec["method"] == "grouped-top2"
    keys = scores + (0 if bias is None or fault == "no_bias" else bias.astype(F64)) if by_score else x
    allowed, vague = allowed_experts(spec, keys, fault)
    candidates = np.flatnonzero(allowed)
    ids = candidates[order_of(keys[candidates])[:k]]
    if fault == "ties_high":
        ids = candidates[::-1][order_of(keys[candidates][::-1])[:k]]
    return ids, vague or (by_score and unclear(keys[candidates], k))


def route_row(spec, row, bias, table_row, fault):
    x = clean(row)
    scoring = "sigmoid" if spec["method"] == "top1-sigmoid" else spec["scoring"]
    scores = scores_of(x, scoring)
    if spec["method"] == "hash":
        ids, vague = np.asarray(table_row), False
    else:
        ids, vague = choose(spec, x, scores, bias, fault)
    weights = scores_of(x[ids], "softmax") if spec["method"] == "topk-softmax" else scores[ids]
    if fault == "biased_weights":
        weights = weights + bias[ids]
    if spec["renormalize"] and fault != "no_renormalize":
        total = weights.sum() + spec["epsilon"]
        # Of scores as small as these float32 has lost the ratios, or the scores altogether: no weight is expected.
        faint = 0 < weights.sum() < 1e-30
        weights = weights / total if total > 0 else weights
        weights = np.full_like(weights, np.nan) if faint else weights
    weights = weights * spec["scaling"] ** (2 if fault == "scaled_twice" else 1)
    shared = spec["fused_shared"]
    ids = np.concatenate([ids, spec["experts"] + np.arange(shared)])
    shared_weight = 1.0 / spec["scaling"] if fault == "shared_scaled" else 1.0
    return ids, np.concatenate([weights, np.full(shared, shared_weight)]), vague


def route(spec, logits, bias=None, table=None, tokens=None, fault=""):
    """(ids [T, k], weights [T, k] float64 with NaN where none is expected, unclear [T])."""
    ids, weights, vague = [], [], []
    for t, row in enumerate(logits):
        if 0 <= spec["valid_tokens"] <= t:
            slots = spec["top_k"] + spec["fused_shared"]
            i, w, v = np.full(slots, -1), np.zeros(slots), False
        else:
            i, w, v = route_row(spec, row, bias, None if table is None else table[tokens[t]], fault)
        ids.append(i)
        weights.append(w)
        vague.append(v)
    return np.array(ids), np.array(weights), np.array(vague)


def probe_route(spec, logits, bias=None, table=None, tokens=None):
    inputs = {"logits.f32": np.asarray(logits, F32)}
    for name, array, dtype in (("bias.f32", bias, F32), ("hash_table.i32", table, np.int32), ("token_ids.i32", tokens, np.int32)):
        if array is not None:
            inputs[name] = np.asarray(array, dtype)
    out = run_probe("route", spec, inputs, {"ids.i32": np.int32, "weights.f32": F32})
    slots = spec["top_k"] + spec["fused_shared"]
    return out["ids.i32"].reshape(-1, slots), out["weights.f32"].reshape(-1, slots)


# ---- One layer ---------------------------------------------------------------------------------------------------------------------


def random_layer(seed, hidden, intermediate, experts, activation, bias, dtype=BF16):
    """Gate and up of different magnitude, a scale per expert, pre-activations beyond +-7."""
    rng = np.random.default_rng(seed)
    scale = (0.75 + 0.25 * (np.arange(experts) % 4))[:, None, None]

    def matrix(rows, cols, sigma):
        return (rng.standard_normal((experts, rows, cols), F32) * F32(sigma) * scale / np.sqrt(cols)).astype(dtype)

    layer = {"up": matrix(intermediate, hidden, 5.0), "down": matrix(hidden, intermediate, 1.0)}
    if activation != "relu2":
        layer["gate"] = matrix(intermediate, hidden, 3.0)
    if bias:
        for name, rows in (("gate", intermediate), ("up", intermediate), ("down", hidden)):
            if name in layer:
                layer[name + "_bias"] = (rng.standard_normal((experts, rows)) * 1.5).astype(dtype)
    return layer


def random_batch(seed, tokens, hidden, experts, k, dtype=BF16):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((tokens, hidden)) * rng.uniform(0.5, 1.5, (tokens, 1))).astype(dtype)
    ids = np.array([rng.permutation(experts)[:k] for _ in range(tokens)], np.int32).reshape(tokens, k)
    weights = rng.uniform(0.1, 1.0, (tokens, k)).astype(F32)
    return x, ids, (weights / weights.sum(1, keepdims=True)).astype(F32)


STAGES = ("gemm1_input", "gate", "up", "intermediate", "slot_rows")
PLAIN = {np.dtype(BF16): "bf16", np.dtype(np.float16): "f16", np.dtype(F32): "f32"}


def probe_layer(layer, batch, activation, **options):
    """Runs the reference runner. Returns (out, {stage: (rows, routes)}).

    `layer` has gate, up, down and their _bias as arrays [E, ...]; quantised ones (see quant_reference.py) bring files of their own
    and the formats through `options`.
    """
    x, ids, weights = batch
    files, shape = layer.get("files"), layer.get("shape")
    if files is None:
        shape = layer["up"].shape
        files = {f"{name}.bin": array for name, array in layer.items()}
        dtype = PLAIN[layer["up"].dtype]
        options = {"weight_dtype": dtype, "bias_dtype": dtype} | options
    held, intermediate, width = shape
    spec = {**ACTIVATION_DEFAULTS, "activation": activation, "hidden": width, "width": 0, "intermediate": intermediate}
    spec |= {"has_bias": "up_bias.bin" in files, "weight_on_input": False, "experts": held, "top_k": ids.shape[1]}
    spec |= {"scale_dtype": "f32", "block_rows": 1, "block_cols": 1, "upstream_gate_alpha": False, "recipe": "bf16", "threads": 1}
    spec |= {"first_slot": 0, "held": held, "valid_tokens": -1, "output": "sum_f32"} | options
    inputs = files | {"hidden.bin": x, "ids.i32": ids, "weights.f32": weights}
    types = {name: F32 for name in STAGES}
    for name in ("gemm1_input", "intermediate"):
        types |= {f"{name}.codes": np.uint8, f"{name}.block_scales": np.uint8, f"{name}.sum_scales": F32}
    outputs = {"out.f32": F32} | {f"stage_{n}.bin": t for n, t in types.items()} | {f"stage_{n}.i64": np.int64 for n in types}
    got = run_probe("layer", spec, inputs, outputs)
    stages = {}
    for name in types:
        if got[f"stage_{name}.bin"] is not None:
            routes = got[f"stage_{name}.i64"]
            stages[name] = (got[f"stage_{name}.bin"].reshape(len(routes), -1), routes)
    return got["out.f32"].reshape(-1, width), stages
