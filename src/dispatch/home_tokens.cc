#include "dispatch/home_tokens.h"

namespace sluice {
namespace {

Group* group_of(const DispatcherOptions& o) {
  if (o.plan.attention.whole()) return nullptr;
  return o.plan.dp.whole() ? o.world : o.attention;
}

}  // namespace

HomeTokens::HomeTokens(const DispatcherOptions& options)
    : piece_(options.plan.attention),
      group_(group_of(options)),
      offsets_(static_cast<std::size_t>(piece_.count)),
      counts_(static_cast<std::size_t>(piece_.count)) {}

TensorView HomeTokens::rows(const TensorView& out) const {
  const Share home = share(out.rows);
  TensorView part = out;
  part.data = static_cast<std::byte*>(out.data) + dtype_bytes(out.dtype, home.begin * out.row_stride);
  part.rows = home.count();
  return part;
}

void HomeTokens::complete(const TensorView& out, Stream stream) {
  if (group_ == nullptr) return;
  for (std::int32_t i = 0; i < piece_.count; ++i) {
    const Share part = share_of(out.rows, 1, {i, piece_.count});
    offsets_[static_cast<std::size_t>(i)] = dtype_bytes(out.dtype, part.begin * out.cols);
    counts_[static_cast<std::size_t>(i)] = dtype_bytes(out.dtype, part.count() * out.cols);
  }
  group_->all_gather(rows(out).data, out.data, {offsets_.data(), counts_.data()}, stream);
}

}  // namespace sluice
