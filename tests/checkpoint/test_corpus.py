"""Damaged and contradictory checkpoints (corpus.py): each is refused with a message that names the fault, and `check` finds it.

What is odd but right is in test_dialects.py.
"""

import json

import numpy as np
import pytest
import weights_probe
from corpus import *  # noqa: F403


@pytest.mark.parametrize("name", CORPUS)
def test_refused(tmp_path, name):
    make, change, parts, code, kind = CORPUS[name]
    m = make()
    change(m)
    folder = m.save(tmp_path)
    found, message = weights_probe.refusal(folder)
    assert found == code, message
    for part in parts:
        assert part.replace('"', '\\"') in message or part in message, (part, message)
    report = weights_probe.check(folder)
    assert not report["ok"]
    errors = [f for f in report["findings"] if f["severity"] == "error"]
    matching = [f for f in errors if f["message"].strip() == message.strip() or all(p in f["message"] for p in parts)]
    assert matching, (message, errors)
    assert kind is None or matching[0]["kind"] == kind, matching


def test_the_corpus_is_large_enough():
    assert len(CORPUS) >= 25


def test_adapter_folder(tmp_path):
    folder = good_modelopt().save(tmp_path)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "target_modules": ["q_proj", "gate_proj"]}))
    code, message = weights_probe.refusal(folder)
    assert code == UNSUPPORTED
    assert "LoRA adapter for q_proj, gate_proj" in message


def test_check_finds_several_faults_at_once(tmp_path):
    m = good_modelopt()
    for name in ("tensor_scale_nan", "weight_of_another_projection", "input_scale_missing"):
        CORPUS[name][1](m)
    poke(m, "model.layers.0.mlp.experts.0.up_proj.weight_scale_2", 0)
    poke(m, "model.layers.0.mlp.experts.1.up_proj.weight_scale_2", 0)
    m.tensors["model.stranger"] = m.scale(3)
    report = weights_probe.check(m.save(tmp_path))
    found = {(f["severity"], f["kind"], f["tensor"], f["count"]) for f in report["findings"]}
    assert ("error", "shape", M + ".weight", 1) in found
    assert ("error", "scale", "model.layers.0.mlp.experts.0.up_proj.weight_scale_2", 2) in found
    assert ("warning", "unused", "model.stranger", 1) in found


# Repairs: each by its own name, with the value it promises and a line that says so.

def changed(name):
    make, change, *_ = CORPUS[name]
    m = make()
    change(m)
    return m


@pytest.mark.parametrize(("name", "policy"), [
    ("input_scale_missing", "fill-missing"), ("input_scale_nan", "fill-invalid"), ("input_scale_zero", "fill-invalid"),
    ("input_reciprocal_infinite", "fill-invalid"), ("input_scale_missing", "clamp-denormal,fill-missing"),
])
def test_filled_input_scale(tmp_path, name, policy):
    m = changed(name)
    found, facts = weights_probe.load(m.save(tmp_path), policy)
    want = m.expected["input.down.1"].copy()
    want[2] = want[:2].max()
    m.expected["input.down.1"] = want
    weights_probe.assert_same(found, m.expected)
    assert any("largest of the layer" in note for note in facts["notes"]), facts["notes"]


@pytest.mark.parametrize("name", ["input_scale_denormal", "tensor_scale_denormal"])
def test_clamped_scale(tmp_path, name):
    m = changed(name)
    found, facts = weights_probe.load(m.save(tmp_path), "clamp-denormal")
    assert any("clamp-denormal" in note for note in facts["notes"]), facts["notes"]
    if name == "input_scale_denormal":
        assert found["input.down.1"][2] == np.finfo(F32).tiny
    else:
        values = unpack(m.tensors[M + ".weight"]) * spread(m.tensors[M + ".weight_scale"], 1, 16, (HIDDEN, INNER))
        assert (found["down.1.2"] == values * np.finfo(F32).tiny).all()


@pytest.mark.parametrize("name", ["input_scale_missing", "input_scale_nan", "input_scales_described_but_absent"])
def test_ignored_input_scales(tmp_path, name):
    m = changed(name)
    found, _ = weights_probe.load(m.save(tmp_path), "weight-only")
    weights_probe.assert_same(found, {k: v for k, v in m.expected.items() if not k.startswith("input.")})


@pytest.mark.parametrize(("name", "policy"), [
    ("input_scale_missing", "fill-invalid"), ("input_scale_nan", "fill-missing"), ("tensor_scale_nan", "fill-invalid"),
    ("tensor_scale_zero", "clamp-denormal"), ("input_scales_of_a_layer_missing", "fill-missing"),
])
def test_a_repair_does_only_what_it_says(tmp_path, name, policy):
    code, _ = weights_probe.refusal(changed(name).save(tmp_path), policy)
    assert code == BAD_INPUT


def test_unknown_policy(tmp_path):
    code, _, err = weights_probe.run("load", good_modelopt().save(tmp_path), tmp_path / "out", "lenient")
    assert code == 2
    assert 'scale policy "lenient"' in err
