"""Quantisers of src/numerics against numpy / ml-dtypes: codes, scales and decoded values equal bit for bit."""

import numpy as np
import pytest

import numerics_reference as ref

F32 = np.float32
SHAPES = [(1, 16), (3, 32), (2, 128), (5, 768), (7, 2880), (130, 300), (129, 129), (4, 33), (3, 1), (2, 17)]
ALL = {
    "fp8-tensor": [()],
    "fp8-row": [()],
    "fp8-block": [(), ("floor=0.5",)],
    "fp8-group": [(), ("floor=1e-12",)],
    "nvfp4": [(), ("published",), ("scale=1",), ("scale=437.25",), ("scale=3e-4",), ("scale=1e30",),
              ("scale=437.25", "published")],
    "mxfp4": [(), ("lower",), ("ocp",), ("ocp", "lower")],
    "mxfp8": [(), ("ocp",)],
}
CASES = [(name, options) for name, rules in ALL.items() for options in rules]


def reference(name, values, options):
    number = {w.split("=")[0]: F32(w.split("=")[1]) for w in options if "=" in w}
    if name.startswith("fp8"):
        return ref.fp8_reference(name, values, number.get("floor"))
    if name == "nvfp4":
        return ref.nvfp4_reference(values, number.get("scale"), "published" in options)
    if name == "mxfp4":
        return ref.mxfp4_reference(values, "ocp" in options, "lower" in options)
    return ref.mxfp8_reference(values, "ocp" in options)


def check(name, options, values):
    want = reference(name, values, options)
    ref.assert_same(ref.probe_quantise(name, values, want, *options), want)
    return want


def to_bf16(values):
    return (ref.float_bits(values) & 0xFFFF0000).view(F32)


@pytest.mark.parametrize("name, options", CASES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_matrices(name, options, shape):
    rng = np.random.default_rng([7, *shape])
    values = rng.standard_normal(shape).astype(F32)
    check(name, options, values)
    check(name, options, to_bf16(values * F32(0.02)))


@pytest.mark.parametrize("name, options", CASES)
def test_blocks_of_very_different_size(name, options):
    """Block magnitudes over the whole float32 range: scale underflow, saturation, subnormals."""
    rng = np.random.default_rng(11)
    values = rng.standard_normal((48, 512)) * np.exp2(rng.uniform(-148, 126, (48, 64)).repeat(8, axis=1))
    values = np.clip(values, -3.3e38, 3.3e38).astype(F32)
    check(name, options, values)
    narrow = rng.standard_normal((64, 512)) * np.exp2(rng.uniform(-14, 12, (64, 32)).repeat(16, axis=1))
    check(name, options, to_bf16(narrow.astype(F32)))


def tie_rows(step):
    """Rows in which the largest value fixes the scale and the rest lie on, just below and just above every midpoint."""
    points = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], F32)
    near = np.concatenate([points, np.nextafter(points, F32(0)), np.nextafter(points, F32(9)), -points])
    rows = []
    for start in range(0, len(near), 15):
        row = np.zeros(32, F32)
        row[0] = row[16] = 6
        row[1 : 1 + len(near[start : start + 15])] = near[start : start + 15]
        row[17:] = row[1:16][::-1]
        rows.append(row * F32(step))
    return np.array(rows)


@pytest.mark.parametrize("name, options", CASES)
@pytest.mark.parametrize("step", [1.0, 2.0**-9, 2.0**20])
def test_ties(name, options, step):
    values = tie_rows(step)
    check(name, options, values)
    check(name, options, np.concatenate([values, values * F32(448 / 6)]))


@pytest.mark.parametrize("name, options", CASES)
def test_scale_boundaries(name, options):
    """Block maxima around every multiple where a block scale changes: P * 2^k, e4m3 midpoints, and their neighbours."""
    e4m3 = np.arange(1, 0x7F, dtype=np.uint8)
    grid = ref.decode_e4m3(e4m3).astype(np.float64)
    maxima = np.concatenate([6.0 * np.exp2(np.arange(-126, 125)), 448 * np.exp2(np.arange(-130, 118)),
                             np.exp2(np.arange(-140, 127)), 6 * grid, 3 * (grid[1:] + grid[:-1])]).astype(F32)
    for word in options:
        if word.startswith("scale="):  # where g * amax / 6 is an e4m3 tie up to the rounding of amax
            with np.errstate(over="ignore"):
                ties = (3 * (grid[1:] + grid[:-1]) / float(word[6:])).astype(F32)
            maxima = np.concatenate([maxima, ties[np.isfinite(ties)]])
    maxima = np.concatenate([maxima, np.nextafter(maxima, F32(np.inf)), np.nextafter(maxima, F32(0))])
    fractions = np.linspace(-1, 1, 32, dtype=F32)
    check(name, options, maxima[:, None] * fractions[None, :])


@pytest.mark.parametrize("name, options", CASES)
def test_zero_blocks_and_signed_zero(name, options):
    values = np.zeros((4, 256), F32)
    values[1] = -0.0
    values[2, 40] = 3.0
    values[3, 5] = 1e-42
    want = check(name, options, values)
    assert (want.values[:2] == 0).all()
    check(name, options, np.zeros((2, 64), F32))


@pytest.mark.parametrize("name, options", CASES)
def test_nan_and_infinity(name, options):
    rng = np.random.default_rng(5)
    values = rng.standard_normal((6, 256)).astype(F32)
    values[0, 3] = np.nan
    values[1, 200] = -np.nan
    values[2, 64:96] = np.nan
    values[3, 7], values[3, 130] = np.inf, -np.inf
    values[4, 1], values[4, 2] = np.inf, np.nan
    want = check(name, options, values)
    assert np.isnan(want.values[np.isnan(values)]).all(), "no NaN may be lost"
    assert not np.isnan(want.values[3]).any() and not np.isnan(want.values[5]).any()


@pytest.mark.parametrize("name", ALL)
def test_no_rows(name):
    """Only the tensor scale comes out: 1, or of an empty NVFP4 tensor that of a zero one."""
    out = ref.run_probe(["quantize", name, 64], np.zeros((0, 64), F32))
    assert out == F32(2.0**-126 if name == "nvfp4" else 1).tobytes()


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4", "mxfp8"])
def test_a_decoded_matrix_quantises_to_itself(name):
    """Values that a format can hold exactly come back unchanged when their block uses its largest code."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 16, (8, 256), dtype=np.uint8)
    codes[:, ::16] = 7  # 6.0 in every block
    values = ref.decode_e2m1(codes)
    options = ("scale=256",) if name == "nvfp4" else ()
    if name == "mxfp8":
        values = values * F32(64)  # 384 = 1.5 * 256 keeps the scale at 1
    want = check(name, options, values)
    np.testing.assert_array_equal(want.values, values)
