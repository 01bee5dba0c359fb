// What a launch line of SGLang's server has beside the flags of the model.
#include <array>

#include "cli/sglang_flags.h"

namespace sluice::cli {
namespace {

using Rule = SglangRule;
using Text = std::string_view;

constexpr SglangFlag taken(Text names, Text value, Text meaning, Text outcome) {
  return {names, value, meaning, Rule::any, "", outcome, SglangWhere::serve};
}
constexpr SglangFlag only(Text names, Text value, Text meaning, Text accepted, Text outcome) {
  return {names, value, meaning, Rule::only, accepted, outcome, SglangWhere::serve};
}
constexpr SglangFlag never(Text names, Text value, Text meaning, Text why) {
  return {names, value, meaning, Rule::never, "", why, SglangWhere::serve};
}

constexpr Text kMachines = "ranks on several machines are started with mpirun or srun, which name them";
constexpr Text kNoSpeculation = "there is no speculative decoding";
constexpr Text kNoGraph = "nothing to do: no graph is captured";
constexpr Text kNoKernels = "nothing to do: this machine's own kernels do it";
constexpr Text kAhead = "nothing to do: kernels are built ahead of time";
constexpr Text kByTokens = "thoughts are told apart by the tokenizer's control tokens, whatever the name";

constexpr std::array kFlags = {
    taken("--tokenizer-mode", "MODE", "which tokenizer", "mapped to the one there is"),
    taken("--reasoning-parser", "NAME", "how thoughts are told apart", kByTokens),
    never("--tool-call-parser", "NAME", "how tool calls are read",
          "requests with tools are refused: no family has a parser yet"),
    only("--grammar-backend", "NAME", "guided output", "none", "requests for guided output are refused"),
    taken("--skip-server-warmup", "", "be ready without a first token",
          "one token is generated before /ready, which takes a moment"),
    never("--skip-tokenizer-init", "", "token ids only", "requests may have ids and text alike"),
    taken("--enable-cache-report", "", "report cached tokens", "always on"),
    only("--stream-interval", "N", "tokens between parts of a stream", "1", "every step is a part of its own"),
    taken("--watchdog-timeout", "SECONDS", "end a server that hangs", "nothing to do: use /health_generate"),
    taken("--dist-init-addr,--nccl-init-addr", "ADDRESS", "where ranks meet",
          "nothing to do: mpirun tells the ranks where they meet"),
    only("--nnodes", "N", "machines", "1", kMachines),
    only("--node-rank", "N", "which machine", "0", kMachines),
    taken("--log-requests", "", "log every request", "mapped to /metrics"),
    taken("--show-time-cost", "", "log times", "mapped to /metrics"),
    taken("--max-prefill-tokens", "N", "most prompt tokens of a step", "mapped to --chunked-prefill-size"),
    taken("--enable-mixed-chunk", "", "prompts and answers in one step", "always on"),
    taken("--schedule-conservativeness", "X", "how early requests are admitted",
          "requests are admitted when their prompt fits"),
    taken("--page-size", "N", "tokens of a KV block", "blocks have the size of this machine"),
    taken("--disable-overlap-schedule", "", "schedule between steps", "always so"),
    taken("--sampling-backend", "NAME", "kernels of sampling", "mapped to those of this machine"),
    taken("--enable-torch-compile", "", "compile the model", kAhead),
    taken("--disable-cuda-graph-padding", "", "graphs of exact sizes", kNoGraph),
    never("--speculative-algorithm", "NAME", "speculative decoding", kNoSpeculation),
    never("--speculative-draft-model-path", "MODEL", "the draft model", kNoSpeculation),
    never("--is-embedding", "", "embeddings", "answers are text"),
    only("--disaggregation-mode", "MODE", "prompts and answers on different servers", "null",
         "the same ranks compute prompts and answers"),
    taken("--enable-deterministic-inference", "", "equal answers in any batch",
          "always so on the CPU, unless --no-batch-invariant"),
    only("--device", "NAME", "where the model runs", "cpu auto", "whole models run on the CPU"),
    never("--tokenizer-path", "FOLDER", "a tokenizer from elsewhere", "the tokenizer is that of the model's folder"),
    taken("--tokenizer-worker-num", "N", "processes that cut text into tokens", "nothing to do: two threads do it"),
    never("--revision", "NAME", "which version to download", "models are folders; nothing is downloaded"),
    taken("--download-dir", "FOLDER", "where downloads go", "nothing to do: nothing is downloaded"),
    only("--model-impl", "NAME", "whose code of the model", "auto sglang", "there is one of each family"),
    never("--json-model-override-args", "JSON", "changes of config.json", "change config.json itself"),
    never("--chat-template", "FILE", "another template",
          "the model's own template is used: chat_template.jinja in its folder"),
    never("--completion-template", "NAME", "a template of completions", "the prompt is used as it is"),
    never("--preferred-sampling-params", "JSON", "defaults of sampling", "change generation_config.json of the model"),
    never("--quantization-param-path", "FILE", "scales of the KV cache", "the KV cache has the compute type"),
    never("--enable-multimodal", "", "images and sound", "there is text only"),
    never("--enable-priority-scheduling", "", "requests of high priority first", "say --schedule-policy priority"),
    never("--schedule-low-priority-values-first", "", "low numbers are urgent", "high numbers are"),
    taken("--priority-scheduling-preemption-threshold", "N", "when running requests give way",
          "they give way when the KV cache is full"),
    taken("--swa-full-tokens-ratio", "X", "KV of sliding windows",
          "nothing to do: blocks of all layers are counted together"),
    taken("--disable-hybrid-swa-memory", "", "one size of KV for all layers",
          "nothing to do: blocks of all layers are counted together"),
    only("--cpu-offload-gb", "N", "weights in host memory", "0", "there is one memory"),
    never("--enable-hierarchical-cache", "", "prefixes on other devices", "prefixes are kept in the KV cache"),
    taken("--disable-chunked-prefix-cache", "", "prefixes of latent attention", "nothing to do: there is one form"),
    never("--enable-memory-saver", "", "release memory while idle", "memory is kept"),
    never("--delete-ckpt-after-loading", "", "delete the model's files", "files of a model are never changed"),
    never("--stream-output", "", "parts of /generate without what came before",
          "each part has the whole text so far; those of /v1/completions have what is new"),
    taken("--num-continuous-decode-steps", "N", "steps before the schedule is looked at",
          "nothing to do: it is looked at in every step"),
    taken("--scheduler-recv-interval", "N", "steps between looks at the queue",
          "nothing to do: it is looked at in every step"),
    never("--allow-auto-truncate", "", "cut prompts that are too long", "they are refused, with the numbers"),
    never("--enable-custom-logit-processor", "", "code in requests", "code in requests is never run"),
    never("--enable-return-hidden-states", "", "return hidden states", "answers have tokens and log-probabilities"),
    never("--tool-server", "NAMES", "tools run by the server",
          "requests with tools are refused: no family has a parser yet"),
    taken("--constrained-json-whitespace-pattern", "TEXT", "blanks in guided output",
          "nothing to do: requests for guided output are refused"),
    taken("--disable-outlines-disk-cache", "", "cache of guided output",
          "nothing to do: requests for guided output are refused"),
    taken("--file-storage-path", "FOLDER", "where uploads go", "nothing to do: there are no uploads"),
    never("--admin-api-key", "KEY", "a key of its own for what changes the server",
          "--api-key is asked for everywhere but at /health"),
    never("--ssl-keyfile", "FILE", "serve HTTPS", "put a proxy with TLS in front"),
    never("--ssl-certfile", "FILE", "serve HTTPS", "put a proxy with TLS in front"),
    never("--fastapi-root-path", "PATH", "path behind a proxy", "let the proxy take the prefix away"),
    taken("--log-level-http", "NAME", "log of the HTTP server", "mapped to --log-level"),
    taken("--log-requests-level", "N", "how much of a request to log", "mapped to /metrics"),
    taken("--crash-dump-folder", "FOLDER", "requests before a crash", "nothing to do: requests are not kept"),
    taken("--enable-metrics-for-all-schedulers", "", "counters of all dp groups", "always so: /metrics sums over them"),
    never("--bucket-time-to-first-token", "X...", "bounds of a histogram", "bounds of histograms are fixed"),
    never("--bucket-inter-token-latency", "X...", "bounds of a histogram", "bounds of histograms are fixed"),
    never("--bucket-e2e-request-latency", "X...", "bounds of a histogram", "bounds of histograms are fixed"),
    taken("--collect-tokens-histogram", "", "count lengths", "always on"),
    taken("--enable-request-time-stats-logging", "", "log times of requests", "mapped to /metrics"),
    never("--enable-trace", "", "send traces", "there is /metrics"),
    never("--otlp-traces-endpoint", "ADDRESS", "where traces go", "there is /metrics"),
    never("--kv-events-config", "JSON", "tell about the KV cache", "there is /metrics"),
    taken("--prefill-attention-backend", "NAME", "attention of prompts", "mapped to the attention of this machine"),
    taken("--decode-attention-backend", "NAME", "attention of answers", "mapped to the attention of this machine"),
    taken("--triton-attention-num-kv-splits", "N", "splits of attention", kNoKernels),
    taken("--triton-attention-reduce-in-fp32", "", "sums of attention", "always so"),
    taken("--flashinfer-mla-disable-ragged", "", "a kernel of latent attention", kNoKernels),
    taken("--torch-compile-max-bs", "N", "largest compiled batch", kAhead),
    never("--torchao-config", "NAME", "quantise while loading", "quantise the model first: sluice quantize"),
    taken("--enable-nan-detection", "", "look for NaN logits", "always on"),
    taken("--cuda-graph-bs", "N...", "batches to capture", kNoGraph),
    taken("--enable-profile-cuda-graph", "", "measure captures", kNoGraph),
    taken("--disable-custom-all-reduce", "", "kernels of reductions", kNoKernels),
    taken("--enable-mscclpp", "", "kernels of reductions", kNoKernels),
    taken("--enable-nccl-nvls", "", "reductions in the switch", kNoKernels),
    taken("--enable-symm-mem", "", "memory of reductions", kNoKernels),
    taken("--enable-p2p-check", "", "look whether GPUs see each other", kNoKernels),
    taken("--nccl-port", "N", "where ranks meet", "nothing to do: mpirun tells the ranks where they meet"),
    taken("--base-gpu-id", "N", "the first GPU", "nothing to do: whole models run on the CPU"),
    taken("--gpu-id-step", "N", "every which GPU", "nothing to do: whole models run on the CPU"),
    taken("--numa-node", "N...", "where ranks run", "nothing to do: mpirun places the ranks"),
    taken("--load-balance-method", "NAME", "which dp group gets a request",
          "nothing to do: the one that is through with it soonest does"),
    taken("--sleep-on-idle", "", "no busy waiting", "always so"),
    taken("--warmups", "NAMES", "requests before the first", "nothing to do: nothing is compiled"),
    never("--speculative-num-steps", "N", "speculative decoding", kNoSpeculation),
    never("--speculative-eagle-topk", "N", "speculative decoding", kNoSpeculation),
    never("--speculative-num-draft-tokens", "N", "speculative decoding", kNoSpeculation),
};

}  // namespace

std::span<const SglangFlag> sglang_serve_flags() { return kFlags; }

}  // namespace sluice::cli
