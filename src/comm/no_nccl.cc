// Instead of NCCL, in builds without CUDA or without NCCL's header.
#include "comm/nccl.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

constexpr const char* kAdvice = "build the CMake preset `cuda` where nvcc and nccl.h are found";

}  // namespace

std::unique_ptr<Group> make_nccl_group(Group&, const NcclOptions&) {
  fail(ErrorCode::unsupported, "this build was made without NCCL: GPUs can't be ranks of one run", "", kAdvice);
}

EngineFound find_nccl() { return {"none: this build was made without NCCL", kAdvice}; }

}  // namespace sluice::comm
