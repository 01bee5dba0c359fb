// Ranks as threads of one process: each posts where its parts lie, and the others copy from there.
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/host_group.h"

namespace sluice {
namespace {

using comm::Board;
using comm::HostGroup;
using comm::Membership;
using comm::Position;

// What a rank lets the others see. `posted` and `copied` count exchanges.
struct alignas(64) Post {
  AllToAll exchange;
  std::atomic<std::uint64_t> posted{0};
  std::atomic<std::uint64_t> copied{0};  // it has taken all parts for it up to this exchange
  std::atomic<int> readers{0};           // ranks that are looking at `exchange` and its parts
  std::atomic<bool> withdrawn{false};    // it failed: nobody may look any more
};

// Announces a look at a post, which its rank waits for before it gives up its buffers.
class Reader {
 public:
  explicit Reader(Post& post) : post_(post) { ++post_.readers; }
  ~Reader() { --post_.readers; }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  bool allowed() const { return !post_.withdrawn; }

 private:
  Post& post_;
};

using Posts = std::vector<Post>;

// Where the ranks of a part find each other's posts: the first to ask makes them.
class Run {
 public:
  std::shared_ptr<Posts> posts_of(const Membership& m) {
    const std::scoped_lock lock(mutex_);
    std::weak_ptr<Posts>& known = parts_[{m.group, m.board_rank}];
    std::shared_ptr<Posts> posts = known.lock();
    if (!posts) known = posts = std::make_shared<Posts>(m.board_rank.size());
    return posts;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::uint8_t, std::vector<int>>, std::weak_ptr<Posts>> parts_;
};

class ThreadGroup final : public HostGroup {
 public:
  ThreadGroup(Membership m, std::shared_ptr<Run> run, std::shared_ptr<Posts> posts)
      : HostGroup(std::move(m)), run_(std::move(run)), posts_(std::move(posts)), taken_(posts_->size()) {}
  ~ThreadGroup() override {
    if (member().group == 0) member().board->leave(rank());
  }
  std::string_view name() const override { return "threads"; }

 protected:
  void begin(const AllToAll& x, const Position& /*position*/) override {
    ++sequence_;
    std::fill(taken_.begin(), taken_.end(), false);
    post(rank()).exchange = x;
    post(rank()).posted.store(sequence_, std::memory_order_release);
  }

  void progress() override {
    bool all = true;
    for (int r = 0; r < size(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (!taken_[i] && post(r).posted.load(std::memory_order_acquire) >= sequence_) {
        const Reader reader(post(r));
        if (reader.allowed()) {
          take(r);
          taken_[i] = true;
        }
      }
      all = all && taken_[i];
    }
    if (all) post(rank()).copied.store(sequence_, std::memory_order_release);
  }

  bool complete(int peer) const override {
    return taken_[static_cast<std::size_t>(peer)] && post(peer).copied.load(std::memory_order_acquire) >= sequence_;
  }

  void withdraw() override {
    post(rank()).withdrawn = true;
    while (post(rank()).readers != 0) std::this_thread::yield();
  }

  std::unique_ptr<Group> make_part(Membership part) override {
    std::shared_ptr<Posts> posts = run_->posts_of(part);
    return std::make_unique<ThreadGroup>(std::move(part), run_, std::move(posts));
  }

 private:
  Post& post(int r) const { return (*posts_)[static_cast<std::size_t>(r)]; }

  void take(int peer) {
    const AllToAll& mine = post(rank()).exchange;
    const AllToAll& theirs = post(peer).exchange;
    const std::int64_t bytes = mine.receive_parts.counts[peer];
    if (theirs.send_parts.counts[rank()] != bytes) refuse_size(peer, theirs.send_parts.counts[rank()], bytes);
    const auto* from = static_cast<const std::byte*>(theirs.send) + theirs.send_parts.offsets[rank()];
    auto* to = static_cast<std::byte*>(mine.receive) + mine.receive_parts.offsets[peer];
    if (bytes != 0 && from != to) std::memmove(to, from, static_cast<std::size_t>(bytes));
  }

  std::shared_ptr<Run> run_;
  std::shared_ptr<Posts> posts_;
  std::vector<bool> taken_;
  std::uint64_t sequence_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_thread_groups(int ranks, double timeout_seconds) {
  Membership member;
  member.board = Board::in_process(ranks);
  member.timeout_seconds = timeout_seconds;
  member.board_rank.resize(static_cast<std::size_t>(ranks));
  std::iota(member.board_rank.begin(), member.board_rank.end(), 0);
  const auto run = std::make_shared<Run>();
  std::vector<std::unique_ptr<Group>> groups;
  const std::shared_ptr<Posts> posts = run->posts_of(member);
  for (int r = 0; r < ranks; ++r) {
    member.rank = r;
    member.groups = std::make_shared<std::int32_t>(0);
    member.board->join(r, 0);
    groups.push_back(std::make_unique<ThreadGroup>(member, run, posts));
  }
  return groups;
}

}  // namespace sluice
