#include "engine/step_message.h"

#include <string>

#include "core/error.h"
#include "engine/request.h"
#include "engine/wire.h"

namespace sluice::engine {
namespace {

constexpr std::uint32_t kMessage = 0x534d5331;  // "1SMS"; the digit is the version
constexpr std::uint32_t kResult = 0x53525331;   // "1SRS"
constexpr std::uint32_t kLoad = 0x4c455332;     // "2SEL"
constexpr std::size_t kParamsBytes = 6 * 4 + 3 * 8;
constexpr std::size_t kLeastGroupBytes = 3 * 8;  // three lengths
constexpr std::size_t kLeastLayerBytes = 4 + 3 * 8;
constexpr std::size_t kLeastRankBytes = 4 + 8;

void require(bool ok, const char* what) {
  if (!ok) fail(ErrorCode::bad_input, std::string("message between ranks: ") + what, "a message that fits itself");
}

void expect_kind(Reader& r, std::uint32_t kind) {
  require(r.value<std::uint32_t>() == kind, "unknown beginning, ranks of different builds?");
}

void write(Writer& w, const SampleParams& p) {
  w.value(p.temperature);
  w.value(p.top_k);
  w.value(p.top_p);
  w.value(p.min_p);
  w.value(p.seed);
  w.value(p.step);
  w.value(p.edit_count);
  w.value(p.given);
  w.value(p.top);
}

SampleParams read_params(Reader& r) {
  SampleParams p;
  p.temperature = r.value<float>();
  p.top_k = r.value<std::int32_t>();
  p.top_p = r.value<float>();
  p.min_p = r.value<float>();
  p.seed = r.value<std::uint64_t>();
  p.step = r.value<std::uint64_t>();
  p.edit_count = r.value<std::int64_t>();
  p.given = r.value<std::int32_t>();
  p.top = r.value<std::int32_t>();
  require(p.edit_count >= 0, "edit_count");
  require(p.top >= 0 && p.top <= kMostTop, "top");
  return p;
}

void write(Writer& w, const GroupStep& g) {
  w.bytes(to_bytes(g.plan));
  w.value(static_cast<std::uint64_t>(g.params.size()));
  for (const SampleParams& p : g.params) write(w, p);
  w.list(g.copy_rows);
}

GroupStep read_group(Reader& r) {
  GroupStep g;
  g.plan = plan_from_bytes(r.bytes());
  const std::size_t rows = r.count(kParamsBytes);
  require(rows == g.plan.logit_rows.size(), "as many sampling parameters as rows of logits");
  for (std::size_t i = 0; i < rows; ++i) g.params.push_back(read_params(r));
  g.copy_rows = r.list<std::int32_t>();
  for (const std::int32_t row : g.copy_rows) require(row >= 0 && row < std::ssize(g.params), "copy_rows");
  return g;
}

// The edits of all rows, one after the other.
void write_edits(Writer& w, const StepMessage& m) {
  std::vector<std::int32_t> tokens;
  std::vector<float> divisors, adds;
  for (const GroupStep& g : m.groups) {
    for (const SampleParams& p : g.params) {
      for (const LogitEdit& e : std::span(p.edits, static_cast<std::size_t>(p.edit_count))) {
        tokens.push_back(e.token);
        divisors.push_back(e.divisor);
        adds.push_back(e.add);
      }
    }
  }
  w.list(tokens);
  w.list(divisors);
  w.list(adds);
}

void read_edits(Reader& r, StepMessage& m) {
  const auto tokens = r.list<std::int32_t>();
  const auto divisors = r.list<float>();
  const auto adds = r.list<float>();
  require(tokens.size() == divisors.size() && tokens.size() == adds.size(), "lists of edits");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    require(tokens[i] >= 0, "token of an edit");
    m.edits.push_back({tokens[i], divisors[i], adds[i]});
  }
  std::int64_t left = std::ssize(m.edits);
  for (GroupStep& g : m.groups) {
    for (SampleParams& p : g.params) {
      require(p.edit_count <= left, "edits of a row");
      p.edits = m.edits.data() + (std::ssize(m.edits) - left);
      left -= p.edit_count;
    }
  }
  require(left == 0, "edits of no row");
}

}  // namespace

std::vector<std::byte> to_bytes(const StepMessage& m) {
  Writer w;
  w.value(kMessage);
  w.value(static_cast<std::uint8_t>(m.command));
  w.value(static_cast<std::uint64_t>(m.groups.size()));
  for (const GroupStep& g : m.groups) write(w, g);
  write_edits(w, m);
  return w.take();
}

StepMessage message_from_bytes(std::span<const std::byte> bytes) {
  Reader r(bytes, "message between ranks");
  expect_kind(r, kMessage);
  const auto command = r.value<std::uint8_t>();
  require(command <= static_cast<std::uint8_t>(StepCommand::stop), "unknown command");
  StepMessage m(static_cast<StepCommand>(command));
  const std::size_t groups = r.count(kLeastGroupBytes);
  for (std::size_t i = 0; i < groups; ++i) m.groups.push_back(read_group(r));
  read_edits(r, m);
  r.expect_end();
  return m;
}

std::vector<std::byte> to_bytes(const StepResult& result) {
  Writer w;
  w.value(kResult);
  w.list(result.tokens);
  w.list(result.logprobs);
  w.value(result.top_width);
  w.list(result.top_tokens);
  w.list(result.top_logprobs);
  w.list(result.logits);
  w.value(result.weight_bytes);
  w.value(result.execute_seconds);
  w.value(result.sample_seconds);
  return w.take();
}

StepResult result_from_bytes(std::span<const std::byte> bytes) {
  Reader r(bytes, "result of a rank");
  expect_kind(r, kResult);
  StepResult result;
  result.tokens = r.list<std::int32_t>();
  result.logprobs = r.list<float>();
  result.top_width = r.value<std::int64_t>();
  result.top_tokens = r.list<std::int32_t>();
  result.top_logprobs = r.list<float>();
  result.logits = r.list<float>();
  result.weight_bytes = r.value<std::int64_t>();
  result.execute_seconds = r.value<double>();
  result.sample_seconds = r.value<double>();
  r.expect_end();
  require(result.top_width >= 0 && result.top_width <= kMostTop, "top_width");
  const std::size_t cells = result.tokens.size() * static_cast<std::size_t>(result.top_width);
  require(result.logprobs.size() == result.tokens.size(), "log-probabilities");
  require(result.top_tokens.size() == cells && result.top_logprobs.size() == cells, "most probable tokens");
  return result;
}

std::vector<std::byte> to_bytes(const ExpertLoad& load) {
  Writer w;
  w.value(kLoad);
  w.value(load.tokens);
  w.value(static_cast<std::uint64_t>(load.layers.size()));
  for (const LayerLoad& layer : load.layers) {
    w.value(layer.layer);
    w.list(layer.choices);
    w.list(layer.expert_of);
    w.value(static_cast<std::uint64_t>(layer.ranks.size()));
    for (const RankLoad& rank : layer.ranks) {
      w.value(rank.first_slot);
      w.list(rank.rows);
    }
  }
  return w.take();
}

ExpertLoad load_from_bytes(std::span<const std::byte> bytes) {
  Reader r(bytes, "expert load of a rank");
  expect_kind(r, kLoad);
  ExpertLoad load;
  load.tokens = r.value<std::int64_t>();
  const std::size_t layers = r.count(kLeastLayerBytes);
  for (std::size_t i = 0; i < layers; ++i) {
    LayerLoad& layer = load.layers.emplace_back();
    layer.layer = r.value<std::int32_t>();
    layer.choices = r.list<std::int64_t>();
    layer.expert_of = r.list<std::int32_t>();
    const std::size_t ranks = r.count(kLeastRankBytes);
    for (std::size_t k = 0; k < ranks; ++k) {
      RankLoad& rank = layer.ranks.emplace_back();
      rank.first_slot = r.value<std::int32_t>();
      rank.rows = r.list<std::int64_t>();
    }
  }
  r.expect_end();
  return load;
}

}  // namespace sluice::engine
