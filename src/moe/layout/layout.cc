#include "moe/layout/layout.h"

#include <algorithm>

#include "core/error.h"
#include "moe/layout/layout_rules.h"
#include "moe/layout/scale_swizzle.h"
#include "moe/layout/sm90.h"

namespace sluice::layout {
namespace {

std::int64_t whole_bytes(DType type, std::int64_t elements) { return dtype_bytes(type, elements); }

void append(Tensor& tensor, const ByteMatrix& m) {
  tensor.bytes.insert(tensor.bytes.end(), m.bytes.begin(), m.bytes.end());
}

// Row-major strides of a shape.
void make_contiguous(Tensor& tensor) {
  tensor.strides.assign(tensor.shape.size(), 1);
  for (std::size_t i = tensor.shape.size(); i-- > 1;) {
    tensor.strides[i - 1] = tensor.strides[i] * tensor.shape[i];
  }
}

// The halves of w13 in the layout's order. Each is padded before they meet.
ByteMatrix join_halves(const PreparedLayout& p, const Rules& rules, const ByteMatrix& gate, const ByteMatrix& up,
                       std::int64_t row_bytes) {
  ByteMatrix first = pad(up, p.padded_intermediate, row_bytes);
  if (!p.gated) return first;
  ByteMatrix both = stack(first, pad(gate, p.padded_intermediate, row_bytes));
  return rules.group == 0 ? both : interleave_halves(both, rules.group);
}

ByteMatrix place_codes(const PreparedLayout& p, const ByteMatrix& codes) {
  return p.kind == LayoutKind::sm90_mxfp4 ? interleave_sm90_codes(codes) : codes;
}

ByteMatrix place_scales(const PreparedLayout& p, const ByteMatrix& scales) {
  switch (p.kind) {
    case LayoutKind::cutedsl:
    case LayoutKind::cutlass:
      return swizzle_scales(scales);
    case LayoutKind::sm90_mxfp4:
      return fold_sm90_scales(scales);
    default:
      return scales;
  }
}

// Shape and strides of the codes of a [rows, cols] weight of every expert.
void shape_codes(const PreparedLayout& p, Tensor& t, std::int64_t rows, std::int64_t cols) {
  t.element = p.code == DType::e2m1 ? DType::u8 : p.code;
  t.shape = {p.experts, rows, p.code == DType::e2m1 ? cols / 2 : cols};
  make_contiguous(t);
}

void shape_scales(const PreparedLayout& p, Tensor& t, std::int64_t rows, std::int64_t cols) {
  const std::int64_t count = static_cast<std::int64_t>(t.bytes.size());
  const std::int64_t scale_cols = cols / p.scale_block;
  t.element = p.scale_type;
  if (p.kind == LayoutKind::cutedsl) {
    const MmaView view = mma_view(rows, cols, p.scale_block, p.experts, count);
    t.shape.assign(view.shape.begin(), view.shape.end());
    t.strides.assign(view.strides.begin(), view.strides.end());
    return;
  }
  if (p.kind == LayoutKind::cutlass) {
    const ScaleTiles tiles = scale_tiles(rows, scale_cols);
    t.element = DType::i32;  // four neighbouring scales
    t.shape = {p.experts, tiles.rows * kTileRows, tiles.cols * kTileCols / 4};
  } else if (p.kind == LayoutKind::sm90_mxfp4) {
    t.shape = {p.experts, rows / kFoldRows, scale_cols / kFoldCols, 16, 16};
  } else {
    t.shape = {p.experts, rows, scale_cols};
  }
  make_contiguous(t);
}

void add_expert(PreparedLayout& p, const Rules& rules, const ExpertWeights& w, std::size_t e) {
  const QuantTensor none;
  const QuantTensor& gate = p.gated ? w.gate[e] : none;
  const auto gate_rows = [&](auto bytes_of) { return p.gated ? bytes_of(gate) : zero_bytes(0, 0); };
  const std::int64_t in_bytes = whole_bytes(p.code, p.padded_hidden);
  const std::int64_t mid_bytes = whole_bytes(p.code, p.padded_intermediate);
  append(p.w13, place_codes(p, join_halves(p, rules, gate_rows(code_bytes), code_bytes(w.up[e]), in_bytes)));
  append(p.w2, place_codes(p, pad(code_bytes(w.down[e]), p.padded_hidden, mid_bytes)));
  if (p.gated) p.w13_scale_2.insert(p.w13_scale_2.end(), {w.up[e].tensor_scale, gate.tensor_scale});
  if (!p.gated) p.w13_scale_2.push_back(w.up[e].tensor_scale);
  p.w2_scale_2.push_back(w.down[e].tensor_scale);
  if (p.scale_block == 0) return;
  const std::int64_t in_scales = p.padded_hidden / p.scale_block, mid_scales = p.padded_intermediate / p.scale_block;
  append(p.w13_scale, place_scales(p, join_halves(p, rules, gate_rows(scale_bytes), scale_bytes(w.up[e]), in_scales)));
  append(p.w2_scale, place_scales(p, pad(scale_bytes(w.down[e]), p.padded_hidden, mid_scales)));
}

void add_bias(PreparedLayout& p, const Rules& rules, const ExpertWeights& w, std::size_t e) {
  const ByteMatrix up = bias_bytes(w.up_bias[e]), down = bias_bytes(w.down_bias[e]);
  const ByteMatrix gate = p.gated ? bias_bytes(w.gate_bias[e]) : zero_bytes(0, 0);
  append(p.w13_bias, join_halves(p, rules, gate, up, up.row_bytes));
  append(p.w2_bias, pad(down, p.padded_hidden, down.row_bytes));
}

void shape_all(PreparedLayout& p, const ExpertWeights& w) {
  shape_codes(p, p.w13, p.w13_rows(), p.padded_hidden);
  shape_codes(p, p.w2, p.padded_hidden, p.padded_intermediate);
  if (p.scale_block != 0) {
    shape_scales(p, p.w13_scale, p.w13_rows(), p.padded_hidden);
    shape_scales(p, p.w2_scale, p.padded_hidden, p.padded_intermediate);
  }
  if (w.up_bias.empty()) return;
  p.w13_bias.element = p.w2_bias.element = w.up_bias[0].dtype;
  p.w13_bias.shape = {p.experts, p.w13_rows()};
  p.w2_bias.shape = {p.experts, p.padded_hidden};
  make_contiguous(p.w13_bias);
  make_contiguous(p.w2_bias);
}

}  // namespace

PreparedLayout prepare_layout(LayoutKind kind, const ExpertWeights& weights) {
  const Rules rules = rules_of(kind);
  PreparedLayout p = plan_layout(rules, weights);
  for (std::size_t e = 0; e < weights.up.size(); ++e) {
    add_expert(p, rules, weights, e);
    if (!weights.up_bias.empty()) add_bias(p, rules, weights, e);
  }
  shape_all(p, weights);
  p.input_scales = weights.input_scales;
  if (p.code == DType::e2m1) p.alphas = resolve_alphas(weights);
  return p;
}

}  // namespace sluice::layout
