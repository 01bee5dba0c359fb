// What launches of the kernel for a few tokens (cuda/sm90/decode.h) leave for those after them, and keep from those
// beside them.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "cuda/decode_states.h"
#include "cuda/device.h"
#include "cuda/experts_hopper.h"
#include "cuda/streams.h"
#include "gpu/decode_case.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::RoutePattern;

LayerCase small_layer(Recipe recipe, std::int64_t hidden) {
  LayerCase c;
  c.recipe = recipe;
  c.hidden = hidden;
  c.intermediate = 784;
  c.top_k = 4;
  return c;
}

// Batches of `layer`, and what `reference` makes of them.
struct KnownBatches {
  std::vector<DeviceBatch> batches;
  std::vector<std::vector<float>> expected;

  KnownBatches(Check& check, const LayerOnGpu& layer, const LayerOnGpu& reference,
               std::initializer_list<std::int64_t> tokens) {
    for (const std::int64_t t : tokens) {
      batches.emplace_back(batch_of(layer.spec, t, RoutePattern::uniform, 10 + batches.size()));
      expect_runs(check, layer, batches.back());
      expected.push_back(reference.run(batches.back()));
    }
  }
};

// Runs that find the intermediate of the one before in their workspace.
void reused_workspace(Check& check) {
  constexpr int kRounds = 20;
  for (const Recipe recipe : kRecipes) {
    const LayerCase c = small_layer(recipe, 1040);
    const LayerOnGpu layer(c, decode_options());
    const DeviceArray<std::byte> memory = filled_workspace(layer, 8);
    const auto [batches, expected] = KnownBatches(check, layer, layer, {8, 8, 3});
    bool same = true;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<DeviceArray<float>> out;
      for (const DeviceBatch& batch : batches) out.emplace_back(batch.tokens * batch.width);
      for (std::size_t i = 0; i < batches.size(); ++i) start_run(layer, batches[i], out[i], memory);
      cuda::check(cudaDeviceSynchronize(), "runs in one workspace");
      for (std::size_t i = 0; i < batches.size(); ++i) same = same && same_bits(out[i].download(), expected[i]);
    }
    check.expect(same && memory.intact(), "other bits in a workspace that was used: " + c.text());
  }
}

// More workspaces than there are states that are kept (decode_states.h), all in use, in an order in which each finds
// what another batch left there two runs before. With and without states: the same bits.
void many_workspaces(Check& check) {
  constexpr int kWorkspaces = cuda::DecodeStates::kStates + 2, kRounds = 9;
  cuda::HopperOptions clears = decode_options();
  clears.decode_clears = true;
  const cuda::OwnedStream left(0), right(0);
  for (const Recipe recipe : kRecipes) {
    const LayerCase c = small_layer(recipe, 528);
    const LayerOnGpu layer(c, decode_options()), cleared(c, clears);
    const auto [batches, expected] = KnownBatches(check, layer, cleared, {8, 3, 7});
    std::vector<DeviceArray<std::byte>> memory;
    std::vector<DeviceArray<float>> out;
    for (int i = 0; i < kWorkspaces; ++i) {
      memory.push_back(filled_workspace(layer, 8));
      out.emplace_back(8 * c.hidden);
    }
    bool same = true;
    for (int round = 0; round < kRounds; ++round) {
      const auto batch_of_workspace = [&](int i) { return static_cast<std::size_t>(i + round) % batches.size(); };
      for (int i = 0; i < kWorkspaces; ++i) {
        start_run(layer, batches[batch_of_workspace(i)], out[i], memory[i], (i % 2 == 0 ? left : right).handle());
      }
      left.synchronize();
      right.synchronize();
      for (int i = 0; i < kWorkspaces; ++i) {
        const std::vector<float>& want = expected[batch_of_workspace(i)];
        std::vector<float> got = out[i].download();
        got.resize(want.size());
        same = same && same_bits(got, want) && memory[i].intact();
      }
    }
    check.expect(same, "other bits in one of many workspaces: " + c.text());
  }
}

// The states are apart from each other, and are their owners'.
void states(Check& check) {
  constexpr std::int64_t kBytes = 1000;
  const std::int32_t processors = cuda::device_info(0).processors;
  cuda::DecodeStates states(kBytes, processors, 0);
  const std::array<char, cuda::DecodeStates::kStates + 1> owners{};
  const auto key = [&](int i) { return static_cast<const void*>(&owners[static_cast<std::size_t>(i)]); };
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  std::vector<const std::uint32_t*> turns;
  for (int i = 0; i < cuda::DecodeStates::kStates; ++i) {
    const auto state = states.of(key(i), kBytes);
    check.expect(state.has_value() && state->h_bytes >= kBytes, "no state for owner " + std::to_string(i));
    if (!state) return;
    turns.push_back(state->turn);
    const auto at = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
    const auto flags = at(state->flags), h = at(state->h);
    ranges.emplace_back(at(state->turn), at(state->turn) + 4);
    ranges.emplace_back(flags, flags + 2 * cuda::sm90::decode_flag_bytes(processors));
    ranges.emplace_back(h, h + 2 * static_cast<std::uintptr_t>(state->h_bytes));
    check.expect(h % 128 == 0, "alignment");
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    check.expect(ranges[i - 1].second <= ranges[i].first, "parts of states overlap");
  }
  check.expect(!states.of(key(0), states.of(key(0), 1)->h_bytes + 1).has_value(), "a state that is too small");
  check.expect(!states.of(key(cuda::DecodeStates::kStates), 1).has_value(), "a state too many");
  for (int i = 0; i < cuda::DecodeStates::kStates; ++i) {
    check.expect(states.of(key(i), 1)->turn == turns[static_cast<std::size_t>(i)], "an owner got another's state");
  }
}

std::vector<std::byte> download(const void* data, std::size_t bytes) {
  std::vector<std::byte> host(bytes);
  cuda::check(cudaMemcpy(host.data(), data, bytes, cudaMemcpyDeviceToHost), "download");
  return host;
}

bool all_bytes(const std::vector<std::byte>& bytes, unsigned char value) {
  return std::count(bytes.begin(), bytes.end(), std::byte{value}) == static_cast<std::ptrdiff_t>(bytes.size());
}

// After every run the set of the next one is clear. Results would hardly tell: when a block looks for the intermediate
// it has nearly always come, and hides what was there before.
void left_for_next(Check& check) {
  constexpr std::int64_t kTokens[] = {8, 1, 3, 8, 8, 2, 7};
  const auto shares = static_cast<std::uint32_t>(cuda::device_info(0).processors);
  const std::size_t flag_bytes = cuda::sm90::decode_flag_bytes(static_cast<std::int32_t>(shares));
  for (const Recipe recipe : kRecipes) {
    const LayerCase c = small_layer(recipe, 528);
    const LayerOnGpu layer(c, decode_options());
    const DeviceArray<std::byte> memory = filled_workspace(layer, 8);
    const auto& experts = dynamic_cast<const cuda::HopperExperts&>(*layer.prepared);
    const cuda::sm90::DecodeState state = experts.decode_states->at(0);
    std::uint32_t runs = 0;
    for (const std::int64_t tokens : kTokens) {
      const DeviceBatch batch(batch_of(c, tokens, RoutePattern::uniform, 30 + runs));
      const DeviceArray<float> out(tokens * c.hidden);
      start_run(layer, batch, out, memory);
      cuda::check(cudaDeviceSynchronize(), "a run");
      const std::size_t used = runs++ % 2, next = 1 - used;
      const auto flags = download(state.flags, 2 * flag_bytes), h = download(state.h, 2 * state.h_bytes);
      const auto part = [](const std::vector<std::byte>& all, std::size_t i) {
        const auto half = static_cast<std::ptrdiff_t>(all.size() / 2), at = static_cast<std::ptrdiff_t>(i) * half;
        return std::vector<std::byte>(all.begin() + at, all.begin() + at + half);
      };
      std::uint32_t turn = 0, done = 0;
      std::memcpy(&turn, download(state.turn, 4).data(), 4);
      std::memcpy(&done, part(flags, used).data(), 4);
      const std::string what = "run " + std::to_string(runs) + " of " + c.text();
      check.expect(turn == runs * shares % (2 * shares), "the turn is " + std::to_string(turn) + " after " + what);
      check.expect(done == shares && !all_bytes(part(h, used), 0xFF), "another set was used in " + what);
      check.expect(all_bytes(part(flags, next), 0), "flags are left in " + what);
      check.expect(all_bytes(part(h, next), 0xFF), "an intermediate is left in " + what);
    }
  }
}

// Runs with fewer slots a token than the layer has, as ranks that exchange rows make them: 14 routes, where batches of
// the layer's own slots take this kernel with 8 only.
void fewer_slots(Check& check) {
  constexpr std::int64_t kTokens = 14;
  constexpr int kRuns = 6;
  for (const Recipe recipe : kRecipes) {
    LayerCase c;
    c.recipe = recipe;
    c.hidden = 1024;
    c.intermediate = recipe == Recipe::bf16 ? 2304 : recipe == Recipe::fp8_tensor ? 4096 : 2048;
    c.experts = 64;
    c.top_k = 8;
    const cuda::sm90::Shape shape{cuda::sm90_format(recipe), static_cast<std::int32_t>(c.hidden),
                                  static_cast<std::int32_t>(c.intermediate), c.experts};
    const auto pays = [&](std::int64_t tokens, std::int32_t k) {
      return cuda::sm90::decode_pays(shape, tokens, k, c.experts, cuda::device_info(0).processors);
    };
    check.expect(pays(1, c.top_k) && !pays(2, c.top_k) && pays(kTokens, 1), "other limits: " + c.text());
    const LayerOnGpu layer(c);
    LayerCase one = c;
    one.top_k = 1;
    const DeviceBatch batch(batch_of(one, kTokens, RoutePattern::uniform, 40));
    const DeviceArray<std::byte> memory = filled_workspace(layer, kTokens);
    const DeviceArray<float> out(kTokens * c.hidden);
    for (int run = 0; run < kRuns; ++run) start_run(layer, batch, out, memory);
    cuda::check(cudaDeviceSynchronize(), "runs with fewer slots");
    layer.compare(check, batch, out.download(), "one slot of eight");
    check.expect(memory.intact(), "wrote outside: " + c.text());
  }
}

// Launches of the kernel against each other and against large batches, each of which wants the whole GPU.
void streams(Check& check) {
  constexpr int kRounds = 60;
  const cuda::OwnedStream left(0), right(0);
  for (const Recipe recipe : kRecipes) {
    const LayerCase c = model_like(recipe);
    const LayerOnGpu few(c, decode_options()), many(c);
    for (const std::int64_t other : {2, 4096}) {
      const LayerOnGpu& second = other == 2 ? few : many;
      const DeviceBatch a(batch_of(c, 4, RoutePattern::uniform, 1)), b(batch_of(c, other, RoutePattern::uniform, 2));
      expect_runs(check, few, a);
      const auto expected_a = few.run(a), expected_b = second.run(b);
      const DeviceArray<float> out_a(a.tokens * a.width), out_b(b.tokens * b.width);
      const DeviceArray<std::byte> memory_a(static_cast<std::int64_t>(few.runner->workspace_bytes(few.problem, 4)));
      const DeviceArray<std::byte> memory_b(
          static_cast<std::int64_t>(second.runner->workspace_bytes(second.problem, other)));
      for (int i = 0; i < kRounds; ++i) {
        for (int j = 0; j < 8; ++j) start_run(few, a, out_a, memory_a, left.handle());
        for (int j = 0; j < (other == 2 ? 8 : 1); ++j) start_run(second, b, out_b, memory_b, right.handle());
      }
      left.synchronize();
      right.synchronize();
      check.expect(same_bits(out_a.download(), expected_a) && same_bits(out_b.download(), expected_b),
                   "beside T " + std::to_string(other) + ": " + c.text());
    }
  }
}

}  // namespace

std::vector<Test> runner_decode_memory_tests() {
  return {{"decode: reused workspace", reused_workspace},
          {"decode: many workspaces", many_workspaces},
          {"decode: states", states},
          {"decode: left for the next", left_for_next},
          {"decode: fewer slots", fewer_slots},
          {"decode: streams", streams}};
}

}  // namespace sluice::gpu_tests
