// Packing of one expert's weights into records (layout: launch.h).
//
// Called by the host side once per expert when a layer is loaded. Threads write 16 bytes each in packed order; reads
// are rows of the source.
#include "cuda/sm90/launch.h"

namespace sluice::cuda::sm90 {
namespace {

constexpr int kThreads = 256;

// Which row of the source a packed row stands for.
struct SourceRow {
  bool gate;
  std::int32_t row;
};

// FC1: 16 packed rows hold 8 features, the gate rows first.
__host__ __device__ SourceRow source_row1(std::int32_t packed_row) {
  const std::int32_t within = packed_row % 16;
  return {within < 8, packed_row / 16 * 8 + within % 8};
}

// One GEMM of one expert, as the packing kernel sees it.
struct PackSide {
  MatrixSource a, b;  // FC1: gate, up; FC2: down, -
  bool interleaved;   // FC1
  bool permuted;      // FC2 of fp8: columns in the order of the intermediate
  std::int32_t rows, cols;
  std::int32_t k_blocks, records, tiles;
  std::uint8_t* weights;
  float* block_scale;
  float* row_scale;
  float* bias;
};

template <typename Element>
__device__ Element source_code(const PackSide& s, std::int32_t packed_row, std::int32_t col) {
  const SourceRow at = s.interleaved ? source_row1(packed_row) : SourceRow{true, packed_row};
  const MatrixSource& m = at.gate ? s.a : s.b;
  if (m.codes == nullptr || at.row >= s.rows || col >= s.cols) return 0;
  return static_cast<const Element*>(m.codes)[at.row * m.row_stride + col];
}

// One 16-byte chunk a thread. Element is the unsigned integer of a code's size.
template <typename Element>
__global__ void pack_codes(PackSide s) {
  constexpr int kPerChunk = 16 / sizeof(Element);
  constexpr int kPerBlock = kBlockBytes / sizeof(Element);
  const std::int64_t chunks = static_cast<std::int64_t>(s.records) * s.k_blocks * (kRecordBytes / 16);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= chunks) return;
  const std::int32_t chunk = i % 8;
  const std::int32_t row = i / 8 % kRecordRows;
  const std::int64_t image = i / (8 * kRecordRows);  // (tile, K block, record of the tile)
  const std::int32_t tile = image / (kTileRecords * s.k_blocks);
  const std::int32_t records = min(kTileRecords, s.records - tile * kTileRecords);
  const std::int32_t within = image - static_cast<std::int64_t>(tile) * kTileRecords * s.k_blocks;
  const std::int32_t kb = within / records;
  const std::int32_t packed_row = (tile * kTileRecords + within % records) * kRecordRows + row;
  union {
    Element codes[kPerChunk];
    uint4 vector;
  } out;
  for (int p = 0; p < kPerChunk; ++p) {
    const std::int32_t position = chunk * kPerChunk + p;
    const std::int32_t col = kb * kPerBlock + (s.permuted ? fp8_intermediate_column(position) : position);
    out.codes[p] = source_code<Element>(s, packed_row, col);
  }
  const std::int64_t to = image * kRecordBytes + row * kBlockBytes + ((chunk ^ (row & 7)) * 16);
  *reinterpret_cast<uint4*>(s.weights + to) = out.vector;
}

// Row scales and biases, one packed row a thread.
__global__ void pack_rows(PackSide s) {
  const std::int32_t row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= s.records * kRecordRows) return;
  const SourceRow at = s.interleaved ? source_row1(row) : SourceRow{true, row};
  const MatrixSource& m = at.gate ? s.a : s.b;
  const bool present = at.row < s.rows;
  if (s.row_scale != nullptr) s.row_scale[row] = present && m.scale != nullptr ? m.scale[at.row] : 0.0f;
  if (s.bias != nullptr) s.bias[row] = present && m.bias != nullptr ? m.bias[at.row] : 0.0f;
}

// Four scales for each (tile, K block): of the two row halves of each warpgroup.
__global__ void pack_block_scales(PackSide s) {
  const std::int32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= s.tiles * s.k_blocks * 4) return;
  const std::int32_t slot = i % 4;
  const std::int32_t kb = i / 4 % s.k_blocks;
  const std::int32_t tile = i / 4 / s.k_blocks;
  const MatrixSource& m = s.interleaved && slot % 2 == 1 ? s.b : s.a;
  const std::int32_t scale_row = s.interleaved ? tile : 2 * tile + slot / 2;
  const std::int32_t scale_rows = (s.rows + 127) / 128;
  const std::int32_t scale_cols = (s.cols + 127) / 128;
  const bool present = m.scale != nullptr && scale_row < scale_rows && kb < scale_cols;
  s.block_scale[i] = present ? m.scale[static_cast<std::int64_t>(scale_row) * scale_cols + kb] : 0.0f;
}

PackSide make_side1(const PackArgs& args) {
  const Extents e = extents(args.shape);
  const std::int64_t rows = static_cast<std::int64_t>(e.records1) * kRecordRows;
  const std::int64_t scales = static_cast<std::int64_t>(e.tiles1) * e.k_blocks1 * 4;
  PackSide s{};
  s.a = args.gate;
  s.b = args.up;
  s.interleaved = true;
  s.rows = args.shape.intermediate;
  s.cols = args.shape.hidden;
  s.k_blocks = e.k_blocks1;
  s.records = e.records1;
  s.tiles = e.tiles1;
  s.weights = args.out.w1 + args.expert * static_cast<std::int64_t>(e.records1) * e.k_blocks1 * kRecordBytes;
  if (args.out.block_scale1 != nullptr) s.block_scale = args.out.block_scale1 + args.expert * scales;
  if (args.out.row_scale1 != nullptr) s.row_scale = args.out.row_scale1 + args.expert * rows;
  if (args.out.bias1 != nullptr) s.bias = args.out.bias1 + args.expert * rows;
  return s;
}

PackSide make_side2(const PackArgs& args) {
  const Extents e = extents(args.shape);
  const std::int64_t rows = static_cast<std::int64_t>(e.records2) * kRecordRows;
  const std::int64_t scales = static_cast<std::int64_t>(e.tiles2) * e.k_blocks2 * 4;
  PackSide s{};
  s.a = args.down;
  s.permuted = args.shape.format != Format::bf16;
  s.rows = args.shape.hidden;
  s.cols = args.shape.intermediate;
  s.k_blocks = e.k_blocks2;
  s.records = e.records2;
  s.tiles = e.tiles2;
  s.weights = args.out.w2 + args.expert * static_cast<std::int64_t>(e.records2) * e.k_blocks2 * kRecordBytes;
  if (args.out.block_scale2 != nullptr) s.block_scale = args.out.block_scale2 + args.expert * scales;
  if (args.out.row_scale2 != nullptr) s.row_scale = args.out.row_scale2 + args.expert * rows;
  if (args.out.bias2 != nullptr) s.bias = args.out.bias2 + args.expert * rows;
  return s;
}

unsigned blocks_for(std::int64_t threads) { return static_cast<unsigned>(ceil_div(threads, kThreads)); }

void launch_side(const PackSide& s, Format format, cudaStream_t stream) {
  const std::int64_t chunks = static_cast<std::int64_t>(s.records) * s.k_blocks * (kRecordBytes / 16);
  if (format == Format::bf16) {
    pack_codes<std::uint16_t><<<blocks_for(chunks), kThreads, 0, stream>>>(s);
  } else {
    pack_codes<std::uint8_t><<<blocks_for(chunks), kThreads, 0, stream>>>(s);
  }
  if (s.row_scale != nullptr || s.bias != nullptr) {
    pack_rows<<<blocks_for(s.records * kRecordRows), kThreads, 0, stream>>>(s);
  }
  if (s.block_scale != nullptr) {
    pack_block_scales<<<blocks_for(std::int64_t{4} * s.tiles * s.k_blocks), kThreads, 0, stream>>>(s);
  }
}

}  // namespace

PackedBytes packed_bytes(const Shape& shape, bool has_bias) {
  const Extents e = extents(shape);
  const std::size_t experts = shape.experts;
  PackedBytes b{};
  b.w1 = experts * e.records1 * e.k_blocks1 * kRecordBytes;
  b.w2 = experts * e.records2 * e.k_blocks2 * kRecordBytes;
  if (shape.format == Format::fp8_block) {
    b.block_scale1 = experts * e.tiles1 * e.k_blocks1 * 4 * sizeof(float);
    b.block_scale2 = experts * e.tiles2 * e.k_blocks2 * 4 * sizeof(float);
  }
  const std::size_t rows1 = experts * e.records1 * kRecordRows * sizeof(float);
  const std::size_t rows2 = experts * e.records2 * kRecordRows * sizeof(float);
  if (shape.format == Format::fp8_tensor) {
    b.row_scale1 = rows1;
    b.row_scale2 = rows2;
  }
  if (has_bias) {
    b.bias1 = rows1;
    b.bias2 = rows2;
  }
  return b;
}

cudaError_t launch_pack(const PackArgs& args, cudaStream_t stream) {
  launch_side(make_side1(args), args.shape.format, stream);
  launch_side(make_side2(args), args.shape.format, stream);
  return cudaGetLastError();
}

}  // namespace sluice::cuda::sm90
