// What rank 0 tells the other ranks of a run, and what the first ranks of dp groups answer: plain data and its bytes.
//
// Made by Engine, carried by RankChannel, executed by follow(). Every rank gets the plans of all groups in one message;
// what the sampler needs is read by the first rank of each group only. One rank alone never turns any of it into bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/stats.h"
#include "engine/step_plan.h"
#include "engine/step_result.h"
#include "moe/backend.h"

namespace sluice::engine {

enum class StepCommand : std::uint8_t {
  nothing,      // rank 0 is alive
  step,         // execute the group's plan
  report_load,  // send the expert load to rank 0
  stop,         // no more messages
};

// What one dp group does in a step. An idle group has an empty plan.
struct GroupStep {
  StepPlan plan;
  std::vector<SampleParams> params;     // [logit rows]; their edits belong to whoever made them
  std::vector<std::int32_t> copy_rows;  // rows of the logits to bring to the host
};

struct StepMessage {
  StepCommand command = StepCommand::nothing;
  std::vector<GroupStep> groups;  // [dp] for step, else empty
  std::vector<LogitEdit> edits;   // of a message that was read: what its params point to

  StepMessage() = default;
  explicit StepMessage(StepCommand c) : command(c) {}
  StepMessage(StepMessage&&) = default;
  StepMessage& operator=(StepMessage&&) = default;
  StepMessage(const StepMessage&) = delete;  // the params of the copy would point into the original
  StepMessage& operator=(const StepMessage&) = delete;
};

std::vector<std::byte> to_bytes(const StepMessage& message);
std::vector<std::byte> to_bytes(const StepResult& result);
std::vector<std::byte> to_bytes(const ExpertLoad& load);

// These throw Error(bad_input) when the bytes are not what they should be, or contradict themselves.
StepMessage message_from_bytes(std::span<const std::byte> bytes);
StepResult result_from_bytes(std::span<const std::byte> bytes);
ExpertLoad load_from_bytes(std::span<const std::byte> bytes);

}  // namespace sluice::engine
