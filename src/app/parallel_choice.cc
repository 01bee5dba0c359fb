#include "app/parallel_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/words.h"

namespace sluice::app {
namespace {

// SGLang's transports between the ranks of expert parallelism. All of them are `alltoall` here; what SGLang checks for
// one is checked as far as it is about the model and not about its kernels. `runners` are those that it goes with.
struct A2aName {
  std::string_view name;
  std::string_view runners;       // space-separated; "" = no rule
  std::int32_t least_dp = 1;      // data-parallel groups that it needs
  bool dp_is_tp = false;          // it needs one rank a group
  std::string_view refusal = {};  // why it is not here at all
};

constexpr std::array kA2a = {
    A2aName{"alltoall", ""},
    A2aName{"deepep", ""},
    A2aName{"deepep_v2", "deep_gemm"},
    A2aName{"flashinfer", "flashinfer_cutlass flashinfer_cutedsl flashinfer_trtllm flashinfer_trtllm_routed deep_gemm",
            1, true},
    A2aName{"mooncake", ""},
    A2aName{"nixl", ""},
    A2aName{"mori", ""},
    A2aName{"pplx", "deep_gemm", 2},
    A2aName{"megamoe", ""},
    A2aName{"ascend_fuseep", "", 1, false, "it is a kernel of another kind of processor"},
};

// Runners whose names have no meaning of their own for a transport: ours, and SGLang's auto.
constexpr std::array<std::string_view, 4> kOpenRunners = {"auto", "cpu", "reference", "hopper"};

std::string a2a_flag(const ParallelRequest& r) { return "--moe-a2a-backend " + r.a2a; }

const A2aName* find_a2a(const ParallelRequest& r) {
  if (r.a2a == "none") return nullptr;
  const auto it = std::find_if(kA2a.begin(), kA2a.end(), [&](const A2aName& a) { return a.name == r.a2a; });
  if (it != kA2a.end()) return &*it;
  std::string names = "none";
  for (const A2aName& a : kA2a) names += a.refusal.empty() ? ", " + std::string(a.name) : "";
  fail(ErrorCode::usage, a2a_flag(r), names);
}

void check_a2a(const A2aName& a, const ParallelRequest& r) {
  const std::string works = "or --moe-a2a-backend alltoall, which has no such rule";
  if (!a.refusal.empty()) {
    fail(ErrorCode::unsupported, a2a_flag(r) + ": " + std::string(a.refusal), "--moe-a2a-backend alltoall");
  }
  const bool open = std::find(kOpenRunners.begin(), kOpenRunners.end(), r.backend) != kOpenRunners.end();
  if (!a.runners.empty() && !open && !has_word(a.runners, r.backend)) {
    fail(ErrorCode::unsupported, a2a_flag(r) + " with --moe-runner-backend " + r.backend,
         "--moe-runner-backend auto, " + commas(a.runners), works);
  }
  const std::int32_t dp = r.enable_dp_attention ? r.dp : 1;
  if (a.dp_is_tp && dp != r.tp) {
    fail(ErrorCode::unsupported, fmt::format("{} with {} data-parallel groups", a2a_flag(r), dp),
         fmt::format("--enable-dp-attention --dp {}, as many as --tp", r.tp), works);
  }
  if (dp < a.least_dp) {
    fail(ErrorCode::unsupported, fmt::format("{} with {} data-parallel groups", a2a_flag(r), dp),
         fmt::format("--enable-dp-attention with --dp {} or more", a.least_dp), works);
  }
}

void note_a2a(const ParallelRequest& r, ParallelChoice& choice) {
  if (r.a2a != "alltoall") {
    choice.notes.push_back(a2a_flag(r) + ": mapped to alltoall, rows travel to the ranks of their experts and back");
  }
  if (r.ep != r.tp) {
    choice.notes.push_back(fmt::format("{}: --ep becomes {}, the number of ranks", a2a_flag(r), r.tp));
  }
}

void check_moe_dp(const ParallelRequest& r) {
  if (r.moe_dp == 1) return;
  fail(ErrorCode::unsupported, fmt::format("--moe-dp-size {}: experts are held once in a run", r.moe_dp),
       "--moe-dp-size 1", "data-parallel attention over the same experts is --enable-dp-attention --dp N");
}

void check_deepep_mode(const ParallelRequest& r) {
  if (has_word("auto normal low_latency", r.deepep_mode)) return;
  fail(ErrorCode::usage, "--deepep-mode " + r.deepep_mode, "auto, normal or low_latency");
}

}  // namespace

ParallelChoice choose_parallel(const ParallelRequest& r) {
  ParallelChoice choice;
  check_moe_dp(r);
  check_deepep_mode(r);
  const A2aName* a2a = find_a2a(r);
  ParallelSizes& s = choice.sizes;
  s = {r.tp, r.ep, r.dp, r.dense_tp, r.enable_dp_attention, a2a != nullptr ? MoeA2a::alltoall : MoeA2a::none};
  if (r.enable_dp_attention && r.dp == 1) {
    choice.notes.emplace_back("--enable-dp-attention: switched off, as --dp is 1");
  }
  s = resolve(s);
  if (a2a == nullptr) return choice;
  check_a2a(*a2a, r);
  if (r.tp > 1) {
    note_a2a(r, choice);
  } else {
    choice.notes.push_back(a2a_flag(r) + ": nothing to do with one rank");
    s.a2a = MoeA2a::none;
  }
  return choice;
}

std::string describe(const ParallelSizes& s) {
  if (s.tp == 1) return "";
  const std::int32_t pieces = s.tp / s.ep;
  const std::string cut = pieces == 1 ? "whole" : fmt::format("in {} pieces", pieces);
  const std::string groups = s.dp > 1 ? fmt::format(", {} groups of attention", s.dp) : "";
  const char* travel = s.a2a == MoeA2a::alltoall ? "rows travel to them"
                       : s.dp > 1                ? "tokens of all groups gathered"
                                                 : "partial sums reduced";
  return fmt::format("{} ranks{}, experts over {}, each {}, {}", s.tp, groups, s.ep, cut, travel);
}

}  // namespace sluice::app
