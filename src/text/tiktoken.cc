#include "text/tiktoken.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "core/error.h"
#include "text/fields.h"

namespace sluice::text {
namespace {

// Letters, each alternative in the order of the reference: the first that matches wins.
constexpr std::string_view kKimiPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::array<std::int8_t, 256> base64_values() {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}

std::optional<std::string> decode_base64(std::string_view text) {
  static const std::array<std::int8_t, 256> kValues = base64_values();
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string out;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int value = i < text.size() - padding ? kValues[static_cast<unsigned char>(text[i])] : 0;
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) out.push_back(static_cast<char>(bits >> shift & 0xFFu));
    bits = 0;
  }
  out.resize(out.size() - padding);
  return out;
}

RankedToken parse_line(std::string_view line, const std::string& where) {
  RankedToken token;
  const std::size_t space = line.find(' ');
  const std::optional<std::string> bytes = decode_base64(line.substr(0, space));
  const std::string_view digits = space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), token.rank);
  if (!bytes || error != std::errc{} || end != digits.data() + digits.size() || token.rank < 0) {
    fail(ErrorCode::bad_input, where + ": not a token", "the bytes of a token in base64, a space, and its rank");
  }
  token.bytes = *bytes;
  return token;
}

}  // namespace

std::vector<RankedToken> parse_tiktoken(std::string_view file, const std::string& origin) {
  std::vector<RankedToken> tokens;
  for (std::size_t line = 1; !file.empty(); ++line) {
    std::string_view text = file.substr(0, file.find('\n'));
    file.remove_prefix(std::min(text.size() + 1, file.size()));
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    if (!text.empty()) tokens.push_back(parse_line(text, origin + ": line " + std::to_string(line)));
  }
  if (tokens.empty()) fail(ErrorCode::bad_input, origin + ": no tokens", "a line for each");
  return tokens;
}

bool is_kimi_tokenizer(const Json& config) {
  const Json* map = config.find("auto_map");
  const Json* code = map != nullptr ? map->find("AutoTokenizer") : nullptr;
  if (code != nullptr && code->is_array() && !code->as_array("auto_map").empty()) code = &code->as_array("auto_map")[0];
  return code != nullptr && code->is_string() &&
         code->as_string("auto_map").find("tokenization_kimi.") != std::string::npos;
}

Json kimi_pre_tokenizer() {
  const Json split(Json::Object{{"type", Json("Split")},
                                {"pattern", Json(Json::Object{{"Regex", Json(std::string(kKimiPattern))}})},
                                {"behavior", Json("Isolated")},
                                {"invert", Json(false)}});
  const Json bytes(
      Json::Object{{"type", Json("ByteLevel")}, {"add_prefix_space", Json(false)}, {"use_regex", Json(false)}});
  return Json(Json::Object{{"type", Json("Sequence")}, {"pretokenizers", Json(Json::Array{split, bytes})}});
}

Json added_tokens_of(const Json& config, const std::string& origin) {
  Json::Array list;
  const Json* tokens = config.find("added_tokens_decoder");
  if (tokens == nullptr || tokens->is_null()) return Json(list);
  const std::string where = place(origin, "added_tokens_decoder");
  for (const auto& [id_text, token] : tokens->as_object(where)) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(id_text.data(), id_text.data() + id_text.size(), id);
    if (error != std::errc{} || end != id_text.data() + id_text.size()) {
      fail(ErrorCode::bad_input, place(where, id_text) + ": not an id", "the number of a token");
    }
    Json::Object entry = {{"id", Json(id)}};
    for (const auto& [key, value] : token.as_object(place(where, id_text))) entry.emplace_back(key, value);
    list.push_back(Json(std::move(entry)));
  }
  return Json(std::move(list));
}

}  // namespace sluice::text
