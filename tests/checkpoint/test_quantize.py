"""Exported checkpoints against numpy and ml_dtypes: bits of codes and scales, names, shapes, types, configuration."""

import json
import os
import pathlib
import shutil
import subprocess
import time

import numpy as np
import pytest
import quantize_reference as ref

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = pathlib.Path(os.environ["SLUICE_BUILD_DIR"]) / "bin" / "sluice"
QWEN = ROOT / "models" / "qwen3_moe"
GPT_OSS = ROOT / "models" / "gpt_oss"
SHOTS = ROOT / "models" / "word_problems.shots.jsonl"
LAYERS, EXPERTS, H, I = 4, 16, 256, 128
BASE = "model.layers.1.mlp.experts.5"


def sluice(*arguments):
    return subprocess.run([str(SLUICE), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)


def quantize(source, out, *flags):
    done = sluice("quantize", source, out, *flags)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Folder of an export, made once: exported(source, flags...)."""
    folders = {}

    def get(source, *flags):
        key = (source, *flags)
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("export") / "model"
            quantize(source, folders[key], *flags)
        return folders[key]
    return get


@pytest.fixture(scope="session")
def qwen():
    return ref.load(QWEN)


def config(folder):
    return json.loads((folder / "config.json").read_text())


def assert_bits(got, want):
    assert got.shape == want.shape and got.dtype == want.dtype
    assert (np.atleast_1d(got).view(np.uint8) == np.atleast_1d(want).view(np.uint8)).all()


def test_nvfp4_is_bit_equal_to_the_reference(exported, qwen):
    got = ref.load(exported(QWEN, "--format", "nvfp4"))
    for layer in range(LAYERS):
        for expert in range(EXPERTS):
            gate, up, down = ref.experts_of(qwen, layer, expert)
            scales = {"gate": ref.nvfp4_scale(gate, up), "up": ref.nvfp4_scale(gate, up), "down": ref.nvfp4_scale(down)}
            for name, weight in (("gate", gate), ("up", up), ("down", down)):
                base = f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj"
                codes, block_scales = ref.nvfp4(weight, scales[name])
                assert_bits(got[f"{base}.weight"], codes)
                assert_bits(got[f"{base}.weight_scale"], block_scales)
                assert got[f"{base}.weight_scale_2"] == scales[name] and got[f"{base}.weight_scale_2"].shape == ()


@pytest.mark.parametrize("flags,floor", [((), False), (("--mx-scale", "ocp"), True)])
def test_mxfp4_is_bit_equal_to_the_reference(exported, qwen, flags, floor):
    got = ref.load(exported(QWEN, "--format", "mxfp4", *flags))
    for layer in range(LAYERS):
        for name, weight in zip(("gate", "up", "down"), ref.experts_of(qwen, layer, 3)):
            base = f"model.layers.{layer}.mlp.experts.3.{name}_proj"
            codes, scales = ref.mxfp4(weight, floor)
            assert_bits(got[f"{base}.weight_packed"], codes)
            assert_bits(got[f"{base}.weight_scale"], scales)


def test_the_two_mx_rules_differ(exported):
    ceil, ocp = (ref.load(exported(QWEN, "--format", "mxfp4", *f)) for f in ((), ("--mx-scale", "ocp")))
    name = f"{BASE}.gate_proj.weight_scale"
    step = ceil[name].astype(int) - ocp[name]
    assert set(np.unique(step)) == {0, 1}


def test_fp8_block_is_bit_equal_to_the_reference(exported, qwen):
    got = ref.load(exported(QWEN, "--format", "fp8-block"))
    for name, weight in zip(("gate", "up", "down"), ref.experts_of(qwen, 1, 5)):
        codes, scales = ref.fp8_blocks(weight)
        assert_bits(got[f"{BASE}.{name}_proj.weight"], codes)
        assert_bits(got[f"{BASE}.{name}_proj.weight_scale_inv"], scales)


def test_fp8_rows_are_bit_equal_to_the_reference(exported, qwen):
    got = ref.load(exported(QWEN, "--format", "fp8"))
    for name, weight in zip(("gate", "up", "down"), ref.experts_of(qwen, 1, 5)):
        codes, scales = ref.fp8_rows(weight)
        assert_bits(got[f"{BASE}.{name}_proj.weight"], codes)
        assert_bits(got[f"{BASE}.{name}_proj.weight_scale"], scales)


def test_static_fp8_has_one_scale_for_gate_and_up(exported, qwen):
    got = ref.load(exported(QWEN, "--format", "fp8", "--calibrate", SHOTS))
    gate, up, down = ref.experts_of(qwen, 1, 5)
    for name, weight, scale in (("gate", gate, ref.amax(gate, up) / ref.F32(448)), ("up", up, ref.amax(gate, up) / ref.F32(448)),
                                ("down", down, ref.amax(down) / ref.F32(448))):
        assert got[f"{BASE}.{name}_proj.weight_scale"] == scale
        assert_bits(got[f"{BASE}.{name}_proj.weight"], ref.fp8(weight, scale))
        assert got[f"{BASE}.{name}_proj.input_scale"] > 0
    assert got[f"{BASE}.gate_proj.input_scale"] == got[f"{BASE}.up_proj.input_scale"]


def test_the_dialects_of_nvfp4_hold_the_same_weights(exported):
    modelopt = ref.load(exported(QWEN, "--format", "nvfp4", "--calibrate", SHOTS))
    compressed = ref.load(exported(QWEN, "--format", "nvfp4", "--dialect", "compressed-tensors", "--calibrate", SHOTS))
    for name in ("gate", "up", "down"):
        base = f"{BASE}.{name}_proj"
        assert_bits(modelopt[f"{base}.weight"], compressed[f"{base}.weight_packed"])
        assert_bits(modelopt[f"{base}.weight_scale"], compressed[f"{base}.weight_scale"])
        for one, other in (("weight_scale_2", "weight_global_scale"), ("input_scale", "input_global_scale")):
            scale, reciprocal = modelopt[f"{base}.{one}"], compressed[f"{base}.{other}"]
            assert reciprocal.shape == (1,) and ref.F32(1) / reciprocal[0] == scale and reciprocal[0] == ref.F32(1) / scale


def test_unquantised_tensors_are_copied_bit_for_bit(exported, qwen):
    got = ref.load(exported(QWEN, "--format", "nvfp4"))
    kept = [name for name in qwen if ".experts." not in name]
    assert len(kept) > 30
    for name in kept:
        assert_bits(got[name], qwen[name])
    assert {n for n in got if ".experts." not in n} == set(kept)


def test_bf16_of_an_unquantised_model_changes_nothing(exported, qwen):
    got = ref.load(exported(QWEN, "--format", "bf16"))
    assert got.keys() == qwen.keys()
    for name, value in qwen.items():
        assert_bits(got[name], value)
    assert config(exported(QWEN, "--format", "bf16")) == config(QWEN)


EXPECTED = {
    ("nvfp4", "modelopt"): {"weight": ("U8", [I, H // 2]), "weight_scale": ("F8_E4M3", [I, H // 16]), "weight_scale_2": ("F32", [])},
    ("nvfp4", "compressed-tensors"): {"weight_packed": ("U8", [I, H // 2]), "weight_scale": ("F8_E4M3", [I, H // 16]),
                                      "weight_global_scale": ("F32", [1])},
    ("mxfp4", "compressed-tensors"): {"weight_packed": ("U8", [I, H // 2]), "weight_scale": ("U8", [I, H // 32])},
    ("fp8", "compressed-tensors"): {"weight": ("F8_E4M3", [I, H]), "weight_scale": ("F32", [I, 1])},
    ("fp8-block", "deepseek"): {"weight": ("F8_E4M3", [I, H]), "weight_scale_inv": ("F32", [1, 2])},
    ("fp8-block", "compressed-tensors"): {"weight": ("F8_E4M3", [I, H]), "weight_scale": ("F32", [1, 2])},
    ("bf16", ""): {"weight": ("BF16", [I, H])},
}


@pytest.mark.parametrize("form,dialect", EXPECTED)
def test_names_types_and_shapes(exported, form, dialect):
    flags = ["--format", form] + (["--dialect", dialect] if dialect else [])
    folder = exported(QWEN, *flags)
    entries = {}
    for path in folder.glob("model*.safetensors"):
        head, _ = ref.header(path)
        assert head.pop("__metadata__")["format"] == "pt"
        entries.update(head)
    prefix = f"{BASE}.gate_proj."
    found = {n.removeprefix(prefix): (e["dtype"], e["shape"]) for n, e in entries.items() if n.startswith(prefix)}
    assert found == EXPECTED[form, dialect]


def exclusions(folder):
    quantization = config(folder)["quantization_config"]
    return quantization.get("ignore", quantization.get("modules_to_not_convert"))


def test_modelopt_description(exported):
    folder = exported(QWEN, "--format", "nvfp4", "--calibrate", SHOTS)
    quantization = config(folder)["quantization_config"]
    assert quantization["quant_method"] == "modelopt" and quantization["quant_algo"] == "NVFP4"
    group = quantization["config_groups"]["group_0"]
    assert group["weights"] == group["input_activations"] == {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    side = json.loads((folder / "hf_quant_config.json").read_text())["quantization"]
    assert side["quant_algo"] == "NVFP4" and side["group_size"] == 16
    want = {"lm_head"} | {f"model.layers.{n}.self_attn*" for n in range(LAYERS)} | {f"model.layers.{n}.mlp.gate" for n in range(LAYERS)}
    assert set(side["exclude_modules"]) == set(quantization["ignore"]) == want
    assert len(side["exclude_modules"]) == len(want)


def test_weight_only_modelopt_says_so(exported):
    quantization = config(exported(QWEN, "--format", "nvfp4"))["quantization_config"]
    assert quantization["quant_algo"] == "W4A16_NVFP4" and quantization["config_groups"]["group_0"]["input_activations"] is None


def test_compressed_tensors_descriptions(exported):
    def group(*flags):
        folder = exported(QWEN, *flags, "--dialect", "compressed-tensors")
        quantization = config(folder)["quantization_config"]
        assert quantization["quant_method"] == "compressed-tensors" and quantization["quantization_status"] == "compressed"
        entry = quantization["config_groups"]["group_0"]
        assert entry["targets"] == ["Linear"] and entry["format"] == quantization["format"]
        assert not (folder / "hf_quant_config.json").exists()
        return quantization["format"], entry["weights"], entry["input_activations"]
    form, weights, inputs = group("--format", "nvfp4")
    assert form == "nvfp4-pack-quantized" and weights["strategy"] == "tensor_group" and weights["group_size"] == 16 and inputs is None
    form, weights, inputs = group("--format", "nvfp4", "--calibrate", SHOTS)
    assert inputs["dynamic"] == "local" and inputs["num_bits"] == 4
    form, weights, inputs = group("--format", "mxfp4")
    assert form == "mxfp4-pack-quantized" and weights["group_size"] == 32 and inputs is None
    form, weights, inputs = group("--format", "fp8")
    assert form == "float-quantized" and weights["strategy"] == "channel" and inputs["strategy"] == "token" and inputs["dynamic"] is True
    form, weights, inputs = group("--format", "fp8-block")
    assert weights["strategy"] == "block" and weights["block_structure"] == [128, 128]
    assert "lm_head" in exclusions(exported(QWEN, "--format", "fp8"))


def test_deepseek_description(exported):
    quantization = config(exported(QWEN, "--format", "fp8-block"))["quantization_config"]
    assert quantization["quant_method"] == "fp8" and quantization["weight_block_size"] == [128, 128]
    assert quantization["activation_scheme"] == "dynamic"
    assert "model.layers.0.self_attn.q_proj" in quantization["modules_to_not_convert"]


def test_every_linear_layer_is_quantised_or_excluded(exported):
    folder = exported(QWEN, "--format", "fp8-block")
    plain = {n.removesuffix(".weight") for n, v in ref.load(folder).items()
             if v.ndim == 2 and n.endswith(".weight") and v.dtype.itemsize == 2 and "embed_tokens" not in n}
    assert plain == set(exclusions(folder))


def test_gpt_oss_tensors(exported):
    folder = exported(GPT_OSS, "--format", "mxfp4")
    source, got = ref.load(GPT_OSS), ref.load(folder)
    base = "model.layers.2.mlp.experts"
    fused = source[f"{base}.gate_up_proj"].astype(ref.F32)  # [E, H, 2I], gate and up alternate
    down = source[f"{base}.down_proj"].astype(ref.F32)      # [E, I, H]
    for expert in (0, 7, 15):
        for name, weight in (("gate_up_proj", fused[expert].T), ("down_proj", down[expert].T)):
            codes, scales = ref.mxfp4(np.ascontiguousarray(weight))
            assert_bits(got[f"{base}.{name}_blocks"][expert].reshape(codes.shape), codes)
            assert_bits(got[f"{base}.{name}_scales"][expert], scales)
    assert got[f"{base}.gate_up_proj_blocks"].shape == (EXPERTS, 2 * I, H // 32, 16)
    assert_bits(got[f"{base}.gate_up_proj_bias"], source[f"{base}.gate_up_proj_bias"])
    assert_bits(got[f"{base}.down_proj_bias"], source[f"{base}.down_proj_bias"])
    quantization = config(folder)["quantization_config"]
    assert quantization["quant_method"] == "mxfp4" and "lm_head" in quantization["modules_to_not_convert"]


def test_gpt_oss_bf16_keeps_the_stacked_transposed_tensors(exported):
    source, got = ref.load(GPT_OSS), ref.load(exported(GPT_OSS, "--format", "bf16"))
    assert got.keys() == source.keys()
    for name, value in source.items():
        assert_bits(got[name], value)


def test_side_files_are_copied(exported):
    folder = exported(QWEN, "--format", "nvfp4")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "reference.safetensors"):
        assert (folder / name).read_bytes() == (QWEN / name).read_bytes()
    assert not [p for p in folder.iterdir() if ".tmp" in p.name or p.name.endswith(".part")]


def test_include_adds_modules_with_a_joint_scale(tmp_path, qwen):
    quantize(QWEN, tmp_path / "out", "--format", "nvfp4", "--include", "*.self_attn.*")
    got = ref.load(tmp_path / "out")
    base = "model.layers.2.self_attn"
    q, k, v = (qwen[f"{base}.{n}_proj.weight"].astype(ref.F32) for n in "qkv")
    scale = ref.nvfp4_scale(q, k, v)
    for name, weight in (("q", q), ("k", k), ("v", v)):
        codes, scales = ref.nvfp4(weight, scale)
        assert_bits(got[f"{base}.{name}_proj.weight"], codes)
        assert_bits(got[f"{base}.{name}_proj.weight_scale"], scales)
    excluded = json.loads((tmp_path / "out/hf_quant_config.json").read_text())["quantization"]["exclude_modules"]
    assert not [e for e in excluded if "self_attn" in e] and "model.layers.2.mlp.gate" in excluded


def test_shards_and_resuming(tmp_path):
    out = tmp_path / "out"
    flags = ("--format", "nvfp4", "--max-shard-size", "1M")
    quantize(QWEN, out, *flags)
    shards = sorted(out.glob("model-*.safetensors"))
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert len(shards) > 4 and set(index["weight_map"].values()) == {p.name for p in shards}
    whole = {p.name: p.read_bytes() for p in shards}
    for path in (shards[1], out / "config.json", out / "model.safetensors.index.json"):  # an interruption in the second shard
        path.unlink()
    before = {p.name: p.stat().st_mtime_ns for p in shards if p.exists()}
    done = quantize(QWEN, out, *flags)
    assert f"{len(shards) - 1} of them from an earlier run" in done.stdout
    assert {p.name: p.read_bytes() for p in sorted(out.glob("model-*.safetensors"))} == whole
    assert all(p.stat().st_mtime_ns == before[p.name] for p in shards if p.name in before)
    assert (out / "config.json").exists()
    other = sluice("quantize", QWEN, out, "--format", "mxfp4", "--max-shard-size", "1M")
    assert other.returncode == 2 and "other options" in other.stderr


def test_a_damaged_shard_of_an_earlier_run_is_not_taken_over(tmp_path):
    out = tmp_path / "out"
    quantize(QWEN, out, "--format", "nvfp4")
    shard = next(out.glob("model*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])
    assert sluice("quantize", QWEN, out, "--format", "nvfp4").returncode == 2


def test_threads_do_not_change_the_files(tmp_path, exported):
    quantize(QWEN, tmp_path / "out", "--format", "nvfp4", "-t", "1")
    one, many = tmp_path / "out", exported(QWEN, "--format", "nvfp4")
    assert (one / "model.safetensors").read_bytes() == (many / "model.safetensors").read_bytes()


@pytest.mark.parametrize("source,flags,code,words", [
    (QWEN, ("--format", "mxfp4", "--dialect", "gpt-oss"), 4, "--format mxfp4 --dialect compressed-tensors"),
    (GPT_OSS, ("--format", "mxfp4", "--dialect", "compressed-tensors"), 4, "--dialect gpt-oss"),
    (QWEN, ("--format", "nvfp4", "--dialect", "deepseek"), 4, "--dialect modelopt"),
    (QWEN, ("--format", "fp8", "--dialect", "modelopt"), 4, "--calibrate"),
    (QWEN, ("--format", "fp8-block", "--calibrate", SHOTS), 4, "without --calibrate"),
    (QWEN, ("--format", "int3"), 2, "nvfp4"),
    (QWEN, ("--format", "nvfp4", "--dialect", "awq"), 2, "compressed-tensors"),
    (QWEN, ("--format", "nvfp4", "--mx-scale", "ocp"), 2, "--format mxfp4"),
    (QWEN, ("--format", "nvfp4", "--include", "*.nothing"), 2, "no module has such a name"),
    (QWEN, ("--format", "nvfp4", "--include", "*.mlp.gate"), 4, "router"),
])
def test_what_cannot_be_written_is_refused_with_what_would_work(tmp_path, source, flags, code, words):
    done = sluice("quantize", source, tmp_path / "out", *flags)
    assert done.returncode == code and words in done.stderr, done.stderr
    assert not (tmp_path / "out" / "config.json").exists()


def test_the_source_and_a_foreign_folder_are_not_written_to(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(QWEN, copy)
    assert sluice("quantize", copy, copy, "--format", "nvfp4").returncode == 2
    done = sluice("quantize", QWEN, copy, "--format", "nvfp4")
    assert done.returncode == 2 and "another checkpoint" in done.stderr
    assert (copy / "config.json").read_bytes() == (QWEN / "config.json").read_bytes()


def test_data_at_odd_offsets_is_read_right(tmp_path, exported):
    """Such tensors are used through copies, whose memory must not be given back as that of the file is."""
    shutil.copytree(exported(QWEN, "--format", "bf16"), tmp_path / "odd")
    path = tmp_path / "odd" / "model.safetensors"
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    path.write_bytes((size + 1).to_bytes(8, "little") + raw[8:8 + size] + b" " + raw[8 + size:])
    quantize(tmp_path / "odd", tmp_path / "out", "--format", "nvfp4")
    got, want = ref.load(tmp_path / "out"), ref.load(exported(QWEN, "--format", "nvfp4"))
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert_bits(got[name], value)


def big_model(folder, experts=48, hidden=1024, inner=448):
    """A Qwen3-MoE of one layer with 132 MB of experts, all alike."""
    folder.mkdir()
    value = json.loads((QWEN / "config.json").read_text())
    value.update(num_hidden_layers=1, num_local_experts=experts, hidden_size=hidden, moe_intermediate_size=inner, vocab_size=64)
    (folder / "config.json").write_text(json.dumps(value))
    rng = np.random.default_rng(1)
    bits = lambda *shape: (rng.standard_normal(shape, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    tensors = {"model.embed_tokens.weight": bits(64, hidden), "lm_head.weight": bits(64, hidden), "model.norm.weight": bits(hidden)}
    base = "model.layers.0"
    for name, shape in (("input_layernorm", (hidden,)), ("post_attention_layernorm", (hidden,)), ("self_attn.q_norm", (64,)), ("self_attn.k_norm", (64,)),
                        ("self_attn.q_proj", (256, hidden)), ("self_attn.k_proj", (128, hidden)), ("self_attn.v_proj", (128, hidden)),
                        ("self_attn.o_proj", (hidden, 256)), ("mlp.gate", (experts, hidden))):
        tensors[f"{base}.{name}.weight"] = bits(*shape)
    one = {"gate": bits(inner, hidden), "up": bits(inner, hidden), "down": bits(hidden, inner)}
    for expert in range(experts):
        tensors.update({f"{base}.mlp.experts.{expert}.{name}_proj.weight": value for name, value in one.items()})
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(array.tobytes())
    return folder


def test_memory_does_not_grow_with_the_model(tmp_path):
    source = big_model(tmp_path / "source")
    assert (source / "model.safetensors").stat().st_size > 130e6
    # Not ru_maxrss: that of a child begins with what this process has.
    child = subprocess.Popen([str(SLUICE), "quantize", str(source), str(tmp_path / "out"), "--format", "nvfp4", "-q"], stdout=subprocess.DEVNULL)
    peak = 0
    while child.poll() is None:
        status = pathlib.Path(f"/proc/{child.pid}/status").read_text()
        if "Name:\tsluice" in status and "VmHWM" in status:
            peak = max(peak, int(status.split("VmHWM:")[1].split()[0]) * 1024)
        time.sleep(0.002)
    assert child.returncode == 0
    assert 1e6 < peak < 60e6, peak
