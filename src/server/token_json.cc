#include "server/token_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "server/json_text.h"
#include "text/unicode.h"

namespace sluice::server {
namespace {

std::string bytes_json(std::string_view bytes) {
  std::string out = "[";
  for (const char c : bytes) {
    if (out.size() > 1) out += ',';
    fmt::format_to(std::back_inserter(out), "{}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return out + "]";
}

void append_token(std::string& out, const text::Tokenizer& tokenizer, std::int32_t token, float logprob) {
  out += "{\"token\":";
  append_quoted(out, readable_token(tokenizer, token));
  out += ",\"bytes\":" + bytes_json(tokenizer.token_text(token)) + ",\"logprob\":";
  append_logprob(out, logprob);
}

// Keys of an object are the tokens' texts; of two that look alike the likelier stays.
void append_top_object(std::string& out, const text::Tokenizer& tokenizer, const TokenNote& note) {
  std::vector<std::string> seen;
  const auto add = [&](std::int32_t token, float logprob) {
    std::string text = readable_token(tokenizer, token);
    if (std::find(seen.begin(), seen.end(), text) != seen.end()) return;
    if (!seen.empty()) out += ',';
    append_quoted(out, text);
    out += ':';
    append_logprob(out, logprob);
    seen.push_back(std::move(text));
  };
  out += '{';
  for (const engine::TokenLogprob& t : note.top) add(t.token, t.logprob);
  add(note.token, note.logprob);
  out += '}';
}

template <class Each>
void append_list(std::string& out, const char* name, std::size_t count, Each each) {
  out += name;
  out += '[';
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    each(i);
  }
  out += ']';
}

}  // namespace

std::string readable_token(const text::Tokenizer& tokenizer, std::int32_t token) {
  return text::lossy_utf8(tokenizer.token_text(token));
}

void append_chat_logprob(std::string& out, const text::Tokenizer& tokenizer, const TokenNote& note) {
  append_token(out, tokenizer, note.token, note.logprob);
  append_list(out, ",\"top_logprobs\":", note.top.size(), [&](std::size_t i) {
    append_token(out, tokenizer, note.top[i].token, note.top[i].logprob);
    out += '}';
  });
  out += '}';
}

std::int64_t TextPlace::add(std::string_view bytes) {
  const std::int64_t begin = characters_;
  begun_ += bytes;
  std::string_view rest = begun_;
  while (!rest.empty()) {
    const text::Utf8Step step = text::utf8_step(rest);
    if (step.kind == text::Utf8Step::Kind::incomplete) break;
    rest.remove_prefix(static_cast<std::size_t>(step.bytes));
    ++characters_;
  }
  begun_ = std::string(rest);
  return begin;
}

void append_completion_logprobs(std::string& out, const text::Tokenizer& tokenizer, const CompletionLogprobs& part,
                                TextPlace& place) {
  const std::vector<TokenNote>& notes = part.notes;
  const auto unknown = [&](std::size_t i) { return part.first_unknown && i == 0; };
  append_list(out, "{\"tokens\":", notes.size(),
              [&](std::size_t i) { append_quoted(out, readable_token(tokenizer, notes[i].token)); });
  append_list(out, ",\"token_logprobs\":", notes.size(), [&](std::size_t i) {
    if (unknown(i)) {
      out += "null";
    } else {
      append_logprob(out, notes[i].logprob);
    }
  });
  if (part.with_top) {
    append_list(out, ",\"top_logprobs\":", notes.size(), [&](std::size_t i) {
      if (unknown(i)) {
        out += "null";
      } else {
        append_top_object(out, tokenizer, notes[i]);
      }
    });
  } else {
    out += ",\"top_logprobs\":null";
  }
  append_list(out, ",\"text_offset\":", notes.size(), [&](std::size_t i) {
    out += std::to_string(place.add(notes[i].shown ? tokenizer.token_text(notes[i].token) : ""));
  });
  out += '}';
}

void append_generate_logprob(std::string& out, std::optional<float> logprob, std::int32_t token,
                             const text::Tokenizer* tokenizer) {
  out += '[';
  if (logprob) {
    append_logprob(out, *logprob);
  } else {
    out += "null";
  }
  fmt::format_to(std::back_inserter(out), ",{},", token);
  if (tokenizer != nullptr) {
    append_quoted(out, readable_token(*tokenizer, token));
  } else {
    out += "null";
  }
  out += ']';
}

void append_generate_top(std::string& out, const std::vector<engine::TokenLogprob>& top,
                         const text::Tokenizer* tokenizer) {
  append_list(out, "", top.size(),
              [&](std::size_t i) { append_generate_logprob(out, top[i].logprob, top[i].token, tokenizer); });
}

}  // namespace sluice::server
