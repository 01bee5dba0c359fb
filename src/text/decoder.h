// The "decoder" of tokenizer.json: from the strings of tokens back to text.
//
// Decoder is what the file says, immutable and shared. DecoderRun is one decoding in progress: it takes tokens one by
// one and gives text as soon as that is certain, so that decoding at once and streaming are the same code. A run is
// cheap to make, and not thread-safe; it must not outlive its Decoder.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/regex.h"

namespace sluice::text {

// Takes tokens in parts. After the last part of a token comes end_token, after the last token finish.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void part(std::string_view text) = 0;
  virtual void end_token() = 0;
  virtual void finish() = 0;
};

struct DecoderStep {
  virtual ~DecoderStep() = default;
  // `next` and `scratch` live as long as the result.
  virtual std::unique_ptr<TokenSink> start(TokenSink& next, RegexScratch& scratch) const = 0;
  // What the step makes of one token by itself, as bytes.
  virtual std::string bytes_of(std::string token, RegexScratch& scratch) const = 0;
};

class Decoder {
 public:
  Decoder();
  // Null means that tokens are joined with spaces. Throws Error(unsupported) for a type that is not known, by name.
  Decoder(const Json& json, const std::string& where);

  // What a token adds to the text. For a part of a character these are its bytes.
  std::string bytes_of(std::string_view token) const;

 private:
  friend class DecoderRun;
  void read(const Json& json, const std::string& where);

  std::vector<std::unique_ptr<const DecoderStep>> steps_;
};

class DecoderRun {
 public:
  explicit DecoderRun(const Decoder& decoder);
  ~DecoderRun();
  DecoderRun(DecoderRun&&) noexcept;
  DecoderRun& operator=(DecoderRun&&) noexcept;

  // Text that is certain now; valid UTF-8 when the tokens are. The concatenation of all results is the decoded text.
  std::string push(std::string_view token);
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::text
