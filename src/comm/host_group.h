// Collectives of groups in host memory, all made of one primitive: an exchange of parts between all ranks. `threads`
// and `mpi` supply the exchange; sums, waiting, the limit and the messages of failures are here, the same for both.
//
// One object a rank, used by one thread at a time. After a failure every call throws what failed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/board.h"
#include "comm/group.h"

namespace sluice::comm {

// Who a rank is in a group. `board_rank[r]` is the rank r's number in the run, which messages use.
struct Membership {
  std::shared_ptr<Board> board;
  std::vector<int> board_rank;
  int rank = 0;
  std::uint8_t group = 0;                                                    // 0: all ranks of the run
  std::shared_ptr<std::int32_t> groups = std::make_shared<std::int32_t>(0);  // made so far by this rank's splits
  double timeout_seconds = 0;

  int size() const { return static_cast<int>(board_rank.size()); }
};

class HostGroup : public Group {
 public:
  explicit HostGroup(Membership member);
  int rank() const final { return member_.rank; }
  int size() const final { return member_.size(); }
  void barrier() final;
  void broadcast(void* data, std::size_t bytes, int root, Stream stream) final;
  void all_reduce_sum(float* data, std::size_t count, Stream stream) final;
  void all_gather(const void* send, void* receive, const RankParts& parts, Stream stream) final;
  void reduce_scatter_sum(const float* send, float* receive, const RankParts& parts, Stream stream) final;
  void start_all_to_all(const AllToAll& exchange, Stream stream) final;
  void finish_all_to_all(Stream stream) final;
  std::unique_ptr<Group> split(int color) final;
  double set_timeout(double seconds) final;
  std::string gone_peers() const final;

 protected:
  const Membership& member() const { return member_; }

  // Begins to move the parts; they and what they point to stay until complete() holds for every rank.
  virtual void begin(const AllToAll& exchange, const Position& position) = 0;
  // Moves what can be moved without waiting. Throws Error(resources) when a peer's part has another size.
  virtual void progress() = 0;
  // Nothing is awaited from or by `peer` any more.
  virtual bool complete(int peer) const = 0;
  // After a failure: what was begun is given up; when it returns no peer looks at the parts any more.
  virtual void withdraw() = 0;
  // For progress(): `peer` sent `bytes` and this rank expected `expected`. Throws.
  [[noreturn]] void refuse_size(int peer, std::int64_t bytes, std::int64_t expected);
  virtual std::unique_ptr<Group> make_part(Membership member) = 0;

 private:
  void enter(Kind kind);
  void leave();
  // One exchange within the current operation, to its end.
  void exchange(const AllToAll& x);
  void start(const AllToAll& x);
  void wait();
  void break_off(const char* why);
  bool all_complete() const;
  void check_peers();
  void check_disagreement();
  int culprit() const;  // whom the others wait for, as far as the board tells
  int board_rank(int r) const { return member_.board_rank[static_cast<std::size_t>(r)]; }
  std::string place() const;  // "rank 0, all_reduce 481"
  [[noreturn]] void give_up(const std::string& what, const std::string& peer);

  void sum_parts(const float* send, float* receive, const RankParts& parts);
  void gather(const void* send, void* receive, const RankParts& parts);

  Membership member_;
  Position position_;
  std::string broken_;  // why the group can't be used any more
  std::vector<float> scratch_;
  std::vector<std::int64_t> offsets_, counts_, more_offsets_, more_counts_;
};

}  // namespace sluice::comm
