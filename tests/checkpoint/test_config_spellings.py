"""config.json and generation_config.json: both generations of the format, the bundled models, and values out of range."""

import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import checkpoint_probe as probe

MODELS = pathlib.Path(__file__).parents[2] / "models"


def make(folder, config, generation=None):
    folder.mkdir(exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    save_file({"a": np.zeros(4, np.float32)}, folder / "model.safetensors")
    return folder


# (transformers 4, transformers 5) of the same model.
PAIRS = {
    "plain": ({"torch_dtype": "bfloat16", "num_experts": 64, "rope_theta": 1000000.0},
              {"dtype": "bfloat16", "num_local_experts": 64,
               "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}),
    "no theta": ({"torch_dtype": "float16", "num_experts": 8, "rope_scaling": None},
                 {"dtype": "float16", "num_experts": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "yarn": ({"torch_dtype": "bfloat16", "n_routed_experts": 256, "rope_theta": 10000,
              "max_position_embeddings": 163840,
              "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                               "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}},
             {"dtype": "bfloat16", "n_routed_experts": 256, "max_position_embeddings": 163840,
              "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0,
                                  "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0,
                                  "mscale": 1.0, "mscale_all_dim": 1.0}}),
    "llama3": ({"torch_dtype": "bfloat16", "num_local_experts": 16, "rope_theta": 500000.0,
                "max_position_embeddings": 131072, "partial_rotary_factor": 0.5,
                "rope_scaling": {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                                 "original_max_position_embeddings": 8192}},
               {"dtype": "bfloat16", "num_local_experts": 16, "max_position_embeddings": 131072,
                "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 16.0, "low_freq_factor": 1.0,
                                    "high_freq_factor": 1.0, "original_max_position_embeddings": 8192,
                                    "partial_rotary_factor": 0.5}}),
    "one section a layer type": ({"num_experts": 4, "rope_theta": 7e5, "max_position_embeddings": 64,
                                  "rope_scaling": {"type": "linear", "factor": 2.0}},
                                 {"num_experts": 4, "max_position_embeddings": 64, "rope_parameters": {
                                     "full_attention": {"rope_type": "linear", "rope_theta": 7e5, "factor": 2.0},
                                     "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("nested", [False, True])
def test_both_generations_give_the_same_config(name, nested, tmp_path):
    seen = []
    for i, config in enumerate(PAIRS[name]):
        config = {"model_type": "toy", "hidden_size": 96, **config}
        if nested:
            config = {"model_type": "outer", "text_config": config}
        seen.append(probe.open_checkpoint(make(tmp_path / str(i), config)))
    assert seen[0] == seen[1]
    assert seen[0]["model_type"] == "toy"
    assert seen[0]["hidden"] == 96


def test_rope_fields_are_read(tmp_path):
    four, five = ({"hidden_size": 8, **c} for c in PAIRS["yarn"])
    rope = probe.open_checkpoint(make(tmp_path / "4", four))["rope"]
    assert rope == probe.open_checkpoint(make(tmp_path / "5", five))["rope"]
    want = {"type": "yarn", "theta": 10000, "factor": 40, "original": 4096, "mscale": 1, "mscale_all_dim": 1}
    assert {k: rope[k] for k in want} == want


@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3", "gpt_oss"])
def test_bundled_models_open(name):
    seen = probe.open_checkpoint(MODELS / name)
    shards = [load_bytes(p) for p in sorted((MODELS / name).glob("model-*.safetensors"))]
    assert seen["tensors"] == sum(n for n, _ in shards)
    assert seen["bytes"] == sum(b for _, b in shards)
    config = json.loads((MODELS / name / "config.json").read_text())
    assert (seen["model_type"], seen["dtype"], seen["hidden"], seen["experts"]) == (name, "bf16", 256, 16)
    assert seen["rope"]["theta"] == config["rope_parameters"]["rope_theta"]
    assert seen["rope"]["type"] == config["rope_parameters"]["rope_type"]
    assert seen["eos"] == [config["eos_token_id"]]
    assert seen["stop"] == ["\n\n"]
    assert seen["notes"] == []


def load_bytes(path):
    """Tensor count and bytes of a file by its own header."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    return len(header), len(raw) - 8 - length


def test_reference_outputs_of_the_bundled_models_are_read():
    path = MODELS / "qwen3_moe" / "reference.safetensors"
    found, _ = probe.tensors(path)
    for name, array in load_file(path).items():
        assert found[name][1:] == (list(array.shape), array.tobytes())


BASE = {"hidden_size": 64, "num_experts": 8}
BAD_CONFIGS = {
    "huge": ({"hidden_size": 1 << 40}, ["hidden_size: found 1099511627776", "1048576"]),
    "negative": ({"hidden_size": -64}, ["hidden_size: found -64"]),
    "zero": ({"hidden_size": 0}, ["hidden_size: found 0"]),
    "string": ({"hidden_size": "64"}, ["hidden_size: found string; expected an integer"]),
    "fraction": ({"hidden_size": 64.5}, ["hidden_size: found number; expected an integer"]),
    "bool": ({"hidden_size": True}, ["hidden_size: found bool"]),
    "list": ({"hidden_size": [64]}, ["hidden_size: found array"]),
    "null": ({"hidden_size": None}, ["hidden_size: missing"]),
    "NaN": ({"hidden_size": float("nan")}, ["hidden_size"]),
    "infinite theta": ({"rope_theta": float("inf")}, ["rope_theta: found", "Infinity", "a finite number"]),
    "float object": ({"rope_theta": {"__float__": "NaN"}}, ["rope_theta: found", "NaN", "a finite number"]),
    "theta 1e400": ('{"hidden_size": 64, "num_experts": 8, "rope_theta": 1e400}', ["1e400"]),
    "two spellings": ({"num_local_experts": 16}, ["num_local_experts: found 16 but num_experts is 8"]),
    "rope list": ({"rope_scaling": [1]}, ["rope_scaling: found array"]),
    "duplicate": ('{"hidden_size": 64, "hidden_size": 65}', ["duplicate key", "hidden_size"]),
    "truncated": ('{"hidden_size": 64', ["not valid JSON"]),
    "empty": ("", ["not valid JSON"]),
    "array": ("[]", ["found array; expected an object"]),
    "architectures": ({"architectures": 3}, ["architectures: found integer"]),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_bad_configs_are_refused(name, tmp_path):
    config, words = BAD_CONFIGS[name]
    folder = make(tmp_path / "m", config if isinstance(config, str) else {**BASE, **config})
    message = probe.refusal("open", folder)
    for word in [str(folder / "config.json"), *words]:
        assert word in message


def test_values_that_nobody_reads_do_not_matter(tmp_path):
    config = {**BASE, "time_step_limit": [0.0, float("inf")], "other": float("nan"), "big": 1 << 70}
    assert probe.open_checkpoint(make(tmp_path / "m", config))["hidden"] == 64


def test_generation_config(tmp_path):
    folder = make(tmp_path / "m", {**BASE, "eos_token_id": 7})
    assert probe.open_checkpoint(folder)["eos"] == [7]
    make(folder, {**BASE, "eos_token_id": 7}, {"eos_token_id": [1, 2], "stop_strings": "x", "temperature": 0.25})
    seen = probe.open_checkpoint(folder)
    assert (seen["eos"], seen["stop"], seen["temperature"]) == ([1, 2], ["x"], 0.25)
    for bad in ({"temperature": "hot"}, {"eos_token_id": [1, "2"]}, {"top_p": 2}, {"stop_strings": [""]}, {"top_k": 1e30}):
        make(folder, BASE, bad)
        message = probe.refusal("open", folder)
        assert f"{folder / 'generation_config.json'}: {next(iter(bad))}" in message


def test_missing_shard(tmp_path):
    folder = make(tmp_path / "m", BASE)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    message = probe.refusal("open", folder)
    assert "1 of 2 shards missing: model-2.safetensors" in message
    assert "download" in message
