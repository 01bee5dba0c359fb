#include <cuda_runtime.h>

#include <type_traits>

#include "cuda/launch.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/route.h"
#include "cuda/route_input.cuh"
#include "cuda/route_sort.cuh"
#include "cuda/route_write.cuh"

namespace sluice::cuda {
namespace {

// The GEMM kernel takes items and looks for the tables from its start on: what an earlier launch left in these two
// words must be gone by then, and it starts when every block has called let_experts_start(). One thread of a block
// each.
__device__ void forget_last_launch(const RouteArgs& a) {
  if (blockIdx.x != 0) return;
  a.ready[a.max_tiles - 1] = 0;
  if (a.published != nullptr) *a.published = 0;
}

// By the thread that has called forget_last_launch().
__device__ void let_experts_start() {
  if (blockIdx.x == 0) __threadfence();
  let_next_kernel_start();
}

// One thread of block 0, behind a barrier with those that have written the tables, and with forget_last_launch().
__device__ void publish_tables(const RouteArgs& a, std::int32_t tiles) {
  *a.tile_count = tiles;
  if (a.published != nullptr) ptx::store_release(a.published, static_cast<std::uint32_t>(tiles) + 1);
}

// All but the last word, which counts the items taken.
__device__ void clear_ready(const RouteArgs& a) {
  const auto step = static_cast<std::int32_t>(gridDim.x * blockDim.x);
#pragma unroll 1
  for (auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x); i < a.max_tiles - 1; i += step) {
    a.ready[i] = 0;
  }
}

// Where a route goes when each lane of a warp has one.
struct FewRoutes {
  std::int32_t row = -1;  // padded
  std::int32_t rows = 0;  // of the expert, in the lane of its first route; else 0
  std::int32_t first_row = 0, first_tile = 0;
  std::int32_t tiles = 0;  // of all experts
};

// Lanes with the expert of this one, and with a smaller one; `bits`: of the largest expert. A step a bit.
struct Lanes {
  unsigned same = 0xFFFFFFFFu, less = 0;

  __device__ Lanes(std::uint32_t expert, int bits) {
#pragma unroll 1
    for (int b = bits - 1; b >= 0; --b) {
      const bool set = (expert >> b & 1u) != 0;
      const unsigned with = __ballot_sync(0xFFFFFFFFu, set);
      less |= set ? same & ~with : 0;
      same &= set ? with : ~with;
    }
  }
};

__device__ FewRoutes sort_few(const RouteArgs& a, std::int32_t expert) {
  const int lane = threadIdx.x % 32;
  const Lanes lanes(expert + 1, 32 - __clz(a.plan.experts));
  const int rank = __popc(lanes.same & ((1u << lane) - 1u));
  FewRoutes f;
  f.rows = expert >= 0 && rank == 0 ? __popc(lanes.same) : 0;
  const unsigned first = __ballot_sync(0xFFFFFFFFu, f.rows > 0);
  f.first_tile = __popc(lanes.less & first);
  f.first_row = f.first_tile * sm90::kRowGroup;
  f.tiles = __popc(first);
  // Experts with more rows than a group has more tiles or padded rows than one.
  for (unsigned large = __ballot_sync(0xFFFFFFFFu, f.rows > sm90::kRowGroup); large != 0; large &= large - 1) {
    const int at = __ffs(large) - 1;
    const std::int32_t rows = __shfl_sync(0xFFFFFFFFu, f.rows, at), more = (rows - 1) / sm90::kRowGroup;
    const std::int32_t more_tiles = tiles_of_expert(rows, a.plan.token_tile) - 1;
    const bool before = (lanes.less >> at & 1u) != 0;
    f.first_row += before ? more * sm90::kRowGroup : 0;
    f.first_tile += before ? more_tiles : 0;
    f.tiles += more_tiles;
  }
  if (expert >= 0) f.row = f.first_row + rank;
  return f;
}

__device__ void write_few_tables(const RouteArgs& a, const FewRoutes& f, std::int32_t expert) {
  const int lane = threadIdx.x % 32;
  if (f.rows > 0)
    write_tiles(a, token_tile_of(expert, f.rows, f.first_row, f.first_tile, 0, a.plan.token_tile, a.plan.tile_unit));
  __syncwarp();
  if (lane == 0) publish_tables(a, f.tiles);
#pragma unroll 1
  for (std::int32_t i = lane; i < a.max_tiles - 1; i += 32) a.ready[i] = 0;
  if (lane < a.plan.routes()) a.route_row[lane] = f.row;
  if (a.row_token != nullptr && f.row >= 0) a.row_token[f.row] = lane / a.plan.top_k;
}

// At most 32 routes: a warp waits for nothing but that the last launch is forgotten. What it needs from memory is on
// its way at once. Two warps have no rows: one lets the next kernel start, which takes as long as a store to L2, and
// one, of block 0, writes the tables.
template <bool Bf16>
__global__ void __launch_bounds__(kRouteFewThreads + 64) route_few(const __grid_constant__ RouteArgs a) {
  const int lane = threadIdx.x % 32;
  const bool starter = threadIdx.x / 32 == kRouteFewThreads / 32, tables = threadIdx.x / 32 > kRouteFewThreads / 32;
  const auto units = static_cast<std::int32_t>(units_of_token(a));
  const std::int32_t total = static_cast<std::int32_t>(a.plan.tokens) * units, step = gridDim.x * kRouteFewThreads / 32;
  std::int32_t u = tables ? total : blockIdx.x * (kRouteFewThreads / 32) + threadIdx.x / 32;
  if (u == 0 && a.later != nullptr && lane < a.plan.routes()) ptx::prefetch_line(a.later + lane);
  wait_for_previous_kernel();
  const std::int32_t id = lane < valid_routes(a) ? a.ids[lane] : -1;
  if (starter && lane == 0) forget_last_launch(a);
  __syncthreads();
  if (starter && lane == 0) let_experts_start();
  if (starter || (tables && blockIdx.x != 0)) return;
  bool sorted = false;
  FewRoutes f;
  for (; !sorted || u < total; u += step) {
    const bool inside = u < total;
    const std::int32_t t = inside ? u / units : 0, block = inside ? u % units : 0;
    const std::int64_t column = Bf16 ? bf16_column(block) : fp8_column(block);
    std::conditional_t<Bf16, __nv_bfloat16, float> v[4];
    InputRow(a, t).load4(column, v);
    if (!sorted) f = sort_few(a, expert_of(a, id));
    sorted = true;
    if (!inside) continue;
    const auto row_of = [&](std::int32_t s) { return __shfl_sync(0xFFFFFFFFu, f.row, t * a.plan.top_k + s); };
    if (a.output != nullptr && row_of(0) < 0) write_no_output<4>(a, t, column);
    if constexpr (Bf16) {
      write_bf16_block(a, v, bf16_block_of(block), row_of);
    } else {
      write_fp8_block(a, v, block, a.static_scale, row_of);
    }
  }
  if (tables) write_few_tables(a, f, expert_of(a, id));
}

// What is left when the counts are there: rows of the experts, tables, rows of the block's own routes.
template <Source Kind>
__device__ void finish_sort(const RouteArgs& a, const SortMemory& m, const PieceRange& pieces, const OwnRoutes& own) {
  std::int32_t tiles = 0;
  if (threadIdx.x < 32) tiles = lay_out_experts(a, m);
  __syncthreads();
  if (blockIdx.x == 0) {
    write_tables(a, m);
    __syncthreads();
    if (threadIdx.x == 0) publish_tables(a, tiles);
  }
  place_routes(a, m, own);
  if constexpr (Kind == Source::quantised) {
    if (__builtin_expect(a.form == InputForm::fp8_dynamic, 0)) write_dynamic_scales(a, pieces, own.rows);
  }
}

// The work of block 0 where it has no rows: the tables as soon as may be.
__device__ void make_tables(const RouteArgs& a, const SortMemory& m, IdBatch& ids) {
  const OwnRoutes none(a, m, 0, 0);
  clear_counts(a, m);
  count_batch(a, m, none, ids);
  __syncthreads();
  std::int32_t tiles = 0;
  if (threadIdx.x < 32) tiles = lay_out_experts(a, m);
  __syncthreads();
  write_tables(a, m);
  __syncthreads();
  if (threadIdx.x == 0) publish_tables(a, tiles);
  clear_ready(a);
}

// Every block counts all routes; block 0 writes the tables; each block, or each other one, writes its share of the
// input rows.
template <Source Kind>
__global__ void __launch_bounds__(kRouteMostThreads, 1) route_one_pass(const __grid_constant__ RouteArgs a) {
  extern __shared__ int4 shared[];
  wait_for_previous_kernel();
  if (threadIdx.x == blockDim.x - 1) {
    forget_last_launch(a);
    let_experts_start();
  }
  IdBatch ids;
  ids.load(a, 4 * threadIdx.x, static_cast<std::int32_t>(a.plan.routes()));
  const SortMemory m = sort_memory(a, shared);
  if (a.plan.tables_apart && blockIdx.x == 0) {
    make_tables(a, m, ids);
    return;
  }
  const PieceRange pieces = a.plan.tables_apart ? even_share(a) : whole_tokens(a);
  // Several blocks may write the routes of one token: the same values.
  const OwnRoutes own(a, m, pieces.first_token, pieces.first_token + pieces.tokens);
  write_input<Kind>(a, pieces, own.rows, [&] {
    clear_counts(a, m);
    count_batch(a, m, own, ids);
    clear_ready(a);
    const std::int64_t line = (row_block(a) * std::int64_t{blockDim.x} + threadIdx.x) * 32;
    if (a.later != nullptr && line < a.plan.routes()) ptx::prefetch_line(a.later + line);
    __syncthreads();
    finish_sort<Kind>(a, m, pieces, own);
  });
}

// scratch[block, e] = routes of the block's tokens.
__global__ void __launch_bounds__(kRouteMostThreads, 1) route_count(const __grid_constant__ RouteArgs a) {
  extern __shared__ int4 shared[];
  wait_for_previous_kernel();
  let_next_kernel_start();  // which reads the ids meanwhile
  const SortMemory m = sort_memory(a, shared);
  const PieceRange pieces = whole_tokens(a);
  const OwnRoutes own(a, m, pieces.first_token, pieces.first_token + pieces.tokens);
  IdBatch ids;
  ids.load(a, own.begin + 4 * threadIdx.x, own.end);
  clear_counts(a, m);
  clear_ready(a);
  const std::int32_t valid = valid_routes(a);
  for_routes(a, own.begin, own.end, ids, [&](std::int32_t r, const int4& four) {
    for_each_of(a, r, four, valid, [&](std::int32_t, std::int32_t e) {
      if (e >= 0) atomicAdd(m.rest + e, 1);
    });
  });
  __syncthreads();
  for (std::int32_t e = threadIdx.x; e < a.plan.experts; e += blockDim.x) {
    a.scratch[static_cast<std::int64_t>(blockIdx.x) * a.plan.experts + e] = m.rest[e];
  }
}

// Each block finds the places of its routes from the counts of all blocks; block 0 writes the tables.
template <Source Kind>
__global__ void __launch_bounds__(kRouteMostThreads, 1) route_place(const __grid_constant__ RouteArgs a) {
  extern __shared__ int4 shared[];
  const SortMemory m = sort_memory(a, shared);
  const PieceRange pieces = whole_tokens(a);
  const OwnRoutes own(a, m, pieces.first_token, pieces.first_token + pieces.tokens);
  write_input<Kind>(a, pieces, own.rows, [&] {
    // route_count lets this kernel start once it has waited for the input.
    clear_counts(a, m);
    wait_for_previous_kernel();
    if (threadIdx.x == blockDim.x - 1) {
      forget_last_launch(a);
      let_experts_start();
    }
    IdBatch ids;
    ids.load(a, own.begin + 4 * threadIdx.x, own.end);
    const std::int32_t valid = valid_routes(a);
    for_routes(a, own.begin, own.end, ids, [&](std::int32_t r, const int4& four) {
      for_each_of(a, r, four, valid, [&](std::int32_t route, std::int32_t e) { own.keep(route, e); });
    });
    add_up_blocks(a, m);
    finish_sort<Kind>(a, m, pieces, own);
  });
}

// The instance of a kernel for what the rows are made of.
using RouteKernel = void (*)(RouteArgs);

RouteKernel one_pass_kernel(Source kind) {
  if (kind == Source::codes) return route_one_pass<Source::codes>;
  return kind == Source::bf16 ? route_one_pass<Source::bf16> : route_one_pass<Source::quantised>;
}

RouteKernel place_kernel(Source kind) {
  if (kind == Source::codes) return route_place<Source::codes>;
  return kind == Source::bf16 ? route_place<Source::bf16> : route_place<Source::quantised>;
}

}  // namespace

cudaError_t prepare_route() {
  for (const Source kind : {Source::bf16, Source::quantised, Source::codes}) {
    for (const RouteKernel kernel : {one_pass_kernel(kind), place_kernel(kind), RouteKernel{route_count}}) {
      const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                      static_cast<int>(kRouteSharedBytes));
      if (status != cudaSuccess) return status;
    }
  }
  return cudaSuccess;
}

cudaError_t launch_route(const RouteArgs& a, cudaStream_t stream) {
  if (a.plan.tokens == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(a.plan.blocks)), block(static_cast<unsigned>(a.plan.threads));
  const auto shared = static_cast<std::size_t>(a.plan.shared_bytes());
  const bool bf16 = a.form == InputForm::bf16;
  if (a.plan.few) {
    return launch_dependent(bf16 ? route_few<true> : route_few<false>, grid, dim3(kRouteFewThreads + 64), 0, stream, a);
  }
  const Source kind = a.codes != nullptr ? Source::codes : bf16 ? Source::bf16 : Source::quantised;
  if (a.plan.one_pass) return launch_dependent(one_pass_kernel(kind), grid, block, shared, stream, a);
  cudaError_t status = launch_dependent(route_count, grid, block, shared, stream, a);
  if (status == cudaSuccess) status = launch_dependent(place_kernel(kind), grid, block, shared, stream, a);
  return status;
}

}  // namespace sluice::cuda
