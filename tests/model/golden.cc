#include "model/golden.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "checkpoint/safetensors.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

template <class T>
std::vector<T> read(const ckpt::SafetensorsFile& file, const std::string& name) {
  const ckpt::TensorEntry* entry = file.find(name);
  if (entry == nullptr) throw std::runtime_error(file.path() + " has no " + name);
  std::vector<T> values(entry->bytes / sizeof(T));
  std::memcpy(values.data(), entry->data, entry->bytes);
  return values;
}

std::string new_folder() {
  static std::atomic<int> count{0};
  const std::string name = "sluice-golden-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
  const fs::path path = fs::temp_directory_path() / name;
  fs::remove_all(path);  // of a process that was killed, whose number came again
  fs::create_directory(path);
  return path.string();
}

std::int64_t top(const float* row, std::int64_t count) { return std::max_element(row, row + count) - row; }

double row_difference(const float* found, const float* expected, std::int64_t count) {
  return relative_l2({found, found + count}, {expected, expected + count});
}

}  // namespace

std::string golden_source(const std::string& family) {
  return std::string(SLUICE_SOURCE_DIR) + "/tests/gen/goldens/" + family;
}

bool has_layout(const std::string& family, const std::string& layout) {
  return fs::exists(golden_source(family) + "/" + layout + ".safetensors");
}

GoldenFolder::GoldenFolder(const GoldenChoice& choice) : path_(new_folder()) {
  const fs::path source = golden_source(choice.family);
  const fs::path target = path_;
  fs::copy_file(source / (choice.version4 ? "config.v4.json" : "config.json"), target / "config.json");
  if (!has_layout(choice.family, choice.layout)) {
    fs::create_symlink(source / "model.safetensors", target / "model.safetensors");
    return;
  }
  fs::create_symlink(source / "model.safetensors", target / "model-00001-of-00002.safetensors");
  fs::create_symlink(source / (choice.layout + ".safetensors"), target / "model-00002-of-00002.safetensors");
}

GoldenFolder::~GoldenFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<GoldenPrompt> golden_prompts(const std::string& family) {
  const ckpt::SafetensorsFile file(golden_source(family) + "/expected.safetensors");
  std::vector<GoldenPrompt> prompts;
  for (int i = 0; file.find("prompt" + std::to_string(i) + ".input_ids") != nullptr; ++i) {
    const std::string p = "prompt" + std::to_string(i);
    prompts.push_back({read<std::int32_t>(file, p + ".input_ids"), read<float>(file, p + ".logits")});
  }
  if (prompts.empty()) throw std::runtime_error(file.path() + " has no prompts");
  return prompts;
}

GoldenDifference compare_golden(const model::Decoder& decoder, const std::vector<GoldenPrompt>& prompts,
                                std::int64_t chunk) {
  const std::int64_t vocab = decoder.config().vocab;
  GoldenDifference out;
  for (const GoldenPrompt& prompt : prompts) {
    const std::vector<float> found = prompt_logits(decoder, prompt.input_ids, chunk);
    if (found.size() != prompt.logits.size()) throw std::runtime_error("logits of another size");
    for (std::size_t at = 0; at < found.size(); at += static_cast<std::size_t>(vocab)) {
      const float* ours = found.data() + at;
      const float* theirs = prompt.logits.data() + at;
      const double difference = row_difference(ours, theirs, vocab);
      if (!(difference <= out.worst)) out.worst = difference;  // a NaN counts as the worst
      out.other_top += top(ours, vocab) != top(theirs, vocab) ? 1 : 0;
    }
  }
  return out;
}

}  // namespace sluice::testing
