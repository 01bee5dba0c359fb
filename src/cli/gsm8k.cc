#include "cli/gsm8k.h"

#include <cctype>
#include <cmath>
#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace sluice::cli {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string text_field(const Json& record, const char* name, const std::string& where) {
  const Json* field = record.find(name);
  if (field == nullptr) fail(ErrorCode::bad_input, where + ": no field \"" + name + "\"", "`question` and `answer`");
  return field->as_string(where + ": " + name);
}

}  // namespace

std::vector<Question> read_questions(const std::string& path) {
  std::istringstream file(read_file(path, {.what = "a JSON-lines file of questions", .regular = false}));
  std::vector<Question> questions;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = path + ":" + std::to_string(number);
    const Json record = Json::parse(line, where);
    questions.push_back({text_field(record, "question", where), text_field(record, "answer", where)});
    if (!last_number(questions.back().answer)) {
      fail(ErrorCode::bad_input, where + ": the answer holds no number", "the result as the last number of `answer`");
    }
  }
  if (questions.empty()) fail(ErrorCode::bad_input, path + " holds no question");
  return questions;
}

const std::vector<std::string>& gsm8k_stops() {
  static const std::vector<std::string> kStops = {"Question", "Assistant:", "<|separator|>"};
  return kStops;
}

std::string few_shot_prompt(const std::vector<Question>& shots, const Question& question) {
  std::string prompt;
  for (const Question& shot : shots) prompt += "Question: " + shot.question + "\nAnswer: " + shot.answer + "\n\n";
  return prompt + "Question: " + question.question + "\nAnswer:";
}

std::optional<std::string> last_number(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c != ',') plain += c;
  }
  std::size_t end = plain.size();
  while (end > 0 && !is_digit(plain[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && is_digit(plain[begin - 1])) --begin;
  if (begin == end) return std::nullopt;
  while (begin + 1 < end && plain[begin] == '0') ++begin;
  return plain.substr(begin, end - begin);
}

Interval wilson_interval(std::int64_t hits, std::int64_t trials) {
  if (trials == 0) return {0, 1};
  constexpr double z = 1.959963984540054;  // 97.5 % point of the normal distribution
  const double n = static_cast<double>(trials);
  const double p = static_cast<double>(hits) / n;
  const double centre = (p + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return {centre - half, centre + half};
}

}  // namespace sluice::cli
