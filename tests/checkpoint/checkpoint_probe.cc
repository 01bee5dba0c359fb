// Puts the checkpoint readers on a pipe, so that the Python tests can compare them with the safetensors package.
//   checkpoint_probe tensors FILE      one JSON line a tensor: name, dtype, shape, bytes in hex; then the metadata
//   checkpoint_probe rewrite IN OUT    reads IN and writes the same tensors and metadata to OUT
//   checkpoint_probe open FOLDER       one JSON object: what was understood of the configuration files and the shards
// An error goes to standard error, its code is the exit code. Only the tests call it.
#include <cstdio>
#include <iostream>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/rope_config.h"
#include "checkpoint/safetensors_writer.h"
#include "core/error.h"
#include "core/json.h"

namespace {

using namespace sluice;
using namespace sluice::ckpt;

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += kDigits[std::to_integer<int>(b) >> 4];
    out += kDigits[std::to_integer<int>(b) & 15];
  }
  return out;
}

void print_tensors(const std::string& path) {
  const SafetensorsFile file(path);
  for (const TensorEntry& t : file.tensors()) {
    const Json line(Json::Object{{"name", t.name},
                                 {"dtype", safetensors_dtype_name(t.dtype)},
                                 {"shape", Json::Array(t.shape.begin(), t.shape.end())},
                                 {"hex", hex(t.span())}});
    std::cout << line.dump() << "\n";
  }
  Json::Object metadata;
  for (const auto& [key, value] : file.metadata()) metadata.emplace_back(key, value);
  std::cout << Json(std::move(metadata)).dump() << "\n";
}

void rewrite(const std::string& in, const std::string& out) {
  const SafetensorsFile file(in);
  SafetensorsWriter writer;
  for (const TensorEntry& t : file.tensors()) writer.add(t.name, t.dtype, t.shape, t.span());
  for (const auto& [key, value] : file.metadata()) writer.set_metadata(key, value);
  writer.write(out);
}

template <class T>
Json or_null(const std::optional<T>& v) {
  return v ? Json(*v) : Json();
}

Json rope_json(const RopeConfig& r) {
  return Json::Object{{"type", rope_type_name(r.type)},
                      {"theta", r.theta},
                      {"factor", r.factor},
                      {"original", r.original_max_positions},
                      {"partial", r.partial_rotary_factor},
                      {"beta_fast", r.beta_fast},
                      {"beta_slow", r.beta_slow},
                      {"attention_factor", or_null(r.attention_factor)},
                      {"mscale", or_null(r.mscale)},
                      {"mscale_all_dim", or_null(r.mscale_all_dim)},
                      {"truncate", r.truncate},
                      {"low", r.low_freq_factor},
                      {"high", r.high_freq_factor}};
}

void print_checkpoint(const std::string& folder) {
  const auto checkpoint = Checkpoint::open(folder);
  const Fields& f = checkpoint->config().fields();
  const GenerationConfig& g = checkpoint->generation();
  Json::Array notes(checkpoint->notes().begin(), checkpoint->notes().end());
  const auto dtype = checkpoint->config().dtype();
  const Json out(
      Json::Object{{"model_type", checkpoint->config().model_type()},
                   {"dtype", dtype ? Json(dtype_name(*dtype)) : Json()},
                   {"hidden", f.get_int({"hidden_size"}, kDimRange)},
                   {"experts", f.get_int({"num_experts", "num_local_experts", "n_routed_experts"}, kCountRange)},
                   {"rope", rope_json(read_rope(f))},
                   {"eos", Json::Array(g.eos_token_ids.begin(), g.eos_token_ids.end())},
                   {"stop", Json::Array(g.stop_strings.begin(), g.stop_strings.end())},
                   {"temperature", or_null(g.temperature)},
                   {"tensors", static_cast<std::int64_t>(checkpoint->tensors().size())},
                   {"bytes", static_cast<std::int64_t>(checkpoint->tensor_bytes())},
                   {"notes", std::move(notes)}});
  std::cout << out.dump() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 2 ? argv[1] : "";
  try {
    if (command == "tensors") {
      print_tensors(argv[2]);
    } else if (command == "open") {
      print_checkpoint(argv[2]);
    } else if (command == "rewrite" && argc > 3) {
      rewrite(argv[2], argv[3]);
    } else {
      std::cerr << "usage: checkpoint_probe tensors FILE | open FOLDER | rewrite IN OUT\n";
      return 2;
    }
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return e.exit_code();
  }
  return 0;
}
