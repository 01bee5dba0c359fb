#include "moe/layout/reader.h"

#include <bit>
#include <cstring>

#include "numerics/bf16.h"
#include "numerics/e2m1.h"

namespace sluice::layout {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Memory of the result; blocks keep their addresses.
struct Storage {
  std::vector<std::unique_ptr<Bytes>> blocks;
  Bytes& add(std::int64_t bytes) {
    return *blocks.emplace_back(std::make_unique<Bytes>(static_cast<std::size_t>(bytes)));
  }
};

// Rows of one half in a run of w13; 0 = up above gate.
std::int64_t run_of(LayoutKind kind) {
  switch (kind) {
    case LayoutKind::cutedsl:
      return 64;
    case LayoutKind::rows8:
      return 8;
    case LayoutKind::rows1:
      return 1;
    default:
      return 0;
  }
}

// Row of w13 that holds row n of the gate or of up.
std::int64_t w13_row(const PreparedLayout& p, bool gate, std::int64_t n) {
  if (!p.gated) return n;
  const std::int64_t run = run_of(p.kind);
  if (run == 0) return gate ? p.padded_intermediate + n : n;
  return 2 * n - n % run + (gate ? run : 0);
}

// One [rows, cols] weight of every expert.
struct Source {
  const PreparedLayout* layout = nullptr;
  const Tensor* codes = nullptr;
  const Tensor* scales = nullptr;
  const Tensor* bias = nullptr;
  std::int64_t rows = 0;  // padded, of one expert
  std::int64_t cols = 0;
};

// A 4-bit code as the Hopper kernel sees it: a shift and a mask make the bits of a bf16 that is the value times 2^-126.
std::uint8_t sm90_code(const std::uint8_t* expert, std::int64_t row_bytes, std::int64_t r, std::int64_t c) {
  const std::int64_t q = c % 64 / 16, l = c % 8 / 2;
  const std::int64_t row = r / 16 * 16 + q % 2 * 8 + r % 8;
  std::uint32_t word = 0;
  std::memcpy(&word, expert + row * row_bytes + c / 64 * 32 + q / 2 * 16 + l * 4, sizeof word);
  const std::uint32_t half = c % 2 == 0 ? word & 0xFFFFu : word >> 16;
  const std::int64_t j = c % 16 / 8 * 2 + r % 16 / 8;
  std::uint32_t bits = half << 3 * j & 0x81C0u;
  if (j == 3) bits = (half << 1 & 0x8000u) | (half >> 3 & 0x0180u) | (half >> 7 & 0x0040u);
  return to_e2m1(to_float(Bf16{static_cast<std::uint16_t>(bits)}) * 0x1p126f).bits;
}

std::uint8_t code4(const Source& s, std::int64_t e, std::int64_t r, std::int64_t c) {
  const std::int64_t row_bytes = s.cols / 2;
  const std::uint8_t* expert = s.codes->bytes.data() + e * s.rows * row_bytes;
  if (s.layout->kind == LayoutKind::sm90_mxfp4) return sm90_code(expert, row_bytes, r, c);
  return unpack_e2m1(expert[r * row_bytes + c / 2], c).bits;
}

// Place of the scale of row m, scale column c of expert e.
std::int64_t scale_place(const Source& s, std::int64_t e, std::int64_t m, std::int64_t c) {
  const std::vector<std::int64_t>& d = s.scales->strides;
  switch (s.layout->kind) {
    case LayoutKind::cutedsl:
      return m % 32 * d[0] + m % 128 / 32 * d[1] + m / 128 * d[2] + c % 4 * d[3] + c / 4 * d[4] + e * d[5];
    case LayoutKind::cutlass: {
      const std::int64_t k_tiles = s.scales->shape[2];  // four bytes of each of 128 rows make a tile
      return e * d[0] * 4 + m / 128 * k_tiles * 512 + c / 4 * 512 + m % 32 * 16 + m % 128 / 32 * 4 + c % 4;
    }
    case LayoutKind::sm90_mxfp4:
      return e * d[0] + m / 64 * d[1] + c / 4 * d[2] + m % 16 * d[3] + m % 64 / 16 * 4 + c % 4;
    default:
      return e * d[0] + m * d[1] + c * d[2];
  }
}

class Reader {
 public:
  Reader(const PreparedLayout& layout, Storage& storage) : p_(layout), storage_(storage) {}

  // Rows `row_of(0..rows)` of an expert's weight, the first `cols` columns.
  template <class RowOf>
  QuantTensor weight(const Source& s, std::int64_t e, std::int64_t rows, std::int64_t cols, float tensor_scale,
                     RowOf row_of) const {
    QuantTensor t;
    t.tensor_scale = tensor_scale;
    Bytes& codes = storage_.add(rows * dtype_bytes(p_.code, cols));
    t.codes = {codes.data(), p_.code, rows, cols, cols, 1};
    for (std::int64_t n = 0; n < rows; ++n)
      read_codes(s, e, row_of(n), cols, codes.data() + n * dtype_bytes(p_.code, cols));
    if (p_.scale_block == 0) return t;
    const std::int64_t scale_cols = cols / p_.scale_block, bytes = dtype_bytes(p_.scale_type, 1);
    Bytes& scales = storage_.add(rows * scale_cols * bytes);
    t.block_scale = {scales.data(), p_.scale_type, 1, p_.scale_block, scale_cols, 1};
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t c = 0; c < scale_cols; ++c) {
        std::memcpy(scales.data() + (n * scale_cols + c) * bytes,
                    s.scales->bytes.data() + scale_place(s, e, row_of(n), c) * bytes, static_cast<std::size_t>(bytes));
      }
    }
    return t;
  }

  template <class RowOf>
  BiasView bias(const Source& s, std::int64_t e, std::int64_t rows, RowOf row_of) const {
    const std::int64_t bytes = dtype_bytes(s.bias->element, 1);
    Bytes& values = storage_.add(rows * bytes);
    for (std::int64_t n = 0; n < rows; ++n) {
      std::memcpy(values.data() + n * bytes, s.bias->bytes.data() + (e * s.rows + row_of(n)) * bytes,
                  static_cast<std::size_t>(bytes));
    }
    return {values.data(), s.bias->element, rows, 1};
  }

 private:
  void read_codes(const Source& s, std::int64_t e, std::int64_t row, std::int64_t cols, std::uint8_t* out) const {
    if (p_.code != DType::e2m1) {
      const std::int64_t bytes = dtype_bytes(p_.code, 1);
      std::memcpy(out, s.codes->bytes.data() + (e * s.rows + row) * s.cols * bytes,
                  static_cast<std::size_t>(cols * bytes));
      return;
    }
    for (std::int64_t c = 0; c < cols; c += 2) {
      out[c / 2] = static_cast<std::uint8_t>(code4(s, e, row, c) | code4(s, e, row, c + 1) << 4);
    }
  }

  const PreparedLayout& p_;
  Storage& storage_;
};

}  // namespace

ExpertWeights read_layout(const PreparedLayout& p) {
  auto storage = std::make_shared<Storage>();
  const Reader reader(p, *storage);
  const Source w13{&p, &p.w13, &p.w13_scale, &p.w13_bias, p.w13_rows(), p.padded_hidden};
  const Source w2{&p, &p.w2, &p.w2_scale, &p.w2_bias, p.padded_hidden, p.padded_intermediate};
  const auto gate_row = [&](std::int64_t n) { return w13_row(p, true, n); };
  const auto up_row = [&](std::int64_t n) { return w13_row(p, false, n); };
  const auto same_row = [](std::int64_t n) { return n; };
  const std::size_t halves = p.gated ? 2 : 1;
  ExpertWeights w;
  for (std::int64_t e = 0; e < p.experts; ++e) {
    const auto i = static_cast<std::size_t>(e);
    const float up_scale = p.w13_scale_2[i * halves], gate_scale = p.w13_scale_2[i * halves + halves - 1];
    if (p.gated) w.gate.push_back(reader.weight(w13, e, p.intermediate, p.hidden, gate_scale, gate_row));
    w.up.push_back(reader.weight(w13, e, p.intermediate, p.hidden, up_scale, up_row));
    w.down.push_back(reader.weight(w2, e, p.hidden, p.intermediate, p.w2_scale_2[i], same_row));
    if (p.w13_bias.bytes.empty()) continue;
    if (p.gated) w.gate_bias.push_back(reader.bias(w13, e, p.intermediate, gate_row));
    w.up_bias.push_back(reader.bias(w13, e, p.intermediate, up_row));
    w.down_bias.push_back(reader.bias(w2, e, p.hidden, same_row));
  }
  w.input_scales = p.input_scales;
  w.keep_alive = storage;
  return w;
}

}  // namespace sluice::layout
