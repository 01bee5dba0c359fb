"""`sluice layer --dump-stages` on quantised files: each stage from the one before it, from the stored codes and scales, by numpy."""

import functools
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import stored_weights as stored
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
sys.path.insert(0, str(ROOT / "tests" / "moe"))
import moe_reference as ref  # noqa: E402  (tests/moe is no package)
import quant_reference as q  # noqa: E402

MODEL, SHOTS = ROOT / "models/qwen3_moe", ROOT / "models/word_problems.shots.jsonl"
LAYER, TOKENS, TOP_K, HIDDEN, INNER = 2, 7, 4, 256, 128
CALIBRATED = ("--calibrate", SHOTS)
FILES = {"nvfp4": ("nvfp4", *CALIBRATED), "fp8": ("fp8", "--dialect", "modelopt", *CALIBRATED), "fp8-block": ("fp8-block",), "mxfp4": ("mxfp4",)}
RECIPES = {"nvfp4-w4a16": "nvfp4", "nvfp4-w4a4/cutedsl": "nvfp4", "nvfp4-w4a4/cutlass": "nvfp4", "fp8-tensor": "fp8", "fp8-block": "fp8-block",
           "mxfp4-w4a16": "mxfp4", "mxfp4-w4a8": "mxfp4"}
ROWS = ref.to_bf16(np.random.default_rng(8).standard_normal((TOKENS, HIDDEN)).astype(np.float32) * 1.5)


def sluice(*arguments):
    done = subprocess.run([str(SLUICE), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def get(form):
        if form not in made:
            out = tmp_path_factory.mktemp(form) / "model"
            sluice("quantize", MODEL, out, "-q", "--format", *FILES[form])
            made[form] = out, stored.read_tensors(out)
        return made[form]
    return get


def dump(folder, recipe, runner, tmp_path):
    """(tensors of the output, {stage: array by route})."""
    save_file({"hidden": np.asarray(ROWS, np.float32)}, tmp_path / "in.safetensors")
    out = tmp_path / f"{runner}.safetensors"
    sluice("layer", folder, "--layer", LAYER, "--hidden", tmp_path / "in.safetensors", "--out", out, "--recipe", recipe, "--moe-runner-backend", runner,
           "--dump-stages", "-q")
    tensors, stages = load_file(out), {}
    for name, rows in tensors.items():
        match = re.fullmatch(r"stage\.([a-z0-9_]+(?:\.[a-z_]+)?)(?:\.\d+)?", name)
        if match is None or name.endswith(".route"):
            continue
        routes = tensors.get(name + ".route", np.arange(len(rows)))
        at = stages.setdefault(match.group(1), {})
        assert not set(at) & set(routes.tolist()), name
        at.update(zip(routes.tolist(), rows))
    return tensors, {stage: np.stack([rows[r] for r in sorted(rows)]) for stage, rows in stages.items()}


def input_scale(tensors, *parts):
    """One for all experts of the layer: the largest."""
    names = [f"model.layers.{LAYER}.mlp.experts.{e}.{p}_proj.input_scale" for e in range(16) for p in parts]
    return max((float(tensors[n].reshape(())) for n in names if n in tensors), default=0.0)


def check_codes(recipe, stage, x, static, stages):
    fmt = q.RECIPES[recipe][1]
    if fmt == "bf16":
        assert (stages[stage] == ref.to_bf16(x)).all()
    for kind, want in q.quantize(fmt, x, static).items():
        got = stages[f"{stage}.{kind}"]
        assert (got.reshape(want.shape) == want).all(), (stage, kind)


@pytest.mark.parametrize("runner", ["cpu", "reference"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_stage_follows_from_the_one_before(folders, tmp_path, recipe, runner):
    folder, tensors = folders(RECIPES[recipe])
    out, stages = dump(folder, recipe, runner, tmp_path)
    ids, weights = out["topk_ids"].reshape(-1), out["topk_weights"].reshape(-1)
    check_codes(recipe, "gemm1_input", np.repeat(ROWS, TOP_K, 0), input_scale(tensors, "gate", "up"), stages)
    suffix = "_packed" if RECIPES[recipe] == "mxfp4" else ""

    @functools.cache
    def weight(expert, part):
        return stored.decode(tensors, f"model.layers.{LAYER}.mlp.experts.{expert}.{part}_proj.weight{suffix}").astype(np.float64)

    def product(expert, part, x):
        """In float64, and how far any order of float32 sums may be from it (the usual n * u, and the scales)."""
        w = weight(expert, part)
        return w @ x, (len(x) + 8) * q.UNIT * (np.abs(w) @ np.abs(x))

    for route, expert in enumerate(ids):
        x, inner = stages["gemm1_input"][route].astype(np.float64), stages["intermediate"][route].astype(np.float64)
        for part in ("gate", "up"):
            value, bound = product(expert, part, x)
            if recipe.endswith("cutlass"):  # this stage is rounded to bf16
                bound = bound + 2.0 ** -8 * np.abs(value)
            assert (np.abs(stages[part][route] - value) <= bound).all(), (part, route)
        value, bound = product(expert, "down", inner)
        assert (np.abs(stages["slot_rows"][route] - value) <= bound + 2.0 ** -8 * np.abs(value)).all(), route
    total = np.zeros((TOKENS, HIDDEN), np.float32)
    for slot in range(TOP_K):  # fp32, in the order of the slots
        total += weights.reshape(TOKENS, TOP_K)[:, slot, None] * stages["slot_rows"].reshape(TOKENS, TOP_K, HIDDEN)[:, slot]
    assert (total == out["output"]).all()


@pytest.mark.parametrize("recipe", RECIPES)
def test_both_runners_record_the_same_codes(folders, tmp_path, recipe):
    folder, _ = folders(RECIPES[recipe])
    (_, cpu), (_, slow) = (dump(folder, recipe, runner, tmp_path) for runner in ("cpu", "reference"))
    assert cpu.keys() == slow.keys()
    for stage in cpu:
        differing = np.mean(cpu[stage] != slow[stage])
        # Sums in another order may put a value on the other side of a tie.
        exact = stage.startswith("gemm1_input") or stage == "router_logits"
        assert exact and differing == 0 or not exact and (not stage.startswith("intermediate.") or differing <= 0.005), (stage, differing)
