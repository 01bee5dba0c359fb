// R against moe/permutation.h and the quantisers of numerics/, bit by bit.
#include "cuda/route.h"

#include <algorithm>
#include <span>
#include <string>

#include "gpu/device_array.h"
#include "gpu/harness.h"
#include "moe/permutation.h"
#include "moe/random_layer.h"
#include "numerics/bf16.h"
#include "numerics/block_fp8.h"

namespace sluice::gpu_tests {
namespace {

using cuda::InputForm;
using cuda::RowsAs;
using sluice::testing::Random;

struct RouteCase {
  std::int64_t tokens = 1;
  std::int32_t top_k = 1, experts = 1, first_slot = 0, all_slots = 1;
  std::int64_t width = 16;
  InputForm form = InputForm::bf16;
  std::int32_t token_tile = 16;
  std::int64_t valid = -1;
  bool weighted = false;  // weight_on_input
  int pattern = 0;        // 0 uniform with foreign ids, 1 all to one, 2 the first few experts
  std::int64_t spare_columns = 0;
  std::int32_t processors = 132;
  RowsAs rows = RowsAs::sorted;  // where the plan allows
  std::string text() const {
    return "T " + std::to_string(tokens) + " k " + std::to_string(top_k) + " E " + std::to_string(experts) + " H " +
           std::to_string(width) + " form " + std::to_string(static_cast<int>(form)) + " tile " +
           std::to_string(token_tile) + " pattern " + std::to_string(pattern) + " valid " + std::to_string(valid) +
           " processors " + std::to_string(processors) + " rows " + std::to_string(static_cast<int>(rows));
  }
};

struct RouteInputs {
  std::vector<std::int32_t> ids;
  std::vector<Bf16> hidden;  // [T, width + spare]
  std::vector<float> weights;
};

// Zeros of both signs, subnormals, the largest numbers, infinities, and NaN of both signs (whose sign a product may
// lose).
Bf16 odd_number(Random& random, bool weighted) {
  constexpr std::uint16_t kOdd[] = {0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0x7F7F,
                                    0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFC0};
  return Bf16{kOdd[random.below(weighted ? 9 : 11)]};
}

RouteInputs make_inputs(const RouteCase& c, std::uint64_t seed) {
  Random random(seed);
  RouteInputs in;
  for (std::int64_t r = 0; r < c.tokens * c.top_k; ++r) {
    std::int32_t id = random.below(c.all_slots + 2) - 1;  // -1 and one beyond the last slot, too
    if (c.pattern == 1) id = c.first_slot + c.experts - 1;
    if (c.pattern == 2) id = c.first_slot + std::min(random.below(c.experts), random.below(4));
    if (random.below(97) == 0) id = 0x7FFFFFFF - random.below(2);
    in.ids.push_back(id);
  }
  for (std::int64_t i = 0; i < c.tokens * (c.width + c.spare_columns); ++i) {
    in.hidden.push_back(to_bf16(random.symmetric(1.0f) * (random.below(50) == 0 ? 300.0f : 1.0f)));
    if (random.below(300) == 0) in.hidden.back() = odd_number(random, c.weighted);
  }
  for (std::int64_t t = 0; t < c.tokens * c.top_k; ++t) in.weights.push_back(0.25f + random.unit());
  if (c.tokens > 2) std::fill_n(in.hidden.begin() + (c.width + c.spare_columns), c.width, Bf16{});  // a row of zeros
  return in;
}

// One token row as the recipe quantises it.
struct Row {
  std::vector<std::uint8_t> bytes;  // [k_blocks * 128]
  std::vector<float> scales;        // fp8_group: one a K block; other fp8 forms: one
};

Row expected_row(const RouteCase& c, const RouteInputs& in, std::int64_t t, std::int32_t k_blocks, float static_scale) {
  std::vector<float> values;
  const Bf16* hidden = in.hidden.data() + t * (c.width + c.spare_columns);
  for (std::int64_t i = 0; i < c.width; ++i) {
    const float v = to_float(hidden[i]);
    values.push_back(c.weighted ? round_to_bf16(in.weights[t] * v) : v);
  }
  Row row{std::vector<std::uint8_t>(static_cast<std::size_t>(k_blocks) * 128), {}};
  if (c.form == InputForm::bf16) {
    for (std::int64_t i = 0; i < c.width; ++i) {
      const std::uint16_t bits = to_bf16(values[i]).bits;
      row.bytes[2 * i] = static_cast<std::uint8_t>(bits);
      row.bytes[2 * i + 1] = static_cast<std::uint8_t>(bits >> 8);
    }
    return row;
  }
  const auto codes = std::span(row.bytes).first(static_cast<std::size_t>(c.width));
  if (c.form == InputForm::fp8_group) {
    row.scales.resize(static_cast<std::size_t>((c.width + 127) / 128));
    quantize_fp8_group_row(values, codes, row.scales);
  } else {
    row.scales = {c.form == InputForm::fp8_static ? static_scale : fp8_scale(finite_amax(values))};
    quantize_fp8_row_with_scale(values, row.scales[0], codes);
  }
  return row;
}

struct RouteOutputs {
  DeviceArray<std::int32_t> scratch, route_row, row_token, tile_count;
  DeviceArray<cuda::sm90::TokenTile> tiles;
  DeviceArray<std::uint32_t> ready, published;
  DeviceArray<std::uint8_t> image;
  DeviceArray<float> scales;
};

bool same_tile(const cuda::sm90::TokenTile& a, const cuda::sm90::TokenTile& b) {
  return a.expert == b.expert && a.first_row == b.first_row && a.rows == b.rows && a.first == b.first &&
         a.count == b.count && a.each == b.each && a.last_rows == b.last_rows;
}

void check_tables(Check& check, const RouteCase& c, const cuda::RouteArgs& a, const RouteOutputs& out,
                  const Permutation& sorted) {
  const auto tiles = out.tiles.download();
  const std::int32_t count = out.tile_count.download()[0];
  std::int32_t tile = 0, row = 0;
  bool ok = true;
  for (std::int32_t e = 0; e < c.experts; ++e) {
    const auto n = static_cast<std::int32_t>(sorted.offsets[e + 1] - sorted.offsets[e]);
    const std::int32_t first = tile, own = cuda::tiles_of_expert(n, c.token_tile);
    for (; tile < first + own; ++tile) {
      ok = ok && tile < count && tile < a.max_tiles;
      if (!ok) break;
      ok = same_tile(tiles[tile], cuda::token_tile_of(e, n, row, first, tile - first, c.token_tile, a.plan.tile_unit));
    }
    row += (n + 7) / 8 * 8;
  }
  check.expect(ok && tile == count, "tables: " + c.text());
  check.expect(row <= a.padded_rows && count <= a.max_tiles, "bounds of the host: " + c.text());
  check.expect(out.published.download()[0] == static_cast<std::uint32_t>(count) + 1, "published: " + c.text());
  const auto ready = out.ready.download();
  check.expect(std::all_of(ready.begin(), ready.end(), [](std::uint32_t v) { return v == 0; }), "ready: " + c.text());
}

// Byte b of a token's row in what was written for the padded row `row`.
std::int64_t byte_of(const cuda::RouteArgs& a, std::int64_t token, std::int32_t row, std::int64_t b) {
  if (a.rows == RowsAs::by_token) return token * a.k_blocks * 128 + b;
  return cuda::sm90::image_offset(b / 128, row, b % 128 / 16, a.padded_rows) + b % 16;
}

void check_rows(Check& check, const RouteCase& c, const cuda::RouteArgs& a, const RouteOutputs& out,
                const Permutation& sorted, const RouteInputs& in) {
  const auto route_row = out.route_row.download();
  const auto image = out.image.download();
  const auto scales = out.scales.download();
  const auto row_token = out.row_token.download();
  std::vector<std::int32_t> expected(route_row.size(), -1);
  std::int32_t first = 0;
  for (std::int32_t e = 0; e < c.experts; ++e) {
    const std::int64_t n = sorted.offsets[e + 1] - sorted.offsets[e];
    for (std::int64_t i = 0; i < n; ++i) {
      expected[sorted.routes[sorted.offsets[e] + i]] = first + static_cast<std::int32_t>(i);
    }
    first += static_cast<std::int32_t>((n + 7) / 8 * 8);
  }
  check.expect(expected == route_row, "rows of routes: " + c.text());
  if (expected != route_row) return;
  std::int64_t wrong_bytes = 0, wrong_scales = 0, wrong_tokens = 0;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const Row want = expected_row(c, in, t, a.k_blocks, a.static_scale);
    for (std::int32_t s = 0; s < c.top_k; ++s) {
      const std::int32_t row = route_row[t * c.top_k + s];
      if (row < 0) continue;
      wrong_tokens += row_token[row] != t ? 1 : 0;
      for (std::int64_t b = 0; b < a.k_blocks * 128 && a.rows != RowsAs::in_place; ++b) {
        wrong_bytes += image[byte_of(a, t, row, b)] != want.bytes[b] ? 1 : 0;
      }
      for (std::size_t g = 0; g < want.scales.size(); ++g) {
        wrong_scales += scales[static_cast<std::int64_t>(g) * a.padded_rows + row] != want.scales[g] ? 1 : 0;
      }
    }
  }
  check.expect(wrong_tokens == 0, std::to_string(wrong_tokens) + " wrong tokens of rows: " + c.text());
  check.expect(wrong_bytes == 0, std::to_string(wrong_bytes) + " wrong bytes of the image: " + c.text());
  check.expect(wrong_scales == 0, std::to_string(wrong_scales) + " wrong scales: " + c.text());
}

void check_case(Check& check, const RouteCase& c, std::uint64_t seed) {
  using cuda::sm90::ceil_div;
  const RouteInputs in = make_inputs(c, seed);
  const DeviceArray<std::int32_t> ids(in.ids);
  const DeviceArray<Bf16> hidden(in.hidden);
  const DeviceArray<float> weights(in.weights);
  const DeviceArray<std::int32_t> valid(std::vector<std::int32_t>{static_cast<std::int32_t>(c.valid)});
  cuda::RouteArgs a;
  a.k_blocks = static_cast<std::int32_t>(ceil_div(c.width, c.form == InputForm::bf16 ? 64 : 128));
  const auto format = c.form == InputForm::fp8_group ? cuda::sm90::Format::fp8_block : cuda::sm90::Format::bf16;
  const std::int32_t tile_unit = cuda::sm90::token_tile_unit(format, c.token_tile);
  a.plan = cuda::route_plan(c.tokens, c.top_k, c.experts, a.k_blocks, c.token_tile, tile_unit, c.processors,
                            c.form == InputForm::fp8_dynamic);
  a.max_tiles = static_cast<std::int32_t>(cuda::sm90::max_token_tiles(a.plan.routes(), c.experts, c.token_tile));
  a.padded_rows = cuda::sm90::max_padded_rows(a.plan.routes(), c.experts);
  RouteOutputs out{DeviceArray<std::int32_t>(static_cast<std::int64_t>(a.plan.scratch_bytes() / 4)),
                   DeviceArray<std::int32_t>(a.plan.routes()),
                   DeviceArray<std::int32_t>(a.padded_rows),
                   DeviceArray<std::int32_t>(1),
                   DeviceArray<cuda::sm90::TokenTile>(a.max_tiles),
                   DeviceArray<std::uint32_t>(a.max_tiles),
                   DeviceArray<std::uint32_t>(1),
                   DeviceArray<std::uint8_t>(a.k_blocks * a.padded_rows * 128),
                   DeviceArray<float>(c.form == InputForm::fp8_group ? a.k_blocks * a.padded_rows : a.padded_rows)};
  a.ids = ids.data();
  a.valid_tokens = c.valid >= 0 ? valid.data() : nullptr;
  a.first_slot = c.first_slot;
  a.form = c.form;
  a.hidden = hidden.data();
  a.hidden_row_stride = c.width + c.spare_columns;
  a.width = c.width;
  a.input_weights = c.weighted ? weights.data() : nullptr;
  a.static_scale = 0.0123f;
  a.later = weights.data();
  a.scratch = out.scratch.data();
  a.route_row = out.route_row.data();
  a.row_token = out.row_token.data();
  a.rows = a.plan.few ? RowsAs::sorted : c.rows;
  a.tile_count = out.tile_count.data();
  a.tiles = out.tiles.data();
  a.ready = out.ready.data();
  a.published = out.published.data();
  a.image = out.image.data();
  a.scales = out.scales.data();
  cuda::check(cuda::launch_route(a, nullptr), "launching R");
  cuda::check(cudaDeviceSynchronize(), "R");

  std::vector<SlotId> slots;
  const std::int64_t counted = (c.valid >= 0 ? std::min(c.valid, c.tokens) : c.tokens) * c.top_k;
  for (std::size_t r = 0; r < in.ids.size(); ++r) {
    slots.push_back(static_cast<std::int64_t>(r) < counted ? SlotId{in.ids[r]} : kNoSlot);
  }
  std::vector<std::byte> memory(permutation_bytes(c.tokens, c.top_k, c.experts));
  Workspace workspace(memory.data(), memory.size());
  const Permutation sorted = permute(slots.data(), c.tokens, c.top_k, {c.first_slot, c.experts}, workspace);
  check_tables(check, c, a, out, sorted);
  check_rows(check, c, a, out, sorted, in);
  check.expect(out.scratch.intact() && out.route_row.intact() && out.row_token.intact() && out.tile_count.intact() &&
                   out.tiles.intact() && out.ready.intact() && out.published.intact() && out.image.intact() &&
                   out.scales.intact(),
               "wrote outside of an array: " + c.text());
}

// `large`: more routes than one launch takes.
RouteCase random_case(Random& random, bool large) {
  constexpr std::int32_t kTiles[] = {8, 16, 32, 64, 128};
  RouteCase c;
  c.top_k = 1 + random.below(random.below(4) == 0 ? 32 : 8);
  c.tokens = 1 + random.below(random.below(3) == 0 ? 1500 : 40);
  c.experts = 1 + random.below(random.below(4) == 0 ? 600 : 40);
  c.first_slot = random.below(3) == 0 ? random.below(50) : 0;
  c.all_slots = c.first_slot + c.experts + random.below(2) * random.below(30);
  if (large) c.tokens = (66000 + random.below(14000)) / c.top_k;
  c.width = 16 * (1 + random.below(large ? 4 : 20));
  c.form = static_cast<InputForm>(random.below(4));
  c.token_tile = kTiles[random.below(5)];
  c.valid = random.below(4) == 0 ? random.below(static_cast<std::int32_t>(c.tokens) + 3) : -1;
  c.weighted = random.below(3) == 0;
  if (c.weighted && large) c.tokens *= c.top_k;
  if (c.weighted) c.top_k = 1;
  c.pattern = random.below(5) == 0 ? 1 + random.below(2) : 0;
  c.spare_columns = random.below(3) == 0 ? random.below(9) : 0;
  if (random.below(4) == 0) c.processors = 1 + random.below(8);
  if (random.below(2) == 0) c.rows = RowsAs::by_token;
  if (c.form == InputForm::bf16 && !c.weighted && random.below(3) == 0) c.rows = RowsAs::in_place;
  return c;
}

void random_cases(Check& check) {
  cuda::check(cuda::prepare_route(), "preparing R");
  Random random(11);
  for (int i = 0; i < check.cases; ++i) {
    check_case(check, random_case(random, i % 25 == 24), 1000u + static_cast<std::uint64_t>(i));
  }
  check.note(std::to_string(check.cases) + " random batches");
}

// Both sides of every threshold of route_plan.
void thresholds(Check& check) {
  cuda::check(cuda::prepare_route(), "preparing R");
  for (const std::int64_t tokens : {1, 2, 3, 4, 5, 31, 32, 33, 1023, 1024, 1025, 1056, 4096, 8192, 8193, 9001}) {
    for (const std::int32_t k : {1, 8}) {
      RouteCase c;
      c.tokens = tokens;
      c.top_k = k;
      c.experts = c.all_slots = 128;
      c.width = 64;
      for (const InputForm form : {InputForm::bf16, InputForm::fp8_group}) {
        for (const RowsAs rows : {RowsAs::sorted, RowsAs::by_token}) {
          c.form = form;
          c.rows = rows;
          check_case(check, c, static_cast<std::uint64_t>(tokens));
        }
      }
    }
  }
  for (const std::int64_t tokens : {65536, 65537}) {
    RouteCase c;
    c.tokens = tokens;
    c.experts = c.all_slots = 32;
    check_case(check, c, static_cast<std::uint64_t>(tokens));
  }
  for (const std::int32_t experts : {1, 2, 31, 257, 2048, 6000, cuda::kRouteMostExperts}) {
    for (const std::int64_t tokens : {7, 3000, 17000}) {  // few, one launch, two
      RouteCase c;
      c.tokens = tokens;
      c.top_k = 4;
      c.experts = c.all_slots = experts;
      check_case(check, c, static_cast<std::uint64_t>(experts));
    }
  }
}

}  // namespace

std::vector<Test> route_tests() { return {{"route: random batches", random_cases}, {"route: thresholds", thresholds}}; }

}  // namespace sluice::gpu_tests
