"""Random DeepSeek-V2/V3 checkpoints with every option of the family, through the whole engine, against numpy in float64.

Faults that these comparisons must notice are put in by tests/model/deepseek_test.cc.
"""

import os
import pathlib
import shutil
import subprocess

import deepseek_numpy as deepseek
import numpy as np
import pytest
from qwen3_moe_numpy import stack_experts, write_reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"

V2 = {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "scoring_func": "softmax",
      "topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.5, "num_nextn_predict_layers": None}
YARN = {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "beta_fast": 32, "beta_slow": 1,
        "mscale": 1.0, "mscale_all_dim": 1.0}

CASES = {
    "plain": {},
    "no_q_lora": {"q_lora_rank": None},
    "yarn": {"rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 1.3}},
    "kimi_k2": {"model_type": "kimi_k2", "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827,
                "rope_theta": 50000.0, "rope_scaling": {**YARN, "beta_fast": 1.0, "beta_slow": 1.0}},
    "two_shared_experts": {"n_shared_experts": 2},
    "no_shared_expert": {"n_shared_experts": 0},
    "no_renormalisation": {"norm_topk_prob": False},
    "every_second_layer": {"moe_layer_freq": 2, "first_k_dense_replace": 0},
    "rotated_halves": {"rope_interleave": False},
    "one_expert": {"num_experts_per_tok": 1},
    "odd_sizes": {"kv_lora_rank": 41, "qk_nope_head_dim": 17, "v_head_dim": 33, "qk_rope_head_dim": 6},
    "v2_lite": {**V2, "q_lora_rank": None, "n_shared_experts": 2},
    "v2": {**V2, "topk_method": "group_limited_greedy",
           "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707}},
}


def prompts():
    rng = np.random.default_rng(5)
    return [rng.integers(0, 1024, n).tolist() for n in (2, 37, 70)]


def verify(folder, *flags):
    return subprocess.run([str(SLUICE), "verify", str(folder), "--dtype", "float32", *flags], capture_output=True,
                          text=True, check=False, timeout=300)


def expect_equal(folder, *flags):
    done = verify(folder, *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def write(folder, config, tensors):
    deepseek.write_checkpoint(folder, config, tensors)
    shutil.copy(ROOT / "models" / "qwen3_moe" / "tokenizer.json", folder)


def drop_experts_of(config):
    return {**config, "num_experts": config["n_routed_experts"], "decoder_sparse_step": config["moe_layer_freq"],
            "mlp_only_layers": list(range(config["first_k_dense_replace"]))}


@pytest.mark.parametrize("name", CASES)
def test_engine_agrees_with_numpy(name, tmp_path):
    config = deepseek.default_config(**CASES[name])
    tensors = deepseek.random_weights(config, 21)
    write(tmp_path, config, tensors)
    write_reference(tmp_path, config, tensors, prompts(), 2, deepseek.logits)
    expect_equal(tmp_path, "--chunked-prefill-size", "48")  # the last prompt in two pieces


def test_stacked_experts(tmp_path):
    config = deepseek.default_config()
    tensors = deepseek.random_weights(config, 22)
    write(tmp_path, config, stack_experts(drop_experts_of(config), tensors))
    write_reference(tmp_path, config, tensors, prompts(), 2, deepseek.logits)
    expect_equal(tmp_path)


def test_multi_token_prediction_layer_is_skipped_with_a_message(tmp_path):
    config = deepseek.default_config()
    tensors = deepseek.random_weights(config, 23, predicted_layers=1)
    write(tmp_path, config, tensors)
    write_reference(tmp_path, config, tensors, prompts()[:2], 2, deepseek.logits)
    said = expect_equal(tmp_path)
    assert "model.layers.3.*" in said and "multi-token prediction" in said, said
    assert "no use here" not in said, said


def test_a_correction_bias_that_bf16_would_round_is_kept_in_float32(tmp_path):
    """Two experts differ in score + bias by less than bf16 could tell apart."""
    config = deepseek.default_config(n_group=1, topk_group=1, num_experts_per_tok=2, first_k_dense_replace=0)
    tensors = deepseek.random_weights(config, 24)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}.mlp.gate."
        tensors[f"{p}weight"] = np.zeros_like(tensors[f"{p}weight"])  # every score 0.5
        bias = np.full(12, 3.0, np.float32)
        bias[[7, 3]] += np.float32(0.0005)  # bf16 near 3: steps of 0.0156
        tensors[f"{p}e_score_correction_bias"] = bias
    write(tmp_path, config, tensors)
    write_reference(tmp_path, config, tensors, prompts(), 2, deepseek.logits)
    expect_equal(tmp_path)


def test_missing_shared_expert_is_an_error_that_names_it(tmp_path):
    config = deepseek.default_config()
    tensors = deepseek.random_weights(config, 25)
    del tensors["model.layers.1.mlp.shared_experts.up_proj.weight"]
    write(tmp_path, config, tensors)
    write_reference(tmp_path, config, tensors, prompts()[:1], 1, lambda c, t, ids: np.zeros((len(ids), 1024)))
    done = verify(tmp_path)
    assert done.returncode == 3 and "shared_experts.up_proj" in done.stderr, done.stderr
