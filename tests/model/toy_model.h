// Small random Qwen3-MoE checkpoints for tests, written to disk and read back like any other: rows long enough (K =
// 768) for faults of accumulation to show, gate and up of different size, a dense layer, biases.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::testing {

struct ToyOptions {
  std::int64_t hidden = 768;
  std::int64_t moe_intermediate = 768;
  std::int64_t dense_intermediate = 1024;
  std::int32_t layers = 3;  // layer 1 is dense, the others have experts
  std::int32_t experts = 8;
  std::int32_t top_k = 3;
  std::int32_t heads = 6;
  std::int32_t kv_heads = 2;
  std::int32_t head_dim = 64;
  std::int64_t vocab = 320;
  std::int64_t max_positions = 512;
  bool attention_bias = true;
  bool uneven = false;  // neighbouring blocks of 32 x 32 and of 128 x 128 elements differ in size, and so their scales
  std::int32_t nan_token = -1;  // its embedding is NaN
  std::uint32_t seed = 1;
};

// A folder that is deleted with the object.
class ToyModel {
 public:
  explicit ToyModel(const ToyOptions& options = {});
  ~ToyModel();
  ToyModel(const ToyModel&) = delete;
  ToyModel& operator=(const ToyModel&) = delete;

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace sluice::testing
