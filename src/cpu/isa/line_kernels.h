// The loops that turn rows of a file into lines of panels while loading, one table for each instruction set.
//
// Called by panel.cc and panel_quant.cc, from many threads, on the caller's memory. Permutations of bytes or nibbles:
// every table writes the same bytes. As in gemm_kernels.h, units with wide instructions see nothing but plain data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::cpu {

enum class Isa : std::uint8_t;  // features.h, whose other contents these units must not see

// Records of one panel that follow each other: all codes of 16 rows in the order of gemm_kernels.h, without scales.
struct LineRun {
  const std::byte* const* rows = nullptr;  // [16] first byte of each
  std::int64_t records = 0;                // 64 bytes of each row, 32 of 4-bit codes
  std::byte* to = nullptr;                 // first line of the panel in the first record
  std::int64_t pitch = 0;                  // bytes from a line of the panel to its next
  std::int64_t step = 0;                   // bytes from record to record
  std::int64_t ahead = 0;                  // bytes from a row to what is fetched meanwhile: rows of the next panel
};

struct LineKernels {
  void (*bf16)(const LineRun&) = nullptr;
  void (*fp8)(const LineRun&) = nullptr;
  void (*nvfp4)(const LineRun&) = nullptr;
  // Whether a block of 32 codes has zeros only.
  bool (*mxfp4)(const LineRun&) = nullptr;
};

// The table of an instruction set. The caller makes sure that the processor has it. Lines may be written past the
// cache: finish_lines() before another thread is told about them.
const LineKernels& line_kernels(Isa isa);
void finish_lines();

const LineKernels& line_kernels_scalar();
const LineKernels& line_kernels_avx2();
const LineKernels& line_kernels_avx512();

}  // namespace sluice::cpu
