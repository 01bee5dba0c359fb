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
constexpr NumberRange kBetaRange{1e-6, 1e6};

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

// transformers 4 and 5 name the section differently; a file that has both must mean the same by them.
void refuse_both(const Fields& config, const Fields& parameters, const std::optional<Fields>& scaling) {
  if (!scaling || parameters.has({"full_attention", "sliding_attention"})) return;
  if (type_of(parameters) == type_of(*scaling)) return;
  fail(ErrorCode::bad_input, config.origin() + ": rope_parameters and rope_scaling have different rope types",
       "one of the two, or the same type in both");
}

// The number at the top of the file or in the section; an error when both are there and differ.
double number_of(const Fields& config, const std::optional<Fields>& section, std::string_view key, NumberRange range,
                 double fallback) {
  const std::optional<double> top = config.maybe_number({key}, range);
  const std::optional<double> inner = section ? section->maybe_number({key}, range) : std::nullopt;
  if (top && inner && *top != *inner) {
    fail(ErrorCode::bad_input,
         config.origin() + ": " + std::string(key) + ": " + std::to_string(*top) + " and " + std::to_string(*inner) +
             " in the section of rope parameters",
         "the same number in both places");
  }
  return inner.value_or(top.value_or(fallback));
}

// The object with the scaling parameters, or nothing when the file has only top-level fields.
std::optional<Fields> section_of(const Fields& config, std::string_view layer_type) {
  std::optional<Fields> parameters = config.maybe_object({"rope_parameters"});
  std::optional<Fields> scaling = config.maybe_object({"rope_scaling"});
  if (!parameters) return scaling;
  refuse_both(config, *parameters, scaling);
  if (std::optional<Fields> nested = parameters->maybe_object({layer_type})) return nested;
  if (parameters->has({"full_attention"}) || parameters->has({"sliding_attention"})) {
    fail(ErrorCode::bad_input, parameters->origin() + ": " + std::string(layer_type) + ": missing",
         "one object for each layer type");
  }
  return parameters;
}

void read_yarn(const Fields& section, RopeConfig& rope) {
  rope.beta_fast = section.get_number({"beta_fast"}, kBetaRange, rope.beta_fast);
  rope.beta_slow = section.get_number({"beta_slow"}, kBetaRange, rope.beta_slow);
  rope.attention_factor = section.maybe_number({"attention_factor"}, kScaleRange);
  rope.mscale = section.maybe_number({"mscale"}, kScaleRange);
  rope.mscale_all_dim = section.maybe_number({"mscale_all_dim"}, kScaleRange);
  rope.truncate = section.get_bool({"truncate"}, rope.truncate);
}

}  // namespace

std::string_view rope_type_name(RopeType type) { return kTypes[static_cast<std::size_t>(type)].first; }

RopeConfig read_rope(const Fields& config, const RopeDefaults& defaults, std::string_view layer_type) {
  RopeConfig rope;
  const std::optional<Fields> section = section_of(config, layer_type);
  if (section) rope.type = type_of(*section);
  rope.theta = number_of(config, section, "rope_theta", kThetaRange, defaults.theta);
  rope.partial_rotary_factor =
      number_of(config, section, "partial_rotary_factor", kShareRange, defaults.partial_rotary_factor);
  if (rope.type == RopeType::plain) return rope;
  if (rope.type != RopeType::yarn && section->maybe_number({"mscale_all_dim"}, kScaleRange).value_or(0.0) != 0.0) {
    fail(ErrorCode::unsupported,
         section->origin() + ": mscale_all_dim with rope type " + std::string(rope_type_name(rope.type)),
         "rope type yarn");
  }
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
