#include "engine/batch.h"

#include <string>

#include "core/error.h"

namespace sluice::engine {
namespace {

std::int64_t capacity(const BatchLimits& l) {
  return 2 * l.tokens + (l.sequences + 1) + l.sequences * l.blocks + l.logit_rows;
}

void require_within(std::int64_t found, std::int64_t limit, const char* what) {
  if (found > limit) {
    fail(ErrorCode::usage, "step plan with " + std::to_string(found) + " " + what, "at most " + std::to_string(limit));
  }
}

}  // namespace

BatchBuffers::BatchBuffers(Backend& backend, const BatchLimits& limits)
    : backend_(backend),
      limits_(limits),
      device_(backend.alloc(static_cast<std::size_t>(capacity(limits)) * sizeof(std::int32_t))) {
  staging_.reserve(static_cast<std::size_t>(capacity(limits)));
}

DeviceBatch BatchBuffers::upload(const StepPlan& plan, Stream stream) {
  require_within(plan.tokens(), limits_.tokens, "tokens");
  require_within(std::ssize(plan.sequences), limits_.sequences, "sequences");
  require_within(plan.max_blocks, limits_.blocks, "blocks of a sequence");
  require_within(std::ssize(plan.logit_rows), limits_.logit_rows, "logit rows");
  staging_.clear();
  DeviceBatch batch;
  batch.view.tokens = plan.tokens();
  batch.view.sequences = std::ssize(plan.sequences);
  batch.view.max_blocks = plan.max_blocks;
  batch.view.max_context = plan.max_context;
  batch.view.token_ids = append(plan.token_ids);
  batch.view.positions = append(plan.positions);
  batch.view.query_start = append(plan.query_start);
  batch.view.block_table = append(plan.block_table);
  batch.logit_rows = append(plan.logit_rows);
  backend_.copy_to_device(device_.data(), staging_.data(), staging_.size() * sizeof(std::int32_t), stream);
  return batch;
}

// Where the list will be on the device.
const std::int32_t* BatchBuffers::append(const std::vector<std::int32_t>& list) {
  const std::int32_t* at = device_.as<std::int32_t>() + staging_.size();
  staging_.insert(staging_.end(), list.begin(), list.end());
  return at;
}

}  // namespace sluice::engine
