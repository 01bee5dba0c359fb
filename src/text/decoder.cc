#include "text/decoder.h"

#include <utility>

#include "core/error.h"
#include "text/decoder_steps.h"
#include "text/fields.h"

namespace sluice::text {
namespace {

constexpr std::size_t kMaxSteps = 64;  // each takes some stack while it hands its tokens on

struct Collector : TokenSink {
  void part(std::string_view text) override { out.append(text); }
  void end_token() override {}
  void finish() override {}
  std::string out;
};

}  // namespace

Decoder::Decoder() { steps_.push_back(make_join_step()); }

Decoder::Decoder(const Json& json, const std::string& where) {
  if (json.is_null()) {
    steps_.push_back(make_join_step());
  } else {
    read(json, where);
  }
}

void Decoder::read(const Json& json, const std::string& where) {
  const std::string type = type_field(json, where);
  if (type == "Sequence") {
    const Json::Array& list = array_field(json, "decoders", where);
    for (std::size_t i = 0; i < list.size(); ++i) read(list[i], place(place(where, "decoders"), i));
    return;
  }
  if (steps_.size() >= kMaxSteps) {
    fail(ErrorCode::bad_input, where + ": too many steps", "at most " + std::to_string(kMaxSteps));
  }
  steps_.push_back(make_decoder_step(type, json, where));
}

std::string Decoder::bytes_of(std::string_view token) const {
  RegexScratch scratch;
  std::string bytes(token);
  for (const auto& step : steps_) bytes = step->bytes_of(std::move(bytes), scratch);
  return bytes;
}

struct DecoderRun::State {
  RegexScratch scratch;
  Collector collector;
  std::vector<std::unique_ptr<TokenSink>> sinks;  // last step first
  TokenSink* first = &collector;
};

DecoderRun::DecoderRun(const Decoder& decoder) : state_(std::make_unique<State>()) {
  for (auto step = decoder.steps_.rbegin(); step != decoder.steps_.rend(); ++step) {
    state_->sinks.push_back((*step)->start(*state_->first, state_->scratch));
    state_->first = state_->sinks.back().get();
  }
}

DecoderRun::~DecoderRun() = default;
DecoderRun::DecoderRun(DecoderRun&&) noexcept = default;
DecoderRun& DecoderRun::operator=(DecoderRun&&) noexcept = default;

std::string DecoderRun::push(std::string_view token) {
  state_->first->part(token);
  state_->first->end_token();
  return std::exchange(state_->collector.out, {});
}

std::string DecoderRun::finish() {
  state_->first->finish();
  return std::exchange(state_->collector.out, {});
}

}  // namespace sluice::text
