"""A quantised DeepSeek model (latent attention, shared experts, sigmoid routing) against numpy in float64: its outputs from the
decoded weights, and the input scales that `--calibrate` measures for every kind of projection."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import stored_weights as stored
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
sys.path.insert(0, str(ROOT / "tests" / "app"))
import deepseek_numpy as deepseek  # noqa: E402  (tests/app is no package)
from qwen3_moe_numpy import write_reference  # noqa: E402

MODEL = ROOT / "models" / "deepseek_v3"
SHOT = json.loads((ROOT / "models/word_problems.shots.jsonl").read_text().splitlines()[0])
TEXT = f"Question: {SHOT['question']}\nAnswer: {SHOT['answer']}"
IDS = Tokenizer.from_file(str(MODEL / "tokenizer.json")).encode(TEXT).ids


def sluice(*arguments):
    return subprocess.run([str(SLUICE), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)


def good(*arguments):
    done = sluice(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def config():
    own = json.loads((MODEL / "config.json").read_text())
    return {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "rope_scaling": None, "moe_layer_freq": 1, **own["rope_parameters"], **own}


def decode(tensors, roll=0):
    return {n: stored.decode(tensors, n, roll) for n in tensors if "_scale" not in n}


@pytest.fixture(scope="module")
def quantised(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvfp4") / "model"
    good("quantize", MODEL, folder, "--format", "nvfp4", "-q")
    return folder, stored.read_tensors(folder)


@pytest.fixture(scope="module")
def references(quantised, tmp_path_factory):
    out = tmp_path_factory.mktemp("reference")
    for name, roll in (("right", 0), ("wrong", 1)):
        (out / name).mkdir()
        write_reference(out / name, config(), decode(quantised[1], roll), [IDS], 1, deepseek.logits)
    return out


@pytest.mark.parametrize("flags", [("--dtype", "float32"), ("--moe-runner-backend", "cpu"), ("--moe-runner-backend", "reference")], ids=" ".join)
def test_verify_of_a_quantised_model(quantised, references, flags):
    folder, tensors = quantised
    assert sum(n.endswith(".weight_scale_2") for n in tensors) == 3 * (16 + 1) * 3  # of 3 MoE layers, shared experts included
    right = sluice("verify", folder, "--reference", references / "right" / "reference.safetensors", *flags)
    assert right.returncode == 0, right.stdout + right.stderr
    wrong = sluice("verify", folder, "--reference", references / "wrong" / "reference.safetensors", *flags)
    assert wrong.returncode == 1 and "FAILED" in wrong.stdout, wrong.stdout


class Recorded:
    """A weight that notes the largest input it is multiplied with."""

    __array_ufunc__ = None

    def __init__(self, values, amax, name):
        self.values, self.amax, self.name = values.astype(np.float64), amax, name

    def astype(self, _):
        return self

    @property
    def T(self):
        return self

    def __rmatmul__(self, x):
        self.amax[self.name] = max(self.amax.get(self.name, 0.0), float(np.abs(x).max()))
        return x @ self.values.T


def input_amax():
    """By module, from the whole model in numpy."""
    amax, tensors = {}, {n: t.astype(np.float32) for n, t in stored.read_tensors(MODEL).items()}
    for name in tensors:
        if "_proj" in name or name == "lm_head.weight":
            tensors[name] = Recorded(tensors[name], amax, name.removesuffix(".weight"))
    deepseek.logits(config(), tensors, IDS)
    return amax


def test_calibration_measures_attention_shared_experts_and_the_head(tmp_path):
    (tmp_path / "text").write_text(TEXT)
    good("quantize", MODEL, tmp_path / "out", "--format", "fp8", "--dialect", "modelopt", "--calibrate", tmp_path / "text", "--include",
         "*.self_attn.*", "--include", "lm_head", "-q")
    scales = {n.removesuffix(".input_scale"): float(v[()] if v.shape == () else v[0])
              for n, v in stored.read_tensors(tmp_path / "out").items() if n.endswith(".input_scale")}
    want = {n: a for n, a in input_amax().items() if ".experts." not in n}
    quantised = {n for n in scales if ".experts." not in n}
    kinds = {n.split(".")[-1] for n in quantised}
    assert {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"} == kinds
    for name in quantised:
        assert scales[name] * 448 == pytest.approx(want[name], rel=0.02), name  # the engine rounds operands to bf16
    assert len({round(scales[n], 7) for n in quantised}) > len(quantised) // 2
