// Row-invariance: the bits of a row of attention do not depend on what else is computed with it, or how.
#include "attention_world.h"

namespace sluice::cpu {
namespace {

struct Setting {
  Isa isa = Isa::scalar;
  AttentionCase shape;
};

std::vector<Setting> settings() {
  const std::vector<std::int64_t> contexts{620, 300, 37, 1};
  const std::vector<AttentionCase> shapes{
      {.heads = 4, .kv_heads = 2, .head_dim = 64, .contexts = contexts},
      {.heads = 3, .kv_heads = 3, .head_dim = 40, .window = 100, .contexts = contexts},
      {.heads = 10, .kv_heads = 2, .head_dim = 32, .window = 270, .sinks = true, .contexts = contexts},
      {.heads = 6, .kv_heads = 1, .head_dim = 48, .sinks = true, .dtype = DType::f32, .contexts = contexts},
      {.heads = 5, .kv_heads = 1, .head_dim = 72, .value_dim = 56, .contexts = contexts},
      {.heads = 40, .kv_heads = 1, .head_dim = 48, .value_dim = 32, .dtype = DType::f32, .contexts = contexts}};
  std::vector<Setting> all;
  for (const Isa isa : available_isas()) {
    for (const AttentionCase& shape : shapes) all.push_back({isa, shape});
  }
  return all;
}

class AttentionRowsTest : public testing::TestWithParam<Setting> {
 protected:
  std::size_t width() const {
    return static_cast<std::size_t>(shape().heads) * static_cast<std::size_t>(shape().values());
  }
  const AttentionCase& shape() const { return GetParam().shape; }

  // Each sequence alone, one token after the other, on one thread: what every other way must reproduce.
  std::vector<std::vector<std::uint32_t>> token_by_token(const AttentionWorld& world) const {
    ThreadPool pool(1);
    CpuBackend backend(pool, GetParam().isa);
    const std::unique_ptr<KvCache> cache = world.make_cache(backend);
    std::vector<std::vector<std::uint32_t>> rows;
    for (const QuerySpan& all : world.everything()) {
      std::vector<std::uint32_t> bits;
      for (std::int64_t p = 0; p < all.last; ++p) {
        world.store(backend, *cache, {{all.sequence, p, p + 1}});
        const std::vector<std::uint32_t> row = bits_of(world.attend(backend, *cache, {{all.sequence, p, p + 1}}));
        bits.insert(bits.end(), row.begin(), row.end());
      }
      rows.push_back(bits);
    }
    return rows;
  }

  // One step: stores the spans' keys, then compares the spans' rows.
  void expect_same(CpuBackend& backend, KvCache& cache, const AttentionWorld& world,
                   const std::vector<QuerySpan>& spans, const std::vector<std::vector<std::uint32_t>>& expected) const {
    world.store(backend, cache, spans);
    const std::vector<std::uint32_t> bits = bits_of(world.attend(backend, cache, spans));
    std::size_t at = 0;
    for (const QuerySpan& span : spans) {
      for (std::size_t i = static_cast<std::size_t>(span.first) * width();
           i < static_cast<std::size_t>(span.last) * width(); ++i, ++at) {
        ASSERT_EQ(bits[at], expected[span.sequence][i])
            << shape().describe() << "; sequence " << span.sequence << " position " << i / width() << ", step with "
            << bits.size() / width() << " rows";
      }
    }
  }
};

TEST_P(AttentionRowsTest, BatchChunksAndThreads) {
  const AttentionWorld world(shape(), 21);
  const std::vector<std::vector<std::uint32_t>> expected = token_by_token(world);
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    CpuBackend backend(pool, GetParam().isa);
    const std::unique_ptr<KvCache> together = world.make_cache(backend);
    expect_same(backend, *together, world, world.everything(), expected);  // all prompts in one go
    for (const std::int64_t chunk :
         threads == 1 ? std::vector<std::int64_t>{7, 64} : std::vector<std::int64_t>{100, 300}) {
      const std::unique_ptr<KvCache> cache = world.make_cache(backend);
      for (std::int64_t first = 0; first < world.longest(); first += chunk) {  // all prompts, cut into chunks
        std::vector<QuerySpan> spans;
        for (const QuerySpan& all : world.everything()) {
          if (first < all.last) spans.push_back({all.sequence, first, std::min(all.last, first + chunk)});
        }
        std::reverse(spans.begin(), spans.end());
        expect_same(backend, *cache, world, spans, expected);
      }
    }
  }
}

// A prompt chunk of one sequence with single tokens of the others, as continuous batching does it.
TEST_P(AttentionRowsTest, PromptsAmongDecodes) {
  const AttentionWorld world(shape(), 22);
  const std::vector<std::vector<std::uint32_t>> expected = token_by_token(world);
  ThreadPool pool(2);
  CpuBackend backend(pool, GetParam().isa);
  const std::unique_ptr<KvCache> cache = world.make_cache(backend);
  expect_same(backend, *cache, world, {{1, 0, 290}, {2, 0, 30}}, expected);
  for (std::int64_t i = 0; i < 7; ++i) {
    expect_same(backend, *cache, world, {{1, 290 + i, 291 + i}, {0, 80 * i, 80 * i + 80}, {2, 30 + i, 31 + i}},
                expected);
  }
}

TEST_P(AttentionRowsTest, BlockSize) {
  const AttentionWorld world(shape(), 23);
  const std::vector<std::vector<std::uint32_t>> expected = token_by_token(world);
  AttentionCase other = shape();
  other.block_tokens = 96;
  const AttentionWorld same_numbers(other, 23);
  ThreadPool pool(2);
  CpuBackend backend(pool, GetParam().isa);
  const std::unique_ptr<KvCache> cache = same_numbers.make_cache(backend);
  expect_same(backend, *cache, same_numbers, same_numbers.everything(), expected);
}

std::string setting_name(const testing::TestParamInfo<Setting>& info) {
  return isa_test_name({info.param.isa, 0}) + "_" + std::to_string(info.param.shape.heads) + "_heads";
}

INSTANTIATE_TEST_SUITE_P(Isa, AttentionRowsTest, testing::ValuesIn(settings()), setting_name);

// With few threads the scratch memory holds fewer chunks, so that the carried part differs.
TEST(AttentionWaves, LongContextOnAnyNumberOfThreads) {
  const AttentionCase shape{
      .heads = 32, .kv_heads = 1, .head_dim = 128, .block_tokens = 256, .contexts = {17000, 9000}, .queries = 2};
  const AttentionWorld world(shape, 24);
  const std::vector<QuerySpan> spans{{0, 16998, 17000}, {1, 8999, 9000}};
  std::vector<std::vector<std::uint32_t>> results;
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    CpuBackend backend(pool, choose_isa(detect_features()));
    const std::unique_ptr<KvCache> cache = world.make_cache(backend);
    world.store(backend, *cache, world.everything());
    results.push_back(bits_of(world.attend(backend, *cache, spans)));
  }
  for (const auto& r : results) EXPECT_EQ(r, results[0]);
}

}  // namespace
}  // namespace sluice::cpu
