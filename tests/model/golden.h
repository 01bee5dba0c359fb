// A golden of tests/gen/goldens as a checkpoint folder, and what transformers computed from it in float32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/test_decoder.h"

namespace sluice::testing {

// Which of the two files of routed experts, and which spelling of config.json.
struct GoldenChoice {
  std::string family;              // folder below tests/gen/goldens
  std::string layout = "experts";  // as save_pretrained writes them, or "fused"
  bool version4 = false;           // config.v4.json, as transformers 4 writes it
};

// A temporary folder that looks as on the hub; removed at the end.
class GoldenFolder {
 public:
  explicit GoldenFolder(const GoldenChoice& choice);
  ~GoldenFolder();
  GoldenFolder(const GoldenFolder&) = delete;
  GoldenFolder& operator=(const GoldenFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string golden_source(const std::string& family);  // the folder in the repository
bool has_layout(const std::string& family, const std::string& layout);

struct GoldenPrompt {
  std::vector<std::int32_t> input_ids;  // [n]
  std::vector<float> logits;            // [n, V]
};
std::vector<GoldenPrompt> golden_prompts(const std::string& family);

// Over all prompts and positions.
struct GoldenDifference {
  double worst = 0.0;          // relative L2 of one position
  std::int64_t other_top = 0;  // positions whose largest logit is another one
};
GoldenDifference compare_golden(const model::Decoder& decoder, const std::vector<GoldenPrompt>& prompts,
                                std::int64_t chunk);

}  // namespace sluice::testing
