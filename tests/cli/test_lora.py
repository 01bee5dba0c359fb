"""LoRA adapters are refused wherever a checkpoint is opened, naming the modules that they change; so are the flags that ask for one."""

import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
MODEL = ROOT / "models" / "qwen3_moe"
UNSUPPORTED = 4
PREFIX = "base_model.model.model.layers.1."


def refused(*arguments):
    done = subprocess.run([str(SLUICE), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == UNSUPPORTED, done.stdout + done.stderr
    assert "LoRA" in done.stderr and "merge" in done.stderr, done.stderr
    return done.stderr


def adapter(folder, config=None, weights=()):
    folder.mkdir(exist_ok=True)
    if config is not None:
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, **config}))
    if weights:
        save_file({PREFIX + n: np.ones((4, 8), np.float32) for n in weights}, folder / "adapter_model.safetensors")
    return folder


@pytest.mark.parametrize("command", [("run", "-p", "x"), ("check",), ("explain",), ("quantize", "out", "--format", "bf16")], ids=lambda c: c[0])
def test_an_adapter_folder_is_no_model(tmp_path, command):
    folder = adapter(tmp_path / "a", {"target_modules": ["q_proj", "v_proj"], "target_parameters": ["mlp.experts.gate_up_proj"]})
    said = refused(command[0], folder, *command[1:])
    assert "q_proj, v_proj, mlp.experts.gate_up_proj" in said, said


def test_modules_come_from_the_tensors_when_the_configuration_has_none(tmp_path):
    names = ["mlp.experts.3.up_proj.lora_A.weight", "mlp.experts.3.up_proj.lora_B.weight", "self_attn.o_proj.lora_A.default.weight",
             "self_attn.o_proj.lora_magnitude_vector"]
    said = refused("check", adapter(tmp_path / "a", {"target_modules": None}, names))
    assert "model.layers.1.mlp.experts.3.up_proj, model.layers.1.self_attn.o_proj; expected" in said, said
    assert "o_proj; expected" in refused("check", adapter(tmp_path / "b", None, names))


def test_a_model_with_an_adapter_beside_it_or_in_it(tmp_path):
    beside = tmp_path / "beside"
    shutil.copytree(MODEL, beside)
    assert "k_proj" in refused("run", adapter(beside, {"target_modules": "k_proj"}), "-p", "x")
    inside = tmp_path / "inside"
    shutil.copytree(MODEL, inside)
    shard = sorted(inside.glob("model*.safetensors"))[0]
    # Raw bytes would lose bf16; a shard of its own holds the adapter.
    lora = {"model.layers.0.self_attn.q_proj.lora_A.weight": np.ones((4, 256), np.float32)}
    save_file(lora, inside / "extra.safetensors")
    index_path = inside / "model.safetensors.index.json"
    index = json.loads(index_path.read_text())
    assert shard.name in index["weight_map"].values()
    index["weight_map"].update({n: "extra.safetensors" for n in lora})
    index_path.write_text(json.dumps(index))
    assert "model.layers.0.self_attn.q_proj; expected" in refused("run", inside, "-p", "x")
    checked = subprocess.run([str(SLUICE), "check", str(inside), "-q"], capture_output=True, text=True, check=False)
    assert checked.returncode == 1 and "LoRA adapter for model.layers.0.self_attn.q_proj" in checked.stdout, checked.stdout


def test_names_that_only_look_alike_are_fine(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    (folder / "adapter_config.json.bak").write_text("{")
    assert "lora" not in "".join(load_file(MODEL / "reference.safetensors"))
    done = subprocess.run([str(SLUICE), "check", str(folder), "-q"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_flags_name_what_they_ask_for(tmp_path):
    path = adapter(tmp_path / "a", {"target_modules": ["down_proj", "gate"]})
    said = refused("run", MODEL, "-p", "x", "--lora-paths", f"one={path}", tmp_path / "absent")
    assert f"--lora-paths one={path}" in said and "(down_proj, gate)" in said, said
    assert "q_proj o_proj" in refused("run", MODEL, "-p", "x", "--lora-target-modules", "q_proj", "o_proj")
    assert "--enable-lora" in refused("run", MODEL, "-p", "x", "--enable-lora")
    assert "--max-lora-rank 8" in refused("run", MODEL, "-p", "x", "--max-lora-rank", "8")
