"""An NVFP4 checkpoint under SGLang's names of runners, and through the physical layouts of their kernels."""

import json
import os
import pathlib
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
MODEL = ROOT / "models" / "qwen3_moe"


def sluice(*arguments):
    return subprocess.run([str(SLUICE), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)


def nvfp4(weight):
    """{suffix: tensor} in ModelOpt's convention, codes rounded to nearest."""
    rows, cols = weight.shape
    scale2 = np.float32(np.abs(weight).max() / (448 * 6))
    blocks = weight.reshape(rows, cols // 16, 16)
    scale = (np.abs(blocks).max(-1) / 6 / scale2).astype(ml_dtypes.float8_e4m3fn)
    codes = (blocks / np.maximum(scale.astype(np.float32) * scale2, 1e-30)[..., None]).clip(-6, 6)
    codes = codes.reshape(rows, cols).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    return {"weight": codes[:, 0::2] | codes[:, 1::2] << 4, "weight_scale": scale, "weight_scale_2": np.array([scale2]),
            "input_scale": np.array([0.004], np.float32)}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The bundled model with its experts in NVFP4, as ModelOpt would write it."""
    folder = tmp_path_factory.mktemp("nvfp4") / "model"
    shutil.copytree(MODEL, folder)
    tensors = {}
    for shard in sorted(folder.glob("*.safetensors")):
        if shard.name != "reference.safetensors":
            tensors.update(load_file(shard))
            shard.unlink()
    (folder / "model.safetensors.index.json").unlink()
    for name in [n for n in tensors if ".mlp.experts." in n]:
        weight = tensors.pop(name).astype(np.float32)
        for suffix, value in nvfp4(weight).items():
            tensors[name.removesuffix("weight") + suffix] = value
    save_file(tensors, folder / "model.safetensors")
    quantization = {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None,
                    "exclude_modules": ["lm_head", "*self_attn*", "*mlp.gate"]}
    (folder / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": quantization}))
    return folder


@pytest.mark.parametrize("flags,recipe", [
    ([], "nvfp4-w4a16"),
    (["--moe-runner-backend", "marlin"], "nvfp4-w4a16"),
    (["--moe-runner-backend", "flashinfer_cutedsl", "--quantization", "modelopt_fp4"], "nvfp4-w4a4/cutedsl"),
    (["--moe-runner-backend", "flashinfer_cutlass"], "nvfp4-w4a4/cutlass"),
    (["--recipe", "nvfp4-w4a4/cutlass"], "nvfp4-w4a4/cutlass"),
])
def test_names_select_the_recipe(checkpoint, flags, recipe):
    done = sluice("run", checkpoint, "-p", "Question:", "-n", "4", *flags)
    assert done.returncode == 0, done.stderr
    assert f"recipe {recipe}, runner" in done.stderr, done.stderr


@pytest.mark.parametrize("flags,parts", [
    (["--moe-runner-backend", "flashinfer_mxfp4"], ["experts stored as nvfp4", "flashinfer_cutedsl", "marlin"]),
    (["--quantization", "mxfp4"], ["experts stored as nvfp4", "modelopt_fp4"]),
    (["--moe-runner-backend", "flashinfer_cutlass", "--quantization", "compressed-tensors"], ["modelopt_fp4, modelopt_fp8"]),
])
def test_pairs_that_do_not_go_together(checkpoint, flags, parts):
    done = sluice("run", checkpoint, "-p", "Question:", *flags)
    assert done.returncode == 4 and done.stdout == "", done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr


@pytest.mark.parametrize("recipe", ["nvfp4-w4a16", "nvfp4-w4a4/cutedsl", "nvfp4-w4a4/cutlass"])
@pytest.mark.parametrize("layout", ["cutedsl", "cutlass", "rows8", "rows1"])
def test_layouts_give_the_bits_of_the_reference(checkpoint, tmp_path, layout, recipe):
    rows = np.random.default_rng(3).standard_normal((5, 256), np.float32)
    save_file({"hidden": rows}, tmp_path / "in.safetensors")
    outputs = []
    for runner in ("reference", f"reference/{layout}"):
        done = sluice("layer", checkpoint, "--layer", 1, "--hidden", tmp_path / "in.safetensors", "--out",
                      tmp_path / "out.safetensors", "--moe-runner-backend", runner, "--recipe", recipe)
        assert done.returncode == 0, done.stderr
        outputs.append(load_file(tmp_path / "out.safetensors")["output"])
    assert np.abs(outputs[0]).max() > 0
    assert outputs[0].tobytes() == outputs[1].tobytes()
