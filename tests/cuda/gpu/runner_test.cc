// The Hopper runner against the oracle: recipes, activations, formats, shapes, routing patterns, plans.
#include <string>

#include "gpu/harness.h"
#include "gpu/layer_case.h"

namespace sluice::gpu_tests {
namespace {

using sluice::testing::Batch;
using sluice::testing::Random;
using sluice::testing::RoutePattern;
using sluice::testing::WeightLayout;

constexpr ActivationKind kKinds[] = {
    ActivationKind::swiglu,         ActivationKind::geglu_erf,   ActivationKind::geglu_tanh, ActivationKind::swiglu_oai,
    ActivationKind::swiglu_clamped, ActivationKind::swiglu_step, ActivationKind::situ,       ActivationKind::relu2};

void activations(Check& check) {
  for (const Recipe recipe : kRecipes) {
    for (const ActivationKind kind : kKinds) {
      for (const bool bias : {false, true}) {
        LayerCase c;
        c.recipe = recipe;
        c.hidden = 784;
        c.intermediate = 400;
        c.activation.kind = kind;
        c.bias = bias;
        c.seed = 7 + static_cast<std::uint64_t>(kind);
        const LayerOnGpu layer(c);
        const DeviceBatch batch(batch_of(c, 33, RoutePattern::uniform, 5));
        layer.compare(check, batch, layer.run(batch), "activation");
      }
    }
  }
}

// Variants of one weight format that a checkpoint may have.
void formats(Check& check) {
  const auto run = [&](LayerCase c, const char* what) {
    c.hidden = 400;
    c.intermediate = 272;
    c.bias = true;
    const LayerOnGpu layer(c);
    const DeviceBatch batch(batch_of(c, 21, RoutePattern::zipf, 9));
    layer.compare(check, batch, layer.run(batch), what);
    layer.compare(check, batch, layer.run(batch, -1, true), "bf16 output");
  };
  for (const WeightLayout layout :
       {WeightLayout::padded, WeightLayout::transposed, WeightLayout::interleaved, WeightLayout::gpt_oss}) {
    LayerCase c;
    c.layout = layout;
    run(c, "layout");
  }
  for (const DType scale : {DType::bf16, DType::e8m0, DType::f32}) {
    LayerCase c;
    c.recipe = Recipe::fp8_block;
    c.format.block_scale = scale;
    run(c, "block scale type");
  }
  for (const bool channel : {false, true}) {
    for (const bool fixed : {false, true}) {
      LayerCase c;
      c.recipe = Recipe::fp8_tensor;
      c.format.per_channel = channel;
      c.format.static_input = fixed;
      run(c, "fp8-tensor variant");
    }
  }
  for (const Recipe recipe : kRecipes) {
    LayerCase c;
    c.recipe = recipe;
    c.top_k = 1;
    c.weight_on_input = true;
    run(c, "weight on input");
  }
}

void random_shapes(Check& check) {
  Random random(2024);
  for (int i = 0; i < check.cases; ++i) {
    LayerCase c;
    c.recipe = kRecipes[i % 3];
    c.hidden = 16 * (1 + random.below(i % 5 == 0 ? 64 : 20));
    c.intermediate = 16 * (1 + random.below(i % 7 == 0 ? 64 : 20));
    c.experts = 1 + random.below(i % 4 == 0 ? 24 : 6);
    c.top_k = 1 + random.below(std::min(c.experts, 8));
    c.activation.kind = kKinds[random.below(8)];
    c.bias = random.below(2) == 0;
    c.format.static_input = random.below(2) == 0;
    c.format.per_channel = random.below(2) == 0;
    c.seed = static_cast<std::uint64_t>(i) + 1;
    const SlotRange slots = random_slots(random, c.experts);
    const auto pattern = static_cast<RoutePattern>(random.below(4));
    const std::int64_t tokens = 1 + random.below(i % 6 == 0 ? 300 : 30);
    Batch host = batch_of(c, tokens, pattern, c.seed);
    skip_some(random, host, c.experts);
    const std::int32_t valid = random.below(5) == 0 ? random.below(static_cast<std::int32_t>(tokens) + 1) : -1;
    const LayerOnGpu layer(c, {}, slots);
    const DeviceBatch batch(host);
    layer.compare(check, batch, layer.run(batch, valid, random.below(3) == 0), "random shape", 8, valid);
  }
  check.note(std::to_string(check.cases) + " shapes");
}

void patterns(Check& check) {
  for (const Recipe recipe : kRecipes) {
    LayerCase c;
    c.recipe = recipe;
    c.hidden = 512;
    c.intermediate = 384;
    c.experts = 16;
    c.top_k = 4;
    const LayerOnGpu layer(c);
    for (const RoutePattern pattern :
         {RoutePattern::uniform, RoutePattern::zipf, RoutePattern::hot_one, RoutePattern::all_to_one}) {
      for (const std::int64_t tokens : {1, 5, 64, 700}) {
        const DeviceBatch batch(batch_of(c, tokens, pattern, 3));
        layer.compare(check, batch, layer.run(batch), "pattern " + std::to_string(static_cast<int>(pattern)));
      }
    }
    Batch none = batch_of(c, 12, RoutePattern::uniform, 3);
    std::fill(none.ids.begin(), none.ids.end(), kNoSlot);
    const auto zeros = layer.run(DeviceBatch(none));
    check.expect(std::all_of(zeros.begin(), zeros.end(), [](float v) { return v == 0.0f; }), "no row at all");
    const DeviceBatch nothing(batch_of(c, 0, RoutePattern::uniform, 3));
    check.expect(layer.run(nothing).empty(), "T = 0");
  }
}

// Every plan on one shape, also those that the choice would not take there.
void plans(Check& check) {
  for (const Recipe recipe : kRecipes) {
    for (const int tile : {0, 8, 16, 32, 64, 128}) {  // 0 = the kernel for a few tokens
      for (const int split : {1, 2}) {
        if ((tile == 0 || tile > 16) && split > 1) continue;  // there is no such instance
        LayerCase c;
        c.recipe = recipe;
        c.hidden = 1040;
        c.intermediate = 784;
        c.experts = 6;
        c.top_k = 3;
        c.bias = true;
        cuda::HopperOptions options{tile, split};
        options.decode = tile == 0 ? 1 : -1;
        const LayerOnGpu layer(c, options);
        for (const std::int64_t tokens : {3, tile == 0 ? 10 : 150}) {
          const DeviceBatch batch(batch_of(c, tokens, RoutePattern::zipf, 4));
          layer.compare(
              check, batch, layer.run(batch),
              "tile " + std::to_string(tile) + " split " + std::to_string(split) + " T " + std::to_string(tokens), 12);
        }
      }
    }
  }
}

// Both sides of the token counts where plans change, on a model's shape with fewer experts.
void thresholds(Check& check) {
  for (const Recipe recipe : kRecipes) {
    LayerCase c;
    c.recipe = recipe;
    c.hidden = 1024;
    c.intermediate = 768;
    c.experts = 12;
    c.top_k = 4;
    const LayerOnGpu layer(c), without(c, ways_of_few_tokens().front());
    for (const std::int64_t tokens :
         {1,   2,   3,   4,   5,   7,   8,   9,   15,  16,   17,   24,   31,   32,   33,   47,
          48,  49,  63,  64,  65,  95,  96,  97,  127, 128,  129,  191,  192,  193,  255,  256,
          257, 383, 384, 385, 511, 512, 513, 767, 768, 1023, 1024, 1025, 2047, 2048, 2049, 3000}) {
      const DeviceBatch batch(batch_of(c, tokens, RoutePattern::uniform, 6));
      layer.compare(check, batch, layer.run(batch), "T " + std::to_string(tokens), 6);
      if (tokens < 10)
        layer.compare(check, batch, without.run(batch), "without one launch, T " + std::to_string(tokens));
    }
  }
}

}  // namespace

std::vector<Test> runner_tests() {
  return {{"runner: activations and biases", activations},
          {"runner: weight formats and layouts", formats},
          {"runner: random shapes", random_shapes},
          {"runner: routing patterns", patterns},
          {"runner: every plan", plans},
          {"runner: token counts", thresholds}};
}

}  // namespace sluice::gpu_tests
