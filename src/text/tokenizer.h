// Text to token ids and back, as the `tokenizers` package does it with the same tokenizer.json.
//
// Made by Tokenizer::load, owned by whoever loads the model. Immutable: any number of threads may use one.
//
// Text that is not valid UTF-8 is read as Rust's from_utf8_lossy reads it: each maximal broken part is one U+FFFD.
// The "truncation" and "padding" of a file are not applied: they belong to batches of a training script.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"

namespace sluice::text {

class Tokenizer {
 public:
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

  // Reads tokenizer.json and, where there is one, tokenizer_config.json of a model folder; without tokenizer.json the
  // tiktoken.model of Kimi-K2. Throws Error(bad_input) for
  // a damaged or inconsistent file, Error(unsupported) for a component that is missing here; both name file and field.
  static Tokenizer load(const std::string& folder);

  // The same from parsed files; `origin` and `config_origin` name them in errors. `config` may be null.
  static Tokenizer from_json(const Json& tokenizer, const std::string& origin, const Json& config,
                             const std::string& config_origin);

  // From the tokens of tiktoken.model; text is cut as Kimi-K2 does it.
  static Tokenizer from_kimi(const std::vector<RankedToken>& tokens, const std::string& origin, const Json& config,
                             const std::string& config_origin);

  // `add_special_tokens` puts BOS and the like around the text where the file says so: not for a rendered chat
  // template, which has them already. Without `parse_special` special tokens spelled out in the text are ordinary text.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens, bool parse_special) const;

  // Ids that no token has are left out.
  std::string decode(const std::vector<std::int32_t>& ids, bool skip_special) const;

  // The bytes that a token adds to a text, for example part of a character. Empty for an id that no token has.
  std::string token_text(std::int32_t id) const;
  // The token as the file spells it; empty for an id that no token has.
  std::string_view token(std::int32_t id) const { return vocabulary().token(id); }
  std::optional<std::int32_t> token_id(std::string_view token) const;

  std::int32_t vocab_size() const { return vocabulary().size(); }  // highest id + 1
  bool is_special(std::int32_t id) const;

  // From tokenizer_config.json, where it names a token of the vocabulary.
  std::optional<std::int32_t> bos_id() const { return bos_; }
  std::optional<std::int32_t> eos_id() const { return eos_; }
  std::optional<std::int32_t> pad_id() const { return pad_; }

 private:
  friend class StreamDecoder;
  struct EncodeCall;

  Tokenizer(PreTokenizer pre_tokenizer, Bpe bpe)
      : pre_tokenizer_(std::move(pre_tokenizer)), bpe_(std::move(bpe)), vocabulary_(bpe_.vocabulary()) {}

  const Vocabulary& vocabulary() const { return vocabulary_; }
  void read_config(const Json& config, const std::string& origin);
  void encode_part(std::string_view text, bool starts_text, EncodeCall& call) const;
  void encode_plain(std::string_view text, bool starts_text, EncodeCall& call) const;
  std::string_view decoder_token(std::int32_t id) const;

  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  Vocabulary vocabulary_;  // of the model and the added tokens
  Normalizer normalizer_;
  AddedTokens added_;
  PostProcessor post_processor_;
  Decoder decoder_;
  std::optional<std::int32_t> bos_;
  std::optional<std::int32_t> eos_;
  std::optional<std::int32_t> pad_;
};

}  // namespace sluice::text
