// The input is config.json, generation_config.json and model.safetensors.index.json at once: each is understood or
// refused with Error, and what is understood is in range.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "checkpoint/config.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/index.h"
#include "checkpoint/rope_config.h"
#include "core/error.h"

namespace {

using namespace sluice::ckpt;

void require(bool condition) {
  if (!condition) __builtin_trap();
}

template <class F>
void allow_refusal(F f) {
  try {
    f();
  } catch (const sluice::Error& e) {
    require(e.code() == sluice::ErrorCode::bad_input || e.code() == sluice::ErrorCode::unsupported);
  }
}

void read_fields(const Fields& f) {
  allow_refusal([&] {
    const std::int64_t hidden = f.get_int({"hidden_size", "n_embd"}, kDimRange);
    require(hidden >= kDimRange.min && hidden <= kDimRange.max);
  });
  allow_refusal([&] {
    const auto experts = f.maybe_int({"num_experts", "num_local_experts", "n_routed_experts"}, kCountRange);
    require(!experts || (*experts >= 0 && *experts <= kCountRange.max));
  });
  allow_refusal([&] {
    const double epsilon = f.get_number({"rms_norm_eps"}, {0.0, 1.0}, 1e-6);
    require(epsilon >= 0.0 && epsilon <= 1.0);
  });
  allow_refusal([&] { f.get_strings({"layer_types"}); });
  allow_refusal([&] { f.get_ints({"mlp_only_layers"}, kCountRange); });
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    allow_refusal([&] {
      const RopeConfig rope = read_rope(f, {}, layer_type);
      require(rope.theta > 0 && rope.factor > 0 && rope.partial_rotary_factor <= 1.0);
      require(rope.type == RopeType::plain || rope.original_max_positions > 0);
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  allow_refusal([&] {
    const HfConfig config = HfConfig::parse(text, "config.json");
    allow_refusal([&] { config.quantization(); });
    read_fields(config.fields());
  });
  allow_refusal([&] {
    const Fields fields(parse_config_json(text, "g"), "g");
    for (const std::int64_t id : read_generation(fields, fields).eos_token_ids) require(id >= 0);
  });
  allow_refusal([&] {
    for (const std::string& shard : shards_of(parse_index(text, "index"))) {
      require(shard.find('/') == std::string::npos && shard != "..");
    }
  });
  return 0;
}
