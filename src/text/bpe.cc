#include "text/bpe.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>

#include "core/error.h"
#include "text/byte_alphabet.h"
#include "text/fields.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

// Up to this many symbols looking at all pairs is faster than keeping a heap.
constexpr std::size_t kShortSymbols = 128;

constexpr std::size_t kMaxPieceBytes = 1 << 30;  // symbols are counted in 31 bits

void refuse_set(const Json& model, std::string_view key, const std::string& where, const char* what) {
  const Json* value = model.find(key);
  if (value == nullptr || value->is_null()) return;
  if (value->is_string() && value->as_string(where).empty()) return;
  if (value->is_number() && value->as_number(where) == 0) return;
  fail(ErrorCode::unsupported, place(where, key) + ": " + value->dump() + " (" + what + ") is not supported", "null");
}

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

}  // namespace

Bpe::Bpe(const Json& model, const std::string& where, bool byte_pieces) : where_(where), byte_pieces_(byte_pieces) {
  const Json* type = model.find("type");  // old files have none
  if (type != nullptr && type->as_string(place(where, "type")) != "BPE") {
    refuse_type(where, type->as_string(where), "BPE");
  }
  refuse_set(model, "dropout", where, "random merges");
  refuse_set(model, "continuing_subword_prefix", where, "a prefix inside words");
  refuse_set(model, "end_of_word_suffix", where, "a suffix of words");
  fuse_unknown_ = bool_field(model, "fuse_unk", where, false);
  byte_fallback_ = bool_field(model, "byte_fallback", where, false);
  ignore_merges_ = bool_field(model, "ignore_merges", where, false);
  vocabulary_ = Vocabulary(field(model, "vocab", where), place(where, "vocab"));
  if (const Json* unknown = model.find("unk_token"); unknown != nullptr && !unknown->is_null()) {
    has_unknown_ = true;
    unknown_token_ = unknown->as_string(place(where, "unk_token"));
    unknown_id_ = vocabulary_.find(unknown_token_);
  }
  read_merges(field(model, "merges", where), place(where, "merges"));
  prepare_bytes();
}

Bpe::Bpe(const std::vector<RankedToken>& tokens, const std::string& where)
    : where_(where), ignore_merges_(true), byte_pieces_(true) {
  for (const RankedToken& token : tokens) {
    vocabulary_.add(to_byte_alphabet(token.bytes), token.rank, where);
    if (token.bytes.empty()) fail(ErrorCode::bad_input, where + ": a token without bytes");
  }
  std::vector<RankedPair> pairs;
  for (const RankedToken& token : tokens) append_cuts(token, pairs);
  merges_ = PairTable(pairs.size());
  for (const RankedPair& p : pairs) merges_.set(p.left, p.right, {static_cast<std::uint32_t>(p.rank), p.rank});
  prepare_bytes();
}

// Every way to cut the token into two tokens is a merge of its rank.
void Bpe::append_cuts(const RankedToken& token, std::vector<RankedPair>& pairs) const {
  const std::string_view bytes = token.bytes;
  for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
    const std::int32_t left = vocabulary_.find(to_byte_alphabet(bytes.substr(0, cut)));
    const std::int32_t right = vocabulary_.find(to_byte_alphabet(bytes.substr(cut)));
    if (left >= 0 && right >= 0) pairs.push_back({left, right, token.rank});
  }
}

void Bpe::read_merges(const Json& merges, const std::string& where) {
  const Json::Array& rules = merges.as_array(where);
  if (rules.size() >= std::numeric_limits<std::int32_t>::max()) fail(ErrorCode::bad_input, where + ": too many");
  merges_ = PairTable(rules.size());
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (rules[i].is_array()) {
      const Json::Array& pair = rules[i].as_array(where);
      if (pair.size() != 2) fail(ErrorCode::bad_input, place(where, i) + ": not two tokens");
      const std::string at = pair[0].is_string() && pair[1].is_string() ? std::string() : place(where, i);
      add_merge(pair[0].as_string(at), pair[1].as_string(at), rank++, where);
      continue;
    }
    const std::string& line = rules[i].as_string(where);
    if (line.rfind("#version", 0) == 0) continue;  // the head line of a merges.txt, kept by some converters
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      fail(ErrorCode::bad_input, place(where, i) + ": \"" + line + "\"", "two tokens with one space between them");
    }
    add_merge(std::string_view(line).substr(0, space), std::string_view(line).substr(space + 1), rank++, where);
  }
}

void Bpe::add_merge(std::string_view left, std::string_view right, std::uint32_t rank, const std::string& where) {
  const std::string merged = std::string(left) + std::string(right);
  const std::int32_t ids[3] = {vocabulary_.find(left), vocabulary_.find(right), vocabulary_.find(merged)};
  const std::string_view names[3] = {left, right, merged};
  for (int i = 0; i < 3; ++i) {
    if (ids[i] >= 0) continue;
    fail(ErrorCode::bad_input,
         where + ": rule " + std::to_string(rank) + " (\"" + std::string(left) + "\" with \"" + std::string(right) +
             "\") needs the token \"" + std::string(names[i]) + "\"",
         "every part and result of a merge in the vocabulary");
  }
  merges_.set(ids[0], ids[1], {rank, ids[2]});
}

void Bpe::prepare_bytes() {
  for (int b = 0; b < 256; ++b) {
    const auto i = static_cast<std::size_t>(b);
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    fallback_ids_[i] = byte_fallback_ ? vocabulary_.find(name) : -1;
    byte_ids_[i] = vocabulary_.find(to_byte_alphabet(std::string(1, static_cast<char>(b))));
  }
  if (!ignore_merges_ || !byte_pieces_) return;
  whole_pieces_ = StringTable(vocabulary_.tokens());
  for (std::int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (!vocabulary_.contains(id)) continue;
    const std::optional<std::string> bytes = from_byte_alphabet(vocabulary_.token(id));
    if (bytes) whole_pieces_.insert(*bytes, id);
  }
}

void Bpe::encode(std::string_view piece, BpeScratch& scratch, std::vector<std::int32_t>& out) const {
  if (piece.empty()) return;
  if (ignore_merges_) {
    const std::int32_t id = byte_pieces_ ? whole_pieces_.find(piece) : vocabulary_.find(piece);
    if (id >= 0) return out.push_back(id);
  }
  if (piece.size() > kMaxPieceBytes) {
    fail(ErrorCode::bad_input, where_ + ": a piece of text of " + std::to_string(piece.size()) + " bytes",
         "at most " + std::to_string(kMaxPieceBytes));
  }
  symbols_of(piece, scratch);
  if (scratch.ids.size() <= kShortSymbols) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

void Bpe::symbols_of(std::string_view piece, BpeScratch& scratch) const {
  scratch.ids.clear();
  Unknown unknown;
  if (byte_pieces_) {
    for (char c : piece) {
      const auto byte = static_cast<unsigned char>(c);
      const std::int32_t id = byte_ids_[byte];
      if (id >= 0 && !unknown.pending) {
        scratch.ids.push_back(id);
      } else {
        std::string character;
        append_utf8(character, byte_to_alphabet(byte));
        add_symbol(character, id, scratch, unknown);
      }
    }
  } else {
    while (!piece.empty()) {
      const auto bytes = static_cast<std::size_t>(decode_utf8(piece).bytes);
      add_symbol(piece.substr(0, bytes), vocabulary_.find(piece.substr(0, bytes)), scratch, unknown);
      piece.remove_prefix(bytes);
    }
  }
  if (unknown.pending) scratch.ids.push_back(unknown_id_);
}

// Unknown characters wait, so that the next one can join them; a fallback to bytes goes out ahead of a waiting one,
// which is what the reference does.
void Bpe::add_symbol(std::string_view character, std::int32_t id, BpeScratch& scratch, Unknown& unknown) const {
  if (id < 0) {
    if (!add_fallback(character, scratch)) add_unknown(character, scratch, unknown);
    return;
  }
  if (unknown.pending) scratch.ids.push_back(unknown_id_);
  unknown.pending = false;
  scratch.ids.push_back(id);
}

bool Bpe::add_fallback(std::string_view character, BpeScratch& scratch) const {
  for (char c : character) {
    if (fallback_ids_[static_cast<unsigned char>(c)] < 0) return false;
  }
  for (char c : character) scratch.ids.push_back(fallback_ids_[static_cast<unsigned char>(c)]);
  return true;
}

void Bpe::add_unknown(std::string_view character, BpeScratch& scratch, Unknown& unknown) const {
  if (!has_unknown_) return;  // the character is dropped
  if (unknown_id_ < 0) {
    fail(ErrorCode::bad_input, place(where_, "unk_token") + ": \"" + unknown_token_ +
                                   "\" is not in the vocabulary and is needed for \"" + std::string(character) + "\"");
  }
  if (unknown.pending && !fuse_unknown_) scratch.ids.push_back(unknown_id_);
  unknown.pending = true;
}

// Looks at all pairs for the lowest (rank, position), merges it, and again.
void Bpe::merge_short(BpeScratch& scratch) const {
  std::int32_t* ids = scratch.ids.data();
  std::array<std::uint32_t, kShortSymbols> ranks;  // of the merge of symbol i with the next
  std::array<std::int32_t, kShortSymbols> merged;  // its result
  const auto look_up_pair = [&](std::size_t i) {
    const PairTable::Merge m = merges_.find(ids[i], ids[i + 1]);
    ranks[i] = m.merged < 0 ? kNoRank : m.rank;
    merged[i] = m.merged;
  };
  std::size_t n = scratch.ids.size();
  for (std::size_t i = 0; i + 1 < n; ++i) look_up_pair(i);
  while (n > 1) {
    std::uint32_t lowest = ranks[0];
    for (std::size_t i = 1; i + 1 < n; ++i) lowest = ranks[i] < lowest ? ranks[i] : lowest;
    if (lowest == kNoRank) break;
    std::size_t best = 0;
    while (ranks[best] != lowest) ++best;
    ids[best] = merged[best];
    if (best + 2 < n) merges_.prefetch(ids[best], ids[best + 2]);
    if (best > 0) merges_.prefetch(ids[best - 1], ids[best]);
    std::memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
    if (best + 2 < n) {
      std::memmove(&ranks[best + 1], &ranks[best + 2], (n - best - 3) * sizeof ranks[0]);
      std::memmove(&merged[best + 1], &merged[best + 2], (n - best - 3) * sizeof merged[0]);
    }
    --n;
    if (best + 1 < n) look_up_pair(best);
    if (best > 0) look_up_pair(best - 1);
  }
  scratch.ids.resize(n);
}

// Finds the merge of a symbol with the next; false when there is none.
bool Bpe::look_up(BpeScratch::Symbol& symbol, const std::vector<BpeScratch::Symbol>& symbols) const {
  symbol.rank = kNoRank;
  if (symbol.next < 0) return false;
  const PairTable::Merge m = merges_.find(symbol.id, symbols[static_cast<std::size_t>(symbol.next)].id);
  if (m.merged < 0) return false;
  symbol.rank = m.rank;
  symbol.merged = m.merged;
  return true;
}

// The same with a linked list and a heap of candidates. A candidate whose rank is no longer that of its place is stale.
void Bpe::merge_long(BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols;
  std::vector<std::uint64_t>& heap = scratch.heap;
  const auto n = static_cast<std::int32_t>(scratch.ids.size());
  symbols.clear();
  heap.clear();
  for (std::int32_t i = 0; i < n; ++i) {
    symbols.push_back({scratch.ids[static_cast<std::size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1, kNoRank, -1});
  }
  const auto candidate = [&](std::int32_t position) {
    BpeScratch::Symbol& s = symbols[static_cast<std::size_t>(position)];
    if (!look_up(s, symbols)) return false;
    heap.push_back(std::uint64_t{s.rank} << 32 | static_cast<std::uint32_t>(position));
    return true;
  };
  for (std::int32_t i = 0; i < n; ++i) candidate(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto position = static_cast<std::int32_t>(heap.back() & 0xFFFFFFFFu);
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    heap.pop_back();
    BpeScratch::Symbol& left = symbols[static_cast<std::size_t>(position)];
    if (left.rank != rank) continue;
    BpeScratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    left.id = left.merged;
    left.next = right.next;
    right.id = -1;
    right.rank = kNoRank;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = position;
    if (left.previous >= 0 && candidate(left.previous)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (candidate(position)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  scratch.ids.clear();
  for (const BpeScratch::Symbol& s : symbols) {
    if (s.id >= 0) scratch.ids.push_back(s.id);
  }
}

}  // namespace sluice::text
