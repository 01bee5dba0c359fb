#include "core/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxDepth = 200;
constexpr std::size_t kMaxReasonBytes = 300;

// Reasons quote the input, which may be of any length and hold bytes that no terminal or log should see.
std::string readable(std::string_view reason) {
  std::string out(reason.substr(0, kMaxReasonBytes));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return reason.size() > kMaxReasonBytes ? out + "..." : out;
}

std::string near(std::string_view last) {
  constexpr std::size_t kMost = 40;
  if (last.empty()) return "";
  return ", at \"" + std::string(last.substr(last.size() > kMost ? last.size() - kMost : 0)) + "\"";
}

// What is wrong, in our words; `last` is what the parser has read last, `reason` what it says.
std::string complaint(std::string_view last, std::string_view reason) {
  static constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
      {"unexpected end of input", "the text ends in the middle"},
      {"missing closing quote", "the text ends inside a string"},
      {"UTF-8", "these bytes are no UTF-8"},
      {"control character", "a control character in a string; write it as \\u and four digits"},
      {"surrogate", "half of a surrogate pair (\\ud800 to \\udfff)"},
      {"hex digits", "four hexadecimal digits belong behind \\u"},
      {"forbidden character after backslash", "no such escape in a string"},
      {"number overflow", "a number that no double holds"},
      {"invalid number", "this is no number"},
      {"invalid literal", "this is no value; text stands in double quotes"},
  };
  for (const auto& [words, ours] : kReasons) {
    if (reason.find(words) != std::string_view::npos) return std::string(ours) + near(last);
  }
  return "this was not expected here" + near(last);
}

// Builds Json values from the parser's events: one pass, no intermediate document.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(std::string_view text) : text_(text) {}
  Json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() override { return put(Json()); }
  bool boolean(bool v) override { return put(Json(v)); }
  bool number_integer(std::int64_t v) override { return put(Json(v)); }
  bool number_unsigned(std::uint64_t v) override {
    if (v > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return refuse("integer " + std::to_string(v) + " does not fit in 64 bits with sign");
    }
    return put(Json(static_cast<std::int64_t>(v)));
  }
  bool number_float(double v, const std::string& text) override {
    return std::isfinite(v) ? put(Json(v)) : refuse("number " + text + " is not finite");
  }
  bool string(std::string& v) override { return put(Json(std::move(v))); }
  bool binary(binary_t&) override { return refuse("binary value"); }

  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool key(std::string& name) override {
    Frame& top = stack_.back();
    if (!top.keys.insert(name).second) return refuse("duplicate key \"" + name + "\"");
    top.key = std::move(name);
    return true;
  }
  bool end_object() override {
    Json value(std::move(stack_.back().object));
    stack_.pop_back();
    return put(std::move(value));
  }
  bool end_array() override {
    Json value(std::move(stack_.back().array));
    stack_.pop_back();
    return put(std::move(value));
  }
  bool parse_error(std::size_t position, const std::string& last, const nlohmann::detail::exception& e) override {
    return refuse("not valid JSON at " + place(position) + ": " + complaint(last, e.what()));
  }

 private:
  struct Frame {
    bool is_object = false;
    std::string key;
    std::unordered_set<std::string> keys;
    Json::Object object;
    Json::Array array;
  };

  // "line 3, column 5": of the last byte that was read, both from 1.
  std::string place(std::size_t position) const {
    const std::string_view before = text_.substr(0, position > 0 ? position - 1 : 0);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t newline = before.rfind('\n');
    const std::size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
    return "byte " + std::to_string(position) + " (line " + std::to_string(line) + ", column " +
           std::to_string(column) + ")";
  }

  bool refuse(const std::string& why) {
    if (error_.empty()) error_ = readable(why);
    return false;
  }
  bool open(bool is_object) {
    if (stack_.size() >= kMaxDepth) return refuse("nested deeper than " + std::to_string(kMaxDepth));
    stack_.emplace_back();
    stack_.back().is_object = is_object;
    return true;
  }
  bool put(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (stack_.back().is_object) {
      stack_.back().object.emplace_back(std::move(stack_.back().key), std::move(value));
    } else {
      stack_.back().array.push_back(std::move(value));
    }
    return true;
  }

  std::string_view text_;
  Json root_;
  std::vector<Frame> stack_;
  std::string error_;
};

[[noreturn]] void wrong_type(std::string_view where, std::string_view expected, std::string_view found) {
  fail(ErrorCode::bad_input, std::string(where) + ": found " + std::string(found), std::string(expected));
}

nlohmann::ordered_json to_library(const Json& v) {
  if (v.is_bool()) return v.as_bool("");
  if (v.is_int()) return v.as_int("");
  if (v.is_number()) return v.as_number("");
  if (v.is_string()) return v.as_string("");
  if (v.is_array()) {
    auto out = nlohmann::ordered_json::array();
    for (const Json& e : v.as_array("")) out.push_back(to_library(e));
    return out;
  }
  if (v.is_object()) {
    auto out = nlohmann::ordered_json::object();
    for (const auto& [key, value] : v.as_object("")) out[key] = to_library(value);
    return out;
  }
  return nullptr;
}

}  // namespace

Json Json::parse(std::string_view text, std::string_view origin) {
  // The library takes a NUL for the end and would not see what follows it.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail(ErrorCode::bad_input, std::string(origin) + ": byte " + std::to_string(nul) + " is NUL", "JSON text");
  }
  Builder builder(text);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    fail(ErrorCode::bad_input, std::string(origin) + ": " + builder.error());
  }
  return builder.take();
}

Json Json::parse_file(const std::string& path) { return parse(read_file(path, {"a readable JSON file"}), path); }

std::string_view Json::type_name() const {
  static constexpr std::string_view kNames[] = {"null", "bool", "integer", "number", "string", "array", "object"};
  return kNames[value_.index()];
}

bool Json::as_bool(std::string_view where) const {
  if (const bool* v = std::get_if<bool>(&value_)) return *v;
  wrong_type(where, "true or false", type_name());
}

std::int64_t Json::as_int(std::string_view where) const {
  if (const auto* v = std::get_if<std::int64_t>(&value_)) return *v;
  if (const double* v = std::get_if<double>(&value_)) {
    if (*v == std::floor(*v) && std::abs(*v) < 9e15) return static_cast<std::int64_t>(*v);
  }
  wrong_type(where, "an integer", type_name());
}

double Json::as_number(std::string_view where) const {
  if (const auto* v = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*v);
  if (const double* v = std::get_if<double>(&value_)) return *v;
  wrong_type(where, "a number", type_name());
}

const std::string& Json::as_string(std::string_view where) const {
  if (const auto* v = std::get_if<std::string>(&value_)) return *v;
  wrong_type(where, "a string", type_name());
}

const Json::Array& Json::as_array(std::string_view where) const {
  if (const auto* v = std::get_if<std::shared_ptr<const Array>>(&value_)) return **v;
  wrong_type(where, "an array", type_name());
}

const Json::Object& Json::as_object(std::string_view where) const {
  if (const auto* v = std::get_if<std::shared_ptr<const Object>>(&value_)) return **v;
  wrong_type(where, "an object", type_name());
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : **std::get_if<std::shared_ptr<const Object>>(&value_)) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string Json::dump(int indent) const {
  return to_library(*this).dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace sluice
