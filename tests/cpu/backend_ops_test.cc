// Row-wise operations of the CPU backend against hand-computed cases and float64.
#include <cmath>

#include "backend_fixture.h"
#include "core/error.h"
#include "numerics/tolerance.h"

namespace sluice::cpu {
namespace {

const double kU = tolerance::unit_roundoff(DType::f32);

using BackendOpsTest = BackendTest;

QuantTensor bf16_tensor(const std::vector<std::uint16_t>& data, std::int64_t rows, std::int64_t cols) {
  QuantTensor t;
  t.codes = {data.data(), DType::bf16, rows, cols, cols, 1};
  return t;
}

TEST_P(BackendOpsTest, DescribesItself) {
  EXPECT_EQ(backend_.describe(), "cpu, " + std::string(isa_name(GetParam())) + ", 2 threads");
  EXPECT_EQ(backend_.device(), Device{});
}

TEST_P(BackendOpsTest, CopiesThereAndBack) {
  const std::vector<float> x = normal_floats(100, 1);
  const Buffer device = backend_.alloc(400);
  backend_.copy_to_device(device.data(), x.data(), 400, kStream);
  std::vector<float> back(100);
  backend_.copy_to_host(back.data(), device.data(), 400, kStream);
  backend_.synchronize(kStream);
  EXPECT_EQ(back, x);
  backend_.copy_to_device(nullptr, nullptr, 0, kStream);
}

TEST_P(BackendOpsTest, RmsNormByHand) {
  const std::vector<float> x{3, 4, 0, 0};  // mean square 6.25, root 2.5
  const std::vector<float> weight{1, 2, 3, 4};
  std::vector<float> y = poisoned_floats(4);
  backend_.rms_norm(
      {.x = view(x, 1, 4), .weight = weight.data(), .epsilon = 0, .out_f32 = view(y, 1, 4), .out_compute = {}},
      kStream);
  EXPECT_NEAR(y[0], 1.2, 1e-6);
  EXPECT_NEAR(y[1], 3.2, 1e-6);
  EXPECT_EQ(y[2], 0);
  backend_.rms_norm(
      {.x = view(x, 1, 4), .weight = weight.data(), .epsilon = 18.75f, .out_f32 = view(y, 1, 4), .out_compute = {}},
      kStream);
  EXPECT_NEAR(y[0], 0.6, 1e-6);  // root of 6.25 + 18.75
}

TEST_P(BackendOpsTest, RmsNormAgainstFloat64) {
  for (const std::int64_t cols : {1, 2, 15, 16, 17, 63, 64, 65, 128, 300, 2048, 2880}) {
    const std::int64_t rows = 5;
    const std::vector<float> x = normal_floats(static_cast<std::size_t>(rows * cols), 2, 3.0f);
    const std::vector<float> weight = normal_floats(static_cast<std::size_t>(cols), 3);
    std::vector<float> y = poisoned_floats(x.size());
    std::vector<std::uint16_t> rounded(x.size(), 0xFFFF);
    NormArgs args{.x = view(x, rows, cols),
                  .weight = weight.data(),
                  .epsilon = 1e-6f,
                  .out_f32 = view(y, rows, cols),
                  .out_compute = view(rounded, rows, cols)};
    backend_.rms_norm(args, kStream);
    const double sum_error = tolerance::gamma(cols / 64 + 9, kU);  // squares of one chain, then chains and lanes
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < cols; ++c) sum += static_cast<double>(x[r * cols + c]) * x[r * cols + c];
      const double inverse = 1.0 / std::sqrt(sum / static_cast<double>(cols) + static_cast<double>(1e-6f));
      for (std::int64_t c = 0; c < cols; ++c) {
        const double exact = x[r * cols + c] * inverse * weight[c];
        ASSERT_NEAR(y[r * cols + c], exact, std::fabs(exact) * (0.5 * sum_error + 6 * kU))
            << cols << " " << r << " " << c;
        ASSERT_EQ(rounded[r * cols + c], to_bf16(y[r * cols + c]).bits);
      }
    }
    std::vector<float> in_place = x;
    args.x = view(in_place, rows, cols);
    args.out_f32 = view(in_place, rows, cols);
    std::vector<float> compute = poisoned_floats(x.size());
    args.out_compute = view(compute, rows, cols);  // compute type f32
    backend_.rms_norm(args, kStream);
    EXPECT_EQ(bits_of(in_place), bits_of(y));
    EXPECT_EQ(bits_of(compute), bits_of(y));
  }
}

TEST_P(BackendOpsTest, RowsOfAnyStrideLeaveTheirSurroundingsAlone) {
  std::vector<float> x = normal_floats(3 * 50, 4);
  const std::vector<float> before = x;
  const std::vector<float> weight(20, 1.0f);
  const TensorView part{x.data() + 10, DType::f32, 3, 20, 50};
  backend_.rms_norm({.x = part, .weight = weight.data(), .out_f32 = part, .out_compute = {}}, kStream);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool inside = i % 50 >= 10 && i % 50 < 30;
    EXPECT_EQ(x[i] != before[i], inside) << i;
  }
}

// Bits of a norm do not depend on the number of rows or threads.
TEST_P(BackendOpsTest, RmsNormRowsAreInvariant) {
  const std::int64_t rows = 300;
  const std::int64_t cols = 768;
  const std::vector<float> x = normal_floats(static_cast<std::size_t>(rows * cols), 5);
  const std::vector<float> weight = normal_floats(static_cast<std::size_t>(cols), 6);
  std::vector<float> all = poisoned_floats(x.size());
  backend_.rms_norm(
      {.x = view(x, rows, cols), .weight = weight.data(), .out_f32 = view(all, rows, cols), .out_compute = {}},
      kStream);
  for (const int threads : {1, 5}) {
    ThreadPool pool(threads);
    CpuBackend backend(pool, GetParam());
    for (const std::int64_t r : {0, 1, 17, 299}) {
      std::vector<float> one = poisoned_floats(static_cast<std::size_t>(cols));
      const ConstTensorView row(x.data() + r * cols, DType::f32, 1, cols, cols);
      backend.rms_norm({.x = row, .weight = weight.data(), .out_f32 = view(one, 1, cols), .out_compute = {}}, kStream);
      EXPECT_EQ(0, std::memcmp(one.data(), all.data() + r * cols, one.size() * sizeof(float)));
    }
  }
}

TEST_P(BackendOpsTest, AddIsTheFloatSum) {
  const std::vector<float> a = normal_floats(7 * 33, 7);
  const std::vector<float> b = normal_floats(7 * 33, 8);
  std::vector<float> sum = a;
  backend_.add(view(sum, 7, 33), view(b, 7, 33), kStream);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(sum[i], a[i] + b[i]);
}

TEST_P(BackendOpsTest, AddGatedScalesByTheSigmoid) {
  std::vector<float> sum{1, 2, 10, 20, 5, 6};
  const std::vector<float> x{3, -4, 8, 16, 100, 100};
  const std::vector<float> gate{0.0f, 1.09861229f, -200.0f};  // sigmoid 1/2, 3/4, 0
  backend_.add_gated(view(sum, 3, 2), view(x, 3, 2), view(gate, 3, 1), kStream);
  const std::vector<float> expected{2.5f, 0, 16, 32, 5, 6};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(sum[i], expected[i], 4e-6) << i;
  EXPECT_THROW(backend_.add_gated(view(sum, 3, 2), view(x, 2, 3), view(gate, 3, 1), kStream), Error);
}

TEST_P(BackendOpsTest, EmbedFindsRowsOfAnyFormat) {
  std::vector<std::uint16_t> bf16(6 * 19);
  std::vector<float> f32(6 * 19);
  const std::vector<float> values = normal_floats(6 * 19, 9);
  for (std::size_t i = 0; i < values.size(); ++i) {
    bf16[i] = to_bf16(values[i]).bits;
    f32[i] = to_float(to_bf16(values[i]));
  }
  QuantTensor transposed;  // the same table, stored column by column
  std::vector<float> columns(f32.size());
  for (std::size_t r = 0; r < 6; ++r) {
    for (std::size_t c = 0; c < 19; ++c) columns[c * 6 + r] = f32[r * 19 + c];
  }
  transposed.codes = {columns.data(), DType::f32, 6, 19, 1, 6};
  const std::vector<std::int32_t> ids{5, 0, 0, 3};
  for (const QuantTensor& t : {bf16_tensor(bf16, 6, 19), transposed}) {
    const std::unique_ptr<DenseWeight> table = backend_.prepare_embedding(t);
    EXPECT_EQ(table->rows, 6);
    EXPECT_EQ(table->cols, 19);
    std::vector<float> y = poisoned_floats(4 * 19);
    backend_.embed(*table, ids.data(), view(y, 4, 19), kStream);
    for (std::size_t t2 = 0; t2 < 4; ++t2) {
      for (std::size_t c = 0; c < 19; ++c) EXPECT_EQ(y[t2 * 19 + c], f32[static_cast<std::size_t>(ids[t2]) * 19 + c]);
    }
    const std::int32_t outside = 6;
    EXPECT_THROW(backend_.embed(*table, &outside, view(y, 1, 19), kStream), Error);
  }
}

TEST_P(BackendOpsTest, VectorsBecomeFloat32) {
  const std::vector<std::uint16_t> row{to_bf16(1.5f).bits, to_bf16(-0.25f).bits, to_bf16(1e-3f).bits};
  const Buffer vector = backend_.prepare_vector(bf16_tensor(row, 1, 3));
  ASSERT_EQ(vector.bytes(), 12u);
  EXPECT_EQ(vector.as<float>()[0], 1.5f);
  EXPECT_EQ(vector.as<float>()[1], -0.25f);
  EXPECT_EQ(vector.as<float>()[2], round_to_bf16(1e-3f));
  EXPECT_THROW(backend_.prepare_vector(bf16_tensor(row, 3, 1)), Error);
}

TEST_P(BackendOpsTest, GatherRowsCopies) {
  const std::vector<float> x = normal_floats(5 * 7, 10);
  const std::vector<std::int32_t> rows{4, 4, 1};
  std::vector<float> y = poisoned_floats(3 * 7);
  backend_.gather_rows(view(x, 5, 7), rows.data(), view(y, 3, 7), kStream);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t c = 0; c < 7; ++c) EXPECT_EQ(y[i * 7 + c], x[static_cast<std::size_t>(rows[i]) * 7 + c]);
  }
  const std::int32_t outside = 5;
  EXPECT_THROW(backend_.gather_rows(view(x, 5, 7), &outside, view(y, 1, 7), kStream), Error);
}

TEST_P(BackendOpsTest, LinearByHand) {
  std::vector<std::uint16_t> weight;
  for (const float w : {1.0f, 2.0f, 3.0f, -1.0f, 0.5f, 0.0f}) weight.push_back(to_bf16(w).bits);
  const std::unique_ptr<DenseWeight> dense = backend_.prepare_dense(bf16_tensor(weight, 2, 3), Recipe::f32);
  const std::vector<float> x{1, 10, 100};
  const std::vector<float> bias{0.5f, -4.0f};
  std::vector<float> y = poisoned_floats(2);
  PoisonedMemory memory;
  Workspace workspace = memory.get(backend_, 1, 1, 3);
  backend_.linear({.x = view(x, 1, 3), .weight = dense.get(), .bias = bias.data(), .y = view(y, 1, 2)}, workspace,
                  kStream);
  EXPECT_EQ(y[0], 321.5f);
  EXPECT_EQ(y[1], 0.0f);
}

TEST_P(BackendOpsTest, RouteIsRouteRows) {
  RoutingSpec spec;
  spec.experts = 60;
  spec.top_k = 6;
  spec.renormalize = true;
  const std::int64_t rows = 101;
  const std::vector<float> logits = normal_floats(static_cast<std::size_t>(rows * 60), 11);
  std::vector<LogicalId> ids(606, LogicalId{-9}), expected_ids(606, LogicalId{-8});
  std::vector<float> weights = poisoned_floats(606), expected = poisoned_floats(606);
  const RouteInput input{.logits = view(logits, rows, 60)};
  backend_.route(spec, input, {ids.data(), weights.data()}, kStream);
  route_rows(spec, input, {expected_ids.data(), expected.data()}, 0, rows);
  EXPECT_EQ(ids, expected_ids);
  EXPECT_EQ(bits_of(weights), bits_of(expected));
}

TEST_P(BackendOpsTest, NoRowsAreFine) {
  std::vector<float> none(1, 5.0f);
  const std::vector<float> weight(8, 1.0f);
  const TensorView empty = dense_view(none.data(), DType::f32, 0, 8);
  backend_.rms_norm({.x = empty, .weight = weight.data(), .out_f32 = empty, .out_compute = {}}, kStream);
  backend_.add(empty, empty, kStream);
  backend_.activate({}, empty, empty, empty, kStream);
  backend_.gather_rows(empty, nullptr, empty, kStream);
  const std::unique_ptr<RopeTable> table = backend_.make_rope({1.0f, 0.5f}, 1.0f, 4);
  backend_.rope({.x = empty, .heads = 1, .head_dim = 8, .table = table.get()}, kStream);
  RoutingSpec spec;
  spec.experts = 8;
  spec.top_k = 2;
  backend_.route(spec, {.logits = empty}, {}, kStream);
  std::vector<std::uint16_t> rows(16);
  backend_.embed(*backend_.prepare_embedding(bf16_tensor(rows, 2, 8)), nullptr, empty, kStream);
  PoisonedMemory memory;
  Workspace workspace = memory.get(backend_, 0, 0, 8);
  backend_.sample({.logits = empty}, workspace, kStream);
  const std::unique_ptr<DenseWeight> dense = backend_.prepare_dense(bf16_tensor(rows, 2, 8), Recipe::f32);
  backend_.linear({.x = empty, .weight = dense.get(), .y = dense_view(none.data(), DType::f32, 0, 2)}, workspace,
                  kStream);
  EXPECT_EQ(none[0], 5.0f);
}

TEST_P(BackendOpsTest, RefusesTypesAndShapesThatDoNotFit) {
  std::vector<float> x(16);
  std::vector<std::uint16_t> h(16);
  EXPECT_THROW(backend_.add(view(x, 2, 8), view(x, 4, 4), kStream), Error);
  EXPECT_THROW(backend_.add(view(x, 2, 8), view(h, 2, 8), kStream), Error);
  EXPECT_THROW(
      backend_.rms_norm({.x = view(x, 2, 8), .weight = x.data(), .out_f32 = view(x, 4, 4), .out_compute = {}}, kStream),
      Error);
  EXPECT_THROW(backend_.activate({}, view(x, 2, 8), view(x, 4, 4), view(x, 2, 8), kStream), Error);
  EXPECT_THROW(backend_.gather_rows(view(x, 2, 8), nullptr, view(h, 2, 8), kStream), Error);
}

INSTANTIATE_TEST_SUITE_P(Isa, BackendOpsTest, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace sluice::cpu
