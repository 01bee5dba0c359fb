// The loops that turn rows of a file into lines of panels while loading, one table for each instruction set.
//
// Called by the units that pack panels (panel*.cc), from many threads, on the caller's memory. Permutations of bytes or
// nibbles: every table writes the same bytes. As in gemm_kernels.h, units with wide instructions see nothing but plain
// data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::cpu {

enum class Isa : std::uint8_t;  // features.h, whose other contents these units must not see

// What is read soon: a cache line for each of the 16 rows, whenever 64 bytes of the rows have been read.
struct FetchAhead {
  const std::byte* from = nullptr;  // first line; may lie anywhere
  std::int64_t pitch = 0;           // bytes from line to line
  std::int64_t step = 0;            // bytes from those of 64 bytes of rows to those of the next
};

// Records of one panel that follow each other: all codes of 16 rows in the order of gemm_kernels.h, without scales.
struct LineRun {
  const std::byte* rows = nullptr;  // first byte that is wanted, of the first row
  std::int64_t stride = 0;          // bytes from row to row
  std::int64_t records = 0;         // 64 bytes of each row, 32 of 4-bit codes
  std::byte* to = nullptr;          // first line of the panel in the first record
  std::int64_t pitch = 0;           // bytes from a line of the panel to its next
  std::int64_t step = 0;            // bytes from record to record
  FetchAhead ahead;
};

// Block scales of both panels of records that follow each other, a byte each, one after the other in every row:
// [groups][2 panels][16 rows] in a record. At most a segment (gemm_kernels.h).
struct ScaleRun {
  const std::uint8_t* rows[2] = {};  // of each panel the first one that is wanted, of the first row
  std::int64_t strides[2] = {};      // bytes from row to row
  std::int64_t records = 0;
  std::byte* to = nullptr;  // first scale in the first record
  std::int64_t step = 0;    // bytes from record to record
};

struct LineKernels {
  void (*bf16)(const LineRun&) = nullptr;
  void (*fp8)(const LineRun&) = nullptr;
  void (*nvfp4)(const LineRun&) = nullptr;
  // Whether a block of 32 codes has zeros only.
  bool (*mxfp4)(const LineRun&) = nullptr;
  // For scales that need no second look, which is almost all. Return false where there are others; whatever was written
  // then has to be written again.
  bool (*nvfp4_scales)(const ScaleRun&) = nullptr;             // positive, normal numbers
  bool (*mxfp4_scales)(const ScaleRun&, bool& far) = nullptr;  // up to 2^125; `far` is set by one beyond 2^-40 or 2^40
};

// The table of an instruction set. The caller makes sure that the processor has it. Lines may be written past the
// cache: finish_lines() before another thread is told about them.
const LineKernels& line_kernels(Isa isa);
void finish_lines();

const LineKernels& line_kernels_scalar();
const LineKernels& line_kernels_avx2();
const LineKernels& line_kernels_avx512();
const LineKernels& line_kernels_avx512_vbmi();

}  // namespace sluice::cpu
