#include "checkpoint/tensor_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/mapped_file.h"
#include "checkpoint/messages.h"
#include "core/error.h"

namespace sluice::ckpt {
namespace {

bool is_of_layers(std::string_view pattern) { return pattern.find("{L}") != std::string_view::npos; }

std::vector<std::string_view> patterns_of(const ExpertNames& names) {
  std::vector<std::string_view> out;
  for (const std::string* pattern : {&names.gate, &names.up, &names.gate_up, &names.down, &names.gate_bias,
                                     &names.up_bias, &names.gate_up_bias, &names.down_bias}) {
    if (!pattern->empty()) out.push_back(*pattern);
  }
  return out;
}

}  // namespace

TensorReader::TensorReader(const Checkpoint& checkpoint, NameMap names)
    : checkpoint_(checkpoint), names_(std::move(names)), store_(std::make_shared<Store>()) {
  store_->mapping = checkpoint.mapping();
}

const TensorEntry* TensorReader::find(std::string_view role, std::int64_t layer) const {
  for (const auto& [name, pattern] : names_.tensors) {
    if (name != role) continue;
    if (const TensorEntry* tensor = checkpoint_.find(expand(pattern, layer))) return tensor;
  }
  return nullptr;
}

const TensorEntry& TensorReader::require(std::string_view role, std::int64_t layer) const {
  const TensorEntry* tensor = find(role, layer);
  if (tensor != nullptr) return *tensor;
  const std::string_view pattern = names_.find(role);
  if (pattern.empty()) {
    fail(ErrorCode::unsupported, fmt::format("{}: this model family has no tensor for {}", checkpoint_.folder(), role),
         "a name for it in the family's map");
  }
  fail(ErrorCode::bad_input,
       fmt::format("{}: tensor {} ({}) is missing", checkpoint_.folder(), quote(expand(pattern, layer)), role),
       "every tensor of the model", "is this the checkpoint that config.json describes?");
}

std::vector<const TensorEntry*> TensorReader::require_all(const std::vector<std::string>& names) const {
  std::vector<const TensorEntry*> out;
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    out.push_back(checkpoint_.find(name));
    if (out.back() == nullptr) missing.push_back(name);
  }
  if (!missing.empty()) {
    fail(ErrorCode::bad_input,
         fmt::format("{}: {} of {} expert tensors of a layer are missing: {}", checkpoint_.folder(), missing.size(),
                     names.size(), first_few(missing)),
         "every tensor of the model", "is this the checkpoint that config.json describes?");
  }
  return out;
}

const ExpertNames& TensorReader::expert_names(std::int64_t layer) const {
  std::vector<std::string> tried;
  for (const ExpertNames& names : names_.experts) {
    for (const std::string_view pattern : patterns_of(names)) {
      tried.push_back(expand(pattern, layer));
      if (checkpoint_.find(tried.back()) != nullptr) return names;
    }
  }
  fail(ErrorCode::bad_input, fmt::format("{}: layer {} has no experts", checkpoint_.folder(), layer),
       tried.empty() ? "names of experts in the family's map" : "one of " + first_few(tried),
       "is this the checkpoint that config.json describes?");
}

void TensorReader::check_dtype(const TensorEntry& tensor, std::initializer_list<DType> allowed) const {
  if (std::find(allowed.begin(), allowed.end(), tensor.dtype) != allowed.end()) return;
  std::string expected;
  for (const DType type : allowed) {
    expected += (expected.empty() ? "" : " or ") + std::string(safetensors_dtype_name(type));
  }
  fail(ErrorCode::bad_input,
       fmt::format("{}: tensor {}: dtype: found {}", checkpoint_.file_of(tensor), quote(tensor.name),
                   safetensors_dtype_name(tensor.dtype)),
       expected);
}

void TensorReader::check_shape(const TensorEntry& tensor, std::span<const std::int64_t> expected) const {
  if (std::equal(tensor.shape.begin(), tensor.shape.end(), expected.begin(), expected.end())) return;
  fail(ErrorCode::bad_input,
       fmt::format("{}: tensor {}: shape: found {}", checkpoint_.file_of(tensor), quote(tensor.name),
                   shape_text(tensor.shape)),
       shape_text(expected), "config.json and the weights seem to belong to different models");
}

const std::byte* TensorReader::use(const TensorEntry& tensor, std::int64_t layer) {
  read_ahead(layer);
  read_ahead(layer + 1);
  if (used_.insert(&tensor).second) used_by_layer_[layer].push_back(&tensor);
  return tensor.is_aligned() ? tensor.data : aligned_copy(tensor);
}

const std::byte* TensorReader::aligned_copy(const TensorEntry& tensor) {
  Buffer& copy = store_->copies[&tensor];
  if (copy.data() == nullptr) {
    copy = host_buffer(tensor.bytes);
    if (tensor.bytes != 0) std::memcpy(copy.data(), tensor.data, tensor.bytes);
  }
  return copy.as<std::byte>();
}

void TensorReader::for_each_tensor(std::int64_t layer, FunctionRef<void(const TensorEntry&)> visit) const {
  const bool in_layer = layer != kOutsideLayers;
  for (const auto& [role, pattern] : names_.tensors) {
    if (is_of_layers(pattern) != in_layer) continue;
    if (const TensorEntry* tensor = checkpoint_.find(expand(pattern, layer))) visit(*tensor);
  }
  if (!in_layer) return;
  for (const ExpertNames& names : names_.experts) {
    const std::vector<std::string_view> patterns = patterns_of(names);
    for (std::int64_t e = 0, found = 1; found != 0; ++e) {
      found = 0;
      for (const std::string_view pattern : patterns) {
        const TensorEntry* tensor = checkpoint_.find(expand(pattern, layer, e));
        if (tensor == nullptr) continue;
        visit(*tensor);
        ++found;
      }
      if (names.files == ExpertNames::Files::stacked) break;
    }
  }
}

void TensorReader::read_ahead(std::int64_t layer) {
  if (!read_ahead_.insert(layer).second) return;
  for_each_tensor(layer, [](const TensorEntry& tensor) { prefetch_pages(tensor.span()); });
}

void TensorReader::release(std::int64_t layer) {
  const auto used = used_by_layer_.find(layer);
  if (used == used_by_layer_.end()) return;
  for (const TensorEntry* tensor : used->second) drop_pages(tensor->span());
}

std::uint64_t TensorReader::bytes(std::int64_t layer) const {
  std::uint64_t sum = 0;
  for_each_tensor(layer, [&sum](const TensorEntry& tensor) { sum += tensor.bytes; });
  return sum;
}

std::vector<std::string> TensorReader::unused() const {
  std::vector<std::string> out;
  for (const TensorEntry* tensor : checkpoint_.tensors()) {
    if (used_.count(tensor) != 0) continue;
    const bool ignored = std::any_of(names_.ignored.begin(), names_.ignored.end(),
                                     [&](const std::string& pattern) { return matches(pattern, tensor->name); });
    if (!ignored) out.push_back(tensor->name);
  }
  return out;
}

std::vector<std::string> TensorReader::notes() const {
  if (store_->copies.empty()) return {};
  std::uint64_t bytes = 0;
  for (const auto& [tensor, copy] : store_->copies) bytes += copy.bytes();
  return {
      fmt::format("{} tensors ({} bytes) are not aligned to their element size and were copied; saving the checkpoint "
                  "again with the "
                  "safetensors package avoids that",
                  store_->copies.size(), bytes)};
}

}  // namespace sluice::ckpt
