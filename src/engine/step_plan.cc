#include "engine/step_plan.h"

#include <string>

#include "core/error.h"
#include "engine/wire.h"

namespace sluice::engine {
namespace {

constexpr std::uint32_t kMagic = 0x504c5331;  // "1SLP"; the digit is the version

void write(Writer& w, const PlanSequence& s) {
  w.value(s.request);
  for (const std::int32_t v : {s.first_token, s.tokens, s.sample_row, s.first_score, s.scores, s.score_offset}) {
    w.value(v);
  }
}

PlanSequence read_sequence(Reader& r) {
  PlanSequence s;
  s.request = r.value<std::uint64_t>();
  for (std::int32_t* v : {&s.first_token, &s.tokens, &s.sample_row, &s.first_score, &s.scores, &s.score_offset}) {
    *v = r.value<std::int32_t>();
  }
  return s;
}

constexpr std::size_t kSequenceBytes = 8 + 6 * 4;

void require(bool ok, const char* what) {
  if (!ok) fail(ErrorCode::bad_input, std::string("step plan: ") + what, "a plan that fits itself");
}

}  // namespace

std::vector<std::byte> to_bytes(const StepPlan& plan) {
  Writer w;
  w.value(kMagic);
  w.value(plan.number);
  w.value(plan.max_blocks);
  w.value(plan.max_context);
  w.value(plan.sample_rows);
  for (const auto* list : {&plan.token_ids, &plan.positions, &plan.query_start, &plan.block_table, &plan.logit_rows}) {
    w.list(*list);
  }
  w.value(static_cast<std::uint64_t>(plan.sequences.size()));
  for (const PlanSequence& s : plan.sequences) write(w, s);
  return w.take();
}

StepPlan plan_from_bytes(std::span<const std::byte> bytes) {
  Reader r(bytes, "step plan");
  if (r.value<std::uint32_t>() != kMagic)
    fail(ErrorCode::bad_input, "step plan: unknown beginning", "a plan of this build");
  StepPlan plan;
  plan.number = r.value<std::uint64_t>();
  plan.max_blocks = r.value<std::int32_t>();
  plan.max_context = r.value<std::int64_t>();
  plan.sample_rows = r.value<std::int32_t>();
  for (auto* list : {&plan.token_ids, &plan.positions, &plan.query_start, &plan.block_table, &plan.logit_rows}) {
    *list = r.list<std::int32_t>();
  }
  const std::size_t sequences = r.count(kSequenceBytes);
  for (std::size_t i = 0; i < sequences; ++i) plan.sequences.push_back(read_sequence(r));
  r.expect_end();
  validate(plan);
  return plan;
}

void validate(const StepPlan& plan) {
  const std::int64_t tokens = plan.tokens();
  const std::size_t sequences = plan.sequences.size();
  const auto rows = static_cast<std::int64_t>(plan.logit_rows.size());
  require(plan.positions.size() == plan.token_ids.size(), "as many positions as tokens");
  require(plan.query_start.size() == sequences + 1, "query_start");
  require(plan.query_start.front() == 0 && plan.query_start.back() == tokens, "ends of query_start");
  require(plan.max_blocks >= 0 && plan.block_table.size() == sequences * static_cast<std::size_t>(plan.max_blocks),
          "block_table");
  require(plan.sample_rows >= 0 && plan.sample_rows <= rows, "sample_rows");
  for (const std::int32_t row : plan.logit_rows) require(row >= 0 && row < tokens, "logit_rows");
  for (std::size_t i = 0; i < sequences; ++i) {
    const PlanSequence& s = plan.sequences[i];
    require(s.tokens > 0 && plan.query_start[i] == s.first_token &&
                plan.query_start[i + 1] - plan.query_start[i] == s.tokens,
            "tokens of a sequence");
    require(s.sample_row >= -1 && s.sample_row < plan.sample_rows, "sample_row");
    require(s.scores >= 0 && s.first_score >= 0 && s.first_score + std::int64_t{s.scores} <= rows, "scores");
    require(s.score_offset >= 0 && s.score_offset + std::int64_t{s.scores} <= s.tokens, "score_offset");
  }
}

}  // namespace sluice::engine
