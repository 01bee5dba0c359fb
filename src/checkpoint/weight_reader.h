// Reads one weight, whatever its dialect: asks the dialects whose tensors it has, checks what they found against the
// description of the checkpoint, and gives them what they share.
//
// Owned by a WeightSource, used by its one thread. A dialect is a table of names and conventions plus the calls below;
// all checks of types, shapes and scales happen here. Throws TensorError naming file, tensor, found and expected.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/quant_config.h"
#include "checkpoint/scale_checks.h"
#include "checkpoint/stored_weight.h"
#include "checkpoint/tensor_reader.h"

namespace sluice::ckpt {

enum class ScaleMeaning : std::uint8_t {
  multiplier,  // value = code * scale
  reciprocal,  // value = code / scale
};

class WeightReader;

// How one vendor stores a weight.
struct Dialect {
  std::string_view name;
  // Whether the tensors of the module are spelled in this way. Looks at names and types only.
  bool (*claims)(const ModuleParts&);
  // From names, types and shapes, without reading.
  std::optional<BlockFormat> (*format)(const ModuleParts&, const QuantConfig&);
  StoredWeight (*read)(WeightReader&, const WeightRequest&);
};

class WeightReader {
 public:
  // All must outlive the reader.
  WeightReader(TensorReader& tensors, const QuantConfig& config, const SchemeOptions& options);

  // The weight, with its input scale if the file is to use it. Of an expert that is elsewhere, only the input scale.
  StoredWeight read(const WeightRequest& request);
  // nothing = plain.
  std::optional<BlockFormat> format_of(const ModuleParts& parts) const;

  // For dialects. Types and shapes are checked, parts counted as used, and scales validated as the policy says.
  const TensorEntry& require_part(const WeightRequest& request, Part part) const;
  // Codes of whole bytes.
  void set_codes(const WeightRequest& request, const TensorEntry& tensor, StoredWeight& out);
  // e2m1, two a byte, or blocks of them: [E,] outputs, then `inner`, which is inputs / 2 bytes in one or more
  // dimensions.
  void set_packed_codes(const WeightRequest& request, const TensorEntry& tensor, const std::vector<std::int64_t>& inner,
                        StoredWeight& out);
  // A grid of scales, one for `rows` x `cols` elements; integers are taken as exponents.
  void set_block_scales(const WeightRequest& request, const TensorEntry& tensor, std::int64_t rows, std::int64_t cols,
                        std::initializer_list<DType> types, StoredWeight& out);
  // One f32 scale for every output.
  void set_channel_scales(const WeightRequest& request, const TensorEntry& tensor, StoredWeight& out);
  Scalars tensor_scales(const WeightRequest& request, const TensorEntry& tensor, ScaleMeaning meaning);
  // Empty when there is none or the file is weight-only.
  Scalars input_scales(const WeightRequest& request, Part part, ScaleMeaning meaning);

  // Input scales of one projection by expert as input_scales() gave them: fills those that are missing as the policy
  // says, or throws naming the experts. `name` is the unquantised name of the first.
  void complete_input_scales(std::int64_t layer, const std::string& name, std::vector<float>& scales);

  // Ends the checks of block scales that read() has left for all threads (SchemeOptions::pool). Before anybody gets the
  // weights, and before the slices of the requests are gone. Throws for the first fault in the order of reading.
  void finish_checks();
  // Of a layer whose reading an error has ended.
  void forget_checks() { unchecked_.clear(); }
  // Or leaves them to whoever packs the weights and to finish_left_checks(), which must come while the slices are
  // there.
  std::shared_ptr<ScaleChecks> leave_checks();
  void finish_left_checks();

  TensorReader& tensors() { return tensors_; }
  const QuantConfig& config() const { return config_; }
  const SchemeOptions& options() const { return options_; }
  // Oddities so far.
  const FindingList& oddities() const { return oddities_; }

 private:
  void check_description(const WeightRequest& request, const Dialect& dialect, std::optional<BlockFormat> format);
  void check_conventions(const WeightRequest& request, const Dialect& dialect, std::optional<BlockFormat> format,
                         const QuantRule* rule) const;
  // What the description says of a module.
  struct Described {
    const ModuleParts* parts = nullptr;
    bool excluded = false;
    const QuantRule* rule = nullptr;
  };
  const Described& description_of(const ModuleParts& parts);
  InputScaling scaling_of(const WeightRequest& request, bool present);
  bool file_has_input_scales(const WeightRequest& request);
  void note(Severity severity, FindingKind kind, const TensorEntry& tensor, const std::string& text);
  float scale_value(const WeightRequest& request, const TensorEntry& tensor, std::int64_t index, ScaleMeaning meaning,
                    bool of_input);
  void check_scale_grid(const ScaleGrid& grid);
  void finish(ScaleChecks& checks) const;
  [[noreturn]] void fail_scale(const ScaleGrid& grid, std::int64_t bad) const;
  // Aligned data of a weight of this rank; of another rank's, a pointer that is not to be followed.
  const std::byte* data_of(const WeightRequest& request, const TensorEntry& tensor);

  TensorReader& tensors_;
  const QuantConfig& config_;
  const SchemeOptions& options_;
  FindingList oddities_;
  std::vector<ScaleGrid> unchecked_;
  std::shared_ptr<ScaleChecks> left_;
  Described described_;                    // the last one: a weight asks more than once
  std::map<bool, bool> has_input_scales_;  // by "is of an expert"
};

// All dialects, in the order in which they are asked.
const std::vector<const Dialect*>& dialects();

}  // namespace sluice::ckpt
