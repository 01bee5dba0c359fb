// One MoE layer in bf16 out of oneDNN matmuls, one after the other over the experts that have rows: gather, gate and up
// as one product, activation, down, weighted sum. Weights are reordered once into the layout that oneDNN asks for.
//
// For onednn_moe.cc only. Each product uses all of oneDNN's own threads; the steps between them use our pool and our
// kernels, so that the difference between the two runners is the products and how they are scheduled.
#pragma once

#include <cstdint>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "app/bench_layer.h"
#include "core/thread_pool.h"
#include "cpu/gemm.h"

namespace sluice::bench {

class OnednnLayer {
 public:
  // `typical_rows` is the number of rows an expert gets most often: what the weight layout is chosen for.
  OnednnLayer(const app::MoeShape& shape, const app::BenchLayer& layer, std::int64_t typical_rows, ThreadPool& pool,
              const cpu::GemmKernels& kernels);

  // out [T, H]. Builds the primitives of row counts that it sees for the first time.
  void run(const app::MoeBatch& batch, std::vector<Bf16>& out);

 private:
  struct Product {
    std::int64_t k = 0, n = 0;
    dnnl::memory::desc weights;                    // [k, n] in oneDNN's layout
    std::vector<dnnl::memory> experts;             // by expert
    std::map<std::int64_t, dnnl::matmul> by_rows;  // primitives
  };

  void choose_layout(Product& product, std::int64_t rows);
  dnnl::memory reorder(const Product& product, const std::vector<Bf16>& plain);
  void multiply(Product& product, std::int64_t expert, std::int64_t rows, Bf16* x, Bf16* y);
  void activate(std::int64_t rows);

  app::MoeShape shape_;
  ThreadPool& pool_;
  const cpu::GemmKernels& kernels_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Product in_;   // [H, 2 I]
  Product out_;  // [I, H]
  std::vector<Bf16> x_, gate_up_, intermediate_, slot_rows_;
};

}  // namespace sluice::bench
