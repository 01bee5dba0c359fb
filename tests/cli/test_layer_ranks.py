"""`sluice layer` over ranks: alltoall has the bits of one rank, sums of ranks differ by no more than the order of additions allows."""

import json
import os
import pathlib
import resource
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
HIDDEN, INNER, EXPERTS, TOP_K, TOKENS = 768, 64, 9, 4, 11
FORMATS = {"bf16": (), "fp8-block": ("--format", "fp8-block"), "nvfp4": ("--format", "nvfp4"), "mxfp4": ("--format", "mxfp4")}
RECIPES = {"bf16": "bf16", "fp8-block": "fp8-block", "nvfp4-w4a16": "nvfp4", "nvfp4-w4a4/cutedsl": "nvfp4", "nvfp4-w4a4/cutlass": "nvfp4",
           "mxfp4-w4a16": "mxfp4"}
A2A = ("--moe-a2a-backend", "alltoall")
UNIT = {"f32": 2.0 ** -24}


def sluice(*arguments):
    return subprocess.run([str(SLUICE), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)


def random_checkpoint(folder):
    """One layer of the bundled Qwen3-MoE's kind, wider, with 9 experts, which few numbers of ranks divide."""
    shutil.copytree(ROOT / "models/qwen3_moe", folder, ignore=shutil.ignore_patterns("*.safetensors", "*.safetensors.index.json", "*.npz"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    experts = next(key for key in ("num_experts", "num_local_experts") if key in config)
    config |= {"hidden_size": HIDDEN, "moe_intermediate_size": INNER, experts: EXPERTS, "num_experts_per_tok": TOP_K, "num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    heads, kv, dim, vocab = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"))
    random = np.random.default_rng(4)
    shapes = {"model.embed_tokens.weight": (vocab, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (vocab, HIDDEN)}
    layer = {"input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,), "self_attn.q_norm": (dim,), "self_attn.k_norm": (dim,),
             "self_attn.q_proj": (heads * dim, HIDDEN), "self_attn.k_proj": (kv * dim, HIDDEN), "self_attn.v_proj": (kv * dim, HIDDEN),
             "self_attn.o_proj": (HIDDEN, heads * dim), "mlp.gate": (EXPERTS, HIDDEN)}
    for e in range(EXPERTS):
        layer |= {f"mlp.experts.{e}.{p}_proj": (INNER, HIDDEN) for p in ("gate", "up")} | {f"mlp.experts.{e}.down_proj": (HIDDEN, INNER)}
    shapes |= {f"model.layers.0.{name}.weight": shape for name, shape in layer.items()}
    if config.get("tie_word_embeddings"):
        del shapes["lm_head.weight"]
    save_file({name: (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(ml_dtypes.bfloat16) for name, shape in shapes.items()},
              folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("ranks")
    random_checkpoint(base / "bf16")
    for form, arguments in FORMATS.items():
        if arguments:
            done = sluice("quantize", base / "bf16", base / form, "-q", *arguments)
            assert done.returncode == 0, done.stderr
    rows = np.random.default_rng(5).standard_normal((TOKENS, HIDDEN)).astype(np.float32)
    save_file({"hidden": rows}, base / "wide.safetensors")
    save_file({"hidden": np.ascontiguousarray(rows[:, :256])}, base / "bundled.safetensors")
    return base


def run_layer(base, model, rows, *arguments):
    out = base / "out.safetensors"
    done = sluice("layer", model, "--layer", "1" if "models" in str(model) else "0", "--hidden", base / rows, "--out", out, *arguments)
    assert done.returncode == 0, done.stderr
    return load_file(out), done.stderr


@pytest.mark.parametrize("recipe", RECIPES)
def test_alltoall_has_the_bits_of_one_rank(folders, recipe):
    def run(*arguments):
        return run_layer(folders, folders / RECIPES[recipe], "wide.safetensors", "--recipe", recipe, *arguments)[0]
    one = run()
    assert np.abs(one["output"]).max() > 0
    for ranks in (2, 3, 4, 8):
        many = run("--ep", ranks, *A2A)
        for name in ("output", "topk_ids", "topk_weights"):
            assert (many[name] == one[name]).all(), (ranks, name)
    for arguments in (("--tp", 4, "--dp", 2), ("--tp", 3, "--dp", 3)):
        many = run("--enable-dp-attention", *arguments, *A2A)
        assert (many["output"] == one["output"]).all(), arguments


@pytest.mark.parametrize("recipe", RECIPES)
def test_sums_of_ranks_differ_by_the_order_of_additions(folders, recipe):
    def run(*arguments):
        return run_layer(folders, folders / RECIPES[recipe], "wide.safetensors", "--recipe", recipe, *arguments)[0]
    one = run("--dump-stages")
    names = [n for n in one if n.startswith("stage.slot_rows") and not n.endswith(".route")]
    sizes = np.zeros((TOKENS, HIDDEN))
    for name in names:
        for route, row in zip(one[name + ".route"], one[name]):
            sizes[route // TOP_K] += np.abs(one["topk_weights"].reshape(-1)[route] * row.astype(np.float64))
    for arguments in (("--ep", 2), ("--ep", 3), ("--ep", 8), ("--enable-dp-attention", "--tp", 4, "--dp", 2, "--ep", 4)):
        many = run(*arguments)["output"]
        additions = TOP_K + 8
        bound = 2 * additions * UNIT["f32"] / (1 - additions * UNIT["f32"]) * sizes
        assert (np.abs(many.astype(np.float64) - one["output"]) <= bound).all(), arguments
        assert (many != one["output"]).any(), "sums of ranks that never differ were not made on ranks"


# DeepSeek has a shared expert, GPT-OSS has biases.
@pytest.mark.parametrize("model", ["qwen3_moe", "deepseek_v3", "gpt_oss"])
def test_bundled_models(folders, model):
    def run(*arguments):
        return run_layer(folders, ROOT / "models" / model, "bundled.safetensors", *arguments)
    one = run()[0]["output"]
    for ranks in (2, 3, 4):
        many, told = run("--ep", ranks, *A2A)
        assert (many["output"] == one).all(), ranks
        assert ("16 experts over 3 ranks" in told) == (ranks == 3), told
    distance = [np.linalg.norm(run(*arguments)[0]["output"] - one) / np.linalg.norm(one)
                for arguments in (("--tp", 4), ("--tp", 4, "--ep", 2), ("--ep", 4), ("--tp", 2, "--dp", 2, "--enable-dp-attention"))]
    # Each piece of a slot row is rounded once to bf16, and so is the whole one.
    assert max(distance) < 2 * 2.0 ** -8, distance


@pytest.mark.parametrize("arguments, code, told", [
    (("--tp", 4, "--ep", 3), 2, "divides --tp"),
    (("--ep", 20), 4, "20 expert-parallel ranks for 16 experts"),
    (("--ep", 2, "--dump-stages"), 4, "one rank"),
    (("--ep", 2, "--device", "cuda"), 4, "--device cpu"),
    (("--tp", 2, "--dp", 2), 2, "--enable-dp-attention"),
])
def test_refusals(folders, arguments, code, told):
    done = sluice("layer", ROOT / "models/qwen3_moe", "--layer", 0, "--hidden", folders / "bundled.safetensors", "--out", folders / "none", *arguments)
    assert done.returncode == code and told in done.stderr, done.stderr
    assert not (folders / "none").exists()


def test_equal_outputs_with_nans_are_equal(folders, tmp_path):
    rows = load_file(folders / "wide.safetensors")["hidden"].copy()
    rows[3, 5] = np.nan
    save_file({"hidden": rows}, tmp_path / "nan.safetensors")
    done = sluice("layer", folders / "bf16", "--layer", "0", "--hidden", tmp_path / "nan.safetensors", "--out", tmp_path / "out.safetensors",
                  "--tp", 2)
    assert done.returncode == 0, done.stderr
    assert np.isnan(load_file(tmp_path / "out.safetensors")["output"][3]).any()


@pytest.mark.parametrize("flags,words", [(("--ep", 65536), "65536 expert-parallel ranks for 9 experts"),
                                         (("--tp", 65536), "65536 pieces of an expert whose I is 64")])
def test_more_ranks_than_a_layer_has_parts_are_not_made(folders, tmp_path, flags, words):
    done = sluice("layer", folders / "bf16", "--layer", "0", "--hidden", folders / "wide.safetensors", "--out", tmp_path / "out.safetensors",
                  *flags)
    assert done.returncode == 4 and words in done.stderr, done.stderr


def test_threads_that_cannot_start_are_an_error(folders, tmp_path):
    def no_room_for_stacks():
        _, most = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 46, most))  # of each thread, so that at most one has room
    line = ["layer", folders / "bf16", "--layer", "0", "--hidden", folders / "wide.safetensors", "--out", tmp_path / "out.safetensors",
            "--ep", "4", "--threads", "1"]
    done = subprocess.run([str(SLUICE), *map(str, line)], capture_output=True, text=True, check=False, timeout=300,
                          preexec_fn=no_room_for_stacks)
    assert done.returncode == 5 and "a thread for rank" in done.stderr, done.stderr
