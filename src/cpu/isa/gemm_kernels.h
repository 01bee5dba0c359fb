// The kernels behind dense projections and experts on the CPU, one table for each instruction set.
//
// Called by src/cpu through the table only; the kernels never allocate, take no locks and keep no state: thread-safe.
// This header is all that the units compiled with wide instructions share with the rest of the program: plain data, no
// inline functions, no standard containers.
//
// Weights come in panels of 16 output rows, two panels ("a pair") interleaved in one record stream:
//   bf16   [K/2][2 panels][16 rows][2 k]    f32: [K][2 panels][16 rows]
//   fp8    [K/4][2 panels][4 quads of rows][2 k pairs][4 rows][2 k]                     e4m3 codes
//   nvfp4  [K/64] of { scales [4 groups of 16 k][2 panels][16 rows], codes }            72 bytes for 128 weights
//          codes: [8 octets of k][2 panels] of lines as fp8 has, k in the low half of a byte and k + 4 in the high half
//          scales: one byte E * 8 + m of (1 + m / 8) * 2^(8 - E), m < 8
//   mxfp4  [K/64] of { scales [2 groups of 32 k][2 panels][16 rows], codes }            68 bytes for 128 weights
//          codes: [8 octets of k][2 panels][16 rows][32 bits]; k = 8 octet + 2 j + h in bits 16 h + 4 j
//          scales: one byte E of 2^(127 - E)
// Quantised formats lay two whole segments side by side ("lanes"), or three where one would be left over, so that
// their chains can be added up at once while memory is read in one direction: of every record first the scales of all
// lanes, then line by line the two panels of lane 0, those of lane 1, ... A last segment that is not whole lies alone.
// so that 16 vector lanes are 16 outputs, inputs are broadcast and nothing is reduced across lanes. Codes times block
// scales are exact in bf16, so one kernel of bf16 operands serves every format: weights are decoded in registers for
// few tokens, and otherwise once a segment into a buffer of the bf16 layout. Inputs come in blocks of 1 to 12 tokens:
// [segment][token][kSegmentK], the last segment too, zeros up to a multiple of kStoredK.
//
// One accumulation for every output, whatever the block: in each segment of kSegmentK products (kScaledK where an input
// group and a weight block have a scale) one ascending chain from zero, segments added in ascending order, all in f32
// (architecture 4.5).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::cpu {

inline constexpr int kPanelRows = 16;
inline constexpr int kPairRows = 32;
inline constexpr int kSegmentK = 256;  // recipe_info(bf16).segment_k; checked where kernels are chosen
inline constexpr int kScaledK = 128;   // recipe_info(fp8_block).segment_k
inline constexpr int kStoredK = 64;    // quantised formats store whole records of this many k
inline constexpr int kBlockTokens = 12;
inline constexpr int kFusedTokens = 8;  // up to which weights may be decoded in registers
inline constexpr int kMostLanes = 3;

enum class Element : std::uint8_t { f32, bf16 };                    // of inputs, outputs and panels that are multiplied
enum class Format : std::uint8_t { f32, bf16, fp8, nvfp4, mxfp4 };  // of stored panels
inline constexpr int kFormats = 5;

// One segment of one pair for one block of tokens; or all that lie side by side, for kernels of more than one lane.
struct GemmSegment {
  const void* weights = nullptr;  // of this segment, or of all that lie side by side
  int lanes = 1;                  // of the stored records
  int lane = 0;
  const void* x = nullptr;   // [tokens][kSegmentK]
  std::int64_t k_pairs = 0;  // products / 2, at most kSegmentK / 2
  float* totals = nullptr;   // [2 panels][tokens][16]
  bool first = true;         // totals are set instead of added to
  // Scaled kernels: totals += chain * (x_scale[token * x_scale_stride] * w_scale[panel]).
  const float* x_scale = nullptr;
  std::int64_t x_scale_stride = 0;
  const float* w_scale = nullptr;  // [2 panels], those of the next lane after them
  const void* prefetch = nullptr;
  int prefetch_lines = 0;  // cache lines fetched from `prefetch` on in every unrolled step (4 k pairs)
};
using GemmKernel = void (*)(const GemmSegment&);

// One stored segment of a pair > bf16 panels, exactly. k pairs are rounded up to whole records.
struct DecodeArgs {
  const void* weights = nullptr;
  int lanes = 1;
  int lane = 0;
  std::int64_t k_pairs = 0;
  void* panels = nullptr;  // [k pairs][2 panels][16 rows][2 k] bf16
};

// Copies rows into a block, converting between f32 and bf16 (exactly, or rounded to nearest even).
struct PackArgs {
  const void* x = nullptr;
  Element from = Element::bf16;
  std::int64_t row_stride = 0;         // elements
  const std::int64_t* rows = nullptr;  // [tokens] row numbers; nullptr = 0, 1, 2 ...
  const float* scale = nullptr;        // [tokens] factor in f32, one rounding to bf16 after it; nullptr = none
  int tokens = 0;
  std::int64_t cols = 0;  // K; an odd last pair is filled with zero
  Element to = Element::bf16;
  void* block = nullptr;
};

enum class Rounding : std::uint8_t { fp8_static, fp8_token, fp8_group, nvfp4, mxfp8 };

// One row of inputs > operands: codes times block scales, which are exact in bf16, with the rounding and scale rules of
// numerics/block_*.h bit for bit.
struct QuantizeArgs {
  Rounding rounding = Rounding::fp8_static;
  const void* x = nullptr;  // [cols]
  Element from = Element::bf16;
  std::int64_t cols = 0;
  const float* factor = nullptr;  // of every element, rounded to bf16 after it; nullptr = none
  float scale = 1.0f;             // fp8_static: the decode multiplier; nvfp4: the encode scale
  float* block_scales = nullptr;  // out, for dumps, nvfp4 and mxfp8: the scale of each block; nullptr = not wanted
  float* scales = nullptr;        // out: fp8_static and fp8_token [1], fp8_group [ceil(cols / 128)]
  void* out = nullptr;            // element c at c / kSegmentK * segment_stride + c % kSegmentK
  Element to = Element::bf16;
  std::int64_t segment_stride = kSegmentK;  // elements
};

// What turns a total into an output: total * token_scale * output_scale + bias, rounded after each.
struct Epilogue {
  const float* token_scale = nullptr;   // [tokens] or nullptr
  const float* output_scale = nullptr;  // [32] or nullptr
  const float* bias = nullptr;          // [32] or nullptr
  bool round_scaled = false;            // to bf16 before the bias
};

// Totals of a block > rows of the output.
struct StoreArgs {
  const float* totals = nullptr;  // [2][tokens][16]
  Epilogue epilogue;
  int tokens = 0;
  int columns = 0;    // valid ones of the pair's 32
  void* y = nullptr;  // at the pair's first column
  Element to = Element::bf16;
  std::int64_t row_stride = 0;         // elements
  const std::int64_t* rows = nullptr;  // [tokens] row numbers; nullptr = 0, 1, 2 ...
  bool round_bf16 = false;             // to bf16 before the output's type
  bool accumulate = false;             // y += ..., f32 only
};

enum class Activation : std::uint8_t {
  swiglu,
  geglu_erf,
  geglu_tanh,
  swiglu_oai,
  swiglu_clamped,
  swiglu_step,
  situ,
  relu2,
};

struct ActivationNumbers {
  Activation kind = Activation::swiglu;
  float alpha = 0.0f;
  float beta = 0.0f;
  float limit = 0.0f;
  float linear_beta = 0.0f;
};

// Totals of GEMM1 > intermediates. A gated pair is (gate panel, up panel) of the same 16 columns, any other pair two up
// panels of 32 neighbouring columns; bias and scales come in that order.
struct ActivateArgs {
  ActivationNumbers numbers;
  const float* totals = nullptr;  // [2][tokens][16]
  Epilogue epilogue;
  int tokens = 0;
  int columns = 0;  // valid output columns of the pair; the others become zero
  bool gated = true;
  bool round_out = true;  // the activated value to bf16
  Element to = Element::bf16;
  void* block = nullptr;                // [tokens][row_stride] at the pair's first column
  std::int64_t row_stride = kSegmentK;  // elements
};

// The activation alone, on rows of f32.
struct ActivateRowArgs {
  ActivationNumbers numbers;
  const float* gate = nullptr;  // [count]; ignored when not gated
  const float* up = nullptr;    // [count]
  std::int64_t count = 0;
  Element to = Element::bf16;
  void* out = nullptr;  // [count]
};

// out = sum over slots, in slot order, of weight * row; product and sum rounded to f32 each, one rounding at the end.
struct CombineArgs {
  const void* const* rows = nullptr;  // [slots] bf16 slot rows at the first column
  const float* weights = nullptr;     // [slots]
  int slots = 0;
  std::int64_t columns = 0;
  Element to = Element::bf16;
  void* out = nullptr;
};

struct GemmKernels {
  const char* name = nullptr;
  Element bf16_x = Element::f32;               // element of blocks for the bf16 recipe: bf16, or f32 of the same values
  GemmKernel bf16[kBlockTokens + 1] = {};      // by tokens; bf16 weights, x as bf16_x says
  GemmKernel f32_bf16[kBlockTokens + 1] = {};  // f32 x, bf16 weights widened exactly
  GemmKernel f32[kBlockTokens + 1] = {};       // f32 x, f32 weights
  GemmKernel bf16_scaled[kBlockTokens + 1] = {};  // as bf16, scaled
  // Weights decoded in registers, by stored format, lanes - 1 and tokens; nullptr where an instruction set has none.
  GemmKernel fused[kFormats][kMostLanes][kFusedTokens + 1] = {};
  GemmKernel fused_scaled[kMostLanes][kFusedTokens + 1] = {};  // fp8
  // mxfp4 whose scales are not far apart (PanelLayout): sums in units of the block at hand, which has the same bits.
  GemmKernel fused_near[kMostLanes][kFusedTokens + 1] = {};
  void (*decode[kFormats])(const DecodeArgs&) = {};
  void (*quantize)(const QuantizeArgs&) = nullptr;
  void (*pack)(const PackArgs&) = nullptr;
  void (*store)(const StoreArgs&) = nullptr;
  void (*activate)(const ActivateArgs&) = nullptr;
  void (*activate_row)(const ActivateRowArgs&) = nullptr;
  void (*combine)(const CombineArgs&) = nullptr;
  // Ceilings of a thread, for benches: operations done by `rounds` rounds of independent multiply-adds in the format
  // of the bf16 kernels, and a sum over memory that is only read.
  std::int64_t (*peak_loop)(std::int64_t rounds) = nullptr;
  std::uint64_t (*read_loop)(const void* data, std::size_t bytes) = nullptr;  // multiple of 256 bytes
};

// In the unit of each instruction set; only features.h may decide whether its kernels may be called.
const GemmKernels& gemm_scalar();
const GemmKernels& gemm_avx2();
const GemmKernels& gemm_avx512();
const GemmKernels& gemm_avx512_bf16();

}  // namespace sluice::cpu
