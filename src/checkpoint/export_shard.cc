#include "checkpoint/export_shard.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <utility>

#include "checkpoint/export_matrix.h"
#include "checkpoint/mapped_file.h"
#include "core/error.h"
#include "numerics/bf16.h"

namespace sluice::ckpt {
namespace {

using Part = MatrixJob::Part;
using GateUp = ExpertNames::GateUp;

constexpr std::size_t kCopyBytes = 16u << 20;

// A unit with its weights at hand. Views are resolved before the threads start, because a WeightSource serves one.
struct ReadyUnit {
  const ExportUnit* unit = nullptr;
  std::size_t first_tensor = 0;  // of its item, in the shard
  std::vector<MatrixRows> matrices;
  std::vector<float> input_scales;  // [matrices] decode multipliers
  const ExpertWeights* experts = nullptr;
};

MatrixRows rows_of(const ExpertWeights& experts, Part part, std::int64_t expert, GateUp order) {
  const auto e = static_cast<std::size_t>(expert);
  switch (part) {
    case Part::gate:
      return {MatrixRows::Order::single, experts.gate.at(e), {}};
    case Part::up:
      return {MatrixRows::Order::single, experts.up.at(e), {}};
    case Part::gate_up:
      if (order == GateUp::interleaved) return {MatrixRows::Order::interleaved, experts.gate.at(e), experts.up.at(e)};
      if (order == GateUp::up_then_gate) {
        return {MatrixRows::Order::first_then_second, experts.up.at(e), experts.gate.at(e)};
      }
      return {MatrixRows::Order::first_then_second, experts.gate.at(e), experts.up.at(e)};
    default:
      return {MatrixRows::Order::single, experts.down.at(e), {}};
  }
}

MatrixRows rows_of(const TensorEntry& plain) {
  MatrixRows out;
  out.first.codes = {plain.data, plain.dtype, plain.shape[0], plain.shape[1], plain.shape[1], 1};
  return out;
}

float stored_input(const InputScales& scales, Part part, std::size_t expert) {
  const std::vector<float>& list = part == Part::down ? scales.down : part == Part::gate ? scales.gate : scales.up;
  return expert < list.size() ? list[expert] : 0.0f;
}

std::vector<Bf16> bias_values(const ExpertWeights& experts, const BiasJob& job) {
  const auto e = static_cast<std::size_t>(job.expert);
  std::vector<Bf16> out;
  const auto append = [&](const BiasView& bias) {
    for (std::int64_t n = 0; n < bias.count; ++n) out.push_back(to_bf16(decode_bias(bias, n)));
  };
  if (job.part == Part::down) append(experts.down_bias.at(e));
  if (job.part == Part::gate) append(experts.gate_bias.at(e));
  if (job.part == Part::up) append(experts.up_bias.at(e));
  if (job.part != Part::gate_up) return out;
  const bool up_first = job.order == GateUp::up_then_gate;
  const BiasView& first = up_first ? experts.up_bias.at(e) : experts.gate_bias.at(e);
  const BiasView& second = up_first ? experts.gate_bias.at(e) : experts.up_bias.at(e);
  if (job.order != GateUp::interleaved) {
    append(first);
    append(second);
    return out;
  }
  for (std::int64_t n = 0; n < first.count; ++n) {
    out.push_back(to_bf16(decode_bias(first, n)));
    out.push_back(to_bf16(decode_bias(second, n)));
  }
  return out;
}

// The mapped data of all shards of a checkpoint.
class MappedData {
 public:
  explicit MappedData(const Checkpoint& checkpoint) {
    for (const SafetensorsFile& shard : checkpoint.shards()) {
      if (shard.tensors().empty()) continue;
      const TensorEntry& last = shard.tensors().back();
      ranges_.emplace_back(shard.tensors().front().data, last.data + last.bytes);
    }
  }

  // Gives back the pages behind a weight, so that what is resident does not grow with the shard. Neighbours that share
  // pages, and rows in between, are read again when they are touched. Copies in memory of our own are left alone: there
  // the same call would lose the data.
  void drop(const QuantTensor& weight) const {
    const MatrixView& m = weight.codes;
    if (m.data == nullptr || m.rows < 1 || m.cols < 1) return;
    const auto* data = static_cast<const std::byte*>(m.data);
    const std::int64_t last = (m.rows - 1) * m.row_stride + (m.cols - 1) * m.col_stride;
    const std::byte* end = data + dtype_bytes(m.dtype, last + 1);
    for (const auto& [first, past] : ranges_) {
      if (data >= first && end <= past) return drop_pages({data, end});
    }
  }

 private:
  std::vector<std::pair<const std::byte*, const std::byte*>> ranges_;
};

// Rows of a tensor.
struct Band {
  std::int64_t first;
  std::int64_t count;
};

class ShardWriter {
 public:
  ShardWriter(const ExportSource& source, const ExportOptions& options, const ExportShard& shard,
              SafetensorsStream& file, const BytesSink& written)
      : source_(source), options_(options), file_(file), written_(written), mapped_(*source.checkpoint) {
    std::size_t first = 0;
    for (const ExportItem* item : shard.items) {
      layers_.insert(item->layer);
      for (const ExportUnit& unit : item->units) units_.push_back(ready(unit, first));
      first += item->tensors.size();
    }
  }

  void write() {
    const auto body = [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) write_unit(units_[static_cast<std::size_t>(i)]);
    };
    if (options_.pool != nullptr) {
      options_.pool->parallel_for(std::ssize(units_), 1, body);
    } else {
      body(0, std::ssize(units_), 0);
    }
    for (const std::int64_t layer : layers_) source_.weights->release(layer);
  }

 private:
  ReadyUnit ready(const ExportUnit& unit, std::size_t first) {
    ReadyUnit out{&unit, first, {}, {}, nullptr};
    for (const MatrixJob& job : unit.matrices) {
      if (job.part != Part::dense) {
        out.experts = &experts_of(job.layer);
        out.matrices.push_back(rows_of(*out.experts, job.part, job.expert, job.order));
      } else if (job.entry != nullptr) {
        out.matrices.push_back(rows_of(*job.entry));
      } else {
        MatrixRows rows;
        rows.first = source_.weights->tensor(job.role, job.layer, job.rows, job.cols);
        out.matrices.push_back(rows);
      }
      out.input_scales.push_back(job.input_scale == kNoTensor ? 0.0f : input_scale(job, out));
    }
    return out;
  }

  const ExpertWeights& experts_of(std::int64_t layer) {
    const auto at = experts_.find(layer);
    if (at != experts_.end()) return at->second;
    const LayerSpec& spec = *source_.layers[static_cast<std::size_t>(layer)];
    return experts_.emplace(layer, source_.weights->experts(layer, spec)).first->second;
  }

  float input_scale(const MatrixJob& job, const ReadyUnit& unit) const {
    if (options_.calibration != nullptr) return input_scale_of(options_.target, calibrated(job));
    const float scale = job.part == Part::dense
                            ? unit.matrices.back().first.input_scale
                            : stored_input(unit.experts->input_scales, job.part, static_cast<std::size_t>(job.expert));
    if (scale > 0.0f) return scale;
    fail(ErrorCode::unsupported, fmt::format("{}: no input scale in the source", job.base),
         "--calibrate FILE to measure it");
  }

  float calibrated(const MatrixJob& job) const {
    if (job.part == Part::dense) {
      const auto at = options_.calibration->modules.find(job.base);
      if (at != options_.calibration->modules.end()) return at->second;
    } else {
      const auto at = options_.calibration->layers.find(job.layer);
      if (at != options_.calibration->layers.end()) {
        const std::vector<float>& list = job.part == Part::down ? at->second.gemm2 : at->second.gemm1;
        return list.at(static_cast<std::size_t>(job.expert));
      }
    }
    fail(ErrorCode::unsupported, fmt::format("{}: calibration does not measure the inputs of this module", job.base),
         "projections that the model computes as they are stored, or a format without static input scales for "
         "--include");
  }

  void write_unit(const ReadyUnit& ready) {
    std::uint64_t bytes = 0;
    if (ready.unit->copy != nullptr) bytes = copy(*ready.unit->copy, ready.first_tensor);
    std::vector<float> scales(ready.matrices.size(), 1.0f);
    find_scales(ready, scales);
    for (std::size_t i = 0; i < ready.matrices.size(); ++i) bytes += write_matrix(ready, i, scales[i]);
    for (const BiasJob& job : ready.unit->biases) bytes += write_bias(ready, job);
    for (const MatrixRows& matrix : ready.matrices) {
      mapped_.drop(matrix.first);
      mapped_.drop(matrix.second);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (written_) written_(bytes);
  }

  std::uint64_t copy(const TensorEntry& entry, std::size_t tensor) {
    for (std::size_t at = 0; at < entry.bytes; at += kCopyBytes) {
      const std::size_t count = std::min<std::size_t>(kCopyBytes, entry.bytes - at);
      file_.write(tensor, at, {entry.data + at, count});
      drop_pages({entry.data + at, count});
    }
    return entry.bytes;
  }

  // Matrices of one part of the FFN or of attention share a scale; down and lone ones have their own.
  static bool shares_scale(const MatrixJob& job, const ReadyUnit& unit) {
    return job.part == Part::gate || job.part == Part::up ||
           (job.part == Part::dense && unit.unit->matrices.size() > 1);
  }

  void find_scales(const ReadyUnit& ready, std::vector<float>& scales) const {
    if (!options_.target.has_joint_scale()) return;
    float shared = 0.0f;
    std::vector<float> amax(scales.size(), 0.0f);
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const MatrixJob& job = ready.unit->matrices[i];
      if (!job.quantised || has_format(ready.matrices[i], options_.target)) continue;
      amax[i] = amax_of(ready.matrices[i]);
      if (shares_scale(job, ready)) shared = std::max(shared, amax[i]);
    }
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const MatrixJob& job = ready.unit->matrices[i];
      const bool kept = job.quantised && has_format(ready.matrices[i], options_.target);
      scales[i] = kept ? ready.matrices[i].first.tensor_scale
                       : tensor_scale_of(options_.target, shares_scale(job, ready) ? shared : amax[i]);
    }
  }

  std::uint64_t write_matrix(const ReadyUnit& ready, std::size_t index, float scale) {
    const MatrixJob& job = ready.unit->matrices[index];
    const MatrixRows& matrix = ready.matrices[index];
    const auto tensor = [&](int i) { return ready.first_tensor + static_cast<std::size_t>(i); };
    const ExportTarget target = job.quantised ? options_.target : ExportTarget{};
    std::uint64_t bytes = 0;
    if (job.transposed) {
      const std::vector<std::byte> all = encode_transposed_bf16(matrix);
      file_.write(tensor(job.codes), static_cast<std::uint64_t>(job.expert) * all.size(), all);
      return all.size();
    }
    const std::int64_t block_rows =
        job.scales == kNoTensor ? 1 : std::max<std::int64_t>(block_format_info(target.block_format()).block_rows, 1);
    for (std::int64_t first = 0; first < matrix.rows(); first += kBandRows) {
      const std::int64_t count = std::min(kBandRows, matrix.rows() - first);
      const EncodedBand data = encode_band(matrix, target, scale, first, count);
      const Band band{job.first_row + first, count};
      bytes += put(tensor(job.codes), data.codes, band, 1);
      if (job.scales != kNoTensor) bytes += put(tensor(job.scales), data.scales, band, block_rows);
    }
    if (job.tensor_scale != kNoTensor) bytes += put_float(tensor(job.tensor_scale), stored_tensor_scale(target, scale));
    if (job.input_scale != kNoTensor) {
      bytes += put_float(tensor(job.input_scale), stored_input_scale(target, ready.input_scales[index]));
    }
    return bytes;
  }

  // `data` holds rows of the tensor that each cover `block_rows` rows of the matrix; bands start at whole ones.
  std::uint64_t put(std::size_t tensor, const std::vector<std::byte>& data, const Band& band, std::int64_t block_rows) {
    const std::int64_t rows = (band.count + block_rows - 1) / block_rows;
    const std::int64_t row_bytes = std::ssize(data) / rows;
    file_.write(tensor, static_cast<std::uint64_t>(band.first / block_rows * row_bytes), data);
    return data.size();
  }

  std::uint64_t put_float(std::size_t tensor, float value) {
    file_.write(tensor, 0, std::as_bytes(std::span(&value, 1)));
    return sizeof(value);
  }

  std::uint64_t write_bias(const ReadyUnit& ready, const BiasJob& job) {
    const std::vector<Bf16> values = bias_values(*ready.experts, job);
    const auto data = std::as_bytes(std::span(values));
    file_.write(ready.first_tensor + static_cast<std::size_t>(job.tensor),
                static_cast<std::uint64_t>(job.first) * sizeof(Bf16), data);
    return data.size();
  }

  const ExportSource& source_;
  const ExportOptions& options_;
  SafetensorsStream& file_;
  const BytesSink& written_;
  MappedData mapped_;
  std::map<std::int64_t, ExpertWeights> experts_;
  std::set<std::int64_t> layers_;
  std::vector<ReadyUnit> units_;
  std::mutex mutex_;
};

}  // namespace

void write_shard(const ExportSource& source, const ExportOptions& options, const ExportShard& shard,
                 const std::string& path, const FileMetadata& metadata, const BytesSink& written) {
  SafetensorsStream file(path, shard.tensors, metadata);
  ShardWriter(source, options, shard, file, written).write();
  file.commit();
}

}  // namespace sluice::ckpt
