"""Access to weights_probe: what the readers make of a checkpoint folder."""

import json
import os
import pathlib
import subprocess

import numpy as np
import safetensors.numpy


def run(*words):
    """Exit code, standard output, standard error."""
    build = os.environ.get("SLUICE_BUILD_DIR")
    assert build, "SLUICE_BUILD_DIR must name the build directory"
    path = pathlib.Path(build) / "tests" / "checkpoint" / "weights_probe"
    assert path.is_file(), f"{path} is missing: build the target weights_probe"
    done = subprocess.run([str(path), *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def load(folder, policy="strict"):
    """({name: float32 array}, facts) of a checkpoint that must load."""
    out = pathlib.Path(folder) / "decoded.safetensors.out"
    code, text, err = run("load", folder, out, policy)
    assert code == 0, err
    return safetensors.numpy.load_file(out), json.loads(text)


def refusal(folder, policy="strict"):
    """(exit code, message) of a checkpoint that must not load."""
    code, text, err = run("load", folder, pathlib.Path(folder) / "decoded.safetensors.out", policy)
    assert code in (3, 4), f"exit code {code}: {text}{err}"
    assert len(err.strip().splitlines()) == 1, err
    return code, err


def check(folder, policy="strict"):
    code, text, err = run("check", folder, policy)
    assert code == 0, err
    return json.loads(text)


def assert_same(found, expected):
    """Bit for bit, NaN and signs of zero included."""
    assert set(found) == set(expected), sorted(set(found) ^ set(expected))
    for name, want in expected.items():
        assert found[name].shape == want.shape, name
        same = found[name].view(np.uint32) == np.ascontiguousarray(want, np.float32).view(np.uint32)
        assert same.all(), f"{name}: {int((~same).sum())} of {same.size} values differ"
