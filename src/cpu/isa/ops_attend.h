// Attention of a tile of query rows against one chunk of keys: scores, softmax, weighted values; folding of chunks.
//
// Every row is computed by the same operations in the same order, however many rows share a register block: a score is
// one ascending chain over the columns of the head, a value sum one ascending chain over the keys of the chunk that the
// row sees. Keys outside [first, last) never enter a sum, whatever is stored there.
#pragma once

#include <cstdint>

#include "cpu/ops_kernels.h"

namespace sluice::cpu {
namespace {

inline constexpr int kBlockRows = 4;

template <int N>
struct Constant {
  static constexpr int value = N;
};

// Calls f(Constant<n>, first row) for blocks of kBlockRows rows and the rest.
template <class F>
inline void for_row_blocks(int rows, F f) {
  int row = 0;
  for (; row + kBlockRows <= rows; row += kBlockRows) f(Constant<kBlockRows>{}, row);
  switch (rows - row) {
    case 3:
      return f(Constant<3>{}, row);
    case 2:
      return f(Constant<2>{}, row);
    case 1:
      return f(Constant<1>{}, row);
    default:
      return;
  }
}

// Panels are worked on in groups that stay in the L1 cache while all rows of the tile pass over them.
inline constexpr int kGroupPanels = kScratchPanels;
inline constexpr int kGroupTokens = kGroupPanels * kPanelTokens;

// Panels of the next group that one register block fetches, a few lines at a time, while it multiplies: the hardware
// does not follow a block table. Into the L2 cache, because fetches into L1 hold up the loop's own loads (measured on
// Zen 4).
struct Ahead {
  const char* panels[kGroupPanels];
  int count = 0;

  // The share of block `block` of `blocks` in a group; nullptr = no group, as an entry no panel.
  Ahead(const void* const* group, int block, int blocks) {
    for (int i = block; group != nullptr && i < kGroupPanels; i += blocks) {
      if (group[i] != nullptr) panels[count++] = static_cast<const char*>(group[i]);
    }
  }
  void fetch(std::int64_t line) const {
    for (int i = 0; i < count; ++i) __builtin_prefetch(panels[i] + 64 * line, 0, 2);
  }
};

template <class Dot, int R, int P>
inline void score_block(const AttendChunk& a, int row, int panel, const Ahead& ahead) {
  V acc[R][P];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) acc[r][p] = zero();
  }
  const float* query = a.packed_query + static_cast<std::int64_t>(row) * a.dims;
  const int lines = a.dims / Dot::kColumnsPerLine;
  for (int line = 0; line < lines; ++line) {
    ahead.fetch(line);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const typename Dot::Line keys(static_cast<const char*>(a.k_panels[panel + p]) +
                                    64 * static_cast<std::int64_t>(line));
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) acc[r][p] = keys.step(acc[r][p], query + r * a.dims, line);
    }
  }
  const V scale = broadcast(a.scale);
  float* out = a.scores + row * kChunkTokens + panel * kPanelTokens;
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) store(out + r * kChunkTokens + p * kPanelTokens, mul(acc[r][p], scale));
  }
}

struct Range {
  int first = 0;
  int last = 0;
};

// Panels that at least one row of the tile sees.
inline Range seen_panels(const AttendChunk& a) {
  Range seen{kChunkTokens, 0};
  for (int r = 0; r < a.rows; ++r) {
    if (a.first[r] >= a.last[r]) continue;
    if (a.first[r] < seen.first) seen.first = a.first[r];
    if (a.last[r] > seen.last) seen.last = a.last[r];
  }
  return {seen.first / kPanelTokens, (seen.last + kPanelTokens - 1) / kPanelTokens};
}

inline int row_blocks(const AttendChunk& a) { return (a.rows + kBlockRows - 1) / kBlockRows; }

template <class Dot, int P>
inline void score_panels(const AttendChunk& a, Range panels, const void* const* next) {
  const int blocks = row_blocks(a) * ((panels.last - panels.first) / P);
  int block = 0;
  for_row_blocks(a.rows, [&](auto n, int row) {
    for (int p = panels.first; p < panels.last; p += P) {
      score_block<Dot, decltype(n)::value, P>(a, row, p, Ahead(next, block++, blocks));
    }
  });
}

template <class Dot>
inline void pack_queries(const AttendChunk& a) {
  for (int r = 0; r < a.rows; ++r) {
    Dot::pack(a.query[r], a.head_dim, a.dims, a.packed_query + static_cast<std::int64_t>(r) * a.dims);
  }
}

// Scores of the seen panels of the group that begins at `group`.
template <class Dot>
inline void score_group(const AttendChunk& a, Range seen, int group, const void* const* next) {
  const int end = group + kGroupPanels;
  const Range part{group < seen.first ? seen.first : group, end < seen.last ? end : seen.last};
  if (part.last - part.first == kGroupPanels) {
    score_panels<Dot, kScorePanels>(a, part, next);
  } else {
    score_panels<Dot, 1>(a, part, next);
  }
}

template <class Dot>
inline void all_scores(const AttendChunk& a, Range seen) {
  pack_queries<Dot>(a);
  const int first_group = seen.first / kGroupPanels * kGroupPanels;
  for (int group = first_group; group < seen.last; group += kGroupPanels) {
    const bool more = group + kGroupPanels < seen.last;
    score_group<Dot>(a, seen, group, more ? a.k_panels + group + kGroupPanels : a.v_panels + first_group);
  }
}

// A V panel [16 keys, words] > a K panel [words, 16 keys]. A word is an f32 column or two columns of bf16.
inline void turn_panel(const void* v_panel, int words, void* k_panel) {
  const auto* from = static_cast<const float*>(v_panel);
  auto* to = static_cast<float*>(k_panel);
  int w = 0;
  for (; w + 16 <= words; w += 16) transpose(from + w, words, to + 16 * w);
  for (; w < words; ++w) {
    for (int key = 0; key < kPanelTokens; ++key) __builtin_memcpy(to + 16 * w + key, from + key * words + w, 4);
  }
}

// As all_scores, with keys in V panels: a group at a time becomes K panels in the scratch memory.
template <class Dot>
inline void all_latent_scores(const AttendChunk& a, Range seen) {
  pack_queries<Dot>(a);
  const int words = a.dims / Dot::kColumnsPerLine;
  const void* panels[kChunkPanels] = {};
  AttendChunk turned = a;
  turned.k_panels = panels;
  for (int group = seen.first / kGroupPanels * kGroupPanels; group < seen.last; group += kGroupPanels) {
    for (int p = group; p < group + kGroupPanels; ++p) {
      if (p < seen.first || p >= seen.last) continue;
      float* panel = static_cast<float*>(a.k_scratch) + static_cast<std::int64_t>(p - group) * words * kPanelTokens;
      turn_panel(a.v_panels[p], words, panel);
      panels[p] = panel;
    }
    const bool more = group + kGroupPanels < seen.last;
    score_group<Dot>(turned, seen, group, more ? a.v_panels + group + kGroupPanels : nullptr);
  }
}

inline V seen_or(V scores, int panel, int first, int last, V other) {
  const int low = first - panel * kPanelTokens;
  const int high = last - panel * kPanelTokens;
  if (low <= 0 && high >= kPanelTokens) return scores;
  const std::uint32_t below_high = high >= kPanelTokens ? 0xFFFFu : (1u << high) - 1u;
  const std::uint32_t below_low = low <= 0 ? 0u : (1u << low) - 1u;
  return select(below_high & ~below_low, scores, other);
}

// Scores of one row become weights exp(score - max); also their maximum and sum.
inline void softmax_row(const AttendChunk& a, int row) {
  const int first = a.first[row];
  const int last = a.last[row];
  float* scores = a.scores + row * kChunkTokens;
  const V lowest = broadcast(-__builtin_inff());
  V top = lowest;
  for (int p = first / kPanelTokens; p * kPanelTokens < last; ++p) {
    top = max(top, seen_or(load(scores + p * kPanelTokens), p, first, last, lowest));
  }
  const float maximum = reduce_max(top);
  V sum = zero();
  for (int p = first / kPanelTokens; p * kPanelTokens < last; ++p) {
    const V weight = exp(sub(load(scores + p * kPanelTokens), broadcast(maximum)));
    const V seen = seen_or(weight, p, first, last, zero());
    store(scores + p * kPanelTokens, seen);
    sum = add(sum, seen);
  }
  a.out.max[row] = maximum;
  a.out.sum[row] = reduce_add(sum);
}

inline V load_value(const float* p) { return load(p); }
inline V load_value(const std::uint16_t* p) { return load_bf16(p); }

// acc of R rows and C vectors of columns += weights of keys [first, last) times their values.
template <class Value, int R, int C>
inline void value_block(const AttendChunk& a, int row, int column, Range keys, const Ahead& ahead) {
  float* out = a.out.acc + static_cast<std::int64_t>(row) * a.value_dims + column;
  const float* weights = a.scores + row * kChunkTokens;
  V acc[R][C];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) acc[r][c] = load(out + r * a.value_dims + 16 * c);
  }
  const int lines = a.dims * static_cast<int>(sizeof(Value)) * kPanelTokens / 64 / kGroupPanels;
  for (int key = keys.first; key < keys.last;) {
    const int panel = key / kPanelTokens;
    for (int i = 0; i < lines; ++i) ahead.fetch(panel % kGroupPanels * lines + i);
    const int end = keys.last < (panel + 1) * kPanelTokens ? keys.last : (panel + 1) * kPanelTokens;
    const auto* values = static_cast<const Value*>(a.v_panels[panel]) + (key % kPanelTokens) * a.dims + column;
    for (; key < end; ++key, values += a.dims) {
      V value[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) value[c] = load_value(values + 16 * c);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const V weight = broadcast(weights[r * kChunkTokens + key]);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) acc[r][c] = fma(weight, value[c], acc[r][c]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) store(out + r * a.value_dims + 16 * c, acc[r][c]);
  }
}

inline Range keys_of_row(const AttendChunk& a, int row, Range within) {
  return {a.first[row] > within.first ? a.first[row] : within.first,
          a.last[row] < within.last ? a.last[row] : within.last};
}

// Rows of a block that see different keys share the middle part only; each row's chain of additions stays ascending.
template <class Value, int R, int C>
inline void value_rows(const AttendChunk& a, int row, int column, Range group, const Ahead& ahead) {
  const Ahead nothing(nullptr, 0, 1);
  Range shared = group;
  for (int r = 0; r < R; ++r) shared = keys_of_row(a, row + r, shared);
  if (shared.first >= shared.last) shared.first = shared.last = group.last;  // all keys are "before" the middle
  for (int r = 0; r < R; ++r) {
    const Range before = keys_of_row(a, row + r, {group.first, shared.first});
    if (before.first < before.last) value_block<Value, 1, C>(a, row + r, column, before, nothing);
  }
  if (shared.first < shared.last) value_block<Value, R, C>(a, row, column, shared, ahead);
  for (int r = 0; r < R; ++r) {
    const Range after = keys_of_row(a, row + r, {shared.last, group.last});
    if (after.first < after.last) value_block<Value, 1, C>(a, row + r, column, after, nothing);
  }
}

template <class Value, int C>
inline void value_columns(const AttendChunk& a, Range columns, Range group, const void* const* next) {
  const int blocks = row_blocks(a) * ((columns.last - columns.first) / (16 * C));
  int block = 0;
  for (int column = columns.first; column < columns.last; column += 16 * C) {
    for_row_blocks(a.rows, [&](auto n, int row) {
      value_rows<Value, decltype(n)::value, C>(a, row, column, group, Ahead(next, block++, blocks));
    });
  }
}

template <class Value>
inline void all_values(const AttendChunk& a, Range seen) {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(a.rows) * a.value_dims; i += 16) store(a.out.acc + i, zero());
  const int whole = a.value_dims / (16 * kValueVecs) * (16 * kValueVecs);
  for (int panel = seen.first / kGroupPanels * kGroupPanels; panel < seen.last; panel += kGroupPanels) {
    const bool more = panel + kGroupPanels < seen.last;
    const void* const* next = more ? a.v_panels + panel + kGroupPanels : a.next_panels;
    const Range group{panel * kPanelTokens, (panel + kGroupPanels) * kPanelTokens};
    value_columns<Value, kValueVecs>(a, {0, whole}, group, next);
    value_columns<Value, 1>(a, {whole, a.value_dims}, group, whole == 0 ? next : nullptr);
  }
}

template <class Dot, class Value, bool kLatent>
inline void attend_chunk(const AttendChunk& a) {
  const Range seen = seen_panels(a);
  if (kLatent) {
    all_latent_scores<Dot>(a, seen);
  } else {
    all_scores<Dot>(a, seen);
  }
  for (int r = 0; r < a.rows; ++r) {
    if (a.first[r] < a.last[r]) {
      softmax_row(a, r);
    } else {
      a.out.max[r] = -__builtin_inff();
      a.out.sum[r] = 0;
    }
  }
  all_values<Value>(a, seen);
}

inline float exp_of(float x) {
  float all[16];
  store(all, exp(broadcast(x)));
  return all[0];
}

inline void fold_row(const AttendState& into, const AttendState& next, int row, int dims) {
  if (next.sum[row] == 0.0f) return;
  float* acc = into.acc + static_cast<std::int64_t>(row) * dims;
  const float* other = next.acc + static_cast<std::int64_t>(row) * dims;
  if (into.sum[row] == 0.0f) {
    for (int c = 0; c < dims; c += 16) store(acc + c, load(other + c));
    into.max[row] = next.max[row];
    into.sum[row] = next.sum[row];
    return;
  }
  const float maximum = into.max[row] > next.max[row] ? into.max[row] : next.max[row];
  const float keep = exp_of(into.max[row] - maximum);
  const float take = exp_of(next.max[row] - maximum);
  for (int c = 0; c < dims; c += 16) {
    store(acc + c, fma(broadcast(keep), load(acc + c), mul(broadcast(take), load(other + c))));
  }
  into.max[row] = maximum;
  into.sum[row] = into.sum[row] * keep + next.sum[row] * take;
}

inline void fold_rows(const AttendState& into, const AttendState& next, std::int32_t rows, std::int32_t dims) {
  for (int r = 0; r < rows; ++r) fold_row(into, next, r, dims);
}

inline void finish_row(const FinishRow& a) {
  float keep = 1.0f;
  float sum = a.sum;
  if (a.sink != nullptr) {
    const float maximum = a.max > *a.sink ? a.max : *a.sink;
    keep = exp_of(a.max - maximum);
    sum = sum * keep + exp_of(*a.sink - maximum);
  }
  const V factor = broadcast(keep / sum);
  for_vectors(a.head_dim, [&](std::int64_t c, int lanes) {
    const V y = mul(load_some(a.acc + c, lanes), factor);
    if (a.out_bf16 != nullptr) {
      store_some(a.out_bf16 + c, y, lanes);
    } else {
      store_some(a.out_f32 + c, y, lanes);
    }
  });
}

}  // namespace
}  // namespace sluice::cpu
