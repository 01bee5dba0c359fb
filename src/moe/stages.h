// Names of the intermediates that a StageSink receives. Every runner uses these names with these shapes, so that dumps
// can be compared. `route` of record() is t * k + s of each row; rows come expert by expert, ascending within one.
//
// A stage may come in several records, each with other routes (a runner may work in chunks of tokens).
//
// gemm1_input and intermediate of a quantised recipe are recorded as the values that the codes stand for (code * block
// scale * sum scale in fp32) under their own name, and under that name + a suffix below as the codes and scales
// themselves. Extents of a row: reference::row_extents.
#pragma once

#include <string_view>

namespace sluice::stage {

inline constexpr std::string_view kRouterLogits = "router_logits";  // [T, E] f32, before routing; from MoeLayer
// [R, W] what GEMM1 reads, after its rounding (and after the weight, for weight_on_input)
inline constexpr std::string_view kGemm1Input = "gemm1_input";
inline constexpr std::string_view kGate = "gate";  // [R, I] f32 accumulator with bias; absent when not gated
inline constexpr std::string_view kUp = "up";      // [R, I] f32 accumulator with bias
inline constexpr std::string_view kIntermediate = "intermediate";  // [R, I] what GEMM2 reads, after its rounding
inline constexpr std::string_view kSlotRows = "slot_rows";         // [R, W] expert outputs, unweighted, after rounding
// [T, I] what the down projection of the shared expert reads; from MoeLayer
inline constexpr std::string_view kSharedIntermediate = "shared_intermediate";

inline constexpr std::string_view kCodes = ".codes";               // [R, bytes] u8: e4m3, or e2m1 two a byte
inline constexpr std::string_view kBlockScales = ".block_scales";  // [R, blocks] u8: e4m3 (nvfp4) or e8m0 (mxfp8)
inline constexpr std::string_view kSumScales = ".sum_scales";      // [R, 1 or groups] f32: fp8 and nvfp4

}  // namespace sluice::stage
