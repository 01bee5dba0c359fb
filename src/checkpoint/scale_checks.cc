#include "checkpoint/scale_checks.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>

#include "checkpoint/scale_policy.h"
#include "checkpoint/scale_search.h"
#include "checkpoint/scale_values.h"

namespace sluice::ckpt {
namespace {

const TensorEntry& codes_of(const ScaleGrid& grid) { return *grid.request.parts->codes(); }

bool is_before(const void* a, const void* b) { return std::less<>()(a, b); }

std::int64_t first_bad_float(const std::byte* data, DType type, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (fault_of(float_at(data, type, i)) != ScaleFault::none) return i;
  }
  return -1;
}

// Among `count` scales from `data` on, which lies in the grid.
std::int64_t first_bad_scale(const ScaleGrid& grid, const std::byte* data, std::int64_t count) {
  if (grid.type == DType::e4m3) return first_bad_e4m3(data, count);
  if (grid.type == DType::e8m0) return first_bad_e8m0(data, count, grid.most);
  return first_bad_float(data, grid.type, count);
}

}  // namespace

ScaleChecks::ScaleChecks(std::vector<ScaleGrid> grids) : grids_(std::move(grids)), by_codes_(grids_.size()) {
  for (const ScaleGrid& grid : grids_) begin_.push_back(begin_.back() + grid.request.matrices());
  taken_ = std::vector<std::atomic<bool>>(static_cast<std::size_t>(begin_.back()));
  bad_.assign(taken_.size(), -1);
  std::iota(by_codes_.begin(), by_codes_.end(), std::size_t{0});
  std::sort(by_codes_.begin(), by_codes_.end(), [&](std::size_t a, std::size_t b) {
    return is_before(codes_of(grids_[a]).data, codes_of(grids_[b]).data);
  });
}

void ScaleChecks::check(std::size_t g, std::int64_t matrix) {
  const auto i = static_cast<std::size_t>(begin_[g] + matrix);
  if (taken_[i].exchange(true, std::memory_order_relaxed)) return;
  const ScaleGrid& grid = grids_[g];
  if (!grid.request.holds(matrix)) return;
  const std::int64_t count = elements_of(*grid.tensor) / grid.request.matrices();
  const std::int64_t bad = first_bad_scale(grid, grid.data + dtype_bytes(grid.type, matrix * count), count);
  if (bad >= 0) bad_[i] = bad + matrix * count;
}

void ScaleChecks::check_codes(const void* codes) {
  const auto after = std::upper_bound(by_codes_.begin(), by_codes_.end(), codes, [&](const void* p, std::size_t g) {
    return is_before(p, codes_of(grids_[g]).data);
  });
  if (after == by_codes_.begin()) return;
  const std::size_t g = *(after - 1);
  const TensorEntry& tensor = codes_of(grids_[g]);
  const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(codes) - reinterpret_cast<std::uintptr_t>(tensor.data);
  if (at >= tensor.bytes) return;
  const std::int64_t matrices = grids_[g].request.matrices();
  check(g, static_cast<std::int64_t>(at / (tensor.bytes / static_cast<std::size_t>(matrices))));
}

ScaleChecks::Fault ScaleChecks::finish(ThreadPool* pool) {
  const auto check_some = [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i) {
      const auto g = std::upper_bound(begin_.begin(), begin_.end(), i) - begin_.begin() - 1;
      check(static_cast<std::size_t>(g), i - begin_[static_cast<std::size_t>(g)]);
    }
  };
  const bool all_taken = std::all_of(taken_.begin(), taken_.end(), [](const auto& taken) { return taken.load(); });
  if (!all_taken && pool != nullptr) pool->parallel_for(begin_.back(), 1, check_some);
  if (!all_taken && pool == nullptr) check_some(0, begin_.back(), 0);
  const auto bad = std::find_if(bad_.begin(), bad_.end(), [](std::int64_t index) { return index >= 0; });
  if (bad == bad_.end()) return {};
  const auto g = std::upper_bound(begin_.begin(), begin_.end(), bad - bad_.begin()) - begin_.begin() - 1;
  return {&grids_[static_cast<std::size_t>(g)], *bad};
}

}  // namespace sluice::ckpt
