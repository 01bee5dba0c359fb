"""Makes the goldens of the model families: tiny random checkpoints and what transformers computes from them.

    python make_family_goldens.py make OUT [FAMILY ...]      with transformers 5 (see requirements.txt beside this file)
    python make_family_goldens.py check4 OUT [FAMILY ...]    with transformers 4, afterwards, on the same folder

`make` writes one folder a family: config.json, model.safetensors, experts.safetensors and fused.safetensors (what
is only in the files of save_pretrained, and what is only in those that hold experts as the modules of transformers 5
do; absent where both are equal), expected.safetensors (promptN.input_ids [n] i32, promptN.logits [n, V] f32) and manifest.json. All weights are
bf16 but for correction biases, all arithmetic is float32. `check4` opens the same tensors under a configuration in the
spelling of transformers 4, demands the same logits, and adds config.v4.json.

torch is heavy and is not needed by the tests: goldens are made once and kept in the repository.
"""

import hashlib
import json
import pathlib
import sys
import tempfile

import family_configs
import torch
import transformers
from safetensors.torch import load_file, save_file

SEED = 20260717


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build(family, generation):
    config = getattr(transformers, family["class"] + "Config")(**family_configs.arguments(family, generation))
    config._attn_implementation = "eager"
    return config


def model_class(family):
    return getattr(transformers, family["class"] + "ForCausalLM")


def random_like(name, tensor, generator):
    """Values of a size that makes every part matter: asymmetric gate and up, biases and norms that are not trivial."""
    noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
    if "e_score_correction_bias" in name:  # far from zero with small differences: as bf16 most of them would be equal
        return 6.9 + 0.05 * noise
    if "sinks" in name:
        return noise
    if "norm" in name:
        return 1.0 + 0.25 * noise
    if name.endswith("bias"):
        return (3.0 if "experts" in name else 0.4) * noise
    if "embed_tokens" in name:
        return noise
    fan_in = tensor.shape[-2] if family_is_transposed(name, tensor) else tensor.shape[-1]
    size = 1.0
    if "gate_up_proj" in name:
        size = 5.0  # GPT-OSS clamps, and both sides must happen
    elif "gate_proj" in name or name.endswith("w1.weight"):
        size = 1.7
    elif "up_proj" in name or name.endswith("w3.weight"):
        size = 0.6
    elif "mlp.gate." in name or "router" in name or "block_sparse_moe.gate." in name:
        size = 2.0
    elif name.endswith(("q_proj.weight", "k_proj.weight", "q_b_proj.weight")):
        size = 1.5
    return size * noise / fan_in**0.5


def family_is_transposed(name, tensor):
    return tensor.dim() == 3 and name.endswith(("gate_up_proj", "down_proj"))


def stored(name, tensor):
    return tensor.float().contiguous() if "correction_bias" in name else tensor.to(torch.bfloat16).contiguous()


def saved_tensors(model, original_format):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, save_original_format=original_format)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def mxfp4_tensors(tensors, generator):
    """Random codes and scales in place of the expert matrices [E, in, out]."""
    out = {}
    for name, value in tensors.items():
        if not family_is_transposed(name, value):
            out[name] = value
            continue
        experts, inputs, outputs = value.shape
        blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), generator=generator, dtype=torch.uint8)
        low = 123 if "gate_up" in name else 121
        scales = torch.randint(low, low + 3, (experts, outputs, inputs // 32), generator=generator, dtype=torch.uint8)
        out[name + "_blocks"], out[name + "_scales"] = blocks, scales
    return out


def write_parts(out, saved, fused):
    """What both layouts have, and what only one of them has. Without a second layout everything is in one file."""
    parts = {"model": {n: t for n, t in saved.items() if not fused or n in fused},
             "experts": {n: t for n, t in saved.items() if fused and n not in fused},
             "fused": {n: t for n, t in fused.items() if n not in saved}}
    for part, tensors in parts.items():
        if tensors:
            save_file(tensors, out / (part + ".safetensors"), metadata={"format": "pt"})


def assembled(out, config, layout):
    """A folder as the hub has it, made of the parts."""
    folder = tempfile.TemporaryDirectory()
    tensors = load_file(out / "model.safetensors")
    if (out / (layout + ".safetensors")).exists():
        tensors.update(load_file(out / (layout + ".safetensors")))
    save_file(tensors, pathlib.Path(folder.name) / "model.safetensors", metadata={"format": "pt"})
    (pathlib.Path(folder.name) / "config.json").write_text(config)
    return folder


def load_strictly(family, config, folder):
    extra = {"experts_implementation": "eager"} if transformers.__version__ >= "5" else {}
    if family.get("mxfp4"):
        extra["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
    model, info = model_class(family).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                      output_loading_info=True, **extra)
    unexpected = [n for n in info["unexpected_keys"] if f"layers.{config['num_hidden_layers']}." not in n]
    if info["missing_keys"] or unexpected or info["mismatched_keys"]:
        raise SystemExit(f"{folder}: {info}")
    for module in model.modules():
        if hasattr(module, "limit") and "swiglu_limit" in config:  # transformers has 7 in the code
            module.limit = config["swiglu_limit"]
    return model.float().eval()


def logits_of(model, prompts):
    with torch.no_grad():
        return [model(torch.tensor([ids])).logits[0].float().contiguous() for ids in prompts]


def random_prompts(generator):
    return [torch.randint(0, family_configs.VOCAB, (n,), generator=generator).tolist() for n in family_configs.PROMPTS]


def add_extra_layer(tensors, layers, generator):
    """The layer for multi-token prediction that published files hold after the last one."""
    def noise(*shape):
        return torch.randn(shape, generator=generator).to(torch.bfloat16)

    start = f"model.layers.{layers}."
    copies = {n.replace(f"model.layers.{layers - 1}.", start): t.clone() for n, t in tensors.items()
              if n.startswith(f"model.layers.{layers - 1}.") and ".experts." not in n}
    hidden = tensors["model.norm.weight"].shape[0]
    own = {start + "eh_proj.weight": noise(hidden, 2 * hidden), start + "enorm.weight": noise(hidden),
           start + "hnorm.weight": noise(hidden), start + "shared_head.norm.weight": noise(hidden)}
    return {**tensors, **copies, **own}


def config_text(config):
    values = {k: v for k, v in config.to_diff_dict().items() if not k.startswith("_")}
    full = {**config.to_dict(), **values}
    full.pop("_attn_implementation", None)
    return json.dumps({k: v for k, v in full.items() if not k.startswith("_")}, indent=1, sort_keys=True) + "\n"


def described(family, config):
    config.architectures = [family["class"] + "ForCausalLM"]
    config.dtype = "bfloat16"
    text = json.loads(config_text(config))
    if family.get("mxfp4"):
        text["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    return json.dumps(text, indent=1, sort_keys=True) + "\n"


def make(out, name):
    family = family_configs.FAMILIES[name]
    generator = torch.Generator().manual_seed(SEED + sum(map(ord, name)))
    config = build(family, 5)
    model = model_class(family)(config).float()
    layout = saved_tensors(model, True)
    values = {n: random_like(n, t, generator) for n, t in sorted(layout.items())}
    tensors = {n: stored(n, t) for n, t in values.items()}
    if family.get("mxfp4"):
        tensors = mxfp4_tensors(tensors, generator)
    if family.get("extra_layer"):
        tensors = add_extra_layer(tensors, config.num_hidden_layers, generator)
    out.mkdir(parents=True, exist_ok=True)
    text = described(family, config)
    (out / "config.json").write_text(text)
    write_parts(out, tensors, {})
    with assembled(out, text, "experts") as folder:
        model = load_strictly(family, family["config"], folder)
    prompts = random_prompts(generator)
    logits = logits_of(model, prompts)
    fused = {} if family.get("mxfp4") else {n: stored(n, t) for n, t in saved_tensors(model, False).items()}
    if set(fused) - set(tensors):
        fused.update({n: t for n, t in tensors.items() if f"layers.{config.num_hidden_layers}." in n})
        write_parts(out, tensors, fused)
        for layout in ("experts", "fused"):
            with assembled(out, text, layout) as folder:
                for a, b in zip(logits, logits_of(load_strictly(family, family["config"], folder), prompts)):
                    assert torch.equal(a, b), f"{layout} loads as another model"
    expected = {}
    for i, (ids, rows) in enumerate(zip(prompts, logits)):
        expected[f"prompt{i}.input_ids"] = torch.tensor(ids, dtype=torch.int32)
        expected[f"prompt{i}.logits"] = rows
    save_file(expected, out / "expected.safetensors")
    write_manifest(out, {"family": name, "seed": SEED, "torch": torch.__version__,
                         "transformers": [transformers.__version__]})
    spread = [round(float(rows.std()), 3) for rows in logits]
    print(name, sum(f.stat().st_size for f in out.iterdir()) // 1024, "KiB, logits spread", spread, flush=True)


def write_manifest(out, facts):
    facts["sha256"] = {f.name: digest(f) for f in sorted(out.iterdir()) if f.name != "manifest.json"}
    (out / "manifest.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


def check4(out, name):
    family = family_configs.FAMILIES[name]
    text = described(family, build(family, 4))
    text = text.replace('"dtype"', '"torch_dtype"')
    with assembled(out, text, "experts") as folder:
        model = load_strictly(family, family["config"], folder)
    if "attention_scale_missing_in_4" in family:
        for layer in model.model.layers:
            layer.self_attn.scaling *= family["attention_scale_missing_in_4"]
    expected = load_file(out / "expected.safetensors")
    prompts = [expected[f"prompt{i}.input_ids"].tolist() for i in range(len(family_configs.PROMPTS))]
    worst = 0.0
    for i, rows in enumerate(logits_of(model, prompts)):
        wanted = expected[f"prompt{i}.logits"]
        worst = max(worst, float((rows - wanted).norm() / wanted.norm()))
    print(name, "transformers", transformers.__version__, f"relative L2 {worst:.2e}", flush=True)
    if worst > 1e-5:
        return False
    (out / "config.v4.json").write_text(text)
    facts = json.loads((out / "manifest.json").read_text())
    facts["transformers"] = facts["transformers"][:1] + [transformers.__version__]
    facts["relative_l2_of_transformers_4"] = worst
    write_manifest(out, facts)
    return True


def main():
    step, out, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:] or list(family_configs.FAMILIES)
    torch.use_deterministic_algorithms(True)
    failed = [name for name in names if {"make": make, "check4": check4}[step](out / name, name) is False]
    if failed:
        raise SystemExit("other logits under transformers 4: " + ", ".join(failed))


if __name__ == "__main__":
    main()
