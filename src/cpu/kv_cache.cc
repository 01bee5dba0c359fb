#include "cpu/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.h"

namespace sluice::cpu {
namespace {

KvSpec checked(const KvSpec& spec) {
  const bool latent = spec.kind == KvSpec::Kind::mla_latent;
  if (latent ? spec.kv_heads != 1 || spec.values() > spec.head_dim : spec.values() != spec.head_dim) {
    fail(ErrorCode::unsupported,
         "KV cache with keys of " + std::to_string(spec.head_dim) + " and values of " + std::to_string(spec.values()) +
             " columns in " + std::to_string(spec.kv_heads) + " heads",
         "equal widths, or a latent of one head whose values are its first columns");
  }
  if (spec.dtype != DType::bf16 && spec.dtype != DType::f32) {
    fail(ErrorCode::unsupported, "KV cache of type " + std::string(dtype_name(spec.dtype)), "bf16 or f32");
  }
  if (spec.block_tokens <= 0 || spec.block_tokens % kPanelTokens != 0) {
    fail(ErrorCode::unsupported, "KV blocks of " + std::to_string(spec.block_tokens) + " tokens", "a multiple of 16");
  }
  if (spec.layers < 0 || spec.kv_heads <= 0 || spec.head_dim <= 0) {
    fail(ErrorCode::usage, "KV cache without heads or columns", "kv_heads and head_dim of 1 or more");
  }
  return spec;
}

// The K columns of one token, 64 bytes apart. A word is one f32 column or two columns of bf16.
void scatter_words(const std::byte* words, std::int64_t count, std::byte* panel, std::int64_t slot) {
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(panel + i * 64 + slot * 4, words + i * 4, 4);
}

void store_bf16_columns(const float* k, std::int32_t head_dim, std::byte* panel, std::int64_t slot,
                        const OpsKernels& kernels) {
  constexpr std::int32_t kAtOnce = 64;
  for (std::int32_t c = 0; c < head_dim; c += kAtOnce) {
    std::uint16_t rounded[kAtOnce] = {};  // an odd last column is followed by the zero of the padding
    const std::int32_t columns = std::min(kAtOnce, head_dim - c);
    kernels.narrow(k + c, rounded, columns);
    scatter_words(reinterpret_cast<const std::byte*>(rounded), (columns + 1) / 2, panel + c / 2 * 64, slot);
  }
}

struct Target {
  std::int64_t block;
  std::int64_t panel;  // within the block
  std::int64_t slot;   // token within the panel
};

Target target_of(const KvStoreArgs& args, const CpuKvCache& cache, std::int64_t t) {
  const std::int64_t position = args.batch->positions[t];
  const std::int64_t block = block_of(*args.batch, sequence_of(*args.batch, t), position, cache);
  const std::int64_t within = position % cache.spec().block_tokens;
  return {block, within / kPanelTokens, within % kPanelTokens};
}

// One row of a V panel.
void store_row(const float* x, const CpuKvCache& cache, std::byte* panel, std::int64_t slot,
               const OpsKernels& kernels) {
  const std::int32_t d = cache.spec().head_dim;
  if (cache.spec().dtype == DType::bf16) {
    kernels.narrow(x, reinterpret_cast<std::uint16_t*>(panel) + slot * cache.dims(), d);
  } else {
    std::memcpy(reinterpret_cast<float*>(panel) + slot * cache.dims(), x, static_cast<std::size_t>(d) * sizeof(float));
  }
}

// One column of a K panel.
void store_column(const float* x, const CpuKvCache& cache, std::byte* panel, std::int64_t slot,
                  const OpsKernels& kernels) {
  const std::int32_t d = cache.spec().head_dim;
  if (cache.spec().dtype == DType::bf16) {
    store_bf16_columns(x, d, panel, slot, kernels);
  } else {
    scatter_words(reinterpret_cast<const std::byte*>(x), d, panel, slot);
  }
}

void store_token(const KvStoreArgs& args, const CpuKvCache& cache, const OpsKernels& kernels, std::int64_t t,
                 std::int32_t head) {
  const std::int64_t column = static_cast<std::int64_t>(head) * cache.spec().head_dim;
  const Target to = target_of(args, cache, t);
  std::byte* v_panel = cache.v_panel(args.layer, to.block, head, to.panel);
  const float* k = args.k.row<float>(t) + column;
  if (cache.latent()) return store_row(k, cache, v_panel, to.slot, kernels);
  store_column(k, cache, cache.k_panel(args.layer, to.block, head, to.panel), to.slot, kernels);
  store_row(args.v.row<float>(t) + column, cache, v_panel, to.slot, kernels);
}

}  // namespace

CpuKvCache::CpuKvCache(const KvSpec& spec, std::int64_t blocks)
    : spec_(checked(spec)),
      blocks_(blocks),
      dims_((spec.head_dim + 15) / 16 * 16),
      panels_per_block_(spec.block_tokens / kPanelTokens),
      panel_bytes_(dtype_bytes(spec.dtype, static_cast<std::int64_t>(kPanelTokens) * dims_)) {
  if (blocks < 0) fail(ErrorCode::usage, "KV cache of " + std::to_string(blocks) + " blocks", "0 or more");
  const std::int64_t panels = spec.layers * blocks * spec.kv_heads * panel_kinds() * panels_per_block_;
  memory_ = host_buffer(static_cast<std::size_t>(panels * panel_bytes_));
}

const CpuKvCache& own_cache(const KvCache* cache, std::int32_t layer) {
  const auto* own = dynamic_cast<const CpuKvCache*>(cache);
  if (own == nullptr)
    fail(ErrorCode::usage, "KV cache of another backend, or none", "one from make_kv of this backend");
  if (layer < 0 || layer >= own->spec().layers) {
    fail(ErrorCode::usage, "KV layer " + std::to_string(layer), "0 to " + std::to_string(own->spec().layers - 1));
  }
  return *own;
}

std::int64_t block_of(const BatchView& batch, std::int64_t s, std::int64_t position, const CpuKvCache& cache) {
  const std::int64_t index = position / cache.spec().block_tokens;
  const bool inside = position >= 0 && index < batch.max_blocks;
  const std::int64_t block = inside ? batch.block_table[s * batch.max_blocks + index] : -1;
  if (block < 0 || block >= cache.blocks()) {
    fail(ErrorCode::usage,
         "no KV block for position " + std::to_string(position) + " of sequence " + std::to_string(s) + " in the step",
         "a block below " + std::to_string(cache.blocks()) + " in its block table");
  }
  return block;
}

std::int64_t sequence_of(const BatchView& batch, std::int64_t t) {
  const std::int32_t* starts = batch.query_start;
  return std::upper_bound(starts, starts + batch.sequences + 1, static_cast<std::int32_t>(t)) - starts - 1;
}

void store_kv(const KvStoreArgs& args, const OpsKernels& kernels, ThreadPool& pool) {
  const CpuKvCache& cache = own_cache(args.cache, args.layer);
  const std::int64_t tokens = args.batch->tokens;
  const std::int64_t heads = cache.spec().kv_heads;
  // Heads outermost: the tokens of a grain then fill the same K lines while these are in the cache.
  pool.parallel_for(tokens * heads, kPanelTokens, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      store_token(args, cache, kernels, i % tokens, static_cast<std::int32_t>(i / tokens));
    }
  });
}

}  // namespace sluice::cpu
