#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "text/fields.h"
#include "text/tiktoken.h"
#include "text/tokenizer.h"

namespace sluice::text {
namespace {

const Json& field_or_null(const Json& object, std::string_view key) {
  static const Json null;
  const Json* value = object.find(key);
  return value == nullptr ? null : *value;
}

void check_version(const Json& tokenizer, const std::string& origin) {
  const Json& version = field_or_null(tokenizer, "version");
  if (version.is_null() || (version.is_string() && version.as_string(origin) == "1.0")) return;
  fail(ErrorCode::unsupported, place(origin, "version") + ": " + version.dump(), "\"1.0\"");
}

// A token of tokenizer_config.json: a string, or an object with its content.
std::optional<std::int32_t> config_token(const Json& config, std::string_view key, const std::string& origin,
                                         const Tokenizer& tokenizer) {
  const Json* value = &field_or_null(config, key);
  if (value->is_object()) value = &field(*value, "content", place(origin, key));
  if (value->is_null()) return std::nullopt;
  return tokenizer.token_id(value->as_string(place(origin, key)));
}

}  // namespace

Tokenizer Tokenizer::load(const std::string& folder) {
  const std::string file = folder + "/tokenizer.json";
  const std::string config = folder + "/tokenizer_config.json";
  const std::string ranks = folder + "/tiktoken.model";
  std::error_code none;
  const Json settings = std::filesystem::exists(config, none) ? Json::parse_file(config) : Json();
  if (std::filesystem::exists(file, none)) return from_json(Json::parse_file(file), file, settings, config);
  if (!std::filesystem::exists(ranks, none)) {
    fail(ErrorCode::bad_input, file + ": not there", "the tokenizer of the model",
         "download it with the checkpoint; tokenizer.model and vocab.json are not read");
  }
  if (!is_kimi_tokenizer(settings)) {
    fail(ErrorCode::unsupported, ranks + ": how it cuts text into pieces is in code that is not known here",
         "tokenizer.json, or the tokenizer of Kimi-K2 (auto_map in tokenizer_config.json)",
         "convert it with transformers");
  }
  return from_kimi(parse_tiktoken(read_file(ranks, {"the tokens of the model"}), ranks), ranks, settings, config);
}

Tokenizer Tokenizer::from_kimi(const std::vector<RankedToken>& tokens, const std::string& origin, const Json& config,
                               const std::string& config_origin) {
  Tokenizer t(PreTokenizer(kimi_pre_tokenizer(), origin), Bpe(tokens, origin));
  t.added_ = AddedTokens(added_tokens_of(config, config_origin), place(config_origin, "added_tokens_decoder"),
                         t.normalizer_, t.vocabulary_);
  t.decoder_ = Decoder(Json(Json::Object{{"type", Json("ByteLevel")}}), origin);
  t.read_config(config, config_origin);
  return t;
}

Tokenizer Tokenizer::from_json(const Json& tokenizer, const std::string& origin, const Json& config,
                               const std::string& config_origin) {
  tokenizer.as_object(origin);
  check_version(tokenizer, origin);
  PreTokenizer pre_tokenizer(field_or_null(tokenizer, "pre_tokenizer"), place(origin, "pre_tokenizer"));
  Bpe bpe(field(tokenizer, "model", origin), place(origin, "model"), pre_tokenizer.byte_pieces());
  Tokenizer t(std::move(pre_tokenizer), std::move(bpe));
  t.normalizer_ = Normalizer(field_or_null(tokenizer, "normalizer"), place(origin, "normalizer"));
  const Json& added = field_or_null(tokenizer, "added_tokens");
  if (!added.is_null()) t.added_ = AddedTokens(added, place(origin, "added_tokens"), t.normalizer_, t.vocabulary_);
  t.post_processor_ =
      read_post_processor(field_or_null(tokenizer, "post_processor"), place(origin, "post_processor"), t.vocabulary_);
  t.decoder_ = Decoder(field_or_null(tokenizer, "decoder"), place(origin, "decoder"));
  if (!config.is_null()) t.read_config(config, config_origin);
  return t;
}

// An explicit add_bos_token or add_eos_token replaces what the post-processor does, as transformers 5 has it.
void Tokenizer::read_config(const Json& config, const std::string& origin) {
  config.as_object(origin);
  bos_ = config_token(config, "bos_token", origin, *this);
  eos_ = config_token(config, "eos_token", origin, *this);
  pad_ = config_token(config, "pad_token", origin, *this);
  if (field_or_null(config, "add_bos_token").is_null() && field_or_null(config, "add_eos_token").is_null()) return;
  post_processor_ = {};
  const bool add_bos = bool_field(config, "add_bos_token", origin, false);
  const bool add_eos = bool_field(config, "add_eos_token", origin, false);
  if (add_bos && bos_) post_processor_.before.push_back(*bos_);
  if (add_eos && eos_) post_processor_.after.push_back(*eos_);
}

}  // namespace sluice::text
