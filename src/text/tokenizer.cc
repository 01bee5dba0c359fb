#include "text/tokenizer.h"

#include <deque>
#include <utility>

#include "core/error.h"
#include "text/piece_cache.h"
#include "text/stream_decoder.h"
#include "text/unicode.h"

namespace sluice::text {

// What one encode call works with.
struct Tokenizer::EncodeCall {
  EncodeCall(std::size_t text_bytes, bool special) : cache(text_bytes), parse_special(special) {}

  PreTokenizerScratch pre;
  BpeScratch bpe;
  PieceCache cache;
  std::deque<std::string> normalized;  // texts that pieces point into
  std::vector<std::int32_t> ids;
  bool parse_special;
};

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens, bool parse_special) const {
  if (text.size() > kMaxTextBytes) {
    fail(ErrorCode::bad_input, "a text of " + std::to_string(text.size()) + " bytes to tokenise",
         "at most " + std::to_string(kMaxTextBytes));
  }
  std::string repaired;
  if (!valid_utf8(text)) {
    repaired = lossy_utf8(text);
    text = repaired;
  }
  EncodeCall call(text.size(), parse_special);
  call.ids.reserve(text.size() / 4 + 16);
  if (add_special_tokens) call.ids = post_processor_.before;
  if (added_.any(false)) {
    for (const AddedTokens::Part& part : added_.split(text, false, parse_special)) {
      if (part.id >= 0) {
        call.ids.push_back(part.id);
      } else {
        encode_part(text.substr(part.begin, part.end - part.begin), part.begin == 0, call);
      }
    }
  } else {
    encode_part(text, true, call);
  }
  if (add_special_tokens) call.ids.insert(call.ids.end(), post_processor_.after.begin(), post_processor_.after.end());
  return std::move(call.ids);
}

// Text between the tokens that are looked for before normalisation.
void Tokenizer::encode_part(std::string_view text, bool starts_text, EncodeCall& call) const {
  if (text.empty()) return;
  if (!normalizer_.empty()) {
    call.normalized.push_back(normalizer_.apply(text, call.pre.regex));
    text = call.normalized.back();
  }
  if (!added_.any(true)) return encode_plain(text, starts_text, call);
  for (const AddedTokens::Part& part : added_.split(text, true, call.parse_special)) {
    if (part.id >= 0) {
      call.ids.push_back(part.id);
    } else {
      encode_plain(text.substr(part.begin, part.end - part.begin), starts_text && part.begin == 0, call);
    }
  }
}

void Tokenizer::encode_plain(std::string_view text, bool starts_text, EncodeCall& call) const {
  pre_tokenizer_.run({text, starts_text}, call.pre, [&](PreTokenizer::Piece piece) {
    call.cache.append(piece.text, call.ids,
                      [&](std::string_view p, std::vector<std::int32_t>& out) { bpe_.encode(p, call.bpe, out); });
  });
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids, bool skip_special) const {
  StreamDecoder stream(*this, skip_special);
  std::string out;
  for (std::int32_t id : ids) out += stream.push(id);
  return out + stream.flush();
}

std::string_view Tokenizer::decoder_token(std::int32_t id) const {
  const AddedToken* added = added_.find(id);
  return added != nullptr ? std::string_view(added->normalized_content) : vocabulary_.token(id);
}

std::string Tokenizer::token_text(std::int32_t id) const { return decoder_.bytes_of(decoder_token(id)); }

std::optional<std::int32_t> Tokenizer::token_id(std::string_view token) const {
  const std::int32_t id = vocabulary_.find(token);
  return id < 0 ? std::nullopt : std::optional<std::int32_t>(id);
}

bool Tokenizer::is_special(std::int32_t id) const {
  const AddedToken* added = added_.find(id);
  return added != nullptr && added->special;
}

}  // namespace sluice::text
