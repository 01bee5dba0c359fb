"""Quantised MoE layers in numpy and ml_dtypes: formats, quantisers and the accumulation of every recipe.

Written from the published formulas and from the contract in moe/recipe.h, not from the C++ code. Weights are random codes and random
scales, so that no quantiser of ours takes part in making them. `fault` replaces one rule by a wrong one; see FAULTS in
test_reference_recipes.py.
"""

import ml_dtypes
import numpy as np

import moe_reference as ref
from moe_reference import F32, F64, to_bf16

E4M3, E2M1 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn
FLT_MAX = np.finfo(F32).max
UNIT = 2.0**-24

# recipe: (weight format, input format, S, where scales of sums act)
RECIPES = {
    "fp8-tensor": ("fp8", "fp8", 256, "x_then_w"),
    "fp8-block": ("fp8-block", "fp8-group", 128, "segment"),
    "nvfp4-w4a16": ("nvfp4", "bf16", 256, "w"),
    "nvfp4-w4a4/cutedsl": ("nvfp4", "nvfp4", 256, "alpha"),
    "nvfp4-w4a4/cutlass": ("nvfp4", "nvfp4", 256, "alpha"),
    "mxfp4-w4a16": ("mxfp4", "bf16", 256, "none"),
    "mxfp4-w4a8": ("mxfp4", "mxfp8", 256, "none"),
}
# weight format: codes, scales, block
WEIGHTS = {
    "fp8": ("e4m3", "f32", None),
    "fp8-channel": ("e4m3", "f32", (1, None)),
    "fp8-block": ("e4m3", "f32", (128, 128)),
    "nvfp4": ("e2m1", "e4m3", (1, 16)),
    "mxfp4": ("e2m1", "e8m0", (1, 32)),
}


def e4m3(values):
    """Codes of a saturating cast; NaN stays NaN."""
    return np.clip(np.asarray(values, F32), -448, 448).astype(E4M3).view(np.uint8)


def from_e4m3(codes):
    return codes.view(E4M3).astype(F32)


def e2m1(values):
    return np.clip(np.asarray(values, F32), -6, 6).astype(E2M1).view(np.uint8)


def from_e2m1(codes):
    return codes.view(E2M1).astype(F32)


def from_e8m0(codes):
    return np.ldexp(np.ones(codes.shape, F32), codes.astype(np.int32) - 127)


def pack(codes):
    """Even column in the low nibble."""
    padded = np.concatenate([codes, np.zeros(codes.shape[:-1] + (codes.shape[-1] % 2,), np.uint8)], -1)
    return (padded[..., 0::2] | (padded[..., 1::2] << 4)).astype(np.uint8)


def unpack(packed, cols):
    return np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[:-1] + (-1,))[..., :cols]


def repeat(scales, block, cols):
    return np.repeat(scales, block, axis=-1)[..., :cols]


def amax_of_blocks(x, block):
    pad = -x.shape[-1] % block
    padded = np.abs(np.concatenate([x, np.zeros(x.shape[:-1] + (pad,), x.dtype)], -1))
    return padded.reshape(x.shape[:-1] + (-1, block)).max(-1)


# ---- What a GEMM reads -------------------------------------------------------------------------------------------------------------


def scale_up(amax, largest):
    """Code of the smallest power of two >= amax / largest, the quotient in float32."""
    fraction, exponent = np.frexp((amax / F32(largest)).astype(F32))
    code = exponent + np.where(fraction == 0.5, -1, 0) + 127
    return np.where(amax == 0, 0, np.clip(code, 0, 254)).astype(np.uint8)


def block_scales(fmt, amax, static):
    """Scale codes, or f32 scales, that the format gives a block with this amax."""
    if fmt == "nvfp4":
        return e4m3(F32(1) / F32(static) * amax.astype(F32) / F32(6))
    if fmt == "mxfp8":
        return scale_up(amax.astype(F32), 448)
    if fmt == "fp8-group":
        return (np.maximum(amax.astype(F32), F32(1e-10)) / F32(448)).astype(F32)
    return np.where(amax == 0, F32(1), np.maximum(amax.astype(F32) / F32(448), F32(2.0**-126))).astype(F32)


BLOCK = {"nvfp4": 16, "mxfp8": 32, "fp8-group": 128}


def multiplier(fmt, scales, static):
    """What values are multiplied (nvfp4, mxfp8) or divided (fp8) by, a block."""
    if fmt == "nvfp4":
        with np.errstate(divide="ignore"):
            return np.minimum(F32(1) / (from_e4m3(scales) * (F32(1) / (F32(1) / F32(static)))), FLT_MAX)
    return (F32(1) / from_e8m0(scales)).astype(F32) if fmt == "mxfp8" else scales


def codes_of(fmt, x, scales, static, bound=0.0):
    """Codes of x + bound under given scales, one a column."""
    x = np.asarray(x, F64) + bound
    x = np.clip(x, -FLT_MAX, FLT_MAX).astype(F32)
    if fmt == "bf16":
        return to_bf16(x)
    m = multiplier(fmt, scales, static)
    m = repeat(m, BLOCK.get(fmt, x.shape[-1]), x.shape[-1])
    with np.errstate(over="ignore"):
        if fmt == "nvfp4":
            return e2m1(x * m)
        return e4m3(x * m) if fmt == "mxfp8" else e4m3(x / m)


def value_of(fmt, codes):
    """The number that a code is, without scales."""
    return codes if fmt == "bf16" else from_e2m1(codes) if fmt == "nvfp4" else from_e4m3(codes)


def quantize(fmt, x, static):
    """{codes, block_scales, sum_scales} as the runner records them."""
    if fmt == "bf16":
        return {}
    scales = np.full((len(x), 1), static, F32)
    if fmt in BLOCK:
        scales = block_scales(fmt, amax_of_blocks(x, BLOCK[fmt]), static)
    elif not static:
        scales = block_scales(fmt, np.abs(x).max(-1, keepdims=True), 0)
    codes = codes_of(fmt, x, scales, static)
    out = {"codes": pack(codes) if fmt == "nvfp4" else codes}
    if fmt in ("nvfp4", "mxfp8"):
        out["block_scales"] = scales
    if fmt != "mxfp8":
        out["sum_scales"] = np.full((len(x), 1), static, F32) if fmt == "nvfp4" else scales
    return out


def recorded(stages, name, fmt, cols):
    """(operands, sum scales, codes a column, scales a block) of a recorded GEMM input."""
    values = stages[name][0]
    if fmt == "bf16":
        return values, None, values, None
    codes = stages[f"{name}.codes"][0]
    codes = unpack(codes, cols) if fmt == "nvfp4" else codes
    sums = stages[f"{name}.sum_scales"][0] if f"{name}.sum_scales" in stages else None
    blocks = stages[f"{name}.block_scales"][0] if f"{name}.block_scales" in stages else sums
    x = value_of(fmt, np.ascontiguousarray(codes))
    if fmt == "nvfp4":
        x = x * repeat(from_e4m3(blocks), 16, cols)
    if fmt == "mxfp8":
        x = x * repeat(from_e8m0(blocks), 32, cols)
    return x, sums, np.ascontiguousarray(codes), blocks


# ---- Weights -----------------------------------------------------------------------------------------------------------------------


def random_matrix(rng, fmt, experts, rows, cols, magnitude):
    """Random codes and scales whose values have about this magnitude; every expert has a tensor scale of its own."""
    kind, scale_type, block = WEIGHTS[fmt]
    raw = rng.integers(0, 16 if kind == "e2m1" else 256, (experts, rows, cols)).astype(np.uint8)
    if kind == "e4m3":
        raw = np.where((raw & 0x7F) >= 0x60, raw & 0xBF, raw)  # |value| < 32, no NaN
    m = {"kind": kind, "cols": cols, "codes": raw, "block": None, "tensor": None}
    typical = 2.5 if kind == "e2m1" else 6.0
    spread = (0.6 + 0.2 * np.arange(experts)) * magnitude / typical
    if fmt in ("fp8", "nvfp4"):
        m["tensor"] = (spread / (8.0 if fmt == "nvfp4" else 1.0)).astype(F32)
    if block is not None:
        br, bc = block[0], block[1] or cols
        shape = (experts, -(-rows // br), -(-cols // bc))
        size = spread[:, None, None] * 2.0 ** rng.integers(-1, 2, shape) * rng.uniform(0.7, 1.3, shape)
        if scale_type == "e4m3":
            m["scales"] = e4m3(8.0 * 2.0 ** rng.integers(-1, 2, shape) * rng.uniform(0.7, 1.3, shape))
        elif scale_type == "e8m0":
            m["scales"] = np.clip(np.round(np.log2(size)) + 127, 1, 254).astype(np.uint8)
        else:
            m["scales"] = size.astype(F32)
        m["block"], m["scale_type"] = (br, bc), scale_type
    return m


def scale_grid(m, e, fault=""):
    """[rows, cols] decoded block scales."""
    rows, cols = m["codes"].shape[1:]
    if m["block"] is None:
        return np.ones((1, 1), F32)
    raw = m["scales"][e]
    scales = from_e4m3(raw) if m["scale_type"] == "e4m3" else from_e8m0(raw) if m["scale_type"] == "e8m0" else raw
    if fault == "block_scale_off_by_one":
        scales = np.roll(scales, 1, axis=1 if scales.shape[1] > 1 else 0)
    br, bc = m["block"]
    return np.repeat(np.repeat(scales, br, 0)[:rows], bc, 1)[:, :cols]


def code_values(m, e):
    return from_e2m1(m["codes"][e]) if m["kind"] == "e2m1" else from_e4m3(m["codes"][e])


def random_quant_layer(seed, recipe, hidden, intermediate, experts, activation, bias, fmt=None, static=True):
    """A layer for ref.probe_layer and check_layer: {files, shape, options, matrices, biases, inputs}."""
    rng = np.random.default_rng(seed)
    fmt = fmt or RECIPES[recipe][0]
    kind, scale_type, block = WEIGHTS[fmt]
    names = ("up", "down") if activation == "relu2" else ("gate", "up", "down")
    sizes = {"gate": (intermediate, hidden, 3.0), "up": (intermediate, hidden, 5.0), "down": (hidden, intermediate, 1.0)}
    layer = {"matrices": {}, "biases": {}, "inputs": {}, "files": {}, "shape": (experts, intermediate, hidden)}
    for name in names:
        rows, cols, sigma = sizes[name]
        m = random_matrix(rng, fmt, experts, rows, cols, sigma / np.sqrt(cols))
        layer["matrices"][name] = m
        layer["files"][f"{name}.bin"] = pack(m["codes"]) if kind == "e2m1" else m["codes"]
        if m["block"]:
            layer["files"][f"{name}_scales.bin"] = m["scales"]
        if m["tensor"] is not None:
            layer["files"][f"{name}_tensor.f32"] = m["tensor"]
        if bias:
            layer["biases"][name] = (rng.standard_normal((experts, rows)) * 0.7).astype(ref.BF16)
            layer["files"][f"{name}_bias.bin"] = layer["biases"][name]
        if static and RECIPES[recipe][1] in ("nvfp4", "fp8"):
            unit = 448.0 * (6.0 if kind == "e2m1" else 1.0)
            amax = {"gate": 2.5, "up": 3.5, "down": 150.0}[name]
            layer["inputs"][name] = (amax / unit * rng.uniform(0.3, 1.0, experts)).astype(F32)
            layer["files"][f"{name}_input.f32"] = layer["inputs"][name]
    br, bc = block or (1, None)
    options = {"weight_dtype": kind, "scale_dtype": scale_type, "bias_dtype": "bf16", "block_rows": br}
    layer["options"] = options | {"block_cols": bc or hidden, "recipe": recipe}
    return layer


# ---- Sums --------------------------------------------------------------------------------------------------------------------------


def scaled_sums(recipe, m, e, x, x_scales, w_scale, fault=""):
    """fp32, bit by bit: chains of S products from zero, added in ascending order, scales where the contract puts them."""
    _, _, segment, place = RECIPES[recipe]
    segment = 128 if fault == "segment_order" and segment == 256 else 64 if fault == "segment_order" else segment
    codes, grid = code_values(m, e), scale_grid(m, e, fault)
    w = codes if place in ("segment", "x_then_w") else codes * grid
    total = np.zeros((len(x), len(w)), F32)
    for begin in range(0, x.shape[1], segment):
        chain = np.zeros_like(total)
        for c in range(begin, min(begin + segment, x.shape[1])):
            chain += x[:, c, None] * w[None, :, c]
        if place == "segment":
            chain = chain * (x_scales[:, begin // 128, None] * grid[None, :, begin])
        total += chain
    if fault == "scale_reciprocal" and w_scale is not None:
        w_scale = F32(1) / w_scale
    if place == "w":
        return total * w_scale
    if place == "alpha":
        return total * (x_scales * w_scale)
    if place == "x_then_w":
        per_row = grid[:, 0] if grid.shape[1] > 1 else F32(1)
        return total * x_scales * (per_row * (F32(1) if w_scale is None else w_scale))
    return total


def exact_sums(recipe, m, e, x, x_scales, w_scale):
    """float64: (value, sum of magnitudes)."""
    place = RECIPES[recipe][3]
    w = code_values(m, e).astype(F64) * scale_grid(m, e) * (1.0 if w_scale is None else F64(w_scale))
    if place == "segment":
        x = x.astype(F64) * repeat(x_scales, 128, x.shape[1])
    elif place in ("alpha", "x_then_w"):
        x = x.astype(F64) * x_scales
    return x.astype(F64) @ w.T, np.abs(x.astype(F64)) @ np.abs(w).T
