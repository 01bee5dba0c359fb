// One forward pass of the decoder: what every stage of a block works on. Shared by decoder.cc and decoder_attention.cc
// only.
//
// Views into the caller's workspace; valid during one Decoder::forward, one thread.
#pragma once

#include "comm/group.h"
#include "model/decoder_parts.h"

namespace sluice::model {

// Activations of one step that live through all layers, in the workspace.
struct Activations {
  TensorView x;        // [T, H] f32, the residual stream
  TensorView h;        // [T, H] compute type, normalised
  TensorView h_f32;    // [T, H] f32, the same before rounding: what routers read
  TensorView ffn_out;  // [T, H] f32
  TensorView q;        // [T, widest query] f32
  TensorView k, v;     // [T, widest key] f32
  TensorView attn;     // [T, widest output of heads] compute type
  // Latent attention:
  TensorView q_latent;     // [T, widest q_lora_rank] compute type
  TensorView q_absorbed;   // [T, heads * (kv_lora_rank + rope)] f32
  TensorView attn_latent;  // [T, heads * kv_lora_rank] compute type
  TensorView gate, up;     // [T, widest dense I] f32
  TensorView act;          // [T, widest dense I] compute type
};

// The first `cols` columns of every row as a dense view of the same memory.
inline TensorView narrow(const TensorView& v, std::int64_t cols) { return dense_view(v.data, v.dtype, v.rows, cols); }

inline const float* floats(const Buffer& b) { return b.as<float>(); }

// One forward pass: what every stage needs.
struct Pass {
  const Decoder::Parts& parts;
  const ForwardArgs& args;
  Activations a;
  Workspace& workspace;
  Stream stream;

  Backend& backend() const { return *parts.options.backend; }
  void norm(const ConstTensorView& x, const Buffer& weight, const TensorView& f32, const TensorView& compute) const {
    norm(x, weight, parts.config.norm_epsilon, f32, compute);
  }
  void norm(const ConstTensorView& x, const Buffer& weight, float epsilon, const TensorView& f32,
            const TensorView& compute) const {
    backend().rms_norm({x, floats(weight), epsilon, f32, compute}, stream);
  }
  void linear(const ConstTensorView& x, const DenseWeight& weight, const Buffer& bias, const TensorView& y,
              bool accumulate = false) const {
    backend().linear({x, &weight, floats(bias), y, accumulate}, workspace, stream);
  }
  // x += W x' + bias: at once, or where each rank has a part of the sum, after the parts are added up in f32.
  void add_to_residual(const ConstTensorView& x, const DenseWeight& weight, const Buffer& bias, bool partial) const {
    if (!partial) return linear(x, weight, bias, a.x, true);
    linear(x, weight, bias, a.ffn_out);
    parts.options.attention->all_reduce_sum(static_cast<float*>(a.ffn_out.data),
                                            static_cast<std::size_t>(a.ffn_out.rows * a.ffn_out.cols), stream);
    backend().add(a.x, a.ffn_out, stream);
  }
};

// x += o(attention(norm(x))), grouped-query or latent.
void attention_block(const Pass& p, const AttentionWeights& w);

}  // namespace sluice::model
