// LoRA adapters: recognised and refused, naming the modules that they would change. Sluice applies none.
//
// Called by find_scheme, by Checkpoint::open for a folder without a model, and by the command line for --lora-paths.
// Pure functions on a folder or on tensor names.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace sluice::ckpt {

// The modules that the adapter of a folder changes, as adapter_config.json lists them, else by the names of its
// tensors; empty when the folder holds no adapter or does not exist. Throws Error(bad_input) when a file of it is
// damaged.
std::vector<std::string> adapter_modules(const std::string& folder);

// Throws Error(unsupported) when the folder holds adapter_config.json or adapter_model.safetensors.
void refuse_adapter(const std::string& folder);
// Throws Error(unsupported) when tensors of LoRA are among those of a model.
void refuse_adapter_tensors(const std::string& folder, const std::vector<const TensorEntry*>& tensors);

}  // namespace sluice::ckpt
