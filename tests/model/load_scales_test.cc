// Wrong block scales end loading with the error that reading them in order gives, though they are looked through while
// experts are packed, by many threads and in any order.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "model/families.h"
#include "model/quantised_model.h"
#include "model/test_decoder.h"
#include "model/toy_model.h"

namespace sluice::testing {
namespace {

constexpr std::uint8_t kNan = 0xFF;      // of e8m0 and e4m3
constexpr std::uint8_t kTooLarge = 254;  // an MXFP4 scale that is a number, but none that can be packed

struct WrongScale {
  std::string tensor;
  std::size_t index;
  std::uint8_t code;
};

// Into this process' copy of the page.
void put(const ckpt::TensorEntry& tensor, const WrongScale& wrong) {
  ASSERT_LT(wrong.index, tensor.bytes);
  auto* at = const_cast<std::byte*>(tensor.data) + wrong.index;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* begin = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(at) / page * page);
  ASSERT_EQ(mprotect(begin, page, PROT_READ | PROT_WRITE), 0);
  *at = static_cast<std::byte>(wrong.code);
}

// "" where loading succeeds.
std::string load_error(const std::string& folder, const std::vector<WrongScale>& wrong, const std::string& runner) {
  TestDecoderOptions options;
  options.runner = runner;
  options.on_open = [&](const ckpt::Checkpoint& checkpoint) {
    for (const WrongScale& w : wrong) {
      bool found = false;
      for (const ckpt::TensorEntry* t : checkpoint.tensors()) {
        if (t->name != w.tensor) continue;
        put(*t, w);
        found = true;
      }
      ASSERT_TRUE(found) << w.tensor;
    }
  };
  try {
    load_test_decoder(folder, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& error, const std::string& text) { return error.find(text) != std::string::npos; }

std::string scales_of(int expert, const char* projection) {
  return "model.layers.0.mlp.experts." + std::to_string(expert) + "." + projection + "_proj.weight_scale";
}

class LoadScales : public ::testing::TestWithParam<const char*> {};

TEST_P(LoadScales, TheFirstFaultInTheOrderOfReadingIsTold) {
  const ToyModel toy;
  const std::string runner = GetParam();
  for (const char* format : {"nvfp4", "mxfp4"}) {
    SCOPED_TRACE(format);
    const QuantisedModel model(toy.folder(), model::qwen3_moe_family(), format, {});
    EXPECT_EQ(load_error(model.folder(), {}, runner), "");
    for (const char* projection : {"gate", "up", "down"}) {
      const std::string one = load_error(model.folder(), {{scales_of(5, projection), 30, kNan}}, runner);
      EXPECT_TRUE(says(one, scales_of(5, projection)) && says(one, "is NaN")) << one;
    }
    // All gates come before all ups, and those before all downs; a scale of a tensor before a later one.
    const std::string error = load_error(model.folder(),
                                         {{scales_of(0, "down"), 3, kNan},
                                          {scales_of(1, "up"), 7, kNan},
                                          {scales_of(6, "gate"), 9, kNan},
                                          {scales_of(6, "gate"), 8, kNan},
                                          {scales_of(7, "gate"), 0, kNan}},
                                         runner);
    EXPECT_TRUE(says(error, scales_of(6, "gate")) && says(error, "[0, 8]")) << error;
  }
}

INSTANTIATE_TEST_SUITE_P(Runners, LoadScales, ::testing::Values("cpu", "reference"));

// Scales whose weights are beyond bf16 are faults of their tensor like NaN, whichever expert ends packing first.
TEST(LoadScalesOfPacking, AScaleThatCannotBePackedIsToldInTheOrderOfReading) {
  const ToyModel toy;
  const QuantisedModel model(toy.folder(), model::qwen3_moe_family(), "mxfp4", {});
  const WrongScale large{scales_of(0, "gate"), 0, kTooLarge}, nan{scales_of(7, "down"), 11, kNan};
  const WrongScale late_large{scales_of(7, "down"), 11, kTooLarge}, early_nan{scales_of(0, "gate"), 0, kNan};
  for (const char* runner : {"cpu", "reference"}) {
    const std::string error = load_error(model.folder(), {large, nan}, runner);
    EXPECT_TRUE(says(error, scales_of(0, "gate")) && says(error, "is 2^127")) << error;
    const std::string other = load_error(model.folder(), {late_large, early_nan}, runner);
    EXPECT_TRUE(says(other, scales_of(0, "gate")) && says(other, "is NaN")) << other;
    const std::string one = load_error(model.folder(), {late_large}, runner);
    EXPECT_TRUE(says(one, scales_of(7, "down")) && says(one, "is 2^127")) << one;
  }
}

// Gate and up in one tensor, all experts in another dimension of it.
TEST(LoadScalesOfPacking, StackedExperts) {
  const QuantisedModel model(bundled_model("gpt_oss"), model::gpt_oss_family(), "mxfp4", {});
  const std::string gate_up = "model.layers.0.mlp.experts.gate_up_proj_scales";
  const std::string down = "model.layers.0.mlp.experts.down_proj_scales";
  EXPECT_EQ(load_error(model.folder(), {}, "cpu"), "");
  const std::string one = load_error(model.folder(), {{down, 0, kNan}}, "cpu");
  EXPECT_TRUE(says(one, down) && says(one, "[0, 0, 0] is NaN")) << one;
  const WrongScale early{gate_up, 39, kNan}, late{gate_up, 40, kNan};
  const std::string first = load_error(model.folder(), {{down, 0, kNan}, late, early}, "cpu");
  EXPECT_TRUE(says(first, gate_up) && says(first, " is NaN")) << first;
  EXPECT_EQ(first, load_error(model.folder(), {early}, "cpu"));
}

}  // namespace
}  // namespace sluice::testing
