"""Every routing method against an independent numpy router: random rows, rows full of ties, NaN and infinities; any E and k.

Where float32 rounding may legitimately order two experts otherwise (keys closer than 1e-6) a row is compared by its properties
only; such rows are few, and the tests say so.
"""

import numpy as np
import pytest

import moe_reference as ref

EXPERTS = (1, 5, 36, 40, 160, 384, 512, 1200)
FLOAT_ERROR = 2.0**-24


def spec_of(method, experts, top_k, **options):
    return {**ref.ROUTE_DEFAULTS, "method": method, "experts": experts, "top_k": top_k, **options}


def hard_rows(seed, experts, count=40):
    """Normal rows, rows on a coarse grid (ties), rows with NaN and infinities, rows without any number, huge spreads."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, experts)) * 2
    rows[10:20] = np.round(rows[10:20] * 2) / 2
    rows[20:26][rng.random((6, experts)) < 0.3] = np.nan
    rows[22:28][rng.random((6, experts)) < 0.3] = -np.inf
    rows[26:30][rng.random((4, experts)) < 0.1] = np.inf
    rows[30], rows[31], rows[32] = np.nan, -np.inf, np.inf
    rows[33], rows[34] = 0.0, -0.0
    rows[35:38] *= 60
    rows[38] = np.where(np.arange(experts) % 2 == 0, np.nan, -np.inf)
    return rows.astype(np.float32)


def ks_of(experts):
    return sorted({1, min(2, experts), min(8, experts), (experts + 1) // 2, experts})


def weight_bound(spec, expected):
    """Scores: exp of an argument of size up to 120 and a sum over E; then sum of k, division, scaling."""
    roundings = 2 * spec["experts"] + spec["top_k"] + 256
    return roundings * FLOAT_ERROR * np.abs(expected) + 2.0**-126 * (1 + abs(spec["scaling"]))


def mistakes(spec, got, expected):
    """Rows whose ids or weights differ, and the share of rows that are too close to tell."""
    (ids, weights), (want_ids, want_weights, vague) = got, expected
    if ids.shape != want_ids.shape:
        return np.ones(len(ids), bool), 0.0
    wrong_id = (ids != want_ids).any(1) & ~vague
    same = (ids == want_ids).all(1)
    wrong_weight = same & (np.abs(weights - want_weights) > weight_bound(spec, want_weights)).any(1)
    return wrong_id | wrong_weight, vague.mean()


def check_promises(spec, ids, weights):
    """What holds for every row, however it was routed."""
    valid = ids[:, 0] >= 0
    assert np.all(np.isfinite(weights)) and np.all(weights >= 0)
    assert np.all(ids[valid] >= 0) and np.all(ids[valid] < spec["experts"] + spec["fused_shared"])
    assert all(len(set(row)) == len(row) for row in ids[valid])
    assert np.all(ids[valid][:, spec["top_k"] :] == spec["experts"] + np.arange(spec["fused_shared"]))
    assert np.all(weights[valid][:, spec["top_k"] :] == 1.0)


def compare(spec, rows, **inputs):
    got = ref.probe_route(spec, rows, **inputs)
    check_promises(spec, *got)
    wrong, vague = mistakes(spec, got, ref.route(spec, rows, **inputs))
    assert not wrong.any(), f"rows {np.flatnonzero(wrong)} of {spec}"
    return vague


SCORINGS = ("softmax", "sigmoid", "sqrt-softplus")


@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("scoring", SCORINGS)
def test_score_topk(experts, scoring):
    for k in ks_of(experts):
        for renormalize in (False, True):
            spec = spec_of("score-topk", experts, k, scoring=scoring, renormalize=renormalize, scaling=1.5)
            assert compare(spec, hard_rows(k, experts)) == 0


@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("scoring", SCORINGS)
def test_biased_score_topk(experts, scoring):
    bias = np.random.default_rng(1).standard_normal(experts).astype(np.float32) * 0.2
    vague = []
    for k in ks_of(experts):
        spec = spec_of("score-topk", experts, k, scoring=scoring, renormalize=True, epsilon=1e-20, fused_shared=k % 3)
        vague.append(compare(spec, hard_rows(k, experts), bias=bias))
    # With k near E nearly every row has two of 1,200 biased scores that close.
    assert vague[0] < 0.2


@pytest.mark.parametrize("experts", EXPERTS)
def test_bias_on_a_grid_ties_to_the_lowest_id(experts):
    """Equal logits and equal biases are exact ties in any arithmetic."""
    bias = (np.arange(experts) % 3 * 0.5).astype(np.float32)
    rows = np.repeat(np.round(np.random.default_rng(2).standard_normal((20, 1))), experts, 1).astype(np.float32)
    for k in ks_of(experts):
        spec = spec_of("score-topk", experts, k, scoring="sigmoid")
        assert compare(spec, rows, bias=bias) == 0


@pytest.mark.parametrize("experts", EXPERTS)
def test_topk_softmax(experts):
    for k in ks_of(experts):
        assert compare(spec_of("topk-softmax", experts, k), hard_rows(k, experts)) == 0


GROUPS = [(36, 6, 2), (40, 8, 3), (160, 8, 3), (384, 1, 1), (512, 8, 4), (1200, 10, 5), (5, 1, 1), (1, 1, 1), (160, 8, 8)]


@pytest.mark.parametrize("experts,groups,kept", GROUPS)
def test_grouped_max(experts, groups, kept):
    reachable = experts // groups * kept
    for k in sorted({1, min(6, reachable), reachable}):
        spec = spec_of("grouped-max", experts, k, groups=groups, top_groups=kept, scaling=16.0)
        assert compare(spec, hard_rows(k, experts)) == 0


@pytest.mark.parametrize("experts,groups,kept", GROUPS)
@pytest.mark.parametrize("biased", (False, True))
def test_grouped_top2(experts, groups, kept, biased):
    rng = np.random.default_rng(3)
    bias = (rng.standard_normal(experts) * 0.3 - 1.0).astype(np.float32) if biased else None  # biased scores below zero too
    reachable = experts // groups * kept
    vague = []
    for k in sorted({1, min(8, reachable), reachable}):
        spec = spec_of("grouped-top2", experts, k, groups=groups, top_groups=kept, scoring="sigmoid", renormalize=True)
        spec |= {"epsilon": 1e-20, "scaling": 2.5, "fused_shared": 1}
        vague.append(compare(spec, hard_rows(k, experts), bias=bias))
    assert vague[0] < 0.3


@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("scoring", ("sqrt-softplus", "softmax"))
def test_hash(experts, scoring):
    rng = np.random.default_rng(4)
    for k in (1, min(8, experts), experts):
        table = np.array([rng.permutation(experts)[:k] for _ in range(50)], np.int32)
        spec = spec_of("hash", experts, k, scoring=scoring, renormalize=True, scaling=1.5, fused_shared=1)
        rows = hard_rows(k, experts)
        assert compare(spec, rows, table=table, tokens=rng.integers(0, 50, len(rows))) == 0


@pytest.mark.parametrize("experts", EXPERTS)
def test_top1_sigmoid(experts):
    assert compare(spec_of("top1-sigmoid", experts, 1), hard_rows(9, experts)) == 0


def test_padding_rows():
    for valid in (0, 1, 39, 40, 100):
        spec = spec_of("score-topk", 40, 6, renormalize=True, valid_tokens=valid, fused_shared=1)
        assert compare(spec, hard_rows(5, 40)) == 0


DEEPSEEK = spec_of("grouped-top2", 256, 8, groups=8, top_groups=4, scoring="sigmoid", renormalize=True, scaling=2.5, fused_shared=1)
QWEN = spec_of("score-topk", 128, 8, renormalize=True)
MINIMAX = spec_of("score-topk", 64, 8, scoring="sigmoid", renormalize=True)
FAULTS = [
    (QWEN, "no_renormalize"),
    (QWEN, "k_minus_1"),
    (QWEN, "ties_high"),
    (DEEPSEEK, "no_renormalize"),
    (DEEPSEEK, "scaled_twice"),
    (DEEPSEEK, "biased_weights"),
    (DEEPSEEK, "no_bias"),
    (DEEPSEEK, "group_max"),
    (DEEPSEEK, "shared_scaled"),
    (MINIMAX, "biased_weights"),
    (MINIMAX, "no_bias"),
]


@pytest.mark.parametrize("spec,fault", FAULTS, ids=lambda v: v if isinstance(v, str) else v["method"])
def test_a_faulty_router_is_noticed(spec, fault):
    """The comparison above, against a router with one fault: it must complain."""
    rows = hard_rows(6, spec["experts"])
    bias = None if spec is QWEN else np.random.default_rng(7).standard_normal(spec["experts"]).astype(np.float32) * 0.1
    got = ref.probe_route(spec, rows, bias=bias)
    assert not mistakes(spec, got, ref.route(spec, rows, bias=bias))[0].any()
    assert mistakes(spec, got, ref.route(spec, rows, bias=bias, fault=fault))[0].any()


def test_a_refused_spec_is_a_usage_error():
    with pytest.raises(ref.ProbeError, match="top_k") as refusal:
        ref.probe_route(spec_of("score-topk", 4, 5), hard_rows(1, 4))
    assert refusal.value.code == 2
