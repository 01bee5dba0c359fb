// The kernels behind dense projections and experts on the CPU, one table for each instruction set.
//
// Called by src/cpu through the table only; the kernels never allocate, take no locks and keep no state: thread-safe.
// This header is all that the units compiled with wide instructions share with the rest of the program: plain data, no
// inline functions, no standard containers.
//
// Weights come in panels of 16 output rows, two panels ("a pair") interleaved in one record stream:
//   bf16: [K/2][2 panels][16 rows][2 k]    f32: [K][2 panels][16 rows]
// so that 16 vector lanes are 16 outputs, inputs are broadcast and nothing is reduced across lanes.
// Inputs come in blocks of 1 to 12 tokens: [segment][token][kSegmentK], the last segment too.
//
// One accumulation for every output, whatever the block: in each segment of kSegmentK products one ascending chain from
// zero, segments added in ascending order, all in f32 (architecture 4.5).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::cpu {

inline constexpr int kPanelRows = 16;
inline constexpr int kPairRows = 32;
inline constexpr int kSegmentK = 256;  // recipe_info(bf16).segment_k; checked where kernels are chosen
inline constexpr int kBlockTokens = 12;

enum class Element : std::uint8_t { f32, bf16 };

// One segment of one pair for one block of tokens.
struct GemmSegment {
  const void* weights = nullptr;  // of this segment
  const void* x = nullptr;        // [tokens][kSegmentK]
  std::int64_t k_pairs = 0;       // products / 2, at most kSegmentK / 2
  float* totals = nullptr;        // [2 panels][tokens][16]
  bool first = true;              // totals are set instead of added to
  const void* prefetch = nullptr;
  int prefetch_lines = 0;  // cache lines fetched from `prefetch` on in every unrolled step (4 k pairs)
};
using GemmKernel = void (*)(const GemmSegment&);

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

// Totals (+ bias) of a block > rows of the output.
struct StoreArgs {
  const float* totals = nullptr;  // [2][tokens][16]
  const float* bias = nullptr;    // [32] or nullptr
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

// Totals of GEMM1 > intermediates, rounded once to bf16. A gated pair is (gate panel, up panel) of the same 16 columns,
// any other pair two up panels of 32 neighbouring columns.
struct ActivateArgs {
  ActivationNumbers numbers;
  const float* totals = nullptr;  // [2][tokens][16]
  const float* bias = nullptr;    // [32] in the order of the pair's rows, or nullptr
  int tokens = 0;
  int columns = 0;  // valid output columns of the pair; the others become zero
  bool gated = true;
  Element to = Element::bf16;
  void* block = nullptr;  // [tokens][kSegmentK] at the pair's first column
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
