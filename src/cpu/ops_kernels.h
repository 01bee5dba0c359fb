// The vector loops behind CpuBackend: one table of functions for each instruction set, all made from the same source
// (isa/ops_*.h).
//
// Called by the backend's .cc files on rows and tiles that they have already split among threads. Pure functions on the
// memory they are given: thread-safe, no allocation. Every sum has one fixed order that depends on its own length only:
// sixteen lanes, each ascending, then lane i + lane i+8, +4, +2, +1.
#pragma once

#include <cstdint>

namespace sluice::cpu {

enum class Isa : std::uint8_t;  // features.h, whose other contents the units with wide instructions must not see

struct NormRow {
  const float* x = nullptr;       // [cols]
  const float* weight = nullptr;  // [cols]
  float epsilon = 0;
  std::int64_t cols = 0;
  float* out_f32 = nullptr;           // [cols], may be x; nullptr = not wanted
  std::uint16_t* out_bf16 = nullptr;  // [cols], nullptr = not wanted
};

// Activations that have a vector loop; the formulas are in moe/spec.h.
enum class VectorActivation : std::uint8_t { swiglu, geglu_tanh, swiglu_oai, swiglu_clamped, swiglu_step, relu2 };

struct ActivateRow {
  VectorActivation kind = VectorActivation::swiglu;
  float alpha = 0, beta = 0, limit = 0;
  const float* gate = nullptr;  // [n]; not read for relu2
  const float* up = nullptr;    // [n]
  std::int64_t n = 0;
  float* out_f32 = nullptr;  // [n]; exactly one of the two
  std::uint16_t* out_bf16 = nullptr;
};

// Attention splits the keys of a sequence into chunks at absolute positions. The softmax of a chunk is complete in
// itself (maximum, sum, weighted values from zero); chunks are then folded in ascending order.
inline constexpr std::int32_t kChunkTokens = 256;
inline constexpr std::int32_t kPanelTokens = 16;  // keys of one K panel and one V panel
inline constexpr std::int32_t kChunkPanels = kChunkTokens / kPanelTokens;
inline constexpr std::int32_t kScratchPanels = 4;

// Softmax state of `rows` query rows. A row whose sum is 0 has seen no key; its acc is not defined.
struct AttendState {
  float* max = nullptr;  // [rows]
  float* sum = nullptr;  // [rows]
  float* acc = nullptr;  // [rows, value_dims]
};

// Some query rows against one chunk of keys.
struct AttendChunk {
  const float* const* query = nullptr;  // [rows] pointers to [head_dim] f32
  std::int32_t rows = 0;
  std::int32_t head_dim = 0;
  std::int32_t dims = 0;        // head_dim rounded up to 16: width of V panels
  std::int32_t value_dims = 0;  // leading columns of V panels that are values, a multiple of 16: width of acc
  float scale = 1;
  const std::int32_t* first = nullptr;  // [rows] keys seen by each row, counted from the start of the chunk
  const std::int32_t* last = nullptr;   // [rows] one past; first >= last = none
  // Panels between the smallest first and the largest last; others are not touched, and must be nullptr.
  // K: [dims / 2, 16 keys, 2] bf16 or [dims, 16 keys] f32. V: [16 keys, dims].
  const void* const* k_panels = nullptr;  // [kChunkPanels]; not read by attend_latent
  const void* const* v_panels = nullptr;  // [kChunkPanels]
  void* k_scratch = nullptr;              // kScratchPanels K panels, for attend_latent
  // First panels of the chunk that the same thread takes next, to be fetched meanwhile: K panels, or V panels of a
  // latent. nullptr = none, also as an entry.
  const void* const* next_panels = nullptr;  // [kChunkPanels]
  float* packed_query = nullptr;             // scratch [rows, dims]
  float* scores = nullptr;                   // scratch [rows, kChunkTokens]
  AttendState out;
};

struct FinishRow {
  float max = 0, sum = 0;
  const float* acc = nullptr;   // [head_dim]
  const float* sink = nullptr;  // one extra logit in the denominator; nullptr = none
  std::int32_t head_dim = 0;
  float* out_f32 = nullptr;  // [head_dim]; exactly one of the two
  std::uint16_t* out_bf16 = nullptr;
};

// weight(x) = exp((x - max) * inverse_temperature), but 0 where x < cut or weight < min_weight.
struct WeightRow {
  const float* x = nullptr;  // [n]
  std::int64_t n = 0;
  float max = 0;
  float inverse_temperature = 1;
  float cut = 0;
  float min_weight = 0;
};

struct Candidate {
  float value = 0;
  float weight = 0;
  std::int32_t id = 0;
};

struct OpsKernels {
  void (*rms_norm)(const NormRow& row);
  void (*add)(float* into, const float* x, std::int64_t n);
  void (*widen)(const std::uint16_t* bf16, float* out, std::int64_t n);
  void (*narrow)(const float* x, std::uint16_t* bf16, std::int64_t n);  // to nearest, ties to even
  // Rotates one head in place: pairs (i, i + half), or (2i, 2i + 1).
  void (*rope_halves)(float* x, const float* cosines, const float* sines, std::int64_t half);
  void (*rope_pairs)(float* x, const float* cosines, const float* sines, std::int64_t half);
  void (*activate)(const ActivateRow& row);

  void (*attend_bf16)(const AttendChunk& chunk);
  void (*attend_f32)(const AttendChunk& chunk);
  // Keys are the rows of the V panels (a latent); values their first value_dims columns.
  void (*attend_latent_bf16)(const AttendChunk& chunk);
  void (*attend_latent_f32)(const AttendChunk& chunk);
  void (*fold)(const AttendState& into, const AttendState& next, std::int32_t rows, std::int32_t dims);
  void (*finish)(const FinishRow& row);

  float (*max_or_nan)(const float* x, std::int64_t n);                // NaN if there is one; -inf for n = 0
  std::int64_t (*find)(const float* x, std::int64_t n, float value);  // first index of value, n if absent
  float (*weight_sum)(const WeightRow& row);
  void (*weights)(const WeightRow& row, float* out);
  // Writes every x[i] >= cut with its weight and i, in order; returns how many.
  std::int64_t (*gather)(const WeightRow& row, Candidate* out);
};

// The table of one instruction set. The caller makes sure that the processor has it.
const OpsKernels& ops_kernels(Isa isa);

const OpsKernels& ops_kernels_scalar();
const OpsKernels& ops_kernels_avx2();
const OpsKernels& ops_kernels_avx512();
const OpsKernels& ops_kernels_avx512_bf16();

}  // namespace sluice::cpu
