// The KV pool against a slow model of it: after every call the same holders, the same published beginnings, the same
// block evicted; nothing is lost, nothing is held twice.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "engine/kv_pool.h"
#include "kv_pool_model.h"

namespace sluice::engine {
namespace {

using testing::Holder;
using testing::PoolModel;
using testing::Text;

constexpr std::int64_t kBlockTokens = 2;

// Few tokens and salts, so that beginnings meet often.
struct Call {
  enum class Kind { extend, publish, release, clear } kind;
  std::size_t holder;
  std::uint64_t salt;
  std::int32_t first, second;
};

rc::Gen<Call> any_call() {
  using Kind = Call::Kind;
  return rc::gen::construct<Call>(
      rc::gen::weightedElement<Kind>({{60, Kind::extend}, {60, Kind::publish}, {12, Kind::release}, {1, Kind::clear}}),
      rc::gen::inRange<std::size_t>(0, 4), rc::gen::inRange<std::uint64_t>(0, 2), rc::gen::inRange<std::int32_t>(0, 2),
      rc::gen::inRange<std::int32_t>(0, 2));
}

class Pair {
 public:
  explicit Pair(std::int64_t blocks) : pool_(blocks, kBlockTokens, true) {
    model_.total = blocks;
    model_.holders.resize(4);
  }

  void apply(const Call& call) {
    Holder& h = model_.holders[call.holder];
    switch (call.kind) {
      case Call::Kind::extend:
        extend(h, call);
        break;
      case Call::Kind::publish:
        publish(h);
        break;
      case Call::Kind::release:
        release(h);
        break;
      case Call::Kind::clear:
        clear();
        break;
    }
    compare();
  }

  void release_all() {
    for (Holder& h : model_.holders) release(h);
    compare();
    RC_ASSERT(pool_.used() == 0);
    clear();
    compare();
    RC_ASSERT(pool_.idle() == 0);
    for (std::int64_t i = 0; i < model_.total; ++i) RC_ASSERT(pool_.allocate() >= 0);
    RC_ASSERT(pool_.allocate() == -1);
  }

 private:
  static Text beginning(const Holder& h, std::int64_t blocks) {
    return {h.salt, {h.tokens.begin(), h.tokens.begin() + blocks * kBlockTokens}};
  }
  std::int32_t parent(const Holder& h, std::int64_t i) const {
    return i == 0 ? PrefixCache::kRoot : h.blocks[static_cast<std::size_t>(i - 1)];
  }
  std::span<const std::int32_t> tokens(const Holder& h, std::int64_t i) const {
    return {h.tokens.data() + i * kBlockTokens, kBlockTokens};
  }

  // One more block: taken over while all before are published, else a fresh one.
  void extend(Holder& h, const Call& call) {
    if (h.blocks.empty()) h.salt = call.salt;
    h.tokens.insert(h.tokens.end(), {call.first, call.second});
    const std::int64_t i = std::ssize(h.blocks);
    if (h.published == i && take_over(h, i)) return;
    const bool free = model_.has_free();
    const auto victim = model_.victim();
    const std::int32_t block = pool_.allocate();
    RC_ASSERT((block >= 0) == (free || victim.has_value()));
    if (block < 0) {
      h.tokens.resize(h.tokens.size() - kBlockTokens);
      return;
    }
    RC_ASSERT(model_.count(block) == 0);
    if (!free) {
      RC_ASSERT(block == *victim);
      model_.published.erase(*model_.text_of(block));
    }
    RC_ASSERT(!model_.text_of(block).has_value());
    h.blocks.push_back(block);
  }

  bool take_over(Holder& h, std::int64_t i) {
    const auto it = model_.published.find(beginning(h, i + 1));
    const std::int32_t expected = it == model_.published.end() ? -1 : it->second;
    RC_ASSERT(pool_.acquire(parent(h, i), h.salt, tokens(h, i)) == expected);
    if (expected < 0) return false;
    h.blocks.push_back(expected);
    ++h.published;
    return true;
  }

  void publish(Holder& h) {
    const std::int64_t i = h.published;
    if (i == std::ssize(h.blocks)) return;
    const std::int32_t mine = h.blocks[static_cast<std::size_t>(i)];
    const auto it = model_.published.find(beginning(h, i + 1));
    const bool exists = it != model_.published.end();
    const KvPool::Published result = pool_.publish(mine, parent(h, i), h.salt, tokens(h, i));
    RC_ASSERT(result.shared);
    RC_ASSERT(result.block == (exists ? it->second : mine));
    h.blocks[static_cast<std::size_t>(i)] = result.block;
    if (!exists) model_.published[beginning(h, i + 1)] = mine;
    ++h.published;
  }

  void release(Holder& h) {
    pool_.release(h.blocks);
    model_.let_go(h);
  }

  void clear() {
    pool_.clear();
    std::erase_if(model_.published, [this](const auto& entry) { return model_.count(entry.second) == 0; });
  }

  void compare() const {
    const std::set<std::int32_t> held = model_.held();
    RC_ASSERT(pool_.used() == std::ssize(held));
    RC_ASSERT(pool_.idle() == model_.idle());
    RC_ASSERT(pool_.available() == pool_.total() - std::ssize(held));
    for (std::int32_t b = 0; b < pool_.total(); ++b) RC_ASSERT(pool_.holders(b) == model_.count(b));
    for (const auto& [text, block] : model_.published) {
      RC_ASSERT(pool_.count_published(text.first, text.second) == std::ssize(text.second) / kBlockTokens);
    }
  }

  KvPool pool_;
  PoolModel model_;
};

RC_GTEST_PROP(KvPoolProperty, AgreesWithTheModel, ()) {
  Pair pair(*rc::gen::inRange<std::int64_t>(1, 14));
  for (const Call& call : *rc::gen::container<std::vector<Call>>(any_call())) pair.apply(call);
  pair.release_all();
}

}  // namespace
}  // namespace sluice::engine
