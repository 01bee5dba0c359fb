// Flags of SGLang's launch line: each is taken with a line or refused by name.
#include "cli/sglang_flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/flags.h"
#include "cli/other_names.h"
#include "cli/parse.h"
#include "cli/session.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

Parsed parse_words(std::vector<const char*> words) {
  words.insert(words.begin(), "sluice");
  return parse(static_cast<int>(words.size()), words.data(), "sluice test");
}

std::vector<std::string> notes_of(std::vector<const char*> words) {
  const Parsed p = parse_words(std::move(words));
  EXPECT_FALSE(p.done) << p.text;
  return load_options(p.options).notes;
}

void expect_refused(std::vector<const char*> words, const std::string& part) {
  try {
    notes_of(std::move(words));
    ADD_FAILURE() << "accepted: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(SglangFlags, OptionsOfTheLoaderAreJson) {
  for (const char* text : {"{bad json", "5", "[]"}) {
    const Parsed p = parse_words({"run", "m", "--model-loader-extra-config", text});
    ASSERT_FALSE(p.done) << p.text;
    try {
      load_options(p.options);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage) << e.what();
      EXPECT_NE(std::string(e.what()).find("--model-loader-extra-config"), std::string::npos) << e.what();
    }
  }
}

// The server arguments of SGLang's end-to-end test (test_deepseek_v3_fp4_cutedsl_moe.py).
TEST(SglangFlags, TheLaunchLineOfTheSeedIsTaken) {
  const Parsed p =
      parse_words({"run", "m", "--tp", "4", "--ep", "4", "--mem-fraction-static", "0.75", "--attention-backend",
                   "trtllm_mla", "--moe-runner-backend", "flashinfer_cutedsl", "--quantization", "modelopt_fp4",
                   "--model-loader-extra-config", R"({"enable_multithread_load": true})"});
  ASSERT_FALSE(p.done) << p.text;
  const app::LoadOptions load = load_options(p.options);
  EXPECT_EQ(load.moe_runner_backend, "flashinfer_cutedsl");
  EXPECT_EQ(load.quantization, "modelopt_fp4");
  EXPECT_EQ(load.mem_fraction_static, 0.75);
  EXPECT_EQ(load.parallel.tp, 4);
  EXPECT_EQ(load.parallel.ep, 4);
  ASSERT_EQ(load.notes.size(), 2u);
  const auto has = [&](const std::string& part) {
    return std::any_of(load.notes.begin(), load.notes.end(),
                       [&](const std::string& n) { return n.find(part) != std::string::npos; });
  };
  EXPECT_TRUE(has("--attention-backend trtllm_mla: mapped"));
  EXPECT_TRUE(has("--model-loader-extra-config"));
}

TEST(SglangFlags, SwitchesAndValues) {
  EXPECT_EQ(notes_of({"chat", "m", "--disable-cuda-graph", "--disable-flashinfer-autotune"}).size(), 2u);
  EXPECT_TRUE(notes_of({"run", "m"}).empty());
  EXPECT_EQ(notes_of({"run", "m", "--pp-size", "1"}).size(), 1u);
  EXPECT_TRUE(notes_of({"verify", "m", "--deepep-mode", "low_latency"}).empty());
}

TEST(SglangFlags, RefusalsNameTheFlagAndWhatWorks) {
  expect_refused({"run", "m", "--pp-size", "4"}, "--pp-size 4: there are no pipeline stages; expected 1");
  expect_refused({"serve", "m", "--nnodes", "2"}, "mpirun");
  expect_refused({"run", "m", "--moe-dp-size", "2"}, "--moe-dp-size 2");
  expect_refused({"run", "m", "--enable-eplb"}, "--enable-eplb");
  expect_refused({"run", "m", "--enable-lora"}, "--enable-lora: LoRA is not applied");
  expect_refused({"run", "m", "--lora-paths", "a=b", "c", "--ep", "1"}, "--lora-paths a=b c: LoRA");
  expect_refused({"run", "m", "--speculative-moe-runner-backend", "triton"}, "speculative");
  expect_refused({"eval", "gsm8k", "m", "--data", "d", "--kt-weight-path", "w"}, "--kt-weight-path w");
}

// Every flag of moe-runner-spec 7.1 and of the seeds is a flag of `sluice run`.
TEST(SglangFlags, TheWholeListIsKnown) {
  std::set<std::string> known;
  Options options;
  for (const Flag& flag : flag_table(options)) {
    std::string_view rest = flag.names;
    while (!rest.empty() && applies_to(flag, "run")) {
      const std::size_t comma = rest.find(',');
      known.emplace(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
  }
  for (const char* name : {"--moe-runner-backend",
                           "--moe-a2a-backend",
                           "--speculative-moe-runner-backend",
                           "--speculative-moe-a2a-backend",
                           "--ep-size",
                           "--ep",
                           "--expert-parallel-size",
                           "--moe-dp-size",
                           "--moe-dense-tp-size",
                           "--tp",
                           "--dp",
                           "--enable-dp-attention",
                           "--enable-dp-lm-head",
                           "--deepep-mode",
                           "--deepep-config",
                           "--deepep-dispatcher-output-dtype",
                           "--deepep-v2-mode",
                           "--fuseep-mode",
                           "--flashinfer-mxfp4-moe-precision",
                           "--enable-w4a4-mxfp4-megamoe",
                           "--disable-flashinfer-cutlass-moe-fp4-allgather",
                           "--disable-shared-experts-fusion",
                           "--enforce-shared-experts-fusion",
                           "--enable-fused-moe-sum-all-reduce",
                           "--enable-two-batch-overlap",
                           "--tbo-token-distribution-threshold",
                           "--enable-single-batch-overlap",
                           "--disable-flashinfer-autotune",
                           "--flashinfer-autotune-skip-ops",
                           "--enable-shared-experts-attn-tp",
                           "--dwdp-size",
                           "--enable-waterfill",
                           "--flashinfer-allreduce-fusion-backend",
                           "--enable-flashinfer-allreduce-fusion",
                           "--ep-num-redundant-experts",
                           "--ep-dispatch-algorithm",
                           "--init-expert-location",
                           "--enable-eplb",
                           "--eplb-algorithm",
                           "--eplb-rebalance-num-iterations",
                           "--eplb-rebalance-layers-per-chunk",
                           "--eplb-min-rebalancing-utilization-threshold",
                           "--expert-distribution-recorder-mode",
                           "--expert-distribution-recorder-buffer-size",
                           "--expert-balancedness-report-mode",
                           "--elastic-ep-backend",
                           "--enable-elastic-expert-backup",
                           "--mooncake-ib-device",
                           "--max-ep-size",
                           "--elastic-ep-join-mode",
                           "--elastic-ep-scale-timeout",
                           "--elastic-ep-join-rank-offset",
                           "--elastic-ep-initial-size",
                           "--enable-return-routed-experts",
                           "--kt-weight-path",
                           "--kt-method",
                           "--kt-cpuinfer",
                           "--kt-threadpool-count",
                           "--kt-num-gpu-experts",
                           "--kt-max-deferred-experts-per-token",
                           "--enable-lora",
                           "--lora-paths",
                           "--lora-target-modules",
                           "--max-lora-rank",
                           "--max-loras-per-batch",
                           "--max-loaded-loras",
                           "--lora-backend",
                           "--quantization",
                           "--fp8-gemm-backend",
                           "--fp4-gemm-backend",
                           "--attention-backend",
                           "--model-loader-extra-config",
                           "--disable-cuda-graph"}) {
    EXPECT_TRUE(known.count(name) == 1) << name;
  }
}

TEST(SglangFlags, EveryOneSaysWhatBecomesOfIt) {
  for (const auto flags : {sglang_flags(), sglang_serve_flags()}) {
    for (const SglangFlag& f : flags) {
      EXPECT_FALSE(f.meaning.empty()) << f.names;
      EXPECT_FALSE(f.outcome.empty()) << f.names;
      EXPECT_EQ(f.rule == SglangRule::only, !f.accepted.empty()) << f.names;
      EXPECT_FALSE(f.rule == SglangRule::only && f.value.empty()) << f.names;
    }
  }
}

TEST(SglangFlags, OthersOfTheServerAreTakenOrSayWhatToDo) {
  EXPECT_EQ(notes_of({"serve", "m", "--device", "cpu", "--enable-deterministic-inference",
                      "--disable-custom-all-reduce", "--cuda-graph-bs", "1", "2", "--log-level-http", "error"})
                .size(),
            5u);
  expect_refused({"serve", "m", "--device", "cuda"}, "whole models run on the CPU; expected cpu, auto");
  expect_refused({"serve", "m", "--ssl-keyfile", "k"}, "put a proxy with TLS in front");
  expect_refused({"serve", "m", "--enable-priority-scheduling"}, "say --schedule-policy priority");
  expect_refused({"serve", "m", "--chat-template", "t"}, "chat_template.jinja");
}

TEST(OtherNames, AnUnknownFlagOfAnotherServerIsToldByItsNameHere) {
  const auto text_of = [](std::vector<const char*> words) {
    const Parsed p = parse_words(std::move(words));
    EXPECT_TRUE(p.done && p.exit_code == 2) << p.text;
    return p.text;
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(text_of({"serve", "m", "--max-num-seqs", "3"}), "--max-num-seqs: it is --max-running-requests here"));
  EXPECT_TRUE(has(text_of({"serve", "m", "--max-model-len=9"}), "--max-model-len: it is --context-length here"));
  EXPECT_TRUE(has(text_of({"serve", "m", "-ngl", "99"}), "-ngl: leave it out"));
  const std::string two = text_of({"serve", "m", "--ctx-size", "9", "--jinja", "--unheard-of"});
  EXPECT_TRUE(has(two, "--ctx-size: it is --context-length here") && has(two, "--jinja: leave it out")) << two;
  EXPECT_FALSE(has(text_of({"serve", "m", "--unheard-of"}), "--unheard-of:"));
}

// Who is told to say something else can say it.
TEST(OtherNames, WhatIsAdvisedIsAFlag) {
  Options options;
  for (const char* name : {"max-model-len", "max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization", "alias",
                           "kv-cache-memory-bytes", "scheduling-policy", "enable-expert-parallel", "disable-log-stats",
                           "no-enable-prefix-caching", "no-enable-chunked-prefill", "uvicorn-log-level", "metrics",
                           "generation-config", "ctx-size", "parallel", "allowed-methods"}) {
    const std::string advice = name_here(name);
    const std::size_t begin = advice.find("--");
    ASSERT_NE(begin, std::string::npos) << name << ": " << advice;
    const std::string flag = advice.substr(begin, advice.find_first_of(" ,", begin) - begin);
    bool known = false;
    for (const Flag& f : flag_table(options)) {
      known = known || (applies_to(f, "serve") &&
                        ("," + std::string(f.names) + ",").find("," + flag + ",") != std::string::npos);
    }
    EXPECT_TRUE(known) << advice;
    EXPECT_EQ(name_here("--" + std::string(name) + "=1"), advice);
  }
}

// Names do not collide within a command.
TEST(SglangFlags, NoFlagIsThereTwice) {
  Options options;
  for (const Command& command : command_table()) {
    std::set<std::string_view> seen;
    for (const Flag& flag : flag_table(options)) {
      std::string_view rest = applies_to(flag, command.name) ? flag.names : std::string_view();
      while (!rest.empty()) {
        const std::size_t comma = rest.find(',');
        EXPECT_TRUE(seen.insert(rest.substr(0, comma)).second) << command.name << " " << rest.substr(0, comma);
        rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cli
