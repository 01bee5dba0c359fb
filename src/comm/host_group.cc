#include "comm/host_group.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "comm/patience.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

// Up to here one exchange of everything is cheaper than two of parts: every rank sums all of it.
constexpr std::size_t kWholeSumFloats = 4096;

// Groups that splits of a run may make: their numbers are part of the tags of messages.
constexpr std::int32_t kMostGroups = 127;

constexpr const char* kDisagreement = "ranks call different operations";

std::string timeout_text(double seconds) {
  const std::string text = std::to_string(seconds);
  return text.substr(0, text.find('.') + 2) + " s";
}

// What a rank of a split tells the others.
struct SplitNote {
  std::int32_t color = 0;
  std::int32_t groups = 0;
};

}  // namespace

HostGroup::HostGroup(Membership member)
    : member_(std::move(member)),
      offsets_(member_.board_rank.size()),
      counts_(member_.board_rank.size()),
      more_offsets_(member_.board_rank.size()),
      more_counts_(member_.board_rank.size()) {
  position_.group = member_.group;
}

void HostGroup::enter(Kind kind) {
  if (!broken_.empty()) {
    fail(ErrorCode::resources, "the group of ranks can't be used any more: " + broken_);
  }
  position_.kind = kind;
  ++position_.number;
  member_.board->enter(board_rank(rank()), position_);
}

void HostGroup::leave() { member_.board->complete(board_rank(rank())); }

void HostGroup::exchange(const AllToAll& x) {
  start(x);
  wait();
}

// What peers can see is taken back before an error leaves: its buffers may go with the caller.
void HostGroup::break_off(const char* why) {
  broken_ = why;
  withdraw();
}

void HostGroup::start(const AllToAll& x) {
  try {
    begin(x, position_);
  } catch (const std::exception& e) {
    break_off(e.what());
    throw;
  }
}

bool HostGroup::all_complete() const {
  for (int r = 0; r < size(); ++r) {
    if (!complete(r)) return false;
  }
  return true;
}

void HostGroup::wait() {
  Patience patience(member_.timeout_seconds);
  try {
    bool late = false;
    for (;;) {
      progress();
      if (all_complete()) return;
      if (late) {
        give_up("no end within " + timeout_text(member_.timeout_seconds),
                member_.board->describe(board_rank(culprit())));
      }
      late = !patience.pause();  // perhaps only because this rank itself did not run: hence one more look
      if (late || patience.look_around()) check_peers();
    }
  } catch (const std::exception& e) {
    break_off(e.what());
    throw;
  }
}

// A peer that has done its part and left is no fault: hence the look at what it has sent, after seeing it gone. One
// that left because ranks disagree does not hide that: hence the second look at the others.
void HostGroup::check_peers() {
  check_disagreement();
  for (int r = 0; r < size(); ++r) {
    if (complete(r) || !member_.board->gone(board_rank(r))) continue;
    check_disagreement();
    progress();
    if (!complete(r)) give_up("a rank is gone", member_.board->describe(board_rank(r)));
  }
}

void HostGroup::check_disagreement() {
  for (int r = 0; r < size(); ++r) {
    if (complete(r)) continue;
    const std::string other = member_.board->disagreement(board_rank(r), position_);
    if (!other.empty()) give_up(kDisagreement, other);
  }
}

// A rank that is inside this operation waits like this one; the one that isn't keeps both.
int HostGroup::culprit() const {
  int waiting = rank();
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || complete(r)) continue;
    if (!member_.board->takes_part(board_rank(r), position_)) return r;
    waiting = r;
  }
  return waiting;
}

std::string HostGroup::place() const {
  const std::string group = position_.group == 0 ? "" : " of group " + std::to_string(position_.group);
  return "rank " + std::to_string(board_rank(rank())) + ", " + std::string(kind_name(position_.kind)) + " " +
         std::to_string(position_.number) + group;
}

void HostGroup::give_up(const std::string& what, const std::string& peer) {
  fail(ErrorCode::resources, place() + ": " + what, "every rank to take part, but " + peer,
       "look for that rank's own message and at the memory of its machine");
}

void HostGroup::refuse_size(int peer, std::int64_t bytes, std::int64_t expected) {
  const std::string other = member_.board->disagreement(board_rank(peer), position_);
  if (!other.empty()) give_up(kDisagreement, other);
  fail(ErrorCode::resources,
       place() + ": rank " + std::to_string(board_rank(peer)) + " sent " + std::to_string(bytes) + " bytes",
       std::to_string(expected) + " bytes", "the ranks must run the same model with the same flags");
}

double HostGroup::set_timeout(double seconds) { return std::exchange(member_.timeout_seconds, seconds); }

std::string HostGroup::gone_peers() const {
  std::string text;
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || !member_.board->gone(board_rank(r))) continue;
    text += (text.empty() ? "" : ", ") + member_.board->describe(board_rank(r));
  }
  return text;
}

void HostGroup::barrier() {
  enter(Kind::barrier);
  std::byte sign{};
  std::vector<std::byte> signs(member_.board_rank.size());
  std::fill(offsets_.begin(), offsets_.end(), 0);
  std::fill(counts_.begin(), counts_.end(), 1);
  for (std::size_t r = 0; r < signs.size(); ++r) more_offsets_[r] = static_cast<std::int64_t>(r);
  exchange({&sign, {offsets_.data(), counts_.data()}, signs.data(), {more_offsets_.data(), counts_.data()}});
  leave();
}

void HostGroup::broadcast(void* data, std::size_t bytes, int root, Stream /*stream*/) {
  enter(Kind::broadcast);
  std::fill(offsets_.begin(), offsets_.end(), 0);
  std::fill(counts_.begin(), counts_.end(), 0);
  std::fill(more_counts_.begin(), more_counts_.end(), 0);
  const auto count = static_cast<std::int64_t>(bytes);
  if (rank() == root) {
    std::fill(counts_.begin(), counts_.end(), count);
    counts_[static_cast<std::size_t>(root)] = 0;
  } else {
    more_counts_[static_cast<std::size_t>(root)] = count;
  }
  exchange({data, {offsets_.data(), counts_.data()}, data, {offsets_.data(), more_counts_.data()}});
  leave();
}

void HostGroup::gather(const void* send, void* receive, const RankParts& parts) {
  std::fill(offsets_.begin(), offsets_.end(), 0);
  std::fill(counts_.begin(), counts_.end(), parts.counts[rank()]);
  exchange({send, {offsets_.data(), counts_.data()}, receive, parts});
}

void HostGroup::all_gather(const void* send, void* receive, const RankParts& parts, Stream /*stream*/) {
  enter(Kind::all_gather);
  gather(send, receive, parts);
  leave();
}

// Parts of the ranks come into scratch one after the other and are added in ascending order.
void HostGroup::sum_parts(const float* send, float* receive, const RankParts& parts) {
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t mine = parts.counts[rank()];
  scratch_.resize(static_cast<std::size_t>(mine * size()));
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    offsets_[i] = parts.offsets[r] * kFloat;
    counts_[i] = parts.counts[r] * kFloat;
    more_offsets_[i] = r * mine * kFloat;
    more_counts_[i] = mine * kFloat;
  }
  exchange({send, {offsets_.data(), counts_.data()}, scratch_.data(), {more_offsets_.data(), more_counts_.data()}});
  std::copy_n(scratch_.data(), mine, receive);
  for (int r = 1; r < size(); ++r) {
    const float* part = scratch_.data() + r * mine;
    for (std::int64_t c = 0; c < mine; ++c) receive[c] += part[c];
  }
}

void HostGroup::reduce_scatter_sum(const float* send, float* receive, const RankParts& parts, Stream /*stream*/) {
  enter(Kind::reduce_scatter);
  sum_parts(send, receive, parts);
  leave();
}

void HostGroup::all_reduce_sum(float* data, std::size_t count, Stream /*stream*/) {
  enter(Kind::all_reduce);
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> offsets(ranks), counts(ranks);
  if (count <= kWholeSumFloats) {
    std::fill(counts.begin(), counts.end(), static_cast<std::int64_t>(count));
    sum_parts(data, data, {offsets.data(), counts.data()});
    return leave();
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    offsets[r] = static_cast<std::int64_t>(count / ranks * r + std::min(r, count % ranks));
    counts[r] = static_cast<std::int64_t>(count / ranks + (r < count % ranks ? 1 : 0));
  }
  float* const mine = data + offsets[static_cast<std::size_t>(rank())];
  sum_parts(data, mine, {offsets.data(), counts.data()});
  for (std::size_t r = 0; r < ranks; ++r) {
    offsets[r] *= static_cast<std::int64_t>(sizeof(float));
    counts[r] *= static_cast<std::int64_t>(sizeof(float));
  }
  gather(mine, data, {offsets.data(), counts.data()});
  leave();
}

void HostGroup::start_all_to_all(const AllToAll& x, Stream /*stream*/) {
  enter(Kind::all_to_all);
  start(x);
}

void HostGroup::finish_all_to_all(Stream /*stream*/) {
  wait();
  leave();
}

std::unique_ptr<Group> HostGroup::split(int color) {
  enter(Kind::split);
  std::vector<SplitNote> notes(member_.board_rank.size());
  std::vector<std::int64_t> offsets(notes.size()), counts(notes.size(), sizeof(SplitNote));
  for (std::size_t r = 0; r < notes.size(); ++r) offsets[r] = static_cast<std::int64_t>(r * sizeof(SplitNote));
  SplitNote& mine = notes[static_cast<std::size_t>(rank())];
  mine = {color, *member_.groups};
  gather(&mine, notes.data(), {offsets.data(), counts.data()});
  leave();
  Membership part = member_;
  part.board_rank.clear();
  for (std::size_t r = 0; r < notes.size(); ++r) {
    *member_.groups = std::max(*member_.groups, notes[r].groups);
    if (notes[r].color != color) continue;
    if (static_cast<int>(r) == rank()) part.rank = part.size();
    part.board_rank.push_back(member_.board_rank[r]);
  }
  if (*member_.groups >= kMostGroups) {
    fail(ErrorCode::unsupported, "one more split of the ranks", "at most " + std::to_string(kMostGroups) + " in a run");
  }
  part.group = static_cast<std::uint8_t>(++*member_.groups);
  return make_part(std::move(part));
}

}  // namespace sluice::comm
