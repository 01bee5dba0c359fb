// The kernel for a few tokens (cuda/sm90/decode.h) wherever it can run, also where the plan would not take it: against
// the oracle, and blocks that start late.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "gpu/decode_case.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Batch;
using sluice::testing::Random;
using sluice::testing::RoutePattern;

constexpr std::int32_t kMostRoutes = 32;
constexpr RoutePattern kPatterns[] = {RoutePattern::uniform, RoutePattern::zipf, RoutePattern::hot_one,
                                      RoutePattern::all_to_one};

// Up to 32 routes of layers of all kinds, with skipped ids, local ranges, padding and duplicates.
void random_shapes(Check& check) {
  Random random(77);
  int ran = 0;
  for (int i = 0; i < check.cases; ++i) {
    LayerCase c;
    c.recipe = kRecipes[i % 3];
    c.hidden = 16 * (1 + random.below(i % 5 == 0 ? 128 : 20));
    c.intermediate = 16 * (1 + random.below(i % 7 == 0 ? 128 : 20));
    c.experts = 1 + random.below(i % 4 == 0 ? 40 : 6);
    c.top_k = 1 + random.below(std::min(c.experts, 8));
    c.activation.kind = static_cast<ActivationKind>(random.below(8));
    c.bias = random.below(2) == 0;
    c.weight_on_input = c.top_k == 1 && random.below(2) == 0;
    c.format.per_channel = random.below(2) == 0;
    c.seed = static_cast<std::uint64_t>(i) + 1;
    const SlotRange slots = random_slots(random, c.experts);
    const std::int64_t tokens = 1 + random.below(kMostRoutes / c.top_k);
    Batch host = batch_of(c, tokens, kPatterns[random.below(4)], c.seed);
    skip_some(random, host, c.experts);
    const std::int32_t valid = random.below(5) == 0 ? random.below(static_cast<std::int32_t>(tokens) + 1) : -1;
    const LayerOnGpu layer(c, decode_options(), slots);
    const DeviceBatch batch(host);
    const bool fits = sizes_of(c, tokens).bytes != 0;  // a few do not
    if (fits) expect_runs(check, layer, batch);
    ran += fits ? 1 : 0;
    layer.compare(check, batch, layer.run(batch, valid, random.below(3) == 0), "random shape", kMostRoutes, valid);
  }
  check.note(std::to_string(check.cases) + " shapes, of which " + std::to_string(ran) + " fit");
}

// More slots a token than the sum takes at a time.
void many_slots(Check& check) {
  Random random(78);
  const int cases = std::max(check.cases / 6, 6);
  for (int i = 0; i < cases; ++i) {
    LayerCase c;
    c.recipe = kRecipes[i % 3];
    c.hidden = 16 * (4 + random.below(17));
    c.intermediate = 16 * (8 + random.below(23));
    c.top_k = 9 + random.below(kMostRoutes - 8);
    c.experts = c.top_k + random.below(41 - c.top_k);
    c.activation.kind = static_cast<ActivationKind>(random.below(8));
    c.bias = random.below(2) == 0;
    c.seed = static_cast<std::uint64_t>(i) + 1;
    const std::int64_t tokens = 1 + random.below(kMostRoutes / c.top_k);
    Batch host = batch_of(c, tokens, RoutePattern::uniform, c.seed);
    skip_some(random, host, c.experts);
    const LayerOnGpu layer(c, decode_options());
    const DeviceBatch batch(host);
    expect_runs(check, layer, batch);
    layer.compare(check, batch, layer.run(batch, -1, random.below(3) == 0), "many slots");
  }
  check.note(std::to_string(cases) + " shapes");
}

// One token of many routes; of 31 and 32 the intermediate does not fit in shared memory at once.
void one_token(Check& check) {
  for (const Recipe recipe : kRecipes) {
    for (const std::int32_t k : {16, 31, 32}) {
      LayerCase c;
      c.recipe = recipe;
      c.hidden = 80;
      c.intermediate = k == 16 ? 784 : 1792;
      c.experts = 40;
      c.top_k = k;
      c.bias = true;
      check.expect((sizes_of(c, 1).h_rows < k) == (k != 16), "rounds of FC2: " + c.text());
      const LayerOnGpu layer(c, decode_options());
      const DeviceBatch batch(batch_of(c, 1, RoutePattern::uniform, 9));
      expect_runs(check, layer, batch);
      layer.compare(check, batch, layer.run(batch), "one token");
    }
  }
}

// Rows that cannot be read 16 bytes at a time, and outputs with room between rows.
void strides(Check& check) {
  constexpr std::int64_t kTokens = 5;
  for (const Recipe recipe : kRecipes) {
    LayerCase c;
    c.recipe = recipe;
    c.hidden = 400;
    c.top_k = 4;
    const LayerOnGpu layer(c, decode_options());
    const Batch host = batch_of(c, kTokens, RoutePattern::uniform, 3);
    const DeviceBatch batch(host);
    expect_runs(check, layer, batch);
    const auto expected = layer.run(batch);
    for (const std::int64_t spare : {1, 4, 8}) {
      const std::int64_t stride = c.hidden + spare;
      const DeviceArray<Bf16> rows(kTokens * stride);
      const DeviceArray<float> out(kTokens * stride);
      for (std::int64_t t = 0; t < kTokens; ++t) {
        cuda::copy_to_device(rows.data() + t * stride, host.view().row<Bf16>(t), static_cast<std::size_t>(c.hidden) * 2,
                             "upload");
      }
      const DeviceArray<std::byte> memory(
          static_cast<std::int64_t>(layer.runner->workspace_bytes(layer.problem, kTokens)));
      Workspace workspace(memory.data(), memory.bytes());
      RunArgs args = layer.run_args(batch, workspace);
      args.hidden.data = rows.data();
      args.hidden.row_stride = stride;
      args.sum = dense_view(out.data(), DType::f32, kTokens, c.hidden);
      args.sum.row_stride = stride;
      layer.runner->run(*layer.prepared, args);
      cuda::check(cudaDeviceSynchronize(), "a run");
      const auto got = out.download();
      std::vector<float> dense;
      bool untouched = true;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const auto row = std::span(got).subspan(static_cast<std::size_t>(t * stride), static_cast<std::size_t>(stride));
        dense.insert(dense.end(), row.begin(), row.begin() + c.hidden);
        for (const float v : row.subspan(static_cast<std::size_t>(c.hidden))) untouched = untouched && v != v;
      }
      const std::string what = std::to_string(spare) + " spare columns: " + c.text();
      check.expect(same_bits(dense, expected), "other bits with " + what);
      check.expect(untouched && out.intact() && memory.intact(), "wrote outside with " + what);
    }
  }
}

// Blocks of a launch that start when others have ended: these compute FC1 of the late ones, which find it done.
void late_blocks(Check& check) {
  for (const Recipe recipe : kRecipes) {
    LayerCase c;
    c.recipe = recipe;
    c.hidden = 1040;
    c.intermediate = 784;
    c.experts = 12;
    c.top_k = 4;
    c.bias = true;
    const LayerOnGpu layer(c, decode_options());
    for (const std::int64_t tokens : {1, 8}) {
      const DeviceBatch batch(batch_of(c, tokens, RoutePattern::zipf, 4));
      expect_runs(check, layer, batch);
      const auto expected = layer.run(batch);
      layer.compare(check, batch, expected, "in one launch");
      for (const int launches : {2, 3, 66}) {
        const LayerOnGpu late(c, decode_options(launches));
        check.expect(same_bits(late.run(batch), expected), std::to_string(launches) + " launches: " + c.text());
      }
    }
  }
}

// NaN of both signs and infinities in x. In the intermediate "not written" is a NaN, too: a block that took one for the
// other would wait for ever. Other tokens have the bits that they have alone.
void no_numbers(Check& check) {
  constexpr std::int64_t kTokens = 4;
  constexpr std::uint16_t kBits[] = {0x7fc0, 0xffff, 0x7f80, 0xff80};  // nan, -nan, inf, -inf
  for (const Recipe recipe : kRecipes) {
    LayerCase c;
    c.recipe = recipe;
    c.hidden = 528;
    c.intermediate = 400;
    c.top_k = 4;
    cuda::HopperOptions without;
    without.decode = -1;
    const LayerOnGpu layer(c, decode_options()), other(c, without);
    Batch host = batch_of(c, kTokens, RoutePattern::uniform, 5);
    expect_runs(check, layer, DeviceBatch(host));
    const auto expected = layer.run(DeviceBatch(host));
    for (const std::uint16_t bits : kBits) {
      Batch changed = host;
      std::memcpy(changed.hidden.data() + (c.hidden + 77) * 2, &bits, 2);  // of token 1
      const DeviceBatch batch(changed);
      const auto got = layer.run(batch), three = other.run(batch);
      bool alike = true, others = true;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const bool mine = static_cast<std::int64_t>(i) / c.hidden == 1;
        alike = alike && (!mine || (got[i] != got[i]) == (three[i] != three[i]));
        others = others && (mine || got[i] == expected[i]);
      }
      const std::string what = std::to_string(bits) + ": " + c.text();
      check.expect(alike, "NaN where the other kernels have numbers with " + what);
      check.expect(others, "other tokens changed with " + what);
    }
  }
}

// An intermediate of which few rows fit in shared memory, so that chunks are small: FC1 of a block takes several
// stretches, and FC2, too.
void many_stretches(Check& check) {
  constexpr std::int64_t kTokens = 32;
  for (const Recipe recipe : kRecipes) {
    LayerCase c;
    c.recipe = recipe;
    c.hidden = 144;
    c.intermediate = 16384;
    c.experts = 1;
    c.top_k = 1;
    const cuda::sm90::DecodeSizes s = sizes_of(c, kTokens);
    const std::int64_t chunks = (kTokens + s.chunk_rows - 1) / std::max(s.chunk_rows, 1);
    check.expect(chunks * s.groups1 > std::int64_t{s.cap1} * s.shares, "FC1 takes one stretch: " + c.text());
    const LayerOnGpu layer(c, decode_options()), late(c, decode_options(3));
    const DeviceBatch batch(batch_of(c, kTokens, RoutePattern::uniform, 8));
    expect_runs(check, layer, batch);
    const auto got = layer.run(batch);
    layer.compare(check, batch, got, "many stretches");
    check.expect(same_bits(late.run(batch), got), "3 launches: " + c.text());
  }
}

void routes_output(Check& check) {
  const Facade facade(decode_options());
  for (const Recipe recipe : kRecipes) {
    LayerCase c;
    c.recipe = recipe;
    c.hidden = 528;
    c.top_k = 4;
    const Batch batch = batch_of(c, 7, RoutePattern::zipf, 6);
    expect_runs(check, LayerOnGpu(c, decode_options()), DeviceBatch(batch));
    expect_sum_of_routes(check, facade, c, batch);
  }
}

}  // namespace

std::vector<Test> runner_decode_tests() {
  return {{"decode: random shapes", random_shapes},   {"decode: many slots", many_slots},
          {"decode: one token", one_token},           {"decode: strides", strides},
          {"decode: late blocks", late_blocks},       {"decode: no numbers", no_numbers},
          {"decode: many stretches", many_stretches}, {"decode: routes", routes_output}};
}

}  // namespace sluice::gpu_tests
