// Ranks as processes, over OpenMPI, which is loaded when a run has several ranks and not before: the binary starts and
// runs one rank without it. mpi.cc, or no_mpi.cc in a build without OpenMPI's headers.
//
// One RankProcess a process, made once and ended by leave() or end_all(); its groups must not outlive it. MPI is used
// by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/board.h"
#include "comm/group.h"

namespace sluice::comm {

// A message's length is an int.
constexpr std::int64_t kMessageBytes = std::int64_t{1} << 30;

struct JoinOptions {
  double timeout_seconds = 300;       // of waits for a peer
  double start_timeout_seconds = 60;  // of MPI's own start and end: programs and plug-ins are loaded meanwhile
  int rank = 0;                       // as the launcher says
  int size = 1;
  std::int64_t message_bytes = kMessageBytes;  // parts above this travel as several messages
  std::string board_name;  // names the shared memory of this host's ranks, "/..."; the same for all of them
  // Called from another thread when MPI does not come back within the limit: the first rank tells why, each ends its
  // process.
  std::function<void(const std::string& what)> report;
  std::function<void()> end;
};

class RankProcess {
 public:
  virtual ~RankProcess() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Board& board() = 0;
  // The group of all ranks. Called once.
  virtual std::unique_ptr<Group> make_world() = 0;
  // Every rank is done (a barrier of the world came before): leaves MPI.
  virtual void leave() = 0;
  // Ends all ranks of the run, with this exit code.
  virtual void end_all(int exit_code) = 0;
};

// Waits for all ranks to start. Throws Error(resources) when OpenMPI can't be loaded or does not start.
std::unique_ptr<RankProcess> join_mpi(const JoinOptions& options);

// For reports: "OpenMPI 4.1 (libmpi.so.40)", and what to do when it isn't there.
struct EngineFound {
  std::string found;
  std::string advice;  // empty when nothing is missing
};
EngineFound find_mpi();

}  // namespace sluice::comm
