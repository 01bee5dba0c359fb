#include "checkpoint/expert_pages.h"

#include <algorithm>
#include <cstdint>

#include "core/rounding.h"

namespace sluice::ckpt {
namespace {

struct Rows {
  std::int64_t all = 0;  // of the codes; scales may have fewer
  Share part;
};

// The rows of the tensor that `rows` of the codes stand in, or that have their scales.
std::span<const std::byte> rows_of(std::span<const std::byte> bytes, std::int64_t extent, const Rows& rows) {
  if (extent < 2 || rows.part.count() == 0 || rows.all == 0) return bytes;
  const std::size_t row = bytes.size() / static_cast<std::size_t>(extent);
  const std::int64_t begin = rows.part.begin * extent / rows.all;
  const std::int64_t end = std::min(extent, ceil_div(rows.part.end * extent, rows.all));
  return bytes.subspan(static_cast<std::size_t>(begin) * row, static_cast<std::size_t>(end - begin) * row);
}

void visit_stacked(const TensorEntry& tensor, const ExpertSlice& slice, const Rows& rows, VisitBytes visit) {
  const std::int64_t experts = tensor.shape.empty() ? 1 : tensor.shape[0];
  const std::int64_t extent = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
  const std::size_t each = tensor.bytes / static_cast<std::size_t>(std::max<std::int64_t>(experts, 1));
  const auto visit_one = [&](std::int64_t e) {
    visit(rows_of(tensor.span().subspan(static_cast<std::size_t>(e) * each, each), extent, rows));
  };
  if (slice.experts.empty()) {
    for (std::int64_t e = 0; e < experts; ++e) visit_one(e);
  }
  for (const LogicalId e : slice.experts) {
    if (raw(e) < experts) visit_one(raw(e));
  }
}

}  // namespace

void visit_slice(const ModuleParts& parts, const ExpertNames& names, std::string_view pattern, const ExpertSlice& slice,
                 VisitBytes visit) {
  const bool stacked = names.files == ExpertNames::Files::stacked;
  const std::size_t dimension = stacked ? 1 : 0;
  const bool of_rows = pattern == names.gate || pattern == names.up;
  Rows rows;
  const TensorEntry* codes = parts.codes();
  if (of_rows && !names.transposed && codes != nullptr && codes->shape.size() > dimension) {
    rows = {codes->shape[dimension], slice.inner};
  }
  for (const TensorEntry* tensor : parts.tensors) {
    if (tensor == nullptr) continue;
    if (slice.whole()) {
      visit(tensor->span());
    } else if (stacked) {
      visit_stacked(*tensor, slice, rows, visit);
    } else {
      visit(rows_of(tensor->span(), tensor->shape.empty() ? 1 : tensor->shape[0], rows));
    }
  }
}

}  // namespace sluice::ckpt
