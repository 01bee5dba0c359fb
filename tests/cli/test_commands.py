"""The binary as a user meets it: answers, exit codes, messages."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
MODEL = ROOT / "models" / "qwen3_moe"
PROMPT = "Question: Ivy buys 7 packs of cards. Each pack holds 5 cards. Ivy gives 11 cards to Gus. How many cards does Ivy have left?\nAnswer:"


def sluice(*arguments, stdin=None, env=None):
    return subprocess.run([str(SLUICE), *map(str, arguments)], input=stdin, capture_output=True, text=True, check=False,
                          timeout=300, env={**os.environ, **(env or {})})


@pytest.fixture
def model(tmp_path):
    """A copy of the bundled model that a test may damage."""
    shutil.copytree(MODEL, tmp_path / "model")
    return tmp_path / "model"


def edit_json(path, **changes):
    value = json.loads(path.read_text())
    value.update(changes)
    path.write_text(json.dumps(value))


def test_run_answers_and_stops_at_the_blank_line():
    done = sluice("run", MODEL, "-p", PROMPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("#### 24\n"), done.stdout
    assert "parameters" in done.stderr and "decode" in done.stderr


def test_the_same_seed_gives_the_same_answer_and_others_differ():
    def answer(seed):
        return sluice("run", MODEL, "-q", "-p", "Question:", "-n", "40", "--temperature", "1.5", "--seed", seed).stdout
    assert answer(1) == answer(1)
    assert len({answer(seed) for seed in range(4)}) > 1


def test_quiet_prints_nothing_but_the_answer():
    done = sluice("run", MODEL, "-q", "-p", PROMPT)
    assert done.returncode == 0 and done.stderr == "" and "#### 24" in done.stdout


def test_the_runners_agree_on_the_answer():
    answers = {sluice("run", MODEL, "-q", "-p", PROMPT, *flags).stdout for flags in
               ([], ["--moe-runner-backend", "reference"], ["--isa", "scalar"], ["--isa", "avx2"], ["--dtype", "float32"], ["-t", "1"])}
    assert len(answers) == 1, answers


def test_chat_uses_the_template_and_remembers():
    done = sluice("chat", MODEL, "-q", stdin="Ivy buys 7 packs of cards. Each pack holds 5 cards. Ivy gives 11 cards to Gus. How many cards does Ivy have left?\n/exit\n")
    assert done.returncode == 0, done.stderr
    assert "#### 24" in done.stdout


def test_chat_speaks_harmony_when_the_tokeniser_has_its_tokens(model):
    """Whatever the model is called: this one is a Qwen3-MoE without a chat template."""
    (model / "chat_template.jinja").unlink()
    done = sluice("chat", model, "-q", stdin="Hi\n/exit\n")
    assert done.returncode == 4 and "no chat template" in done.stderr
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    plain = tokenizer["added_tokens"][0]
    first = max(max(tokenizer["model"]["vocab"].values()), max(t["id"] for t in tokenizer["added_tokens"])) + 1
    for i, name in enumerate(("start", "end", "message", "channel", "constrain", "return", "call")):
        tokenizer["added_tokens"].append({**plain, "id": first + i, "content": f"<|{name}|>", "special": True})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    done = sluice("chat", model, "-q", "-n", "4", stdin="Hi\n/exit\n")
    assert done.returncode == 0, done.stderr


def test_verify_passes_in_both_types_and_fails_on_other_numbers(tmp_path):
    assert sluice("verify", MODEL).returncode == 0
    assert sluice("verify", MODEL, "--dtype", "float32").returncode == 0
    reference = load_file(MODEL / "reference.safetensors")
    reference["prompt0.logprob_of_next"] = reference["prompt0.logprob_of_next"] + np.float32(0.05)
    save_file(reference, tmp_path / "shifted.safetensors")
    done = sluice("verify", MODEL, "--reference", tmp_path / "shifted.safetensors")
    assert done.returncode == 1 and "FAILED" in done.stdout


def test_verify_notices_a_changed_weight(model):
    shard = model / "model-00001-of-00002.safetensors"
    data = bytearray(shard.read_bytes())
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    begin, _ = header["model.layers.0.mlp.experts.3.up_proj.weight"]["data_offsets"]
    start = 8 + struct.unpack("<Q", data[:8])[0] + begin
    for i in range(0, 8192, 2):  # flips signs of one expert's up projection
        data[start + i + 1] ^= 0x80
    shard.write_bytes(data)
    assert sluice("verify", model).returncode == 1


def test_eval_reaches_the_threshold_and_misses_an_impossible_one(tmp_path):
    base = ["eval", "gsm8k", MODEL, "--data", ROOT / "models/word_problems.test.jsonl", "--shots",
            ROOT / "models/word_problems.shots.jsonl", "--num-shots", "8", "--num-questions", "24"]
    summary = tmp_path / "summary.md"
    done = sluice(*base, "--threshold", "0.98", "--json", tmp_path / "eval.json", env={"GITHUB_STEP_SUMMARY": str(summary)})
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "eval.json").read_text())
    assert result["accuracy"] == 1.0 and result["questions"] == 24 and result["invalid"] == 0
    assert "gsm8k" in summary.read_text()
    assert sluice(*base, "--threshold", "1").returncode == 1


def test_eval_takes_a_cache_for_all_parallel_questions(tmp_path):
    """24 prompts with 512 new tokens each do not fit one context of 4,096, the default of other commands."""
    base = ["eval", "gsm8k", MODEL, "--data", ROOT / "models/word_problems.test.jsonl", "--shots",
            ROOT / "models/word_problems.shots.jsonl", "--num-shots", "8", "--num-questions", "24", "--parallel", "24",
            "--json", tmp_path / "eval.json"]
    done = sluice(*base)
    assert done.returncode == 0
    assert int(re.search(r"for (\d+) tokens", done.stderr).group(1)) > 24 * 512
    assert json.loads((tmp_path / "eval.json").read_text())["preemptions"] == 0
    done = sluice(*base, "--max-total-tokens", "4096")
    assert done.returncode == 0 and "for 4096 tokens" in done.stderr
    assert json.loads((tmp_path / "eval.json").read_text())["accuracy"] == 1.0


def expert_reference(layer, hidden, ids, weights):
    """One MoE block in float64 from the bf16 weights."""
    shards = {}
    for file in sorted(MODEL.glob("model-*.safetensors")):
        raw = file.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        for name, entry in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__" and f".layers.{layer}.mlp." in name:
                begin, end = entry["data_offsets"]
                bits = np.frombuffer(raw[8 + size + begin:8 + size + end], dtype=np.uint16).astype(np.uint32) << 16
                shards[name.split(".mlp.")[1]] = bits.view(np.float32).astype(np.float64).reshape(entry["shape"])
    out = np.zeros_like(hidden, dtype=np.float64)
    for t in range(hidden.shape[0]):
        for e, w in zip(ids[t], weights[t]):
            gate = shards[f"experts.{e}.gate_proj.weight"] @ hidden[t]
            up = shards[f"experts.{e}.up_proj.weight"] @ hidden[t]
            out[t] += w * (shards[f"experts.{e}.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up))
    return out, shards["gate.weight"]


@pytest.mark.parametrize("recipe,bound", [("f32", 2e-6), ("bf16", 1e-2)])
def test_layer_matches_float64(tmp_path, recipe, bound):
    rng = np.random.default_rng(5)
    hidden = rng.standard_normal((7, 256)).astype(np.float32)
    save_file({"hidden": hidden}, tmp_path / "in.safetensors")
    done = sluice("layer", MODEL, "--layer", 2, "--hidden", tmp_path / "in.safetensors", "--out", tmp_path / "out.safetensors",
                  "--recipe", recipe, "--dump-stages")
    assert done.returncode == 0, done.stderr
    out = load_file(tmp_path / "out.safetensors")
    want, router = expert_reference(2, hidden.astype(np.float64), out["topk_ids"], out["topk_weights"])
    assert np.linalg.norm(out["output"] - want) <= bound * np.linalg.norm(want)
    logits = hidden.astype(np.float64) @ router.T
    assert (np.sort(out["topk_ids"], axis=1) == np.sort(np.argsort(-logits, axis=1)[:, :4], axis=1)).all()
    chosen = np.exp(np.take_along_axis(logits, out["topk_ids"].astype(np.int64), 1))
    assert np.allclose(out["topk_weights"], chosen / chosen.sum(1, keepdims=True), rtol=1e-5)
    assert any(name.startswith("stage.") for name in out)


def test_layer_takes_given_routes(tmp_path):
    hidden = np.random.default_rng(6).standard_normal((3, 256)).astype(np.float32)
    ids = np.array([[0, 1, 2, 3], [15, 0, 7, 7], [4, -1, 99, 5]], dtype=np.int32)
    weights = np.array([[.1, .2, .3, .4]] * 3, dtype=np.float32)
    save_file({"hidden": hidden, "topk_ids": ids, "topk_weights": weights}, tmp_path / "in.safetensors")
    done = sluice("layer", MODEL, "--layer", 0, "--hidden", tmp_path / "in.safetensors", "--out", tmp_path / "out.safetensors",
                  "--recipe", "f32")
    assert done.returncode == 0, done.stderr
    out = load_file(tmp_path / "out.safetensors")["output"]
    kept = [[(e, w) for e, w in zip(i, v) if 0 <= e < 16] for i, v in zip(ids, weights)]
    for t in range(3):
        want, _ = expert_reference(0, hidden[t:t + 1].astype(np.float64), [[e for e, _ in kept[t]]], [[w for _, w in kept[t]]])
        assert np.linalg.norm(out[t] - want[0]) <= 2e-6 * np.linalg.norm(want)


def test_doctor_and_version_name_the_instruction_set():
    assert sluice("doctor").returncode == 0
    assert "avx" in sluice("--version").stdout or "scalar" in sluice("--version").stdout


# Bad input: a message with file and field, and the exit code of the architecture; never a crash.

def expect(done, code, *words):
    assert done.returncode == code, (done.returncode, done.stderr)
    message = done.stderr + done.stdout
    for word in words:
        assert word in message, message


def test_missing_shard(model):
    (model / "model-00002-of-00002.safetensors").unlink()
    expect(sluice("run", model, "-p", "x"), 3, "model-00002-of-00002.safetensors")


def test_truncated_shard(model):
    shard = model / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1000])
    expect(sluice("run", model, "-p", "x"), 3, "model-00001-of-00002.safetensors")


def test_header_of_2_to_the_63_bytes(model):
    shard = model / "model-00001-of-00002.safetensors"
    shard.write_bytes(struct.pack("<Q", 1 << 63) + shard.read_bytes()[8:])
    expect(sluice("run", model, "-p", "x"), 3, "model-00001-of-00002.safetensors")


def test_wrong_dtype(model):
    shard = model / "model-00001-of-00002.safetensors"
    data = shard.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header["model.layers.0.self_attn.q_proj.weight"]["dtype"] = "I16"
    text = json.dumps(header).encode()
    shard.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])
    expect(sluice("run", model, "-p", "x"), 3, "q_proj")


def test_nan_logits(model):
    shard = model / "model-00001-of-00002.safetensors"
    data = bytearray(shard.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + size])["lm_head.weight"]["data_offsets"]
    data[8 + size + begin:8 + size + end] = b"\xc0\x7f" * ((end - begin) // 2)
    shard.write_bytes(data)
    expect(sluice("run", model, "-p", "x"), 1, "NaN")


def test_unknown_architecture(model):
    edit_json(model / "config.json", architectures=["WhateverForCausalLM"], model_type="whatever")
    expect(sluice("run", model, "-p", "x"), 4, "WhateverForCausalLM", "Qwen3MoeForCausalLM")


def test_empty_prompt():
    expect(sluice("run", MODEL, "-p", ""), 2, "empty")


def test_prompt_longer_than_the_context():
    expect(sluice("run", MODEL, "-p", "word " * 5000), 2, "4096")
    expect(sluice("run", MODEL, "-c", "32", "-p", PROMPT), 2, "32")


def test_wrong_config_field(model):
    edit_json(model / "config.json", hidden_size="256")
    expect(sluice("run", model, "-p", "x"), 3, "config.json", "hidden_size")


def test_missing_model_folder():
    expect(sluice("run", "/nonexistent", "-p", "x"), 3, "/nonexistent")


def test_usage_errors():
    expect(sluice("run", MODEL, "--no-such-flag"), 2)
    expect(sluice("run", MODEL), 2, "prompt")
    expect(sluice("run", MODEL, "-p", "x", "--dtype", "int3"), 2, "int3")
    expect(sluice("run", MODEL, "-p", "x", "--moe-runner-backend", "nonsense"), 2, "nonsense", "cpu")
    expect(sluice("layer", MODEL, "--layer", "9", "--hidden", "x", "--out", "y"), 2, "0 to 3")


def test_an_impossible_combination_lists_the_runners():
    expect(sluice("run", MODEL, "-p", "x", "--dtype", "float32", "--moe-runner-backend", "cpu"), 4, "cpu", "reference")
