#!/usr/bin/env python3
"""Time one MoE layer of other software on this GPU, with the shapes and the method of `sluice bench moe --device cuda`.

Peers, each where it can be imported: PyTorch's grouped GEMM (bf16), the Triton fused_moe kernels of an installed SGLang
(bf16, fp8-block, fp8-tensor) and DeepGEMM's grouped GEMM with what has to stand around it (fp8-block). Prints the
lines of one peer in the form that `--baseline` of `sluice bench moe` reads; what was refused or wrong goes to stderr.

    python3 scripts/bench_peers.py --peers deepgemm --tokens 1,64,4096 > deepgemm.csv

Hidden states, ids and weights in, bf16 hidden states out. A CUDA graph of n times [read 256 MB, event, layer, event] is
replayed and the median taken; a result is compared with an fp32 layer on up to four tokens before its time is printed.
"""
import argparse
import sys
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from peer_layers import BLOCK, E4M3, E4M3_MAX, RECIPES, DeepGemm, PyTorch, Triton

SHAPES = {  # experts here, k, H, I
    "mixtral-8x7b": (8, 2, 4096, 14336),
    "qwen3-30b": (128, 8, 2048, 768),
    "qwen3-235b": (128, 8, 4096, 1536),
    "deepseek-v3-rank": (32, 1, 7168, 2048),
    "gpt-oss-120b": (128, 4, 2880, 2880),
}
FLOOR_BYTES_PER_S, FLOOR_OPS_PER_S = 4.55e12, {"bf16": 740e12, "fp8-block": 1290e12, "fp8-tensor": 1290e12}
# Relative L2 against fp32 on unrounded inputs: bf16 rows, or two roundings to e4m3.
MOST_ERROR = {"bf16": 1e-2, "fp8-block": 6e-2, "fp8-tensor": 6e-2}


def weights(shape, recipe, fill=True):
    """w13 [E, 2I, H] gate first, w2 [E, H, I] and their decode scales (per expert, or per block of 128 x 128)."""
    experts, k, hidden, inter = SHAPES[shape]
    dtype = torch.bfloat16 if recipe == "bf16" else E4M3
    layer = SimpleNamespace(shape=shape, recipe=recipe, experts=experts, k=k, hidden=hidden, inter=inter)
    generator = torch.Generator(device="cuda").manual_seed(1)
    for name, rows, cols in (("w13", 2 * inter, hidden), ("w2", hidden, inter)):
        w = torch.empty(experts, rows, cols, device="cuda", dtype=dtype)
        blocks = (-(-rows // BLOCK), -(-cols // BLOCK)) if recipe == "fp8-block" else ()
        scale = torch.ones(experts, *blocks, device="cuda")
        for e in range(experts if fill else 0):
            values = torch.randn(rows, cols, device="cuda", generator=generator) * 0.02
            if recipe == "fp8-tensor":
                scale[e] = values.abs().max() / E4M3_MAX
                values /= scale[e]
            elif recipe == "fp8-block":
                tiles = values.view(blocks[0], BLOCK, blocks[1], BLOCK)
                scale[e] = tiles.abs().amax((1, 3)) / E4M3_MAX
                values = (tiles / scale[e][:, None, :, None]).view(rows, cols)
            w[e] = values.to(dtype)
        setattr(layer, name, w)
        setattr(layer, name + "_scale", None if recipe == "bf16" else scale)
    return layer


def batch(layer, tokens):
    generator = torch.Generator(device="cuda").manual_seed(2 + tokens)
    layer.tokens = tokens
    layer.x = torch.randn(tokens, layer.hidden, device="cuda", generator=generator).to(torch.bfloat16)
    picks = torch.rand(tokens, layer.experts, device="cuda", generator=generator).topk(layer.k, -1).indices
    layer.ids = picks.to(torch.int32).contiguous()
    layer.topk = torch.softmax(torch.randn(tokens, layer.k, device="cuda", generator=generator), -1)
    layer.counts = torch.bincount(layer.ids.flatten(), minlength=layer.experts).tolist()
    layer.out = torch.full_like(layer.x, float("nan"))
    if layer.recipe == "fp8-tensor":  # static scales, as in a calibrated checkpoint
        layer.x_scale = (layer.x.abs().max().float() / E4M3_MAX).view(1)
        most = max(float(hidden_row(layer, t, s).abs().max()) for t in sample(layer) for s in range(layer.k))
        layer.mid_scale = torch.full((1,), 1.5 * most / E4M3_MAX, device="cuda")


def plain(layer, name, e):
    w, scale = getattr(layer, name)[e].float(), getattr(layer, name + "_scale")
    if layer.recipe == "fp8-tensor":
        w *= scale[e]
    if layer.recipe == "fp8-block":
        w *= scale[e].repeat_interleave(BLOCK, 0)[: w.shape[0]].repeat_interleave(BLOCK, 1)[:, : w.shape[1]]
    return w


def sample(layer):
    return sorted({0, layer.tokens // 3, 2 * layer.tokens // 3, layer.tokens - 1})


def hidden_row(layer, t, s):
    gate, up = (plain(layer, "w13", int(layer.ids[t, s])) @ layer.x[t].float()).chunk(2)
    return F.silu(gate) * up


def error(layer):
    worst = 0.0
    for t in sample(layer):
        want = torch.zeros(layer.hidden, device="cuda")
        for s in range(layer.k):
            want += layer.topk[t, s] * (plain(layer, "w2", int(layer.ids[t, s])) @ hidden_row(layer, t, s))
        difference = (layer.out[t].float() - want).norm() / want.norm()
        worst = max(worst, float(difference)) if not torch.isnan(difference) else float("inf")
    return worst


def floor_us(layer):
    active = sum(1 for n in layer.counts if n)
    size = 2 if layer.recipe == "bf16" else 1
    moved = active * 3 * layer.hidden * layer.inter * size + 4 * layer.tokens * layer.hidden
    operations = 6 * layer.hidden * layer.inter * layer.tokens * layer.k
    return max(moved / FLOOR_BYTES_PER_S, operations / FLOOR_OPS_PER_S[layer.recipe]) * 1e6


class Clock:
    def __init__(self):
        self.cold = torch.ones(64 << 20, device="cuda")
        self.sum = torch.zeros((), device="cuda")

    def us(self, run, repetitions):
        """Median of `repetitions` in one graph; `run` is warm (compiled, allocated) and captures without waiting."""
        event = lambda: torch.cuda.Event(enable_timing=True, external=True)  # noqa: E731
        events = [(event(), event()) for _ in range(repetitions)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for begin, end in events:
                torch.sum(self.cold, 0, out=self.sum)
                begin.record()
                run()
                end.record()
        graph.replay()
        torch.cuda.synchronize()
        times = sorted(begin.elapsed_time(end) * 1e3 for begin, end in events)
        return times[len(times) // 2]


def repetitions(tokens):
    return 25 if tokens <= 1024 else 11 if tokens <= 4096 else 7


def note(name, d, label, text):
    print(f"{name} {d.recipe} {d.shape} {d.tokens} {label}: {text}", file=sys.stderr, flush=True)


def cell(clock, name, peer, d, quick):
    """The fastest way of this peer whose result is right."""
    found = []
    vars(d).pop("gemms", None)  # of another peer
    ways = list(peer.ways(d))
    for label, run in ways:
        try:
            d.out.fill_(float("nan"))
            run()
            torch.cuda.synchronize()
            wrong = error(d)
            if not wrong <= MOST_ERROR[d.recipe]:
                note(name, d, label, f"error {wrong:.1e}")
                continue
            found.append((clock.us(run, 3 if len(ways) > 1 else 1), wrong, label, run))
        except Exception as problem:  # a tile that does not fit, a layer the peer refuses
            note(name, d, label, repr(str(problem)[:300]))
    if not found:
        return
    _, wrong, label, run = min(found, key=lambda way: way[0])
    run()
    detail = label + "".join(f"; {w[2]} {w[0]:.1f}" for w in found if len(found) > 1)
    times = 3 if quick else repetitions(d.tokens)
    if hasattr(d, "gemms"):
        detail += f"; both GEMMs alone {clock.us(d.gemms, times):.1f}"
    us = clock.us(run, times)
    print(f'{d.recipe},{d.shape},{d.tokens},{us:.1f},{floor_us(d):.1f},{name},{wrong:.1e},"{detail}"', flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="pytorch,triton,deepgemm")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--tokens", default="1,4,16,64,256,1024,4096,16384")
    parser.add_argument("--configs", help="for triton: folder of its tuned tiles, triton_*/E=..,N=..json")
    parser.add_argument("--quick", action="store_true", help="three repetitions")
    args = parser.parse_args()
    if "triton" in args.peers and not args.configs:
        parser.error("--peers triton needs --configs")
    make = {"pytorch": PyTorch, "triton": lambda: Triton(args.configs), "deepgemm": DeepGemm}
    peers = {}
    for name in args.peers.split(","):
        try:
            peers[name] = make[name]()
        except ImportError as missing:
            print(f"{name} is left out: {missing}", file=sys.stderr)
    if not peers:
        return 1
    clock = Clock()
    empty = clock.us(lambda: clock.sum.fill_(0), 25)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, empty kernel {empty:.2f} us", file=sys.stderr)
    print("recipe,shape,tokens,us,floor_us,peer,error,detail", flush=True)
    for recipe in args.recipes.split(","):
        for shape in args.shapes.split(","):
            wanted = {n: p for n, p in peers.items() if recipe in p.recipes}
            if not wanted or (recipe == "fp8-block" and (SHAPES[shape][2] % BLOCK or SHAPES[shape][3] % BLOCK)):
                continue
            d = weights(shape, recipe)
            for tokens in map(int, args.tokens.split(",")):
                batch(d, tokens)
                d.sum32 = torch.empty(tokens, d.hidden, device="cuda")
                for name, peer in wanted.items():
                    cell(clock, name, peer, d, args.quick)
            del d
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
