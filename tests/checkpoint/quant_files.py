"""Tiny quantised checkpoints in every dialect, with the float32 values that they stand for.

Codes and scales are drawn at random, so nothing here quantises; what they mean is computed with numpy and ml_dtypes. A
Model is a set of tensors and configuration objects that a test may damage before it is written.
"""

import json
import pathlib
import struct

import ml_dtypes
import numpy as np

HIDDEN, INNER, EXPERTS, LAYERS, VOCAB = 192, 160, 3, 2, 48
PROJECTIONS = {"gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
NAMES = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.uint8): "U8", np.dtype(np.int8): "I8",
         np.dtype(np.int32): "I32", np.dtype(ml_dtypes.bfloat16): "BF16", np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3",
         np.dtype(ml_dtypes.float8_e8m0fnu): "F8_E8M0"}
F32, BF16 = np.float32, ml_dtypes.bfloat16
E4M3, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu


def write_safetensors(path, tensors):
    header, offset, blobs = {}, 0, []
    for name, array in sorted(tensors.items()):
        blob = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


class Model:
    """tensors: name -> array as stored; expected: name as the probe gives it -> float32."""

    def __init__(self, seed=1):
        self.rng = np.random.default_rng(seed)
        self.tensors, self.expected, self.sidecar = {}, {}, None
        self.config = {"hidden_size": HIDDEN, "moe_intermediate_size": INNER, "num_experts": EXPERTS,
                       "num_hidden_layers": LAYERS, "vocab_size": VOCAB, "probe": {}}

    def save(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        if self.sidecar is not None:
            (folder / "hf_quant_config.json").write_text(json.dumps(self.sidecar))
        write_safetensors(folder / "model.safetensors", self.tensors)
        return folder

    # Random material.
    def codes4(self, rows, cols):
        return self.rng.integers(0, 256, (rows, cols // 2), np.uint8)

    def e4m3(self, *shape, positive=False):
        bits = self.rng.integers(0, 0x7F, shape, np.uint8)
        if not positive:
            bits |= self.rng.integers(0, 2, shape, np.uint8) << 7
        return bits.view(E4M3)

    def e8m0(self, *shape):
        return self.rng.integers(118, 134, shape, np.uint8)

    def scale(self, *shape):
        return self.rng.uniform(0.001, 0.02, shape).astype(F32)

    # Weights without a format.
    def plain(self, module, expected, shape, dtype=BF16):
        w = self.rng.standard_normal(shape).astype(dtype)
        self.tensors[module + ".weight"] = w
        self.expected[expected] = w.astype(F32)

    def plain_rest(self, output=True):
        if output:
            self.plain("lm_head", "output", (VOCAB, HIDDEN))
        for layer in range(LAYERS):
            self.plain(f"model.layers.{layer}.self_attn.q_proj", f"q.{layer}", (HIDDEN, HIDDEN))
            self.plain(f"model.layers.{layer}.mlp.gate", f"router.{layer}", (EXPERTS, HIDDEN))

    def experts(self, add, layers=range(LAYERS), **options):
        """`add` stores one matrix: (module, expected, shape, **options) -> input scale or None."""
        for layer in layers:
            for name, shape in PROJECTIONS.items():
                scales = []
                for e in range(EXPERTS):
                    module = f"model.layers.{layer}.mlp.experts.{e}.{name}_proj"
                    scales.append(add(module, f"{name}.{layer}.{e}", shape, **options))
                if scales[0] is not None:
                    self.expected[f"input.{name}.{layer}"] = np.array(scales, F32)


def unpack(codes):
    """[.., n] bytes -> [.., 2n] values, the low nibble first."""
    return np.stack([E2M1[codes & 15], E2M1[codes >> 4]], -1).reshape(*codes.shape[:-1], -1)


def spread(scales, rows, cols, shape):
    """A grid of scales over a matrix of `shape`."""
    return np.repeat(np.repeat(scales.astype(F32), rows, -2), cols, -1)[..., :shape[0], :shape[1]]


def exponents(codes):
    return codes.view(E8M0).astype(F32)


# The dialects: each stores one matrix, notes what it stands for, and returns its input scale as a multiplier.

def modelopt_nvfp4(m, module, expected, shape, inputs=True, scalar=()):
    rows, cols = shape
    codes, blocks = m.codes4(rows, cols), m.e4m3(rows, cols // 16, positive=True)
    scale, x = m.scale(*scalar), m.scale(*scalar)
    m.tensors.update({module + ".weight": codes, module + ".weight_scale": blocks, module + ".weight_scale_2": np.asarray(scale)})
    m.expected[expected] = unpack(codes) * spread(blocks, 1, 16, shape) * F32(scale.reshape(()))
    if not inputs:
        return None
    m.tensors[module + ".input_scale"] = np.asarray(x)
    return F32(x.reshape(()))


def packed_nvfp4(m, module, expected, shape, inputs=True):
    rows, cols = shape
    codes, blocks = m.codes4(rows, cols), m.e4m3(rows, cols // 16, positive=True)
    scale, x = (m.rng.uniform(100, 3000, 1).astype(F32) for _ in range(2))
    m.tensors.update({module + ".weight_packed": codes, module + ".weight_scale": blocks, module + ".weight_global_scale": scale})
    m.expected[expected] = unpack(codes) * spread(blocks, 1, 16, shape) * (F32(1) / scale[0])
    if not inputs:
        return None
    m.tensors[module + ".input_global_scale"] = x
    return F32(1) / x[0]


def packed_mxfp4(m, module, expected, shape):
    rows, cols = shape
    codes, blocks = m.codes4(rows, cols), m.e8m0(rows, cols // 32)
    m.tensors.update({module + ".weight_packed": codes, module + ".weight_scale": blocks})
    m.expected[expected] = unpack(codes) * spread(exponents(blocks), 1, 32, shape)


def deepseek_mxfp4(m, module, expected, shape, suffix=".scale"):
    rows, cols = shape
    codes, blocks = m.codes4(rows, cols), m.e8m0(rows, cols // 32)
    m.tensors.update({module + ".weight": codes.view(np.int8), module + suffix: blocks.view(E8M0)})
    m.expected[expected] = unpack(codes) * spread(exponents(blocks), 1, 32, shape)


def fp8_tensor(m, module, expected, shape, inputs=True, scalar=(), dtype=F32):
    codes, scale, x = m.e4m3(*shape), m.scale(*scalar).astype(dtype), m.scale(*scalar)
    m.tensors.update({module + ".weight": codes, module + ".weight_scale": np.asarray(scale)})
    m.expected[expected] = codes.astype(F32) * F32(scale.reshape(()))
    if not inputs:
        return None
    m.tensors[module + ".input_scale"] = np.asarray(x)
    return F32(x.reshape(()))


def fp8_channel(m, module, expected, shape, dtype=F32):
    codes, scale = m.e4m3(*shape), m.scale(shape[0], 1).astype(dtype)
    m.tensors.update({module + ".weight": codes, module + ".weight_scale": scale})
    m.expected[expected] = codes.astype(F32) * scale.astype(F32)


def fp8_block(m, module, expected, shape, dtype=F32, suffix=".weight_scale_inv"):
    grid = (-(-shape[0] // 128), -(-shape[1] // 128))
    codes = m.e4m3(*shape)
    scale = m.e8m0(*grid).view(E8M0) if dtype == E8M0 else m.scale(*grid).astype(dtype)
    m.tensors.update({module + ".weight": codes, module + suffix: scale})
    m.expected[expected] = codes.astype(F32) * spread(scale.astype(F32), 128, 128, shape)


def bind(dialect, m):
    return lambda module, expected, shape, **options: dialect(m, module, expected, shape, **options)


def gpt_oss(m, layer):
    """Stacked blocks with interleaved rows and biases."""
    stem = f"model.layers.{layer}.mlp.experts."
    for name, (rows, cols) in {"gate_up_proj": (2 * INNER, HIDDEN), "down_proj": (HIDDEN, INNER)}.items():
        codes = m.rng.integers(0, 256, (EXPERTS, rows, cols // 32, 16), np.uint8)
        blocks = m.e8m0(EXPERTS, rows, cols // 32)
        bias = m.rng.standard_normal((EXPERTS, rows)).astype(BF16)
        m.tensors.update({stem + name + "_blocks": codes, stem + name + "_scales": blocks, stem + name + "_bias": bias})
        values = unpack(codes.reshape(EXPERTS, rows, cols // 2)) * np.repeat(exponents(blocks), 32, -1)
        for e in range(EXPERTS):
            parts = {"down": slice(None)} if name == "down_proj" else {"gate": slice(0, None, 2), "up": slice(1, None, 2)}
            for part, rows_of in parts.items():
                m.expected[f"{part}.{layer}.{e}"] = values[e][rows_of]
                m.expected[f"{part}_bias.{layer}.{e}"] = bias[e].astype(F32)[rows_of]


def stacked_fp8(m, layer, transposed=False):
    """All experts in one tensor, with a scale for each expert and half, gate first in the scales and in the rows."""
    stem = f"model.layers.{layer}.mlp.experts."
    for name, (rows, cols), halves in (("gate_up_proj", (2 * INNER, HIDDEN), 2), ("down_proj", (HIDDEN, INNER), 1)):
        codes, scale = m.e4m3(EXPERTS, rows, cols), m.scale(EXPERTS, halves)
        m.tensors[stem + name] = codes.swapaxes(1, 2) if transposed else codes
        m.tensors[stem + name + "_weight_scale"] = scale
        for e in range(EXPERTS):
            for half, part in enumerate(("gate", "up") if halves == 2 else ("down",)):
                step = rows // halves
                m.expected[f"{part}.{layer}.{e}"] = codes[e, half * step:(half + 1) * step].astype(F32) * scale[e, half]


def stacked_fp8_block(m, layer, transposed=False):
    """All experts of a projection in one tensor, with a grid of scales that lies as the codes do."""
    for name, shape in PROJECTIONS.items():
        module = f"model.layers.{layer}.mlp.experts.{name}_proj"
        codes, scale = m.e4m3(EXPERTS, *shape), m.scale(EXPERTS, -(-shape[0] // 128), -(-shape[1] // 128))
        m.tensors[module] = codes.swapaxes(1, 2) if transposed else codes
        m.tensors[module + "_scale_inv"] = scale.swapaxes(1, 2) if transposed else scale
        for e in range(EXPERTS):
            m.expected[f"{name}.{layer}.{e}"] = codes[e].astype(F32) * spread(scale[e], 128, 128, shape)


# Descriptions.

def modelopt_sidecar(algo="NVFP4", exclude=("lm_head", "*self_attn*", "*mlp.gate"), **more):
    return {"producer": {"name": "modelopt", "version": "0.29"},
            "quantization": {"quant_algo": algo, "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": list(exclude), **more}}


def modelopt_flat(inputs="fixed", ignore=("lm_head", "*self_attn*", "*mlp.gate"), **more):
    activations = {"fixed": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}, None: None}[inputs]
    return {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": list(ignore),
            "config_groups": {"group_0": {"input_activations": activations, "targets": ["Linear"],
                                          "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}}}, **more}


def packed_config(fmt, weights, inputs=None, ignore=("lm_head", r"re:.*self_attn.*", r"re:.*mlp\.gate$")):
    return {"quant_method": "compressed-tensors", "format": fmt, "quantization_status": "compressed", "ignore": list(ignore),
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}}}


def fp8_config(**more):
    return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head", "self_attn", "mlp.gate"], **more}


FP4_WEIGHTS = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "dynamic": False}
FP4_INPUTS = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "dynamic": "local"}
MX_WEIGHTS = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "dynamic": False}


def fp8_weights(strategy, **more):
    return {"num_bits": 8, "type": "float", "strategy": strategy, "dynamic": False, **more}


def good_modelopt(seed=1, **options):
    """The model that most damaged ones are made from."""
    m = Model(seed)
    m.plain_rest()
    m.experts(bind(modelopt_nvfp4, m), **options)
    m.sidecar = modelopt_sidecar()
    return m


def good_packed(seed=1, **options):
    m = Model(seed)
    m.plain_rest()
    m.experts(bind(packed_nvfp4, m), **options)
    m.config["quantization_config"] = packed_config("nvfp4-pack-quantized", FP4_WEIGHTS, FP4_INPUTS)
    return m


def good_block(seed=1, **options):
    m = Model(seed)
    m.plain_rest()
    m.experts(bind(fp8_block, m), **options)
    m.config["quantization_config"] = fp8_config()
    return m
