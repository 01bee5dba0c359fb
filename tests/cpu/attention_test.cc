// Attention against the definition in float64, over a cache whose unused slots are NaN.
#include <random>

#include "attention_world.h"
#include "core/error.h"

namespace sluice::cpu {
namespace {

class AttentionTest : public BackendTest {
 protected:
  void check_all_rows(const AttentionCase& shape, unsigned seed) {
    const AttentionWorld world(shape, seed);
    const std::unique_ptr<KvCache> cache = world.make_cache(backend_);
    world.store(backend_, *cache, world.everything());
    world.check(world.attend(backend_, *cache, world.everything()), world.everything());
  }

  // The last `rows` rows of every sequence only, for long contexts.
  void check_last_rows(const AttentionCase& shape, std::int64_t rows, unsigned seed) {
    const AttentionWorld world(shape, seed);
    const std::unique_ptr<KvCache> cache = world.make_cache(backend_);
    world.store(backend_, *cache, world.everything());
    std::vector<QuerySpan> spans = world.everything();
    for (QuerySpan& span : spans) span.first = std::max<std::int64_t>(0, span.last - rows);
    world.check(world.attend(backend_, *cache, spans), spans);
  }
};

// One head of two columns, keys and values chosen so that softmax weights are 1/4 and 3/4.
TEST_P(AttentionTest, HandComputed) {
  const float log3 = 1.0986123f;
  KvSpec spec{.layers = 1, .kv_heads = 1, .head_dim = 2, .dtype = DType::f32};
  const std::unique_ptr<KvCache> cache = backend_.make_kv(spec, 1);
  const std::vector<std::int32_t> positions{0, 1};
  const std::vector<std::int32_t> starts{0, 2};
  const std::vector<std::int32_t> table{0};
  const BatchView batch{.tokens = 2,
                        .sequences = 1,
                        .positions = positions.data(),
                        .query_start = starts.data(),
                        .block_table = table.data(),
                        .max_blocks = 1,
                        .max_context = 2};
  const std::vector<float> k{0, 0, 0, 2};
  const std::vector<float> v{8, -4, 4, 4};
  const std::vector<float> q{1, 1, 7, log3};
  backend_.kv_store({.k = view(k, 2, 2), .v = view(v, 2, 2), .cache = cache.get(), .batch = &batch}, kStream);
  std::vector<float> out = poisoned_floats(4);
  PoisonedMemory memory;
  Workspace workspace = memory.get(backend_, 2, 2, 2);
  AttentionArgs args{
      .q = view(q, 2, 2), .cache = cache.get(), .heads = 1, .scale = 0.5f, .batch = &batch, .out = view(out, 2, 2)};
  backend_.attention(args, workspace, kStream);
  EXPECT_EQ(out[0], 8);  // the first token sees itself only
  EXPECT_EQ(out[1], -4);
  EXPECT_NEAR(out[2], 8 * 0.25 + 4 * 0.75, 4e-6);
  EXPECT_NEAR(out[3], -4 * 0.25 + 4 * 0.75, 4e-6);

  const float sink = std::log(4.0f);  // as much as both keys together: halves the output
  args.sinks = &sink;
  backend_.attention(args, workspace, kStream);
  EXPECT_NEAR(out[0], 8 * 0.2, 4e-6);  // 1 against 4
  EXPECT_NEAR(out[2], 5 * 0.5, 4e-6);
  args.window = 1;  // only itself: 3 against 4
  backend_.attention(args, workspace, kStream);
  EXPECT_NEAR(out[2], 4 * 3.0 / 7.0, 4e-6);
}

TEST_P(AttentionTest, EveryRowOfPromptsOfManyLengths) {
  check_all_rows({.heads = 4, .kv_heads = 2, .head_dim = 64, .contexts = {1, 2, 15, 16, 17, 33, 70}}, 1);
}

TEST_P(AttentionTest, ContextsCrossChunks) {
  check_last_rows({.heads = 4, .kv_heads = 1, .head_dim = 32, .contexts = {255, 256, 257, 511, 513, 800}}, 5, 2);
}

TEST_P(AttentionTest, Float32Cache) {
  check_last_rows({.heads = 4, .kv_heads = 2, .head_dim = 64, .dtype = DType::f32, .contexts = {3, 40, 300}}, 9, 3);
}

TEST_P(AttentionTest, SlidingWindow) {
  for (const std::int32_t window : {1, 2, 16, 17, 100, 256, 300}) {
    check_last_rows({.heads = 2, .kv_heads = 1, .head_dim = 16, .window = window, .contexts = {40, 330, 600}}, 35, 4);
  }
}

TEST_P(AttentionTest, Sinks) {
  check_last_rows({.heads = 6, .kv_heads = 2, .head_dim = 32, .sinks = true, .contexts = {1, 20, 300}}, 4, 5);
  check_last_rows({.heads = 6, .kv_heads = 2, .head_dim = 32, .window = 8, .sinks = true, .contexts = {1, 20, 300}}, 4,
                  6);
}

TEST_P(AttentionTest, HeadGroups) {
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int, int>>{{1, 1}, {3, 3}, {3, 1}, {5, 1}, {8, 1}, {14, 2}, {32, 1}, {40, 1}, {66, 2}}) {
    check_last_rows({.heads = heads, .kv_heads = kv_heads, .head_dim = 16, .contexts = {18, 41}}, 3, 7);
  }
}

TEST_P(AttentionTest, HeadDims) {
  for (const std::int32_t d : {1, 7, 16, 24, 40, 63, 72, 80, 112, 128, 192, 256}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      check_last_rows({.heads = 2, .kv_heads = 1, .head_dim = d, .dtype = dtype, .contexts = {5, 50}}, 3, 8);
    }
  }
}

TEST_P(AttentionTest, BlockSizes) {
  for (const std::int32_t block : {16, 32, 64, 128, 512}) {
    check_last_rows({.heads = 2, .kv_heads = 2, .head_dim = 16, .block_tokens = block, .contexts = {1, 129, 300}}, 3,
                    9);
  }
}

TEST_P(AttentionTest, RandomShapes) {
  std::mt19937 generator(10);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  for (int i = 0; i < 20; ++i) {
    AttentionCase shape;
    shape.kv_heads = pick(1, 3);
    shape.heads = shape.kv_heads * pick(1, 9);
    shape.head_dim = pick(1, 100);
    shape.window = pick(0, 1) * pick(1, 400);
    shape.sinks = pick(0, 1) == 1;
    shape.block_tokens = 16 * pick(1, 6);
    shape.dtype = pick(0, 1) == 1 ? DType::bf16 : DType::f32;
    for (int s = pick(1, 4); s > 0; --s) shape.contexts.push_back(pick(1, 400));
    check_last_rows(shape, pick(1, 12), 100 + static_cast<unsigned>(i));
  }
}

// More chunks than the scratch memory holds at once: the state of a tile is carried from wave to wave.
TEST_P(AttentionTest, ContextLongerThanTheScratch) {
  ThreadPool pool(1);
  CpuBackend backend(pool, GetParam());
  const AttentionCase shape{
      .heads = 32, .kv_heads = 1, .head_dim = 128, .block_tokens = 256, .contexts = {17000}, .queries = 1};
  const AttentionWorld world(shape, 11);
  const std::unique_ptr<KvCache> cache = world.make_cache(backend);
  world.store(backend, *cache, world.everything());
  world.check(world.attend(backend, *cache, {{0, 16999, 17000}}), {{0, 16999, 17000}});
}

TEST_P(AttentionTest, OutputInBf16IsTheRoundedResult) {
  const AttentionCase shape{.heads = 2, .kv_heads = 1, .head_dim = 24, .contexts = {30}};
  const AttentionWorld world(shape, 12);
  const std::unique_ptr<KvCache> cache = world.make_cache(backend_);
  world.store(backend_, *cache, world.everything());
  const std::vector<float> exact = world.attend(backend_, *cache, world.everything());
  std::vector<std::uint16_t> rounded;
  for (const float x : exact) rounded.push_back(to_bf16(x).bits);
  EXPECT_EQ(world.attend_bf16(backend_, *cache, world.everything()), rounded);
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  AttentionCase shape{.heads = 2, .kv_heads = 1, .head_dim = 16, .dtype = DType::f32, .contexts = {300}};
  AttentionWorld world(shape, 13);
  for (float& k : world.keys(0)) k *= 1000;
  const std::unique_ptr<KvCache> cache = world.make_cache(backend_);
  world.store(backend_, *cache, world.everything());
  const std::vector<float> out = world.attend(backend_, *cache, {{0, 290, 300}});
  world.check(out, {{0, 290, 300}});
}

TEST_P(AttentionTest, NotANumberStaysInTheRowsThatSeeIt) {
  AttentionCase shape{.heads = 1, .kv_heads = 1, .head_dim = 16, .contexts = {40}};
  AttentionWorld clean(shape, 14);
  AttentionWorld world(shape, 14);
  world.keys(0)[20 * 16 + 3] = std::numeric_limits<float>::quiet_NaN();
  const std::unique_ptr<KvCache> clean_cache = clean.make_cache(backend_);
  const std::unique_ptr<KvCache> cache = world.make_cache(backend_);
  clean.store(backend_, *clean_cache, clean.everything());
  world.store(backend_, *cache, world.everything());
  const std::vector<std::uint32_t> expected = bits_of(clean.attend(backend_, *clean_cache, clean.everything()));
  const std::vector<float> out = world.attend(backend_, *cache, world.everything());
  const std::vector<std::uint32_t> bits = bits_of(out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i < 20 * 16) {
      ASSERT_EQ(bits[i], expected[i]) << i;
    } else {
      ASSERT_TRUE(std::isnan(out[i])) << i;
    }
  }
}

TEST_P(AttentionTest, NoTokens) {
  const AttentionWorld world({.contexts = {5}}, 15);
  const std::unique_ptr<KvCache> cache = world.make_cache(backend_);
  EXPECT_TRUE(world.attend(backend_, *cache, {}).empty());
  EXPECT_TRUE(world.attend(backend_, *cache, {{0, 3, 3}, {0, 0, 0}}).empty());
  world.store(backend_, *cache, {});
}

TEST_P(AttentionTest, EmptySequencesAmongOthers) {
  const AttentionWorld world({.contexts = {5, 9}}, 16);
  const std::unique_ptr<KvCache> cache = world.make_cache(backend_);
  const std::vector<QuerySpan> spans{{0, 0, 0}, {0, 0, 5}, {1, 4, 4}, {1, 0, 9}, {0, 5, 5}};
  world.store(backend_, *cache, spans);
  world.check(world.attend(backend_, *cache, spans), spans);
}

TEST_P(AttentionTest, RefusesWhatItCannotDo) {
  EXPECT_THROW(backend_.make_kv({.layers = 1, .kv_heads = 1, .head_dim = 8, .block_tokens = 8}, 1), Error);
  EXPECT_THROW(backend_.make_kv({.layers = 1, .kv_heads = 1, .head_dim = 8, .dtype = DType::e4m3}, 1), Error);
  // Values narrower than keys belong to a latent, which has one head and no values of its own.
  EXPECT_THROW(backend_.make_kv({.layers = 1, .kv_heads = 1, .head_dim = 8, .value_dim = 4}, 1), Error);
  const KvSpec::Kind latent = KvSpec::Kind::mla_latent;
  EXPECT_THROW(backend_.make_kv({.kind = latent, .layers = 1, .kv_heads = 2, .head_dim = 8, .value_dim = 4}, 1), Error);
  EXPECT_THROW(backend_.make_kv({.kind = latent, .layers = 1, .kv_heads = 1, .head_dim = 8, .value_dim = 9}, 1), Error);
  const AttentionWorld world({.contexts = {20}}, 17);
  const std::unique_ptr<KvCache> cache = world.make_cache(backend_);
  StepBatch batch = world.batch({{0, 0, 20}});
  batch.table[1] = -1;  // tokens 16 to 19 have no block
  std::vector<float> kv(20 * 2 * 64);
  KvStoreArgs args{
      .k = view(kv, 20, 128), .v = view(kv, 20, 128), .cache = cache.get(), .layer = 1, .batch = &batch.view};
  EXPECT_THROW(backend_.kv_store(args, kStream), Error);
  args.layer = 2;
  EXPECT_THROW(backend_.kv_store(args, kStream), Error);
}

INSTANTIATE_TEST_SUITE_P(Isa, AttentionTest, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace sluice::cpu
