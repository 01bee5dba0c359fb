"""SGLang's launch lines as a user gives them: what they become, and how they are refused."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
MODEL = ROOT / "models" / "qwen3_moe"
PROMPT = "Question: Kira has 3 tickets. Wes has 4 tickets. How many?\nAnswer:"
SEED_LINE = ["--tp", "1", "--ep", "1", "--mem-fraction-static", "0.75", "--attention-backend", "trtllm_mla",
             "--model-loader-extra-config", '{"enable_multithread_load": true}', "--disable-cuda-graph",
             "--disable-flashinfer-autotune"]


def run(model, *flags):
    return subprocess.run([str(SLUICE), "run", str(model), "-p", PROMPT, "-n", "6", *flags], capture_output=True, text=True,
                          check=False, timeout=300)


def test_the_line_of_the_seed_runs_and_says_what_it_became():
    plain = run(MODEL)
    done = run(MODEL, *SEED_LINE, "--moe-runner-backend", "flashinfer_trtllm")
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    for part in ["--disable-cuda-graph", "--attention-backend trtllm_mla: mapped",
                 "flashinfer_trtllm stands for recipe bf16", "runner cpu for flashinfer_trtllm"]:
        assert part in done.stderr, done.stderr


@pytest.mark.parametrize("flags,code,parts", [
    (["--moe-runner-backend", "flashinfer_cutedsl"], 4, ["experts stored as bf16", "flashinfer_trtllm", "sluice quantize"]),
    (["--moe-runner-backend", "flashinfer_cutlass", "--quantization", "modelopt_fp4"], 4, ["no --quantization"]),
    (["--quantization", "awq"], 4, ["integer weights"]),
    (["--recipe", "nvfp4-w4a16"], 4, ["auto, f32, bf16"]),
    (["--pp-size", "4"], 4, ["--pp-size 4", "expected 1"]),
    (["--tp", "4", "--ep", "3"], 2, ["--ep 3", "divides --tp"]),
    (["--dp", "2"], 2, ["--enable-dp-attention"]),
    (["--moe-a2a-backend", "flashinfer", "--tp", "2"], 4, ["--dp 2", "alltoall"]),
    (["--moe-a2a-backend", "carrier-pigeon"], 2, ["deepep", "alltoall"]),
    (["--enable-eplb"], 4, ["--enable-eplb"]),
    (["--moe-runner-backend", "cutedsl"], 2, ["flashinfer_cutedsl", "reference"]),
    (["--quantization", "fp7"], 2, ["modelopt_fp4"]),
    (["--recipe", "fp4"], 2, ["nvfp4-w4a4/cutedsl"]),
])
def test_refusals_come_before_any_weight_is_read(tmp_path, flags, code, parts):
    """The weights of this copy are zeros: whoever reads them answers otherwise or fails otherwise."""
    shutil.copytree(MODEL, tmp_path / "model")
    for shard in (tmp_path / "model").glob("*.safetensors"):
        data = shard.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        shard.write_bytes(data[:start] + bytes(len(data) - start))
    done = run(tmp_path / "model", *flags)
    assert done.returncode == code and done.stdout == "", done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr


def test_a_physical_layout_computes_the_same_answer():
    assert run(MODEL, "--moe-runner-backend", "reference/rows8").stdout == run(MODEL, "--moe-runner-backend", "reference").stdout
