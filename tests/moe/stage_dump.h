// Keeps what a runner records, by stage and route: all routes, or those of every n-th token. For tests of any runner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "moe/runner.h"

namespace sluice::testing {

class StageDump final : public StageSink {
 public:
  StageDump() = default;
  StageDump(std::int64_t top_k, std::int64_t token_step) : top_k_(top_k), token_step_(token_step) {}

  void record(std::string_view stage, const ConstTensorView& rows, const std::int64_t* route) override {
    const std::int64_t bytes = dtype_bytes(rows.dtype, rows.cols);
    const std::int64_t stride = dtype_bytes(rows.dtype, rows.row_stride);
    const auto* from = static_cast<const std::byte*>(rows.data);
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      if (!keeps(route != nullptr ? route[r] : r)) continue;
      auto& copy = stages_[std::string(stage)][route != nullptr ? route[r] : r];
      copy.assign(from + r * stride, from + r * stride + bytes);
    }
  }

  bool keeps(std::int64_t route) const { return route / top_k_ % token_step_ == 0; }

  bool has(const std::string& stage) const { return stages_.count(stage) != 0; }

  // Rows of one stage by route; empty when it was not recorded.
  const std::map<std::int64_t, std::vector<std::byte>>& rows(const std::string& stage) const {
    static const std::map<std::int64_t, std::vector<std::byte>> none;
    const auto found = stages_.find(stage);
    return found == stages_.end() ? none : found->second;
  }

  // One row as T; empty when it was not recorded.
  template <class T>
  std::vector<T> row(const std::string& stage, std::int64_t route) const {
    const auto& all = rows(stage);
    const auto found = all.find(route);
    if (found == all.end()) return {};
    std::vector<T> values(found->second.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), found->second.data(), values.size() * sizeof(T));
    return values;
  }

 private:
  std::int64_t top_k_ = 1, token_step_ = 1;
  std::map<std::string, std::map<std::int64_t, std::vector<std::byte>>> stages_;
};

}  // namespace sluice::testing
