#include "comm/mpi.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "comm/guard.h"
#include "comm/host_group.h"
#include "comm/mpi_library.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

// What the groups of a process share.
struct Engine {
  MpiLibrary mpi;
  std::int64_t message_bytes = kMessageBytes;
  bool unusable = false;  // a failed group has left messages under way: only end_all() may follow

  void check(int code, const char* call) const {
    if (code != MPI_SUCCESS) fail(ErrorCode::resources, std::string(call) + ": " + mpi.error_text(code));
  }
};

// Messages of one operation of one group; ranks are those of the run, so that no group needs a communicator.
int tag_of(const Position& p) {
  return (p.group & 0x7f) << 24 | static_cast<int>(p.kind) << 20 | static_cast<int>(p.number & 0xfffffu);
}

class MpiGroup final : public HostGroup {
 public:
  MpiGroup(Membership m, std::shared_ptr<Engine> engine)
      : HostGroup(std::move(m)), engine_(std::move(engine)), open_(static_cast<std::size_t>(size())) {}
  ~MpiGroup() override {
    if (!requests_.empty()) engine_->unusable = true;
  }
  std::string_view name() const override { return "mpi"; }

 protected:
  void begin(const AllToAll& x, const Position& position) override {
    if (engine_->unusable) fail(ErrorCode::resources, "MPI can't be used after a group has failed");
    const int tag = tag_of(position);
    for (int step = 1; step < size(); ++step) post_receive(x, (rank() + size() - step) % size(), tag);
    for (int step = 1; step < size(); ++step) post_send(x, (rank() + step) % size(), tag);
    const auto* from = static_cast<const std::byte*>(x.send) + x.send_parts.offsets[rank()];
    auto* to = static_cast<std::byte*>(x.receive) + x.receive_parts.offsets[rank()];
    const std::int64_t own = std::min(x.send_parts.counts[rank()], x.receive_parts.counts[rank()]);
    if (own != 0 && from != to) std::memmove(to, from, static_cast<std::size_t>(own));
  }

  void progress() override {
    if (requests_.empty()) return;
    int done = 0;
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    const int code = engine_->mpi.testsome(static_cast<int>(requests_.size()), requests_.data(), &done, indices_.data(),
                                           statuses_.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) engine_->check(code, "MPI_Testsome");
    for (int i = 0; i < done; ++i)
      settle(statuses_[static_cast<std::size_t>(i)], indices_[static_cast<std::size_t>(i)], code);
    if (std::all_of(open_.begin(), open_.end(), [](int n) { return n == 0; })) {
      requests_.clear();
      messages_.clear();
    }
  }

  bool complete(int peer) const override { return open_[static_cast<std::size_t>(peer)] == 0; }

  // Messages can't be called back: MPI would write into memory that is freed by now, if it were called again.
  void withdraw() override { engine_->unusable = true; }

  std::unique_ptr<Group> make_part(Membership part) override {
    return std::make_unique<MpiGroup>(std::move(part), engine_);
  }

 private:
  struct Message {
    int peer = 0;
    std::int64_t expected = -1;  // bytes to receive; -1 when it is sent
  };

  int world_rank(int r) const { return member().board_rank[static_cast<std::size_t>(r)]; }

  void post(int peer, std::int64_t expected) {
    requests_.emplace_back();
    messages_.push_back({peer, expected});
    ++open_[static_cast<std::size_t>(peer)];
  }

  void post_receive(const AllToAll& x, int peer, int tag) {
    auto* to = static_cast<std::byte*>(x.receive) + x.receive_parts.offsets[peer];
    for (std::int64_t left = x.receive_parts.counts[peer]; left > 0;
         left -= engine_->message_bytes, to += engine_->message_bytes) {
      const std::int64_t bytes = std::min(left, engine_->message_bytes);
      post(peer, bytes);
      engine_->check(engine_->mpi.irecv(to, static_cast<int>(bytes), engine_->mpi.byte, world_rank(peer), tag,
                                        engine_->mpi.world, &requests_.back()),
                     "MPI_Irecv");
    }
  }

  void post_send(const AllToAll& x, int peer, int tag) {
    const auto* from = static_cast<const std::byte*>(x.send) + x.send_parts.offsets[peer];
    for (std::int64_t left = x.send_parts.counts[peer]; left > 0;
         left -= engine_->message_bytes, from += engine_->message_bytes) {
      post(peer, -1);
      engine_->check(
          engine_->mpi.isend(from, static_cast<int>(std::min(left, engine_->message_bytes)), engine_->mpi.byte,
                             world_rank(peer), tag, engine_->mpi.world, &requests_.back()),
          "MPI_Isend");
    }
  }

  void settle(const MPI_Status& status, int index, int code) {
    const Message& message = messages_[static_cast<std::size_t>(index)];
    --open_[static_cast<std::size_t>(message.peer)];
    if (message.expected < 0) return;
    int bytes = 0;
    engine_->mpi.get_count(&status, engine_->mpi.byte, &bytes);
    const bool failed = code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS;
    if (failed && status.MPI_ERROR != MPI_ERR_TRUNCATE) engine_->check(status.MPI_ERROR, "MPI_Irecv");
    if (failed || bytes != message.expected) refuse_size(message.peer, bytes, message.expected);
  }

  std::shared_ptr<Engine> engine_;
  std::vector<int> open_;  // messages under way, by peer
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

class MpiProcess final : public RankProcess {
 public:
  explicit MpiProcess(const JoinOptions& options)
      : options_(options),
        engine_(std::make_shared<Engine>()),
        board_(Board::in_host(options.board_name, options.size)) {
    engine_->mpi = MpiLibrary::load();
    engine_->message_bytes = options_.message_bytes;
    board_->join(options_.rank, getpid());
    try {
      start();
    } catch (...) {
      Board::unlink(options_.board_name);
      throw;
    }
    // All have opened the board: nothing of it stays behind, whatever ends the run.
    Board::unlink(options_.board_name);
    const MpiLibrary& mpi = engine_->mpi;
    int rank = 0, size = 0;
    engine_->check(mpi.comm_rank(mpi.world, &rank), "MPI_Comm_rank");
    engine_->check(mpi.comm_size(mpi.world, &size), "MPI_Comm_size");
    engine_->check(mpi.comm_set_errhandler(mpi.world, mpi.errors_return), "MPI_Comm_set_errhandler");
    if (rank != options_.rank || size != options_.size) {
      fail(ErrorCode::resources,
           "OpenMPI made this process rank " + std::to_string(rank) + " of " + std::to_string(size),
           "rank " + std::to_string(options_.rank) + " of " + std::to_string(options_.size) + ", as the launcher said",
           "the launcher must be of the same OpenMPI: mpirun of openmpi-bin, or srun --mpi=pmix");
    }
  }
  ~MpiProcess() override { Board::unlink(options_.board_name); }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  Board& board() override { return *board_; }

  std::unique_ptr<Group> make_world() override {
    Membership member;
    member.board = board_;
    member.board_rank.resize(static_cast<std::size_t>(size()));
    std::iota(member.board_rank.begin(), member.board_rank.end(), 0);
    member.rank = rank();
    member.timeout_seconds = options_.timeout_seconds;
    auto world = std::make_unique<MpiGroup>(std::move(member), engine_);
    world->barrier();
    return world;
  }

  void leave() override {
    const Guard guard = limit("MPI_Finalize");  // it still delivers what others wait for
    engine_->check(engine_->mpi.finalize(), "MPI_Finalize");
    board_->leave(rank());
  }

  void end_all(int exit_code) override {
    board_->set_exit_code(exit_code);
    board_->fail(rank());
    const Guard guard = limit("MPI_Abort");
    engine_->mpi.abort(engine_->mpi.world, exit_code);
  }

 private:
  Guard limit(const char* call) const {
    return {options_.start_timeout_seconds, [this, call] {
              const std::string seconds = std::to_string(static_cast<int>(options_.start_timeout_seconds));
              std::string what =
                  std::string(call) + " did not come back within " + seconds + " s; expected every rank to call it";
              for (int r = 0; r < board_->ranks(); ++r) {
                if (!board_->running(r)) what += ", but " + board_->describe(r);
              }
              if (board_->claim_report(options_.rank)) {
                options_.report(what);
                board_->set_reported();
              }
              board_->await_report();
              options_.end();
            }};
  }

  void start() {
    int level = MPI_THREAD_SINGLE;
    const Guard guard = limit("MPI_Init_thread");
    engine_->check(engine_->mpi.init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    if (level < MPI_THREAD_SERIALIZED) {
      fail(ErrorCode::resources, "this OpenMPI was built without threads", "MPI_THREAD_SERIALIZED");
    }
  }

  JoinOptions options_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Board> board_;
};

}  // namespace

std::unique_ptr<RankProcess> join_mpi(const JoinOptions& options) { return std::make_unique<MpiProcess>(options); }

}  // namespace sluice::comm
