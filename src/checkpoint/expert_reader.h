// Reads the routed experts of one layer: every arrangement of ExpertNames, every dialect.
//
// Made by a WeightSource for one call. Checks that all matrices of the layer share one format, since a runner packs
// them in one way. Headers of experts that other ranks hold are checked too, so that all ranks refuse alike.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weight_reader.h"
#include "moe/spec.h"

namespace sluice::ckpt {

class ExpertReader {
 public:
  // Called once for every weight that was read.
  using Tally = std::function<void(const ModuleParts&, const StoredWeight&)>;

  // All arguments but the tally must outlive the reader.
  ExpertReader(WeightReader& reader, std::int64_t layer, const LayerSpec& spec, const ExpertSlice& slice, Tally tally);

  // With `leave_checks` block scales are looked through when the weights are released, and by
  // WeightReader::finish_left_checks().
  ExpertWeights read(bool leave_checks = false);

 private:
  // One weight of the experts: its file patterns and the sizes of one expert's part.
  struct Projection {
    std::string_view pattern;
    std::string_view bias_pattern;
    std::int64_t outputs = 0;  // of the tensor: 2I where it holds gate and up
    std::int64_t inputs = 0;
    OutputSlice slice;
    bool bias_elsewhere = false;  // another rank adds the bias: zeros here
  };
  // Where its parts go.
  struct Target {
    std::vector<QuantTensor>& weights;
    std::vector<BiasView>& biases;
    std::vector<float>& input_scales;
  };

  bool stacked() const { return names_.files == ExpertNames::Files::stacked; }
  bool holds(std::int64_t expert) const { return slice_.experts.empty() || held_[static_cast<std::size_t>(expert)]; }
  void put_in_slots(std::vector<QuantTensor>& weights) const;
  std::vector<std::string> names_of(std::string_view pattern) const;
  void read_projection(const Projection& p, const Target& target);
  static QuantTensor without_data(const Projection& p);
  void read_biases(const Projection& p, std::vector<BiasView>& biases);
  void add_weight(const Projection& p, const ModuleParts& parts, std::int64_t expert, const Target& target);
  const StoredWeight& stored(const WeightRequest& request);
  void check_same_format(const TensorEntry& codes, const StoredWeight& weight);
  void check_cut(const WeightRequest& request, const OutputSlice& slice, const StoredWeight& weight) const;
  // Runs `read`; a fault goes into the findings, if they are collected, and false comes back.
  bool guarded(const std::function<void()>& read) const;

  WeightReader& reader_;
  TensorReader& tensors_;
  std::int64_t layer_;
  const LayerSpec& spec_;
  const ExpertSlice& slice_;
  std::vector<bool> held_;  // [E], when the slice names experts
  const ExpertNames& names_;
  Tally tally_;
  const TensorEntry* first_codes_ = nullptr;
  std::optional<BlockFormat> first_format_;
  bool has_input_scales_ = false;            // of the projection being read
  const ModuleParts* last_parts_ = nullptr;  // whose weight is last_: gate and up may be in one
  StoredWeight last_;
};

}  // namespace sluice::ckpt
