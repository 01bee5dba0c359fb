// The functions of OpenMPI that Sluice calls, found at run time: types from mpi.h, nothing to link with.
//
// Loaded once a process by join_mpi; stays loaded to the end of the process, as OpenMPI's own plug-ins need it.
#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <string>

namespace sluice::comm {

struct MpiLibrary {
  decltype(&MPI_Init_thread) init_thread = nullptr;
  decltype(&MPI_Finalize) finalize = nullptr;
  decltype(&MPI_Abort) abort = nullptr;
  decltype(&MPI_Comm_rank) comm_rank = nullptr;
  decltype(&MPI_Comm_size) comm_size = nullptr;
  decltype(&MPI_Comm_set_errhandler) comm_set_errhandler = nullptr;
  decltype(&MPI_Isend) isend = nullptr;
  decltype(&MPI_Irecv) irecv = nullptr;
  decltype(&MPI_Testsome) testsome = nullptr;
  decltype(&MPI_Get_count) get_count = nullptr;
  decltype(&MPI_Error_string) error_string = nullptr;
  MPI_Comm world = nullptr;
  MPI_Datatype byte = nullptr;
  MPI_Errhandler errors_return = nullptr;

  // Throws Error(resources) with the package to install.
  static MpiLibrary load();
  std::string error_text(int code) const;
};

}  // namespace sluice::comm
