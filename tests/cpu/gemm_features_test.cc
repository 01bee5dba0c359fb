#include <gtest/gtest.h>

#include "cpu/features.h"

namespace sluice::cpu {
namespace {

TEST(Features, ChoosesTheWidestSetWithinTheLimit) {
  Features f;
  EXPECT_EQ(choose_isa(f), Isa::scalar);
  f.avx2 = f.avx512 = true;
  EXPECT_EQ(choose_isa(f), Isa::avx512);
  EXPECT_EQ(choose_isa(f, Isa::avx2), Isa::avx2);
  EXPECT_EQ(choose_isa(f, Isa::scalar), Isa::scalar);
  f.avx512_bf16 = true;
  EXPECT_EQ(choose_isa(f), Isa::avx512_bf16);
}

TEST(Features, NamesRoundTrip) {
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
    EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
  }
  EXPECT_FALSE(isa_from_name("avx1024").has_value());
}

// The compiler's own cpuid code is the outside opinion.
TEST(Features, AgreesWithTheCompilerRuntime) {
  const Features f = detect_features();
  __builtin_cpu_init();
  EXPECT_EQ(f.avx2, __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(f.avx512, __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0);
}

}  // namespace
}  // namespace sluice::cpu
