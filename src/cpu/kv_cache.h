// KV memory of the CPU backend: paged, in the layout that the attention loops read.
//
// Made by CpuBackend::make_kv, written by store_kv, read by attention. Blocks of all layers have the same numbers;
// which block holds which tokens is the engine's affair (BatchView::block_table). Not thread-safe while store_kv runs.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "core/thread_pool.h"
#include "cpu/ops_kernels.h"
#include "moe/backend.h"

namespace sluice::cpu {

// Each (layer, kv head) has the K panels of all blocks, then the V panels of all blocks, of 16 tokens each, with the
// head padded by zeros to `dims`: blocks with consecutive numbers, which a sequence usually gets, are one stream in
// memory. K: [dims / 2, 16 tokens, 2] bf16 or [dims, 16 tokens] f32, so that sixteen lanes are sixteen keys and scores
// need no sum across lanes. V: [16 tokens, dims].
// A latent (mla_latent) is key and value at once and stored once, as V panels; attention turns each panel over into the
// layout of K when it reads it, which costs a few percent of the arithmetic on it.
class CpuKvCache final : public KvCache {
 public:
  // Throws Error(unsupported) for values narrower than keys except in a latent, other types than bf16 and f32, and
  // block sizes that 16 does not divide.
  CpuKvCache(const KvSpec& spec, std::int64_t blocks);

  const KvSpec& spec() const { return spec_; }
  std::int64_t blocks() const { return blocks_; }
  bool latent() const { return spec_.kind == KvSpec::Kind::mla_latent; }
  std::int32_t dims() const { return dims_; }                                  // of keys, and a row of a V panel
  std::int32_t value_dims() const { return (spec_.values() + 15) / 16 * 16; }  // of them: values
  std::int64_t panel_bytes() const { return panel_bytes_; }                    // of K or of V
  std::int64_t resident_bytes() const { return static_cast<std::int64_t>(memory_.bytes()); }

  // The K panel of tokens [16 * panel, 16 * panel + 16) of a block, which a latent has none of, and the V panel.
  std::byte* k_panel(std::int32_t layer, std::int64_t block, std::int32_t head, std::int64_t panel) const {
    return at(layer, head, block, panel);
  }
  std::byte* v_panel(std::int32_t layer, std::int64_t block, std::int32_t head, std::int64_t panel) const {
    return at(layer, head, latent() ? block : block + blocks_, panel);
  }

 private:
  std::int64_t panel_kinds() const { return latent() ? 1 : 2; }
  std::byte* at(std::int32_t layer, std::int32_t head, std::int64_t block, std::int64_t panel) const {
    const std::int64_t row = static_cast<std::int64_t>(layer) * spec_.kv_heads + head;
    const std::int64_t index = (row * panel_kinds() * blocks_ + block) * panels_per_block_ + panel;
    return memory_.as<std::byte>() + index * panel_bytes_;
  }

  KvSpec spec_;
  std::int64_t blocks_;
  std::int32_t dims_;
  std::int64_t panels_per_block_;
  std::int64_t panel_bytes_;
  Buffer memory_;
};

// Checks that the cache is ours and has the layer. Throws Error(usage).
const CpuKvCache& own_cache(const KvCache* cache, std::int32_t layer);

// The block that holds `position` of sequence s. Throws Error(usage) naming both when the table has none.
std::int64_t block_of(const BatchView& batch, std::int64_t s, std::int64_t position, const CpuKvCache& cache);

// Sequence that token t of the batch belongs to.
std::int64_t sequence_of(const BatchView& batch, std::int64_t t);

void store_kv(const KvStoreArgs& args, const OpsKernels& kernels, ThreadPool& pool);

}  // namespace sluice::cpu
