// Layers, routing and launches of the expert GEMM bench: device arrays, packed weights, tables as the routing kernel
// leaves them, and the comparison with the naive kernels.
//
// Included by expert_gemm.cu only; one thread. Failures end the program.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "expert_data.cuh"

namespace sluice::bench {

using namespace cuda::sm90;

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::fflush(stdout);
  std::_Exit(2);
}

// A kernel that waits for something that never comes must not eat the machine's time.
inline void wait(cudaStream_t stream, const char* what) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check(state, what);
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(8)) {
      std::printf("%s: hangs\n", what);
      std::fflush(stdout);
      std::_Exit(3);
    }
  }
}

template <typename T>
struct DeviceArray {
  T* p = nullptr;
  std::size_t count = 0;
  DeviceArray() = default;
  explicit DeviceArray(std::size_t n) { resize(n); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(p); }
  void resize(std::size_t n) {
    if (n <= count) return;
    cudaFree(p);
    check(cudaMalloc(&p, std::max<std::size_t>(n, 64) * sizeof(T)), "cudaMalloc");
    count = n;
  }
  void upload(const std::vector<T>& v) {
    resize(v.size());
    check(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
};

struct Options {
  ActivationSpec activation;
  bool gated = true;
  bool bias = false;
  bool static_h = true;
};

// Weights of a layer, as read and packed.
struct Layer {
  Shape shape;
  Options options;
  DeviceArray<std::uint8_t> codes[3];  // gate, up, down
  DeviceArray<float> scale[3], bias[3];
  DeviceArray<std::uint8_t> packed;
  PackedLayer out;

  std::int32_t rows(int m) const { return m == 2 ? shape.hidden : shape.intermediate; }
  std::int32_t cols(int m) const { return m == 2 ? shape.intermediate : shape.hidden; }

  std::int64_t scale_count(int m) const {
    if (shape.format == Format::fp8_tensor) return rows(m);
    return ceil_div(rows(m), 128) * ceil_div(cols(m), 128);
  }

  void fill(int m) {
    const std::int64_t n = std::int64_t{shape.experts} * rows(m) * cols(m);
    if (shape.format == Format::bf16) {
      codes[m].resize(n * 2);
      fill_bf16<<<4096, 256>>>(reinterpret_cast<__nv_bfloat16*>(codes[m].p), n, 0.02f, 10 + m);
    } else {
      codes[m].resize(n);
      fill_e4m3<<<4096, 256>>>(codes[m].p, n, 60.0f, 10 + m);
      scale[m].resize(shape.experts * scale_count(m));
      fill_uniform<<<256, 256>>>(scale[m].p, shape.experts * scale_count(m), 2.0e-4f, 5.0e-4f, 20 + m);
    }
    if (!options.bias) return;
    bias[m].resize(std::int64_t{shape.experts} * rows(m));
    fill_uniform<<<256, 256>>>(bias[m].p, std::int64_t{shape.experts} * rows(m), -0.5f, 0.5f, 30 + m);
  }

  MatrixSource source(int m, std::int32_t expert) const {
    MatrixSource s;
    if (m == 0 && !options.gated) return s;
    const std::int64_t bytes = shape.format == Format::bf16 ? 2 : 1;
    s.codes = codes[m].p + expert * std::int64_t{rows(m)} * cols(m) * bytes;
    s.row_stride = cols(m);
    if (scale[m].p != nullptr) s.scale = scale[m].p + expert * scale_count(m);
    if (bias[m].p != nullptr) s.bias = bias[m].p + std::int64_t{expert} * rows(m);
    return s;
  }

  Weights naive(int m) const {
    const MatrixSource s = source(m, 0);
    return {s.codes, s.scale, s.bias, rows(m), cols(m)};
  }

  Layer(const Shape& s, const Options& o) : shape(s), options(o) {
    for (int m = 0; m < 3; ++m) fill(m);
    const PackedBytes b = packed_bytes(shape, o.bias);
    packed.resize(b.total() + 8 * 128);
    std::uint8_t* at = packed.p;
    const auto take = [&](std::size_t bytes) {
      std::uint8_t* p = bytes == 0 ? nullptr : at;
      at += round_up(bytes, 128);
      return p;
    };
    out.w1 = take(b.w1);
    out.w2 = take(b.w2);
    float** arrays[] = {&out.block_scale1, &out.block_scale2, &out.row_scale1, &out.row_scale2, &out.bias1, &out.bias2};
    const std::size_t sizes[] = {b.block_scale1, b.block_scale2, b.row_scale1, b.row_scale2, b.bias1, b.bias2};
    for (int i = 0; i < 6; ++i) *arrays[i] = reinterpret_cast<float*>(take(sizes[i]));
    for (std::int32_t e = 0; e < shape.experts; ++e) {
      check(launch_pack({shape, out, e, source(0, e), source(1, e), source(2, e)}, nullptr), "pack");
    }
    wait(nullptr, "pack");
  }
};

// Routing of T tokens to k of E experts, as the routing kernel would leave it.
struct Routing {
  std::vector<TokenTile> tiles;
  std::vector<std::int32_t> token_of_row;  // -1 in gaps
  std::vector<std::int32_t> expert_of_row;
  std::int64_t padded_rows = 0;
  std::int64_t routes = 0;
  std::int32_t active = 0;
};

inline Routing make_routing(std::int64_t tokens, std::int32_t k, std::int32_t experts, Format format, const Plan& plan,
                            bool skewed) {
  std::mt19937 rng(7 + static_cast<unsigned>(tokens));
  std::vector<std::vector<std::int32_t>> of_expert(experts);
  std::vector<std::int32_t> ids(experts);
  std::iota(ids.begin(), ids.end(), 0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int32_t s = 0; s < k; ++s) {
      std::int32_t pick = s + static_cast<std::int32_t>(rng() % (experts - s));
      if (skewed && rng() % 2 == 0) pick = s;
      std::swap(ids[s], ids[pick]);
      of_expert[ids[s]].push_back(static_cast<std::int32_t>(t));
    }
    if (skewed) std::sort(ids.begin(), ids.end());
  }
  std::vector<std::int32_t> order(experts);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return of_expert[a].size() > of_expert[b].size(); });
  Routing r;
  r.routes = tokens * k;
  r.padded_rows = max_padded_rows(r.routes, experts);
  r.token_of_row.assign(r.padded_rows, -1);
  r.expert_of_row.assign(r.padded_rows, -1);
  std::int32_t row = 0;
  for (const std::int32_t e : order) {
    const auto count = static_cast<std::int32_t>(of_expert[e].size());
    if (count == 0) continue;
    ++r.active;
    for (std::int32_t i = 0; i < count; ++i) {
      r.token_of_row[row + i] = of_expert[e][i];
      r.expert_of_row[row + i] = e;
    }
    const auto first = static_cast<std::int32_t>(r.tiles.size());
    const std::int32_t step = token_tile_rows(count, plan.token_tile, token_tile_unit(format, plan.token_tile));
    const auto tiles = static_cast<std::int32_t>(ceil_div(count, plan.token_tile));
    for (std::int32_t j = 0; j < tiles; ++j) {
      r.tiles.push_back(
          {e, row + j * step, std::min(step, count - j * step), first, tiles, step, count - (tiles - 1) * step, 0});
    }
    row += static_cast<std::int32_t>(round_up(count, kRowGroup));
  }
  return r;
}

__global__ void touch(TokenTile* tiles, std::int32_t count, std::int32_t* tile_count) {
  const std::int32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  for (std::int32_t t = i; t < count; t += gridDim.x * blockDim.x) tiles[t].unused = i;
  if (i == 0) *tile_count = count;
}

// Everything one launch needs, on the device.
struct Run {
  ExpertArgs args;
  std::int64_t tokens;
  Routing routing;
  DeviceArray<TokenTile> tiles;
  DeviceArray<std::int32_t> tile_count, token_of_row;
  DeviceArray<std::uint32_t> ready;
  DeviceArray<__nv_bfloat16> x, slot_rows;
  DeviceArray<std::uint8_t> image, h;
  DeviceArray<float> x_scale, h_scale, h_f32;

  Run(const Layer& layer, std::int64_t t, std::int32_t k, Plan plan, bool skewed) : tokens(t) {
    const Shape& s = layer.shape;
    const Extents e = extents(s);
    routing = make_routing(t, k, s.experts, s.format, plan, skewed);
    const std::int64_t p = routing.padded_rows;
    tiles.upload(routing.tiles);
    tile_count.upload({static_cast<std::int32_t>(routing.tiles.size())});
    token_of_row.upload(routing.token_of_row);
    ready.resize(routing.tiles.size() + 1);
    x.resize(t * s.hidden);
    fill_bf16<<<1024, 256>>>(x.p, t * s.hidden, 1.0f, 3);
    image.resize(p * e.k_blocks1 * kBlockBytes);
    x_scale.resize(p * e.k_blocks1);
    check(cudaMemset(image.p, 0xff, image.count), "poison");
    make_image<<<static_cast<unsigned>(p), 128>>>(
        {x.p, token_of_row.p, p, s.hidden, e.k_blocks1, s.format, image.p, x_scale.p, 0.01f});
    const float h_static = s.format == Format::fp8_tensor && layer.options.static_h ? 0.05f : 0.0f;
    const ScratchBytes scratch = scratch_bytes(s, p, h_static > 0.0f);
    h.resize(scratch.h);
    h_scale.resize(scratch.h_scale / 4);
    h_f32.resize(scratch.h_f32 / 4);
    slot_rows.resize(p * s.hidden);
    int device = 0, sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    args.shape = s;
    args.plan = plan;
    args.weights = layer.out;
    args.routes = {tile_count.p, tiles.p, static_cast<std::int32_t>(routing.tiles.size() + 1), ready.p};
    args.activation = layer.options.activation;
    args.padded_rows = p;
    args.x = image.p;
    args.x_scale = x_scale.p;
    args.h = h.p;
    args.h_scale = h_scale.p;
    args.h_static_scale = h_static;
    args.h_f32 = h_f32.p;
    args.slot_rows = slot_rows.p;
    args.sm_count = sms;
    args.pdl = false;
    wait(nullptr, "set up");
  }

  void clear_ready(cudaStream_t stream) {
    check(cudaMemsetAsync(ready.p, 0, (routing.tiles.size() + 1) * 4, stream), "clear");
  }

  // Leaves the routing tables in L2, as the routing kernel does.
  void rewrite_tables(cudaStream_t stream) {
    clear_ready(stream);
    touch<<<16, 256, 0, stream>>>(tiles.p, static_cast<std::int32_t>(routing.tiles.size()), tile_count.p);
  }

  // Runs once on poisoned outputs.
  void run_poisoned() {
    check(cudaMemset(slot_rows.p, 0xff, slot_rows.count * 2), "poison");
    check(cudaMemset(h.p, 0xff, h.count), "poison");
    clear_ready(nullptr);
    check(launch_experts(args, nullptr), "launch");
    wait(nullptr, "experts");
  }

  // Rows whose output is not that of another run bit by bit.
  std::int64_t differing_rows(const Run& other) const {
    const std::size_t width = args.shape.hidden;
    std::vector<std::uint16_t> a(routing.padded_rows * width), b(a.size());
    check(cudaMemcpy(a.data(), slot_rows.p, a.size() * 2, cudaMemcpyDeviceToHost), "rows");
    check(cudaMemcpy(b.data(), other.slot_rows.p, b.size() * 2, cudaMemcpyDeviceToHost), "rows");
    std::int64_t differing = 0;
    for (std::int64_t r = 0; r < routing.padded_rows; ++r) {
      const auto at = a.begin() + r * width;
      differing += routing.token_of_row[r] >= 0 && !std::equal(at, at + width, b.begin() + r * width);
    }
    return differing;
  }

  // Relative L2 error of up to `limit` rows.
  double error(const Layer& layer, std::size_t limit) {
    std::vector<std::int32_t> rows, experts;
    const std::size_t step = std::max<std::size_t>(1, routing.routes / limit);
    std::size_t seen = 0;
    for (std::int32_t r = 0; r < routing.padded_rows; ++r) {
      if (routing.token_of_row[r] < 0 || seen++ % step != 0) continue;
      rows.push_back(r);
      experts.push_back(routing.expert_of_row[r]);
    }
    const auto n = static_cast<unsigned>(rows.size());
    const Shape& s = layer.shape;
    const std::int64_t widest = round_up(std::max(s.hidden, s.intermediate), 128);
    DeviceArray<std::int32_t> d_rows, d_experts;
    d_rows.upload(rows);
    d_experts.upload(experts);
    DeviceArray<float> values(n * widest), scales(n * widest / 128), h_ref(n * widest), out(n * widest);
    DeviceArray<double> sums(2);
    check(cudaMemset(sums.p, 0, 16), "clear");
    const NaiveArgs a{s.format,
                      args.activation,
                      s.hidden,
                      s.intermediate,
                      d_rows.p,
                      d_experts.p,
                      args.padded_rows,
                      args.x,
                      args.x_scale,
                      args.h_static_scale,
                      layer.naive(0),
                      layer.naive(1),
                      layer.naive(2),
                      values.p,
                      scales.p,
                      h_ref.p,
                      out.p};
    naive_load<<<n, 256>>>(a);
    naive_first<<<dim3(n, 16), 256>>>(a);
    naive_quantize<<<n, 128>>>(a);
    naive_second<<<dim3(n, 16), 256>>>(a);
    compare<<<n, 256>>>(a, slot_rows.p, sums.p);
    double host[2];
    check(cudaMemcpy(host, sums.p, 16, cudaMemcpyDeviceToHost), "error sums");
    return std::sqrt(host[0] / host[1]);
  }
};

}  // namespace sluice::bench
