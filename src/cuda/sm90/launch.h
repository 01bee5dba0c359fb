// Contract between the host side of the Hopper runner and its GEMM kernels: sizes and layouts in device memory, what
// the routing kernel must leave there, and the functions that launch.
//
// Order of a layer on one stream: routing kernel > launch_experts > finalise kernel. Called by the Hopper runner, its
// tests and its bench. Nothing here owns memory, allocates or synchronises; all pointers are device pointers; the
// functions are thread-safe. Plain C++: also included by files that nvcc does not compile (there __host__ and
// __device__ are empty).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "moe/spec.h"

namespace sluice::cuda::sm90 {

enum class Format : std::uint8_t {
  bf16,
  fp8_block,   // e4m3; weight scales 128 x 128, activation scales 1 x 128
  fp8_tensor,  // e4m3; a weight scale per output row (constant where the file has one per tensor), one per token row
};

// One layer's experts on this device. H and I are multiples of 16; padding is the affair of the packed layout.
struct Shape {
  Format format = Format::bf16;
  std::int32_t hidden = 0;        // H
  std::int32_t intermediate = 0;  // I
  std::int32_t experts = 0;       // E_local
};

// Everything is cut into K blocks of 128 bytes. Weights are the M operand: a record is 64 packed rows of one K block,
// the image that the tensor core reads (rows of 128 bytes, 16-byte chunks swizzled by row & 7). A row tile is up to
// four records that are stored one after the other for every K block.
inline constexpr std::int32_t kBlockBytes = 128;
inline constexpr std::int32_t kRecordRows = 64;
inline constexpr std::int32_t kRecordBytes = kRecordRows * kBlockBytes;
inline constexpr std::int32_t kTileRecords = 4;
inline constexpr std::int32_t kRowGroup = 8;  // token rows are handled, and experts are padded, in groups of 8

__host__ __device__ constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
__host__ __device__ constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

// Elements of a K block.
__host__ __device__ constexpr std::int32_t block_elements(Format format) { return format == Format::bf16 ? 64 : 128; }

struct Extents {
  std::int32_t k_blocks1, k_blocks2;  // of H (GEMM1 input), of I (GEMM2 input)
  std::int32_t records1, records2;    // of 2 * I padded to K blocks of I; of H padded to 64
  std::int32_t tiles1, tiles2;        // row tiles
};

__host__ __device__ constexpr Extents extents(const Shape& shape) {
  const std::int32_t k = block_elements(shape.format);
  Extents e{};
  e.k_blocks1 = static_cast<std::int32_t>(ceil_div(shape.hidden, k));
  e.k_blocks2 = static_cast<std::int32_t>(ceil_div(shape.intermediate, k));
  e.records1 = e.k_blocks2 * 2 * k / kRecordRows;
  e.records2 = static_cast<std::int32_t>(ceil_div(shape.hidden, kRecordRows));
  e.tiles1 = static_cast<std::int32_t>(ceil_div(e.records1, kTileRecords));
  e.tiles2 = static_cast<std::int32_t>(ceil_div(e.records2, kTileRecords));
  return e;
}

// Packed weights of one layer. Arrays that a format has no use for, and missing biases, are nullptr.
struct PackedLayer {
  std::uint8_t* w1 = nullptr;     // [E][tile][K block][record of the tile][8192], gate and up interleaved by 8 rows
  std::uint8_t* w2 = nullptr;     // [E][tile][K block][record of the tile][8192]
  float* block_scale1 = nullptr;  // fp8_block: [E][tiles1][k_blocks1][4]: gate, up, gate, up
  float* block_scale2 = nullptr;  // fp8_block: [E][tiles2][k_blocks2][4]: rows 0-127 twice, rows 128-255 twice
  float* row_scale1 = nullptr;    // fp8_tensor: [E][records1 * 64], in packed order
  float* row_scale2 = nullptr;    // fp8_tensor: [E][records2 * 64]
  float* bias1 = nullptr;         // [E][records1 * 64], in packed order
  float* bias2 = nullptr;         // [E][records2 * 64]
};

// Bytes of each array of PackedLayer, 0 where it is nullptr. Alignment of each array: 128.
struct PackedBytes {
  std::size_t w1, w2, block_scale1, block_scale2, row_scale1, row_scale2, bias1, bias2;
  std::size_t total() const { return w1 + w2 + block_scale1 + block_scale2 + row_scale1 + row_scale2 + bias1 + bias2; }
};
PackedBytes packed_bytes(const Shape& shape, bool has_bias);

// One weight matrix in device memory, row-major, as staged by the host side.
struct MatrixSource {
  const void* codes = nullptr;   // [rows, cols] bf16 or e4m3; nullptr = gate of a non-gated expert
  std::int64_t row_stride = 0;   // elements
  const float* scale = nullptr;  // fp8_block: [ceil(rows / 128), ceil(cols / 128)]; fp8_tensor: [rows]
  const float* bias = nullptr;   // [rows] f32; nullptr = zeros
};

// Packs one expert (its whole part of every array of `out`, padding included).
struct PackArgs {
  Shape shape;
  PackedLayer out;
  std::int32_t expert = 0;  // local
  MatrixSource gate, up;    // [I, H]
  MatrixSource down;        // [H, I]
};
cudaError_t launch_pack(const PackArgs& args, cudaStream_t stream);

// ---- What the routing kernel leaves -------------------------------------------------------------------------------
// Routed rows are sorted by local expert (within an expert by route t * k + s) and get a *padded row*: each expert's
// first one is a multiple of 8, so there may be gaps of up to 7 rows behind an expert, whose contents do not matter.
// An expert's rows are cut into token tiles of at most Plan::token_tile rows, see token_tile_rows().

// Upper bound of padded rows, a multiple of 8; also P, the row stride of images and scales.
__host__ __device__ constexpr std::int64_t max_padded_rows(std::int64_t routes, std::int64_t experts) {
  return round_up(routes, kRowGroup) + (kRowGroup) * (experts < routes ? experts : routes);
}

// Upper bound of token tiles, and one more: the last entry of RouteTables::ready counts work that was handed out.
__host__ __device__ constexpr std::int64_t max_token_tiles(std::int64_t routes, std::int64_t experts,
                                                           std::int64_t token_tile) {
  return (experts < routes ? experts : routes) + routes / token_tile + 1;
}

// Token tiles but the last of an expert have a multiple of this many rows, a power of two: those of 128 are computed by
// halves in fp8_block.
__host__ __device__ constexpr std::int32_t token_tile_unit(Format format, std::int32_t token_tile) {
  return format == Format::fp8_block && token_tile == 128 ? 64 : kRowGroup;
}

// Rows of each token tile but the last of an expert with `rows` rows; there are ceil(rows / token_tile) of them, of
// even size as far as `unit`, token_tile_unit(), allows.
__host__ __device__ constexpr std::int32_t token_tile_rows(std::int32_t rows, std::int32_t token_tile,
                                                           std::int32_t unit) {
  if (rows <= token_tile) return (rows + unit - 1) & -unit;  // one tile
  const std::int32_t tiles = (rows + token_tile - 1) / token_tile;
  return ((rows + tiles - 1) / tiles + unit - 1) & -unit;
}

struct alignas(32) TokenTile {
  std::int32_t expert;     // local
  std::int32_t first_row;  // padded row, a multiple of 8
  std::int32_t rows;       // valid rows, >= 1
  std::int32_t first;      // index of the first token tile of this expert
  std::int32_t count;      // token tiles of this expert
  std::int32_t each;       // rows of all of them but the last,
  std::int32_t last_rows;  // and of the last: one look into the table tells where each of them is
  std::int32_t unused;
};

// First padded row and valid rows of token tile `index` of the expert that tile `own` of the table, `t`, belongs to.
struct TileRows {
  std::int32_t first_row, rows;
};
__host__ __device__ constexpr TileRows rows_of_tile(const TokenTile& t, std::int32_t own, std::int32_t index) {
  return {t.first_row + (index - own) * t.each, index + 1 == t.first + t.count ? t.last_rows : t.each};
}

// Tiles of one expert are adjacent; experts in any order (more rows first balances best).
struct RouteTables {
  const std::int32_t* tile_count = nullptr;  // [1]
  const TokenTile* tiles = nullptr;          // [max_tiles]
  std::int32_t max_tiles = 0;                // max_token_tiles() or more
  std::uint32_t* ready = nullptr;            // [max_tiles], zeroed by the routing kernel for every run
  // [1], or nullptr: 0, as is the last word of `ready`, when the GEMM kernel can start at the earliest, later
  // 1 + *tile_count, which releases the tables: weights are then loaded while the routing kernel still writes rows.
  const std::uint32_t* published = nullptr;
};

// Byte of an image where chunk c (16 bytes, 0-7) of K block kb of padded row r starts; P = row stride of the image.
// Layout [K block][P][128], the chunks of a row swizzled. Columns from H (or I) to the end of the last K block must be
// zero in every row that is not a gap.
__host__ __device__ constexpr std::int64_t image_offset(std::int64_t kb, std::int64_t r, std::int64_t c,
                                                        std::int64_t padded_rows) {
  return (kb * padded_rows + r) * kBlockBytes + ((c ^ (r & 7)) * 16);
}

// Within the K blocks of an fp8 intermediate, byte p (0-127) holds this column; bf16 keeps the natural order.
__host__ __device__ constexpr std::int32_t fp8_intermediate_column(std::int32_t p) {
  return (p / 64) * 64 + (p % 2) * 32 + (p / 16 % 4) * 8 + (p % 16) / 2;
}

// ---- Both GEMMs ---------------------------------------------------------------------------------------------------

inline constexpr std::int32_t kMostHalfTileRows = 16;  // token tiles that half row tiles go with
inline constexpr std::int32_t kGatheredTile = 128;     // token tile that can go without a sorted image of x
inline constexpr std::int64_t kMostGatheredBytes = (std::int64_t{1} << 32) - 1;  // offsets have 32 bits

// How the kernels run, chosen from sizes alone. The routing kernel needs token_tile.
struct Plan {
  std::int32_t token_tile = 16;  // rows of a token tile at most: 8, 16, 32, 64 or 128
  std::int32_t split = 1;        // thread blocks (a cluster) that share the K range of a tile: 1 or 2
  bool half_tiles = false;       // row tiles of two records instead of four, where that is possible
  bool gather = false;           // GEMM1 reads x by token (TokenRows), where a run allows; else a sorted image
  bool decode = false;           // the kernel for a few tokens in place of all of this (decode.h); never by choose_plan
};
Plan choose_plan(const Shape& shape, ActivationKind activation, std::int64_t tokens, std::int32_t top_k,
                 std::int32_t experts_global, std::int32_t sm_count);
const char* plan_name(const Plan& plan);  // for `explain` and the bench

// The single ones are for tests and measurements; each launch needs RouteTables::ready zeroed.
enum class Phase : std::uint8_t { both, fc1, fc2 };

// Where every token has one route, its row goes to the output at once, as the finalise kernel would write it: times
// the weight, rounded to bf16. Tokens without a row are the routing kernel's affair.
struct DirectOutput {
  void* out = nullptr;  // [T, H] bf16, rows at multiples of 16 bytes; nullptr = slot rows
  std::int64_t row_stride = 0;
  const std::int32_t* row_token = nullptr;  // [P]
  const float* weights = nullptr;           // [T], or nullptr = 1
};

// GEMM1 input by token in place of a sorted image, for token tiles of 128 only: the kernel gathers the rows.
struct TokenRows {
  const std::uint8_t* rows = nullptr;       // nullptr = the image
  std::int64_t row_bytes = 0;               // from one to the next; a multiple of 16, as is the address; all of them
                                            // lie within kMostGatheredBytes
  std::int32_t width_bytes = 0;             // a multiple of 16; taken for zeros from here to the end of the K block
  const std::int32_t* row_token = nullptr;  // [P], of gaps undefined
};

struct ExpertArgs {
  Shape shape;
  Plan plan;
  PackedLayer weights;
  RouteTables routes;
  ActivationSpec activation;
  Phase phase = Phase::both;

  std::int64_t padded_rows = 0;     // P
  const std::uint8_t* x = nullptr;  // image [k_blocks1][P][128], not read if `x_rows` has rows
  TokenRows x_rows;
  const float* x_scale = nullptr;  // fp8_block: [k_blocks1][P]; fp8_tensor: [P] (static ones repeated)
  std::uint8_t* h = nullptr;       // scratch: image [k_blocks2][P][128], alignment 128
  float* h_scale = nullptr;        // scratch: fp8_block [k_blocks2][P]; fp8_tensor [P]
  float h_static_scale = 0.0f;     // fp8_tensor: static scale of the intermediate; 0 = per token row, from its amax
  float* h_f32 = nullptr;          // scratch: fp8_tensor without a static scale: [P][I padded to 128]
  void* slot_rows = nullptr;       // out: [P][H] bf16, unweighted, rows of gaps undefined; not written if `direct`
  DirectOutput direct;

  std::int32_t sm_count = 0;
  bool pdl = true;  // launched as a programmatic dependent of the kernel before it on the stream
};

// Bytes of the scratch arrays of ExpertArgs (h, h_scale, h_f32; 0 = not needed).
struct ScratchBytes {
  std::size_t h, h_scale, h_f32;
};
ScratchBytes scratch_bytes(const Shape& shape, std::int64_t padded_rows, bool static_intermediate_scale);

// Raises shared memory limits; call once per device before launching or capturing.
cudaError_t prepare_kernels();

// From the image of x to slot rows. May be captured. Errors are those of the launch.
cudaError_t launch_experts(const ExpertArgs& args, cudaStream_t stream);

}  // namespace sluice::cuda::sm90
