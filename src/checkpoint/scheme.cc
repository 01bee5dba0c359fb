#include "checkpoint/scheme.h"

#include <vector>

#include "checkpoint/index.h"
#include "checkpoint/messages.h"
#include "core/error.h"

namespace sluice::ckpt {

namespace {

constexpr std::string_view kLoraMarks[] = {".lora_A.", ".lora_B.", ".lora_embedding_A", ".lora_magnitude_vector"};

// An adapter changes what its modules compute; leaving it out would be a wrong answer without a word.
void refuse_adapters(const Checkpoint& checkpoint) {
  std::vector<std::string> modules;
  for (const TensorEntry* tensor : checkpoint.tensors()) {
    for (const std::string_view mark : kLoraMarks) {
      const std::size_t at = tensor->name.find(mark);
      if (at == std::string::npos) continue;
      std::string module = tensor->name.substr(0, at);
      if (modules.empty() || modules.back() != module) modules.push_back(std::move(module));
    }
  }
  const std::string config = join_path(checkpoint.folder(), "adapter_config.json");
  if (modules.empty() && file_exists(config)) {
    modules = Fields(parse_config_file(config), config).get_strings({"target_modules", "target_parameters"});
    if (modules.empty()) modules = {"all"};
  }
  if (modules.empty()) return;
  fail(ErrorCode::unsupported, checkpoint.folder() + ": holds a LoRA adapter for " + first_few(modules),
       "a checkpoint without adapters", "merge the adapter into the weights (peft: merge_and_unload)");
}

}  // namespace

const Scheme& find_scheme(const std::vector<Scheme>& schemes, const Checkpoint& checkpoint) {
  refuse_adapters(checkpoint);
  std::string reasons;
  for (const Scheme& scheme : schemes) {
    const std::string reason = scheme.refusal(checkpoint);
    if (reason.empty()) return scheme;
    reasons += (reasons.empty() ? "" : "; ") + std::string(scheme.name) + ": " + reason;
  }
  fail(ErrorCode::unsupported, checkpoint.folder() + ": no scheme reads these weights", "one of: " + reasons);
}

}  // namespace sluice::ckpt
