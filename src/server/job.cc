#include "server/job.h"

#include <numeric>

namespace sluice::server {

std::int64_t Job::prompt_tokens() const {
  std::int64_t total = 0;
  for (const Prompt& prompt : ask.prompts) total += std::ssize(prompt.ids);
  return total;
}

std::int64_t Job::completion_tokens() const {
  return std::accumulate(choices.begin(), choices.end(), std::int64_t{0},
                         [](std::int64_t sum, const Choice& c) { return sum + c.tokens; });
}

std::int64_t Job::cached_tokens() const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < choices.size(); i += static_cast<std::size_t>(ask.n)) total += choices[i].cached_tokens;
  return total;
}

std::int64_t Job::thought_tokens() const {
  return std::accumulate(choices.begin(), choices.end(), std::int64_t{0},
                         [](std::int64_t sum, const Choice& c) { return sum + c.thought_tokens; });
}

}  // namespace sluice::server
