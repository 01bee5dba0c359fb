#include <cuda_runtime.h>

#include "cuda/launch.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/route.h"
#include "cuda/route_input.cuh"
#include "cuda/route_sort.cuh"
#include "cuda/route_write.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMostThreads = kRouteMostWarps * 32;
constexpr int kPassThreads = kRoutePassWarps * 32;

__device__ void clear_ready(const RouteArgs& a) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.max_tiles; i += step) {
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

__device__ FewRoutes sort_few(const RouteArgs& a, std::int32_t expert) {
  const int lane = threadIdx.x % 32;
  const unsigned same = __match_any_sync(0xFFFFFFFFu, expert);
  const int rank = __popc(same & ((1u << lane) - 1u));
  const std::int32_t rows = expert >= 0 && rank == 0 ? __popc(same) : 0;
  const std::int32_t padded = (rows + sm90::kRowGroup - 1) / sm90::kRowGroup * sm90::kRowGroup;
  const std::int32_t tiles = tiles_of_expert(rows, a.plan.token_tile);
  FewRoutes f;
  f.rows = rows;
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    const std::int32_t other = __shfl_sync(0xFFFFFFFFu, expert, j), other_rows = __shfl_sync(0xFFFFFFFFu, padded, j);
    const std::int32_t other_tiles = __shfl_sync(0xFFFFFFFFu, tiles, j);
    f.first_row += other < expert ? other_rows : 0;
    f.first_tile += other < expert ? other_tiles : 0;
    f.tiles += other_tiles;
  }
  if (expert >= 0) f.row = f.first_row + rank;
  return f;
}

__device__ void write_few_tables(const RouteArgs& a, const FewRoutes& f, std::int32_t expert) {
  const int lane = threadIdx.x % 32;
  for (std::int32_t i = lane; i < a.max_tiles; i += 32) a.ready[i] = 0;
  for (std::int32_t i = 0; i < tiles_of_expert(f.rows, a.plan.token_tile); ++i) {
    a.tiles[f.first_tile + i] = token_tile_of(expert, f.rows, f.first_row, f.first_tile, i, a.plan.token_tile);
  }
  if (lane == 0) *a.tile_count = f.tiles;
  if (lane < a.plan.routes()) a.route_row[lane] = f.row;
  if (a.row_token != nullptr && f.row >= 0) a.row_token[f.row] = lane;
}

// At most 32 routes: no block waits for another warp. What a warp needs from memory is on its way at once.
__global__ void __launch_bounds__(kRouteFewThreads) route_few(const __grid_constant__ RouteArgs a) {
  const int lane = threadIdx.x % 32;
  const std::int64_t units = units_of_token(a), total = a.plan.tokens * units;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (kRouteFewThreads / 32);
  std::int64_t u = blockIdx.x * (kRouteFewThreads / 32) + threadIdx.x / 32;
  if (u == 0 && a.later != nullptr && lane < a.plan.routes()) ptx::prefetch_line(a.later + lane);
  wait_for_previous_kernel();
  let_next_kernel_start();  // which looks at the ids, too
  const std::int32_t expert = expert_of(a, route_range(a, 0, a.plan.routes()), lane);
  bool sorted = false;
  FewRoutes f;
  for (bool first = true; first || u < total; u += step, first = false) {
    const bool inside = u < total;
    const std::int64_t t = inside ? u / units : 0, block = inside ? u % units : 0;
    const InputRow x(a, t);
    __nv_bfloat16 plain[4];
    float v[4];
    const bool bf16 = a.form == InputForm::bf16;
    if (bf16) x.load4(bf16_column(block), plain);
    if (!bf16) x.load4(fp8_column(block), v);
    if (!sorted) {
      f = sort_few(a, expert);
      sorted = true;
      if (u == 0) write_few_tables(a, f, expert);
    }
    if (!inside) continue;
    const auto row_of = [&](std::int32_t s) {
      return __shfl_sync(0xFFFFFFFFu, f.row, static_cast<int>(t) * a.plan.top_k + s);
    };
    if (a.output != nullptr && row_of(0) < 0) write_no_output<4>(a, t, bf16 ? bf16_column(block) : fp8_column(block));
    if (bf16) write_bf16_block(a, plain, bf16_block_of(block), row_of);
    if (!bf16) write_fp8_block(a, v, block, a.static_scale, row_of);
  }
}

// The parts of a block's shared memory.
struct SortMemory {
  std::int32_t* counts;  // [warps, count_stride]
  std::int32_t* rows;    // [experts]
  std::int32_t* first;   // [experts]
  std::int32_t* sums;    // [kRouteSums]
  std::int32_t* local;   // [kRouteLocalRows] rows of the block's own routes
};

__device__ SortMemory sort_memory(const RouteArgs& a, std::int32_t* shared) {
  std::int32_t* rows = shared + static_cast<std::int64_t>(a.plan.warps) * a.plan.count_stride();
  std::int32_t* sums = rows + 2 * a.plan.experts;
  return {shared, rows, rows + a.plan.experts, sums, sums + kRouteSums};
}

// The routes whose input rows a block writes, and where it finds their padded rows again.
struct OwnRows {
  std::int64_t first = 0, end = 0;  // routes
  std::int32_t* local = nullptr;
  const std::int32_t* rows = nullptr;

  __device__ void write(const RouteArgs& a, std::int64_t r, std::int32_t row) const {
    if (r < first || r >= end) return;
    a.route_row[r] = row;
    if (a.row_token != nullptr && row >= 0) a.row_token[row] = static_cast<std::int32_t>(r);
    if (local != nullptr) local[r - first] = row;
  }
};

__device__ OwnRows own_rows(const RouteArgs& a, const SortMemory& m, std::int64_t first_token,
                            std::int64_t last_token) {
  OwnRows own;
  own.first = first_token * a.plan.top_k;
  own.end = last_token * a.plan.top_k;
  own.local = own.end - own.first <= kRouteLocalRows ? m.local : nullptr;
  own.rows = own.local != nullptr ? own.local : a.route_row + own.first;
  return own;
}

// Equal numbers of pieces for each block, in the order of the tokens.
__device__ PieceRange even_share(const RouteArgs& a) {
  const std::uint32_t of_token = pieces_of_token(a.k_blocks);
  const auto total = static_cast<std::uint32_t>(a.plan.tokens) * of_token;
  const std::uint32_t each = (total + gridDim.x - 1) / gridDim.x, begin = each * blockIdx.x;
  PieceRange p;
  p.divisor = of_token;
  if (begin >= total) return p;
  const std::uint32_t first = begin / of_token;
  p.first_token = first;
  p.begin = begin - first * of_token;
  p.end = (begin + each < total ? begin + each : total) - first * of_token;
  return p;
}

// Every block sorts all routes; block 0 writes the tables; each block writes its share of the input rows.
__global__ void __launch_bounds__(kMostThreads, 1) route_one_pass(const __grid_constant__ RouteArgs a) {
  extern __shared__ std::int32_t shared[];
  wait_for_previous_kernel();
  let_next_kernel_start();  // which looks at the ids, too
  const SortMemory m = sort_memory(a, shared);
  const RouteRange all = route_range(a, 0, a.plan.routes());
  const PieceRange pieces = even_share(a);
  bring_pieces_near(a, pieces);
  clear_ready(a);
  for (std::int64_t i = threadIdx.x * 32; blockIdx.x == 0 && a.later != nullptr && i < a.plan.routes();
       i += blockDim.x * 32) {
    ptx::prefetch_line(a.later + i);
  }
  count_routes(a, all, m.counts);
  add_up_warps(a, m.counts, m.rows);
  lay_out_experts(a, m.sums, blockIdx.x == 0, m.rows, m.first);
  // Several blocks may write the routes of one token: the same values.
  const std::int64_t last = pieces.begin < pieces.end ? pieces.first_token + pieces.at(pieces.end - 1).token + 1 : 0;
  const OwnRows own = own_rows(a, m, pieces.first_token, last);
  place_routes(a, all, m.counts, m.first, [&](std::int64_t r, std::int32_t row) { own.write(a, r, row); });
  write_input(a, pieces, own.rows, last);
}

__device__ RouteRange block_range(const RouteArgs& a) {
  const std::int64_t first = blockIdx.x * a.plan.block_tokens;
  const std::int64_t last = first + a.plan.block_tokens < a.plan.tokens ? first + a.plan.block_tokens : a.plan.tokens;
  return route_range(a, (first < last ? first : last) * a.plan.top_k, last * a.plan.top_k);
}

// scratch[block, e] = routes of the block's tokens.
__global__ void __launch_bounds__(kPassThreads, 2) route_count(const __grid_constant__ RouteArgs a) {
  extern __shared__ std::int32_t shared[];
  wait_for_previous_kernel();
  let_next_kernel_start();  // which counts once more meanwhile
  const SortMemory m = sort_memory(a, shared);
  clear_ready(a);
  count_routes(a, block_range(a), m.counts);
  add_up_warps(a, m.counts, m.rows);
  for (std::int32_t e = threadIdx.x; e < a.plan.experts; e += blockDim.x) {
    a.scratch[static_cast<std::int64_t>(blockIdx.x) * a.plan.experts + e] = m.rows[e];
  }
}

// Each block finds the places of its routes from the counts of all blocks; block 0 writes the tables.
__global__ void __launch_bounds__(kPassThreads, 2) route_place(const __grid_constant__ RouteArgs a) {
  extern __shared__ std::int32_t shared[];
  let_next_kernel_start();
  const SortMemory m = sort_memory(a, shared);
  const RouteRange range = block_range(a);
  count_routes(a, range, m.counts);  // route_count lets this kernel start once it has waited for the ids
  add_up_warps(a, m.counts, m.rows);
  wait_for_previous_kernel();
  add_up_blocks(a, m.rows, m.first);
  std::int32_t* before = m.first;
  lay_out_experts(a, m.sums, blockIdx.x == 0, m.rows, m.rows);
  for (std::int32_t e = threadIdx.x; e < a.plan.experts; e += blockDim.x) before[e] += m.rows[e];
  __syncthreads();
  const std::int64_t first = range.begin / a.plan.top_k, last = range.end / a.plan.top_k;
  const OwnRows own = own_rows(a, m, first, last);
  place_routes(a, range, m.counts, before, [&](std::int64_t r, std::int32_t row) { own.write(a, r, row); });
  const auto tokens = static_cast<std::uint32_t>(last - first);
  write_input(a, {0, tokens * pieces_of_token(a.k_blocks), first, tokens > 0 ? tokens : 1, true}, own.rows, last);
}

}  // namespace

cudaError_t prepare_route() {
  for (auto* kernel : {route_one_pass, route_count, route_place}) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kRouteSharedBytes));
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t launch_route(const RouteArgs& a, cudaStream_t stream) {
  if (a.plan.tokens == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(a.plan.blocks)), block(static_cast<unsigned>(a.plan.threads));
  const auto shared = static_cast<std::size_t>(a.plan.shared_bytes());
  if (a.plan.few) return launch_dependent(route_few, grid, block, 0, stream, a);
  if (a.plan.one_pass) return launch_dependent(route_one_pass, grid, block, shared, stream, a);
  cudaError_t status = launch_dependent(route_count, grid, block, shared, stream, a);
  if (status == cudaSuccess) status = launch_dependent(route_place, grid, block, shared, stream, a);
  return status;
}

}  // namespace sluice::cuda
