"""Every activation against float64 formulas, over a grid that has both sides of every clamp, and the faults that must be noticed."""

import numpy as np
import pytest

import moe_reference as ref

KINDS = ("swiglu", "geglu-erf", "geglu-tanh", "swiglu-oai", "swiglu-clamped", "swiglu-step", "situ", "relu2")
PARAMETERS = (
    {"alpha": 1.702, "beta": 1.0, "limit": 7.0, "linear_beta": 25.0},
    {"alpha": 0.5, "beta": 0.25, "limit": 10.0, "linear_beta": 1.5},
    {"alpha": 1.702, "beta": 4.0, "limit": 0.75, "linear_beta": 0.0},
)


def around(value):
    value = np.float32(value)
    return [np.nextafter(value, np.float32(-np.inf)), value, np.nextafter(value, np.float32(np.inf))]


def grid(p):
    points = [-1e4, -100, -88.5, -20, -9, -3.3, -1, -0.1, -1e-6, 0.0, 1e-6, 0.1, 0.6, 1, 2.5, 6.2, 9, 20, 88.5, 100, 1e4]
    points += around(p["limit"]) + around(-p["limit"])
    points = np.array(points, np.float32)
    gate, up = np.meshgrid(points, points)
    return gate.ravel(), up.ravel()


def probe(kind, gate, up, p):
    spec = {"activation": kind, **p}
    return ref.run_probe("activate", spec, {"gate.f32": gate, "up.f32": up}, {"out.f32": np.float32})["out.f32"]


def rounded(p):
    """The parameters as float32 holds them."""
    return {name: float(np.float32(value)) for name, value in p.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", PARAMETERS)
def test_equals_the_formula_in_float64(kind, p):
    p = rounded(p)
    gate, up = grid(p)
    expected = ref.activate(kind, gate, up, p)
    bound = ref.activation_bound(kind, gate, up, p)
    finite = np.abs(expected) < ref.FLT_MAX
    wrong = np.abs(probe(kind, gate, up, p) - expected)[finite] > bound[finite]
    assert not wrong.any(), list(zip(gate[finite][wrong], up[finite][wrong]))[:5]
    assert finite.mean() > 0.9


FAULTS = {
    "swiglu": ["swapped"],
    "geglu-erf": ["swapped"],
    "geglu-tanh": ["swapped"],
    "swiglu-oai": ["swapped", "no_clamp", "no_plus_one", "alpha_one"],
    "swiglu-clamped": ["swapped", "no_clamp"],
    "swiglu-step": ["swapped", "no_clamp"],
    "situ": ["swapped"],
    "relu2": ["swapped"],
}


@pytest.mark.parametrize("kind,fault", [(k, f) for k, faults in FAULTS.items() for f in faults])
def test_a_faulty_formula_is_out_of_tolerance(kind, fault):
    p = rounded(PARAMETERS[0])
    gate, up = grid(p)
    faulty = ref.activate(kind, gate, up, p, fault)
    noticed = np.abs(probe(kind, gate, up, p) - faulty) > ref.activation_bound(kind, gate, up, p)
    assert noticed.mean() > 0.1, "the tolerance would hide this fault"


def test_the_two_clamped_kinds_clamp_on_different_sides_of_silu():
    p = rounded(PARAMETERS[0])
    gate, up = np.array([8.0], np.float32), np.array([1.0], np.float32)
    step, clamped = (probe(kind, gate, up, p)[0] for kind in ("swiglu-step", "swiglu-clamped"))
    assert step == 7.0
    assert abs(clamped - 7 / (1 + np.exp(-7.0))) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_nan_stays_nan(kind):
    """A clamp must not turn a NaN into its limit."""
    p = rounded(PARAMETERS[0])
    nan, one = np.array([np.nan], np.float32), np.array([1.0], np.float32)
    assert np.isnan(probe(kind, one, nan, p)[0])
    assert np.isnan(probe(kind, nan, one, p)[0]) == (kind != "relu2")
