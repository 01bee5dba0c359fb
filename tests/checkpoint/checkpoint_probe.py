"""Access to the probe binary of this folder."""

import json
import os
import pathlib
import subprocess


def run(*words):
    """Exit code, standard output, standard error."""
    build = os.environ.get("SLUICE_BUILD_DIR")
    assert build, "SLUICE_BUILD_DIR must name the build directory"
    path = pathlib.Path(build) / "tests" / "checkpoint" / "checkpoint_probe"
    assert path.is_file(), f"{path} is missing: build the target checkpoint_probe"
    done = subprocess.run([str(path), *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def run_ok(*words):
    code, out, err = run(*words)
    assert code == 0, err
    return out


def tensors(path):
    """({name: (dtype, shape, bytes)} in file order, metadata) as our reader sees the file."""
    *lines, metadata = run_ok("tensors", path).splitlines()
    found = {}
    for line in map(json.loads, lines):
        assert line["name"] not in found
        found[line["name"]] = (line["dtype"], line["shape"], bytes.fromhex(line["hex"]))
    return found, json.loads(metadata)


def open_checkpoint(folder):
    return json.loads(run_ok("open", folder))


def refusal(*words):
    """The message of an input that must be refused with exit code 3 (bad input)."""
    code, out, err = run(*words)
    assert code == 3, f"exit code {code}: {out}{err}"
    assert len(err.strip().splitlines()) == 1, err
    return err
