// What `sluice quantize` can write: number format, dialect, and the tensors of one projection in it.
//
// Called by the exporter (export.h) and, for flags, by the command. Pure functions on plain data: thread-safe. Throws
// Error(usage) for unknown names and Error(unsupported) for pairs that no reader knows, naming what would work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors_stream.h"
#include "numerics/block_format.h"
#include "numerics/block_mx.h"

namespace sluice::ckpt {

enum class ExportFormat : std::uint8_t { bf16, fp8, fp8_block, nvfp4, mxfp4 };
enum class ExportDialect : std::uint8_t { plain, modelopt, compressed_tensors, deepseek, gpt_oss };

// How the projections that are quantised are written.
struct ExportTarget {
  ExportFormat format = ExportFormat::bf16;
  ExportDialect dialect = ExportDialect::plain;
  bool static_inputs = false;            // scales of the inputs are written: they come from calibration
  MxScale mx_scale = MxScale::round_up;  // round_up is ceil(log2(amax / 6))
  bool is_plain() const { return format == ExportFormat::bf16; }
  bool has_joint_scale() const;      // one scale a tensor, shared by gate and up
  BlockFormat block_format() const;  // not for bf16
};

// What the command line asks for. An empty dialect is the usual one of format and family.
struct ExportRequest {
  std::string format;    // "bf16", "fp8", "fp8-block", "nvfp4", "mxfp4"
  std::string dialect;   // "", "modelopt", "compressed-tensors", "deepseek", "gpt-oss"
  std::string mx_scale;  // "ceil" or "ocp"
  bool calibrated = false;
};

ExportTarget resolve_target(const ExportRequest& request, std::string_view family);

std::string_view format_name(ExportFormat format);
std::string_view dialect_name(ExportDialect dialect);

// The tensors of one weight [rows, cols] in a dialect. `base` is its module: the tensor name without ".weight".
// Absent ones have an empty name.
struct ModuleTensors {
  TensorDecl codes;
  TensorDecl block_scale;
  TensorDecl tensor_scale;
  TensorDecl input_scale;
};
ModuleTensors module_tensors(const ExportTarget& target, std::string_view base, std::int64_t rows, std::int64_t cols);

// Throws Error(unsupported) when rows of `cols` inputs cannot be written, naming the module.
void check_columns(const ExportTarget& target, std::string_view base, std::int64_t cols);

// Scales as the dialect stores them, from decode multipliers.
float stored_tensor_scale(const ExportTarget& target, float scale);
float stored_input_scale(const ExportTarget& target, float scale);

// The decode multiplier nearest to `scale`, not below it where possible, that survives being stored as its reciprocal:
// fp32(1 / fp32(1 / s)) == s. So the dialects that store either one hold the same weights.
float round_trip_scale(float scale);

// Decode multiplier of a weight with this amax, in formats that have one a tensor.
float tensor_scale_of(const ExportTarget& target, float amax);

// Decode multiplier of inputs with this amax: amax / (448 * 6) for NVFP4, amax / 448 for FP8; 1 when amax is 0.
float input_scale_of(const ExportTarget& target, float amax);

}  // namespace sluice::ckpt
