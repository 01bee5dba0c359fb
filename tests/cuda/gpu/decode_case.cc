#include "gpu/decode_case.h"

#include <algorithm>

#include "cuda/device.h"
#include "cuda/experts_hopper.h"

namespace sluice::gpu_tests {
namespace {

constexpr unsigned char kFill = 0x55;

// Whether the bytes equal to `value` are `count`, one behind the other.
bool has_one_range(const std::vector<std::byte>& memory, unsigned char value, std::int64_t count) {
  const auto begin = std::find(memory.begin(), memory.end(), std::byte{value});
  const auto end = std::find_if(begin, memory.end(), [=](std::byte b) { return b != std::byte{value}; });
  return end - begin == count && std::count(memory.begin(), memory.end(), std::byte{value}) == count;
}

}  // namespace

cuda::HopperOptions decode_options(int launches) {
  cuda::HopperOptions o;
  o.decode = 1;
  o.decode_launches = launches;
  return o;
}

cuda::sm90::DecodeSizes sizes_of(const LayerCase& c, std::int64_t tokens) {
  const cuda::sm90::Shape shape{cuda::sm90_format(c.recipe), static_cast<std::int32_t>(c.hidden),
                                static_cast<std::int32_t>(c.intermediate), c.experts};
  return cuda::sm90::decode_sizes(shape, tokens, c.top_k, cuda::device_info(0).processors);
}

DeviceArray<std::byte> filled_workspace(const LayerOnGpu& layer, std::int64_t tokens) {
  DeviceArray<std::byte> memory(static_cast<std::int64_t>(layer.runner->workspace_bytes(layer.problem, tokens)));
  cuda::fill_device(memory.data(), kFill, memory.bytes(), "filling a workspace");
  return memory;
}

void start_run(const LayerOnGpu& layer, const DeviceBatch& batch, const DeviceArray<float>& out,
               const DeviceArray<std::byte>& memory, Stream stream, const Runner* runner) {
  Workspace workspace(memory.data(), memory.bytes());
  RunArgs args = layer.run_args(batch, workspace);
  args.sum = dense_view(out.data(), DType::f32, batch.tokens, batch.width);
  args.stream = stream;
  (runner != nullptr ? runner : layer.runner.get())->run(*layer.prepared, args);
}

void expect_runs(Check& check, const LayerOnGpu& layer, const DeviceBatch& batch) {
  const LayerCase& c = layer.spec;
  cuda::HopperOptions first = decode_options();
  first.decode_clears = true;
  first.steps = 1;
  const auto runner = cuda::make_hopper_runner(nullptr, first);
  const DeviceArray<std::byte> memory = filled_workspace(layer, batch.tokens);
  const DeviceArray<float> out(batch.tokens * batch.width);
  start_run(layer, batch, out, memory, {}, runner.get());
  cuda::check(cudaDeviceSynchronize(), "the first launch");
  const std::vector<std::byte> left = memory.download();
  const std::int64_t block = c.recipe == Recipe::bf16 ? 64 : 128;  // columns of the intermediate are padded to it
  const std::int64_t element = c.recipe == Recipe::bf16 ? 2 : c.recipe == Recipe::fp8_block ? 4 : 1;
  const std::int64_t ones = batch.tokens * c.top_k * ((c.intermediate + block - 1) / block * block) * element;
  const auto zeros = static_cast<std::int64_t>(cuda::sm90::decode_flag_bytes(cuda::device_info(0).processors));
  const auto kept = std::count(left.begin(), left.end(), std::byte{kFill});
  check.expect(has_one_range(left, 0xFF, ones) && has_one_range(left, 0, zeros) &&
                   kept + ones + zeros == static_cast<std::int64_t>(left.size()) && memory.intact(),
               "the kernel would not run, or its scratch is not cleared: " + c.text());
}

}  // namespace sluice::gpu_tests
