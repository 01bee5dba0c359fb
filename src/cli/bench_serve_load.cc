#include <algorithm>
#include <cmath>
#include <random>

#include "cli/bench_serve.h"
#include "cli/gsm8k.h"
#include "core/error.h"
#include "core/file.h"

namespace sluice::cli {
namespace {

// Ids that every vocabulary has; the first ones are control tokens in many.
constexpr std::int64_t kFirstId = 10;
constexpr std::int64_t kLastId = 500;

using Random = std::mt19937_64;

// Own arithmetic instead of the library's distributions, whose results differ between implementations.
double uniform(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

std::int64_t around(std::int64_t length, double range, Random& random) {
  const double factor = 1 - range + 2 * range * uniform(random);
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(length) * factor));
}

Json random_ids(std::int64_t count, Random& random) {
  Json::Array ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.emplace_back(kFirstId + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(kLastId - kFirstId)));
  }
  return Json(std::move(ids));
}

// ShareGPT's form: a list of {"conversations": [{"from", "value"}, ...]}; the first turn is the prompt.
std::vector<std::string> sharegpt_prompts(const Json& file, const std::string& path) {
  std::vector<std::string> prompts;
  for (const Json& entry : file.as_array(path)) {
    const Json* turns = entry.find("conversations");
    if (turns == nullptr || !turns->is_array() || turns->as_array(path).size() < 2) continue;
    const Json* value = turns->as_array(path).front().find("value");
    if (value != nullptr && value->is_string() && !value->as_string(path).empty()) {
      prompts.push_back(value->as_string(path));
    }
  }
  if (prompts.empty()) fail(ErrorCode::bad_input, path + " holds no conversation");
  return prompts;
}

std::vector<std::string> read_prompts(const std::string& path) {
  const std::string text = read_file(path, {.what = "prompts", .regular = false});
  if (text.find_first_not_of(" \t\r\n") != std::string::npos && text[text.find_first_not_of(" \t\r\n")] == '[') {
    return sharegpt_prompts(Json::parse(text, path), path);
  }
  std::vector<std::string> prompts;
  for (const Question& q : read_questions(path)) prompts.push_back(few_shot_prompt({}, q));
  return prompts;
}

}  // namespace

std::vector<LoadItem> make_load(const Options& o) {
  Random random(static_cast<std::uint64_t>(o.seed));
  std::vector<std::string> texts;
  if (!o.data.empty()) texts = read_prompts(o.data);
  std::vector<LoadItem> load;
  double time = 0;
  for (std::int64_t i = 0; i < o.num_prompts; ++i) {
    LoadItem item;
    item.prompt = texts.empty() ? random_ids(around(o.input_length, o.length_range, random), random)
                                : Json(texts[static_cast<std::size_t>(i) % texts.size()]);
    item.output_tokens = around(o.output_length, o.length_range, random);
    if (o.request_rate > 0) {
      item.start_seconds = time;
      time -= std::log1p(-uniform(random)) / o.request_rate;  // exponential gaps: Poisson arrivals
    }
    load.push_back(std::move(item));
  }
  return load;
}

}  // namespace sluice::cli
