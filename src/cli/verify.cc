// sluice verify: a model against stored reference outputs.
#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "app/statistics.h"
#include "checkpoint/safetensors.h"
#include "cli/commands.h"
#include "cli/report.h"
#include "cli/session.h"
#include "core/error.h"
#include "numerics/distance.h"

namespace sluice::cli {
namespace {

// Bounds by compute type. bf16: models/README.md measured 0.6e-4 to 1.4e-4 (mean) and up to 2.6e-3 (99th percentile)
// for bf16 operands with an fp32 residual stream; float32: two independent float32 implementations agree to 3e-6.
struct Bounds {
  double mean_logprob = 2.5e-4;
  double p99_logprob = 5e-3;
  double logits_l2 = 0;  // 0 = shown only
};

Bounds bounds_for(DType compute) {
  if (compute == DType::f32) return {2.5e-4, 5e-3, 2e-5};
  return {};
}

struct Reference {
  std::string name;
  std::vector<std::int32_t> prompt;
  std::vector<float> last_logits;
  std::vector<float> logprob_of_next;
  std::vector<std::int32_t> greedy;
};

struct Comparison {
  std::string name;
  std::size_t tokens = 0;
  bool greedy_equal = false;
  double logits_l2 = 0;
  std::vector<double> logprob_differences;
};

template <class T>
std::vector<T> read_vector(const ckpt::SafetensorsFile& file, const std::string& name, DType dtype) {
  const ckpt::TensorEntry* entry = file.find(name);
  if (entry == nullptr) fail(ErrorCode::bad_input, file.path() + ": no tensor " + name, "a file of reference outputs");
  if (entry->dtype != dtype || entry->shape.size() != 1) {
    fail(ErrorCode::bad_input,
         fmt::format("{}: {} is {} {}", file.path(), name, dtype_name(entry->dtype), ckpt::shape_text(entry->shape)),
         fmt::format("one dimension of {}", dtype_name(dtype)));
  }
  std::vector<T> values(static_cast<std::size_t>(entry->shape[0]));
  std::memcpy(values.data(), entry->data, entry->bytes);
  for (const T value : values) {
    if (!std::isfinite(static_cast<double>(value))) {
      fail(ErrorCode::bad_input, fmt::format("{}: {} holds NaN or infinity", file.path(), name), "finite values");
    }
  }
  return values;
}

void check_lengths(const std::string& path, const Reference& r) {
  const auto is = [&](const char* tensor, std::size_t found, std::size_t wanted) {
    if (found == wanted) return;
    fail(ErrorCode::bad_input, fmt::format("{}: {}.{} has {} values", path, r.name, tensor, found),
         std::to_string(wanted));
  };
  if (r.prompt.empty()) fail(ErrorCode::bad_input, fmt::format("{}: {}.input_ids is empty", path, r.name));
  is("logprob_of_next", r.logprob_of_next.size(), r.prompt.size() - 1);
}

// Prompts are numbered without gaps: one behind a gap would not be compared, and nobody would notice.
void check_numbers(const ckpt::SafetensorsFile& file, std::size_t prompts) {
  std::size_t found = 0;
  for (const ckpt::TensorEntry& tensor : file.tensors()) found += tensor.name.ends_with(".input_ids") ? 1 : 0;
  if (found == prompts) return;
  fail(ErrorCode::bad_input, fmt::format("{}: {} tensors named promptN.input_ids", file.path(), found),
       fmt::format("N from 0 without gaps; prompt{} is missing", prompts));
}

std::vector<Reference> read_references(const std::string& path) {
  const ckpt::SafetensorsFile file(path);
  std::vector<Reference> references;
  while (true) {
    const std::string name = fmt::format("prompt{}", references.size());
    if (file.find(name + ".input_ids") == nullptr) break;
    references.push_back({name, read_vector<std::int32_t>(file, name + ".input_ids", DType::i32),
                          read_vector<float>(file, name + ".last_logits", DType::f32),
                          read_vector<float>(file, name + ".logprob_of_next", DType::f32),
                          read_vector<std::int32_t>(file, name + ".greedy", DType::i32)});
    check_lengths(path, references.back());
  }
  if (references.empty()) {
    fail(ErrorCode::bad_input, path + ": no tensor prompt0.input_ids", "a file of reference outputs");
  }
  check_numbers(file, references.size());
  return references;
}

double logits_distance(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) {
    fail(ErrorCode::bad_input, fmt::format("the reference has {} values, the model {}", want.size(), got.size()),
         "outputs of the same model");
  }
  return relative_l2(got, want);
}

// Ids that the model does not have, or a prompt that does not fit, are faults of the reference file.
void submit(engine::Engine& engine, engine::Request request, const std::string& where) {
  try {
    engine.submit(std::move(request));
  } catch (const Error& e) {
    fail(ErrorCode::bad_input, where + ": " + e.what());
  }
}

Comparison compare(engine::Engine& engine, const Reference& reference, const std::string& path) {
  engine::Request request;
  request.prompt = reference.prompt;
  request.max_new_tokens = static_cast<std::int64_t>(reference.greedy.size());
  request.prompt_logprobs = true;
  request.last_logits = true;
  submit(engine, std::move(request), path + ": " + reference.name);
  Comparison c;
  c.name = reference.name;
  c.tokens = reference.prompt.size();
  std::vector<std::int32_t> tokens;
  while (!engine.idle()) {
    for (const engine::Event& event : engine.step()) {
      if (event.finish == engine::FinishReason::error) fail(ErrorCode::check_failed, c.name + ": " + event.error);
      if (event.token >= 0) tokens.push_back(event.token);
      if (!event.last_logits.empty()) c.logits_l2 = logits_distance(event.last_logits, reference.last_logits);
      for (std::size_t i = 0; i < event.prompt_logprobs.size(); ++i) {
        c.logprob_differences.push_back(
            std::abs(static_cast<double>(event.prompt_logprobs[i]) - reference.logprob_of_next.at(i)));
      }
    }
  }
  if (c.logprob_differences.size() != reference.logprob_of_next.size()) {
    fail(ErrorCode::check_failed,
         fmt::format("{}: {} log-probabilities came back", c.name, c.logprob_differences.size()),
         std::to_string(reference.logprob_of_next.size()));
  }
  c.greedy_equal = tokens == reference.greedy;
  return c;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

struct Summary {
  bool greedy_equal = true;
  double worst_logits_l2 = 0;
  double mean_logprob = 0;
  double p99_logprob = 0;
  bool within(const Bounds& b) const {  // written so that a NaN fails
    return greedy_equal && mean_logprob <= b.mean_logprob && p99_logprob <= b.p99_logprob &&
           (b.logits_l2 == 0 ? std::isfinite(worst_logits_l2) : worst_logits_l2 <= b.logits_l2);
  }
};

Summary summarise(const std::vector<Comparison>& comparisons) {
  Summary s;
  std::vector<double> all;
  for (const Comparison& c : comparisons) {
    s.greedy_equal = s.greedy_equal && c.greedy_equal;
    s.worst_logits_l2 = app::worse(s.worst_logits_l2, c.logits_l2);
    all.insert(all.end(), c.logprob_differences.begin(), c.logprob_differences.end());
  }
  s.mean_logprob = mean(all);
  s.p99_logprob = app::percentile99(all);
  return s;
}

void print_table(const std::vector<Comparison>& comparisons) {
  fmt::print("{:<10} {:>7} {:>8} {:>14} {:>14} {:>14}\n", "prompt", "tokens", "greedy", "logits rel L2", "logprob mean",
             "logprob p99");
  for (const Comparison& c : comparisons) {
    fmt::print("{:<10} {:>7} {:>8} {:>14.2e} {:>14.2e} {:>14.2e}\n", c.name, c.tokens,
               c.greedy_equal ? "equal" : "DIFFERS", c.logits_l2, mean(c.logprob_differences),
               app::percentile99(c.logprob_differences));
  }
}

Json to_json(const Summary& s, bool ok) {
  return Json(Json::Object{{"ok", Json(ok)},
                           {"greedy_equal", Json(s.greedy_equal)},
                           {"worst_logits_relative_l2", Json(s.worst_logits_l2)},
                           {"mean_abs_logprob_difference", Json(s.mean_logprob)},
                           {"p99_abs_logprob_difference", Json(s.p99_logprob)}});
}

}  // namespace

int verify_command(const Options& options) {
  if (!options.against.empty()) return verify_against_command(options);
  Terminal terminal(options.quiet);
  const std::string path = options.reference.empty() ? options.model + "/reference.safetensors" : options.reference;
  const std::vector<Reference> references = read_references(path);
  const app::LoadedModel model = load_session(options, terminal);
  const auto engine = model.make_engine();
  std::vector<Comparison> comparisons;
  for (const Reference& reference : references) comparisons.push_back(compare(*engine, reference, path));
  const Summary summary = summarise(comparisons);
  const Bounds bounds = bounds_for(model.opened.compute);
  const bool ok = summary.within(bounds);
  print_table(comparisons);
  fmt::print(
      "all prompts: greedy tokens {}; |difference of logprob| mean {:.2e} (at most {:.1e}), 99th percentile {:.2e} (at "
      "most "
      "{:.1e}); last logits relative L2 {:.2e}{}\n{}\n",
      summary.greedy_equal ? "equal" : "DIFFER", summary.mean_logprob, bounds.mean_logprob, summary.p99_logprob,
      bounds.p99_logprob, summary.worst_logits_l2,
      bounds.logits_l2 > 0 ? fmt::format(" (at most {:.1e})", bounds.logits_l2) : "", ok ? "ok" : "FAILED");
  if (!options.json.empty()) write_json(options.json, to_json(summary, ok));
  return ok ? 0 : static_cast<int>(ErrorCode::check_failed);
}

}  // namespace sluice::cli
