"""Every dialect of quantised checkpoints decodes to the values that numpy and ml_dtypes give, bit for bit."""


import numpy as np
import pytest
import weights_probe
from quant_files import *  # noqa: F403

GOOD = {}


def good(make):
    GOOD[make.__name__] = make
    return make


@good
def modelopt_old():
    return good_modelopt(), "nvfp4-w4a16"


@good
def modelopt_flat_only():
    m = good_modelopt()
    m.sidecar, m.config["quantization_config"] = None, modelopt_flat()
    return m, "nvfp4-w4a16"


@good
def modelopt_both():
    m = good_modelopt()
    m.config["quantization_config"] = modelopt_flat()
    return m, "nvfp4-w4a16"


@good
def modelopt_blank_algorithm():
    m = good_modelopt()
    m.sidecar = modelopt_sidecar(algo="")
    return m, "nvfp4-w4a16"


@good
def modelopt_undescribed():
    m = good_modelopt()
    m.sidecar = None
    return m, "nvfp4-w4a16"


@good
def modelopt_scalars_of_rank_one():
    return good_modelopt(scalar=(1,)), "nvfp4-w4a16"


@good
def modelopt_weight_only_algorithm():
    m = good_modelopt(inputs=False)
    m.sidecar = modelopt_sidecar(algo="W4A16_NVFP4")
    return m, "nvfp4-w4a16"


@good
def modelopt_weight_only_null_activations():
    m = good_modelopt(inputs=False)
    m.sidecar, m.config["quantization_config"] = None, modelopt_flat(inputs=None)
    return m, "nvfp4-w4a16"


@good
def modelopt_weight_only_flag():
    m = good_modelopt(inputs=False)
    m.sidecar = modelopt_sidecar(with_input_scale=False)
    return m, "nvfp4-w4a16"


@good
def modelopt_weight_only_unsaid():
    return good_modelopt(inputs=False), "nvfp4-w4a16"


@good
def modelopt_router_not_excluded():
    m = good_modelopt()
    m.sidecar = modelopt_sidecar(exclude=("lm_head", "*self_attn*"))
    return m, "nvfp4-w4a16"


@good
def modelopt_quantised_head_though_excluded():
    m = Model()
    m.plain_rest(output=False)
    m.expected["input.output"] = np.array([modelopt_nvfp4(m, "lm_head", "output", (VOCAB, HIDDEN))], F32)
    m.experts(bind(modelopt_nvfp4, m))
    m.sidecar = modelopt_sidecar()
    return m, "nvfp4-w4a16"


@good
def modelopt_mixed_precision():
    m = Model()
    m.plain_rest()
    m.experts(bind(modelopt_nvfp4, m))
    layers = {}
    for layer in range(LAYERS):
        x = fp8_tensor(m, f"model.layers.{layer}.mlp.shared_expert.down_proj", f"shared_down.{layer}", (HIDDEN, INNER))
        m.expected[f"input.shared_down.{layer}"] = np.array([x], F32)
        layers[f"model.layers.{layer}.mlp.shared_expert.down_proj"] = {"quant_algo": "FP8"}
        layers[f"model.layers.{layer}.mlp.experts"] = {"quant_algo": "NVFP4", "group_size": 16}
    m.sidecar = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}}
    return m, "nvfp4-w4a16"


@good
def modelopt_fp8():
    m = Model()
    m.plain_rest()
    m.experts(bind(fp8_tensor, m))
    m.sidecar = modelopt_sidecar(algo="FP8", group_size=None)
    return m, "fp8-tensor"


@good
def modelopt_kv_scales():
    m = good_modelopt()
    m.sidecar["quantization"]["kv_cache_quant_algo"] = "FP8"
    for layer in range(LAYERS):
        m.tensors[f"model.layers.{layer}.self_attn.k_proj.k_scale"] = np.array(0.01, F32)
        m.tensors[f"model.layers.{layer}.self_attn.v_proj.v_scale"] = np.array(0.01, F32)
    return m, "nvfp4-w4a16"


@good
def hybrid_fp8_with_nvfp4_experts():
    m = Model()
    m.plain("lm_head", "output", (VOCAB, HIDDEN))
    for layer in range(LAYERS):
        fp8_block(m, f"model.layers.{layer}.self_attn.q_proj", f"q.{layer}", (HIDDEN, HIDDEN))
        m.plain(f"model.layers.{layer}.mlp.gate", f"router.{layer}", (EXPERTS, HIDDEN))
    m.experts(bind(modelopt_nvfp4, m))
    m.config["quantization_config"] = fp8_config(moe_quant_algo="NVFP4", modules_to_not_convert=["lm_head", "mlp.gate"])
    m.sidecar = modelopt_sidecar(exclude=())
    return m, "nvfp4-w4a16"


@good
def packed_fp4():
    return good_packed(), "nvfp4-w4a16"


@good
def packed_fp4_weight_only():
    m = good_packed(inputs=False)
    m.config["quantization_config"] = packed_config("nvfp4-pack-quantized", FP4_WEIGHTS)
    return m, "nvfp4-w4a16"


@good
def packed_mx():
    m = Model()
    m.plain_rest()
    m.experts(bind(packed_mxfp4, m))
    m.config["quantization_config"] = packed_config("mxfp4-pack-quantized", MX_WEIGHTS)
    return m, "mxfp4-w4a16"


@good
def packed_fp8_tensor():
    m = Model()
    m.plain_rest()
    m.experts(bind(fp8_tensor, m), scalar=(1,))
    fixed = fp8_weights("tensor")
    m.config["quantization_config"] = packed_config("float-quantized", fp8_weights("tensor"), fixed)
    return m, "fp8-tensor"


@pytest.mark.parametrize("dtype", [F32, BF16, np.float16])
def test_channel_scales(tmp_path, dtype):
    m = Model()
    m.plain_rest()
    m.experts(bind(fp8_channel, m), dtype=dtype)
    dynamic = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
    m.config["quantization_config"] = packed_config("float-quantized", fp8_weights("channel"), dynamic)
    expect_good(tmp_path, m, "fp8-tensor")


@pytest.mark.parametrize("dtype", [F32, BF16, E8M0])
def test_block_scales(tmp_path, dtype):
    expect_good(tmp_path, good_block(dtype=dtype), "fp8-block")


@good
def packed_fp8_block():
    m = good_block(suffix=".weight_scale")
    dynamic = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128, "dynamic": True}
    weights = fp8_weights("block", block_structure=[128, 128])
    m.config["quantization_config"] = packed_config("float-quantized", weights, dynamic)
    return m, "fp8-block"


@good
def block_of_one():
    """A matrix of a single block has one scale, as one with a tensor scale has; the name tells."""
    m = good_block()
    m.config["num_experts"] = EXPERTS
    fp8_block(m, "model.layers.0.mlp.shared_expert.down_proj", "shared_down.0", (HIDDEN, INNER))
    return m, "fp8-block"


@good
def gpt_oss_blocks():
    m = Model()
    m.plain_rest()
    for layer in range(LAYERS):
        gpt_oss(m, layer)
    # The unquantised files of this family are transposed; blocks never are.
    m.config["probe"] = {"stacked": True, "order": "interleaved", "transposed": True, "bias": True}
    m.config["quantization_config"] = {"quant_method": "mxfp4",
                                       "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head", "model.layers.*.mlp.gate"]}
    return m, "mxfp4-w4a16"


@pytest.mark.parametrize("suffix", [".scale", ".weight_scale_inv", ".weight_scale"])
def test_deepseek_packed_experts(tmp_path, suffix):
    m = Model()
    m.plain_rest()
    m.experts(bind(deepseek_mxfp4, m), suffix=suffix)
    m.config["quantization_config"] = fp8_config(expert_dtype="fp4", weight_block_size=None)
    expect_good(tmp_path, m, "mxfp4-w4a16")


@pytest.mark.parametrize("transposed", [False, True])
def test_stacked_fp8(tmp_path, transposed):
    """Layer 0 in one tensor for all experts, layer 1 in one an expert."""
    m = Model()
    m.plain_rest()
    stacked_fp8(m, 0, transposed)
    m.experts(bind(fp8_tensor, m), layers=[1], inputs=False)
    m.config["probe"] = {"stacked": True, "order": "gate_then_up", "transposed": transposed}
    m.config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "FP8", "with_input_scale": False}
    expect_good(tmp_path, m, "fp8-tensor")


@pytest.mark.parametrize("transposed", [False, True])
def test_stacked_fp8_blocks(tmp_path, transposed):
    m = Model()
    m.plain_rest()
    for layer in range(LAYERS):
        stacked_fp8_block(m, layer, transposed)
    m.config["probe"] = {"stacked": True, "order": "separate", "transposed": transposed}
    m.config["quantization_config"] = fp8_config()
    expect_good(tmp_path, m, "fp8-block")


@pytest.mark.parametrize("exclude", ["model.layers.1*", "model.layers.1", "*layers.1.mlp.experts*",
                                     "model.layers.1.mlp.experts.0.gate_proj"])
def test_one_layer_stays_bf16(tmp_path, exclude):
    m = Model()
    m.plain_rest()
    m.experts(bind(modelopt_nvfp4, m), layers=[0])
    m.experts(lambda module, expected, shape: m.plain(module, expected, shape), layers=[1])
    m.sidecar = modelopt_sidecar(exclude=("lm_head", "*self_attn*", "*mlp.gate", exclude))
    facts = expect_good(tmp_path, m, "nvfp4-w4a16", layers=[0])
    assert facts["recipes"]["experts.1"] == "bf16"
    assert {(f["format"], f["first"], f["last"]) for f in facts["formats"] if f["role"] == "experts"} == {
        ("nvfp4", 0, 0), ("bf16", 1, 1)}


def expect_good(folder, m, recipe, layers=range(LAYERS)):
    m.save(folder)
    found, facts = weights_probe.load(folder)
    weights_probe.assert_same(found, m.expected)
    assert facts["unused"] == []
    assert {facts["recipes"][f"experts.{layer}"] for layer in layers} == {recipe}
    report = weights_probe.check(folder)
    assert report["ok"], report["findings"]
    assert report["formats"] == facts["formats"]
    assert report["scheme"] == facts["scheme"]
    return facts


@pytest.mark.parametrize("name", GOOD)
def test_values(tmp_path, name):
    expect_good(tmp_path, *GOOD[name]())


@pytest.mark.parametrize(("name", "part"), [
    ("modelopt_kv_scales", "calibrated for FP8 (4 scales in the file)"),
    ("modelopt_quantised_head_though_excluded", "\"lm_head.weight\": weights are stored as nvfp4 although modelopt"),
])
def test_notes(tmp_path, name, part):
    m, _ = GOOD[name]()
    _, facts = weights_probe.load(m.save(tmp_path))
    assert any(part in note for note in facts["notes"]), facts["notes"]


def test_two_spellings_of_one_model(tmp_path):
    """With scales that are reciprocals of their reciprocals, both dialects give the same bits."""
    m = good_modelopt()
    other = good_packed()
    other.tensors, other.expected = dict(m.tensors), m.expected
    for name, array in m.tensors.items():
        if not name.endswith("weight_scale_2") and not name.endswith("input_scale"):
            continue
        scale = round_trip(array)
        m.tensors[name] = scale
        del other.tensors[name]
        kind = ".weight_global_scale" if name.endswith("_2") else ".input_global_scale"
        other.tensors[name.rsplit(".", 1)[0] + kind] = (F32(1) / scale).reshape(1)
    for name in [n for n in other.tensors if ".experts." in n and n.endswith(".weight")]:
        other.tensors[name + "_packed"] = other.tensors.pop(name)
    ours, _ = weights_probe.load(m.save(tmp_path / "modelopt"))
    theirs, _ = weights_probe.load(other.save(tmp_path / "packed"))
    weights_probe.assert_same(theirs, ours)


def round_trip(scale):
    scale = np.asarray(scale, F32)
    while True:
        back = (F32(1) / (F32(1) / scale)).astype(F32)
        if back == scale:
            return scale.reshape(())
        scale = back


def test_foreign_pair_differs_by_one_ulp_at_most(tmp_path):
    """A scale and the reciprocal that another exporter rounded: the decoded tensor scales are neighbours."""
    m, other = good_modelopt(), good_packed()
    _, _ = m.save(tmp_path / "a"), other.save(tmp_path / "b")
    name = "model.layers.0.mlp.experts.0.gate_proj"
    for scale in np.random.default_rng(3).uniform(1e-4, 1e-2, 8).astype(F32):
        decoded = F32(1) / (F32(1) / scale)
        assert abs(decoded - scale) <= np.spacing(scale)
    other.tensors[name + ".weight_global_scale"] = (F32(1) / np.asarray(m.tensors[name + ".weight_scale_2"])).reshape(1)
    other.tensors[name + ".weight_packed"] = m.tensors[name + ".weight"]
    other.tensors[name + ".weight_scale"] = m.tensors[name + ".weight_scale"]
    a, _ = weights_probe.load(m.save(tmp_path / "a"))
    b, _ = weights_probe.load(other.save(tmp_path / "b"))
    left, right = a["gate.0.0"], b["gate.0.0"]
    assert (np.abs(left - right) <= 2 * np.spacing(np.abs(left))).all()
