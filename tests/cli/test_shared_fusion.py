"""--enforce-shared-experts-fusion: the shared expert as one more routed expert, through the whole model."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
DEEPSEEK = ROOT / "models" / "deepseek_v3"
FUSE = "--enforce-shared-experts-fusion"


def sluice(*args):
    return subprocess.run([SLUICE, *map(str, args)], capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_fused_model_agrees_with_the_reference(dtype):
    done = sluice("verify", DEEPSEEK, FUSE, "--dtype", dtype)
    assert done.returncode == 0, done.stdout + done.stderr


def test_fusion_changes_the_rounding_and_so_takes_place():
    """A fused expert's output is rounded to bf16 like every slot row; apart it is added in float32."""
    apart, fused = (sluice("verify", DEEPSEEK, *flags).stdout for flags in ([], [FUSE]))
    assert apart != fused


def test_both_flags_together_are_refused():
    done = sluice("verify", DEEPSEEK, FUSE, "--disable-shared-experts-fusion")
    assert done.returncode == 2 and "one of the two" in done.stderr


def test_routed_only_needs_them_apart(tmp_path):
    done = sluice("layer", DEEPSEEK, "--layer", "1", "--hidden", "in", "--out", "out", "--routed-only", FUSE)
    assert done.returncode == 2 and "routed-only" in done.stderr
