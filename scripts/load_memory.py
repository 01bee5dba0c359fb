#!/usr/bin/env python3
"""Memory and time of loading: writes a synthetic checkpoint and loads it while watching the process.

    python scripts/load_memory.py [--format bf16 fp8-block nvfp4 mxfp4] [--gb 2] [--repeat 3] [--mapped-mb 256]
                                   [--write-mb 64] [--vocabulary 1024] [--folder DIR] [--keep]

Prints one row a format: the most anonymous memory while loading, as a share of the bytes of the file (which are those
of the prepared weights, but for fillings); the most pages of mapped files; and the speed of loading against the speed
at which as many threads copy the same files from the page cache. Loading also needs as much memory that nobody used
before, so the speed of copying into that is given as well: as programs copy, and with the last byte of every huge page
used first, which is faster where Linux clears pages towards the byte that is used. Watching takes a processor now and
then, so that times are those of loads that nobody watches. Exits with 1 where memory is beyond its bound.
The checkpoint is a Qwen3-MoE of 64 experts with random weights; its text is of no interest. Its files are written
--write-mb at a time (0: tensor by tensor), which decides how large the pages are that the page cache keeps them in.
Needs numpy; SLUICE_BUILD_DIR names the build (default: build/cpu).
"""

import argparse
import concurrent.futures
import json
import mmap
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR", ROOT / "build" / "cpu"))
HIDDEN, INNER, EXPERTS, HEADS, KV_HEADS, HEAD_DIM = 2048, 768, 64, 32, 4, 128
BITS = {"bf16": 16, "fp8-block": 8.002, "nvfp4": 4.5, "mxfp4": 4.25}
MOST_ANONYMOUS = 1.05  # of the prepared bytes
MOST_MAPPED_MB = 256
BLOCK = 1 << 20
HUGE_PAGE = 2 << 20
OWNED = 1.3  # of the file: what a load takes


def random_bytes(kind, count):
    """Bytes that are finite values in every format that they are read as."""
    r = np.random.default_rng(1)
    if kind == "BF16":
        return (r.integers(0x3C00, 0x3D00, count // 2, dtype=np.uint16) | (r.integers(0, 2, count // 2, dtype=np.uint16) << 15)).tobytes()
    if kind == "F32":
        return np.full(count // 4, 0.0078125, dtype="<f4").tobytes()
    low, high = {"codes": (0, 256), "F8_E4M3": (0, 0x70), "nvfp4 scale": (0x30, 0x40), "mxfp4 scale": (112, 124)}[kind]
    return r.integers(low, high, count, dtype=np.uint8).tobytes()


def linear(fmt, module, rows, cols):
    """Tensors (name, type, shape, kind of bytes) of one quantised projection."""
    if fmt == "bf16":
        return [(f"{module}.weight", "BF16", [rows, cols], "BF16")]
    if fmt == "fp8-block":
        return [(f"{module}.weight", "F8_E4M3", [rows, cols], "F8_E4M3"),
                (f"{module}.weight_scale_inv", "F32", [-(-rows // 128), -(-cols // 128)], "F32")]
    if fmt == "nvfp4":
        return [(f"{module}.weight", "U8", [rows, cols // 2], "codes"),
                (f"{module}.weight_scale", "F8_E4M3", [rows, cols // 16], "nvfp4 scale"),
                (f"{module}.weight_scale_2", "F32", [], "F32")]
    return [(f"{module}.weight_packed", "U8", [rows, cols // 2], "codes"),
            (f"{module}.weight_scale", "U8", [rows, cols // 32], "mxfp4 scale")]


def layer_tensors(fmt, layer):
    base = f"model.layers.{layer}"
    plain = lambda name, *shape: (f"{base}.{name}.weight", "BF16", list(shape), "BF16")
    tensors = [plain("input_layernorm", HIDDEN), plain("post_attention_layernorm", HIDDEN),
               plain("self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN), plain("self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN),
               plain("self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN), plain("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM),
               plain("self_attn.q_norm", HEAD_DIM), plain("self_attn.k_norm", HEAD_DIM), plain("mlp.gate", EXPERTS, HIDDEN)]
    for e in range(EXPERTS):
        for name, rows, cols in (("gate", INNER, HIDDEN), ("up", INNER, HIDDEN), ("down", HIDDEN, INNER)):
            tensors += linear(fmt, f"{base}.mlp.experts.{e}.{name}_proj", rows, cols)
    return tensors


def write_file(path, tensors, write_bytes):
    size = lambda t: int(np.prod(t[2], dtype=np.int64)) * {"BF16": 2, "F32": 4}.get(t[1], 1)
    tensors = sorted(tensors, key=lambda t: -{"BF16": 2, "F32": 4}.get(t[1], 1))
    header, at = {}, 0
    for t in tensors:
        header[t[0]] = {"dtype": t[1], "shape": t[2], "data_offsets": [at, at + size(t)]}
        at += size(t)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    made = {}
    with open(path, "wb", buffering=write_bytes) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for t in tensors:
            key = (t[3], size(t))
            if key not in made:
                made[key] = random_bytes(*key)
            file.write(made[key])


def quantization(fmt, layers):
    keep = ["lm_head"] + [f"model.layers.{i}.{m}" for i in range(layers)
                          for m in ("mlp.gate", *(f"self_attn.{p}_proj" for p in "qkvo"))]
    if fmt == "fp8-block":
        return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
                "modules_to_not_convert": keep}
    if fmt == "nvfp4":
        return {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "ignore": keep, "config_groups": {"group_0": {
            "input_activations": None, "targets": ["Linear"],
            "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}}}}
    return {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "quantization_status": "compressed",
            "ignore": keep, "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": {
                "num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True,
                "dynamic": False, "scale_dtype": "torch.uint8"}}}}


def write_checkpoint(fmt, folder, total_bytes, write_bytes, vocabulary):
    base = ROOT / "models" / "qwen3_moe"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(base / name, folder)
    layer_bytes = EXPERTS * 3 * HIDDEN * INNER * BITS[fmt] / 8 + 2 * 2 * HIDDEN * (HEADS + KV_HEADS) * HEAD_DIM
    layers = max(1, round(total_bytes / layer_bytes))
    config = json.loads((base / "config.json").read_text())
    config.update(hidden_size=HIDDEN, moe_intermediate_size=INNER, num_local_experts=EXPERTS, num_experts_per_tok=8,
                  num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, num_hidden_layers=layers,
                  vocab_size=vocabulary)
    if fmt != "bf16":
        config["quantization_config"] = quantization(fmt, layers)
    (folder / "config.json").write_text(json.dumps(config))
    outside = [("model.embed_tokens.weight", "BF16", [vocabulary, HIDDEN], "BF16"),
               ("lm_head.weight", "BF16", [vocabulary, HIDDEN], "BF16"), ("model.norm.weight", "BF16", [HIDDEN], "BF16")]
    weight_map = {}
    for number in range(layers):
        tensors = layer_tensors(fmt, number) + (outside if number == 0 else [])
        name = f"model-{number + 1:05}-of-{layers:05}.safetensors"
        write_file(folder / name, tensors, write_bytes)
        weight_map.update({t[0]: name for t in tensors})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def weight_files(folder):
    return sorted(folder.glob("*.safetensors"))


def each_thread(threads, work):
    """Seconds until all threads have done work(i), and the sum of what they return."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        begin = time.perf_counter()
        done = sum(pool.map(work, range(threads)))
        return time.perf_counter() - begin, done


def blocks_of(folder, threads):
    files = [np.memmap(f, dtype=np.uint8, mode="r") for f in weight_files(folder)]
    blocks = [file[at:at + BLOCK] for file in files for at in range(0, len(file), BLOCK)]
    return [blocks[len(blocks) * i // threads:len(blocks) * (i + 1) // threads] for i in range(threads)]


def read_speed(folder, threads):
    """GB/s at which `threads` threads copy the files, mapped anew and in the page cache, into small buffers."""
    blocks = blocks_of(folder, threads)

    def read(i):
        buffer = np.empty(BLOCK, np.uint8)
        for block in blocks[i]:
            np.copyto(buffer[:len(block)], block)
        return sum(map(len, blocks[i]))

    seconds, done = each_thread(threads, read)
    return done / seconds * 1e-9


def new_memory(count):
    """From the beginning of a huge page on."""
    memory = mmap.mmap(-1, count + 2 * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    pages = np.frombuffer(memory, dtype=np.uint8)
    return pages[-pages.ctypes.data % HUGE_PAGE:]


def copy_speed(folder, threads, from_ends):
    """GB/s of the same into memory that this process has not used before, as everything that keeps weights has to.
    `from_ends`: of every huge page the last byte is used first, so that Linux clears it forwards."""
    blocks = blocks_of(folder, threads)
    memory = new_memory(sum(len(b) for part in blocks for b in part))
    starts = np.cumsum([0] + [sum(map(len, part)) for part in blocks])

    def copy(i):
        at = begin = int(starts[i])
        for block in blocks[i]:
            if from_ends and (at == begin or at // HUGE_PAGE != (at + len(block)) // HUGE_PAGE):
                memory[at // HUGE_PAGE * HUGE_PAGE + HUGE_PAGE - 1] = 0
                memory[(at + len(block)) // HUGE_PAGE * HUGE_PAGE + HUGE_PAGE - 1] = 0
            np.copyto(memory[at:at + len(block)], block)
            at += len(block)
        return at - begin

    seconds, done = each_thread(threads, copy)
    return done / seconds * 1e-9


def own_memory(count, threads):
    """Makes a virtual machine own as much free memory as a load takes, for about a second: a page that its host has to
    find first costs many times what clearing it does, and that says nothing about the loader."""
    pages = new_memory(count)

    def touch(i):
        pages[count * i // threads:count * (i + 1) // threads:4096] = 1
        return 0

    for _ in range(2):
        each_thread(threads, touch)


def load(folder, watch):
    """Loads the checkpoint; the most anonymous and mapped bytes until it is loaded (0 unless `watch`ed), and the seconds
    that it tells."""
    command = [BUILD / "bin" / "sluice", "run", folder, "-p", "x", "-n", "1", "--context-length", "256"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = []
    reader = threading.Thread(target=lambda: [said.append(line) for line in process.stderr])
    reader.start()
    most = {"RssAnon": 0, "RssFile": 0}
    while watch and process.poll() is None and not any("loaded in" in line for line in list(said)):
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            break
        for key in most:
            found = re.search(rf"{key}:\s+(\d+) kB", status)
            most[key] = max(most[key], int(found[1]) * 1024 if found else 0)
        time.sleep(0.002)
    code = process.wait()
    reader.join()
    text = "".join(said)
    found = re.search(r"loaded in ([\d.]+) s", text)
    if code != 0 or found is None:
        sys.exit(f"loading {folder} failed:\n{text}")
    return most["RssAnon"], most["RssFile"], float(found[1])


def middle(values):
    return sorted(values)[len(values) // 2]


def speed_text(values):
    return f"{middle(values):5.2f} GB/s ({min(values):.2f} to {max(values):.2f})"


def measure(fmt, folder, threads, repeat, mapped_mb):
    file_bytes = sum(f.stat().st_size for f in weight_files(folder))
    read_speed(folder, threads)  # into the page cache
    anonymous = mapped = 0
    loads, reads, copies, best_copies = [], [], [], []
    for _ in range(repeat):
        reads.append(read_speed(folder, threads))
        for from_ends, speeds in ((False, copies), (True, best_copies)):
            own_memory(int(file_bytes * OWNED), threads)
            speeds.append(copy_speed(folder, threads, from_ends))
        own_memory(int(file_bytes * OWNED), threads)
        loads.append(file_bytes / load(folder, watch=False)[2] * 1e-9)
        most_anonymous, most_mapped, _ = load(folder, watch=True)
        anonymous, mapped = max(anonymous, most_anonymous), max(mapped, most_mapped)
    share = lambda of: f"{100 * middle([l / o for l, o in zip(loads, of)]):.0f} %"
    print(f"{fmt:>10} {file_bytes / 1e9:6.2f} GB  anonymous {100 * anonymous / file_bytes:6.1f} %  mapped {mapped / 1e6:6.0f} MB"
          f"  load {speed_text(loads)}  copy {speed_text(copies)} {share(copies)}"
          f"  from ends {speed_text(best_copies)} {share(best_copies)}  read {speed_text(reads)} {share(reads)}",
          flush=True)
    return anonymous <= MOST_ANONYMOUS * file_bytes and mapped <= mapped_mb * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--format", nargs="+", default=list(BITS), choices=list(BITS))
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--mapped-mb", type=float, default=MOST_MAPPED_MB, help="most mapped pages")
    parser.add_argument("--write-mb", type=int, default=64, help="MB that are written at a time; 0: a tensor")
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    root = args.folder or pathlib.Path(tempfile.mkdtemp(prefix="sluice_load_"))
    good = True
    try:
        for fmt in args.format:
            folder = root / f"{fmt}-{args.gb:g}-gb-{args.write_mb}-mb"
            if not folder.exists():
                write_checkpoint(fmt, folder, args.gb * 1e9, args.write_mb << 20, args.vocabulary)
            good = measure(fmt, folder, args.threads, args.repeat, args.mapped_mb) and good
            if not args.keep:
                shutil.rmtree(folder)
    finally:
        if not args.keep and args.folder is None:
            shutil.rmtree(root, ignore_errors=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
