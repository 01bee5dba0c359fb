// Communication between the ranks of a run. Layers above know tokens; a Group only moves bytes.
//
// One object a rank. Collectives are called by all ranks of the group in the same order. `single` is the group of one
// rank, so that code above needs no special case.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace sluice {

class Group {
 public:
  virtual ~Group() = default;
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void barrier() = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  virtual void all_reduce_sum(float* data, std::size_t count) = 0;
  virtual void all_gather(const void* send, std::size_t bytes, void* receive) = 0;  // receive: size() * bytes
};

std::unique_ptr<Group> make_single_group();

}  // namespace sluice
