// RapidCheck reads its parameters from the environment once: the same cases in every run unless somebody asks.
#include <gtest/gtest.h>

#include <cstdlib>

namespace {

class FixedSeed : public ::testing::Environment {
 public:
  void SetUp() override { setenv("RC_PARAMS", "seed=2718 max_success=300 max_size=120", /*overwrite=*/0); }
};

const ::testing::Environment* const registered = ::testing::AddGlobalTestEnvironment(new FixedSeed);

}  // namespace
