"""Stage-by-stage check of a runner's bf16 or f32 layer against float64, with every rounding point of the recipe.

Each stage is computed from the runner's own output of the stage before, so that its bound is that of one step. `fault` replaces one
step by a wrong one; the check must then fail at that stage.
"""

import numpy as np

import moe_reference as ref
from moe_reference import F32, F64, to_bf16

SEGMENT = 256  # S of architecture 4.5 for bf16 and f32, as the recipe table promises it
UNIT = 2.0**-24


def by_expert(ids, routes):
    return ids.ravel()[routes]


def project(layer, name, experts, x, fault=""):
    """(float64 x W^T + bias, sum |x w|) for rows x of the given experts."""
    if fault == "gate_up_swapped" and name in ("gate", "up"):
        name = "up" if name == "gate" else "gate"
    if fault == "next_expert":
        experts = (experts + 1) % len(layer[name])
    value = np.empty((len(x), layer[name].shape[1]))
    size = np.empty_like(value)
    for e in np.unique(experts):
        rows = experts == e
        w = layer[name][e].astype(F64)
        value[rows] = x[rows].astype(F64) @ w.T
        size[rows] = np.abs(x[rows].astype(F64)) @ np.abs(w).T
        if name + "_bias" in layer and fault != "no_bias":
            value[rows] += layer[name + "_bias"][e].astype(F64)
    return value, size


def project_bound(value, size, length, exact_products):
    gamma, underflow = ref.dot_bound(length, SEGMENT, exact_products)
    return gamma * size + underflow + UNIT * np.abs(value) * (1 + gamma)  # the last for adding the bias


def may_be(got, value, bound, recipe):
    """Whether got is the rounding of something within bound of value."""
    if recipe == "f32":
        return np.abs(got - value) <= bound + UNIT * np.abs(value)
    return (to_bf16(value - bound) <= got) & (got <= to_bf16(value + bound))


def chain_sums(x, w, segment):
    """The accumulation of the recipes, bit by bit, for bf16 operands (their products are exact in float32). x [R, K], w [N, K]."""
    x, w = x.astype(F32), w.astype(F32)
    total = np.zeros((len(x), len(w)), F32)
    for begin in range(0, x.shape[1], segment):
        chain = np.zeros_like(total)
        for c in range(begin, min(begin + segment, x.shape[1])):
            chain += x[:, c, None] * w[None, :, c]
        total += chain
    return total


def weighted_sum(batch, slot_rows, width, fault=""):
    """fp32, from zero, in slot order; slot_rows is {route: row}."""
    _, ids, weights = batch
    tokens, k = ids.shape
    order = range(k - 1, -1, -1) if fault == "slots_reversed" else range(k - 1 if fault == "k_minus_1" else k)
    out = np.zeros((tokens, width), F32)
    for t in range(tokens):
        for s in order:
            if t * k + s not in slot_rows:
                continue
            row = slot_rows[t * k + s] * weights[t, s]
            if fault == "weight_before_rounding":
                row = to_bf16(row)
            out[t] += row if fault != "scaled_twice" else row * F32(2.5)
            if fault == "sum_in_bf16":
                out[t] = to_bf16(out[t])
    return out


def failing_stages(layer, batch, activation, got, recipe="bf16", fault="", parameters=None, weight_on_input=False):
    """{stage: share of wrong values}, only of stages that have any. got = (out, stages) of probe_layer with output sum_f32."""
    out, stages = got
    hidden, ids, weights = batch
    p = {name: float(F32(v)) for name, v in (parameters or ref.ACTIVATION_DEFAULTS).items()}
    x, routes = stages["gemm1_input"]
    experts = by_expert(ids, routes)
    wrong = {}
    expected_x = hidden[routes // ids.shape[1]].astype(F32)
    if weight_on_input:
        scaled = expected_x * weights.ravel()[routes][:, None]
        expected_x = to_bf16(scaled) if recipe == "bf16" else scaled
        weights = np.ones_like(weights)
    wrong["gemm1_input"] = np.mean(x != expected_x)

    exact = recipe == "bf16"
    for name in ("gate", "up"):
        if name in layer:
            value, size = project(layer, name, experts, x, fault)
            bound = project_bound(value, size, x.shape[1], exact)
            wrong[name] = np.mean(np.abs(stages[name][0] - value) > bound)

    up = stages["up"][0]
    gate = stages["gate"][0] if "gate" in layer else np.zeros_like(up)
    if fault == "gate_up_rounded":
        gate, up = to_bf16(gate), to_bf16(up)
    value, bound = ref.activate(activation, gate, up, p, fault), ref.activation_bound(activation, gate, up, p)
    inner = stages["intermediate"][0]
    wrong["intermediate"] = np.mean(~may_be(inner, value, bound, recipe))

    feed = value if fault == "intermediate_not_rounded" else inner
    value, size = project(layer, "down", experts, feed, fault)
    slot = stages["slot_rows"][0]
    if fault == "slot_not_rounded":
        wrong["slot_rows"] = np.mean(np.abs(slot - value) > project_bound(value, size, inner.shape[1], exact))
    else:
        wrong["slot_rows"] = np.mean(~may_be(slot, value, project_bound(value, size, inner.shape[1], exact), recipe))

    summed = weighted_sum((hidden, ids, weights), dict(zip(routes.tolist(), slot)), out.shape[1], fault)
    wrong["sum"] = np.mean(out.view(np.uint32) != summed.view(np.uint32))
    return {stage: share for stage, share in wrong.items() if share > 0}


def exact_layer(layer, batch, activation, parameters=None, weight_on_input=False):
    """The whole layer in float64 without any rounding: [T, W]."""
    hidden, ids, weights = batch
    p = {name: float(F32(v)) for name, v in (parameters or ref.ACTIVATION_DEFAULTS).items()}
    routes = np.flatnonzero((ids.ravel() >= 0) & (ids.ravel() < len(layer["up"])))
    experts = by_expert(ids, routes)
    weight = weights.ravel()[routes][:, None].astype(F64)
    x = hidden[routes // ids.shape[1]].astype(F64)
    x = x * weight if weight_on_input else x
    up = project(layer, "up", experts, x)[0]
    gate = project(layer, "gate", experts, x)[0] if "gate" in layer else np.zeros_like(up)
    rows = project(layer, "down", experts, ref.activate(activation, gate, up, p))[0]
    out = np.zeros(hidden.shape)
    np.add.at(out, routes // ids.shape[1], rows if weight_on_input else rows * weight)
    return out


def relative_l2(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)
