// Attention over a cache of latents, each key and value at once, against the definition in float64.
//
// Faults that were put in by hand, one at a time, each seen failing here: a window one key longer; one key shorter;
// accumulators as far apart as keys are wide instead of values.
#include "attention_world.h"

namespace sluice::cpu {
namespace {

class LatentAttentionTest : public BackendTest {
 protected:
  // The last `rows` rows of every sequence.
  void check(const AttentionCase& shape, unsigned seed, std::int64_t rows = 1 << 20) {
    const AttentionWorld world(shape, seed);
    const std::unique_ptr<KvCache> cache = world.make_cache(backend_);
    world.store(backend_, *cache, world.everything());
    std::vector<QuerySpan> spans = world.everything();
    for (QuerySpan& span : spans) span.first = std::max<std::int64_t>(0, span.last - rows);
    world.check(world.attend(backend_, *cache, spans), spans);
  }
};

TEST_P(LatentAttentionTest, EveryRow) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    check({.heads = 3, .kv_heads = 1, .head_dim = 32, .value_dim = 16, .dtype = dtype, .contexts = {1, 15, 16, 17, 70}},
          31);
    check({.heads = 4, .kv_heads = 1, .head_dim = 160, .value_dim = 128, .dtype = dtype, .contexts = {35}}, 32);
  }
}

// DeepSeek-V3: more heads than a tile has rows.
TEST_P(LatentAttentionTest, FullSize) {
  check({.heads = 128, .kv_heads = 1, .head_dim = 576, .value_dim = 512, .contexts = {300}}, 33, 1);
}

// Neither width a multiple of 16; words that are left over when a panel is turned over.
TEST_P(LatentAttentionTest, OddWidths) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    check({.heads = 2, .kv_heads = 1, .head_dim = 47, .value_dim = 41, .dtype = dtype, .contexts = {40}}, 34);
    check({.heads = 2, .kv_heads = 1, .head_dim = 9, .value_dim = 3, .dtype = dtype, .contexts = {40}}, 35);
    check({.heads = 2, .kv_heads = 1, .head_dim = 24, .value_dim = 24, .dtype = dtype, .contexts = {40}}, 36);
  }
}

TEST_P(LatentAttentionTest, SeveralChunks) {
  check({.heads = 6, .kv_heads = 1, .head_dim = 96, .value_dim = 64, .block_tokens = 32, .contexts = {257, 1100}}, 37,
        2);
}

TEST_P(LatentAttentionTest, WindowAndSinks) {
  check({.heads = 2, .kv_heads = 1, .head_dim = 32, .value_dim = 16, .window = 33, .sinks = true, .contexts = {100}},
        38);
  check({.heads = 2, .kv_heads = 1, .head_dim = 32, .value_dim = 16, .window = 270, .contexts = {600}}, 39, 20);
}

// One row a token for all heads is what makes it worth having.
TEST_P(LatentAttentionTest, CacheHoldsEveryLatentOnce) {
  const KvSpec spec{.kind = KvSpec::Kind::mla_latent, .layers = 61, .kv_heads = 1, .head_dim = 576, .value_dim = 512};
  EXPECT_EQ(spec.bytes_per_token(), 61 * 576 * 2);
}

INSTANTIATE_TEST_SUITE_P(Isa, LatentAttentionTest, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace sluice::cpu
