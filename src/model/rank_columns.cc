#include "model/rank_columns.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/group.h"

namespace sluice::model {
namespace {

constexpr std::int64_t kRowsAtOnce = 256;
constexpr std::int64_t kFloatBytes = sizeof(float);

}  // namespace

RankColumns::RankColumns(Backend& backend, Group& group, std::vector<Share> shares)
    : backend_(backend),
      group_(group),
      shares_(std::move(shares)),
      offsets_(shares_.size()),
      counts_(shares_.size()),
      row_numbers_(backend.alloc(kRowsAtOnce * sizeof(std::int32_t))) {
  std::vector<std::int32_t> numbers(kRowsAtOnce);
  std::iota(numbers.begin(), numbers.end(), 0);
  backend.copy_to_device(row_numbers_.data(), numbers.data(), numbers.size() * sizeof(std::int32_t), Stream{});
  backend.synchronize(Stream{});
}

// Parts lie one behind the other, each row by row.
TensorView RankColumns::own_part(const TensorView& memory) const {
  const Share& own = shares_[static_cast<std::size_t>(group_.rank())];
  return dense_view(static_cast<float*>(memory.data) + memory.rows * own.begin, DType::f32, memory.rows, own.count());
}

void RankColumns::gather(const TensorView& memory, const TensorView& out, Stream stream) {
  for (std::size_t r = 0; r < shares_.size(); ++r) {
    offsets_[r] = memory.rows * shares_[r].begin * kFloatBytes;
    counts_[r] = memory.rows * shares_[r].count() * kFloatBytes;
  }
  group_.all_gather(own_part(memory).data, memory.data, {offsets_.data(), counts_.data()}, stream);
  if (out) place(memory, out, stream);
}

void RankColumns::place(const TensorView& memory, const TensorView& out, Stream stream) const {
  for (const Share& share : shares_) {
    const float* part = static_cast<const float*>(memory.data) + memory.rows * share.begin;
    for (std::int64_t first = 0; first < memory.rows; first += kRowsAtOnce) {
      const std::int64_t rows = std::min(kRowsAtOnce, memory.rows - first);
      const TensorView to{out.row<float>(first) + share.begin, DType::f32, rows, share.count(), out.row_stride};
      const ConstTensorView from =
          dense_view(static_cast<const void*>(part + first * share.count()), DType::f32, rows, share.count());
      backend_.gather_rows(from, row_numbers_.as<std::int32_t>(), to, stream);
    }
  }
}

}  // namespace sluice::model
