"""Independent numpy / ml-dtypes versions of the formats in src/numerics, and access to the probe binary.

The casts are ml-dtypes' own; what is written here is only what our rules add to them (saturation, NaN, amax, scales).
"""

import os
import pathlib
import subprocess

import ml_dtypes
import numpy as np

F32 = np.float32
FLT_MAX = np.finfo(F32).max
FLT_MIN = np.finfo(F32).tiny
E2M1_NAN_SCALE = {"nvfp4": 0x7F, "mxfp4": 0xFF}


def probe_path():
    build = os.environ.get("SLUICE_BUILD_DIR")
    assert build, "SLUICE_BUILD_DIR must name the build directory"
    path = pathlib.Path(build) / "tests" / "numerics" / "numerics_probe"
    assert path.is_file(), f"{path} is missing: build the target numerics_probe"
    return path


def run_probe(words, array):
    done = subprocess.run(
        [str(probe_path()), *map(str, words)], input=np.ascontiguousarray(array).tobytes(), capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def float_bits(values):
    return np.ascontiguousarray(values, F32).view(np.uint32)


def cast_bits(values, dtype):
    """Bits of an ml-dtypes (or numpy float16) cast of float32 values."""
    with np.errstate(all="ignore"):
        codes = np.asarray(values, F32).astype(dtype)
    return codes.view(np.uint16 if codes.dtype.itemsize == 2 else np.uint8)


def sign_bit(values, bit):
    return np.where(np.signbit(values), bit, 0)


def encode_saturating(values, dtype, max_code, nan_code):
    """ml-dtypes cast of finite values that cannot overflow; larger ones and infinity clamp; NaN keeps its sign."""
    values = np.asarray(values, F32)
    largest = np.array([max_code], np.uint8).view(dtype).astype(F32)[0]
    codes = cast_bits(np.clip(values, -largest, largest), dtype)
    return np.where(np.isnan(values), nan_code | sign_bit(values, 0x80), codes).astype(np.uint8)


def encode_e4m3(values):
    return encode_saturating(values, ml_dtypes.float8_e4m3fn, 0x7E, 0x7F)


def encode_e5m2(values):
    return encode_saturating(values, ml_dtypes.float8_e5m2, 0x7B, 0x7E)


def encode_e2m1(values):
    """ml-dtypes saturates e2m1 by itself; only NaN differs (+6 here)."""
    return np.where(np.isnan(values), 7, cast_bits(values, ml_dtypes.float4_e2m1fn)).astype(np.uint8)


def encode_e2m1_ties_down(values):
    midpoints = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], F32)
    codes = np.searchsorted(midpoints, np.abs(values), side="left")
    return np.where(np.isnan(values), 7, codes | sign_bit(values, 8)).astype(np.uint8)


def encode_e8m0(values, up):
    """Exact, through the mantissa and exponent of each value in float64: value = m * 2^e with m in [0.5, 1)."""
    with np.errstate(all="ignore"):
        values = np.asarray(values, np.float64)
        mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 1.0))
    log2 = exponent - 1 + (mantissa > 0.5 if up else 0)
    code = np.clip(log2 + 127, 0, 254)
    code = np.where(values == 0, 0, code)
    code = np.where(values == np.inf, 254, code)
    return np.where(np.isnan(values) | (values < 0), 255, code).astype(np.uint8)


def decode_e4m3(codes):
    return codes.view(ml_dtypes.float8_e4m3fn).astype(F32)


def decode_e8m0(codes):
    return codes.view(ml_dtypes.float8_e8m0fnu).astype(F32)


def decode_e2m1(codes):
    return codes.view(ml_dtypes.float4_e2m1fn).astype(F32)


def clamp_infinity(values):
    return np.clip(values, -FLT_MAX, FLT_MAX)  # NaN passes through


def amax_of(values, axis=None):
    return np.max(np.abs(np.where(np.isnan(values), F32(0), clamp_infinity(values))), axis=axis, initial=F32(0))


def in_blocks(values, width):
    """[rows, blocks, width], the last block filled up with zeros, which change neither amax nor any other code."""
    rows, cols = values.shape
    padded = np.zeros((rows, -(-cols // width) * width), F32)
    padded[:, :cols] = values
    return padded.reshape(rows, -1, width)


def pack(codes, cols):
    """[rows, cols] nibbles to [rows, ceil(cols / 2)] bytes, even column low."""
    even = codes[:, :cols]
    if cols % 2:
        even = np.pad(even, ((0, 0), (0, 1)))
    return (even[:, 0::2] | even[:, 1::2] << 4).astype(np.uint8)


class Quantised:
    """What a quantiser gives: codes as stored, scales [scale_rows, scale_cols], tensor scale, decoded values."""

    def __init__(self, codes, scales, tensor_scale, values):
        self.codes, self.scales, self.tensor_scale, self.values = codes, scales, F32(tensor_scale), values


def fp8_reference(name, values, floor=None):
    rows, cols = values.shape
    block_rows, block_cols = {"fp8-tensor": (rows, cols), "fp8-row": (1, cols), "fp8-block": (128, 128),
                              "fp8-group": (1, 128)}[name]
    floor = {"fp8-block": 1e-4, "fp8-group": 1e-10}.get(name) if floor is None else floor
    codes = np.zeros((rows, cols), np.uint8)
    decoded = np.zeros((rows, cols), F32)
    scales = np.zeros((-(-rows // block_rows), -(-cols // block_cols)), F32)
    for i, top in enumerate(range(0, rows, block_rows)):
        for j, left in enumerate(range(0, cols, block_cols)):
            box = np.s_[top : top + block_rows, left : left + block_cols]
            amax = amax_of(values[box])
            if floor is not None:
                scale = max(amax, F32(floor)) / F32(448)
            else:
                scale = F32(1) if amax == 0 else max(amax / F32(448), FLT_MIN)
            scales[i, j] = scale
            with np.errstate(over="ignore"):
                codes[box] = encode_e4m3(clamp_infinity(values[box]) / scale)
                decoded[box] = decode_e4m3(codes[box]) * scale
    if name == "fp8-tensor":
        return Quantised(codes, np.zeros((0, 0), F32), scales[0, 0], decoded)
    return Quantised(codes, scales, 1, decoded)


def finish_fp4(name, values, codes, scales, decode_scale, tensor_scale):
    """Applies the NaN rule to blocks, decodes and packs."""
    rows, cols = values.shape
    poisoned = np.isnan(in_blocks(values, codes.shape[2])).any(axis=2)
    codes = np.where(poisoned[:, :, None], 0, codes).astype(np.uint8)
    scales = np.where(poisoned, E2M1_NAN_SCALE[name], scales).astype(np.uint8)
    with np.errstate(all="ignore"):
        decoded = decode_e2m1(codes) * decode_scale(scales)[:, :, None] * F32(tensor_scale)
    return Quantised(pack(codes.reshape(rows, -1), cols), scales, tensor_scale, decoded.reshape(rows, -1)[:, :cols])


def nvfp4_reference(values, encode_scale=None, published=False):
    if encode_scale is None:
        amax = amax_of(values)
        encode_scale = F32(2.0**126) if amax == 0 else min(F32(2688) / amax, F32(2.0**126))
    g = F32(encode_scale)
    blocks = clamp_infinity(in_blocks(values, 16))
    amax = amax_of(blocks, axis=2)
    with np.errstate(all="ignore"):
        wanted = amax * (g * (F32(1) / F32(6))) if published else g * amax / F32(6)
        scales = encode_e4m3(wanted)
        multiplier = np.minimum(F32(1) / (decode_e4m3(scales) * (F32(1) / g)), FLT_MAX)
        multiplier = np.where(amax == 0, F32(0), multiplier)
        codes = encode_e2m1(blocks * multiplier[:, :, None])
    return finish_fp4("nvfp4", values, codes, scales, decode_e4m3, F32(1) / g)


def mx_scales(amax, element_max, ocp):
    if not ocp:
        return encode_e8m0(amax / F32(element_max), up=True)
    below = encode_e8m0(amax, up=False).astype(int) - int(np.floor(np.log2(element_max)))
    return np.maximum(below, 0).astype(np.uint8)


def mxfp4_reference(values, ocp=False, lower=False):
    blocks = clamp_infinity(in_blocks(values, 32))
    scales = mx_scales(amax_of(blocks, axis=2), 6, ocp)
    multiplier = np.ldexp(F32(1), 127 - scales.astype(int)).astype(F32)
    if not ocp:
        multiplier = np.where(scales == 0, F32(1), multiplier)
    with np.errstate(all="ignore"):
        scaled = blocks * multiplier[:, :, None]
    codes = encode_e2m1_ties_down(scaled) if lower else encode_e2m1(scaled)
    return finish_fp4("mxfp4", values, codes, scales, decode_e8m0, F32(1))


def mxfp8_reference(values, ocp=False):
    rows, cols = values.shape
    blocks = clamp_infinity(in_blocks(values, 32))
    scales = mx_scales(amax_of(blocks, axis=2), 448, ocp)
    multiplier = np.ldexp(F32(1), 127 - scales.astype(int)).astype(F32)
    with np.errstate(all="ignore"):
        codes = encode_e4m3(blocks * multiplier[:, :, None])
        decoded = decode_e4m3(codes) * decode_e8m0(scales)[:, :, None]
    return Quantised(codes.reshape(rows, -1)[:, :cols], scales, 1, decoded.reshape(rows, -1)[:, :cols])


def probe_quantise(name, values, reference, *options):
    """Runs the probe; the shapes of its output are those of `reference`."""
    raw = run_probe(["quantize", name, values.shape[1], *options], np.asarray(values, F32))
    parts = []
    for like in (reference.codes, reference.scales, np.zeros(1, F32), reference.values):
        size = like.size * like.dtype.itemsize
        parts.append(np.frombuffer(raw[:size], like.dtype).reshape(like.shape))
        raw = raw[size:]
    assert not raw, f"{name}: {len(raw)} bytes more than expected"
    return Quantised(parts[0], parts[1], parts[2][0], parts[3])


def assert_same(got, want):
    """Bit equality of codes, scales and decoded values; NaN scales and values compare by being NaN."""
    np.testing.assert_array_equal(got.scales, want.scales)
    np.testing.assert_array_equal(got.codes, want.codes)
    assert float_bits([got.tensor_scale])[0] == float_bits([want.tensor_scale])[0]
    np.testing.assert_array_equal(np.isnan(got.values), np.isnan(want.values))
    finite = ~np.isnan(want.values)
    np.testing.assert_array_equal(float_bits(got.values[finite]), float_bits(want.values[finite]))
