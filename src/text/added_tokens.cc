#include "text/added_tokens.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "text/fields.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

// Start of the white space that ends at `end`, not before `limit`.
std::size_t space_before(std::string_view text, std::size_t limit, std::size_t end) {
  while (end > limit) {
    const CodePoint c = decode_last_utf8(text.substr(limit, end - limit));
    if (!is_whitespace(c.value)) break;
    end -= static_cast<std::size_t>(c.bytes);
  }
  return end;
}

std::size_t space_behind(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const CodePoint c = decode_utf8(text.substr(begin));
    if (!is_whitespace(c.value)) break;
    begin += static_cast<std::size_t>(c.bytes);
  }
  return begin;
}

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && is_word(decode_last_utf8(text.substr(0, begin)).value)) ||
         (end < text.size() && is_word(decode_utf8(text.substr(end)).value));
}

}  // namespace

AddedTokens::AddedTokens(const Json& list, const std::string& where, const Normalizer& normalizer,
                         Vocabulary& vocabulary) {
  const Json::Array& entries = list.as_array(where);
  for (std::size_t i = 0; i < entries.size(); ++i) read(entries[i], place(where, i), vocabulary);
  RegexScratch scratch;
  for (AddedToken& t : tokens_) {
    t.normalized_content = t.normalized ? normalizer.apply(t.content, scratch) : t.content;
  }
  // The reference goes by the text of a token, not by the token: one that normalises to a special token is skipped too.
  std::unordered_set<std::string_view> specials;
  for (const AddedToken& t : tokens_) {
    if (t.special) specials.insert(t.content);
  }
  for (AddedToken& t : tokens_) t.skipped = specials.count(t.normalized_content) > 0;
  std::vector<std::int32_t> order;  // by id: when two tokens look alike after normalisation, the lower id is meant
  for (std::int32_t i : index_) {
    if (i >= 0) order.push_back(i);
  }
  for (std::int32_t i : order) {
    const AddedToken& t = tokens_[static_cast<std::size_t>(i)];
    (t.normalized ? normalized_ : raw_).insert(t.normalized_content, i);
  }
}

void AddedTokens::read(const Json& entry, const std::string& where, Vocabulary& vocabulary) {
  AddedToken t;
  t.content = string_field(entry, "content", where);
  t.single_word = bool_field(entry, "single_word", where, false);
  t.lstrip = bool_field(entry, "lstrip", where, false);
  t.rstrip = bool_field(entry, "rstrip", where, false);
  t.special = bool_field(entry, "special", where, false);
  t.normalized = bool_field(entry, "normalized", where, !t.special);
  if (t.content.empty()) return;
  const std::int64_t id = field(entry, "id", where).as_int(place(where, "id"));
  const std::int32_t known = vocabulary.find(t.content);
  if (known >= 0 && known != id) {
    fail(ErrorCode::bad_input, place(where, "id") + ": \"" + t.content + "\" has the id " + std::to_string(id),
         "its id in the vocabulary, " + std::to_string(known));
  }
  if (known < 0) vocabulary.add(t.content, id, where);
  t.id = static_cast<std::int32_t>(id);
  put(std::move(t));
}

// A later entry for the same token replaces the earlier, but what was special once stays special.
void AddedTokens::put(AddedToken token) {
  const auto id = static_cast<std::size_t>(token.id);
  if (id >= index_.size()) index_.resize(id + 1, -1);
  if (index_[id] < 0) {
    index_[id] = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(std::move(token));
    return;
  }
  AddedToken& old = tokens_[static_cast<std::size_t>(index_[id])];
  token.special = token.special || old.special;
  old = std::move(token);
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text, bool normalized_text,
                                                  bool parse_special) const {
  const PrefixTree& tree = normalized_text ? normalized_ : raw_;
  std::vector<Part> parts;
  std::size_t done = 0;
  std::size_t space_begin = 0;  // white space that an rstrip has measured: each run is walked once
  std::size_t space_end = 0;
  PrefixTree::Match m;
  for (std::size_t from = 0; tree.find(text, from, m); from = m.end) {
    const AddedToken& t = tokens_[static_cast<std::size_t>(m.value)];
    if (t.special && !parse_special) continue;
    if (t.single_word && touches_word(text, m.begin, m.end)) continue;
    std::size_t begin = m.begin;
    std::size_t end = m.end;
    if (t.lstrip) begin = std::min(std::max(space_before(text, std::min(done, begin), begin), done), end);
    if (t.rstrip && (end < space_begin || end >= space_end)) {
      space_begin = end;
      space_end = space_behind(text, end);
    }
    if (t.rstrip) end = std::max(end, space_end);
    if (done < begin) parts.push_back({done, begin, -1});
    parts.push_back({begin, end, t.id});
    done = end;
  }
  if (done != text.size()) parts.push_back({done, text.size(), -1});
  return parts;
}

const AddedToken* AddedTokens::find(std::int64_t id) const {
  if (id < 0 || id >= static_cast<std::int64_t>(index_.size())) return nullptr;
  const std::int32_t i = index_[static_cast<std::size_t>(id)];
  return i < 0 ? nullptr : &tokens_[static_cast<std::size_t>(i)];
}

}  // namespace sluice::text
