// Instead of OpenMPI, in builds without its headers.
#include "comm/mpi.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

constexpr const char* kAdvice = "sudo apt-get install libopenmpi-dev openmpi-bin, then build again";

}  // namespace

std::unique_ptr<RankProcess> join_mpi(const JoinOptions&) {
  fail(ErrorCode::unsupported, "this build was made without OpenMPI and runs one rank", "", kAdvice);
}

EngineFound find_mpi() { return {"none: this build was made without OpenMPI's headers", kAdvice}; }

}  // namespace sluice::comm
