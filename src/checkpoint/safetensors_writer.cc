#include "checkpoint/safetensors_writer.h"

#include <fmt/core.h>

#include "checkpoint/messages.h"
#include "checkpoint/safetensors.h"
#include "core/error.h"

namespace sluice::ckpt {

void SafetensorsWriter::add(std::string name, DType dtype, std::vector<std::int64_t> shape,
                            std::span<const std::byte> data) {
  TensorDecl tensor{std::move(name), dtype, std::move(shape)};
  const std::uint64_t bytes = tensor_bytes(tensor);
  if (data.size() != bytes) {
    fail(ErrorCode::usage,
         fmt::format("tensor {}: {} bytes for {} {}", quote(tensor.name), data.size(), safetensors_dtype_name(dtype),
                     shape_text(tensor.shape)),
         fmt::format("{} bytes", bytes));
  }
  if (tensor.name == "__metadata__" || !names_.insert(tensor.name).second) {
    fail(ErrorCode::usage, fmt::format("tensor name {} is reserved or used twice", quote(tensor.name)),
         "a name of its own");
  }
  tensors_.push_back(std::move(tensor));
  data_.push_back(data);
}

void SafetensorsWriter::write(const std::string& path) const {
  SafetensorsStream file(path, tensors_, metadata_);
  for (std::size_t i = 0; i < data_.size(); ++i) file.write(i, 0, data_[i]);
  file.commit();
}

}  // namespace sluice::ckpt
