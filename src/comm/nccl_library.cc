#include "comm/nccl_library.h"

#include <dlfcn.h>

#include "comm/nccl.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr const char* kAdvice = "install NCCL 2.18 or later (libnccl2), or put its folder into LD_LIBRARY_PATH";

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    fail(ErrorCode::resources, std::string(kFile) + " has no " + name, "NCCL 2.18 or later", kAdvice);
  }
}

}  // namespace

NcclLibrary NcclLibrary::load() {
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(ErrorCode::resources, std::string("NCCL can't be loaded: ") + dlerror(), "", kAdvice);
  NcclLibrary nccl;
  find(library, "ncclGetVersion", nccl.get_version);
  find(library, "ncclGetUniqueId", nccl.get_unique_id);
  find(library, "ncclCommInitRankConfig", nccl.comm_init);
  find(library, "ncclCommGetAsyncError", nccl.comm_state);
  find(library, "ncclCommFinalize", nccl.comm_finalize);
  find(library, "ncclCommDestroy", nccl.comm_destroy);
  find(library, "ncclCommAbort", nccl.comm_abort);
  find(library, "ncclGroupStart", nccl.group_start);
  find(library, "ncclGroupEnd", nccl.group_end);
  find(library, "ncclSend", nccl.send);
  find(library, "ncclRecv", nccl.recv);
  find(library, "ncclBroadcast", nccl.broadcast);
  find(library, "ncclAllGather", nccl.all_gather);
  find(library, "ncclGetErrorString", nccl.error_string);
  return nccl;
}

EngineFound find_nccl() {
  try {
    int version = 0;
    NcclLibrary::load().get_version(&version);
    return {"NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
                std::to_string(version % 100),
            ""};
  } catch (const Error& e) {
    return {"NCCL not found", e.what()};
  }
}

}  // namespace sluice::comm
