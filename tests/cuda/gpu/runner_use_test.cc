// How the Hopper runner is used: again and again, from graphs, on two streams, with bad rows beside good ones.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "cuda/streams.h"
#include "gpu/harness.h"
#include "gpu/layer_case.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Batch;
using sluice::testing::random_batch;
using sluice::testing::RoutePattern;

constexpr std::int64_t kMostFewTokens = 8;  // of model_like(), whose k is 4, in the kernel for a few tokens

Batch batch_of(const LayerCase& c, std::int64_t tokens, std::uint64_t seed) {
  return batch_of(c, tokens, RoutePattern::uniform, seed);
}

// One output and one workspace, reused by many runs on one stream.
struct Bench {
  Bench(const LayerOnGpu& layer_, const DeviceBatch& batch_)
      : layer(layer_),
        batch(batch_),
        out(batch_.tokens * batch_.width),
        memory(static_cast<std::int64_t>(layer_.runner->workspace_bytes(layer_.problem, batch_.tokens))) {}

  void run(Stream stream) const {
    Workspace workspace(memory.data(), memory.bytes());
    RunArgs args = layer.run_args(batch, workspace);
    args.sum = dense_view(out.data(), DType::f32, batch.tokens, batch.width);
    args.stream = stream;
    layer.runner->run(*layer.prepared, args);
  }

  const LayerOnGpu& layer;
  const DeviceBatch& batch;
  DeviceArray<float> out;
  DeviceArray<std::byte> memory;
};

void repeatable(Check& check) {
  constexpr int kRuns = 2000, kCompareEvery = 50;
  const cuda::OwnedStream stream(0);
  for (const Recipe recipe : kRecipes) {
    const LayerCase c = model_like(recipe);
    for (const cuda::HopperOptions& way : ways_of_few_tokens()) {
      const LayerOnGpu layer(c, way);
      for (const std::int64_t tokens : {1, 4, 70, 900}) {
        if (way.decode < 0 && tokens > kMostFewTokens) continue;
        const DeviceBatch batch(batch_of(c, tokens, 8));
        const std::vector<float> first = layer.run(batch);
        const Bench bench(layer, batch);
        const int runs = tokens > 100 ? kRuns / 10 : kRuns;
        for (int i = 1; i <= runs; ++i) {
          bench.run(stream.handle());
          if (i % kCompareEvery != 0) continue;
          stream.synchronize();
          check.expect(same_bits(bench.out.download(), first), "run " + std::to_string(i) + " of " + c.text());
        }
      }
    }
  }
  check.note(std::to_string(kRuns) + " runs a case");
}

void graphs(Check& check) {
  const cuda::OwnedStream stream(0);
  for (const Recipe recipe : kRecipes) {
    const LayerCase c = model_like(recipe);
    const LayerOnGpu layer(c);
    for (const std::int64_t tokens : {1, 33, 600}) {
      const DeviceBatch batch(batch_of(c, tokens, 1));
      const Bench bench(layer, batch);
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t instance = nullptr;
      cuda::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capturing");
      for (int i = 0; i < 3; ++i) bench.run(stream.handle());
      cuda::check(cudaStreamEndCapture(stream.get(), &graph), "capturing");
      cuda::check(cudaGraphInstantiate(&instance, graph, 0), "making a graph");
      for (std::uint64_t seed = 2; seed < 8; ++seed) {
        const Batch next = seed == 5 ? random_batch(c.problem().layer, tokens, DType::bf16, RoutePattern::all_to_one, 5)
                                     : batch_of(c, tokens, seed);
        batch.hidden.upload(next.hidden);
        batch.ids.upload(next.ids);
        batch.weights.upload(next.weights);
        bench.out.poison();
        cuda::check(cudaGraphLaunch(instance, stream.get()), "replaying");
        stream.synchronize();
        const auto got = bench.out.download();
        layer.compare(check, batch, got, "replay " + std::to_string(seed), 8);
        check.expect(same_bits(got, layer.run(batch)), "a replay differs from a plain run: " + c.text());
      }
      cudaGraphExecDestroy(instance);
      cudaGraphDestroy(graph);
    }
  }
}

void two_streams(Check& check) {
  const cuda::OwnedStream left(0), right(0);
  for (const Recipe recipe : kRecipes) {
    const LayerCase c = model_like(recipe);
    const LayerOnGpu layer(c);
    const DeviceBatch a(batch_of(c, 50, 1)), b(batch_of(c, 211, 2));
    const auto expected_a = layer.run(a), expected_b = layer.run(b);
    const Bench bench_a(layer, a), bench_b(layer, b);
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 5; ++i) {
        bench_a.run(left.handle());
        bench_b.run(right.handle());
      }
      left.synchronize();
      right.synchronize();
      check.expect(same_bits(bench_a.out.download(), expected_a) && same_bits(bench_b.out.download(), expected_b),
                   "two streams with two workspaces: " + c.text());
    }
  }
}

// Two launches that each want the whole GPU, again and again: blocks of one keep the other from starting all of its
// own. T = 2 has blocks that share sums, or is one launch of blocks that take over from each other; T = 4,096 has pairs
// that share tiles, T = 60 single blocks.
void two_large_streams(Check& check, const LayerOnGpu& layer) {
  constexpr int kRounds = 40, kRuns = 6;
  const cuda::OwnedStream left(0), right(0);
  for (const auto& [one, other] : {std::pair{4096, 4096}, {4096, 2}, {2, 2}, {60, 2}}) {
    const DeviceBatch a(batch_of(layer.spec, one, 1)), b(batch_of(layer.spec, other, 2));
    const auto expected_a = layer.run(a), expected_b = layer.run(b);
    const Bench bench_a(layer, a), bench_b(layer, b);
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kRuns; ++i) {
        bench_a.run(left.handle());
        for (int j = 0; j < (other == 2 && one != 2 ? 8 : 1); ++j) bench_b.run(right.handle());
      }
    }
    left.synchronize();
    right.synchronize();
    check.expect(same_bits(bench_a.out.download(), expected_a) && same_bits(bench_b.out.download(), expected_b),
                 "T " + std::to_string(one) + " beside " + std::to_string(other) + ": " + layer.spec.text());
  }
}

void two_large_streams(Check& check) {
  for (const Recipe recipe : kRecipes) {
    for (const cuda::HopperOptions& way : ways_of_few_tokens()) {
      two_large_streams(check, LayerOnGpu(model_like(recipe), way));
    }
  }
}

// Rows of NaN and infinity beside good ones: only their own outputs are lost.
void bad_rows(Check& check) {
  for (const Recipe recipe : kRecipes) {
    const LayerCase c = model_like(recipe);
    const LayerOnGpu own_choice(c), without(c, ways_of_few_tokens().front());
    for (const auto& [tokens, few] : {std::pair{2, true}, {2, false}, {40, true}, {300, true}}) {
      const LayerOnGpu& layer = few ? own_choice : without;
      Batch host = batch_of(c, tokens, 4);
      const auto good = layer.run(DeviceBatch(host));
      auto* rows = reinterpret_cast<Bf16*>(host.hidden.data());
      std::fill_n(rows + 1 * c.hidden, c.hidden, Bf16{0x7FC0});
      if (tokens > 8) std::fill_n(rows + 7 * c.hidden, c.hidden, Bf16{0x7F80});
      const auto mixed = layer.run(DeviceBatch(host));
      std::int64_t changed = 0;
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (t == 1 || t == 7) continue;
        changed += std::memcmp(good.data() + t * c.hidden, mixed.data() + t * c.hidden,
                               static_cast<std::size_t>(c.hidden) * sizeof(float)) != 0;
      }
      check.expect(changed == 0, std::to_string(changed) + " rows changed beside a row of NaN: " + c.text());
      check.expect(std::isnan(mixed[static_cast<std::size_t>(c.hidden)]), "a row of NaN gives numbers: " + c.text());
    }
  }
}

void routes_output(Check& check) {
  const Facade facade;
  for (const Recipe recipe : kRecipes) {
    const LayerCase c = model_like(recipe);
    expect_sum_of_routes(check, facade, c, batch_of(c, 19, 6));
  }
}

// One route a token: in bf16 the GEMM kernel writes the output itself. It has the bits of the fp32 sums, rounded;
// skipped tokens and padding are zeros.
void one_route(Check& check, const LayerOnGpu& layer, std::int64_t tokens) {
  const LayerCase& c = layer.spec;
  const Batch host = batch_of(c, tokens, 5 + static_cast<std::uint64_t>(tokens));
  const DeviceBatch batch(host);
  const auto valid = static_cast<std::int32_t>(tokens - tokens / 8);
  const auto sums = layer.run(batch, valid), direct = layer.run(batch, valid, true);
  std::int64_t different = 0, zeros = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    different += std::memcmp(&direct[i], std::array{to_float(to_bf16(sums[i]))}.data(), sizeof(float)) != 0;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto id = static_cast<std::int32_t>(host.ids[t]);
    const bool skipped = t >= valid || id < layer.range.first || id >= layer.range.first + layer.range.count;
    if (!skipped) continue;
    ++zeros;
    const float* row = direct.data() + t * c.hidden;
    check.expect(std::all_of(row, row + c.hidden, [](float v) { return v == 0.0f && !std::signbit(v); }),
                 "a skipped token is not zero: " + c.text());
  }
  check.expect(different == 0, std::to_string(different) + " of T " + std::to_string(tokens) + " differ: " + c.text());
  check.expect(tokens < 20 || zeros > 0, "no skipped token");
  // One row has few codes next to a tie, or many: its distance from the oracle says little in fp8.
  if (tokens >= 200) layer.compare(check, batch, direct, "one route", 8, valid);
}

void one_route(Check& check) {
  constexpr SlotRange kLocal{2, 11};
  for (const Recipe recipe : kRecipes) {
    for (const bool on_input : {false, true}) {
      LayerCase c = model_like(recipe);
      c.top_k = 1;
      c.hidden = 784;
      c.weight_on_input = on_input;
      const LayerOnGpu layer(c, {}, kLocal), without(c, ways_of_few_tokens().front(), kLocal);
      for (const std::int64_t tokens : {1, 20, 33, 200, 700, 2500}) one_route(check, layer, tokens);
      for (const std::int64_t tokens : {1, 20}) one_route(check, without, tokens);
    }
  }
}

void reload(Check& check) {
  for (const Recipe recipe : kRecipes) {
    LayerCase c = model_like(recipe);
    const LayerOnGpu first(c);
    const DeviceBatch batch(batch_of(c, 30, 2));
    c.seed = 99;
    const LayerOnGpu second(c);
    const auto expected = second.run(batch);
    const auto before = first.run(batch);
    first.runner->reload(*first.prepared, ExpertWeights(second.weights));
    check.expect(same_bits(first.run(batch), expected) && !same_bits(before, expected), "reload: " + c.text());
  }
}

// With --batch-invariant: the bits of a row do not depend on the batch.
void row_invariant(Check& check) {
  for (const Recipe recipe : kRecipes) {
    LayerCase c = model_like(recipe);
    c.row_invariant = true;
    c.hidden = 2880;
    const LayerOnGpu layer(c);
    if (!layer.runner->supports(layer.problem).ok) continue;
    const Batch all = batch_of(c, 1100, 3);
    const auto together = layer.run(DeviceBatch(all));
    std::int64_t changed = 0;
    for (const std::int64_t tokens : {1, 2, 8, 9, 40, 130, 600}) {
      Batch part = all;
      part.tokens = tokens;
      part.hidden.resize(static_cast<std::size_t>(tokens * c.hidden) * 2);
      part.ids.resize(static_cast<std::size_t>(tokens * c.top_k));
      part.weights.resize(part.ids.size());
      const auto alone = layer.run(DeviceBatch(part));
      changed += std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)) != 0;
    }
    check.expect(changed == 0, std::to_string(changed) + " batches have other bits: " + c.text());
  }
}

}  // namespace

std::vector<Test> runner_use_tests() {
  return {{"runner: repeatable", repeatable},       {"runner: graphs", graphs},
          {"runner: two streams", two_streams},     {"runner: two large streams", two_large_streams},
          {"runner: bad rows", bad_rows},           {"runner: routes", routes_output},
          {"runner: one route a token", one_route}, {"runner: reload", reload},
          {"runner: row-invariant", row_invariant}};
}

}  // namespace sluice::gpu_tests
