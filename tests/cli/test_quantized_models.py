"""The bundled models, quantised by `sluice quantize`, as the engine runs them: dialects, recipes, runners, answers."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
TEST, SHOTS = ROOT / "models/word_problems.test.jsonl", ROOT / "models/word_problems.shots.jsonl"
MODELS = ("qwen3_moe", "deepseek_v3", "gpt_oss")
CALIBRATED = ("--calibrate", SHOTS)
BAR = 0.935


def sluice(*arguments):
    return subprocess.run([str(SLUICE), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)


def good(*arguments):
    done = sluice(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    folders = {}

    def get(model, *flags):
        key = (model, *flags)
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("export") / "model"
            good("quantize", ROOT / "models" / model, folders[key], "-q", *flags)
        return folders[key]
    return get


@pytest.fixture(scope="session")
def hidden(tmp_path_factory):
    path = tmp_path_factory.mktemp("hidden") / "in.safetensors"
    save_file({"hidden": np.random.default_rng(3).standard_normal((9, 256)).astype(np.float32)}, path)
    return path


def layer(folder, hidden, tmp_path, *flags):
    out = tmp_path / "out.safetensors"
    good("layer", folder, "--layer", 2, "--hidden", hidden, "--out", out, "-q", *flags)
    return load_file(out)["output"]


PAIRS = {
    "nvfp4-w4a16": ("nvfp4", "modelopt", "compressed-tensors", ()),
    "nvfp4-w4a4/cutedsl": ("nvfp4", "modelopt", "compressed-tensors", CALIBRATED),
    "nvfp4-w4a4/cutlass": ("nvfp4", "modelopt", "compressed-tensors", CALIBRATED),
    "fp8-tensor": ("fp8", "modelopt", "compressed-tensors", CALIBRATED),
    "fp8-block": ("fp8-block", "deepseek", "compressed-tensors", ()),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("recipe", PAIRS)
def test_two_dialects_give_the_same_bits(exported, hidden, tmp_path, model, recipe):
    form, one, other, flags = PAIRS[recipe]
    outputs = [layer(exported(model, "--format", form, "--dialect", d, *flags), hidden, tmp_path, "--recipe", recipe) for d in (one, other)]
    assert np.isfinite(outputs[0]).all() and np.abs(outputs[0]).max() > 0
    assert (outputs[0].view(np.uint32) == outputs[1].view(np.uint32)).all()


@pytest.mark.parametrize("form,dialect", [("nvfp4", "modelopt"), ("nvfp4", "compressed-tensors"), ("mxfp4", ""), ("fp8", "compressed-tensors"), ("fp8-block", "")])
@pytest.mark.parametrize("model", MODELS)
def test_bf16_of_a_quantised_model_computes_what_it_computes(exported, hidden, tmp_path, model, form, dialect):
    """Reading our files back: decoded to bf16 and run without rounding, a layer is that of the quantised file."""
    quantised = exported(model, "--format", form, *(("--dialect", dialect) if dialect else ()))
    plain = tmp_path / "plain"
    good("quantize", quantised, plain, "--format", "bf16", "-q")
    got, want = (layer(folder, hidden, tmp_path, "--recipe", "f32") for folder in (plain, quantised))
    # One rounding of each weight to bf16, which only formats with float32 scales need.
    assert np.linalg.norm(got - want) <= (0 if form == "mxfp4" else 2.0 ** -8) * np.linalg.norm(want)
    assert "quantization_config" not in json.loads((plain / "config.json").read_text())


@pytest.mark.parametrize("one,other,flags", [("modelopt", "compressed-tensors", CALIBRATED), ("compressed-tensors", "modelopt", ())])
def test_changing_the_dialect_keeps_every_bit(exported, tmp_path, one, other, flags):
    direct = exported("qwen3_moe", "--format", "nvfp4", "--dialect", other, *flags)
    good("quantize", exported("qwen3_moe", "--format", "nvfp4", "--dialect", one, *flags), tmp_path / "out", "-q", "--format", "nvfp4", "--dialect", other)
    a, b = ((folder / "model.safetensors").read_bytes() for folder in (direct, tmp_path / "out"))
    skip = lambda data: 8 + int.from_bytes(data[:8], "little")  # headers hold the fingerprint of the source
    assert a[skip(a):] == b[skip(b):]


FITS = [("fp8", (), ["fp8-tensor"]), ("fp8", CALIBRATED, ["fp8-tensor"]), ("fp8-block", (), ["fp8-block"]), ("nvfp4", (), ["nvfp4-w4a16"]),
        ("nvfp4", CALIBRATED, ["nvfp4-w4a16", "nvfp4-w4a4/cutedsl", "nvfp4-w4a4/cutlass"]), ("mxfp4", (), ["mxfp4-w4a16", "mxfp4-w4a8"])]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("form,flags,recipes", FITS)
def test_the_models_answer_in_every_recipe(exported, tmp_path, model, form, flags, recipes):
    folder = exported(model, "--format", form, *flags)
    for recipe in recipes:
        good("eval", "gsm8k", folder, "--data", TEST, "--shots", SHOTS, "--num-shots", 0, "--num-questions", 16, "--threshold", BAR - 1e-9,
             "--recipe", recipe, "-q", "--json", tmp_path / "eval.json")
        assert json.loads((tmp_path / "eval.json").read_text())["questions"] == 16


@pytest.mark.parametrize("form,flags,recipes", FITS)
def test_both_runners_give_the_same_texts(exported, tmp_path, form, flags, recipes):
    """Two questions; scripts/accuracy.py asks 64 of each model."""
    folder = exported("qwen3_moe", "--format", form, *flags)
    for recipe in recipes:
        texts = []
        for runner in ("cpu", "reference"):
            good("eval", "gsm8k", folder, "--data", TEST, "--num-shots", 0, "--num-questions", 2, "--recipe", recipe, "--moe-runner-backend", runner,
                 "-q", "--json", tmp_path / "eval.json")
            texts.append(json.loads((tmp_path / "eval.json").read_text())["answers"])
        assert texts[0] == texts[1] and len(texts[0]) == 2 and all("####" in text for text in texts[0])


def test_distance_from_the_original(exported, tmp_path):
    def distance(folder):
        good("verify", folder, "--against", ROOT / "models/qwen3_moe", "--data", SHOTS, "-q", "--json", tmp_path / "d.json")
        return json.loads((tmp_path / "d.json").read_text())
    same, fp8, fp4 = (distance(f) for f in (ROOT / "models/qwen3_moe", exported("qwen3_moe", "--format", "fp8"), exported("qwen3_moe", "--format", "nvfp4")))
    assert same["mean_kl"] == 0 and same["same_top_token"] == 1 and same["tokens"] > 1000
    assert 0 < fp8["mean_kl"] < fp4["mean_kl"] < 0.05
    assert 0 < fp8["mean_abs_logprob_difference"] < fp4["mean_abs_logprob_difference"]


def test_calibration_covers_what_the_experts_read(exported, tmp_path):
    folder = exported("qwen3_moe", "--format", "nvfp4", *CALIBRATED)
    tensors = load_scales(folder)
    inputs = [v for n, v in tensors.items() if n.endswith("gate_proj.input_scale")]
    downs = [v for n, v in tensors.items() if n.endswith("down_proj.input_scale")]
    assert len(inputs) == len(downs) == 64 and len(set(inputs)) > 8 and len(set(downs)) > 32
    # Inputs are normalised rows; the largest intermediates of this model are some hundreds of times that.
    assert all(1 < v * 448 * 6 < 50 for v in inputs) and all(1 < v * 448 * 6 < 1e4 for v in downs)


def load_scales(folder):
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + size])
    at = lambda e: float(np.frombuffer(data[8 + size + e["data_offsets"][0]:][:4], np.float32)[0])
    return {n: at(e) for n, e in head.items() if n.endswith("input_scale")}


def test_calibrating_on_more_text_never_lowers_a_scale(tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text("".join(SHOTS.read_text().splitlines(keepends=True)[:4]))
    for name, data in (("few", few), ("all", SHOTS)):
        good("quantize", ROOT / "models/deepseek_v3", tmp_path / name, "--format", "nvfp4", "--calibrate", data, "-q")
    small, large = load_scales(tmp_path / "few"), load_scales(tmp_path / "all")
    shared = [n for n in small if "shared_experts" in n]
    assert len(shared) == 9  # three projections of three MoE layers
    assert all(small[n] <= large[n] for n in shared) and any(small[n] < large[n] for n in shared)
