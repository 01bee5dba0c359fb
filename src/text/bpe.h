// Byte-pair encoding of one piece of text, as the `tokenizers` package does it: the pair of the lowest rank is merged
// first, of several the leftmost.
//
// Owned by Tokenizer. Immutable; any number of threads may encode, each with its own BpeScratch. A piece of n symbols
// costs O(n log n).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/pair_table.h"
#include "text/string_table.h"
#include "text/tiktoken.h"
#include "text/vocabulary.h"

namespace sluice::text {

// Memory that encoding reuses from piece to piece. Not thread-safe.
struct BpeScratch {
  struct Symbol {
    std::int32_t id;  // -1 = merged into the symbol before it
    std::int32_t previous;
    std::int32_t next;
    std::uint32_t rank;   // of the merge with the next symbol, kNoRank = none
    std::int32_t merged;  // its result
  };
  std::vector<std::int32_t> ids;
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> heap;  // rank << 32 | position of the left symbol
};

class Bpe {
 public:
  // `model` is the object "model" of tokenizer.json. With `byte_pieces`, encode gets raw bytes where the file's rules
  // speak of the characters that stand for them (byte_alphabet.h).
  // Throws Error(bad_input) for an inconsistent vocabulary or merge list, Error(unsupported) for what is missing here.
  Bpe(const Json& model, const std::string& where, bool byte_pieces);

  // From tokens with ranks, for byte pieces: two neighbours merge when their bytes together are a token, that of the
  // lowest rank first, and a piece that is a token is never taken apart. Throws Error(bad_input) for a token or a rank
  // that is there twice.
  Bpe(const std::vector<RankedToken>& tokens, const std::string& where);

  // Appends the ids of a piece: valid UTF-8, or any bytes with `byte_pieces`. Throws Error(bad_input) past 2^30
  // bytes, and for an unknown character when the unknown token is not in the vocabulary.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<std::int32_t>& out) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Unknown {
    bool pending = false;
  };
  struct RankedPair {
    std::int32_t left, right, rank;
  };

  void append_cuts(const RankedToken& token, std::vector<RankedPair>& pairs) const;
  void read_merges(const Json& merges, const std::string& where);
  void add_merge(std::string_view left, std::string_view right, std::uint32_t rank, const std::string& where);
  void prepare_bytes();
  void add_symbol(std::string_view character, std::int32_t id, BpeScratch& scratch, Unknown& unknown) const;
  void add_unknown(std::string_view character, BpeScratch& scratch, Unknown& unknown) const;
  bool add_fallback(std::string_view character, BpeScratch& scratch) const;
  void symbols_of(std::string_view piece, BpeScratch& scratch) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;
  bool look_up(BpeScratch::Symbol& symbol, const std::vector<BpeScratch::Symbol>& symbols) const;

  Vocabulary vocabulary_;
  PairTable merges_;
  std::string where_;
  std::string unknown_token_;
  bool has_unknown_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  bool byte_pieces_ = false;
  bool byte_fallback_ = false;
  std::int32_t unknown_id_ = -1;
  std::array<std::int32_t, 256> byte_ids_{};      // of the character that stands for each byte
  std::array<std::int32_t, 256> fallback_ids_{};  // of the tokens <0x00> to <0xFF>
  StringTable whole_pieces_;                      // bytes of a token -> id, when merges may be skipped
};

}  // namespace sluice::text
