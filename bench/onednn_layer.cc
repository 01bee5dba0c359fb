#include "onednn_layer.h"

#include <algorithm>
#include <cstring>

#include "moe/weights.h"

namespace sluice::bench {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

memory::desc plain(std::int64_t rows, std::int64_t cols) { return {{rows, cols}, Type::bf16, Tag::ab}; }

// Rows of `weight` become columns [column, column + rows) of a [k, n] matrix.
void transpose_into(const QuantTensor& weight, std::int64_t column, std::int64_t n, std::vector<Bf16>& to) {
  std::vector<float> row(static_cast<std::size_t>(weight.codes.cols));
  for (std::int64_t i = 0; i < weight.codes.rows; ++i) {
    decode_row(weight, i, row.data());
    for (std::int64_t c = 0; c < weight.codes.cols; ++c) to[c * n + column + i] = to_bf16(row[c]);
  }
}

}  // namespace

OnednnLayer::OnednnLayer(const app::MoeShape& shape, const app::BenchLayer& layer, std::int64_t typical_rows,
                         ThreadPool& pool, const cpu::GemmKernels& kernels)
    : shape_(shape), pool_(pool), kernels_(kernels), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
  in_.k = shape.hidden;
  in_.n = 2 * shape.intermediate;
  out_.k = shape.intermediate;
  out_.n = shape.hidden;
  choose_layout(in_, typical_rows);
  choose_layout(out_, typical_rows);
  const ExpertWeights w = layer.weights();
  std::vector<Bf16> matrix(static_cast<std::size_t>(in_.k * in_.n));
  for (std::int64_t e = 0; e < w.count(); ++e) {
    transpose_into(w.gate[e], 0, in_.n, matrix);
    transpose_into(w.up[e], shape.intermediate, in_.n, matrix);
    in_.experts.push_back(reorder(in_, matrix));
    transpose_into(w.down[e], 0, out_.n, matrix);
    out_.experts.push_back(reorder(out_, matrix));
  }
}

void OnednnLayer::choose_layout(Product& product, std::int64_t rows) {
  const memory::desc any({product.k, product.n}, Type::bf16, Tag::any);
  const dnnl::matmul::desc d(plain(rows, product.k), any, plain(rows, product.n));
  product.weights = dnnl::matmul::primitive_desc(d, engine_).weights_desc();
}

memory OnednnLayer::reorder(const Product& product, const std::vector<Bf16>& values) {
  memory from(plain(product.k, product.n), engine_, const_cast<Bf16*>(values.data()));
  memory to(product.weights, engine_);
  dnnl::reorder(from, to).execute(stream_, from, to);
  stream_.wait();
  return to;
}

void OnednnLayer::multiply(Product& product, std::int64_t expert, std::int64_t rows, Bf16* x, Bf16* y) {
  auto found = product.by_rows.find(rows);
  if (found == product.by_rows.end()) {
    const dnnl::matmul::desc d(plain(rows, product.k), product.weights, plain(rows, product.n));
    found = product.by_rows.emplace(rows, dnnl::matmul(dnnl::matmul::primitive_desc(d, engine_))).first;
  }
  found->second.execute(stream_, {{DNNL_ARG_SRC, memory(plain(rows, product.k), engine_, x)},
                                  {DNNL_ARG_WEIGHTS, product.experts[expert]},
                                  {DNNL_ARG_DST, memory(plain(rows, product.n), engine_, y)}});
  stream_.wait();
}

// gate_up_ [rows, 2 I] bf16 > intermediate_ [rows, I]
void OnednnLayer::activate(std::int64_t rows) {
  const std::int64_t width = shape_.intermediate;
  pool_.parallel_for(rows, 4, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> wide(static_cast<std::size_t>(2 * width));
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < 2 * width; ++c) wide[c] = to_float(gate_up_[r * 2 * width + c]);
      cpu::ActivateRowArgs a;
      a.gate = wide.data();
      a.up = wide.data() + width;
      a.count = width;
      a.out = intermediate_.data() + r * width;
      kernels_.activate_row(a);
    }
  });
}

void OnednnLayer::run(const app::MoeBatch& batch, std::vector<Bf16>& out) {
  const std::int64_t hidden = shape_.hidden, top_k = batch.top_k;
  std::vector<std::vector<std::int64_t>> routes(in_.experts.size());
  for (std::size_t r = 0; r < batch.ids.size(); ++r) {
    const auto e = static_cast<std::size_t>(raw(batch.ids[r]));
    if (e < routes.size()) routes[e].push_back(static_cast<std::int64_t>(r));
  }
  slot_rows_.resize(batch.ids.size() * static_cast<std::size_t>(hidden));
  for (std::size_t e = 0; e < routes.size(); ++e) {
    const auto rows = static_cast<std::int64_t>(routes[e].size());
    if (rows == 0) continue;
    x_.resize(static_cast<std::size_t>(2 * rows * hidden));
    gate_up_.resize(static_cast<std::size_t>(rows * in_.n));
    intermediate_.resize(static_cast<std::size_t>(rows * out_.k));
    for (std::int64_t i = 0; i < rows; ++i) {
      std::copy_n(batch.rows.data() + routes[e][i] / top_k * hidden, hidden, x_.data() + i * hidden);
    }
    multiply(in_, static_cast<std::int64_t>(e), rows, x_.data(), gate_up_.data());
    activate(rows);
    Bf16* y = x_.data() + rows * hidden;
    multiply(out_, static_cast<std::int64_t>(e), rows, intermediate_.data(), y);
    for (std::int64_t i = 0; i < rows; ++i) {
      std::copy_n(y + i * hidden, hidden, slot_rows_.data() + routes[e][i] * hidden);
    }
  }
  pool_.parallel_for(batch.tokens, 8, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<const void*> rows(static_cast<std::size_t>(top_k));
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t s = 0; s < top_k; ++s) rows[s] = slot_rows_.data() + (t * top_k + s) * hidden;
      kernels_.combine({rows.data(), batch.weights.data() + t * top_k, static_cast<int>(top_k), hidden,
                        cpu::Element::bf16, out.data() + t * hidden});
    }
  });
}

}  // namespace sluice::bench
