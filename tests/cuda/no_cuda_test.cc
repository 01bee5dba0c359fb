#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "core/error.h"
#include "cuda/backend.h"

namespace sluice::cuda {
namespace {

TEST(NoCuda, SaysThatThereIsNoneAndWhatToDo) {
  const Status s = status("/nowhere/version");
  EXPECT_FALSE(s.usable);
  EXPECT_NE(s.found.find("no CUDA backend"), std::string::npos);
  EXPECT_NE(s.found.find("no NVIDIA driver"), std::string::npos);
  EXPECT_NE(s.advice.find("CPU"), std::string::npos);
}

TEST(NoCuda, NamesTheDriverOfTheMachine) {
  const std::string path = testing::TempDir() + std::to_string(getpid()) + "driver_version";
  std::ofstream(path) << "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06\nGCC version: 12\n";
  const Status s = status(path);
  std::remove(path.c_str());
  EXPECT_NE(s.found.find("Kernel Module  580.65.06"), std::string::npos);
  EXPECT_EQ(s.found.find('\n'), std::string::npos);
  EXPECT_FALSE(s.usable);
}

TEST(NoCuda, TheFactoryRefusesWithExitCode4) {
  try {
    make_backend(3);
    FAIL() << "a backend from nowhere";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 4);
    EXPECT_NE(std::string(e.what()).find("GPU 3"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("no CUDA backend"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::cuda
