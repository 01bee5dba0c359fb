// Rows whose columns are spread over the ranks of a group, brought together: hidden rows from a cut embedding, logits
// from a cut output projection. Copies only, so that every value has the bits that its rank gave it.
//
// Made at load time and owned by Decoder::Parts; used by Decoder::forward, one thread at a time. Nothing is allocated
// after construction. Cost of gather: each rank gets the columns of all.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/tensor.h"
#include "moe/backend.h"
#include "moe/parallel.h"

namespace sluice {
class Group;
}

namespace sluice::model {

class RankColumns {
 public:
  // shares[r]: the columns of rank r of `group`, ascending, together all of them. Both outlive this.
  RankColumns(Backend& backend, Group& group, std::vector<Share> shares);

  // `memory` [rows, all columns] f32 is what gather works in: where this rank's columns of all rows go, [rows, own].
  TensorView own_part(const TensorView& memory) const;

  // Collective: the parts of all ranks in `memory` > `out` [rows, all columns] f32. Every rank brings the same number
  // of rows; `out` may be absent. Afterwards `memory` is scratch.
  void gather(const TensorView& memory, const TensorView& out, Stream stream);

 private:
  void place(const TensorView& memory, const TensorView& out, Stream stream) const;

  Backend& backend_;
  Group& group_;
  std::vector<Share> shares_;
  std::vector<std::int64_t> offsets_, counts_;  // [ranks] bytes of the exchange under way
  Buffer row_numbers_;                          // 0, 1, 2, ...: what gather_rows copies
};

}  // namespace sluice::model
