// Which tokens a rank brings to an exchange: ranks of an attention group hold the same ones, so each takes its share as
// its home, and an all-gather over the group ends the layer.
//
// Used by the dispatchers that move tokens. Not owned groups; one thread at a time.
#pragma once

#include "comm/group.h"
#include "core/tensor.h"
#include "dispatch/dispatcher.h"

namespace sluice {

class HomeTokens {
 public:
  explicit HomeTokens(const DispatcherOptions& options);

  Share share(std::int64_t tokens) const { return share_of(tokens, 1, piece_); }
  std::int64_t most(std::int64_t tokens) const { return share_of(tokens, 1, {0, piece_.count}).count(); }
  // Rows of the share of out [T, W].
  TensorView rows(const TensorView& out) const;
  // Rows of the share > all rows, on every rank of the group.
  void complete(const TensorView& out, Stream stream);

 private:
  Piece piece_;
  Group* group_;                                // nullptr = nobody else has these tokens
  std::vector<std::int64_t> offsets_, counts_;  // [piece_.count]
};

}  // namespace sluice
