#include "checkpoint/generation_config.h"

#include <algorithm>

#include "core/error.h"

namespace sluice::ckpt {
namespace {

// -1 stands for "none" in some files.
constexpr IntRange kIdOrNone{-1, kTokenIdRange.max};

std::vector<std::int64_t> token_ids(const Fields& fields, Keys keys) {
  std::vector<std::int64_t> ids = fields.get_ints(keys, kIdOrNone);
  ids.erase(std::remove(ids.begin(), ids.end(), -1), ids.end());
  return ids;
}

// bos and pad are single ids; a file may still give a list, of which the first counts.
std::optional<std::int64_t> token_id(const Fields& fields, Keys keys) {
  const std::vector<std::int64_t> ids = token_ids(fields, keys);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

void read_token_ids(const Fields& fields, GenerationConfig& out) {
  if (out.eos_token_ids.empty()) out.eos_token_ids = token_ids(fields, {"eos_token_id"});
  if (!out.bos_token_id) out.bos_token_id = token_id(fields, {"bos_token_id"});
  if (!out.pad_token_id) out.pad_token_id = token_id(fields, {"pad_token_id"});
}

void read_sampling(const Fields& fields, GenerationConfig& out) {
  out.do_sample = fields.maybe_bool({"do_sample"});
  out.temperature = fields.maybe_number({"temperature"}, {0.0, 1e4});
  out.top_k = fields.maybe_int({"top_k"}, {-1, kTokenIdRange.max});
  if (out.top_k == -1) out.top_k = 0;
  out.top_p = fields.maybe_number({"top_p"}, {1e-6, 1.0});
  out.min_p = fields.maybe_number({"min_p"}, {0.0, 1.0});
  out.repetition_penalty = fields.maybe_number({"repetition_penalty"}, {1e-6, 1e6});
  out.max_length = fields.maybe_int({"max_length"}, kPositionRange);
  out.max_new_tokens = fields.maybe_int({"max_new_tokens"}, kPositionRange);
}

}  // namespace

GenerationConfig read_generation(const std::optional<Fields>& generation, const Fields& config) {
  GenerationConfig out;
  if (generation) {
    read_token_ids(*generation, out);
    read_sampling(*generation, out);
    out.stop_strings = generation->get_strings({"stop_strings"});
    if (std::find(out.stop_strings.begin(), out.stop_strings.end(), "") != out.stop_strings.end()) {
      fail(ErrorCode::bad_input, generation->origin() + ": stop_strings: found an empty string",
           "strings of at least one character");
    }
  }
  read_token_ids(config, out);
  return out;
}

}  // namespace sluice::ckpt
