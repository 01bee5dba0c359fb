#include "cpu/attention.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.h"
#include "cpu/attention_plan.h"
#include "cpu/kv_cache.h"

namespace sluice::cpu {
namespace {

// Scratch for results and for each worker. A wave should last long enough to hide its two barriers (hundreds of
// microseconds) and its results should stay in the L2 cache.
constexpr std::size_t kBytesPerThread = 1u << 20;
constexpr std::int64_t kSlotsPerThread = 512;
constexpr std::int64_t kTurns = 8;  // a thread comes back for work at least so often, and takes at most so many tasks

// A chunk of a tile, and where its result goes.
struct Task {
  std::int32_t tile = 0;  // index into Wave::tiles
  std::int32_t slot = 0;
  std::int64_t chunk = 0;
};

// Results of one tile that lie in slots [first_slot, last_slot), in ascending order of chunks.
struct Fold {
  std::int32_t tile = 0;
  std::int32_t first_slot = 0;
  std::int32_t last_slot = 0;
  bool finish = false;  // its last chunk is among them
};

// What the kernel is told about a task: query rows, the keys that each sees, and where they are.
struct Prepared {
  const float* query[kTileRows];
  std::int32_t first[kTileRows];
  std::int32_t last[kTileRows];
  const void* k_panels[kChunkPanels];
  const void* v_panels[kChunkPanels];
};

// As much work as fits into the scratch memory. Slot 0 holds what a tile brings from the wave before.
struct Wave {
  AttentionTile* tiles = nullptr;
  Task* tasks = nullptr;
  Fold* folds = nullptr;
  std::int32_t task_count = 0;
  std::int32_t fold_count = 0;
};

auto kernel_for(const CpuKvCache& cache, const OpsKernels& kernels) {
  if (cache.latent()) {
    return cache.spec().dtype == DType::bf16 ? kernels.attend_latent_bf16 : kernels.attend_latent_f32;
  }
  return cache.spec().dtype == DType::bf16 ? kernels.attend_bf16 : kernels.attend_f32;
}

std::int64_t panel_floats(const CpuKvCache& cache) {
  return cache.latent() ? kScratchPanels * cache.panel_bytes() / static_cast<std::int64_t>(sizeof(float)) : 0;
}

class Attention {
 public:
  Attention(const AttentionArgs& args, const CpuKvCache& cache, const OpsKernels& kernels, ThreadPool& pool,
            Workspace& workspace);
  void run();

 private:
  bool plan_wave();
  void run_tasks(std::int64_t begin, std::int64_t end, int worker) const;
  void run_task(const Task& task, const Prepared& p, const Prepared* next, int worker) const;
  void prepare(const Task& task, Prepared& p) const;
  void find_panels(const AttentionTile& tile, const Task& task, Prepared& p) const;
  void fold(const Fold& fold) const;
  void finish(const AttentionTile& tile, const AttendState& state) const;
  AttendState slot(std::int32_t index) const;

  const AttentionArgs& args_;
  const BatchView& batch_;
  const CpuKvCache& cache_;
  const OpsKernels& kernels_;
  void (*kernel_)(const AttendChunk&);
  ThreadPool& pool_;
  TileCursor cursor_;
  std::int32_t most_rows_;
  std::int64_t slot_floats_;
  std::int64_t query_floats_;  // of a worker's scratch: queries, then scores, then K panels of a latent
  std::int64_t worker_floats_;
  std::int32_t slots_ = 0;
  float* slot_memory_ = nullptr;
  float* worker_memory_ = nullptr;
  Wave wave_;
  // The tile being planned: chunks from next_chunk_ on are still to do.
  AttentionTile tile_;
  std::int64_t next_chunk_ = 0;
};

Attention::Attention(const AttentionArgs& args, const CpuKvCache& cache, const OpsKernels& kernels, ThreadPool& pool,
                     Workspace& workspace)
    : args_(args),
      batch_(*args.batch),
      cache_(cache),
      kernels_(kernels),
      kernel_(kernel_for(cache, kernels)),
      pool_(pool),
      cursor_(batch_, args.heads, cache.spec().kv_heads, args.window),
      most_rows_(cursor_.most_rows()),
      slot_floats_((static_cast<std::int64_t>(most_rows_) * (cache.value_dims() + 2) + 15) / 16 * 16),
      query_floats_(static_cast<std::int64_t>(most_rows_) * cache.dims()),
      worker_floats_(query_floats_ + most_rows_ * kChunkTokens + panel_floats(cache)) {
  const auto floats = static_cast<std::int64_t>(kBytesPerThread / sizeof(float));
  const std::int64_t fitting = (floats - worker_floats_) / slot_floats_;
  if (fitting < 2) {
    fail(ErrorCode::unsupported, "attention with head_dim " + std::to_string(cache.spec().head_dim), "at most 2048");
  }
  const std::int64_t slots = pool.size() * std::min(fitting, kSlotsPerThread);
  slots_ = static_cast<std::int32_t>(slots);
  worker_memory_ = workspace.take<float>(pool.size() * worker_floats_);
  slot_memory_ = workspace.take<float>(slots * slot_floats_);
  wave_.tiles = workspace.take<AttentionTile>(slots);
  wave_.tasks = workspace.take<Task>(slots);
  wave_.folds = workspace.take<Fold>(slots);
}

AttendState Attention::slot(std::int32_t index) const {
  float* memory = slot_memory_ + index * slot_floats_;
  float* ends = memory + static_cast<std::int64_t>(most_rows_) * cache_.value_dims();
  return {.max = ends, .sum = ends + most_rows_, .acc = memory};
}

// Fills the slots with chunks in order. False when there is nothing left to do.
bool Attention::plan_wave() {
  wave_.task_count = wave_.fold_count = 0;
  std::int32_t slot = 1;
  while (slot < slots_) {
    const bool carried = next_chunk_ < tile_.last_chunk;  // only the first tile of a wave
    if (!carried) {
      if (!cursor_.next(tile_)) break;
      next_chunk_ = tile_.first_chunk;
    }
    const std::int32_t index = wave_.fold_count++;
    const std::int64_t chunks = std::min<std::int64_t>(tile_.last_chunk - next_chunk_, slots_ - slot);
    const auto last_slot = static_cast<std::int32_t>(slot + chunks);
    wave_.tiles[index] = tile_;
    wave_.folds[index] = {index, carried ? 0 : slot, last_slot, next_chunk_ + chunks == tile_.last_chunk};
    for (; slot < last_slot; ++slot) wave_.tasks[wave_.task_count++] = {index, slot, next_chunk_++};
  }
  return wave_.task_count > 0;
}

// Panels of blocks that no row sees stay nullptr: a sliding window may have given them up.
void Attention::find_panels(const AttentionTile& tile, const Task& task, Prepared& p) const {
  std::int32_t first = kChunkTokens;
  std::int32_t last = 0;
  for (std::int32_t r = 0; r < tile.rows(); ++r) {
    if (p.first[r] >= p.last[r]) continue;
    first = std::min(first, p.first[r]);
    last = std::max(last, p.last[r]);
  }
  for (std::int32_t i = 0; i < kChunkPanels; ++i) {
    p.k_panels[i] = p.v_panels[i] = nullptr;
    if ((i + 1) * kPanelTokens <= first || i * kPanelTokens >= last) continue;
    const std::int64_t position = task.chunk * kChunkTokens + i * kPanelTokens;
    const std::int64_t block = block_of(batch_, tile.sequence, position, cache_);
    const std::int64_t panel = position % cache_.spec().block_tokens / kPanelTokens;
    if (!cache_.latent()) p.k_panels[i] = cache_.k_panel(args_.layer, block, tile.kv_head, panel);
    p.v_panels[i] = cache_.v_panel(args_.layer, block, tile.kv_head, panel);
  }
}

void Attention::prepare(const Task& task, Prepared& p) const {
  const AttentionTile& tile = wave_.tiles[task.tile];
  const std::int64_t base = task.chunk * kChunkTokens;
  for (std::int32_t r = 0; r < tile.rows(); ++r) {
    const std::int64_t t = tile.first_token + r / tile.heads;
    const KeySpan keys = keys_of(batch_.positions[t], args_.window);
    p.query[r] = args_.q.row<float>(t) + (tile.first_head + r % tile.heads) * cache_.spec().head_dim;
    p.first[r] = static_cast<std::int32_t>(std::clamp<std::int64_t>(keys.first - base, 0, kChunkTokens));
    p.last[r] = static_cast<std::int32_t>(std::clamp<std::int64_t>(keys.last - base, 0, kChunkTokens));
  }
  find_panels(tile, task, p);
}

void Attention::run_task(const Task& task, const Prepared& p, const Prepared* next, int worker) const {
  const AttentionTile& tile = wave_.tiles[task.tile];
  float* scratch = worker_memory_ + worker * worker_floats_;
  const void* const* next_panels = nullptr;
  if (next != nullptr) next_panels = cache_.latent() ? next->v_panels : next->k_panels;
  float* scores = scratch + query_floats_;
  const AttendChunk chunk{.query = p.query,
                          .rows = tile.rows(),
                          .head_dim = cache_.spec().head_dim,
                          .dims = cache_.dims(),
                          .value_dims = cache_.value_dims(),
                          .scale = args_.scale,
                          .first = p.first,
                          .last = p.last,
                          .k_panels = p.k_panels,
                          .v_panels = p.v_panels,
                          .k_scratch = scores + static_cast<std::int64_t>(most_rows_) * kChunkTokens,
                          .next_panels = next_panels,
                          .packed_query = scratch,
                          .scores = scores,
                          .out = slot(task.slot)};
  kernel_(chunk);
  if (tile.last_chunk - tile.first_chunk == 1) finish(tile, chunk.out);
}

// Tasks [begin, end), each knowing the next one.
void Attention::run_tasks(std::int64_t begin, std::int64_t end, int worker) const {
  Prepared two[2];
  prepare(wave_.tasks[begin], two[begin % 2]);
  for (std::int64_t i = begin; i < end; ++i) {
    const bool more = i + 1 < end;
    if (more) prepare(wave_.tasks[i + 1], two[(i + 1) % 2]);
    run_task(wave_.tasks[i], two[i % 2], more ? &two[(i + 1) % 2] : nullptr, worker);
  }
}

void Attention::finish(const AttentionTile& tile, const AttendState& state) const {
  for (std::int32_t r = 0; r < tile.rows(); ++r) {
    const std::int64_t t = tile.first_token + r / tile.heads;
    const std::int32_t head = tile.first_head + r % tile.heads;
    FinishRow row{.max = state.max[r],
                  .sum = state.sum[r],
                  .acc = state.acc + static_cast<std::int64_t>(r) * cache_.value_dims(),
                  .sink = args_.sinks != nullptr ? args_.sinks + head : nullptr,
                  .head_dim = cache_.spec().values()};
    const std::int64_t column = static_cast<std::int64_t>(head) * row.head_dim;
    if (args_.out.dtype == DType::bf16) {
      row.out_bf16 = args_.out.row<std::uint16_t>(t) + column;
    } else {
      row.out_f32 = args_.out.row<float>(t) + column;
    }
    kernels_.finish(row);
  }
}

void Attention::fold(const Fold& fold) const {
  const AttentionTile& tile = wave_.tiles[fold.tile];
  if (tile.last_chunk - tile.first_chunk == 1) return;  // run_task has finished it
  const AttendState into = slot(fold.first_slot);
  for (std::int32_t s = fold.first_slot + 1; s < fold.last_slot; ++s) {
    kernels_.fold(into, slot(s), tile.rows(), cache_.value_dims());
  }
  if (fold.finish) finish(tile, into);
}

void Attention::run() {
  while (plan_wave()) {
    const std::int64_t grain = std::clamp<std::int64_t>(wave_.task_count / (kTurns * pool_.size()), 1, kTurns);
    pool_.parallel_for(wave_.task_count, grain,
                       [&](std::int64_t begin, std::int64_t end, int worker) { run_tasks(begin, end, worker); });
    if (wave_.task_count == wave_.fold_count) {  // mostly one chunk a tile: nothing that is worth a second round
      for (std::int32_t i = 0; i < wave_.fold_count; ++i) fold(wave_.folds[i]);
    } else {
      pool_.parallel_for(wave_.fold_count, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) fold(wave_.folds[i]);
      });
    }
    const Fold& last = wave_.folds[wave_.fold_count - 1];
    if (!last.finish && last.first_slot != 0) {
      std::memcpy(slot(0).acc, slot(last.first_slot).acc, static_cast<std::size_t>(slot_floats_) * sizeof(float));
    }
  }
}

const CpuKvCache& checked(const AttentionArgs& args) {
  const CpuKvCache& cache = own_cache(args.cache, args.layer);
  if (args.heads <= 0 || args.heads % cache.spec().kv_heads != 0) {
    fail(ErrorCode::usage, "attention with " + std::to_string(args.heads) + " heads",
         "a multiple of the " + std::to_string(cache.spec().kv_heads) + " KV heads");
  }
  if (args.q.dtype != DType::f32) fail(ErrorCode::usage, "attention on a query that is not f32");
  if (args.out.dtype != DType::f32 && args.out.dtype != DType::bf16) {
    fail(ErrorCode::usage, "attention into " + std::string(dtype_name(args.out.dtype)), "bf16 or f32");
  }
  return cache;
}

}  // namespace

void attend(const AttentionArgs& args, const OpsKernels& kernels, ThreadPool& pool, Workspace& workspace) {
  if (args.batch->tokens == 0) return;
  const CpuKvCache& cache = checked(args);
  const Workspace::Scope scope(workspace);
  Attention(args, cache, kernels, pool, workspace).run();
}

std::size_t attention_workspace_bytes(int threads) {
  constexpr std::size_t kListBytes = kSlotsPerThread * (sizeof(AttentionTile) + sizeof(Task) + sizeof(Fold));
  return static_cast<std::size_t>(threads) * (kBytesPerThread + kListBytes) + 5 * Workspace::kAlignBytes;
}

}  // namespace sluice::cpu
