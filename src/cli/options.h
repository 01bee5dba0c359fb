// All values that flags, environment variables and config keys can set, for all commands. Plain data, filled by
// parse.cc.
//
// Defaults are written here and nowhere else; flags.cc names and documents each field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/sglang_flags.h"

namespace sluice {
class Group;
class Trace;
}  // namespace sluice
namespace sluice::app {
class RankSession;
}

namespace sluice::cli {

struct Options {
  std::string command;  // "run", "eval gsm8k", "bench moe", ...

  // Model and how it is executed.
  std::string model;
  std::string dtype = "auto";
  std::string moe_runner_backend = "auto";
  std::string recipe = "auto";
  std::string quantization;
  std::string mxfp4_precision = "default";
  bool disable_shared_experts_fusion = false;
  bool enforce_shared_experts_fusion = false;
  bool upstream_gate_alpha = false;
  std::vector<SglangUse> sglang;  // flags of SGLang's that are none of ours
  std::string isa = "auto";
  std::string scale_policy = "strict";
  std::int64_t threads = 0;
  std::int64_t context_length = 0;
  std::int64_t max_running_requests = 0;  // 0 = the command's own default
  std::int64_t max_total_tokens = 0;
  double mem_fraction_static = 0;
  std::int64_t chunked_prefill_size = 512;
  std::optional<bool> batch_invariant;  // not given = by the device
  bool row_invariant() const { return batch_invariant.value_or(!device.starts_with("cuda")); }

  // Ranks.
  std::int64_t tp = 1;
  std::int64_t ep = 1;
  std::int64_t dp = 1;
  bool enable_dp_attention = false;
  std::string moe_a2a_backend = "none";
  std::int64_t moe_dense_tp_size = 0;
  std::int64_t moe_dp_size = 1;
  std::string deepep_mode = "auto";
  bool plain_rows = false;
  double dist_timeout = 300;
  // No flags: set by main for a run over ranks; nullptr = one rank.
  Group* world = nullptr;  // all ranks
  app::RankSession* session = nullptr;

  std::string trace_file;
  Trace* trace = nullptr;  // no flags: set by traced() for --trace
  int trace_rank = 0;

  // Generation.
  std::vector<std::string> prompts;
  std::string prompt_file;
  std::int64_t max_new_tokens = -1;  // -1 = the command's own default
  double temperature = -1;           // -1 = generation_config.json, else 0
  std::int64_t top_k = -1;
  double top_p = -1;
  double min_p = -1;
  double repetition_penalty = 0;  // 0 = generation_config.json, else 1
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::int64_t seed = 0;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::string system;

  // serve.
  std::string host = "127.0.0.1";
  std::int64_t port = 30000;
  std::string api_key;
  std::string served_model_name;
  std::string weight_version = "default";
  std::string log_level = "info";
  std::string allowed_origins = "*";
  std::string sampling_defaults = "model";
  std::string schedule_policy = "fcfs";
  bool disable_radix_cache = false;
  bool enable_metrics = true;
  std::int64_t max_queued_requests = 1024;
  std::int64_t max_queued_tokens = 0;
  std::int64_t max_connections = 4096;
  std::int64_t max_body_bytes = 16 << 20;
  std::int64_t max_header_bytes = 32 << 10;
  std::int64_t max_unsent_bytes = 4 << 20;
  double request_timeout = 30;
  double keep_alive_timeout = 75;
  double write_timeout = 30;
  double drain_timeout = 30;
  double log_interval = 10;

  // eval and bench serve over HTTP.
  std::string base_url;
  std::int64_t num_prompts = 200;
  std::int64_t input_length = 256;
  std::int64_t output_length = 64;
  double length_range = 0;
  double request_rate = 0;
  std::int64_t max_concurrency = 32;

  // verify, layer.
  std::string reference;
  std::string against;
  std::int64_t layer = 0;
  std::string hidden;
  std::string out;
  std::string device = "cpu";
  bool block_scales = false;
  bool weights = false;
  bool routed_only = false;
  bool dump_stages = false;

  // quantize.
  std::string output;
  std::string format;
  std::string dialect;
  std::string calibrate;
  std::vector<std::string> include;
  std::string mx_scale = "ceil";
  std::int64_t max_shard_size = 5'000'000'000;

  // eval.
  std::string data;
  std::string shots;
  std::int64_t num_shots = 8;
  std::int64_t num_questions = 0;
  std::int64_t parallel = 32;
  double threshold = -1;

  // bench.
  std::string baseline;  // of bench moe
  std::string shape = "qwen3-30b";
  std::vector<std::string> tokens;

  std::string json;
  std::string svg;
  bool csv = false;
  bool markdown = false;
  bool quiet = false;
};

}  // namespace sluice::cli
