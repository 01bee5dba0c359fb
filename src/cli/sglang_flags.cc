#include "cli/sglang_flags.h"

#include <algorithm>
#include <array>

#include "checkpoint/adapter.h"
#include "core/error.h"
#include "core/json.h"
#include "core/words.h"

namespace sluice::cli {
namespace {

using Rule = SglangRule;

constexpr std::string_view kFixed = "the ranks of a run are those that it was started with";
constexpr std::string_view kOverlap = "nothing to do: shared experts are what is computed while rows travel";
constexpr std::string_view kReduce = "nothing to do: a reduction is a step of its own";
constexpr std::string_view kNoA2a = "nothing to do: there is one all-to-all, without anything to tune";
constexpr std::string_view kNoEplb = "nothing to do: experts are not moved between ranks";
constexpr std::string_view kNoKt = "experts are not split between CPU and GPU yet";
constexpr std::string_view kNoLora = "LoRA is not applied; merge the adapter into its base model";
constexpr std::string_view kAhead = "nothing to do: kernels are built ahead of time, without tactics to try";

// The order is that of moe-runner-spec 7.1, then the flags of the two seeds and of common launch lines.
constexpr std::array kFlags = {
    SglangFlag{"--speculative-moe-runner-backend", "NAME", "runner of the draft model", Rule::never, "",
               "there is no speculative decoding"},
    SglangFlag{"--speculative-moe-a2a-backend", "NAME", "all-to-all of the draft model", Rule::never, "",
               "there is no speculative decoding"},
    SglangFlag{"--pp-size,--pipeline-parallel-size", "N", "pipeline stages", Rule::only, "1",
               "there are no pipeline stages"},
    SglangFlag{"--enable-dp-lm-head", "", "data-parallel output projection", Rule::any, "",
               "always so: logits are computed by the ranks of the group that samples them"},
    SglangFlag{"--deepep-config", "JSON", "tuning of DeepEP", Rule::any, "", kNoA2a},
    SglangFlag{"--deepep-dispatcher-output-dtype", "TYPE", "what DeepEP sends", Rule::only, "auto bf16 fp8 nvfp4",
               kNoA2a},
    SglangFlag{"--deepep-v2-mode", "MODE", "buffers of DeepEP 2", Rule::only, "direct hybrid", kNoA2a},
    SglangFlag{"--fuseep-mode", "N", "Ascend kernels", Rule::any, "", kNoA2a},
    SglangFlag{"--enable-w4a4-mxfp4-megamoe", "", "MXFP4 x MXFP4 in one kernel over ranks", Rule::never, "",
               "there is no such recipe"},
    SglangFlag{"--enable-fused-moe-sum-all-reduce", "", "sum over slots inside the all-reduce", Rule::any, "",
               "nothing to do: slots are summed in their order, then ranks in theirs"},
    SglangFlag{"--enable-two-batch-overlap", "", "overlap two half batches", Rule::any, "", kOverlap},
    SglangFlag{"--tbo-token-distribution-threshold", "X", "when half batches are balanced", Rule::any, "", kOverlap},
    SglangFlag{"--enable-single-batch-overlap", "", "overlap combine with shared experts", Rule::any, "", kOverlap},
    SglangFlag{"--disable-flashinfer-autotune", "", "skip the search for tactics", Rule::any, "", kAhead},
    SglangFlag{"--flashinfer-autotune-skip-ops", "NAMES", "operators not to tune", Rule::any, "", kAhead},
    SglangFlag{"--enable-shared-experts-attn-tp", "", "shared experts split like attention", Rule::any, "",
               "nothing to do: shared experts are cut, or whole, as tokens travel"},
    SglangFlag{"--dwdp-size", "N", "ranks that share weights", Rule::only, "1", "every rank holds its own weights"},
    SglangFlag{"--enable-waterfill", "", "balance shared experts over ranks", Rule::never, "",
               "shared experts stay on their ranks"},
    SglangFlag{"--flashinfer-allreduce-fusion-backend", "NAME", "all-reduce inside the norm", Rule::any, "", kReduce},
    SglangFlag{"--enable-flashinfer-allreduce-fusion", "", "all-reduce inside the norm", Rule::any, "", kReduce},
    SglangFlag{"--ep-num-redundant-experts", "N", "copies of busy experts", Rule::only, "0",
               "every expert has one copy"},
    SglangFlag{"--ep-dispatch-algorithm", "NAME", "which copy serves a token", Rule::only, "static dynamic", kNoEplb},
    SglangFlag{"--init-expert-location", "FILE", "where experts start", Rule::only, "trivial",
               "experts are placed in their order"},
    SglangFlag{"--enable-eplb", "", "move experts by load", Rule::never, "", "experts are not moved between ranks"},
    SglangFlag{"--eplb-algorithm", "NAME", "how experts are placed", Rule::any, "", kNoEplb},
    SglangFlag{"--eplb-rebalance-num-iterations", "N", "how often", Rule::any, "", kNoEplb},
    SglangFlag{"--eplb-rebalance-layers-per-chunk", "N", "how much at a time", Rule::any, "", kNoEplb},
    SglangFlag{"--eplb-min-rebalancing-utilization-threshold", "X", "when not", Rule::any, "", kNoEplb},
    SglangFlag{
        "--expert-distribution-recorder-mode", "MODE", "count tokens of experts", Rule::never, "",
        "tokens of experts are always counted: /expert_load, /metrics; `sluice layer` writes the ids of one layer"},
    SglangFlag{"--expert-distribution-recorder-buffer-size", "N", "length of the recording", Rule::any, "", kNoEplb},
    SglangFlag{"--expert-balancedness-report-mode", "MODE", "report the balance of experts", Rule::only, "off",
               "/expert_load and /metrics show it"},
    SglangFlag{"--elastic-ep-backend", "NAME", "ranks that come and go", Rule::only, "none", kFixed},
    SglangFlag{"--enable-elastic-expert-backup", "", "spare copies of experts", Rule::never, "", kFixed},
    SglangFlag{"--mooncake-ib-device", "NAMES", "network cards", Rule::any, "", kNoA2a},
    SglangFlag{"--max-ep-size", "N", "most ranks of elastic parallelism", Rule::only, "1", kFixed},
    SglangFlag{"--elastic-ep-join-mode", "MODE", "how a rank joins", Rule::never, "", kFixed},
    SglangFlag{"--elastic-ep-scale-timeout", "SECONDS", "wait for ranks", Rule::any, "", kNoEplb},
    SglangFlag{"--elastic-ep-join-rank-offset", "N", "rank of the newcomer", Rule::never, "", kFixed},
    SglangFlag{"--elastic-ep-initial-size", "N", "ranks at the start", Rule::only, "1", kFixed},
    SglangFlag{"--enable-return-routed-experts", "", "return the ids of experts", Rule::never, "",
               "answers carry no expert ids; `sluice layer` writes those of one layer"},
    SglangFlag{"--kt-weight-path", "FOLDER", "weights of CPU experts", Rule::never, "", kNoKt},
    SglangFlag{"--kt-method", "NAME", "format of CPU experts", Rule::never, "", kNoKt},
    SglangFlag{"--kt-cpuinfer", "N", "threads of CPU experts", Rule::never, "", "use --threads"},
    SglangFlag{"--kt-threadpool-count", "N", "thread pools of CPU experts", Rule::never, "", "use --threads"},
    SglangFlag{"--kt-num-gpu-experts", "N", "experts kept on the GPU", Rule::never, "", kNoKt},
    SglangFlag{"--kt-max-deferred-experts-per-token", "N", "experts computed a layer late", Rule::never, "", kNoKt},
    SglangFlag{"--enable-lora", "", "serve LoRA adapters", Rule::never, "", kNoLora},
    SglangFlag{"--lora-paths", "PATHS...", "LoRA adapters to load", Rule::never, "", kNoLora},
    SglangFlag{"--lora-target-modules", "NAMES...", "modules that LoRA adapters change", Rule::never, "", kNoLora},
    SglangFlag{"--max-lora-rank", "N", "largest rank of LoRA adapters", Rule::never, "", kNoLora},
    SglangFlag{"--max-loras-per-batch", "N", "LoRA adapters in a batch", Rule::never, "", kNoLora},
    SglangFlag{"--max-loaded-loras", "N", "LoRA adapters in memory", Rule::never, "", kNoLora},
    SglangFlag{"--lora-backend", "NAME", "kernels of LoRA", Rule::never, "", kNoLora},
    SglangFlag{"--fp8-gemm-backend", "NAME", "kernels of dense FP8 layers", Rule::any, "",
               "mapped to the dense kernels of this machine, which are chosen by recipe"},
    SglangFlag{"--fp4-gemm-backend", "NAME", "kernels of dense FP4 layers", Rule::any, "",
               "mapped to the dense kernels of this machine, which are chosen by recipe"},
    SglangFlag{"--attention-backend", "NAME", "kernels of attention", Rule::any, "",
               "mapped to the attention of this machine"},
    SglangFlag{"--model-loader-extra-config", "JSON", "options of the loader", Rule::any, "",
               "nothing to do: weights are mapped and read ahead by all threads"},
    SglangFlag{"--disable-cuda-graph", "", "run without captured graphs", Rule::any, "",
               "nothing to do: no graph is captured"},
    SglangFlag{"--cuda-graph-max-bs", "N", "largest captured batch", Rule::any, "",
               "nothing to do: no graph is captured"},
    SglangFlag{"--trust-remote-code", "", "run code of the checkpoint", Rule::any, "",
               "nothing to do: code of a checkpoint is never run"},
    SglangFlag{"--load-format", "NAME", "format of the shards", Rule::only, "auto safetensors",
               "checkpoints are safetensors"},
    SglangFlag{"--kv-cache-dtype", "TYPE", "type of the KV cache", Rule::only, "auto bf16 bfloat16",
               "the KV cache has the compute type"},
};

std::string spoken(const SglangUse& use) {
  const std::string name(use.flag->names.substr(0, use.flag->names.find(',')));
  return use.value.empty() ? name : name + " " + use.value;
}

// " (q_proj, v_proj)" for adapters (PATH or NAME=PATH, separated by spaces) whose files are here and say it.
std::string adapted_modules(const SglangUse& use) {
  std::string text;
  if (use.flag->names != "--lora-paths") return text;
  std::string_view rest = use.value;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    for (const std::string& name : ckpt::adapter_modules(std::string(word.substr(word.find('=') + 1)))) {
      text += (text.empty() ? " (" : ", ") + name;
    }
  }
  return text.empty() ? text : text + ")";
}

// Nothing reads the options of the loader; what is no JSON is a mistake all the same.
void check_json(const SglangUse& use) {
  if (use.flag->names != "--model-loader-extra-config") return;
  try {
    if (Json::parse(use.value, "--model-loader-extra-config").is_object()) return;
  } catch (const Error& e) {
    fail(ErrorCode::usage, e.what(), "a JSON object");
  }
  fail(ErrorCode::usage, spoken(use), "a JSON object");
}

}  // namespace

std::span<const SglangFlag> sglang_flags() { return kFlags; }

std::vector<std::string> sglang_notes(const std::vector<SglangUse>& uses) {
  std::vector<std::string> notes;
  for (const SglangUse& use : uses) {
    const SglangFlag& f = *use.flag;
    check_json(use);
    const std::string what = spoken(use) + adapted_modules(use) + ": " + std::string(f.outcome);
    if (f.rule == Rule::never) fail(ErrorCode::unsupported, what, "", "leave the flag out");
    if (f.rule == Rule::only && !has_word(f.accepted, use.value)) {
      std::string accepted(f.accepted);
      for (std::size_t at = accepted.find(' '); at != std::string::npos; at = accepted.find(' ', at + 2)) {
        accepted.replace(at, 1, ", ");
      }
      fail(ErrorCode::unsupported, what, accepted);
    }
    notes.push_back(what);
  }
  return notes;
}

}  // namespace sluice::cli
