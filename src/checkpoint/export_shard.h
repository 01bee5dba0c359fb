// Fills one shard of an export: resolves the weights of its items and writes their tensors, on all threads of a pool.
// Called by export.cc, one shard at a time. Memory: a band of rows a thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/export_plan.h"

namespace sluice::ckpt {

struct ExportShard {
  std::string name;                      // file name
  std::vector<const ExportItem*> items;  // into the plan
  std::vector<TensorDecl> tensors;       // of the items, in their order
};

// Called after each unit with the bytes of tensors written, from one thread at a time.
using BytesSink = std::function<void(std::uint64_t bytes)>;

void write_shard(const ExportSource& source, const ExportOptions& options, const ExportShard& shard,
                 const std::string& path, const FileMetadata& metadata, const BytesSink& written);

}  // namespace sluice::ckpt
