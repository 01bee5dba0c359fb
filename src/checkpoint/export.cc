#include "checkpoint/export.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <unordered_map>

#include "checkpoint/export_config.h"
#include "checkpoint/export_matrix.h"
#include "checkpoint/export_plan.h"
#include "checkpoint/export_shard.h"
#include "checkpoint/index.h"
#include "checkpoint/messages.h"
#include "core/error.h"
#include "core/file.h"

namespace sluice::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFingerprintKey = "sluice_quantize";

// FNV-1a over everything that decides the bytes of the output, so that only shards of the same run are taken over.
class Fingerprint {
 public:
  void add(std::string_view text) {
    for (const char c : text) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    hash_ = (hash_ ^ 0xFFu) * 0x100000001b3u;  // ends of texts count
  }
  void add(const std::vector<float>& values) {
    add({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

std::string fingerprint_of(const ExportSource& source, const ExportOptions& options) {
  Fingerprint f;
  for (const SafetensorsFile& shard : source.checkpoint->shards()) {
    struct stat info {};
    stat(shard.path().c_str(), &info);
    f.add(fmt::format("{} {} {}.{}", shard.file_name(), shard.file_bytes(), info.st_mtim.tv_sec, info.st_mtim.tv_nsec));
  }
  const ExportTarget& t = options.target;
  f.add(fmt::format("{} {} {} {} {} {}", format_name(t.format), dialect_name(t.dialect), t.static_inputs,
                    static_cast<int>(t.mx_scale), options.max_shard_bytes, options.producer_version));
  for (const std::string& pattern : options.include) f.add(pattern);
  if (options.calibration != nullptr) {
    for (const auto& [layer, experts] : options.calibration->layers) {
      f.add(experts.gemm1);
      f.add(experts.gemm2);
    }
    for (const auto& [module, amax] : options.calibration->modules) f.add(fmt::format("{} {}", module, amax));
  }
  return f.text();
}

std::vector<ExportShard> make_shards(const ExportPlan& plan, std::uint64_t max_bytes) {
  std::vector<ExportShard> shards;
  std::uint64_t filled = 0;
  for (const ExportItem& item : plan.items) {
    std::uint64_t bytes = 0;
    for (const TensorDecl& tensor : item.tensors) bytes += tensor_bytes(tensor);
    if (shards.empty() || (filled > 0 && filled + bytes > max_bytes)) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().items.push_back(&item);
    shards.back().tensors.insert(shards.back().tensors.end(), item.tensors.begin(), item.tensors.end());
    filled += bytes;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = shards.size() == 1 ? "model.safetensors"
                                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

[[noreturn]] void occupied(const std::string& out, const std::string& why) {
  fail(ErrorCode::usage, fmt::format("{}: {}", out, why),
       "an empty or new folder, or one that this command left half done",
       "choose another folder, or remove what is in it");
}

// An output folder may hold what an earlier run of the same export left, and nothing else that readers would look at.
void check_folder(const ExportSource& source, const std::string& out, const std::vector<ExportShard>& shards,
                  const FileMetadata& metadata) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) {
    fail(ErrorCode::resources, fmt::format("cannot create {} ({})", out, error.message()), "a writable folder");
  }
  if (fs::equivalent(out, source.checkpoint->folder(), error)) occupied(out, "is the source itself");
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".safetensors" || name.rfind("model", 0) != 0) continue;
    const auto shard = std::find_if(shards.begin(), shards.end(), [&](const ExportShard& s) { return s.name == name; });
    if (shard == shards.end() || !is_written(entry.path().string(), shard->tensors, metadata)) {
      occupied(out, name + " is of another checkpoint or of an export with other options");
    }
  }
}

void write_index(const std::string& out, const std::vector<ExportShard>& shards, std::uint64_t total_bytes) {
  if (shards.size() == 1) return;
  Json::Object map;
  for (const ExportShard& shard : shards) {
    for (const TensorDecl& tensor : shard.tensors) map.emplace_back(tensor.name, shard.name);
  }
  std::sort(map.begin(), map.end(), [](const Json::Member& a, const Json::Member& b) { return a.first < b.first; });
  const Json::Object metadata{{"total_size", static_cast<std::int64_t>(total_bytes)}};
  const Json index(Json::Object{{"metadata", metadata}, {"weight_map", std::move(map)}});
  write_file(join_path(out, kIndexName), index.dump(2) + "\n");
}

// Tokenizer, templates, generation config, reference outputs, custom code: everything but weights and descriptions.
bool is_side_file(const ExportSource& source, const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  if (!entry.is_regular_file() || name.front() == '.') return false;
  if (name == "config.json" || name == "hf_quant_config.json" || name == kIndexName) return false;
  for (const SafetensorsFile& shard : source.checkpoint->shards()) {
    if (shard.file_name() == name) return false;
  }
  const std::string ending = entry.path().extension().string();
  const bool weights = ending == ".safetensors" || ending == ".bin" || ending == ".pt" || ending == ".pth" ||
                       ending == ".gguf" || name.find(".safetensors.") != std::string::npos;
  return !weights || name.rfind("reference", 0) == 0;
}

void copy_side_files(const ExportSource& source, const std::string& out) {
  for (const auto& entry : fs::directory_iterator(source.checkpoint->folder())) {
    if (!is_side_file(source, entry)) continue;
    std::error_code error;
    const fs::path to = fs::path(out) / entry.path().filename();
    fs::copy_file(entry.path(), to, fs::copy_options::overwrite_existing, error);
    if (error) {
      fail(ErrorCode::resources, fmt::format("cannot copy {} ({})", to.string(), error.message()),
           "a writable folder with free space");
    }
  }
}

void write_description(const ExportSource& source, const std::string& out, const ExportOptions& options,
                       const ExportPlan& plan) {
  const QuantDescription description{options.target, plan.excluded, plan.quantised, options.producer_version};
  const Json old = Json::parse_file(join_path(source.checkpoint->folder(), "config.json"));
  const Json side = hf_quant_config(description);
  if (!side.is_null()) write_file(join_path(out, "hf_quant_config.json"), side.dump(2) + "\n");
  write_file(join_path(out, "config.json"), exported_config(old, description).dump(2) + "\n");
}

std::uint64_t shard_bytes(const ExportShard& shard) {
  std::uint64_t bytes = 0;
  for (const TensorDecl& tensor : shard.tensors) bytes += tensor_bytes(tensor);
  return bytes;
}

}  // namespace

ExportReport export_checkpoint(const ExportSource& source, const std::string& out, const ExportOptions& options) {
  ExportPlan plan = make_plan(source, options);
  const std::vector<ExportShard> shards = make_shards(plan, options.max_shard_bytes);
  const FileMetadata metadata{{"format", "pt"}, {std::string(kFingerprintKey), fingerprint_of(source, options)}};
  check_folder(source, out, shards, metadata);
  ExportReport report;
  report.source_bytes = source.checkpoint->tensor_bytes();
  report.quantised = plan.quantised_count;
  report.shards = std::ssize(shards);
  for (const ExportShard& shard : shards) report.written_bytes += shard_bytes(shard);
  std::uint64_t done = 0;
  const auto tell = [&](std::uint64_t bytes) {
    done += bytes;
    if (options.progress) options.progress({"writing", "bytes", done, report.written_bytes});
  };
  tell(0);
  for (const ExportShard& shard : shards) {
    const std::string path = join_path(out, shard.name);
    if (is_written(path, shard.tensors, metadata)) {
      ++report.resumed_shards;
      tell(shard_bytes(shard));
    } else {
      write_shard(source, options, shard, path, metadata, tell);
    }
  }
  write_index(out, shards, report.written_bytes);
  copy_side_files(source, out);
  write_description(source, out, options, plan);
  report.excluded = std::move(plan.excluded);
  report.notes = std::move(plan.notes);
  return report;
}

bool has_input_scales(const ExportSource& source, const ExportTarget& target) {
  if (target.is_plain() || !block_format_info(target.block_format()).has_tensor_scale) return false;
  for (std::size_t i = 0; i < source.layers.size(); ++i) {
    if (source.layers[i] == nullptr) continue;
    const ExpertWeights experts = source.weights->experts(static_cast<std::int64_t>(i), *source.layers[i]);
    MatrixRows down;
    down.first = experts.down.front();
    return !experts.input_scales.down.empty() && has_format(down, target);
  }
  return false;
}

}  // namespace sluice::ckpt
