// Standard input for rank 0: the starter's own file, but for a terminal, which only the foreground process group may
// read. mpirun gives each rank a group of its own, so the starter, which is in the foreground, passes on what is typed.
//
// Made by start_ranks before mpirun, gone after it; its thread ends with it.
#pragma once

#include <array>
#include <thread>

namespace sluice::app {

class RankInput {
 public:
  RankInput();  // opens /dev/null where the user has closed standard input
  ~RankInput();
  RankInput(const RankInput&) = delete;
  RankInput& operator=(const RankInput&) = delete;

  int file() const;  // what rank 0 reads
  bool typed() const { return thread_.joinable(); }

 private:
  void pass_on();
  bool wait_for(int file, short events, int milliseconds) const;

  std::array<int, 2> line_ = {-1, -1};  // a pipe to rank 0
  std::array<int, 2> stop_ = {-1, -1};
  std::thread thread_;
};

}  // namespace sluice::app
