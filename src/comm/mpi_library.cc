#include "comm/mpi_library.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>

#include "comm/mpi.h"
#include "core/error.h"

#ifndef OPEN_MPI
#error "mpi.h is not OpenMPI's; the CMake cache variable SLUICE_MPI_INCLUDE names its folder"
#endif

namespace sluice::comm {
namespace {

constexpr const char* kFile = "libmpi.so.40";
constexpr const char* kAdvice = "install OpenMPI: sudo apt-get install openmpi-bin libopenmpi3";

void* open_library() { return dlopen(kFile, RTLD_NOW | RTLD_GLOBAL); }

void* symbol(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == nullptr) {
    fail(ErrorCode::resources, std::string(kFile) + " has no " + name, "the library of OpenMPI 4 or 5", kAdvice);
  }
  return found;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(symbol(library, name));
}

// Ranks share cores, and containers forbid reading each other's memory; a user's own setting wins.
void choose_settings() {
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  setenv("OMPI_MCA_btl_base_warn_component_unused", "0", 0);
}

}  // namespace

MpiLibrary MpiLibrary::load() {
  choose_settings();
  void* const library = open_library();
  if (library == nullptr) fail(ErrorCode::resources, std::string("OpenMPI can't be loaded: ") + dlerror(), "", kAdvice);
  MpiLibrary mpi;
  find(library, "MPI_Init_thread", mpi.init_thread);
  find(library, "MPI_Finalize", mpi.finalize);
  find(library, "MPI_Abort", mpi.abort);
  find(library, "MPI_Comm_rank", mpi.comm_rank);
  find(library, "MPI_Comm_size", mpi.comm_size);
  find(library, "MPI_Comm_set_errhandler", mpi.comm_set_errhandler);
  find(library, "MPI_Isend", mpi.isend);
  find(library, "MPI_Irecv", mpi.irecv);
  find(library, "MPI_Testsome", mpi.testsome);
  find(library, "MPI_Get_count", mpi.get_count);
  find(library, "MPI_Error_string", mpi.error_string);
  // What MPI_COMM_WORLD and its like are in OpenMPI: addresses of objects of the library.
  mpi.world = static_cast<MPI_Comm>(symbol(library, "ompi_mpi_comm_world"));
  mpi.byte = static_cast<MPI_Datatype>(symbol(library, "ompi_mpi_byte"));
  mpi.errors_return = static_cast<MPI_Errhandler>(symbol(library, "ompi_mpi_errors_return"));
  return mpi;
}

std::string MpiLibrary::error_text(int code) const {
  std::array<char, MPI_MAX_ERROR_STRING> text = {};
  int length = 0;
  error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

EngineFound find_mpi() {
  void* const library = dlopen(kFile, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return {"not found", kAdvice};
  const auto version = reinterpret_cast<decltype(&MPI_Get_library_version)>(dlsym(library, "MPI_Get_library_version"));
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text = {};
  int length = 0;
  if (version != nullptr) version(text.data(), &length);
  const std::string all(text.data(), static_cast<std::size_t>(length));
  dlclose(library);
  return {all.substr(0, all.find(',')), ""};
}

}  // namespace sluice::comm
