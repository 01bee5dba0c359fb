"""Tensors of a checkpoint folder, and what quantised ones stand for, from the published formats with numpy and ml_dtypes alone."""

import json

import ml_dtypes
import numpy as np

TYPES = {"F8_E4M3": np.uint8, "U8": np.uint8, "BF16": ml_dtypes.bfloat16, "F32": np.float32}
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def read_tensors(folder):
    """Every tensor by name; e4m3, which numpy lacks, as its bytes."""
    out = {}
    for path in sorted(folder.glob("model*.safetensors")):
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:start]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                out[name] = np.frombuffer(data[start + begin:start + end], TYPES[entry["dtype"]]).reshape(entry["shape"])
    return out


def e4m3(codes):
    return codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)


def spread(scales, rows, cols, shape):
    return np.repeat(np.repeat(scales, rows, 0), cols, 1)[:shape[0], :shape[1]]


def decode(tensors, name, roll=0):
    """A weight in float32, of the dialects of ModelOpt (nvfp4, fp8), compressed-tensors (mxfp4) and DeepSeek; a plain one as it
    is. `roll` shifts the block scales of nvfp4 by so many blocks, a fault."""
    base = name.removesuffix("_packed")
    codes, scale = tensors[name], tensors.get(base + "_scale")
    if base + "_scale_inv" in tensors:
        scale = tensors[base + "_scale_inv"].astype(np.float32)
        return e4m3(codes) * spread(scale, 128, 128, codes.shape)
    if scale is None:
        return codes.astype(np.float32)
    if scale.size == 1:
        return e4m3(codes) * scale.reshape(())
    numbers = E2M1[np.stack([codes & 15, codes >> 4], -1).reshape(codes.shape[0], -1)]
    if base + "_scale_2" in tensors:
        blocks = np.roll(e4m3(scale), roll, axis=1)
        return numbers * spread(blocks, 1, 16, numbers.shape) * tensors[base + "_scale_2"].reshape(())
    return numbers * spread(np.ldexp(np.float32(1), scale.astype(np.int32) - 127), 1, 32, numbers.shape)
