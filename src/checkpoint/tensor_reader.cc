#include "checkpoint/tensor_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "checkpoint/expert_pages.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/messages.h"
#include "core/error.h"

namespace sluice::ckpt {
namespace {

// The data of every file.
std::vector<ByteRange> data_of_files(const Checkpoint& checkpoint) {
  std::vector<ByteRange> files;
  for (const SafetensorsFile& shard : checkpoint.shards()) {
    if (shard.tensors().empty()) continue;
    const TensorEntry& last = shard.tensors().back();  // they are in the order of their data
    files.emplace_back(shard.tensors().front().data, last.data + last.bytes);
  }
  return files;
}

std::vector<ByteRange> uncached_parts(const Checkpoint& checkpoint) {
  std::vector<ByteRange> parts;
  for (const SafetensorsFile& shard : checkpoint.shards()) {
    for (const ByteRange part : shard.uncached()) parts.push_back(part);
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return std::less<>()(a.data(), b.data()); });
  return parts;
}

// What `parts`, in the order of their addresses, have of `bytes`.
std::vector<ByteRange> overlaps(const std::vector<ByteRange>& parts, ByteRange bytes) {
  std::vector<ByteRange> out;
  const std::byte* const end = bytes.data() + bytes.size();
  auto part = std::partition_point(parts.begin(), parts.end(),
                                   [&](const auto& p) { return p.data() + p.size() <= bytes.data(); });
  for (; part != parts.end() && part->data() < end; ++part) {
    const std::byte* const from = std::max(part->data(), bytes.data());
    out.emplace_back(from, std::min(part->data() + part->size(), end));
  }
  return out;
}

bool is_of_layers(std::string_view pattern) { return pattern.find("{L}") != std::string_view::npos; }

std::vector<std::string_view> patterns_of(const ExpertNames& names) {
  std::vector<std::string_view> out;
  for (const std::string* pattern : {&names.gate, &names.up, &names.gate_up, &names.down, &names.gate_bias,
                                     &names.up_bias, &names.gate_up_bias, &names.down_bias}) {
    if (!pattern->empty()) out.push_back(*pattern);
  }
  return out;
}

[[noreturn]] void fail_missing(const std::string& folder, const std::string& tensor, const std::string& what,
                               const std::string& expected = "every tensor of the model") {
  throw TensorError(ErrorCode::bad_input, FindingKind::missing, "", tensor,
                    error_text(folder + ": " + what, expected, "is this the checkpoint that config.json describes?"));
}

}  // namespace

TensorReader::TensorReader(const Checkpoint& checkpoint, NameMap names, bool ahead, ThreadPool* pool)
    : checkpoint_(checkpoint),
      names_(std::move(names)),
      pool_(pool),
      modules_(checkpoint),
      store_(std::make_shared<Store>()),
      drops_(std::make_shared<PageDrops>(data_of_files(checkpoint))) {
  store_->mapping = checkpoint.mapping();
  used_.reserve(checkpoint.tensors().size());
  if (ahead) {
    uncached_ = uncached_parts(checkpoint);
    return;
  }
  for (const ByteRange data : data_of_files(checkpoint)) expect_random_reads(data);
}

const ModuleParts* TensorReader::find(std::string_view role, std::int64_t layer) const {
  for (const auto& [name, pattern] : names_.tensors) {
    if (name != role) continue;
    const ModuleParts* parts = modules_.find(expand(pattern, layer));
    if (parts != nullptr && parts->codes() != nullptr) return parts;
  }
  return nullptr;
}

const ModuleParts& TensorReader::require(std::string_view role, std::int64_t layer) const {
  const ModuleParts* parts = find(role, layer);
  if (parts != nullptr) return *parts;
  const std::string_view pattern = names_.find(role);
  if (pattern.empty()) {
    fail(ErrorCode::unsupported, fmt::format("{}: this model family has no tensor for {}", checkpoint_.folder(), role),
         "a name for it in the family's map");
  }
  const std::string name = expand(pattern, layer);
  fail_missing(checkpoint_.folder(), name, fmt::format("tensor {} ({}) is missing", quote(name), role));
}

std::vector<const ModuleParts*> TensorReader::find_all(const std::vector<std::string>& names) const {
  std::vector<const ModuleParts*> out;
  for (const std::string& name : names) {
    const ModuleParts* parts = modules_.find(name);
    out.push_back(parts != nullptr && parts->codes() != nullptr ? parts : nullptr);
  }
  return out;
}

std::vector<const ModuleParts*> TensorReader::require_all(const std::vector<std::string>& names) const {
  std::vector<const ModuleParts*> out = find_all(names);
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (out[i] == nullptr) missing.push_back(names[i]);
  }
  if (missing.empty()) return out;
  fail_missing(checkpoint_.folder(), missing[0],
               fmt::format("{} of {} expert tensors of a layer are missing: {}", missing.size(), names.size(),
                           first_few(missing)));
}

const ExpertNames& TensorReader::expert_names(std::int64_t layer) const {
  std::vector<std::string> tried;
  for (const ExpertNames& names : names_.experts) {
    for (const std::string_view pattern : patterns_of(names)) {
      tried.push_back(expand(pattern, layer));
      const ModuleParts* parts = modules_.find(tried.back());
      if (parts != nullptr && parts->codes() != nullptr) return names;
    }
  }
  fail_missing(checkpoint_.folder(), tried.empty() ? "" : tried[0], fmt::format("layer {} has no experts", layer),
               tried.empty() ? "names of experts in the family's map" : "one of " + first_few(tried));
}

void TensorReader::fail_tensor(FindingKind kind, const TensorEntry& tensor, const std::string& found,
                               const std::string& expected, const std::string& hint) const {
  const std::string& file = checkpoint_.file_of(tensor);
  const ErrorCode code = kind == FindingKind::unsupported ? ErrorCode::unsupported : ErrorCode::bad_input;
  throw TensorError(code, kind, file, tensor.name,
                    error_text(fmt::format("{}: tensor {}: {}", file, quote(tensor.name), found), expected, hint));
}

void TensorReader::check_dtype(const TensorEntry& tensor, std::initializer_list<DType> allowed) const {
  if (std::find(allowed.begin(), allowed.end(), tensor.dtype) != allowed.end()) return;
  std::string expected;
  for (const DType type : allowed) {
    expected += (expected.empty() ? "" : " or ") + std::string(safetensors_dtype_name(type));
  }
  fail_tensor(FindingKind::dtype, tensor, fmt::format("dtype: found {}", safetensors_dtype_name(tensor.dtype)),
              expected);
}

void TensorReader::check_shape(const TensorEntry& tensor, std::span<const std::int64_t> expected) const {
  if (std::equal(tensor.shape.begin(), tensor.shape.end(), expected.begin(), expected.end())) return;
  fail_tensor(FindingKind::shape, tensor, fmt::format("shape: found {}", shape_text(tensor.shape)),
              shape_text(expected), "config.json and the weights seem to belong to different models");
}

void TensorReader::mark_used(const TensorEntry& tensor, std::int64_t layer) {
  if (used_.insert(&tensor).second) used_by_layer_[layer].push_back(&tensor);
}

float* TensorReader::own_floats(const TensorEntry& tensor, std::int64_t count, bool& is_new) {
  std::vector<float>& floats = store_->floats[&tensor];
  is_new = floats.empty();
  floats.resize(static_cast<std::size_t>(count));
  return floats.data();
}

std::uint64_t TensorReader::bytes_of(const ModuleParts& parts) {
  std::uint64_t sum = 0;
  for (const TensorEntry* tensor : parts.tensors) sum += tensor != nullptr ? tensor->bytes : 0;
  return sum;
}

const std::byte* TensorReader::use(const TensorEntry& tensor, std::int64_t layer) {
  if (!uncached_.empty()) {
    read_ahead(layer);
    read_ahead(layer + 1);
  }
  mark_used(tensor, layer);
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

// What a rank holds of it: all tensors of the layer, and its part of the experts.
void TensorReader::for_each_tensor(std::int64_t layer, FunctionRef<void(std::span<const std::byte>)> visit) const {
  const bool in_layer = layer != kOutsideLayers;
  for (const auto& [role, pattern] : names_.tensors) {
    if (is_of_layers(pattern) != in_layer) continue;
    const ModuleParts* parts = modules_.find(expand(pattern, layer));
    if (parts == nullptr) continue;
    for (const TensorEntry* tensor : parts->tensors) {
      if (tensor != nullptr) visit(tensor->span());
    }
  }
  if (!in_layer) return;
  for (const ExpertNames& names : names_.experts) for_each_expert_tensor(layer, names, visit);
}

void TensorReader::for_each_expert_tensor(std::int64_t layer, const ExpertNames& names,
                                          FunctionRef<void(std::span<const std::byte>)> visit) const {
  const auto known = expected_.find(layer);
  const ExpertSlice slice = known == expected_.end() ? ExpertSlice{} : known->second;
  const std::vector<std::string_view> patterns = patterns_of(names);
  const bool stacked = names.files == ExpertNames::Files::stacked;
  // Whether the checkpoint has anything of the expert.
  const auto visit_expert = [&](std::int64_t e) {
    bool found = false;
    for (const std::string_view pattern : patterns) {
      const ModuleParts* parts = modules_.find(expand(pattern, layer, e));
      if (parts == nullptr) continue;
      visit_slice(*parts, names, pattern, slice, visit);
      found = true;
    }
    return found;
  };
  if (!stacked && !slice.experts.empty()) {
    for (const LogicalId e : slice.experts) visit_expert(raw(e));
    return;
  }
  for (std::int64_t e = 0; visit_expert(e) && !stacked; ++e) {
  }
}

void TensorReader::read_ahead(std::int64_t layer) {
  if (!read_ahead_.insert(layer).second) return;
  for_each_tensor(layer, [this](std::span<const std::byte> bytes) {
    for (const ByteRange part : overlaps(uncached_, bytes)) prefetch_pages(part);
  });
}

void TensorReader::release(std::int64_t layer) {
  const auto used = used_by_layer_.find(layer);
  if (used == used_by_layer_.end()) return;
  for (const TensorEntry* tensor : used->second) drops_->add(tensor->span());
  drops_->flush(pool_);
}

std::function<void(const void*, std::size_t)> TensorReader::page_release() const {
  return [drops = drops_, files = store_->mapping](const void* data, std::size_t bytes) {
    drops->add({static_cast<const std::byte*>(data), bytes});
  };
}

std::uint64_t TensorReader::bytes(std::int64_t layer) const {
  const auto [known, is_new] = bytes_.emplace(layer, 0);
  std::uint64_t& sum = known->second;
  if (is_new) for_each_tensor(layer, [&sum](std::span<const std::byte> bytes) { sum += bytes.size(); });
  return sum;
}

std::vector<std::string> TensorReader::unused() const {
  std::vector<std::string> out;
  for (const TensorEntry* tensor : checkpoint_.tensors()) {
    if (used_.contains(tensor) || used_elsewhere_.contains(tensor) || is_kv_scale(tensor->name)) continue;
    const bool ignored = std::any_of(names_.ignored.begin(), names_.ignored.end(),
                                     [&](const std::string& pattern) { return matches(pattern, tensor->name); });
    if (!ignored) out.push_back(tensor->name);
  }
  return out;
}

std::size_t TensorReader::kv_scales() const {
  const std::vector<const TensorEntry*>& all = checkpoint_.tensors();
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const TensorEntry* tensor) { return is_kv_scale(tensor->name); }));
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
