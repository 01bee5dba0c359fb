"""Damaged and contradictory checkpoints, each made from one good tiny model (quant_files.py) by one change. Used by test_corpus.py."""

import numpy as np
from quant_files import *  # noqa: F403

M = "model.layers.1.mlp.experts.2.down_proj"
BAD_INPUT, UNSUPPORTED = 3, 4
CORPUS = {}


def case(make, *parts, code=BAD_INPUT, kind=None):
    """Registers a change of make()'s model; `parts` must all be in the message."""
    def keep(change):
        assert change.__name__ not in CORPUS
        CORPUS[change.__name__] = (make, change, parts, code, kind)
        return change
    return keep


def poke(m, name, value, index=()):
    array = np.array(m.tensors[name])
    array[index] = value
    m.tensors[name] = array


# Scales of whole matrices.

@case(good_modelopt, f'{M}.weight"', "its scale", f"{M}.weight_scale_2", "is missing", kind="missing")
def tensor_scale_missing(m):
    del m.tensors[M + ".weight_scale_2"]


@case(good_modelopt, f"{M}.weight_scale_2", "expert 2: the scale is NaN", kind="scale")
def tensor_scale_nan(m):
    poke(m, M + ".weight_scale_2", np.nan)


@case(good_modelopt, "expert 2: the scale is zero", kind="scale")
def tensor_scale_zero(m):
    poke(m, M + ".weight_scale_2", 0)


@case(good_modelopt, "expert 2: the scale is negative", kind="scale")
def tensor_scale_negative(m):
    poke(m, M + ".weight_scale_2", -0.01)


@case(good_modelopt, "expert 2: the scale is denormal", "clamp-denormal", kind="scale")
def tensor_scale_denormal(m):
    poke(m, M + ".weight_scale_2", 1e-40)


@case(good_packed, f"{M}.weight_global_scale", "the scale is infinite", kind="scale")
def reciprocal_infinite(m):
    poke(m, M + ".weight_global_scale", np.inf)


@case(good_packed, f"{M}.weight_global_scale", "the scale is denormal", kind="scale")
def reciprocal_too_large(m):
    poke(m, M + ".weight_global_scale", 2e38)


@case(good_modelopt, f"{M}.weight_scale_2", "shape: found [3]", kind="shape")
def tensor_scale_of_three(m):
    m.tensors[M + ".weight_scale_2"] = m.scale(3)


# Input scales.

@case(good_modelopt, "layer 1", "1 of 3 experts have no valid input scale: 2", "fill-missing", "down_proj", kind="missing")
def input_scale_missing(m):
    del m.tensors[M + ".input_scale"]


@case(good_modelopt, f"{M}.input_scale", "expert 2: the scale is NaN", "fill-invalid", kind="scale")
def input_scale_nan(m):
    poke(m, M + ".input_scale", np.nan)


@case(good_modelopt, f"{M}.input_scale", "expert 2: the scale is zero", kind="scale")
def input_scale_zero(m):
    poke(m, M + ".input_scale", 0)


@case(good_modelopt, f"{M}.input_scale", "expert 2: the scale is denormal", kind="scale")
def input_scale_denormal(m):
    poke(m, M + ".input_scale", 1e-40)


@case(good_packed, f"{M}.input_global_scale", "the scale is infinite", kind="scale")
def input_reciprocal_infinite(m):
    poke(m, M + ".input_global_scale", np.inf)


@case(good_modelopt, "layer 0", "3 of 3 experts have no valid input scale", kind="missing")
def input_scales_of_a_layer_missing(m):
    for e in range(EXPERTS):
        del m.tensors[f"model.layers.0.mlp.experts.{e}.up_proj.input_scale"]


@case(lambda: good_packed(inputs=False), "there is no input scale in the checkpoint", "compressed-tensors", "weight-only",
      kind="conflict")
def input_scales_described_but_absent(m):
    m.config["quantization_config"] = packed_config("nvfp4-pack-quantized", FP4_WEIGHTS, FP4_INPUTS)


# Block scales.

@case(good_modelopt, f"{M}.weight", "its scale", f"{M}.weight_scale", "is missing", kind="missing")
def block_scales_missing(m):
    del m.tensors[M + ".weight_scale"]


@case(good_modelopt, f"{M}.weight_scale", "scale [7, 3] is NaN", kind="scale")
def block_scale_nan(m):
    poke(m, M + ".weight_scale", np.nan, (7, 3))


@case(good_modelopt, f"{M}.weight_scale", "scale [0, 1] is negative", kind="scale")
def block_scale_negative(m):
    poke(m, M + ".weight_scale", -1, (0, 1))


@case(good_modelopt, f"{M}.weight_scale", "dtype: found U8; expected F8_E4M3", kind="dtype")
def block_scales_of_another_type(m):
    m.tensors[M + ".weight_scale"] = m.tensors[M + ".weight_scale"].view(np.uint8)


@case(good_modelopt, f"{M}.weight_scale", "shape: found [192, 5]; expected [192, 10]", kind="shape")
def block_scales_of_half_the_blocks(m):
    m.tensors[M + ".weight_scale"] = m.tensors[M + ".weight_scale"][:, :5]


@case(good_block, f"{M}.weight_scale_inv", "scale [1, 0] is zero", kind="scale")
def fp8_block_scale_zero(m):
    poke(m, M + ".weight_scale_inv", 0, (1, 0))


def good_mx():
    m = Model()
    m.plain_rest()
    for layer in range(LAYERS):
        gpt_oss(m, layer)
    m.config["probe"] = {"stacked": True, "order": "interleaved", "transposed": True, "bias": True}
    m.config["quantization_config"] = {"quant_method": "mxfp4"}
    return m


STACK = "model.layers.1.mlp.experts.gate_up_proj"


@case(good_mx, f"{STACK}_scales", "scale [2, 9, 4] is NaN", kind="scale")
def exponent_nan(m):
    poke(m, STACK + "_scales", 0xFF, (2, 9, 4))


@case(good_mx, f"{STACK}_scales", "scale [2, 9, 4] is 2^126", "bf16", kind="scale")
def exponent_beyond_bf16(m):
    poke(m, STACK + "_scales", 127 + 126, (2, 9, 4))


@case(good_mx, f"{STACK}_blocks", "its scale", "is missing", kind="missing")
def exponents_missing(m):
    del m.tensors[STACK + "_scales"]


@case(good_mx, f"{STACK}_bias", "missing", kind="missing")
def bias_missing(m):
    del m.tensors[STACK + "_bias"]


# Weights.

@case(good_modelopt, "1 of 3 expert tensors of a layer are missing", f"{M}.weight", kind="missing")
def weight_missing(m):
    for end in ("weight", "weight_scale", "weight_scale_2", "input_scale"):
        del m.tensors[f"{M}.{end}"]


@case(good_modelopt, f"{M}.weight", "shape: found [160, 96]; expected [192, 80]", kind="shape")
def weight_of_another_projection(m):
    m.tensors[M + ".weight"] = m.tensors["model.layers.1.mlp.experts.2.up_proj.weight"]


@case(good_block, f"{M}.weight", "shape: found [160, 192]; expected [192, 160]", kind="shape")
def weight_transposed(m):
    m.tensors[M + ".weight"] = np.ascontiguousarray(m.tensors[M + ".weight"].T)


@case(good_modelopt, f"{M}.weight", "stored as bf16; expected nvfp4", code=UNSUPPORTED, kind="unsupported")
def one_expert_unquantised(m):
    for end in ("weight_scale", "weight_scale_2", "input_scale"):
        del m.tensors[f"{M}.{end}"]
    m.plain(M, "down.1.2", (HIDDEN, INNER))


@case(good_modelopt, "stored as fp8-tensor; expected nvfp4", code=UNSUPPORTED, kind="unsupported")
def down_in_another_format(m):
    m.sidecar = {"quantization": {"quant_algo": ""}}
    for layer in range(LAYERS):
        for e in range(EXPERTS):
            module = f"model.layers.{layer}.mlp.experts.{e}.down_proj"
            for end in ("weight_scale", "weight_scale_2", "input_scale"):
                m.tensors.pop(f"{module}.{end}")
            fp8_tensor(m, module, "unused", (HIDDEN, INNER))


@case(good_modelopt, f"{M}.weight", "it is BF16, but", f"{M}.weight_scale", "lies beside it", kind="conflict")
def scales_beside_a_plain_weight(m):
    m.plain(M, "down.1.2", (HIDDEN, INNER))


@case(good_modelopt, f"{M}.pre_quant_scale", "the input is scaled before", code=UNSUPPORTED, kind="unsupported")
def smoothed_weights(m):
    m.tensors[M + ".pre_quant_scale"] = m.scale(INNER)


@case(good_block, "both weight_scale and weight_scale_inv", kind="conflict")
def two_scales(m):
    m.tensors[M + ".weight_scale"] = m.tensors[M + ".weight_scale_inv"]


@case(good_block, "stored as mxfp8", code=UNSUPPORTED)
def mx_scaled_fp8(m):
    for name in [n for n in m.tensors if n.endswith("weight_scale_inv")]:
        rows, cols = m.tensors[name.replace("_scale_inv", "")].shape
        del m.tensors[name]
        m.tensors[name.replace("_inv", "")] = m.e8m0(rows, cols // 32)
    m.config["quantization_config"]["weight_block_size"] = None


@case(good_packed, "integer codes (pack-quantized)", code=UNSUPPORTED, kind="unsupported")
def int4_codes(m):
    for name in [n for n in m.tensors if n.endswith("weight_packed")]:
        m.tensors[name] = m.tensors[name].view(np.int32)


# What the description says.

@case(good_modelopt, "named as modelopt names them", "the names of compressed-tensors", "config.json", kind="conflict")
def described_as_compressed_tensors(m):
    m.sidecar = None
    m.config["quantization_config"] = packed_config("nvfp4-pack-quantized", FP4_WEIGHTS, FP4_INPUTS)


@case(good_packed, "named as compressed-tensors names them", "modelopt", kind="conflict")
def described_as_modelopt(m):
    m.config["quantization_config"] = modelopt_flat()


@case(good_modelopt, "stored as nvfp4", "fp8-tensor, as", "hf_quant_config.json: quantization: quant_algo: FP8", kind="conflict")
def described_as_fp8(m):
    m.sidecar = modelopt_sidecar(algo="FP8")


@case(good_modelopt, "blocks of 1 x 32", "1 x 16, the blocks of nvfp4", kind="conflict")
def described_with_another_group(m):
    m.sidecar = modelopt_sidecar(group_size=32)


@case(good_block, "blocks of 64 x 64", "128 x 128", code=UNSUPPORTED)
def described_with_another_block(m):
    m.config["quantization_config"]["weight_block_size"] = [64, 64]


@case(good_modelopt, 'quant_algo: found "NVFP4" but', 'is "FP8"')
def two_descriptions_that_differ(m):
    m.config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "FP8"}


@case(good_modelopt, 'quant_algo: found "W4A8_AWQ"', "NVFP4", code=UNSUPPORTED)
def unknown_algorithm(m):
    m.sidecar = modelopt_sidecar(algo="W4A8_AWQ")


@case(good_modelopt, 'quant_method: found "awq"', "modelopt, compressed-tensors, fp8 or mxfp4", code=UNSUPPORTED)
def unknown_method(m):
    m.sidecar, m.config["quantization_config"] = None, {"quant_method": "awq", "bits": 4}


@case(good_packed, "num_bits 4, type", '"int"', code=UNSUPPORTED)
def described_as_integers(m):
    m.config["quantization_config"] = packed_config("pack-quantized", {"num_bits": 4, "type": "int", "strategy": "group"})


@case(good_modelopt, "MIXED_PRECISION", "quantized_layers")
def mixed_without_layers(m):
    m.sidecar = {"quantization": {"quant_algo": "MIXED_PRECISION"}}


@case(good_packed, "ignore", "quantization_config")
def broken_expression(m):
    m.config["quantization_config"]["ignore"] = ["re:*("]


# Adapters.

@case(good_modelopt, "LoRA adapter for", "model.layers.0.self_attn.q_proj", "merge", code=UNSUPPORTED)
def adapter_tensors(m):
    m.tensors["model.layers.0.self_attn.q_proj.lora_A.weight"] = m.scale(8, HIDDEN)
    m.tensors["model.layers.0.self_attn.q_proj.lora_B.weight"] = m.scale(HIDDEN, 8)
