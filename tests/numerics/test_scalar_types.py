"""Every scalar conversion of src/numerics against ml-dtypes (fp16: numpy), bit for bit.

Where ml-dtypes has another rule (overflow to NaN, no NaN in e2m1, nearest e8m0) the comparison says so.
"""

import ml_dtypes
import numpy as np
import pytest

import numerics_reference as ref

F32 = np.float32
DTYPES = {
    "bf16": (ml_dtypes.bfloat16, 16),
    "fp16": (np.float16, 16),
    "e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "e5m2": (ml_dtypes.float8_e5m2, 8),
    "e2m1": (ml_dtypes.float4_e2m1fn, 4),
    "e8m0": (ml_dtypes.float8_e8m0fnu, 8),
}


def all_codes(name):
    dtype, bits = DTYPES[name]
    codes = np.arange(2**bits, dtype=np.uint16 if bits == 16 else np.uint8)
    return codes, codes.view(dtype).astype(F32)


@pytest.mark.parametrize("name", DTYPES)
def test_every_code_decodes(name):
    codes, want = all_codes(name)
    got = np.frombuffer(ref.run_probe(["decode", name], codes), F32)
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    np.testing.assert_array_equal(ref.float_bits(got[~nan]), ref.float_bits(want[~nan]))


def neighbours(values):
    values = np.asarray(values, F32)
    with np.errstate(over="ignore"):
        return np.concatenate([values, np.nextafter(values, F32(np.inf)), np.nextafter(values, F32(-np.inf))])


def boundary_values(name):
    """Every finite value of a type, every midpoint of two neighbours, the overflow thresholds; each with neighbours."""
    _, values = all_codes(name)
    values = np.unique(np.abs(values[np.isfinite(values)])).astype(np.float64)
    step = values[-1] - values[-2]
    midpoints = (values[1:] + values[:-1]) / 2
    beyond = values[-1] + step * np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
    points = np.concatenate([values, midpoints, beyond])
    with np.errstate(over="ignore"):
        rounded = points.astype(F32)
    exact = rounded == points
    assert exact.mean() > 0.99 or name == "bf16", "the ties themselves must be in the sample"
    return neighbours(np.concatenate([rounded, -rounded]))


def all_inputs():
    """All bf16 and fp16 patterns, the boundaries of every type, random float32 bits and random moderate values."""
    rng = np.random.default_rng(20240607)
    parts = [all_codes("bf16")[1], all_codes("fp16")[1]]
    parts += [boundary_values(name) for name in ("bf16", "fp16", "e4m3", "e5m2", "e2m1", "e8m0")]
    parts.append(rng.integers(0, 2**32, 1_000_000, dtype=np.uint32).view(F32))
    parts.append((rng.standard_normal(500_000) * np.exp2(rng.uniform(-26, 20, 500_000))).astype(F32))
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def inputs():
    return all_inputs()


def encode(rule, values, dtype):
    return np.frombuffer(ref.run_probe(["encode", rule], values), dtype)


@pytest.mark.parametrize("name, infinity", [("bf16", 0x7F80), ("fp16", 0x7C00)])
def test_16_bit_encoding(name, infinity, inputs):
    got = encode(name, inputs, np.uint16)
    want = ref.cast_bits(inputs, DTYPES[name][0])
    nan = np.isnan(inputs)
    np.testing.assert_array_equal(got[~nan], want[~nan])
    # NaN: ours is the one quiet NaN of the sign; numpy keeps payloads of float16.
    quiet = infinity | (infinity & -infinity) >> 1
    np.testing.assert_array_equal(got[nan], quiet | ref.sign_bit(inputs[nan], 0x8000))


@pytest.mark.parametrize("name, nan_code", [("e4m3", 0x7F), ("e5m2", 0x7E)])
def test_fp8_nonsaturating_is_the_ml_dtypes_cast(name, nan_code, inputs):
    got = encode(f"{name}_nonsat", inputs, np.uint8)
    want = ref.cast_bits(inputs, DTYPES[name][0])
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(got[np.isnan(inputs)], nan_code | ref.sign_bit(inputs[np.isnan(inputs)], 0x80))


@pytest.mark.parametrize("name, max_code", [("e4m3", 0x7E), ("e5m2", 0x7B)])
def test_fp8_saturating_differs_from_the_cast_only_by_overflow(name, max_code, inputs):
    got = encode(name, inputs, np.uint8)
    cast = ref.cast_bits(inputs, DTYPES[name][0])
    overflow = ((cast & 0x7F) > max_code) & ~np.isnan(inputs)
    assert 1000 < overflow.sum() < len(inputs)
    np.testing.assert_array_equal(got[~overflow], cast[~overflow])
    np.testing.assert_array_equal(got[overflow], max_code | ref.sign_bit(inputs[overflow], 0x80))


def test_e2m1_encoding(inputs):
    got = encode("e2m1", inputs, np.uint8)
    nan = np.isnan(inputs)
    np.testing.assert_array_equal(got[~nan], ref.cast_bits(inputs, ml_dtypes.float4_e2m1fn)[~nan])
    assert (got[nan] == 7).all()


def test_e2m1_ties_down(inputs):
    got = encode("e2m1_ties_down", inputs, np.uint8)
    np.testing.assert_array_equal(got, ref.encode_e2m1_ties_down(inputs))
    # The only inputs where it differs from ties-to-even are three of the seven ties.
    differs = got != encode("e2m1", inputs, np.uint8)
    assert set(np.abs(inputs[differs])) == {0.75, 1.75, 3.5}


@pytest.mark.parametrize("rule", ["e8m0_up", "e8m0_floor"])
def test_e8m0_encoding(rule, inputs):
    got = encode(rule, inputs, np.uint8)
    np.testing.assert_array_equal(got, ref.encode_e8m0(inputs, up=rule == "e8m0_up"))


def test_e8m0_rules_bracket_the_ml_dtypes_cast(inputs):
    """ml-dtypes rounds to the nearest power: always one of our two, and equal to both on powers of two."""
    values = inputs[(inputs >= 2.0**-127) & (inputs <= 2.0**127)]
    nearest = ref.cast_bits(values, ml_dtypes.float8_e8m0fnu)
    up, floor = encode("e8m0_up", values, np.uint8), encode("e8m0_floor", values, np.uint8)
    assert ((nearest == up) | (nearest == floor)).all()
    power = np.frexp(values)[0] == 0.5
    assert power.sum() >= 255
    assert (up[power] == nearest[power]).all() and (floor[power] == nearest[power]).all()
    assert (up[~power] == floor[~power] + 1).all()


@pytest.mark.parametrize("name", ["bf16", "fp16", "e4m3", "e5m2", "e2m1"])
def test_every_value_encodes_to_its_own_code(name):
    codes, values = all_codes(name)
    keep = ~np.isnan(values)
    if name in ("e5m2",):
        keep &= np.isfinite(values)  # the saturating rule has no infinity
    got = encode(name, values[keep], codes.dtype)
    np.testing.assert_array_equal(got, codes[keep])
