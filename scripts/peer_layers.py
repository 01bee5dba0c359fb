"""The layers that scripts/bench_peers.py times: one class a peer, whose ways() gives (label, run) for a batch.

Each calls an installed package; run() reads x, ids, topk and the weights of the batch and writes its out.
"""
import json
import os

import torch
import torch.nn.functional as F

RECIPES = ("bf16", "fp8-block", "fp8-tensor")
E4M3, E4M3_MAX, BLOCK = torch.float8_e4m3fn, 448.0, 128


class PyTorch:
    """Sort, grouped GEMM, SwiGLU, grouped GEMM, weighted sum, every step a call of PyTorch."""

    recipes = ("bf16",)

    def ways(self, layer):
        yield "grouped_mm", lambda: self.run(layer)

    def run(self, d):
        flat = d.ids.flatten()
        ordered, order = torch.sort(flat, stable=True)
        ends = torch.searchsorted(ordered, torch.arange(d.experts, device="cuda", dtype=torch.int32), right=True)
        ends = ends.to(torch.int32)
        h = torch._grouped_mm(d.x[order // d.k], d.w13.transpose(1, 2), offs=ends)
        gate, up = h.chunk(2, -1)
        y = torch._grouped_mm(F.silu(gate) * up, d.w2.transpose(1, 2), offs=ends)
        slots = torch.empty_like(y)
        slots[order] = y
        torch.sum(slots.view(d.tokens, d.k, -1) * d.topk[..., None], 1, out=d.sum32)
        d.out.copy_(d.sum32)


def config(m, n, k, group, warps, stages):
    return dict(BLOCK_SIZE_M=m, BLOCK_SIZE_N=n, BLOCK_SIZE_K=k, GROUP_SIZE_M=group, num_warps=warps, num_stages=stages)


# Tried beside the package's own choice where it has no tuned file: by mean rows an expert, at most the first number.
CANDIDATES = {
    "bf16": (
        (16, config(16, 64, 128, 1, 4, 4), config(16, 128, 64, 1, 4, 4), config(16, 128, 128, 1, 8, 3)),
        (64, config(32, 128, 64, 1, 4, 4), config(64, 128, 64, 1, 4, 4), config(16, 128, 64, 1, 4, 4)),
        (1 << 30, config(128, 128, 64, 16, 8, 3), config(128, 256, 64, 16, 8, 4), config(64, 128, 64, 16, 4, 4)),
    ),
    "fp8-block": (
        (16, config(16, 128, 128, 1, 4, 4), config(16, 64, 128, 1, 4, 5), config(64, 128, 128, 1, 4, 3)),
        (64, config(32, 128, 128, 1, 4, 4), config(64, 128, 128, 1, 4, 4), config(16, 128, 128, 1, 4, 4)),
        (1 << 30, config(128, 128, 128, 16, 8, 3), config(64, 128, 128, 16, 4, 4), config(128, 64, 128, 32, 4, 4)),
    ),
    "fp8-tensor": (
        (16, config(16, 128, 128, 1, 4, 4), config(16, 64, 256, 1, 4, 3), config(64, 128, 128, 1, 4, 4)),
        (64, config(32, 128, 128, 1, 4, 4), config(64, 128, 128, 1, 4, 4), config(64, 256, 128, 1, 8, 3)),
        (1 << 30, config(128, 256, 128, 16, 8, 3), config(128, 128, 128, 16, 8, 4), config(64, 256, 128, 32, 4, 4)),
    ),
}


class Triton:
    """Align, FC1, SiLU, FC2 and sum as the package's fused_experts calls them, every expert on this GPU."""

    recipes = RECIPES

    def __init__(self, configs):
        import sgl_kernel  # noqa: F401  its operators
        import triton
        import triton.language as tl
        from sglang.kernels.ops.moe import fused_moe_triton_kernels as kernels

        self.kernels, self.bf16, self.configs = kernels, tl.bfloat16, configs
        self.version = triton.__version__.replace(".", "_")

    def tuned(self, d):
        kind = {"bf16": "", "fp8-tensor": ",dtype=fp8_w8a8", "fp8-block": ",dtype=fp8_w8a8,block_shape=[128, 128]"}
        name = f"E={d.experts},N={d.inter},device_name=NVIDIA_H200{kind[d.recipe]}.json"
        folders = sorted((f for f in os.listdir(self.configs) if f.startswith("triton_")), reverse=True)
        for folder in [f"triton_{self.version}", *folders]:
            path = os.path.join(self.configs, folder, name)
            if os.path.exists(path):
                with open(path) as f:
                    by_tokens = {int(t): c for t, c in json.load(f).items()}
                return folder, by_tokens[min(by_tokens, key=lambda t: abs(t - d.tokens))]
        return None

    def default(self, d):
        few = d.tokens <= d.experts
        if d.recipe == "bf16":
            m, n, k, group = (16, 32, 64, 1) if few else (64, 64, 32, 8)
            return dict(BLOCK_SIZE_M=m, BLOCK_SIZE_N=n, BLOCK_SIZE_K=k, GROUP_SIZE_M=group)
        if d.recipe == "fp8-block":
            return config(64, 128, 128, 32, 4, 3)
        return config(64, 128, 128, 1, 4, 4) if few else config(128, 256, 128, 32, 8, 4)

    def choices(self, d):
        tuned = self.tuned(d)
        if tuned:
            return [("file of " + tuned[0], tuned[1])]
        rows = d.tokens * d.k / d.experts
        bucket = next(b for b in CANDIDATES[d.recipe] if rows <= b[0])
        return [("default", self.default(d))] + [(f"tried {i}", c) for i, c in enumerate(bucket[1:])]

    def ways(self, d):
        for label, chosen in self.choices(d):
            text = "x".join(str(chosen[f"BLOCK_SIZE_{a}"]) for a in "MNK")
            yield f"{label} {text}", lambda chosen=chosen: self.run(d, chosen)

    def gemm(self, d, a, w, w_scale, a_scale, c, aligned, weigh, k, chosen):
        fp8 = d.recipe != "bf16"
        self.kernels.invoke_fused_moe_kernel(
            a, w, None, c, a_scale, w_scale, None, d.topk, d.ids, *aligned, weigh, k, chosen,
            compute_type=self.bf16, use_fp8_w8a8=fp8, use_int8_w8a8=False, use_int8_w8a16=False,
            use_int4_w4a16=False, per_channel_quant=False,
            block_shape=[BLOCK, BLOCK] if d.recipe == "fp8-block" else None, filter_expert=False,
        )  # fmt: skip

    def align(self, d, block):
        slots = d.tokens * d.k
        most = slots * block if slots < d.experts + 1 else slots + (d.experts + 1) * (block - 1)
        i32 = dict(device="cuda", dtype=torch.int32)
        rows, experts, padded = torch.empty(most, **i32), torch.empty(-(-most // block), **i32), torch.empty(1, **i32)
        sums = torch.empty(d.experts + 2, **i32)
        torch.ops.sgl_kernel.moe_align_block_size(d.ids, d.experts + 1, block, rows, experts, padded, sums, True, False)
        return rows, experts, padded

    def run(self, d, chosen):
        aligned = self.align(d, chosen["BLOCK_SIZE_M"])
        bf16 = dict(device="cuda", dtype=torch.bfloat16)
        both = torch.empty(d.tokens * d.k, 2 * d.inter, **bf16)
        scales = (d.x_scale, d.mid_scale) if d.recipe == "fp8-tensor" else (None, None)
        self.gemm(d, d.x, d.w13, d.w13_scale, scales[0], both, aligned, False, d.k, chosen)
        mid = torch.empty(d.tokens * d.k, d.inter, **bf16)
        torch.ops.sgl_kernel.silu_and_mul(mid, both)
        slots = d.out if d.k == 1 else torch.empty(d.tokens, d.k, d.hidden, **bf16)
        self.gemm(d, mid, d.w2, d.w2_scale, scales[1], slots, aligned, True, 1, chosen)
        if d.k == 2:
            torch.add(slots[:, 0], slots[:, 1], out=d.out)
        elif d.k > 2:
            torch.ops.sgl_kernel.moe_sum_reduce(slots, d.out, 1.0)


class DeepGemm:
    """Quantise, lay out, grouped GEMM, SiLU and quantise, grouped GEMM, gather; the stages between are SGLang's."""

    recipes = ("fp8-block",)

    def __init__(self):
        import deep_gemm
        import sgl_kernel  # noqa: F401
        from sglang.kernels.ops.moe import ep_moe_kernels

        self.lib, self.stages = deep_gemm, ep_moe_kernels
        names = ("m_grouped_fp8_gemm_nt_masked", "fp8_m_grouped_gemm_nt_masked")
        self.grouped_masked = next(getattr(deep_gemm, n) for n in names if hasattr(deep_gemm, n))

    def ways(self, d):
        if d.hidden % BLOCK or d.inter % BLOCK:
            return
        yield "contiguous", lambda: self.contiguous(d)
        if d.tokens <= 1024:
            yield "masked", lambda: self.masked(d)

    @staticmethod
    def quantise(x):
        codes = torch.empty(x.shape, device="cuda", dtype=E4M3)
        scales = torch.empty(*x.shape[:-1], x.shape[-1] // BLOCK, device="cuda")
        ops = torch.ops.sgl_kernel
        ops.sgl_per_token_group_quant_8bit(x, codes, scales, BLOCK, 1e-10, -E4M3_MAX, E4M3_MAX, False)
        return codes, scales

    def contiguous(self, d):
        """Experts padded to 128 rows. Their counts are taken from the batch beforehand, as a dispatcher has them."""
        if getattr(d, "padded_of", None) != d.tokens:
            padded = [-(-n // BLOCK) * BLOCK for n in d.counts]
            d.padded_of, d.rows = d.tokens, sum(padded)
            d.padded = torch.tensor(padded, device="cuda", dtype=torch.int32)
        rows, bf16 = d.rows, dict(device="cuda", dtype=torch.bfloat16)
        codes, scales = self.quantise(d.x)
        a = torch.empty(rows, d.hidden, device="cuda", dtype=E4M3)
        a_scale = torch.empty(rows, d.hidden // BLOCK, device="cuda")
        layout, index = torch.empty(rows, device="cuda", dtype=torch.int32), torch.empty_like(d.ids)
        starts = torch.empty_like(d.padded)
        self.stages.ep_scatter(codes, scales, d.ids, d.padded, starts, a, a_scale, layout, index)
        both = torch.empty(rows, 2 * d.inter, **bf16)
        grouped = self.lib.m_grouped_fp8_gemm_nt_contiguous
        grouped((a, a_scale), (d.w13, d.w13_scale), both, layout)
        mid = torch.empty(rows, d.inter, **bf16)
        torch.ops.sgl_kernel.silu_and_mul(mid, both)
        mid_codes = self.quantise(mid)
        slots = torch.empty(rows, d.hidden, **bf16)
        grouped(mid_codes, (d.w2, d.w2_scale), slots, layout)
        self.stages.ep_gather(slots, d.ids, d.topk, index, d.out)
        d.gemms = lambda: (
            grouped((a, a_scale), (d.w13, d.w13_scale), both, layout),
            grouped(mid_codes, (d.w2, d.w2_scale), slots, layout),
        )

    def masked(self, d):
        """A slab of rows for every expert, as many as there are tokens, rounded up."""
        most = (d.tokens // 256 + 1) * 256
        expected = (d.tokens * d.k - 1) // d.experts + 1
        bf16 = dict(device="cuda", dtype=torch.bfloat16)
        masks, index = self.stages.fused_moe_dispatch_index(d.ids, d.experts, most)
        codes, scales = self.quantise(d.x)
        a = torch.empty(d.experts, most, d.hidden, device="cuda", dtype=E4M3)
        a_scale = torch.empty(d.experts, most, d.hidden // BLOCK, device="cuda")
        self.stages.fill_gateup_input_triton_kernel[(d.tokens,)](
            codes, scales, a, a_scale, index, d.ids, d.k, d.hidden, scales.size(1), most, scales.stride(0),
            scales.stride(1), BLOCK_SIZE=1024, IS_FP8=True, SCALE_MN_MAJOR=False,
        )  # fmt: skip
        both = torch.empty(d.experts, most, 2 * d.inter, **bf16)
        grouped = self.grouped_masked
        grouped((a, a_scale), (d.w13, d.w13_scale), both, masks, expected)
        mid = torch.empty(d.experts, most, d.inter, device="cuda", dtype=E4M3)
        mid_scale = torch.empty(d.experts, most, d.inter // BLOCK, device="cuda")
        self.stages.silu_and_mul_masked_post_quant_fwd(both, mid, mid_scale, BLOCK, masks)
        slots = torch.empty(d.experts, most, d.hidden, **bf16)
        grouped((mid, mid_scale), (d.w2, d.w2_scale), slots, masks, expected)
        self.stages.post_reorder_deepgemm(slots, d.out, index, d.ids, d.topk, d.k, d.tokens, d.hidden, 1.0)
        d.gemms = lambda: (
            grouped((a, a_scale), (d.w13, d.w13_scale), both, masks, expected),
            grouped((mid, mid_scale), (d.w2, d.w2_scale), slots, masks, expected),
        )
