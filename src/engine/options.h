// Sizes and policies of an engine: plain data. Filled by the commands, read once by Engine.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::engine {

// In which order waiting requests are admitted; named as in SGLang. Whatever the policy, a request that was overtaken
// kMostOvertakes times goes first, so that none starves.
enum class SchedulePolicy : std::uint8_t {
  fcfs,      // first come, first served
  lpm,       // longest cached prefix first, then as they came
  priority,  // Request::priority, higher first, then as they came
};

inline constexpr std::int64_t kMostOvertakes = 64;

// Throws Error(unsupported) for SGLang's other policies, Error(usage) for anything else.
SchedulePolicy parse_schedule_policy(std::string_view name);
std::string_view schedule_policy_name(SchedulePolicy policy);

struct EngineOptions {
  std::int64_t max_batch_tokens = 512;   // tokens of one step: decodes plus prompt chunks; 0 = context_length
  std::int64_t max_sequences = 16;       // requests in work at the same time; others wait
  std::int64_t context_length = 0;       // longest prompt plus answer; 0 = the decoder's max_positions
  std::int64_t kv_tokens = 0;            // capacity of the KV cache; 0 = context_length
  std::int64_t max_logit_rows = 64;      // rows of logits of one step, at least max_sequences
  std::int64_t max_queued_requests = 0;  // waiting requests beyond which try_submit refuses; 0 = no limit
  std::int64_t max_queued_tokens = 0;    // their prompt tokens, likewise
  bool prefix_cache = true;              // keep blocks of finished requests for prompts that begin alike
  SchedulePolicy policy = SchedulePolicy::fcfs;
};

}  // namespace sluice::engine
