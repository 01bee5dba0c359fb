"""What `sluice quantize` must write, computed with numpy and ml_dtypes only: codes, scales, and the way back."""

import json
import pathlib

import ml_dtypes
import numpy as np
from safetensors import safe_open

F32 = np.float32


def load(folder):
    """All tensors of a checkpoint as numpy arrays; fp8 as ml_dtypes, read with the safetensors package."""
    out = {}
    for path in sorted(pathlib.Path(folder).glob("model*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():
                out[name] = tensor(path, file, name)
    return out


def tensor(path, file, name):
    piece = file.get_slice(name)
    if piece.get_dtype() in ("F8_E4M3", "BF16"):
        return raw(path, name)
    return file.get_tensor(name)


def header(path):
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + size]), data[8 + size:]


def raw(path, name):
    entries, data = header(path)
    begin, end = entries[name]["data_offsets"]
    kind = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "BF16": ml_dtypes.bfloat16}[entries[name]["dtype"]]
    return np.frombuffer(data[begin:end], dtype=kind).reshape(entries[name]["shape"])


def amax(*matrices):
    return max(np.max(np.abs(m)) for m in matrices) if matrices else F32(0)


def round_trip(scale):
    """The float nearest to scale that survives two reciprocals; upwards first at equal distance."""
    above = below = F32(scale)
    while True:
        for s in (above, below):
            if F32(1) / (F32(1) / s) == s:
                return s
        above, below = np.nextafter(above, F32(np.inf)), np.nextafter(below, F32(0))


def pack(codes):
    bits = codes.view(np.uint8)
    return bits[:, 0::2] | bits[:, 1::2] << 4


def unpack(packed):
    out = np.empty((packed.shape[0], packed.shape[1] * 2), dtype=np.uint8)
    out[:, 0::2], out[:, 1::2] = packed & 15, packed >> 4
    return out.view(ml_dtypes.float4_e2m1fn).astype(F32)


def nvfp4_scale(*matrices):
    """Tensor scale shared by the matrices."""
    return round_trip(F32(1) / (F32(448 * 6) / F32(amax(*matrices))))


def nvfp4(weight, tensor_scale):
    """(packed codes, e4m3 block scales) of a float32 matrix."""
    encode = F32(1) / tensor_scale
    blocks = weight.reshape(weight.shape[0], -1, 16)
    scales = np.clip(encode * np.max(np.abs(blocks), axis=2) / F32(6), 0, 448).astype(ml_dtypes.float8_e4m3fn)
    step = scales.astype(F32) * (F32(1) / encode)
    multiplier = np.minimum(F32(1) / np.where(step == 0, F32(1), step), np.finfo(F32).max)
    scaled = np.clip(blocks * multiplier[:, :, None], -6, 6)
    return pack(scaled.astype(ml_dtypes.float4_e2m1fn).reshape(weight.shape)), scales


def mxfp4(weight, floor=False):
    """(packed codes, e8m0 exponents) with the scale ceil(log2(amax / 6)), or the floor rule of OCP."""
    blocks = weight.reshape(weight.shape[0], -1, 32)
    most = np.max(np.abs(blocks), axis=2)
    if floor:
        exponent = np.floor(np.log2(most.astype(np.float64))) - 2
    else:
        exponent = np.ceil(np.log2((most / F32(6)).astype(np.float64)))
    scaled = np.clip(blocks * np.exp2(-exponent)[:, :, None], -6, 6).astype(F32)
    codes = scaled.astype(ml_dtypes.float4_e2m1fn).reshape(weight.shape)
    return pack(codes), (exponent + 127).astype(np.uint8)


def fp8(weight, scale):
    """e4m3 codes under scales that broadcast against the weight."""
    return np.clip(weight / scale, -448, 448).astype(ml_dtypes.float8_e4m3fn)


def fp8_rows(weight):
    scale = np.max(np.abs(weight), axis=1, keepdims=True) / F32(448)
    return fp8(weight, scale), scale


def fp8_blocks(weight):
    rows, cols = -(-weight.shape[0] // 128), -(-weight.shape[1] // 128)
    scales = np.empty((rows, cols), dtype=F32)
    codes = np.empty(weight.shape, dtype=ml_dtypes.float8_e4m3fn)
    for i in range(rows):
        for j in range(cols):
            at = np.s_[i * 128:(i + 1) * 128, j * 128:(j + 1) * 128]
            scales[i, j] = max(np.max(np.abs(weight[at])), F32(1e-4)) / F32(448)
            codes[at] = fp8(weight[at], scales[i, j])
    return codes, scales


def experts_of(tensors, layer, expert):
    """gate, up and down of one expert of an unquantised Qwen3-MoE or DeepSeek checkpoint, as float32."""
    base = f"model.layers.{layer}.mlp.experts.{expert}"
    return [tensors[f"{base}.{name}_proj.weight"].astype(F32) for name in ("gate", "up", "down")]
