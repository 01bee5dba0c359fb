#include "cli/flags_ranks.h"

namespace sluice::cli {
namespace {

constexpr std::int64_t kMostRanks = 65536;
constexpr std::string_view kCommands = "run chat serve verify layer eval.gsm8k explain";
constexpr std::string_view kModelCommands = "run chat serve verify eval.gsm8k explain";
constexpr std::string_view kStartingCommands = "run chat serve verify eval.gsm8k";

}  // namespace

void add_rank_flags(Options& o, std::vector<Flag>& t) {
  t.push_back({"--tp,--tp-size,--tensor-parallel-size", "N", kCommands,
               "Ranks in all: processes that mpirun starts on this machine; under mpirun or srun it joins them",
               Count{&o.tp, 1, kMostRanks}});
  t.push_back({"--ep,--ep-size,--expert-parallel-size", "N", kCommands,
               "Ranks that the experts are spread over; each expert is cut into tp / ep pieces",
               Count{&o.ep, 1, kMostRanks}});
  t.push_back({"--dp,--dp-size,--data-parallel-size", "N", kCommands,
               "Groups of ranks with requests of their own, with --enable-dp-attention", Count{&o.dp, 1, kMostRanks}});
  t.push_back({"--enable-dp-attention", "", kCommands,
               "Each of --dp groups computes the attention of its own requests; experts serve all of them",
               &o.enable_dp_attention});
  t.push_back({"--moe-a2a-backend", "NAME", kCommands,
               "How tokens reach the experts of other ranks: none (sums or tokens of all ranks are exchanged whole) or "
               "alltoall (rows travel to their experts); SGLang's names stand for alltoall",
               &o.moe_a2a_backend});
  t.push_back({"--moe-dense-tp-size", "N", kModelCommands,
               "Pieces of layers without experts: 1 or tp / dp; 0 = tp / dp",
               Count{&o.moe_dense_tp_size, 0, kMostRanks}});
  t.push_back(
      {"--moe-dp-size", "N", kModelCommands, "Copies of all experts; only 1", Count{&o.moe_dp_size, 1, kMostRanks}});
  t.push_back({"--deepep-mode", "NAME", kModelCommands,
               "Kernels of DeepEP in SGLang: auto, normal or low_latency; nothing to do here but its rules",
               &o.deepep_mode});
  t.push_back({"--disable-flashinfer-cutlass-moe-fp4-allgather", "", "run chat serve verify layer eval.gsm8k",
               "Rows travel between ranks in bf16 where recipes of NVFP4 inputs would send codes; changes no bit",
               &o.plain_rows});
  t.push_back({"--dist-timeout", "SECONDS", kStartingCommands, "Most that a rank waits for another one",
               Real{&o.dist_timeout, 0.1, 1e6}});
}

}  // namespace sluice::cli
