// The kernel for a few tokens (cuda/sm90/decode.h) forced on a layer of the tests.
#pragma once

#include <string>
#include <vector>

#include "cuda/sm90/decode.h"
#include "gpu/harness.h"
#include "gpu/layer_case.h"

namespace sluice::gpu_tests {

cuda::HopperOptions decode_options(int launches = 1);

// The sizes that the kernel would take; `bytes` = 0 where they do not fit.
cuda::sm90::DecodeSizes sizes_of(const LayerCase& c, std::int64_t tokens);

// A workspace that is not marked as "not written", as a new array is.
DeviceArray<std::byte> filled_workspace(const LayerOnGpu& layer, std::int64_t tokens);

// Starts a run into `out`, by `runner` in place of the layer's own if there is one.
void start_run(const LayerOnGpu& layer, const DeviceBatch& batch, const DeviceArray<float>& out,
               const DeviceArray<std::byte>& memory, Stream stream = {}, const Runner* runner = nullptr);

// That the runner takes the kernel for this batch, where a comparison would else say nothing of it: where it has to
// clear its scratch first, that launch alone leaves the flags 0, the whole intermediate all ones, and everything else
// as it was.
void expect_runs(Check& check, const LayerOnGpu& layer, const DeviceBatch& batch);

}  // namespace sluice::gpu_tests
