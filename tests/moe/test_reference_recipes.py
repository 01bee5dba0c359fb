"""The staged proof of every quantised recipe on the reference runner, against numpy and ml_dtypes: codes and scales, sums bit by bit, the
activation in float64, and the faults that each stage must notice."""

import numpy as np
import pytest

import layer_reference as lr
import moe_reference as ref
import quant_reference as q
from moe_reference import F32, to_bf16

ACTIVATIONS = ("swiglu", "geglu-erf", "geglu-tanh", "swiglu-oai", "swiglu-clamped", "swiglu-step", "situ", "relu2")
SHAPES = [(768, 40), (2048, 24), (2880, 24), (7168, 16), (96, 1440), (160, 232)]
MAX_TIES = 0.005
PARAMETERS = {"alpha": 1.702, "beta": 1.0, "limit": 7.0, "linear_beta": 25.0}


def shared(layer, names):
    """The largest static scale of all experts; 0 when there is none."""
    found = [layer["inputs"][n].max() for n in names if n in layer["inputs"]]
    return F32(max(found)) if found else F32(0)


def tensor_scale(layer, name, e, upstream=False, fault=""):
    if upstream and name == "up" and "gate" in layer["matrices"]:
        name = "gate"
    if fault == "alphas_swapped" and name in ("gate", "up"):
        name = {"gate": "up", "up": "gate"}[name]
    tensor = layer["matrices"][name]["tensor"]
    return None if tensor is None else tensor[e]


def gemm(recipe, layer, name, experts, x, x_scales, upstream=False, fault=""):
    """fp32 sums with bias as the contract has them, and a check of them against float64."""
    m = layer["matrices"][name]
    out = np.empty((len(x), m["codes"].shape[1]), F32)
    for e in np.unique(experts):
        rows = experts == e
        w_scale = tensor_scale(layer, name, e, upstream, fault)
        scales = None if x_scales is None else x_scales[rows]
        out[rows] = q.scaled_sums(recipe, m, e, x[rows], scales, w_scale, fault)
        if not fault:
            value, size = q.exact_sums(recipe, m, e, x[rows], scales, w_scale)
            gamma, underflow = ref.dot_bound(x.shape[1], q.RECIPES[recipe][2], True)
            assert np.all(np.abs(out[rows] - value) <= (gamma + 3 * q.UNIT) * size + underflow)
    if recipe.endswith("cutlass") and name != "down" and fault != "gemm1_rounding_dropped":
        out = to_bf16(out)
    if name in layer["biases"]:
        out = out + layer["biases"][name].astype(F32)[experts]
    return out


def check_intermediate(recipe, activation, gate, up, static, stages, parameters, fault):
    """(wrong scales, wrong codes, ties): from the runner's own gate and up, exact but for the fp32 activation."""
    fmt = q.RECIPES[recipe][1]
    value = ref.activate(activation, gate, up, parameters)
    bound = ref.activation_bound(activation, gate, up, parameters) + 4 * q.UNIT * np.abs(value)
    if recipe.endswith("cutlass") and fault != "activation_rounding_dropped":
        low, high = to_bf16(value - bound).astype(np.float64), to_bf16(value + bound).astype(np.float64)
        value, bound = (low + high) / 2, (high - low) / 2
    cols = value.shape[1]
    _, _, codes, scales = q.recorded(stages, "intermediate", fmt, cols)
    wrong_scales = 0.0
    if fmt in q.BLOCK or (fmt == "fp8" and not static):
        block = q.BLOCK.get(fmt, cols)
        size = np.abs(value)
        low = q.block_scales(fmt, q.amax_of_blocks(np.maximum(size - bound, 0), block), static)
        high = q.block_scales(fmt, q.amax_of_blocks(size + bound, block), static)
        wrong_scales = np.mean((scales < low) | (scales > high))
    elif fmt == "fp8":
        wrong_scales = np.mean(scales != static)
    got = q.value_of(fmt, codes)
    if fault == "truncated":
        low = high = exact = np.trunc(value * 4) / 4
    else:
        low, exact, high = (q.value_of(fmt, q.codes_of(fmt, value, scales, static, b)) for b in (-bound, 0, bound))
    inside = (low <= got) & (got <= high)
    ties = inside & (got != exact)
    if activation.startswith("geglu"):
        ties &= bound < 1e-4 * np.abs(value)  # where 1 + erf cancels the codes may differ more often
    return wrong_scales, np.mean(~inside), np.mean(ties)


def failing_stages(recipe, layer, batch, activation, got, upstream=False, fault="", parameters=PARAMETERS):
    out, stages = got
    hidden, ids, weights = batch
    fmt = q.RECIPES[recipe][1]
    p = {name: float(F32(v)) for name, v in parameters.items()}
    wrong = {}
    routes = stages["gemm1_input"][1]
    experts = lr.by_expert(ids, routes)
    static1, static2 = shared(layer, ("gate", "up")), shared(layer, ("down",))
    if fault == "input_scale_reciprocal":
        static1 = F32(1) / static1

    rows = hidden[routes // ids.shape[1]].astype(F32)
    expected = q.quantize(fmt, rows, static1)
    wrong["gemm1_input"] = np.mean(stages["gemm1_input"][0] != rows) if fmt == "bf16" else 0.0
    for part, array in expected.items():
        wrong[f"gemm1_input.{part}"] = np.mean(stages[f"gemm1_input.{part}"][0] != array)

    x, x_scales, _, _ = q.recorded(stages, "gemm1_input", fmt, rows.shape[1])
    for name in ("gate", "up"):
        if name in layer["matrices"]:
            sums = gemm(recipe, layer, name, experts, x, x_scales, upstream, fault)
            wrong[name] = np.mean(stages[name][0].view(np.uint32) != sums.view(np.uint32))

    up = stages["up"][0]
    gate = stages["gate"][0] if "gate" in stages else np.zeros_like(up)
    scales, codes, ties = check_intermediate(recipe, activation, gate, up, static2, stages, p, fault)
    wrong["intermediate.scales"], wrong["intermediate"] = scales, codes
    assert ties <= MAX_TIES

    inner, inner_scales, _, _ = q.recorded(stages, "intermediate", fmt, up.shape[1])
    sums = to_bf16(gemm(recipe, layer, "down", experts, inner, inner_scales, fault=fault))
    wrong["slot_rows"] = np.mean(stages["slot_rows"][0] != sums)
    slot = stages["slot_rows"][0]
    summed = lr.weighted_sum(batch, dict(zip(routes.tolist(), slot)), out.shape[1])
    wrong["sum"] = np.mean(out.view(np.uint32) != summed.view(np.uint32))
    return {stage: share for stage, share in wrong.items() if share > 0}


def run(recipe, shape, activation, bias, seed=1, **options):
    experts = 3
    made = {key: options.pop(key) for key in ("fmt", "static") if key in options}
    layer = q.random_quant_layer(seed, recipe, *shape, experts, activation, bias, **made)
    batch = ref.random_batch(seed + 1, 3, shape[0], experts, 2)
    return layer, batch, ref.probe_layer(layer, batch, activation, **layer["options"], **options)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("recipe", q.RECIPES)
def test_every_shape(recipe, shape):
    if recipe == "fp8-block":
        shape = (shape[0], max(shape[1], 136))
    layer, batch, got = run(recipe, shape, "swiglu", bias=True)
    assert failing_stages(recipe, layer, batch, "swiglu", got) == {}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("recipe", q.RECIPES)
def test_every_activation(recipe, activation):
    parameters = {"alpha": 1.3, "beta": 2.0, "limit": 5.0, "linear_beta": 6.0}
    for bias in (False, True):
        layer, batch, got = run(recipe, (256, 64), activation, bias, seed=3, **parameters)
        assert failing_stages(recipe, layer, batch, activation, got, parameters=parameters) == {}


@pytest.mark.parametrize("fmt, static", [("fp8", False), ("fp8-channel", True), ("fp8-channel", False)])
def test_fp8_scales_of_channels_and_tokens(fmt, static):
    # Scales of whole rows: one width of both matrices, since the probe has one block size.
    layer, batch, got = run("fp8-tensor", (288, 288), "swiglu", True, fmt=fmt, static=static)
    assert failing_stages("fp8-tensor", layer, batch, "swiglu", got) == {}


def test_the_gates_alpha_for_both():
    for recipe in ("nvfp4-w4a4/cutedsl", "nvfp4-w4a4/cutlass"):
        layer, batch, got = run(recipe, (256, 64), "swiglu", False, upstream_gate_alpha=True)
        assert failing_stages(recipe, layer, batch, "swiglu", got, upstream=True) == {}
        assert set(failing_stages(recipe, layer, batch, "swiglu", got)) == {"up"}


# fault: stages that must notice it, by recipe
FAULTS = {
    "alphas_swapped": {r: {"gate", "up"} for r in ("fp8-tensor", "nvfp4-w4a16", "nvfp4-w4a4/cutedsl", "nvfp4-w4a4/cutlass")},
    "block_scale_off_by_one": {r: {"gate", "up", "slot_rows"} for r in q.RECIPES if r != "fp8-tensor"},
    "scale_reciprocal": {r: {"gate", "up", "slot_rows"} for r in ("fp8-tensor", "nvfp4-w4a16", "nvfp4-w4a4/cutedsl")},
    "input_scale_reciprocal": {r: {"gemm1_input.codes", "gemm1_input.sum_scales"} for r in ("fp8-tensor", "nvfp4-w4a4/cutedsl")},
    "truncated": {r: {"intermediate"} for r in q.RECIPES},
    "activation_rounding_dropped": {"nvfp4-w4a4/cutlass": {"intermediate"}},
    "gemm1_rounding_dropped": {"nvfp4-w4a4/cutlass": {"gate", "up"}},
    # Sums of few-bit products under similar scales are mostly exact in fp32, so that their order cannot show.
    "segment_order": {r: {"gate", "up"} for r in q.RECIPES if "w4a4" not in r and "w4a8" not in r},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault):
    for recipe, expected in FAULTS[fault].items():
        layer, batch, got = run(recipe, (512, 160), "swiglu", True, seed=7)
        assert failing_stages(recipe, layer, batch, "swiglu", got) == {}
        assert expected <= set(failing_stages(recipe, layer, batch, "swiglu", got, fault=fault)), recipe
