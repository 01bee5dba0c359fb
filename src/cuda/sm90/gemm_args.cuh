// What the expert GEMM kernel receives, and the shared memory it uses.
//
// Filled by launch.cu from ExpertArgs, read by the gemm_*.cuh files. Plain data.
#pragma once

#include <cstdint>

#include "cuda/sm90/launch.h"

namespace sluice::cuda::sm90 {

// One of the two GEMMs: D[packed rows, tokens] = weights x image.
struct GemmSide {
  const std::uint8_t* weights;
  std::int64_t expert_bytes;
  const float* block_scale;   // fp8_block: [E][packed tiles][k_blocks][4]
  const float* row_scale;     // fp8_tensor: [E][records * 64]
  const float* bias;          // or nullptr
  const std::uint8_t* image;  // [k_blocks][P][128]
  const float* image_scale;   // fp8_block: [k_blocks][P]; fp8_tensor: [P], or nullptr = image_static_scale
  float image_static_scale;
  std::int32_t k_blocks;
  std::int32_t records;
  std::int32_t tile_records;  // 4, or 2 = half tiles
  std::int32_t tiles;         // row tiles
};

// The activation as s(g) = min(g' sigmoid(g' (a1 + a3 g'^2)), cap), g' = min(gate, gate_limit), times
// (clamp(up, +-up_limit) + up_shift); other kinds have a function of their own.
struct GateCurve {
  float a1, a3, gate_limit, cap, up_limit, up_shift;
  bool plain;    // swiglu: a1 = 1, all else without effect
  bool clamped;  // a3 and cap without effect
};

struct GemmArgs {
  GemmSide sides[2];
  TokenRows x_rows;  // of sides[0], or the image
  RouteTables routes;
  std::int64_t padded_rows;
  std::uint8_t* h;
  float* h_scale;
  float h_static_scale;
  float* h_f32;
  std::int64_t h_f32_stride;
  std::uint16_t* slot_rows;
  DirectOutput direct;
  std::int32_t hidden;
  bool run_first, run_second;
  bool wait_ready;  // the second GEMM waits for tiles of the first in the same launch
  GateCurve curve;
  ActivationSpec activation;
};

inline constexpr int kConsumers = 256;  // two warpgroups of 128 rows each
inline constexpr int kThreads = 384;    // and one that loads and stores

inline constexpr int kItemBytes = 32;
inline constexpr int kItemSlots = 4;

constexpr int align_up(int value, int to) { return (value + to - 1) / to * to; }

// Shared memory of a kernel with token tiles of up to NT rows, in bytes from the start of the dynamic part.
template <int NT>
struct SharedLayout {
  // Tiles this small go to the intermediate straight from registers: fewer hops until FC2 can read them.
  static constexpr bool kDirect = NT <= 16;
  static constexpr int kStoringWarps = kDirect ? 0 : 1;  // that copy staged tiles out
  static constexpr int kMaxSplit = NT <= 16 ? 2 : 1;
  // Two blocks of a cluster work on two tiles that have weights or token rows in common (gemm_pairs.cuh).
  static constexpr bool kPaired = NT == 128;
  static constexpr int kCluster = kPaired ? 2 : 1;  // at least
  static constexpr bool kMayShareItems = kPaired || kMaxSplit > 1;
  // A stage is one K block of a row tile, or two K blocks of a half tile.
  static constexpr bool kHalfTiles = NT <= 16;
  static constexpr int kBlocks = kHalfTiles ? 2 : 1;
  static constexpr int kStageA = kTileRecords * kRecordBytes;
  static constexpr int kTokenBlock = NT * kBlockBytes;
  static constexpr int kStageB = kBlocks * kTokenBlock;
  static constexpr int kReduce = (kMaxSplit - 1) * kConsumers * NT * 4;
  static constexpr int kStaging = NT * 256;
  static constexpr int kScaleBlock = 16 + NT * 4;  // weight scales, then token scales of a K block
  static constexpr int kScaleBytes = kBlocks * kScaleBlock;
  static constexpr int kTokenTermBytes = kPaired ? NT * 4 : 0;  // scales of the token rows of an item
  static constexpr int kFixed = kStaging + kReduce + kTokenTermBytes + 384;
  static constexpr int kLimit = 227 * 1024;
  static constexpr int kStages = (kLimit - kFixed) / (kStageA + kStageB + kScaleBytes) > 6
                                     ? 6
                                     : (kLimit - kFixed) / (kStageA + kStageB + kScaleBytes);
  static constexpr int kA = 0;
  static constexpr int kB = kA + kStages * kStageA;
  static constexpr int kStagingAt = kB + kStages * kStageB;
  static constexpr int kReduceAt = kStagingAt + kStaging;
  static constexpr int kScales = kReduceAt + kReduce;
  // fp8 stages one block of FC1 only; the second one's place serves the exchange of amax.
  static constexpr int kAmax = kStagingAt + NT * kBlockBytes;  // [8][NT] f32
  static constexpr int kInverse = kAmax + 8 * NT * 4;          // [NT] f32
  static constexpr int kBarriers = align_up(kScales + kStages * kScaleBytes, 16) + kTokenTermBytes;
  static constexpr int kItems = kBarriers;  // queue of WorkItems
  static constexpr int kItemFull = kItems + kItemSlots * kItemBytes;
  static constexpr int kItemEmpty = kItemFull + 8 * kItemSlots;
  static constexpr int kFull = kItemEmpty + 8 * kItemSlots;
  static constexpr int kEmpty = kFull + 8 * kStages;
  static constexpr int kReduceFull = kEmpty + 8 * kStages;
  static constexpr int kReduceEmpty = kReduceFull + 8;
  static constexpr int kTermsFull = kReduceEmpty + 8;
  static constexpr int kTermsEmpty = kTermsFull + 8;
  static constexpr int kNextItem = kTermsEmpty + 8;
  static constexpr int kBytes = kNextItem + 8;
  // Scales, then biases of the rows of an item (gemm_pairs.cuh), in the place of the scales that fp8_block alone has.
  static constexpr int kTerms = kScales;
  static constexpr int kTokenTerms = kBarriers - kTokenTermBytes;
  static constexpr int kTermsEach = kTileRecords * kRecordRows * 4;
  static_assert(kBytes <= kLimit && kStages >= 4);
  static_assert(!kPaired || 2 * kTermsEach <= kStages * kScaleBytes);
};

}  // namespace sluice::cuda::sm90
