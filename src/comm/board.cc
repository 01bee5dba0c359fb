#include "comm/board.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "core/error.h"

namespace sluice::comm {
namespace {

constexpr std::array<std::string_view, 7> kKindNames = {"barrier",        "broadcast",  "all_reduce", "all_gather",
                                                        "reduce_scatter", "all_to_all", "split"};

// Position and whether the rank is inside, in one word, so that a reader never sees half of a change.
std::uint64_t packed(const Position& p, bool inside) {
  return (std::uint64_t{p.group} << 56) | (static_cast<std::uint64_t>(p.kind) << 49) | (std::uint64_t{inside} << 48) |
         (p.number & 0xffffffffffffu);
}

Position unpacked(std::uint64_t word) {
  return {static_cast<std::uint8_t>(word >> 56), static_cast<Kind>((word >> 49) & 0x7fu), word & 0xffffffffffffu};
}

bool inside(std::uint64_t word) { return ((word >> 48) & 1u) != 0; }

// The letter of /proc/PID/stat: R, S, D run; T is stopped; Z and X are dead. 0 when there is no such process.
char process_state(std::int32_t pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return 0;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');  // the name may hold spaces and brackets
  return name_end == std::string::npos || name_end + 2 >= line.size() ? 'R' : line[name_end + 2];
}

bool dead(std::int32_t pid) {
  const char state = process_state(pid);
  return state == 0 || state == 'Z' || state == 'X';
}

std::string seconds_text(std::int64_t us) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1f s", static_cast<double>(us) / 1e6);
  return text.data();
}

// "entered all_reduce 2 0.1 s ago"
std::string activity(std::uint64_t word, std::int64_t since_us) {
  const Position at = unpacked(word);
  const std::string group = at.group == 0 ? "" : " of group " + std::to_string(at.group);
  const std::string operation = std::string(kind_name(at.kind)) + " " + std::to_string(at.number) + group;
  const std::string time = seconds_text(host_clock_us() - since_us);
  if (inside(word)) return "entered " + operation + " " + time + " ago";
  return "completed " + operation + " " + time + " ago and has entered nothing since";
}

class ProcessBoard final : public Board {
 public:
  explicit ProcessBoard(int ranks) : Board(ranks), lines_((bytes(ranks) + sizeof(Line) - 1) / sizeof(Line)) {}

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> zero = {};
  };
  Header& header() const override { return *reinterpret_cast<Header*>(lines_.data()); }
  mutable std::vector<Line> lines_;
};

// Zero pages of a new shared object are a board on which nobody has joined.
class HostBoard final : public Board {
 public:
  HostBoard(const std::string& name, int ranks) : Board(ranks) {
    const int file = shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) refuse(name);
    const bool sized = ftruncate(file, static_cast<off_t>(bytes(ranks))) == 0;
    if (sized) memory_ = mmap(nullptr, bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    const int error = errno;
    close(file);
    errno = error;
    if (memory_ == MAP_FAILED) refuse(name);
  }
  ~HostBoard() override { munmap(memory_, bytes(ranks())); }

 private:
  [[noreturn]] static void refuse(const std::string& name) {
    sluice::fail(ErrorCode::resources, "shared memory " + name + ": " + std::strerror(errno),
                 "a writable /dev/shm with some free space", "mount it, or give the container --shm-size");
  }
  Header& header() const override { return *static_cast<Header*>(memory_); }
  void* memory_ = MAP_FAILED;
};

}  // namespace

std::string_view kind_name(Kind kind) { return kKindNames.at(static_cast<std::size_t>(kind)); }

std::int64_t host_clock_us() {
  using namespace std::chrono;
  return duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
}

std::shared_ptr<Board> Board::in_process(int ranks) { return std::make_shared<ProcessBoard>(ranks); }

std::shared_ptr<Board> Board::in_host(const std::string& name, int ranks) {
  return std::make_shared<HostBoard>(name, ranks);
}

void Board::unlink(const std::string& name) { shm_unlink(name.c_str()); }

void Board::join(int rank, std::int32_t pid) {
  note(rank).pid = pid;
  note(rank).since_us = host_clock_us();
  note(rank).state = State::running;
}

void Board::leave(int rank) { note(rank).state = State::left; }

void Board::fail(int rank) { note(rank).state = State::failed; }

void Board::enter(int rank, const Position& position) {
  note(rank).since_us.store(host_clock_us(), std::memory_order_relaxed);
  note(rank).position.store(packed(position, true), std::memory_order_release);
}

void Board::complete(int rank) {
  const Position at = unpacked(note(rank).position.load(std::memory_order_relaxed));
  note(rank).since_us.store(host_clock_us(), std::memory_order_relaxed);
  note(rank).position.store(packed(at, false), std::memory_order_release);
}

bool Board::claim_report(int rank) {
  std::int32_t nobody = 0;
  return header().reporter.compare_exchange_strong(nobody, rank + 1);
}

void Board::set_exit_code(int code) {
  std::int32_t none = 0;
  header().exit_code.compare_exchange_strong(none, code + 1);
}

void Board::await_report() const {
  constexpr int kLooks = 1000;  // of 10 ms: it is a line to write, which may be blocked
  for (int i = 0; i < kLooks && reporter() >= 0 && header().reported == 0 && !gone(reporter()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int Board::reporter() const { return header().reporter - 1; }

bool Board::gone(int rank) const {
  const Note& n = note(rank);
  const State state = n.state;
  if (state == State::absent) return false;
  return state != State::running || (n.pid != 0 && dead(n.pid));
}

bool Board::takes_part(int rank, const Position& mine) const {
  return note(rank).position.load(std::memory_order_acquire) == packed(mine, true);
}

bool Board::ahead(int rank, int mine) const {
  const std::uint64_t word = note(rank).position.load(std::memory_order_acquire);
  const Position theirs = unpacked(word), own = unpacked(note(mine).position.load(std::memory_order_acquire));
  return inside(word) && (theirs.group != own.group || theirs.number > own.number);
}

std::string Board::disagreement(int rank, const Position& mine) const {
  const std::uint64_t word = note(rank).position.load(std::memory_order_acquire);
  const Position theirs = unpacked(word);
  if (theirs.group != mine.group || theirs.number != mine.number || theirs.kind == mine.kind) return "";
  return "rank " + std::to_string(rank) + " " + activity(word, note(rank).since_us.load(std::memory_order_relaxed));
}

std::string Board::condition(int rank) const {
  const Note& n = note(rank);
  switch (n.state.load()) {
    case State::absent:
      return "has not joined, or is on another host";
    case State::left:
      return "has left the run";
    case State::failed:
      return "has failed";
    case State::running:
      break;
  }
  const std::int32_t pid = n.pid;
  const std::string process = pid == 0 ? "" : "(process " + std::to_string(pid) + ") ";
  const char state = pid == 0 ? 'R' : process_state(pid);
  if (state == 0 || state == 'Z' || state == 'X') return process + "is dead";
  return process + (state == 'T' || state == 't' ? "is stopped by a signal" : "is alive");
}

std::string Board::describe(int rank) const {
  std::string who = "rank " + std::to_string(rank) + " " + condition(rank);
  if (note(rank).state == State::absent) return who;
  const std::uint64_t word = note(rank).position.load(std::memory_order_acquire);
  if (unpacked(word).number == 0) return who + " and has entered no operation yet";
  return who + "; it " + activity(word, note(rank).since_us.load(std::memory_order_relaxed));
}

}  // namespace sluice::comm
