// onednn_moe [SHAPE] [TOKENS...]: the experts of one layer with our CPU runner and with oneDNN matmuls, alternating in
// one process on the same weights, rows and routing. Prints median times and their ratio as a Markdown table.
//
// oneDNN takes its threads from OMP_NUM_THREADS. It rounds gate and up to bf16 before the activation.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "app/bench_ceilings.h"
#include "app/bench_layer.h"
#include "app/bench_moe.h"
#include "core/error.h"
#include "cpu/runner_cpu.h"
#include "onednn_layer.h"

namespace sluice::bench {
namespace {

constexpr int kRepetitions = 9;

template <class Body>
double seconds_of(Body body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<float> floats(const std::vector<Bf16>& values) {
  std::vector<float> out;
  for (const Bf16 v : values) out.push_back(to_float(v));
  return out;
}

class Comparison {
 public:
  explicit Comparison(const app::MoeShape& shape)
      : shape_(shape),
        isa_(cpu::choose_isa(cpu::detect_features())),
        pool_(available_processors()),
        runner_(cpu::make_cpu_runner(pool_, isa_)),
        layer_(shape, 1),
        meter_(pool_, cpu::gemm_kernels(isa_)),
        prepared_(runner_->prepare(layer_.problem(), layer_.weights())) {}

  void print(std::int64_t tokens) {
    const std::int64_t typical = std::max<std::int64_t>(1, tokens * shape_.top_k / shape_.experts);
    OnednnLayer other(shape_, layer_, typical, pool_, cpu::gemm_kernels(isa_));
    app::MoeBatch batch = layer_.batch(tokens);
    app::MoeScratch ours(*runner_, layer_.problem(), tokens);
    std::vector<Bf16> theirs(batch.rows.size());
    std::vector<double> our_seconds, their_seconds;
    for (int i = 0; i < kRepetitions; ++i) {
      layer_.route(batch);
      other.run(batch, theirs);  // builds the primitives of these row counts
      meter_.measure();          // and puts the weights out of the caches again
      their_seconds.push_back(seconds_of([&] { other.run(batch, theirs); }));
      meter_.measure();
      our_seconds.push_back(seconds_of([&] { ours.run(*runner_, *prepared_, batch, layer_.slots()); }));
      check(ours.row(tokens - 1), theirs, tokens);
    }
    const double us = median(our_seconds) * 1e6, them = median(their_seconds) * 1e6;
    std::printf("| %lld | %.0f | %.0f | %.2f |\n", static_cast<long long>(tokens), us, them, them / us);
    std::fflush(stdout);
  }

 private:
  // oneDNN rounds gate and up to bf16, which adds half a percent to each factor of the activation.
  void check(const std::vector<float>& row, const std::vector<Bf16>& all, std::int64_t tokens) const {
    const std::vector<Bf16> last(all.begin() + (tokens - 1) * shape_.hidden, all.end());
    const double error = app::relative_l2(floats(last), row);
    if (error > 0.02) fail(ErrorCode::check_failed, "oneDNN differs by " + std::to_string(error), "at most 0.02");
  }

  app::MoeShape shape_;
  cpu::Isa isa_;
  ThreadPool pool_;
  std::unique_ptr<Runner> runner_;
  app::BenchLayer layer_;
  app::CeilingMeter meter_;
  std::unique_ptr<PreparedExperts> prepared_;
};

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  try {
    const sluice::app::MoeShape& shape = sluice::app::moe_shape(argc > 1 ? argv[1] : "qwen3-30b");
    if (shape.activation != sluice::ActivationKind::swiglu || shape.has_bias) {
      sluice::fail(sluice::ErrorCode::unsupported, "this comparison has SwiGLU without biases only");
    }
    sluice::bench::Comparison comparison(shape);
    std::printf("| tokens | sluice us | oneDNN us | ratio |\n|---:|---:|---:|---:|\n");
    for (int i = 2; i < argc; ++i) comparison.print(std::strtoll(argv[i], nullptr, 10));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "onednn_moe: %s\n", e.what());
    return 1;
  }
  return 0;
}
