"""Checkpoints written by compressed-tensors and nvidia-modelopt (tests/gen/foreign_roundtrip.py) mean here what they mean there.

Each golden folder holds the files as the package wrote them and, in expected.npz, the package's own dequantisation.
"""

import hashlib
import json
import pathlib
import shutil

import ml_dtypes
import numpy as np
import pytest
import quantize_reference as ref
import weights_probe

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "gen" / "goldens_foreign"
RECIPES = {"packed_nvfp4": "nvfp4-w4a16", "packed_nvfp4a16": "nvfp4-w4a16", "packed_mxfp4a16": "mxfp4-w4a16",
           "packed_fp8": "fp8-tensor", "packed_fp8_dynamic": "fp8-tensor", "packed_fp8_block": "fp8-block",
           "modelopt_nvfp4": "nvfp4-w4a16", "modelopt_fp8": "fp8-tensor"}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def load(name, tmp_path):
    folder = tmp_path / name
    shutil.copytree(GOLDENS / name, folder)
    config = json.loads((folder / "config.json").read_text())
    config["probe"] = {}
    (folder / "config.json").write_text(json.dumps(config))
    found, facts = weights_probe.load(folder)
    return found, facts, weights_probe.check(folder)


def module_of(name):
    part, layer, *expert = name.split(".")
    if not expert:
        return f"model.layers.{layer}.self_attn.{part}_proj"
    return f"model.layers.{layer}.mlp.experts.{expert[0]}.{part}_proj"


def quantised(found, expected):
    """[(our name, module)] of all matrices that the package dequantised and the probe decodes."""
    pairs = [(n, module_of(n)) for n in found if n.split(".")[0] in ("gate", "up", "down", "q")]
    return [(n, m) for n, m in pairs if m in expected]


def test_manifest():
    manifest = json.loads((GOLDENS / "manifest.json").read_text())
    files = {str(p.relative_to(GOLDENS)) for p in GOLDENS.rglob("*") if p.is_file()} - {"manifest.json"}
    assert set(manifest["sha256"]) == files
    for name, digest in manifest["sha256"].items():
        assert hashlib.sha256((GOLDENS / name).read_bytes()).hexdigest() == digest, name
    assert {name.split("/")[0] for name in files} == set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_values(tmp_path, name):
    found, facts, report = load(name, tmp_path)
    expected = np.load(GOLDENS / name / "expected.npz")
    assert report["ok"], report["findings"]
    assert facts["recipes"]["experts.0"] == RECIPES[name]
    pairs = quantised(found, expected)
    assert len([n for n, _ in pairs if not n.startswith("q.")]) == 6
    for ours, module in pairs:
        want = expected[module]
        assert np.abs(want).max() > 0.05
        if "nvfp4" in name:
            # They round scale times scale first, we round the product of all three once.
            assert (np.abs(found[ours] - want) <= 2 * np.spacing(np.abs(want))).all(), module
        else:
            weights_probe.assert_same({module: found[ours]}, {module: want})


def nvfp4_by_definition(stored, module):
    """code x block scale x tensor scale in float32, the first product being exact."""
    packed = f"{module}.weight_packed" in stored
    codes = stored[f"{module}.weight_packed" if packed else f"{module}.weight"]
    values = np.stack([E2M1[codes & 15], E2M1[codes >> 4]], -1).reshape(codes.shape[0], -1)
    blocks = stored[f"{module}.weight_scale"].astype(np.float32)
    whole = np.float32(1) / stored[f"{module}.weight_global_scale"].reshape(()) if packed else stored[f"{module}.weight_scale_2"]
    return values * np.repeat(blocks, 16, -1) * whole


@pytest.mark.parametrize("name", [n for n in RECIPES if "nvfp4" in n])
def test_nvfp4_bits(tmp_path, name):
    found, _, _ = load(name, tmp_path)
    stored = ref.load(GOLDENS / name)
    expected = np.load(GOLDENS / name / "expected.npz")
    for ours, module in quantised(found, expected):
        weights_probe.assert_same({module: found[ours]}, {module: nvfp4_by_definition(stored, module)})


@pytest.mark.parametrize(("name", "tensor", "reciprocal"), [
    ("packed_nvfp4", "input_global_scale", True), ("packed_fp8", "input_scale", False),
    ("modelopt_nvfp4", "input_scale", False), ("modelopt_fp8", "input_scale", False)])
def test_input_scales(tmp_path, name, tensor, reciprocal):
    found, _, _ = load(name, tmp_path)
    stored = ref.load(GOLDENS / name)
    for part in ("gate", "up", "down"):
        scales = [stored[f"model.layers.0.mlp.experts.{e}.{part}_proj.{tensor}"].reshape(()) for e in range(2)]
        want = np.array([np.float32(1) / s if reciprocal else s for s in scales], np.float32)
        weights_probe.assert_same({part: found[f"input.{part}.0"]}, {part: want})


def test_the_goldens_are_bfloat16_models():
    for name in RECIPES:
        stored = ref.load(GOLDENS / name)
        assert stored["lm_head.weight"].dtype == ml_dtypes.bfloat16, name
