#include "text/pre_tokenizer.h"

#include "core/error.h"
#include "text/fields.h"
#include "text/pre_tokenizer_steps.h"

namespace sluice::text {
namespace {

constexpr std::size_t kMaxSteps = 64;  // each takes some stack while it hands its pieces on

using Steps = std::vector<std::unique_ptr<const PreTokenizer::Step>>;

void run_from(const Steps& steps, std::size_t first, PreTokenizer::Piece piece, PreTokenizerScratch& scratch,
              PreTokenizer::Sink sink) {
  if (piece.text.empty()) return;
  if (first == steps.size()) return sink(piece);
  steps[first]->apply(piece, scratch, [&](PreTokenizer::Piece p) { run_from(steps, first + 1, p, scratch, sink); });
}

}  // namespace

PreTokenizer::PreTokenizer(const Json& json, const std::string& where) {
  read(json, where);
  if (byte_pieces_) steps_.pop_back();
}

void PreTokenizer::read(const Json& json, const std::string& where) {
  if (json.is_null()) return;
  const std::string type = type_field(json, where);
  if (type == "Sequence") {
    const Json::Array& list = array_field(json, "pretokenizers", where);
    for (std::size_t i = 0; i < list.size(); ++i) read(list[i], place(place(where, "pretokenizers"), i));
    return;
  }
  if (steps_.size() >= kMaxSteps) {
    fail(ErrorCode::bad_input, where + ": too many steps", "at most " + std::to_string(kMaxSteps));
  }
  steps_.push_back(make_pre_tokenizer_step(type, json, where));
  byte_pieces_ = type == "ByteLevel";
  if (byte_pieces_) steps_.push_back(make_byte_alphabet_step());
}

void PreTokenizer::run(Piece text, PreTokenizerScratch& scratch, Sink sink) const {
  run_from(steps_, 0, text, scratch, sink);
}

}  // namespace sluice::text
