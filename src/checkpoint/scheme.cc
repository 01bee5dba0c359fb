#include "checkpoint/scheme.h"

#include "checkpoint/adapter.h"
#include "core/error.h"

namespace sluice::ckpt {

const Scheme& find_scheme(const std::vector<Scheme>& schemes, const Checkpoint& checkpoint) {
  refuse_adapter(checkpoint.folder());
  refuse_adapter_tensors(checkpoint.folder(), checkpoint.tensors());
  std::string reasons;
  for (const Scheme& scheme : schemes) {
    const std::string reason = scheme.refusal(checkpoint);
    if (reason.empty()) return scheme;
    reasons += (reasons.empty() ? "" : "; ") + std::string(scheme.name) + ": " + reason;
  }
  fail(ErrorCode::unsupported, checkpoint.folder() + ": no scheme reads these weights", "one of: " + reasons);
}

}  // namespace sluice::ckpt
