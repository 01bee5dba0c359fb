#include "checkpoint/rope_config.h"

#include <string>
#include <utility>

#include "checkpoint/messages.h"
#include "core/error.h"

namespace sluice::ckpt {
namespace {

constexpr NumberRange kThetaRange{1e-3, 1e15};
constexpr NumberRange kFactorRange{1e-3, 1e6};
constexpr NumberRange kShareRange{1e-6, 1.0};
constexpr NumberRange kScaleRange{0.0, 1e6};

// Beginning in the order of the enum; the first name of a type is the one printed.
constexpr std::pair<std::string_view, RopeType> kTypes[] = {
    {"default", RopeType::plain}, {"linear", RopeType::linear}, {"dynamic", RopeType::dynamic},
    {"yarn", RopeType::yarn},     {"llama3", RopeType::llama3}, {"mrope", RopeType::plain},
};

// "mrope" (positions of several kinds, images among them) is plain for text, where all kinds of position are equal.
RopeType type_of(const Fields& section) {
  std::string where;
  const Json* value = section.find({"rope_type", "type"}, &where);
  if (value == nullptr) return RopeType::plain;
  const std::string& name = value->as_string(where);
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  fail(ErrorCode::unsupported, where + ": found " + quote(name), "default, linear, dynamic, yarn, llama3 or mrope");
}

// The object with the scaling parameters, or nothing when the file has only top-level fields.
std::optional<Fields> section_of(const Fields& config, std::string_view layer_type) {
  std::optional<Fields> parameters = config.maybe_object({"rope_parameters"});
  if (!parameters) return config.maybe_object({"rope_scaling"});
  if (std::optional<Fields> nested = parameters->maybe_object({layer_type})) return nested;
  if (parameters->has({"full_attention"}) || parameters->has({"sliding_attention"})) {
    fail(ErrorCode::bad_input, parameters->origin() + ": " + std::string(layer_type) + ": missing",
         "one object for each layer type");
  }
  return parameters;
}

void read_yarn(const Fields& section, RopeConfig& rope) {
  rope.beta_fast = section.get_number({"beta_fast"}, kScaleRange, rope.beta_fast);
  rope.beta_slow = section.get_number({"beta_slow"}, kScaleRange, rope.beta_slow);
  rope.attention_factor = section.maybe_number({"attention_factor"}, kScaleRange);
  rope.mscale = section.maybe_number({"mscale"}, kScaleRange);
  rope.mscale_all_dim = section.maybe_number({"mscale_all_dim"}, kScaleRange);
  rope.truncate = section.get_bool({"truncate"}, rope.truncate);
}

}  // namespace

std::string_view rope_type_name(RopeType type) { return kTypes[static_cast<std::size_t>(type)].first; }

RopeConfig read_rope(const Fields& config, std::string_view layer_type) {
  RopeConfig rope;
  rope.theta = config.get_number({"rope_theta"}, kThetaRange, rope.theta);
  rope.partial_rotary_factor = config.get_number({"partial_rotary_factor"}, kShareRange, rope.partial_rotary_factor);
  const std::optional<Fields> section = section_of(config, layer_type);
  if (section) {
    rope.type = type_of(*section);
    rope.theta = section->get_number({"rope_theta"}, kThetaRange, rope.theta);
    rope.partial_rotary_factor =
        section->get_number({"partial_rotary_factor"}, kShareRange, rope.partial_rotary_factor);
  }
  if (rope.type == RopeType::plain) return rope;
  rope.factor = section->get_number({"factor"}, kFactorRange);
  const std::optional<std::int64_t> original = section->maybe_int({"original_max_position_embeddings"}, kPositionRange);
  rope.original_max_positions =
      original ? *original
               : config.get_int({"original_max_position_embeddings", "max_position_embeddings"}, kPositionRange);
  if (rope.type == RopeType::yarn) read_yarn(*section, rope);
  if (rope.type == RopeType::llama3) {
    rope.low_freq_factor = section->get_number({"low_freq_factor"}, kFactorRange);
    rope.high_freq_factor = section->get_number({"high_freq_factor"}, kFactorRange);
  }
  return rope;
}

}  // namespace sluice::ckpt
