// Ranks of a run as processes: starting them, joining them, ending them together.
//
// Called by cli/main.cc: `start_ranks` in the process the user started, `join_ranks` in each rank. Order in main:
//   if (!is_rank() && tp > 1) return start_ranks(tp, argc, argv);   // the same command line once a rank, by mpirun
//   session = join_ranks({tp, timeout});                            // when is_rank(), or with one rank
//   try { code = command(session->world()) } catch (...) { session->report(text); code = ... }
//   return session->finish(code);                                   // last: after a report it ends the other ranks
// Ranks above 0 have no standard output and error: what they print is dropped, only report() reaches the user.
// A session belongs to one thread; its world may be used by any one thread at a time and must not outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/group.h"

namespace sluice::app {

// Started by mpirun or by srun with PMI: this process is one rank of several. A launcher's only process is no rank.
bool is_rank();

// Whether a user types what this process reads: at its terminal, or at that of the process that has started the ranks.
bool input_is_typed();

// Runs `mpirun -n ranks` with this executable and these arguments on this host and waits for it. Signals that
// ask to end go to rank 0. Returns the exit code, 128 + n when signal n has ended rank 0; throws Error(resources) when
// mpirun is missing.
int start_ranks(int ranks, int argc, char** argv);

struct RankOptions {
  int ranks = 1;                      // what the command line says; Error(usage) when as many were not started
  double timeout_seconds = 300;       // of every wait for another rank
  double start_timeout_seconds = 60;  // of joining, until the last process has been started
  std::int64_t message_bytes = 0;     // longest message; 0 = the engine's own limit
};

class RankSession {
 public:
  virtual ~RankSession() = default;
  virtual Group& world() = 0;
  int rank() { return world().rank(); }
  int size() { return world().size(); }

  // Writes "sluice: rank 2: TEXT" to standard error (a TEXT that names a rank stays as it is), unless another rank has
  // reported before: then what failed here follows from there. With one rank "sluice: TEXT". No TEXT: nobody is told
  // anything, here or on other ranks.
  virtual void report(const std::string& text) = 0;

  // The same for a mistake of the user's, which every rank finds: rank 0 tells, and without a rank's name.
  virtual void refuse(const std::string& text) = 0;

  // Of rank 0, when threads of its own are in the middle of something: ends all ranks with this exit code, without a
  // word. This process ends too, or is ended by the caller.
  virtual void abandon(int exit_code) = 0;

  // The last call. After report() or refuse(): ends all ranks with this exit code. Otherwise waits for the others to
  // come here too; the first code that is not 0 (a check that did not pass) is returned on all of them.
  virtual int finish(int exit_code) = 0;
};

std::unique_ptr<RankSession> join_ranks(const RankOptions& options);

// Collective. Throws the same Error(usage) on every rank when a value differs from rank 0's, naming fact and rank.
// Facts have the same names in the same order everywhere: version, flags, the checkpoint's header hash.
using Facts = std::vector<std::pair<std::string, std::string>>;
void agree(Group& world, const Facts& facts);

}  // namespace sluice::app
