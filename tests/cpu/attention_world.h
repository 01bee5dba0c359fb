// A paged KV cache full of NaNs with a few sequences in it, and what attention over it should give, in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "backend_fixture.h"
#include "numerics/tolerance.h"

namespace sluice::cpu {

struct AttentionCase {
  std::int32_t heads = 4;
  std::int32_t kv_heads = 2;
  std::int32_t head_dim = 64;
  std::int32_t value_dim = 0;  // of a latent that is key and value at once; 0 = grouped-query attention
  std::int32_t window = 0;
  bool sinks = false;
  std::int32_t block_tokens = 16;
  DType dtype = DType::bf16;
  std::vector<std::int64_t> contexts;  // tokens of each sequence
  std::int64_t queries = 1 << 20;      // only the last so many tokens of a sequence are ever asked

  bool latent() const { return value_dim > 0; }
  std::int32_t values() const { return latent() ? value_dim : head_dim; }  // columns of a value

  std::string describe() const {
    std::string text = std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads of " +
                       std::to_string(head_dim) + (latent() ? " with values of " + std::to_string(value_dim) : "") +
                       ", window " + std::to_string(window) + (sinks ? ", sinks" : "") + ", blocks of " +
                       std::to_string(block_tokens) + ", " + std::string(dtype_name(dtype)) + ", contexts";
    for (const std::int64_t c : contexts) text += " " + std::to_string(c);
    return text;
  }
};

// Rows [first, last) of one sequence in a step.
struct QuerySpan {
  std::size_t sequence = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// The arrays behind a BatchView.
struct StepBatch {
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> starts{0};
  std::vector<std::int32_t> table;
  BatchView view;
};

class AttentionWorld {
 public:
  static constexpr std::int32_t kLayers = 2;
  static constexpr std::int32_t kLayer = 1;

  AttentionWorld(const AttentionCase& shape, unsigned seed) : shape_(shape) {
    const std::size_t q_row = static_cast<std::size_t>(shape.heads) * shape.head_dim;
    const std::size_t kv_row = static_cast<std::size_t>(shape.kv_heads) * shape.head_dim;
    for (std::size_t s = 0; s < shape.contexts.size(); ++s) {
      const auto n = static_cast<std::size_t>(shape.contexts[s]);
      const unsigned base = seed * 1000 + 3 * static_cast<unsigned>(s);
      q_.push_back(normal_floats((n - first_query(s)) * q_row, base));
      k_.push_back(normal_floats(n * kv_row, base + 1));
      v_.push_back(normal_floats(n * kv_row, base + 2));
    }
    sinks_ = normal_floats(static_cast<std::size_t>(shape.heads), seed + 77);
    scale_ = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    lay_out_blocks(seed);
  }

  const AttentionCase& shape() const { return shape_; }
  float scale() const { return scale_; }
  std::size_t first_query(std::size_t s) const {
    return static_cast<std::size_t>(std::max<std::int64_t>(0, shape_.contexts[s] - shape_.queries));
  }
  std::int64_t longest() const { return *std::max_element(shape_.contexts.begin(), shape_.contexts.end()); }
  std::vector<float>& keys(std::size_t s) { return k_[s]; }

  // A cache in which every slot of every block holds NaN.
  std::unique_ptr<KvCache> make_cache(CpuBackend& backend) const {
    KvSpec spec;
    spec.kind = shape_.window > 0 ? KvSpec::Kind::sliding : KvSpec::Kind::gqa;
    if (shape_.latent()) spec.kind = KvSpec::Kind::mla_latent;
    spec.value_dim = shape_.value_dim;
    spec.layers = kLayers;
    spec.kv_heads = shape_.kv_heads;
    spec.head_dim = shape_.head_dim;
    spec.dtype = shape_.dtype;
    spec.block_tokens = shape_.block_tokens;
    std::unique_ptr<KvCache> cache = backend.make_kv(spec, blocks_);
    poison(backend, *cache);
    return cache;
  }

  StepBatch batch(const std::vector<QuerySpan>& spans) const {
    StepBatch b;
    for (const QuerySpan& span : spans) {
      for (std::int64_t p = span.first; p < span.last; ++p) b.positions.push_back(static_cast<std::int32_t>(p));
      b.starts.push_back(static_cast<std::int32_t>(b.positions.size()));
      b.table.insert(b.table.end(), tables_[span.sequence].begin(), tables_[span.sequence].end());
    }
    b.view = {.tokens = static_cast<std::int64_t>(b.positions.size()),
              .sequences = static_cast<std::int64_t>(spans.size()),
              .token_ids = nullptr,
              .positions = b.positions.data(),
              .query_start = b.starts.data(),
              .block_table = b.table.data(),
              .max_blocks = max_blocks_,
              .max_context = longest()};
    return b;
  }

  void store(CpuBackend& backend, KvCache& cache, const std::vector<QuerySpan>& spans) const {
    const std::vector<float> k = rows_of(k_, spans, shape_.kv_heads);
    const std::vector<float> v = rows_of(v_, spans, shape_.kv_heads);
    const StepBatch b = batch(spans);
    store_rows(backend, cache, b, k, v);
  }

  // Attention of the spans' rows, [T, heads * values()].
  std::vector<float> attend(CpuBackend& backend, const KvCache& cache, const std::vector<QuerySpan>& spans) const {
    std::vector<float> out = poisoned_floats(static_cast<std::size_t>(rows_in(spans) * output_width()));
    attend_into(backend, cache, spans, view(out, rows_in(spans), output_width()));
    return out;
  }
  std::vector<std::uint16_t> attend_bf16(CpuBackend& backend, const KvCache& cache,
                                         const std::vector<QuerySpan>& spans) const {
    std::vector<std::uint16_t> out(static_cast<std::size_t>(rows_in(spans) * output_width()), 0xFFFF);
    attend_into(backend, cache, spans, view(out, rows_in(spans), output_width()));
    return out;
  }

  struct Expected {
    std::vector<double> value;  // [values()]
    std::vector<double> bound;
  };

  // One query row and head by the definition, and how far float32 may be from it.
  Expected expected(std::size_t s, std::int64_t position, std::int32_t head) const {
    const std::int32_t d = shape_.head_dim;
    const std::int32_t kv_head = head / (shape_.heads / shape_.kv_heads);
    const std::int64_t first = shape_.window > 0 ? std::max<std::int64_t>(0, position + 1 - shape_.window) : 0;
    const auto n = static_cast<std::size_t>(position + 1 - first);
    const double u = tolerance::unit_roundoff(DType::f32);
    const tolerance::DotOrder order{.length = d, .exact_products = shape_.dtype == DType::bf16};

    std::vector<double> score(n);
    std::vector<double> error(n);
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0;
      double absolute = 0;
      for (std::int32_t c = 0; c < d; ++c) {
        const double product =
            stored(q_[s], position - static_cast<std::int64_t>(first_query(s)), shape_.heads, head, c) *
            stored(k_[s], first + static_cast<std::int64_t>(i), shape_.kv_heads, kv_head, c);
        sum += product;
        absolute += std::fabs(product);
      }
      score[i] = sum * scale_;
      error[i] = tolerance::dot_bound(order, absolute) * scale_ + u * std::fabs(score[i]);
    }
    double top = *std::max_element(score.begin(), score.end());
    if (shape_.sinks) top = std::max(top, static_cast<double>(sinks_[static_cast<std::size_t>(head)]));
    const double low = *std::min_element(score.begin(), score.end());
    double total = shape_.sinks ? std::exp(static_cast<double>(sinks_[static_cast<std::size_t>(head)]) - top) : 0.0;
    for (const double x : score) total += std::exp(x - top);

    // A weight is wrong by the error of its score, and by the rounded differences, exponentials (2 ulp) and products
    // of its chunk, of the foldings after it and of the sink. The quotient sees that twice; sums add their own.
    const double chunks = static_cast<double>(n / 256 + 2);
    const double per_step = u * (top - low) + 8 * u;
    const double weight_error = *std::max_element(error.begin(), error.end()) + (chunks + 1) * per_step;
    const double relative =
        std::expm1(2 * weight_error) + 2 * tolerance::gamma(static_cast<std::int64_t>(256 + 3 * chunks + 8), u);
    const auto columns = static_cast<std::size_t>(shape_.values());
    const std::vector<float>& values = shape_.latent() ? k_[s] : v_[s];
    Expected e{std::vector<double>(columns), std::vector<double>(columns)};
    for (std::int32_t c = 0; c < shape_.values(); ++c) {
      double sum = 0;
      double absolute = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double w = std::exp(score[i] - top) / total;
        const double x = w * stored(values, first + static_cast<std::int64_t>(i), shape_.kv_heads, kv_head, c);
        sum += x;
        absolute += std::fabs(x);
      }
      e.value[static_cast<std::size_t>(c)] = sum;
      e.bound[static_cast<std::size_t>(c)] = relative * absolute + 1e-37;
    }
    return e;
  }

  // Compares rows of attend() with expected().
  void check(const std::vector<float>& out, const std::vector<QuerySpan>& spans) const {
    std::size_t at = 0;
    for (const QuerySpan& span : spans) {
      for (std::int64_t p = span.first; p < span.last; ++p) {
        for (std::int32_t h = 0; h < shape_.heads; ++h) {
          const Expected e = expected(span.sequence, p, h);
          for (std::size_t c = 0; c < e.value.size(); ++c, ++at) {
            ASSERT_NEAR(out[at], e.value[c], e.bound[c]) << shape_.describe() << "; sequence " << span.sequence
                                                         << " position " << p << " head " << h << " column " << c;
          }
        }
      }
    }
    ASSERT_EQ(at, out.size());
  }

  std::vector<QuerySpan> everything() const {
    std::vector<QuerySpan> spans;
    for (std::size_t s = 0; s < shape_.contexts.size(); ++s) spans.push_back({s, 0, shape_.contexts[s]});
    return spans;
  }

 private:
  std::int64_t query_width() const { return static_cast<std::int64_t>(shape_.heads) * shape_.head_dim; }
  std::int64_t output_width() const { return static_cast<std::int64_t>(shape_.heads) * shape_.values(); }

  static std::int64_t rows_in(const std::vector<QuerySpan>& spans) {
    std::int64_t rows = 0;
    for (const QuerySpan& span : spans) rows += span.last - span.first;
    return rows;
  }

  void attend_into(CpuBackend& backend, const KvCache& cache, const std::vector<QuerySpan>& spans,
                   const TensorView& out) const {
    std::vector<QuerySpan> rows = spans;
    for (QuerySpan& span : rows) {
      const auto skipped = static_cast<std::int64_t>(first_query(span.sequence));
      span = {span.sequence, span.first - skipped, span.last - skipped};
    }
    const std::vector<float> q = rows_of(q_, rows, shape_.heads);
    const StepBatch b = batch(spans);
    AttentionArgs args;
    args.q = view(q, b.view.tokens, query_width());
    args.cache = &cache;
    args.layer = kLayer;
    args.heads = shape_.heads;
    args.scale = scale_;
    args.window = shape_.window;
    args.sinks = shape_.sinks ? sinks_.data() : nullptr;
    args.batch = &b.view;
    args.out = out;
    Workspace workspace = memory_.get(backend, b.view.tokens, longest(), query_width());
    backend.attention(args, workspace, {});
  }

  // Sequences get blocks in random order, two more exist that belong to nobody.
  void lay_out_blocks(unsigned seed) {
    std::vector<std::int64_t> count;
    for (const std::int64_t c : shape_.contexts) count.push_back((c + shape_.block_tokens - 1) / shape_.block_tokens);
    max_blocks_ = *std::max_element(count.begin(), count.end()) + 1;
    blocks_ = std::accumulate(count.begin(), count.end(), std::int64_t{2});
    std::vector<std::int32_t> order(static_cast<std::size_t>(blocks_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed + 5));
    std::size_t next = 0;
    for (const std::int64_t n : count) {
      std::vector<std::int32_t> table(static_cast<std::size_t>(max_blocks_), -1);
      for (std::int64_t i = 0; i < n; ++i) table[static_cast<std::size_t>(i)] = order[next++];
      tables_.push_back(table);
    }
  }

  void poison(CpuBackend& backend, KvCache& cache) const {
    StepBatch b;
    for (std::int32_t p = 0; p < blocks_ * shape_.block_tokens; ++p) b.positions.push_back(p);
    b.starts.push_back(static_cast<std::int32_t>(b.positions.size()));
    for (std::int32_t i = 0; i < blocks_; ++i) b.table.push_back(i);
    b.view = {.tokens = static_cast<std::int64_t>(b.positions.size()),
              .sequences = 1,
              .token_ids = nullptr,
              .positions = b.positions.data(),
              .query_start = b.starts.data(),
              .block_table = b.table.data(),
              .max_blocks = blocks_,
              .max_context = 0};
    const std::vector<float> nan =
        poisoned_floats(b.positions.size() * static_cast<std::size_t>(shape_.kv_heads) * shape_.head_dim);
    store_rows(backend, cache, b, nan, nan);
  }

  void store_rows(CpuBackend& backend, KvCache& cache, const StepBatch& b, const std::vector<float>& k,
                  const std::vector<float>& v) const {
    const std::int64_t width = static_cast<std::int64_t>(shape_.kv_heads) * shape_.head_dim;
    KvStoreArgs args;
    args.k = view(k, b.view.tokens, width);
    if (!shape_.latent()) args.v = view(v, b.view.tokens, width);
    args.cache = &cache;
    args.layer = kLayer;
    args.batch = &b.view;
    backend.kv_store(args, {});
  }

  std::vector<float> rows_of(const std::vector<std::vector<float>>& all, const std::vector<QuerySpan>& spans,
                             std::int32_t heads) const {
    const std::int64_t width = static_cast<std::int64_t>(heads) * shape_.head_dim;
    std::vector<float> rows;
    for (const QuerySpan& span : spans) {
      const std::vector<float>& from = all[span.sequence];
      rows.insert(rows.end(), from.begin() + span.first * width, from.begin() + span.last * width);
    }
    return rows;
  }

  double stored(const std::vector<float>& rows, std::int64_t token, std::int32_t heads, std::int32_t head,
                std::int32_t c) const {
    const float x = rows[static_cast<std::size_t>((token * heads + head) * shape_.head_dim + c)];
    return shape_.dtype == DType::bf16 ? round_to_bf16(x) : x;
  }

  AttentionCase shape_;
  float scale_ = 1;
  std::vector<std::vector<float>> q_, k_, v_;  // [sequence] [context, heads * head_dim]
  std::vector<float> sinks_;
  std::vector<std::vector<std::int32_t>> tables_;
  std::int64_t blocks_ = 0;
  std::int64_t max_blocks_ = 0;
  mutable PoisonedMemory memory_;
};

}  // namespace sluice::cpu
