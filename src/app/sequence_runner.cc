#include "app/sequence_runner.h"

#include <numeric>

#include "engine/step_plan.h"

namespace sluice::app {
namespace {

constexpr std::int32_t kBlockTokens = 16;

// In blocks 0, 1, 2, ... of the cache.
engine::StepPlan plan_of(const std::vector<std::int32_t>& ids, bool with_logits) {
  engine::StepPlan plan;
  const auto tokens = static_cast<std::int32_t>(ids.size());
  plan.token_ids = ids;
  plan.positions.resize(ids.size());
  std::iota(plan.positions.begin(), plan.positions.end(), 0);
  if (with_logits) plan.logit_rows = plan.positions;
  plan.query_start = {0, tokens};
  plan.max_blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  plan.block_table.resize(static_cast<std::size_t>(plan.max_blocks));
  std::iota(plan.block_table.begin(), plan.block_table.end(), 0);
  plan.max_context = tokens;
  engine::PlanSequence sequence;
  sequence.tokens = tokens;
  plan.sequences.push_back(sequence);
  return plan;
}

}  // namespace

SequenceRunner::SequenceRunner(const model::Decoder& decoder, std::int64_t max_tokens, bool with_logits)
    : decoder_(decoder),
      backend_(decoder.backend()),
      max_tokens_(max_tokens),
      with_logits_(with_logits),
      batch_(backend_, {max_tokens, 1, max_tokens / kBlockTokens, max_tokens}),
      kv_(decoder.make_kv(max_tokens / kBlockTokens)),
      memory_(backend_.alloc(decoder.workspace_bytes(max_tokens, max_tokens))),
      workspace_(memory_.data(), memory_.bytes()),
      device_logits_(backend_.alloc(
          with_logits ? static_cast<std::size_t>(max_tokens * decoder.config().vocab) * sizeof(float) : 1)) {}

const std::vector<float>& SequenceRunner::run(const std::vector<std::int32_t>& ids, StageSink* stages,
                                              model::RouteLog* routes) {
  const Stream stream;
  const engine::DeviceBatch batch = batch_.upload(plan_of(ids, with_logits_), stream);
  const std::int64_t vocab = decoder_.config().vocab;
  model::ForwardArgs args;
  args.batch = batch.view;
  args.kv = &kv_;
  args.routes = routes;
  args.stages = stages;
  if (with_logits_) {
    args.logit_rows = batch.logit_rows;
    args.logits = dense_view(device_logits_.data(), DType::f32, std::ssize(ids), vocab);
  }
  decoder_.forward(args, workspace_, stream);
  if (with_logits_) {
    logits_.resize(ids.size() * static_cast<std::size_t>(vocab));
    backend_.copy_to_host(logits_.data(), device_logits_.data(), logits_.size() * sizeof(float), stream);
  }
  backend_.synchronize(stream);
  return logits_;
}

}  // namespace sluice::app
