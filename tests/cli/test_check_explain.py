"""`sluice check` and `sluice explain`: bundled, damaged and full-size sparse checkpoints."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
sys.path.insert(0, str(ROOT / "tests" / "gen"))
import sparse_checkpoints  # noqa: E402  (tests/gen is no package)

QWEN = ROOT / "models" / "qwen3_moe"
BYTES = 1_000_000_000


def sluice(*arguments):
    return subprocess.run([str(SLUICE), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)


MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stderr=subprocess.STDOUT)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def measured(*arguments):
    """Return code, peak memory and output of a run. What the system calls the peak begins with that of the parent: hence a small one."""
    done = subprocess.run([sys.executable, "-c", MEASURE, str(SLUICE), *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=True)
    *text, last = done.stdout.splitlines(keepends=True)
    code, kilobytes = map(int, last.split())
    return code, kilobytes * 1024, "".join(text)


def report(command, folder, tmp_path, *flags):
    out = tmp_path / "report.json"
    done = sluice(command, folder, "--json", out, *flags)
    return done, json.loads(out.read_text())


@pytest.fixture
def quantised(tmp_path):
    done = sluice("quantize", QWEN, tmp_path / "model", "--format", "nvfp4", "--calibrate", ROOT / "models/word_problems.shots.jsonl", "-q")
    assert done.returncode == 0, done.stderr
    return tmp_path / "model"


def rewrite(folder, change):
    """Applies change(header, data) to the one shard of a folder."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + size]), bytearray(raw[8 + size:])
    data = change(header, data) or data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))


SCALE = "model.layers.1.mlp.experts.5.up_proj.weight_scale_2"


def put_scale(value):
    def change(header, data):
        begin, end = header[SCALE]["data_offsets"]
        data[begin:end] = struct.pack("<f", value)
    return change


@pytest.mark.parametrize("model", ["qwen3_moe", "deepseek_v3", "gpt_oss"])
def test_bundled_models_are_fine(tmp_path, model):
    done, value = report("check", ROOT / "models" / model, tmp_path)
    assert done.returncode == 0 and value["ok"] and not value["findings"], done.stdout
    assert value["scheme"] == "plain" and done.stdout.strip().endswith("0 errors, 0 warnings: ok")
    assert 0.99 * value["bytes"] < value["weight_bytes"] <= value["bytes"]


def test_a_quantised_model_is_described(quantised, tmp_path):
    done, value = report("check", quantised, tmp_path)
    assert done.returncode == 0 and value["scheme"] == "modelopt", done.stdout
    experts = [f for f in value["formats"] if f["role"] == "experts"]
    assert len(experts) == 1 and experts[0]["format"] == "nvfp4" and experts[0]["weights"] == 192
    assert (experts[0]["first_layer"], experts[0]["last_layer"]) == (0, 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_bad_scale_is_found_and_named(quantised, tmp_path, value):
    rewrite(quantised, put_scale(value))
    done, found = report("check", quantised, tmp_path)
    assert done.returncode == 1 and not found["ok"]
    errors = [f for f in found["findings"] if f["severity"] == "error"]
    about = [f for f in errors if f["kind"] == "scale"]
    assert len(about) == 1 and about[0]["tensor"] == SCALE and "expert 5" in about[0]["message"]
    assert "FAILED" in done.stdout


def test_a_missing_and_an_unknown_tensor_are_found(quantised, tmp_path):
    def rename(header, data):
        header["model.layers.1.mlp.experts.5.stray"] = header.pop(SCALE)
    rewrite(quantised, rename)
    done, found = report("check", quantised, tmp_path)
    assert done.returncode == 1
    text = json.dumps(found["findings"])
    assert "weight_scale_2" in text and "stray" in text


def test_explain_lists_every_runner_and_recipe(quantised, tmp_path):
    done, value = report("explain", quantised, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    kind, = value["layer_kinds"]
    assert (kind["layers"], kind["experts"], kind["top_k"]) == (4, 16, 4) and kind["chosen"].startswith("nvfp4-w4a16")
    table = {(c["recipe"], c["runner"]): c for c in kind["candidates"]}
    assert len({r for r, _ in table}) == 9 and {"cpu", "reference"} <= {r for _, r in table}
    assert not table["bf16", "cpu"]["ok"] and "nvfp4" in table["bf16", "cpu"]["reason"]
    assert all(c["ok"] or c["reason"] for c in table.values())
    assert table["nvfp4-w4a4/cutedsl", "reference"]["ok"]


@pytest.mark.parametrize("flags,chosen", [
    (("--recipe", "nvfp4-w4a4/cutedsl"), "nvfp4-w4a4/cutedsl on cpu"),
    (("--moe-runner-backend", "reference"), "nvfp4-w4a16 on reference"),
    (("--moe-runner-backend", "flashinfer_cutlass", "--quantization", "modelopt_fp4"), "nvfp4-w4a4/cutlass on cpu"),
    (("--moe-runner-backend", "flashinfer_cutedsl"), "nvfp4-w4a4/cutedsl on cpu"),
    (("--recipe", "f32"), "f32 on reference"),
    (("--moe-runner-backend", "reference/rows8"), None),
])
def test_explain_says_what_flags_would_choose(quantised, tmp_path, flags, chosen):
    """The same as `sluice run` announces."""
    done, value = report("explain", quantised, tmp_path, *flags)
    ran = sluice("run", quantised, "-p", "Question:", "-n", "1", *flags)
    if chosen is None:  # a layout that does not hold 4-bit weights: both refuse
        assert (done.returncode == 0) == (ran.returncode == 0)
        return
    assert done.returncode == 0 and value["layer_kinds"][0]["chosen"] == chosen, done.stdout
    recipe, runner = chosen.split(" on ")
    assert ran.returncode == 0 and f"recipe {recipe}, runner {runner}" in ran.stderr, ran.stderr
    assert all(note in ran.stderr for note in value["notes"]) and len(value["notes"]) == sum("flashinfer" in f or "modelopt" in f for f in flags)


@pytest.mark.parametrize("flags,code,words", [
    (("--recipe", "bf16"), 4, "nvfp4-w4a16"),
    (("--recipe", "fp4"), 2, "nvfp4-w4a4/cutedsl"),
    (("--moe-runner-backend", "cutedsl"), 2, "flashinfer_cutedsl"),
    (("--quantization", "fp8"), 4, "fp8"),
])
def test_explain_refuses_flags_as_run_does(quantised, flags, code, words):
    explained, ran = sluice("explain", quantised, *flags), sluice("run", quantised, "-p", "x", *flags)
    assert explained.returncode == ran.returncode == code and words in explained.stderr
    assert explained.stderr.splitlines()[-1] == ran.stderr.splitlines()[-1]


@pytest.mark.parametrize("flags,words", [(("--tp", "4", "--ep", "3"), "divide"), (("--device", "tpu"), "cpu or cuda")])
def test_explain_refuses_sizes_that_make_no_sense(flags, words):
    done = sluice("explain", QWEN, *flags)
    assert done.returncode == 2 and words in done.stderr


def test_explain_has_the_sizes_that_a_run_would_have(quantised, tmp_path):
    done, value = report("explain", quantised, tmp_path, "--tp", "4", "--moe-a2a-backend", "deepep")
    assert done.returncode == 0 and (value["tp"], value["ep"]) == (4, 4)
    assert "--moe-a2a-backend deepep: mapped to alltoall, rows travel to the ranks of their experts and back" in value["notes"]
    assert "--moe-a2a-backend deepep: --ep becomes 4, the number of ranks" in value["notes"]
    assert ", tp 4, ep 4" in done.stdout


def test_explain_says_which_splits_cut_scale_groups(quantised, tmp_path):
    done, value = report("explain", quantised, tmp_path, "--tp", "8")   # I 128 / 8 = 16: whole groups
    assert done.returncode == 0 and value["layer_kinds"][0]["intermediate_per_rank"] == 16
    done, value = report("explain", quantised, tmp_path, "--tp", "16")  # 8: half a group
    kind = value["layer_kinds"][0]
    assert done.returncode == 4 and "groups of 16" in kind["split_problem"] and not kind["chosen"]
    done, value = report("explain", quantised, tmp_path, "--tp", "16", "--ep", "16")
    assert value["layer_kinds"][0]["experts_per_rank"] == 1 and value["layer_kinds"][0]["intermediate_per_rank"] == 128


# Published sizes: hidden, experts, intermediate; MoE layers; what the experts are stored in.
SPARSE = {
    "DeepSeek-V3-0324-FP4": (58, 256, 2048, "nvfp4", 32),
    "gpt-oss-120b": (36, 128, 2880, "mxfp4", 16),
    "Qwen3-30B-A3B-FP4": (48, 128, 768, "nvfp4", 16),
    "Qwen3-30B-A3B-FP8": (48, 128, 768, "fp8-block", 16),
    "Kimi-K2": (60, 384, 2048, "fp8-block", 48),
}


@pytest.fixture(scope="module", params=SPARSE)
def sparse(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sparse")
    sparse_checkpoints.MODELS[request.param](folder)
    yield request.param, folder
    shutil.rmtree(folder)


def test_full_size_checkpoints_are_checked_from_their_headers(sparse, tmp_path):
    name, folder = sparse
    layers, experts, _, form, _ = SPARSE[name]
    out = tmp_path / "check.json"
    code, memory, text = measured("check", folder, "--json", out)
    assert memory < BYTES
    value = json.loads(out.read_text())
    assert code == 0 and value["ok"], text
    used = next(f for f in value["formats"] if f["role"] == "experts")
    per_layer = 2 if name.startswith("gpt-oss") else 3 * experts  # stacked tensors count once
    assert used["format"] == form and used["weights"] == layers * per_layer
    # Every tensor is consumed, or reported as one that nobody asked for.
    reported = sum(f["count"] for f in value["findings"] if f["kind"] == "unused")
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert value["tensors"] == len(index)
    assert reported == sum(1 for n in index if n.startswith("model.layers.61.")), text


def test_full_size_checkpoints_are_explained_for_eight_ranks(sparse, tmp_path):
    name, folder = sparse
    layers, experts, inner, _, per_rank = SPARSE[name]
    out = tmp_path / "explain.json"
    code, memory, text = measured("explain", folder, "--tp", "8", "--ep", "8", "--json", out)
    assert memory < BYTES
    assert code == 0, text
    kind, = json.loads(out.read_text())["layer_kinds"]
    assert (kind["layers"], kind["experts"], kind["experts_per_rank"], kind["intermediate_per_rank"]) == (layers, experts, per_rank, inner)


@pytest.mark.parametrize("form,kind,code,word", [("mxfp4", "weight_scale", b"\xff", "NaN"), ("mxfp4", "weight_scale", b"\xfe", "2^127"),
                                                 ("nvfp4", "weight_scale", b"\x81", "negative"),
                                                 ("fp8-block", "weight_scale_inv", struct.pack("<f", -1), "negative"),
                                                 ("fp8-block", "weight_scale_inv", struct.pack("<f", 0), "zero")])
def test_a_scan_of_all_weights_finds_the_scales_that_loading_refuses(tmp_path, form, kind, code, word):
    folder, name = tmp_path / "model", f"model.layers.3.mlp.experts.15.up_proj.{kind}"
    assert sluice("quantize", QWEN, folder, "--format", form, "-q").returncode == 0
    assert sluice("check", folder, "--weights").returncode == 0

    def damage(header, data):
        begin = header[name]["data_offsets"][0]
        data[begin:begin + len(code)] = code
    rewrite(folder, damage)
    done, found = report("check", folder, tmp_path, "--weights")
    assert done.returncode == 1
    assert [f["tensor"] for f in found["findings"] if f["severity"] == "error"] == [name] and word in done.stdout
    loaded = sluice("run", folder, "-p", "Question: 1", "-n", "1")
    assert loaded.returncode == 3 and name in loaded.stderr and word in loaded.stderr
