// config.json of a Hugging Face checkpoint: the fields every family needs, and typed access to the rest.
//
// The family files of src/model read their own fields through `fields()`, naming every spelling of a field; this file
// knows no family. Both generations of the format are read: transformers 4 (torch_dtype, rope_theta, rope_scaling) and
// 5 (dtype, rope_parameters). Fields of a nested text model (text_config) win over those of the outer model.
// Immutable, thread-safe. Errors are Error(bad_input) naming file and field.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/fields.h"
#include "core/dtype.h"

namespace sluice::ckpt {

class HfConfig {
 public:
  // `text` is the content of config.json, `origin` its name in errors.
  static HfConfig parse(std::string_view text, std::string_view origin);
  static HfConfig load(const std::string& path);

  // Fields of the language model, falling back to the outermost object.
  const Fields& fields() const { return text_; }
  // The outermost object alone.
  const Fields& root() const { return root_; }

  // "qwen3_moe"; of the language model when it is nested. Empty when the file has none.
  const std::string& model_type() const { return model_type_; }
  // {"Qwen3MoeForCausalLM"}; may be empty.
  const std::vector<std::string>& architectures() const { return architectures_; }
  // bf16, f16 or f32 of `dtype` or `torch_dtype`; nothing when absent, "auto" or another type.
  std::optional<DType> dtype() const { return dtype_; }
  // quantization_config, if the file has one.
  std::optional<Fields> quantization() const;

 private:
  HfConfig(Fields root, Fields text);

  Fields root_;
  Fields text_;
  std::string model_type_;
  std::vector<std::string> architectures_;
  std::optional<DType> dtype_;
};

}  // namespace sluice::ckpt
