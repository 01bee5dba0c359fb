// A test harness of a few lines, so that the tests of the kernels build with a compiler, CMake, ninja and nvcc alone.
// Every test is listed in main.cc; a failed check says what was wrong and the test goes on. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::gpu_tests {

class Check {
 public:
  void expect(bool ok, const std::string& what) {
    ++checks_;
    if (!ok) failures_.push_back(what);
  }
  void at_most(double value, double bound, const std::string& what) {
    expect(value <= bound, what + ": " + std::to_string(value) + " is above " + std::to_string(bound));
    if (!(value <= worst_)) worst_ = value;
  }
  template <class A, class B>
  void equal(const A& a, const B& b, const std::string& what) {
    expect(a == b, what);
  }
  // How many random cases a test shall run; --cases.
  int cases = 200;
  // For the summary: what was covered, in words.
  void note(const std::string& text) { note_ = text; }

  std::int64_t checks() const { return checks_; }
  const std::vector<std::string>& failures() const { return failures_; }
  const std::string& text() const { return note_; }
  double worst() const { return worst_; }

 private:
  std::int64_t checks_ = 0;
  double worst_ = 0.0;  // largest value given to at_most
  std::vector<std::string> failures_;
  std::string note_;
};

struct Test {
  const char* name;
  void (*run)(Check& check);
};

// The tests of each file.
std::vector<Test> route_tests();
std::vector<Test> finalize_tests();
std::vector<Test> oracle_tests();
std::vector<Test> ops_tests();
std::vector<Test> runner_tests();
std::vector<Test> runner_stage_tests();
std::vector<Test> runner_use_tests();
std::vector<Test> runner_decode_memory_tests();
std::vector<Test> runner_decode_tests();
std::vector<Test> runner_gather_tests();
std::vector<Test> runner_large_tests();
std::vector<Test> runner_quantized_tests();
std::vector<Test> ranks_turn_tests();
std::vector<Test> ranks_dispatch_tests();
std::vector<Test> ranks_nccl_tests();

}  // namespace sluice::gpu_tests
