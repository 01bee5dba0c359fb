"""--device cuda on a machine without a GPU: refused by name, with exit code 4 and what to do, in every build."""

import glob
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLUICE = Path(os.environ.get("SLUICE_BUILD_DIR", ROOT / "build/cpu")) / "bin/sluice"
WITH_GPU = bool(glob.glob("/dev/nvidia[0-9]*"))


def sluice(*args):
    return subprocess.run([str(SLUICE), *args], capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.skipif(WITH_GPU, reason="this machine has a GPU: scripts/gpu_check.sh is the test")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_bench_without_a_gpu_is_refused(device):
    done = sluice("bench", "moe", "--device", device, "--shape", "tiny", "--tokens", "1")
    assert done.returncode == 4
    assert f"GPU {device[5:] or 0}" in done.stderr and "CPU" in done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(WITH_GPU, reason="this machine has a GPU: scripts/gpu_check.sh is the test")
def test_layer_without_a_gpu_is_refused_before_its_input_is_read():
    done = sluice("layer", str(ROOT / "models/qwen3_moe"), "--layer", "0", "--hidden", "missing.safetensors", "--out",
                  "missing.out", "--device", "cuda")
    assert done.returncode == 4 and "GPU 0" in done.stderr


@pytest.mark.parametrize("device", ["tpu", "cuda:x"])
def test_other_devices_are_a_mistake(device):
    done = sluice("bench", "moe", "--device", device, "--shape", "tiny", "--tokens", "1")
    assert done.returncode == 2 and device in done.stderr


def test_a_missing_baseline_is_named():
    done = sluice("bench", "moe", "--device", "cuda", "--shape", "tiny", "--tokens", "1", "--baseline", "missing.csv")
    assert done.returncode == 3 and "missing.csv" in done.stderr


def test_explain_asks_the_hopper_runner():
    done = sluice("explain", str(ROOT / "models/qwen3_moe"))
    assert done.returncode == 0 and "hopper" in done.stdout
