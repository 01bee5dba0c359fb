#include "cli/other_names.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace sluice::cli {
namespace {

struct OtherName {
  std::string_view name;
  std::string_view advice;
};

constexpr std::string_view kLeaveOut = "leave it out";

constexpr std::array kNames = {
    // vLLM
    OtherName{"max-model-len", "it is --context-length here"},
    OtherName{"max-num-seqs", "it is --max-running-requests here"},
    OtherName{"max-num-batched-tokens", "it is --chunked-prefill-size here"},
    OtherName{"gpu-memory-utilization", "it is --mem-fraction-static here"},
    OtherName{"kv-cache-memory-bytes", "say --max-total-tokens, in tokens"},
    OtherName{"num-gpu-blocks-override", "say --max-total-tokens, in tokens"},
    OtherName{"scheduling-policy", "it is --schedule-policy here"},
    OtherName{"enable-expert-parallel", "say --ep N with the N of --tp"},
    OtherName{"enable-prefix-caching", "leave it out: always on, unless --disable-radix-cache"},
    OtherName{"no-enable-prefix-caching", "it is --disable-radix-cache here"},
    OtherName{"enable-chunked-prefill", "leave it out: always on"},
    OtherName{"no-enable-chunked-prefill", "say --chunked-prefill-size 0"},
    OtherName{"block-size", kLeaveOut},
    OtherName{"swap-space", "leave it out: what gives way is computed again"},
    OtherName{"enforce-eager", "leave it out: nothing is compiled or captured"},
    OtherName{"compilation-config", "leave it out: nothing is compiled or captured"},
    OtherName{"max-seq-len-to-capture", "leave it out: nothing is compiled or captured"},
    OtherName{"async-scheduling", kLeaveOut},
    OtherName{"distributed-executor-backend", "leave it out: ranks are started by --tp, mpirun or srun"},
    OtherName{"disable-log-stats", "say --log-interval 0"},
    OtherName{"disable-log-requests", "leave it out: requests are not logged"},
    OtherName{"enable-log-requests", "leave it out: requests are counted in /metrics, not logged"},
    OtherName{"max-log-len", "leave it out: requests are not logged"},
    OtherName{"uvicorn-log-level", "it is --log-level here"},
    OtherName{"disable-fastapi-docs", kLeaveOut},
    OtherName{"enable-server-load-tracking", "leave it out: /metrics has the load"},
    OtherName{"enable-prompt-tokens-details", "leave it out: always on"},
    OtherName{"root-path", "let the proxy in front take the prefix away"},
    OtherName{"allow-credentials", "leave it out; --allowed-origins names whose pages may read answers"},
    OtherName{"allowed-methods", "leave it out; --allowed-origins names whose pages may read answers"},
    OtherName{"allowed-headers", "leave it out; --allowed-origins names whose pages may read answers"},
    OtherName{"generation-config", "say --sampling-defaults model or openai"},
    OtherName{"override-generation-config", "change generation_config.json of the model"},
    OtherName{"hf-overrides", "change config.json of the model"},
    OtherName{"config-format", kLeaveOut},
    OtherName{"tokenizer", "the tokenizer is that of the model's folder"},
    OtherName{"code-revision", "models are folders; nothing is downloaded"},
    OtherName{"tokenizer-revision", "models are folders; nothing is downloaded"},
    OtherName{"chat-template-content-format", "leave it out: parts of text are joined"},
    OtherName{"enable-auto-tool-choice", "requests with tools are refused: no family has a parser yet"},
    OtherName{"response-role", "leave it out: answers are those of the assistant"},
    OtherName{"guided-decoding-backend", "requests for guided output are refused"},
    OtherName{"max-logprobs", "leave it out: a request may have 20"},
    OtherName{"limit-mm-per-prompt", "leave it out: there is text only"},
    OtherName{"speculative-config", "there is no speculative decoding"},
    OtherName{"kv-transfer-config", "the same ranks compute prompts and answers"},
    OtherName{"safetensors-load-strategy", "leave it out: weights are mapped and read ahead by all threads"},
    OtherName{"return-tokens-as-token-ids", "ask /generate, which returns ids"},
    OtherName{"logits-processors", "code in requests is never run"},
    // llama.cpp
    OtherName{"ctx-size", "it is --context-length here"},
    OtherName{"alias", "it is --served-model-name here"},
    OtherName{"batch-size", "it is --chunked-prefill-size here"},
    OtherName{"ubatch-size", "it is --chunked-prefill-size here"},
    OtherName{"parallel", "it is --max-running-requests here"},
    OtherName{"np", "it is --max-running-requests here"},
    OtherName{"cont-batching", "leave it out: always on"},
    OtherName{"flash-attn", kLeaveOut},
    OtherName{"fa", kLeaveOut},
    OtherName{"n-gpu-layers", "leave it out: whole models run on the CPU"},
    OtherName{"ngl", "leave it out: whole models run on the CPU"},
    OtherName{"mlock", kLeaveOut},
    OtherName{"no-mmap", kLeaveOut},
    OtherName{"jinja", "leave it out: always on"},
    OtherName{"metrics", "it is --enable-metrics here, the default"},
    OtherName{"slots", "leave it out: /metrics and /server_info tell what runs"},
    OtherName{"props", "leave it out: /server_info tells what runs"},
    OtherName{"no-webui", "leave it out: there is none"},
    OtherName{"hf-repo", "models are folders; nothing is downloaded"},
    OtherName{"n-predict", "requests say max_tokens"},
    OtherName{"temp", "requests say temperature"},
};

}  // namespace

std::string name_here(const std::string& flag) {
  std::string_view name(flag);
  name = name.substr(0, name.find('='));
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  const auto* const found =
      std::find_if(kNames.begin(), kNames.end(), [&](const OtherName& other) { return other.name == name; });
  return found == kNames.end() ? "" : std::string(found->advice);
}

}  // namespace sluice::cli
