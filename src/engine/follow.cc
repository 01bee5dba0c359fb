#include "engine/follow.h"

#include <string>

#include "core/error.h"
#include "engine/executor.h"
#include "engine/limits.h"
#include "engine/rank_channel.h"

namespace sluice::engine {

void follow(const model::Decoder& decoder, const EngineOptions& asked, const EngineRanks& ranks) {
  const EngineOptions options = resolve(decoder, asked);
  Executor executor(decoder, executor_limits(decoder, options), ranks.leads_group());
  RankChannel channel(ranks);
  const auto group = static_cast<std::size_t>(ranks.plan.dp.index);
  while (true) {
    const StepMessage message = channel.receive();
    if (message.command == StepCommand::stop) return;
    if (message.command == StepCommand::report_load) channel.gather_all(to_bytes(executor.expert_load()));
    if (message.command != StepCommand::step) continue;
    if (std::ssize(message.groups) != ranks.plan.dp.count) {
      fail(ErrorCode::bad_input, "a step of " + std::to_string(message.groups.size()) + " groups",
           std::to_string(ranks.plan.dp.count), "are all ranks started with the same --dp?");
    }
    const StepResult result = executor.execute(message.groups[group]);
    if (channel.answers()) channel.gather(to_bytes(result));
  }
}

}  // namespace sluice::engine
