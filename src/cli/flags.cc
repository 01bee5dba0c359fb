#include "cli/flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

#include "cli/flags_ranks.h"
#include "cli/flags_serve.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

constexpr std::int64_t kMostRequests = 1 << 16;
constexpr std::int64_t kMostBatchTokens = 1 << 22;
constexpr std::int64_t kMostKvTokens = std::int64_t{1} << 36;

constexpr std::string_view kModelCommands = "run chat serve verify layer eval.gsm8k";
constexpr std::string_view kOpenCommands = "run chat serve verify layer check explain quantize";
constexpr std::string_view kEngineCommands = "run chat serve verify eval.gsm8k";
constexpr std::string_view kRecipeCommands = "run chat serve verify layer eval.gsm8k explain";

void add_model_flags(Options& o, std::vector<Flag>& t) {
  t.push_back({"model,--model,--model-path", "MODEL", kOpenCommands,
               "Folder of a Hugging Face checkpoint: config.json, tokenizer.json, *.safetensors", &o.model, true});
  t.push_back({"model,--model,--model-path", "MODEL", "eval.gsm8k",
               "Folder of a checkpoint; with --base-url the name of the model there, by default the first", &o.model});
  t.push_back({"--dtype", "TYPE", kModelCommands,
               "auto, bfloat16 or float32; float32 computes everything in float32 on the reference runner", &o.dtype});
  t.push_back({"--moe-runner-backend", "NAME", kRecipeCommands,
               "Who computes the experts: auto, cpu, reference, reference/LAYOUT, or a name of SGLang's, which stands "
               "for a recipe",
               &o.moe_runner_backend});
  t.push_back({"--recipe", "NAME", "run chat serve verify layer eval.gsm8k explain bench.moe",
               "What the experts are computed in: auto (as stored), f32, bf16, fp8-tensor, fp8-block, nvfp4-w4a16, "
               "nvfp4-w4a4/cutedsl, nvfp4-w4a4/cutlass, mxfp4-w4a16 or mxfp4-w4a8",
               &o.recipe});
  t.push_back({"--quantization", "NAME", kRecipeCommands,
               "SGLang's name of the format that the checkpoint has; refused when it has another", &o.quantization});
  t.push_back({"--flashinfer-mxfp4-moe-precision", "NAME", kRecipeCommands,
               "Input of --moe-runner-backend flashinfer_mxfp4: default (MXFP8), bf16 or fp8", &o.mxfp4_precision});
  t.push_back({"--disable-shared-experts-fusion", "", kModelCommands,
               "Keep shared experts apart from the routed ones, the default here", &o.disable_shared_experts_fusion});
  t.push_back({"--enforce-shared-experts-fusion", "", kModelCommands,
               "Compute shared experts as further routed experts of weight 1; refused when they differ in width, "
               "activation, clamp, format or recipe",
               &o.enforce_shared_experts_fusion});
  t.push_back({"--upstream-gate-alpha", "", kModelCommands,
               "nvfp4-w4a4: the gate's tensor scale serves up too, as in FlashInfer's CuteDSL layer",
               &o.upstream_gate_alpha});
  t.push_back({"--scale-policy", "LIST", "run chat serve verify layer eval.gsm8k check quantize",
               "What to do with scales that cannot be right: strict (refuse), or some of fill-missing, fill-invalid, "
               "clamp-denormal, weight-only",
               &o.scale_policy});
  t.push_back({"--isa", "NAME", "run chat serve verify layer eval.gsm8k bench.moe explain quantize",
               "Highest instruction set to use: auto, scalar, avx2, avx512 or avx512_bf16", &o.isa});
  t.push_back({"-t,--threads", "N", "run chat serve verify layer eval.gsm8k bench.moe quantize",
               "Threads; 0 = one for each processor of this process", Count{&o.threads, 0, 1024}});
}

void add_engine_flags(Options& o, std::vector<Flag>& t) {
  t.push_back({"-c,--context-length", "N", kEngineCommands, "Longest prompt plus answer, in tokens; 0 = the model's",
               Count{&o.context_length}});
  t.push_back({"--max-running-requests", "N", kEngineCommands,
               "Requests in work at the same time; 0 = 16, for serve 64, for eval --parallel",
               Count{&o.max_running_requests, 0, kMostRequests}});
  t.push_back({"--max-total-tokens", "N", kEngineCommands,
               "Capacity of the KV cache in tokens; 0 = by --mem-fraction-static",
               Count{&o.max_total_tokens, 0, kMostKvTokens}});
  t.push_back(
      {"--mem-fraction-static", "X", kModelCommands,
       "Most of the free memory that the KV cache may take, 0 to 1, within what its requests can need; 0 = half "
       "of it, up to 8 GiB or one context",
       Real{&o.mem_fraction_static, 0, 1}});
  t.push_back({"--disable-radix-cache", "", kModelCommands,
               "Compute every prompt whole, without the KV blocks of earlier ones that begin alike",
               &o.disable_radix_cache});
  t.push_back({"--schedule-policy", "NAME", kEngineCommands,
               "Which waiting request is next: fcfs, lpm (longest cached prefix) or priority", &o.schedule_policy});
  t.push_back({"--chunked-prefill-size", "N", kEngineCommands, "Most tokens of one step; 0 or -1 = a whole context",
               Count{&o.chunked_prefill_size, -1, kMostBatchTokens}});
  t.push_back(
      {"--batch-invariant,!--no-batch-invariant", "", kModelCommands,
       "Bits of a row do not depend on what else is in the batch; default: on, but off with --device cuda, where "
       "it costs time with few tokens",
       &o.batch_invariant});
}

void add_generation_flags(Options& o, std::vector<Flag>& t) {
  t.push_back({"-p,--prompt", "TEXT", "run", "Prompt; may be given several times", &o.prompts});
  t.push_back({"-f,--file", "FILE", "run", "Read a prompt from a file; - is standard input", &o.prompt_file});
  t.push_back({"-n,--max-new-tokens", "N", "run chat eval.gsm8k",
               "Most tokens of an answer (run 256, chat and eval 512)", Count{&o.max_new_tokens}});
  t.push_back({"--temperature", "X", "run chat",
               "0 = always the likeliest token; default: generation_config.json, else 0",
               Real{&o.temperature, 0, 1e6}});
  t.push_back(
      {"--top-k", "N", "run chat", "Sample among the N likeliest tokens; 0 = all", Count{&o.top_k, 0, INT32_MAX}});
  t.push_back({"--top-p", "X", "run chat", "Sample among the likeliest tokens that hold this probability",
               Real{&o.top_p, 0, 1}});
  t.push_back({"--min-p", "X", "run chat", "Drop tokens less likely than X times the likeliest", Real{&o.min_p, 0, 1}});
  t.push_back({"--repetition-penalty", "X", "run chat",
               "Divide the logits of tokens of prompt and answer by X; 0 = the model's, 1 = none",
               Real{&o.repetition_penalty, 0, 100}});
  t.push_back({"--presence-penalty", "X", "run chat", "Take X from the logits of tokens that the answer has",
               Real{&o.presence_penalty, -100, 100}});
  t.push_back({"--frequency-penalty", "X", "run chat", "Take X for each time that the answer has the token",
               Real{&o.frequency_penalty, -100, 100}});
  t.push_back({"--seed,--random-seed", "N", "run chat", "Seed of the sampling; the same seed gives the same answer",
               Count{&o.seed, INT64_MIN, INT64_MAX}});
  t.push_back({"--stop", "TEXT", "run chat", "End the answer before this text; may be given several times", &o.stop});
  t.push_back({"--ignore-eos", "", "run", "Go on after end tokens and stop strings", &o.ignore_eos});
  t.push_back({"-s,--system", "TEXT", "chat", "System message", &o.system});
}

void add_proof_flags(Options& o, std::vector<Flag>& t) {
  t.push_back({"--reference", "FILE", "verify",
               "Reference outputs; default: reference.safetensors in the model's folder", &o.reference});
  t.push_back({"--against", "MODEL", "verify",
               "Compare with this model instead, on the texts of --data: KL divergence, log-probabilities",
               &o.against});
  t.push_back({"--data", "FILE", "verify", "Texts for --against: JSON lines, or paragraphs of plain text", &o.data});
  t.push_back({"--layer", "L", "layer", "Which block, counted from 0", Count{&o.layer}});
  t.push_back({"--hidden", "FILE", "layer",
               "safetensors with `hidden` [T, H] and optionally `topk_ids` [T, k] i32 and `topk_weights` [T, k] f32",
               &o.hidden, true});
  t.push_back(
      {"--out", "FILE", "layer", "Where `output` [T, H] f32, `topk_ids` and `topk_weights` are written", &o.out, true});
  t.push_back({"--device", "NAME", "layer bench.moe", "cpu, cuda or cuda:N", &o.device});
  t.push_back({"--routed-only", "", "layer", "Leave out shared experts", &o.routed_only});
  t.push_back({"--dump-stages", "", "layer", "Also write every intermediate of the runner", &o.dump_stages});
}

void add_report_flags(Options& o, std::vector<Flag>& t) {
  t.push_back(
      {"--block-scales", "", "check", "Also read every block scale, a tenth of a 4-bit checkpoint", &o.block_scales});
  t.push_back({"--weights", "", "check",
               "Also read every block scale, and look for NaN and infinity in every tensor; reads the whole checkpoint",
               &o.weights});
  t.push_back({"--device", "NAME", "explain", "cpu or cuda", &o.device});
}

void add_quantize_flags(Options& o, std::vector<Flag>& t) {
  t.push_back({"output", "OUT", "quantize", "Folder of the new checkpoint; a run that was interrupted goes on there",
               &o.output, true});
  t.push_back({"--format", "NAME", "quantize", "bf16, fp8, fp8-block, nvfp4 or mxfp4", &o.format, true});
  t.push_back({"--dialect", "NAME", "quantize",
               "modelopt, compressed-tensors, deepseek or gpt-oss; default: the usual one of the format", &o.dialect});
  t.push_back({"--calibrate", "FILE", "quantize",
               "Texts to measure input scales with: JSON lines, or paragraphs of plain text", &o.calibrate});
  t.push_back({"--include", "GLOB", "quantize",
               "Quantise these modules beside the experts, for example '*.self_attn.*'; may be given several times",
               &o.include});
  t.push_back({"--mx-scale", "RULE", "quantize",
               "MXFP4 block scales: ceil (no value saturates) or ocp (the floor of the OCP specification)",
               &o.mx_scale});
  t.push_back({"--max-shard-size", "BYTES", "quantize", "Most bytes of tensors in one file",
               Count{&o.max_shard_size, 1, std::int64_t{1} << 50}});
}

void add_measure_flags(Options& o, std::vector<Flag>& t) {
  t.push_back({"--data", "FILE", "eval.gsm8k", "Questions: one JSON object with `question` and `answer` a line",
               &o.data, true});
  t.push_back({"--shots", "FILE", "eval.gsm8k", "Examples in the same form; default: the first of --data", &o.shots});
  t.push_back({"--num-shots", "N", "eval.gsm8k", "Examples before each question", Count{&o.num_shots}});
  t.push_back({"--num-questions", "N", "eval.gsm8k", "Questions to ask; 0 = all", Count{&o.num_questions}});
  t.push_back(
      {"--parallel", "N", "eval.gsm8k", "Questions in work at the same time", Count{&o.parallel, 1, kMostRequests}});
  t.push_back(
      {"--threshold", "X", "eval.gsm8k", "Exit 1 unless the accuracy is strictly above X", Real{&o.threshold, 0, 1}});
  t.push_back({"--shape", "NAME", "bench.moe", "Layer to time; `--shape help` lists them", &o.shape});
  t.push_back({"--baseline", "FILE", "bench.moe",
               "With --device cuda: times of other software, CSV of recipe,shape,tokens,us,floor_us", &o.baseline});
  t.push_back({"--tokens", "LIST", "bench.moe", "Token counts, separated by commas", &o.tokens});
  t.push_back({"--json", "FILE", "verify eval.gsm8k bench.moe bench.serve check explain doctor",
               "Also write the result as JSON", &o.json});
  t.push_back({"--trace", "FILE", kEngineCommands,
               "Also write a time line of loading and steps, for Perfetto or chrome://tracing; ranks write FILE.rankN",
               &o.trace_file});
  t.push_back({"--svg", "FILE", "bench.moe bench.serve", "Also draw the result", &o.svg});
  t.push_back({"--csv", "", "bench.moe", "Print comma-separated values instead of a table", &o.csv});
  t.push_back({"--markdown", "", "help", "Print the page docs/flags.md", &o.markdown});
  t.push_back({"-q,--quiet", "", "run chat serve verify layer eval.gsm8k bench.moe bench.serve check explain quantize",
               "Print the result only", &o.quiet});
}

std::string_view commands_of(SglangWhere where) { return where == SglangWhere::serve ? "serve" : kModelCommands; }

// Flags of SGLang's launch line that are none of ours.
void add_sglang_flags(std::span<const SglangFlag> flags, Options& o, std::vector<Flag>& t) {
  for (const SglangFlag& f : flags) {
    std::string help = "SGLang: " + std::string(f.meaning) + ". ";
    if (f.rule == SglangRule::never) help += "Refused: ";
    if (f.rule == SglangRule::only) help += "Taken with " + std::string(f.accepted) + " only: ";
    help += f.outcome;
    t.push_back({f.names, f.value, commands_of(f.where), help, Foreign{&o.sglang, &f}});
  }
}

}  // namespace

std::vector<Flag> flag_table(Options& options) {
  std::vector<Flag> table;
  add_model_flags(options, table);
  add_engine_flags(options, table);
  add_rank_flags(options, table);
  add_generation_flags(options, table);
  add_serve_flags(options, table);
  add_proof_flags(options, table);
  add_report_flags(options, table);
  add_quantize_flags(options, table);
  add_measure_flags(options, table);
  add_sglang_flags(sglang_flags(), options, table);
  add_sglang_flags(sglang_serve_flags(), options, table);
  return table;
}

const std::vector<Command>& command_table() {
  static const std::vector<Command> kCommands = {
      {"run", "Generate text"},
      {"chat", "Chat in the terminal"},
      {"serve", "Answer requests over HTTP, as OpenAI's API"},
      {"verify", "Compare a model with stored reference outputs; exit 1 beyond the tolerance"},
      {"layer", "Run one MoE block alone, for comparing numerics with other software"},
      {"eval", "Measure accuracy"},
      {"eval.gsm8k", "Few-shot accuracy on grade-school word problems"},
      {"bench", "Measure speed"},
      {"bench.moe", "Time one MoE layer against the limit of this machine"},
      {"bench.serve", "Load a server and measure its latency and throughput"},
      {"check", "Say what a checkpoint holds and what is wrong with it, from its headers; exit 1 on errors"},
      {"explain", "Say what would run, and why, before any weight is read"},
      {"quantize", "Write a checkpoint in another number format or dialect"},
      {"doctor", "What was found on this machine, what is missing, and how to get it"},
      {"help", "Show help"},
  };
  return kCommands;
}

std::string long_name(const Flag& flag) {
  const std::size_t dashes = flag.names.find("--");
  if (dashes == std::string_view::npos) return std::string(flag.names);
  std::string_view name = flag.names.substr(dashes + 2);
  return std::string(name.substr(0, name.find(',')));
}

std::string environment_name(const Flag& flag) {
  std::string name = "SLUICE_" + long_name(flag);
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

bool applies_to(const Flag& flag, std::string_view command) {
  std::string_view rest = flag.commands;
  while (!rest.empty()) {
    const std::size_t space = rest.find(' ');
    if (rest.substr(0, space) == command) return true;
    rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
  }
  return false;
}

int thread_count(std::int64_t threads) {
  if (threads < 0 || threads > 1024) {
    fail(ErrorCode::usage, "--threads " + std::to_string(threads), "0 (all processors) to 1024");
  }
  return static_cast<int>(threads);
}

std::int64_t parse_count(std::string_view text, std::string_view flag) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  std::int64_t unit = 0;
  if (suffix.empty()) unit = 1;
  if (suffix == "k") unit = 1000;
  if (suffix == "K") unit = 1024;
  if (suffix == "M") unit = 1'000'000;
  if (suffix == "G") unit = 1'000'000'000;
  std::int64_t result = 0;
  if (error != std::errc() || unit == 0 || __builtin_mul_overflow(value, unit, &result)) {
    fail(ErrorCode::usage, std::string(flag) + ": \"" + std::string(text) + "\"",
         "an integer, with k, K, M or G behind it if you like (8k = 8000, 8K = 8192)");
  }
  return result;
}

void set_value(const Count& target, std::string_view text, std::string_view flag) {
  const std::int64_t value = parse_count(text, flag);
  if (value < target.least || value > target.most) {
    fail(ErrorCode::usage, std::string(flag) + " " + std::string(text),
         std::to_string(target.least) + " to " + std::to_string(target.most));
  }
  *target.value = value;
}

void set_value(const Real& target, std::string_view text, std::string_view flag) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size();
  if (!number || !(value >= target.least && value <= target.most)) {
    fail(ErrorCode::usage, fmt::format("{} {}", flag, text), fmt::format("{} to {}", target.least, target.most));
  }
  *target.value = value;
}

}  // namespace sluice::cli
