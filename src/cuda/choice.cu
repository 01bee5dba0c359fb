#include <cuda_runtime.h>

#include <cfloat>

#include "cuda/ops.h"

// Routing (moe/routing.h) on the GPU: one warp a token, the logits of a row in shared memory. Sums are taken by one
// lane in the order of the reference, so that only the exponential differs from it.
namespace sluice::cuda {
namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;
constexpr int kMostGroups = 32;

struct Choice {
  std::int32_t id = -1;
  float key = 0.0f;
};

__device__ float clean_key(float key) { return key != key ? -INFINITY : key; }

// Whether a comes before b in descending order, equal keys by ascending id.
__device__ bool before(const Choice& a, const Choice& b) { return a.key > b.key || (a.key == b.key && a.id < b.id); }

// The first of `count` keys in that order that comes behind `last` (id -1 = from the start) and in a group of `groups`.
__device__ Choice next_largest(const float* keys, int count, const Choice& last, unsigned groups, int group_size) {
  const int lane = threadIdx.x % 32;
  Choice best;
  for (int e = lane; e < count; e += 32) {
    const Choice c{e, clean_key(keys[e])};
    if ((groups >> (e / group_size) & 1u) == 0) continue;
    if (last.id >= 0 && !before(last, c)) continue;
    if (best.id < 0 || before(c, best)) best = c;
  }
  for (int d = 16; d > 0; d /= 2) {
    const Choice other{__shfl_xor_sync(kAll, best.id, d), __shfl_xor_sync(kAll, best.key, d)};
    if (other.id >= 0 && (best.id < 0 || before(other, best))) best = other;
  }
  return best;
}

__device__ float scored(Scoring scoring, float x) {
  if (scoring == Scoring::sigmoid) return 1.0f / (1.0f + expf(-x));
  if (x < -20.0f) return expf(0.5f * x);
  return sqrtf((x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x))));
}

// Finite logits in shared memory; a row without any counts as zeros.
__device__ void clean_logits(const float* from, int count, float* to) {
  const int lane = threadIdx.x % 32;
  bool some = false;
  for (int e = lane; e < count; e += 32) {
    const float x = clean_key(from[e]);
    to[e] = x > FLT_MAX ? FLT_MAX : x;
    some = some || x != -INFINITY;
  }
  some = __any_sync(kAll, some);
  for (int e = lane; !some && e < count; e += 32) to[e] = 0.0f;
  __syncwarp();
}

__device__ void score_row(Scoring scoring, const float* logits, int count, float* scores) {
  const int lane = threadIdx.x % 32;
  if (scoring != Scoring::softmax) {
    for (int e = lane; e < count; e += 32) scores[e] = scored(scoring, logits[e]);
    __syncwarp();
    return;
  }
  const float top = next_largest(logits, count, {}, kAll, count).key;
  for (int e = lane; e < count; e += 32) scores[e] = expf(logits[e] - top);
  __syncwarp();
  float sum = 0.0f;
  for (int e = 0; e < count; ++e) sum = __fadd_rn(sum, scores[e]);
  __syncwarp();
  for (int e = lane; e < count; e += 32) scores[e] = __fdiv_rn(scores[e], sum);
  __syncwarp();
}

// The groups with the largest group scores, as bits.
__device__ unsigned choose_groups(const RoutingSpec& s, const float* keys, float* group_scores) {
  const bool grouped = s.method == RoutingMethod::grouped_max || s.method == RoutingMethod::grouped_top2;
  if (!grouped || s.groups == s.top_groups) return kAll;
  const int size = s.experts / s.groups;
  for (int g = 0; g < s.groups; ++g) {
    const Choice first = next_largest(keys + g * size, size, {}, kAll, size);
    float score = keys[g * size + first.id];
    if (s.method == RoutingMethod::grouped_top2) {
      const Choice second = next_largest(keys + g * size, size, first, kAll, size);
      score = __fadd_rn(score, keys[g * size + second.id]);
    }
    if (threadIdx.x % 32 == 0) group_scores[g] = score;
  }
  __syncwarp();
  unsigned chosen = 0;
  Choice last;
  for (int i = 0; i < s.top_groups; ++i) {
    last = next_largest(group_scores, s.groups, last, kAll, s.groups);
    chosen |= 1u << last.id;
  }
  return chosen;
}

struct Row {
  float* logits;
  float* scores;
  float* keys;
  std::int32_t* ids;  // global memory, [k]
  float* weights;     // global memory, [k]
};

__device__ void choose(const RoutingSpec& s, const Row& r, float* group_scores) {
  const int lane = threadIdx.x % 32;
  const float* keys = r.logits;
  if (s.correction_bias != nullptr || s.method == RoutingMethod::grouped_top2) {
    for (int e = lane; e < s.experts; e += 32) {
      r.keys[e] = __fadd_rn(r.scores[e], s.correction_bias != nullptr ? s.correction_bias[e] : 0.0f);
    }
    __syncwarp();
    keys = r.keys;
  }
  const bool plain = s.method == RoutingMethod::topk_softmax;
  const unsigned groups = plain ? kAll : choose_groups(s, keys, group_scores);
  const int group_size = groups == kAll ? s.experts : s.experts / s.groups;
  Choice last;
  for (int i = 0; i < s.top_k; ++i) {
    last = next_largest(plain ? r.logits : keys, s.experts, last, groups, group_size);
    if (lane == 0) r.ids[i] = last.id;
  }
  __syncwarp();
}

// Weights of the chosen ids; one lane, in slot order.
__device__ void weigh(const RoutingSpec& s, const Row& r) {
  if (s.method == RoutingMethod::topk_softmax) {
    float sum = 0.0f;
    for (int i = 0; i < s.top_k; ++i) {
      r.weights[i] = expf(r.logits[r.ids[i]] - r.logits[r.ids[0]]);
      sum = __fadd_rn(sum, r.weights[i]);
    }
    for (int i = 0; i < s.top_k; ++i) r.weights[i] = __fdiv_rn(r.weights[i], sum);
  } else {
    for (int i = 0; i < s.top_k; ++i) r.weights[i] = r.scores[r.ids[i]];
  }
  float divisor = 1.0f;
  if (s.renormalize) {
    float sum = 0.0f;
    for (int i = 0; i < s.top_k; ++i) sum = __fadd_rn(sum, r.weights[i]);
    sum = __fadd_rn(sum, s.renormalize_epsilon);
    divisor = sum > 0.0f ? sum : 1.0f;
  }
  for (int i = 0; i < s.top_k; ++i) {
    r.weights[i] = __fmul_rn(__fdiv_rn(r.weights[i], divisor), s.routed_scaling_factor);
  }
  for (int i = 0; i < s.fused_shared; ++i) {
    r.ids[s.top_k + i] = s.experts + i;
    r.weights[s.top_k + i] = 1.0f;
  }
}

__device__ void pad(int slots, const Row& r) {
  for (int i = 0; i < slots; ++i) {
    r.ids[i] = -1;
    r.weights[i] = 0.0f;
  }
}

__global__ void choice_kernel(const __grid_constant__ RoutingSpec s, const float* logits, std::int64_t stride,
                              std::int64_t valid, std::int32_t* ids, float* weights) {
  extern __shared__ float shared[];
  __shared__ float group_scores[kMostGroups];
  const std::int64_t t = blockIdx.x;
  const int slots = s.top_k + s.fused_shared, lane = threadIdx.x % 32;
  const Row r{shared, shared + s.experts, shared + 2 * s.experts, ids + t * slots, weights + t * slots};
  if (t >= valid) {
    if (lane == 0) pad(slots, r);
    return;
  }
  clean_logits(logits + t * stride, s.experts, r.logits);
  const Scoring scoring = s.method == RoutingMethod::top1_sigmoid ? Scoring::sigmoid : s.scoring;
  if (s.method != RoutingMethod::topk_softmax) score_row(scoring, r.logits, s.experts, r.scores);
  choose(s, r, group_scores);
  if (lane == 0) weigh(s, r);
}

}  // namespace

cudaError_t launch_choice(const RoutingSpec& spec, const RouteInput& input, const RouteOutput& output,
                          cudaStream_t stream) {
  if (input.logits.rows == 0) return cudaSuccess;
  if (spec.experts > kChoiceMostExperts || spec.groups > kMostGroups) return cudaErrorInvalidValue;
  const std::size_t shared = static_cast<std::size_t>(spec.experts) * 3 * sizeof(float);
  const std::int64_t valid = input.valid_tokens >= 0 ? input.valid_tokens : input.logits.rows;
  choice_kernel<<<static_cast<unsigned>(input.logits.rows), 32, shared, stream>>>(
      spec, static_cast<const float*>(input.logits.data), input.logits.row_stride, valid,
      reinterpret_cast<std::int32_t*>(output.ids), output.weights);
  return cudaGetLastError();
}

}  // namespace sluice::cuda
