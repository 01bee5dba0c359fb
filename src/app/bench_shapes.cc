#include <string>

#include "app/bench_moe.h"
#include "core/error.h"

namespace sluice::app {
namespace {

constexpr MoeShape kShapes[] = {
    {"qwen3-30b", "Qwen3-30B-A3B", 128, 128, 8, 2048, 768},
    {"qwen3-235b", "Qwen3-235B-A22B", 128, 128, 8, 4096, 1536},
    {"mixtral-8x7b", "Mixtral-8x7B", 8, 8, 2, 4096, 14336},
    {"gpt-oss-20b", "GPT-OSS-20b, weights in bf16", 32, 32, 4, 2880, 2880, ActivationKind::swiglu_oai, true},
    {"gpt-oss-120b", "GPT-OSS-120b, weights in bf16", 128, 128, 4, 2880, 2880, ActivationKind::swiglu_oai, true},
    {"deepseek-v3-rank", "DeepSeek-V3, rows that reached one of 8 ranks", 32, 32, 1, 7168, 2048},
    {"deepseek-v3-ep8", "DeepSeek-V3, one of 8 ranks, weights in bf16", 256, 32, 8, 7168, 2048},
    {"tiny", "for trying the command", 16, 16, 4, 256, 192},
};

}  // namespace

std::span<const MoeShape> moe_shapes() { return kShapes; }

const MoeShape& moe_shape(std::string_view name) {
  std::string names;
  for (const MoeShape& shape : kShapes) {
    if (shape.name == name) return shape;
    names += names.empty() ? std::string(shape.name) : ", " + std::string(shape.name);
  }
  fail(ErrorCode::usage, "there is no shape " + std::string(name), names);
}

}  // namespace sluice::app
