// What every rank is doing, in memory that all ranks of a host see: how a wait that fails names the peer that is
// behind, and how a dead peer is noticed at once.
//
// Written by each rank about itself, read by all, without locks. Made by the groups; ranks on other hosts have no note
// here, and nothing but the limit tells about them. Cost: 64 bytes a rank, two stores an operation.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sluice::comm {

enum class Kind : std::uint8_t { barrier, broadcast, all_reduce, all_gather, reduce_scatter, all_to_all, split };
std::string_view kind_name(Kind kind);

// A place in the sequence of operations of a group. Numbers count from 1.
struct Position {
  std::uint8_t group = 0;  // the same on all its ranks
  Kind kind = Kind::barrier;
  std::uint64_t number = 0;
};

class Board {
 public:
  static std::shared_ptr<Board> in_process(int ranks);
  // One board for all processes of this host that open the same `name`. The first creates it.
  static std::shared_ptr<Board> in_host(const std::string& name, int ranks);
  // Takes the name away; who has opened the board keeps it.
  static void unlink(const std::string& name);

  explicit Board(int ranks) : ranks_(ranks) {}
  virtual ~Board() = default;
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int ranks() const { return ranks_; }
  // `pid` 0: a thread of this process, which is gone only when it says so.
  void join(int rank, std::int32_t pid);
  void leave(int rank);
  void fail(int rank);  // it ends with an error of its own
  void enter(int rank, const Position& position);
  void complete(int rank);

  // True once, for the first of all ranks that asks: errors that follow from another rank's are not reported again.
  bool claim_report(int rank);
  int reporter() const;  // -1: nobody
  // The report is written. Whoever ends the run for the same failure waits for that, lest it end the reporter before.
  void set_reported() { header().reported = 1; }
  void await_report() const;
  // What the run ends with: the first rank's that says so.
  void set_exit_code(int code);
  int exit_code() const { return header().exit_code - 1; }  // -1: none said
  // The last signal of the user's that rank 0 was given: when it dies then, that is no fault.
  void set_signal(int number) { header().signal = number; }
  int signal() const { return header().signal; }               // 0: none
  std::int32_t pid(int rank) const { return note(rank).pid; }  // 0: not joined

  bool running(int rank) const { return note(rank).state == State::running; }
  // It was here and won't answer any more: it left, failed or is dead.
  bool gone(int rank) const;
  // True when `rank` is inside the operation `mine`.
  bool takes_part(int rank, const Position& mine) const;
  // True when `rank` waits inside a later operation than `mine` has been in, or in one of another group.
  bool ahead(int rank, int mine) const;
  // "rank 1 entered all_reduce 2 0.1 s ago" when that is at the number of `mine` another operation, else empty. Says
  // the same of a rank that has left since, for having noticed first.
  std::string disagreement(int rank, const Position& mine) const;
  // "rank 2 (process 71) is dead; it entered all_reduce 480 12.0 s ago"
  std::string describe(int rank) const;

 protected:
  enum class State : std::int32_t { absent, running, left, failed };
  struct alignas(64) Note {
    std::atomic<std::int32_t> pid;
    std::atomic<State> state;
    std::atomic<std::uint64_t> position;
    std::atomic<std::int64_t> since_us;
  };
  struct alignas(64) Header {
    std::atomic<std::int32_t> reporter;   // rank + 1
    std::atomic<std::int32_t> exit_code;  // code + 1
    std::atomic<std::int32_t> signal;
    std::atomic<std::int32_t> reported;
  };
  static std::size_t bytes(int ranks) { return sizeof(Header) + static_cast<std::size_t>(ranks) * sizeof(Note); }
  virtual Header& header() const = 0;
  Note& note(int rank) const { return reinterpret_cast<Note*>(&header() + 1)[rank]; }

 private:
  std::string condition(int rank) const;

  int ranks_;
};

// Microseconds of a clock that all processes of a host share.
std::int64_t host_clock_us();

}  // namespace sluice::comm
