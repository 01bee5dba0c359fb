"""The reference runner against numpy: accumulation bit by bit, every stage within its bound, the whole layer against float64, and
the faults that each must notice."""

import ml_dtypes
import numpy as np
import pytest

import layer_reference as lr
import moe_reference as ref

ACTIVATIONS = ("swiglu", "geglu-erf", "geglu-tanh", "swiglu-oai", "swiglu-clamped", "swiglu-step", "situ", "relu2")
SHAPES = [(768, 300), (2048, 160), (2880, 100), (100, 2880)]
DTYPES = {"bf16": ml_dtypes.bfloat16, "f32": np.float32}
# Two roundings to bf16 in a row, of the intermediate and of the slot row; each is linear in what follows.
WHOLE_LAYER_BOUND = {"bf16": (1 + 2.0**-8) ** 2 - 1, "f32": 2e-5}


def make(seed, shape, activation, bias, recipe="bf16", tokens=5, experts=4, k=3):
    layer = ref.random_layer(seed, *shape, experts, activation, bias, DTYPES[recipe])
    return layer, ref.random_batch(seed + 1, tokens, shape[0], experts, k, DTYPES[recipe])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("recipe", ("bf16", "f32"))
def test_stages_and_whole_layer(shape, recipe):
    layer, batch = make(1, shape, "swiglu", bias=False, recipe=recipe)
    got = ref.probe_layer(layer, batch, "swiglu", recipe=recipe)
    assert lr.failing_stages(layer, batch, "swiglu", got, recipe) == {}
    assert lr.relative_l2(got[0], lr.exact_layer(layer, batch, "swiglu")) < WHOLE_LAYER_BOUND[recipe]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("recipe", ("bf16", "f32"))
def test_every_activation_with_bias(activation, recipe):
    layer, batch = make(3, (768, 96), activation, bias=True, recipe=recipe)
    parameters = {"alpha": 1.3, "beta": 2.0, "limit": 5.0, "linear_beta": 6.0}
    got = ref.probe_layer(layer, batch, activation, recipe=recipe, **parameters)
    assert lr.failing_stages(layer, batch, activation, got, recipe, parameters=parameters) == {}
    exact = lr.exact_layer(layer, batch, activation, parameters)
    assert lr.relative_l2(got[0], exact) < WHOLE_LAYER_BOUND[recipe]


def test_accumulation_bit_by_bit():
    """One chain of 256 products after the other: the same bits as numpy, and other bits with any other order."""
    layer, batch = make(5, (2880, 48), "swiglu", bias=False, tokens=3)
    _, stages = ref.probe_layer(layer, batch, "swiglu")
    x, routes = stages["gemm1_input"]
    experts = lr.by_expert(batch[1], routes)
    for i, e in enumerate(experts):
        gate = stages["gate"][0][i]
        chains = {s: lr.chain_sums(x[i : i + 1], layer["gate"][e], s)[0] for s in (128, lr.SEGMENT, 512, 2880)}
        assert np.array_equal(gate.view(np.uint32), chains[lr.SEGMENT].view(np.uint32))
        for other in (128, 512, 2880):
            assert np.mean(gate != chains[other]) > 0.5
        backwards = lr.chain_sums(x[i : i + 1, ::-1], layer["gate"][e][:, ::-1], lr.SEGMENT)[0]
        assert np.mean(gate != backwards) > 0.5


# fault: the stage that must notice it, and the share of values that must be wrong there
FAULTS = {
    "gate_up_swapped": ("gate", 0.9),
    "next_expert": ("up", 0.9),
    "no_bias": ("gate", 0.9),
    "no_clamp": ("intermediate", 0.05),
    "no_plus_one": ("intermediate", 0.5),
    "alpha_one": ("intermediate", 0.5),
    "swapped": ("intermediate", 0.9),
    "gate_up_rounded": ("intermediate", 0.2),
    "intermediate_not_rounded": ("slot_rows", 0.1),
    "slot_not_rounded": ("slot_rows", 0.5),
    "slots_reversed": ("sum", 0.1),
    "k_minus_1": ("sum", 0.9),
    "scaled_twice": ("sum", 0.9),
    "weight_before_rounding": ("sum", 0.9),
    "sum_in_bf16": ("sum", 0.9),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_layer_is_noticed(fault):
    layer, batch = make(7, (768, 160), "swiglu-oai", bias=True)
    got = ref.probe_layer(layer, batch, "swiglu-oai")
    assert lr.failing_stages(layer, batch, "swiglu-oai", got) == {}
    stage, share = FAULTS[fault]
    assert lr.failing_stages(layer, batch, "swiglu-oai", got, fault=fault).get(stage, 0) > share


@pytest.mark.parametrize("recipe", ("bf16", "f32"))
def test_weight_on_input(recipe):
    layer, batch = make(9, (768, 96), "swiglu", bias=False, recipe=recipe, k=1)
    batch = (batch[0], batch[1], np.random.default_rng(1).uniform(0.1, 0.9, batch[2].shape).astype(np.float32))
    got = ref.probe_layer(layer, batch, "swiglu", recipe=recipe, weight_on_input=True)
    assert lr.failing_stages(layer, batch, "swiglu", got, recipe, weight_on_input=True) == {}
    # One rounding more: that of the weighted input.
    bound = (1 + WHOLE_LAYER_BOUND[recipe]) * (1 + 2.0**-8) - 1
    assert lr.relative_l2(got[0], lr.exact_layer(layer, batch, "swiglu", weight_on_input=True)) < bound
    assert lr.relative_l2(got[0], lr.exact_layer(layer, batch, "swiglu")) > 0.05


@pytest.mark.parametrize("dtype", (np.float16, np.float32))
def test_weights_of_other_types_are_rounded_to_bf16_once(dtype):
    layer, batch = make(11, (768, 96), "swiglu", bias=False)
    wide = {name: (w.astype(np.float32) * np.float32(1.001)).astype(dtype) for name, w in layer.items()}
    rounded = {name: w.astype(np.float32).astype(ml_dtypes.bfloat16) for name, w in wide.items()}
    got, expected = (ref.probe_layer(w, batch, "swiglu")[0] for w in (wide, rounded))
    assert np.array_equal(got, expected)
    assert any(np.any(wide[n].astype(np.float32) != rounded[n].astype(np.float32)) for n in wide)


def test_outputs_skips_slots_and_padding():
    """Foreign ids, a slot range that starts at 3, padding rows; sum in bf16 and routes are the same rows."""
    layer, batch = make(13, (256, 64), "swiglu", bias=True, tokens=6)
    hidden, ids, weights = batch
    ids = ids.copy()
    ids[0, 1], ids[1, :], ids[2, 2] = -1, -1, 99
    full = (hidden, np.where((ids >= 0) & (ids < 4), ids + 3, ids).astype(np.int32), weights)
    options = {"first_slot": 3, "valid_tokens": 5, "experts": 100}
    out = ref.probe_layer(layer, full, "swiglu", **options)[0]
    routes = ref.probe_layer(layer, full, "swiglu", output="routes", **options)[0]
    in_bf16 = ref.probe_layer(layer, full, "swiglu", output="sum_bf16", threads=3, **options)[0]

    exact = lr.exact_layer(layer, (hidden, np.where(ids == 99, -1, ids), weights), "swiglu")
    exact[5] = 0
    assert lr.relative_l2(out, exact) < WHOLE_LAYER_BOUND["bf16"]
    assert np.all(out[1] == 0) and np.all(out[5] == 0)
    kept = {r: row for r, row in enumerate(routes) if np.any(row)}
    assert set(kept) == {r for r in range(15) if 0 <= ids.ravel()[r] < 4}
    summed = lr.weighted_sum((hidden, ids, weights), kept, 256)
    assert np.array_equal(out, summed)
    assert np.array_equal(in_bf16, ref.to_bf16(summed))
