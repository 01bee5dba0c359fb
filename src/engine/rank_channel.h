// How rank 0 and the other ranks talk between steps: one message to all, and answers to rank 0, of the first rank of
// each dp group or of all. Counterpart of a step's own collectives, which the decoder makes.
//
// One object a rank, made by all ranks together; every call is made by all of them (gather: by the first ranks) in the
// same order. One thread at a time. Errors are those of the group: rank, operation and peer.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/group.h"
#include "engine/ranks.h"
#include "engine/step_message.h"

namespace sluice::engine {

class RankChannel {
 public:
  explicit RankChannel(const EngineRanks& ranks);

  void send(const StepMessage& message);  // rank 0
  StepMessage receive();                  // all others

  // Whether this rank takes part in gather: the first ranks of groups, where there are several groups.
  bool answers() const { return ranks_.plan.dp.count > 1 && ranks_.leads_group(); }
  // On rank 0 the bytes of all first ranks in the order of their groups, elsewhere empty lists.
  std::vector<std::vector<std::byte>> gather(const std::vector<std::byte>& mine);
  // The same of all ranks.
  std::vector<std::vector<std::byte>> gather_all(const std::vector<std::byte>& mine);

 private:
  EngineRanks ranks_;
  std::unique_ptr<Group> firsts_;  // of the first ranks; the others of a run are in a group that is not used
  std::vector<std::byte> frame_;
};

}  // namespace sluice::engine
