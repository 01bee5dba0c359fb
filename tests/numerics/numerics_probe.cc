// Puts the conversions of src/numerics on a pipe, so that the Python tests can compare them with ml-dtypes.
// Raw little-endian arrays on standard input and output:
//   numerics_probe decode TYPE                      u8 or u16 codes > f32
//   numerics_probe encode RULE                      f32 > u8 or u16 codes
//   numerics_probe quantize FORMAT COLS [OPTION..]  f32 [rows, COLS] > codes, scales, f32 tensor scale, f32 decoded
//   values
// Options: scale=G, floor=F, published, ocp, lower. Only the tests call it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "numerics/bf16.h"
#include "numerics/block_fp8.h"
#include "numerics/block_mx.h"
#include "numerics/block_nvfp4.h"
#include "numerics/e2m1.h"
#include "numerics/e8m0.h"
#include "numerics/fp16.h"
#include "numerics/fp8.h"

namespace {

using namespace sluice;

template <class T>
std::vector<T> read_input() {
  const std::string bytes{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

template <class T>
void write_output(const std::vector<T>& values) {
  std::cout.write(reinterpret_cast<const char*>(values.data()),
                  static_cast<std::streamsize>(values.size() * sizeof(T)));
}

template <class Code>
void decode() {
  using Bits = decltype(Code{}.bits);
  std::vector<float> out;
  for (const Bits bits : read_input<Bits>()) out.push_back(to_float(Code{bits}));
  write_output(out);
}

template <class Encode>
void encode(Encode rule) {
  std::vector<decltype(rule(0.0f).bits)> out;
  for (const float v : read_input<float>()) out.push_back(rule(v).bits);
  write_output(out);
}

[[noreturn]] void reject(const std::string& what) { fail(ErrorCode::usage, "numerics_probe does not know " + what); }

void run_decode(const std::string& type) {
  if (type == "bf16") return decode<Bf16>();
  if (type == "fp16") return decode<Fp16>();
  if (type == "e4m3") return decode<E4m3>();
  if (type == "e5m2") return decode<E5m2>();
  if (type == "e2m1") return decode<E2m1>();
  if (type == "e8m0") return decode<E8m0>();
  reject("the type " + type);
}

void run_encode(const std::string& rule) {
  if (rule == "bf16") return encode(to_bf16);
  if (rule == "fp16") return encode(to_fp16);
  if (rule == "e4m3") return encode(to_e4m3);
  if (rule == "e4m3_nonsat") return encode(to_e4m3_nonsat);
  if (rule == "e5m2") return encode(to_e5m2);
  if (rule == "e5m2_nonsat") return encode(to_e5m2_nonsat);
  if (rule == "e2m1") return encode(to_e2m1);
  if (rule == "e2m1_ties_down") return encode(to_e2m1_ties_down);
  if (rule == "e8m0_up") return encode(to_e8m0_up);
  if (rule == "e8m0_floor") return encode(to_e8m0_floor);
  reject("the rule " + rule);
}

struct Options {
  std::optional<float> scale;
  std::optional<float> floor;
  Nvfp4Math math = Nvfp4Math::division;
  MxScale mx_scale = MxScale::round_up;
  MxTie tie = MxTie::even;
};

Options parse_options(const std::vector<std::string>& words) {
  Options options;
  for (const std::string& word : words) {
    if (word.starts_with("scale=")) {
      options.scale = std::strtof(word.c_str() + 6, nullptr);
    } else if (word.starts_with("floor=")) {
      options.floor = std::strtof(word.c_str() + 6, nullptr);
    } else if (word == "published") {
      options.math = Nvfp4Math::published;
    } else if (word == "ocp") {
      options.mx_scale = MxScale::ocp_floor;
    } else if (word == "lower") {
      options.tie = MxTie::lower;
    } else {
      reject("the option " + word);
    }
  }
  return options;
}

QuantMatrix quantize(BlockFormat format, const FloatView& values, const Options& options) {
  switch (format) {
    case BlockFormat::fp8_tensor:
      return quantize_fp8_tensor(values);
    case BlockFormat::fp8_row:
      return quantize_fp8_rows(values);
    case BlockFormat::fp8_block:
      return quantize_fp8_blocks(values, options.floor.value_or(kFp8WeightAmaxFloor));
    case BlockFormat::fp8_group:
      return quantize_fp8_groups(values, options.floor.value_or(kFp8ActivationAmaxFloor));
    case BlockFormat::nvfp4:
      return quantize_nvfp4(values, options.scale, options.math);
    case BlockFormat::mxfp4:
      return quantize_mxfp4(values, options.mx_scale, options.tie);
    case BlockFormat::mxfp8:
      return quantize_mxfp8(values, options.mx_scale);
  }
  reject("the format");
}

void run_quantize(const std::string& name, std::int64_t cols, const Options& options) {
  const std::optional<BlockFormat> format = block_format_from_name(name);
  if (!format) reject("the format " + name);
  const std::vector<float> input = read_input<float>();
  const FloatView values{input.data(), static_cast<std::int64_t>(input.size()) / cols, cols, cols};
  const QuantMatrix matrix = quantize(*format, values, options);
  write_output(matrix.codes);
  write_output(matrix.byte_scales);
  write_output(matrix.float_scales);
  write_output(std::vector<float>{matrix.tensor_scale});
  write_output(dequantize(matrix));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 2 && words[0] == "decode") {
      run_decode(words[1]);
    } else if (words.size() == 2 && words[0] == "encode") {
      run_encode(words[1]);
    } else if (words.size() >= 3 && words[0] == "quantize") {
      run_quantize(words[1], std::atoll(words[2].c_str()), parse_options({words.begin() + 3, words.end()}));
    } else {
      reject("these arguments");
    }
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return error.exit_code();
  }
  return std::cout.flush() ? 0 : 1;
}
