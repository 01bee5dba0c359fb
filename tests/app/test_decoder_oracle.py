"""Random Qwen3-MoE checkpoints with every option of the family, through the whole engine, against numpy in float64."""

import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
from qwen3_moe_numpy import default_config, random_weights, stack_experts, write_checkpoint, write_reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"

YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}

CASES = {
    "plain": {},
    "biases": {"attention_bias": True},
    "dense_layers": {"mlp_only_layers": [1]},
    "sparse_step": {"decoder_sparse_step": 2},
    "no_renormalisation": {"norm_topk_prob": False},
    "tied_embeddings": {"tie_word_embeddings": True},
    "one_kv_head": {"num_key_value_heads": 1},
    "as_many_kv_heads": {"num_key_value_heads": 4},
    "gelu": {"hidden_act": "gelu", "mlp_only_layers": [0]},
    "gelu_tanh": {"hidden_act": "gelu_pytorch_tanh", "mlp_only_layers": [0]},
    "every_expert": {"num_experts_per_tok": 6},
    "rope_linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "rope_llama3": {"rope_scaling": LLAMA3},
    "rope_yarn": {"rope_parameters": YARN},
    "large_epsilon": {"rms_norm_eps": 0.05},
}


def prompts():
    rng = np.random.default_rng(5)
    return [rng.integers(0, 1024, n).tolist() for n in (2, 37, 70)]


def verify(folder, *flags):
    done = subprocess.run([str(SLUICE), "verify", str(folder), *flags], capture_output=True, text=True, check=False,
                          timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
def test_engine_agrees_with_numpy(name, tmp_path):
    config = default_config(**CASES[name])
    tensors = random_weights(config, 11)
    write_checkpoint(tmp_path, config, tensors)
    shutil.copy(ROOT / "models" / "qwen3_moe" / "tokenizer.json", tmp_path)
    write_reference(tmp_path, config, tensors, prompts(), 6)
    verify(tmp_path, "--dtype", "float32")
    verify(tmp_path, "--dtype", "float32", "--chunked-prefill-size", "16")


def test_stacked_experts(tmp_path):
    config = default_config()
    tensors = random_weights(config, 12)
    write_checkpoint(tmp_path, config, stack_experts(config, tensors))
    shutil.copy(ROOT / "models" / "qwen3_moe" / "tokenizer.json", tmp_path)
    write_reference(tmp_path, config, tensors, prompts(), 6)
    verify(tmp_path, "--dtype", "float32")


def test_another_epsilon_is_noticed(tmp_path):
    """The comparison is not blind: the same weights under a slightly different config fail."""
    config = default_config()
    tensors = random_weights(config, 13)
    write_checkpoint(tmp_path, config, tensors)
    shutil.copy(ROOT / "models" / "qwen3_moe" / "tokenizer.json", tmp_path)
    write_reference(tmp_path, {**config, "rms_norm_eps": 1e-4}, tensors, prompts(), 1)
    done = subprocess.run([str(SLUICE), "verify", str(tmp_path), "--dtype", "float32"], capture_output=True, text=True,
                          check=False, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
