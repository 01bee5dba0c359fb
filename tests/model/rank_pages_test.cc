// A rank touches no page of what others hold: those pages are made unreadable, so that reading one ends the test.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "model/families.h"
#include "model/quantised_model.h"
#include "model/rank_run.h"
#include "model/toy_model.h"

namespace sluice::testing {
namespace {

// Counts the whole pages that it takes away.
class Wall {
 public:
  void put(const std::byte* data, std::size_t bytes) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
    const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / page * page;
    if (begin >= end) return;
    ASSERT_EQ(mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_NONE), 0);
    pages += (end - begin) / page;
  }
  std::size_t pages = 0;
};

bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

// The expert of "...experts.7.up_proj...", -1 of another tensor.
std::int64_t expert_of(const std::string& name) {
  const std::size_t at = name.find(".experts.");
  if (at == std::string::npos || std::isdigit(static_cast<unsigned char>(name[at + 9])) == 0) return -1;
  return std::stoll(name.substr(at + 9));
}

// Everything of experts outside [first, end), but for static scales of inputs, which all ranks need.
void hide_experts(const ckpt::Checkpoint& checkpoint, std::int64_t experts, const Share& held, Wall& wall) {
  for (const ckpt::TensorEntry* t : checkpoint.tensors()) {
    if (!has(t->name, ".experts.") || has(t->name, "input_scale") || has(t->name, "bias")) continue;
    const std::int64_t one = expert_of(t->name);
    if (one >= 0 && (one < held.begin || one >= held.end)) wall.put(t->data, t->bytes);
    if (one >= 0 || t->shape.empty() || t->shape[0] != experts) continue;
    const auto each = static_cast<std::int64_t>(t->bytes) / experts;
    wall.put(t->data, static_cast<std::size_t>(held.begin * each));
    wall.put(t->data + held.end * each, static_cast<std::size_t>((experts - held.end) * each));
  }
}

// Rows of gate, up and q that other pieces hold.
void hide_rows(const ckpt::Checkpoint& checkpoint, const char* part, std::int64_t rows, const Share& held, Wall& wall) {
  for (const ckpt::TensorEntry* t : checkpoint.tensors()) {
    if (!has(t->name, part) || t->shape.empty() || t->shape[0] != rows) continue;
    const auto each = static_cast<std::int64_t>(t->bytes) / rows;
    wall.put(t->data, static_cast<std::size_t>(held.begin * each));
    wall.put(t->data + held.end * each, static_cast<std::size_t>((rows - held.end) * each));
  }
}

using Hide = std::function<void(const ckpt::Checkpoint&, const RankPlan&, Wall&)>;

// Loads every rank in turn. Groups only answer questions here.
void load_behind_wall(const std::string& folder, const ParallelSizes& sizes, const Hide& hide) {
  run_ranks(folder, sizes, {}, [&](const RankPlan& plan, const TestDecoder& first) {
    Wall wall;
    TestDecoderOptions options = first.options;
    options.on_open = [&](const ckpt::Checkpoint& checkpoint) { hide(checkpoint, plan, wall); };
    const TestDecoder t = load_test_decoder(folder, options);
    EXPECT_GT(wall.pages, 10u) << "nothing was hidden";
    EXPECT_EQ(t.decoder->weight_bytes().total(), first.decoder->weight_bytes().total());
  });
}

void hide_other_experts(const ckpt::Checkpoint& checkpoint, std::int64_t experts, const RankPlan& plan, Wall& wall) {
  hide_experts(checkpoint, experts, share_of(experts, 1, plan.experts), wall);
}

ToyOptions small() {
  ToyOptions o;
  o.hidden = 384;
  o.moe_intermediate = 384;
  return o;
}

TEST(RankPages, ExpertsInTensorsOfTheirOwn) {
  const ToyModel toy(small());
  for (const char* format : {"bf16", "fp8", "fp8-block", "nvfp4", "mxfp4"}) {
    SCOPED_TRACE(format);
    const QuantisedModel model(toy.folder(), model::qwen3_moe_family(), format, {});
    load_behind_wall(model.folder(), {3, 3}, [](const ckpt::Checkpoint& checkpoint, const RankPlan& plan, Wall& wall) {
      hide_other_experts(checkpoint, 8, plan, wall);
    });
  }
}

TEST(RankPages, StackedExperts) {
  const std::string source = bundled_model("gpt_oss");
  const QuantisedModel mxfp4(source, model::gpt_oss_family(), "mxfp4", {});
  for (const std::string& folder : {source, mxfp4.folder()}) {
    load_behind_wall(folder, {3, 3}, [](const ckpt::Checkpoint& checkpoint, const RankPlan& plan, Wall& wall) {
      hide_other_experts(checkpoint, 16, plan, wall);
    });
  }
}

TEST(RankPages, RowsOfOtherPieces) {
  const ToyModel toy(small());
  load_behind_wall(toy.folder(), {2, 1}, [](const ckpt::Checkpoint& checkpoint, const RankPlan& plan, Wall& wall) {
    const Share inner = share_of(384, 16, plan.expert), heads = share_of(2, 1, plan.attention);
    hide_rows(checkpoint, ".gate_proj.weight", 384, inner, wall);
    hide_rows(checkpoint, ".up_proj.weight", 384, inner, wall);
    hide_rows(checkpoint, ".q_proj.weight", 384, {heads.begin * 192, heads.end * 192}, wall);
    hide_rows(checkpoint, ".k_proj.weight", 128, {heads.begin * 64, heads.end * 64}, wall);
  });
}

}  // namespace
}  // namespace sluice::testing
