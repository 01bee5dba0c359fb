"""Exchanges quantised checkpoints with compressed-tensors, transformers and nvidia-modelopt, and compares what they mean.

    foreign_roundtrip.py ours BUILD_DIR WORK        our exports, loaded by transformers with compressed-tensors
    foreign_roundtrip.py packed WORK GOLDENS        tiny checkpoints written by compressed-tensors
    foreign_roundtrip.py modelopt WORK GOLDENS      tiny checkpoints written by nvidia-modelopt

Done once; tests/checkpoint/test_foreign_goldens.py reads the goldens. Needs torch, transformers 4.57.1 (whose experts are
linear layers; transformers 5 leaves out the global scale of fused NVFP4 experts), compressed-tensors and nvidia-modelopt.
"""

import hashlib
import importlib.metadata
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
from transformers import AutoConfig, AutoModelForCausalLM, CompressedTensorsConfig, Qwen3MoeConfig, Qwen3MoeForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED = 20
PACKAGES = ("torch", "transformers", "compressed-tensors", "nvidia-modelopt", "numpy", "safetensors")
IGNORED = ["lm_head", "re:.*self_attn.*", r"re:.*mlp\.gate$"]
PARTS = ("gate", "up", "down")


# Our exports in their packages.

def decoded_by_us(build, folder, work):
    """What our readers make of an export, through the probe of the tests."""
    copy = work / "probe"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    config.update(num_experts=config["num_local_experts"], probe={})
    (copy / "config.json").write_text(json.dumps(config))
    out = work / "decoded.safetensors"
    subprocess.run([str(build / "tests/checkpoint/weights_probe"), "load", str(copy), str(out)], check=True, stdout=subprocess.DEVNULL)
    return safetensors.numpy.load_file(out)


def loaded_by_them(folder):
    # transformers 4 knows the number of experts by another name.
    config = AutoConfig.from_pretrained(folder, num_experts=16)
    model, info = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, output_loading_info=True,
                                                       quantization_config=CompressedTensorsConfig(run_compressed=False))
    assert not any(info.values()), info
    return model.state_dict()


def ulps(a, b):
    """Distance of two float32 arrays of equal signs, in units of the last place."""
    return np.abs(a.view(np.int32).astype(np.int64) - b.view(np.int32).astype(np.int64))


def next_to_a_tie(values):
    """Which float32 values lie within two units of the middle between two bfloat16 numbers."""
    low = values.view(np.int32) & 0xFFFF
    return np.abs(low - 0x8000) <= 2


def explain_nvfp4(folder, ours, theirs):
    """The package computes code * (block scale / global scale), we code * block scale * (1 / global scale): equal numbers with
    other roundings in float32. Its bfloat16 weights are exactly its float32 ones rounded; they differ from ours only where
    a value is the middle between two bfloat16 numbers, which happens because amax / 2688 of bfloat16 weights is a short fraction."""
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    farthest = differ = 0
    for name, our in ours.items():
        if name.split(".")[0] not in PARTS:
            continue
        part, layer, expert = name.split(".")
        module = f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj"
        packed, scale = stored[module + ".weight_packed"], stored[module + ".weight_scale"].float()
        codes = unpack_fp4_from_uint8(packed, packed.shape[0], packed.shape[1] * 2, dtype=torch.float32)
        formula = codes * (scale / stored[module + ".weight_global_scale"]).repeat_interleave(16, 1)
        loaded = theirs[module + ".weight"]
        assert torch.equal(formula.to(loaded.dtype), loaded), module
        other = (torch.from_numpy(our).to(loaded.dtype) != loaded).numpy()
        assert next_to_a_tie(our[other]).all() and next_to_a_tie(formula.numpy()[other]).all(), module
        farthest, differ = max(farthest, int(ulps(our, formula.numpy()).max())), differ + int(other.sum())
    print(f"nvfp4 in float32: at most {farthest} units of the last place apart; all {differ} weights that differ as bfloat16 lie within "
          "two units of a tie of that rounding", flush=True)


def compare_ours(build, work):
    for form in ("nvfp4", "mxfp4", "fp8", "fp8-block"):
        folder = work / f"ours-{form}"
        if not folder.exists():
            subprocess.run([str(build / "bin/sluice"), "quantize", str(ROOT / "models/qwen3_moe"), str(folder), "--format", form,
                            "--dialect", "compressed-tensors", "--quiet"], check=True)
        ours, theirs = decoded_by_us(build, folder, work), loaded_by_them(folder)
        total = same = worst = 0
        for name, value in ours.items():
            if name.split(".")[0] not in PARTS:
                continue
            part, layer, expert = name.split(".")
            their = theirs[f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"]
            # The package decodes 4-bit weights to bfloat16.
            our = torch.from_numpy(value).to(their.dtype).float().numpy()
            their = their.float().numpy()
            total, same = total + our.size, same + int((our == their).sum())
            worst = max(worst, float((np.abs(our - their) / np.maximum(np.abs(our), 1e-30)).max()))
        dtype = theirs["model.layers.0.mlp.experts.0.up_proj.weight"].dtype
        print(f"{form}: {same} of {total} weights equal as {dtype}, largest relative difference {worst:.3g}", flush=True)
        if form == "nvfp4":
            explain_nvfp4(folder, ours, theirs)


# Tiny checkpoints of theirs.

def tiny_model(hidden=64, inner=32, heads=4):
    torch.manual_seed(SEED)
    config = Qwen3MoeConfig(vocab_size=48, hidden_size=hidden, intermediate_size=inner, moe_intermediate_size=inner, num_experts=2,
                            num_experts_per_tok=2, num_hidden_layers=1, num_attention_heads=heads, num_key_value_heads=1,
                            head_dim=hidden // heads, max_position_embeddings=64, initializer_range=0.1, norm_topk_prob=True,
                            bos_token_id=None, eos_token_id=0, architectures=["Qwen3MoeForCausalLM"])
    return Qwen3MoeForCausalLM(config).to(torch.bfloat16).eval()


def keep(golden, folder, expected):
    shutil.rmtree(golden, ignore_errors=True)
    golden.mkdir(parents=True)
    for name in ("config.json", "hf_quant_config.json", "model.safetensors"):
        if (folder / name).exists():
            shutil.copy(folder / name, golden / name)
    np.savez_compressed(golden / "expected.npz", **expected)


def spans(weight, args):
    """The values that share a scale, as the last axis of [scale rows, scale cols, n]."""
    rows, cols = weight.shape
    by_strategy = {"tensor": (rows, cols), "channel": (1, cols), "block": args.block_structure}
    high, wide = by_strategy.get(args.strategy) or (1, args.group_size)
    padded = torch.nn.functional.pad(weight, (0, -cols % wide, 0, -rows % high))
    tiles = padded.reshape(padded.shape[0] // high, high, padded.shape[1] // wide, wide)
    return tiles.permute(0, 2, 1, 3).flatten(2)


def set_scales(module, index):
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    weight, args = module.weight.data.float(), module.quantization_scheme.weights
    low, high = (pick(spans(weight, args), -1) for pick in (torch.amin, torch.amax))
    if args.strategy == "tensor":
        low, high = low.reshape(()), high.reshape(())
    whole = None
    if hasattr(module, "weight_global_scale"):
        whole = generate_gparam(weight.min(), weight.max())
        module.weight_global_scale.data = whole
    module.weight_scale.data = calculate_qparams(low, high, args, global_scale=whole)[0].float()
    if hasattr(module, "input_scale"):
        module.input_scale.data = torch.tensor([0.01 + 0.001 * index])
    if hasattr(module, "input_global_scale"):
        module.input_global_scale.data = torch.tensor([500.0 + 7 * index])


def their_values(module):
    """Their own dequantisation, in float32 where their decompressor would round to bfloat16."""
    from compressed_tensors.compressors.mx_utils import decompress_mx_scale
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    args, scale = module.quantization_scheme.weights, module.weight_scale.data
    if not hasattr(module, "weight_packed"):
        return dequantize(module.weight.data, scale.float(), args=args, dtype=torch.float32).numpy()
    packed = module.weight_packed.data
    values = unpack_fp4_from_uint8(packed, packed.shape[0], packed.shape[1] * 2, dtype=torch.float32)
    scale = decompress_mx_scale(scale) if scale.dtype == torch.uint8 else scale
    whole = getattr(module, "weight_global_scale", None)
    return dequantize(values, scale.float(), args=args, global_scale=whole, dtype=torch.float32).detach().numpy()


def write_packed(preset, name, work, goldens, **shape):
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config, preset_name_to_scheme
    model = tiny_model(**shape)
    scheme = preset_name_to_scheme(preset, ["Linear"])
    apply_quantization_config(model, QuantizationConfig(config_groups={"group_0": scheme}, ignore=IGNORED))
    modules = {n: m for n, m in model.named_modules() if hasattr(m, "quantization_scheme")}
    for index, module in enumerate(modules.values()):
        set_scales(module, index)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    folder = work / name
    model.save_pretrained(folder)
    compressor.update_config(str(folder))
    keep(goldens / name, folder, {n: their_values(m) for n, m in modules.items()})
    print(f"{name}: {len(modules)} modules written", flush=True)


def write_modelopt(config, name, work, goldens):
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor
    model = tiny_model()
    tokens = torch.arange(48).reshape(4, 12)
    mtq.quantize(model, getattr(mtq, config), lambda m: m(tokens))
    folder = work / name
    export_hf_checkpoint(model, export_dir=folder)
    tensors, expected = safetensors.torch.load_file(folder / "model.safetensors"), {}
    for key, codes in tensors.items():
        module = key.removesuffix(".weight")
        scale = tensors.get(module + ".weight_scale")
        if scale is None or module == key:
            continue
        if codes.dtype == torch.uint8:
            whole = NVFP4QTensor((codes.shape[0], codes.shape[1] * 2), torch.float32, codes)
            values = whole.dequantize(scale=scale, double_scale=tensors[module + ".weight_scale_2"], block_sizes={-1: 16})
        else:
            values = FP8QTensor(codes.shape, torch.float32, codes).dequantize(scale=scale, block_sizes=None)
        expected[module] = values.numpy()
    keep(goldens / name, folder, expected)
    print(f"{name}: {len(expected)} modules written", flush=True)


def write_manifest(goldens):
    versions = {}
    for name in PACKAGES:
        versions[name] = importlib.metadata.version(name)
    files = {str(p.relative_to(goldens)): hashlib.sha256(p.read_bytes()).hexdigest()
             for p in sorted(goldens.rglob("*")) if p.is_file() and p.name != "manifest.json"}
    (goldens / "manifest.json").write_text(json.dumps({"versions": versions, "seed": SEED, "sha256": files}, indent=1) + "\n")


def main(command, first, second):
    first, second = pathlib.Path(first), pathlib.Path(second)
    if command == "ours":
        compare_ours(first, second)
        return
    if command == "packed":
        for preset in ("NVFP4", "NVFP4A16", "MXFP4A16", "FP8", "FP8_DYNAMIC"):
            write_packed(preset, f"packed_{preset.lower()}", first, second)
        write_packed("FP8_BLOCK", "packed_fp8_block", first, second, hidden=144, inner=48)
    else:
        write_modelopt("NVFP4_DEFAULT_CFG", "modelopt_nvfp4", first, second)
        write_modelopt("FP8_DEFAULT_CFG", "modelopt_fp8", first, second)
    write_manifest(second)


if __name__ == "__main__":
    main(*sys.argv[1:])
