#include "moe/layout/layout_rules.h"

#include <array>
#include <numeric>

#include "core/error.h"
#include "core/rounding.h"

namespace sluice::layout {
namespace {

// Sources: moe-runner-spec 4.11, 5.2, 6.3 and 6.5. CuTe DSL: M % 128 of both GEMMs, K % 64. CUTLASS: rows of 16 bytes,
// which depends on the format (see needs_of), FP8 halves to 16 and NVFP4 halves to 64.
constexpr std::array<Rules, 5> kRules = {{
    {LayoutKind::cutedsl, "cutedsl", 64, 1, 1, 64, 128, "NVFP4"},
    {LayoutKind::cutlass, "cutlass", 0, 1, 1, 1, 1, "bf16, FP8 per tensor or NVFP4"},
    {LayoutKind::sm90_mxfp4, "sm90-mxfp4", 0, 128, 128, 32, 32, "MXFP4"},
    {LayoutKind::rows8, "rows8", 8, 1, 1, 8, 1, "bf16, FP8 per tensor, NVFP4 or MXFP4"},
    {LayoutKind::rows1, "rows1", 1, 1, 1, 1, 1, "bf16, FP8 per tensor, NVFP4 or MXFP4"},
}};

std::string text(std::int64_t n) { return std::to_string(n); }

bool is_nvfp4(DType code, DType scale) { return code == DType::e2m1 && scale == DType::e4m3; }
bool is_mxfp4(DType code, DType scale) { return code == DType::e2m1 && scale == DType::e8m0; }

bool takes(LayoutKind kind, DType code, DType scale, bool block_scaled) {
  if (kind == LayoutKind::cutedsl) return is_nvfp4(code, scale);
  if (kind == LayoutKind::sm90_mxfp4) return is_mxfp4(code, scale);
  const bool plain = !block_scaled && (code == DType::bf16 || code == DType::e4m3);
  return plain || is_nvfp4(code, scale) || (kind != LayoutKind::cutlass && is_mxfp4(code, scale));
}

struct Units {
  std::int64_t need_i = 1, need_h = 1, pad_rows = 1, pad_cols = 1;
};

// With the CUTLASS kernels rows of 16 bytes are needed, and scales come in whole blocks.
Units units_of(const Rules& rules, DType code, std::int64_t block) {
  Units u{rules.need_i, rules.need_h, rules.pad_rows, rules.pad_cols};
  if (rules.kind == LayoutKind::cutlass) {
    if (code == DType::bf16) u = {8, 8, 1, 1};
    if (code == DType::e4m3) u = {1, 16, 16, 1};
    if (code == DType::e2m1) u = {16, 32, 64, 1};
  }
  if (block > 1) u.need_i = std::lcm(u.need_i, block);
  if (block > 1) u.need_h = std::lcm(u.need_h, block);
  return u;
}

std::string size_problem(const Rules& rules, const Units& u, bool gated, std::int64_t intermediate,
                         std::int64_t hidden) {
  // Without halves there is nothing to interleave, but the rows of GEMM1 still fill whole tiles.
  const std::int64_t need_i = rules.kind == LayoutKind::cutedsl && !gated ? 128 : u.need_i;
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): units are at least 1
  if (intermediate % need_i != 0) return "I = " + text(intermediate) + " is not a multiple of " + text(need_i);
  if (hidden % u.need_h != 0) return "H = " + text(hidden) + " is not a multiple of " + text(u.need_h);
  return "";
}

void check_uniform(const Rules& rules, const ExpertWeights& w) {
  const QuantTensor& like = w.up.at(0);
  for (const auto* list : {&w.gate, &w.up, &w.down}) {
    for (const QuantTensor& t : *list) {
      const bool same = t.codes.dtype == like.codes.dtype && t.block_scale.dtype == like.block_scale.dtype &&
                        t.block_scale.block_cols == like.block_scale.block_cols &&
                        t.block_scale.block_rows == like.block_scale.block_rows &&
                        (t.block_scale.data == nullptr) == (like.block_scale.data == nullptr);
      if (same) continue;
      fail(ErrorCode::unsupported, "experts of different formats in layout " + std::string(rules.name),
           "one format for gate, up and down of all experts");
    }
  }
}

// FlashInfer's FP8 record has one weight scale an expert for both halves.
void check_shared_scale(const PreparedLayout& p, const ExpertWeights& w) {
  if (p.kind != LayoutKind::cutlass || p.code != DType::e4m3 || !p.gated) return;
  for (std::size_t e = 0; e < w.up.size(); ++e) {
    if (w.up[e].tensor_scale == w.gate[e].tensor_scale) continue;
    fail(ErrorCode::unsupported, "expert " + std::to_string(e) + ": gate and up have different FP8 scales",
         "one scale for both in layout cutlass", "quantise the checkpoint again with a shared scale");
  }
}

}  // namespace

const Rules& rules_of(LayoutKind kind) { return kRules.at(static_cast<std::size_t>(kind)); }

std::span<const LayoutKind> layout_kinds() {
  static constexpr std::array kKinds = {LayoutKind::cutedsl, LayoutKind::cutlass, LayoutKind::sm90_mxfp4,
                                        LayoutKind::rows8, LayoutKind::rows1};
  return kKinds;
}

std::string_view layout_name(LayoutKind kind) { return rules_of(kind).name; }

PreparedLayout plan_layout(const Rules& rules, const ExpertWeights& w) {
  if (w.up.empty()) fail(ErrorCode::usage, "a layout of no experts", "at least one expert");
  const QuantTensor& up = w.up[0];
  PreparedLayout p;
  p.kind = rules.kind;
  p.gated = !w.gate.empty();
  p.experts = w.count();
  p.hidden = up.codes.cols;
  p.intermediate = up.codes.rows;
  p.code = up.codes.dtype;
  const bool block_scaled = up.block_scale.data != nullptr;
  if (!takes(rules.kind, p.code, up.block_scale.dtype, block_scaled)) {
    fail(ErrorCode::unsupported,
         "layout " + std::string(rules.name) + " of " + std::string(dtype_name(p.code)) + " weights" +
             (block_scaled ? " with " + std::string(dtype_name(up.block_scale.dtype)) + " scales" : ""),
         std::string(rules.formats));
  }
  check_uniform(rules, w);
  if (block_scaled) p.scale_block = up.block_scale.block_cols;
  if (block_scaled) p.scale_type = up.block_scale.dtype;
  const Units u = units_of(rules, p.code, p.scale_block);
  const std::string problem = size_problem(rules, u, p.gated, p.intermediate, p.hidden);
  if (!problem.empty()) fail(ErrorCode::unsupported, "layout " + std::string(rules.name) + ": " + problem);
  p.padded_intermediate = rounded_up(p.intermediate, u.pad_rows);
  p.padded_hidden = rounded_up(p.hidden, u.pad_cols);
  check_shared_scale(p, w);
  return p;
}

Verdict fits(LayoutKind kind, const LayerSpec& layer, Recipe recipe) {
  const Rules& rules = rules_of(kind);
  DType code = DType::bf16, scale = DType::f32;
  std::int64_t block = 0;
  const std::string_view name = recipe_info(recipe).name;
  if (name.substr(0, 5) == "nvfp4") code = DType::e2m1, scale = DType::e4m3, block = 16;
  if (name.substr(0, 5) == "mxfp4") code = DType::e2m1, scale = DType::e8m0, block = 32;
  if (name.substr(0, 3) == "fp8") code = DType::e4m3;
  if (recipe == Recipe::fp8_block) return Verdict::no("moves rows one by one, and FP8 block scales span 128 rows");
  // Recipe f32 takes weights of any format; prepare_layout looks at what they are.
  if (recipe == Recipe::f32) return Verdict::yes();
  if (!takes(kind, code, scale, block != 0)) {
    return Verdict::no("takes " + std::string(rules.formats) + ", not recipe " + std::string(name));
  }
  const std::string problem = size_problem(rules, units_of(rules, code, block), is_gated(layer.activation.kind),
                                           layer.intermediate, layer.width());
  return problem.empty() ? Verdict::yes() : Verdict::no(problem);
}

}  // namespace sluice::layout
