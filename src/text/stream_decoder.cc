#include "text/stream_decoder.h"

#include "text/tokenizer.h"

namespace sluice::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special), run_(tokenizer.decoder_) {}

std::string StreamDecoder::push(std::int32_t id) {
  if (!tokenizer_->vocabulary().contains(id)) return {};
  const AddedToken* added = tokenizer_->added_.find(id);
  if (skip_special_ && added != nullptr && added->skipped) return {};
  return run_.push(tokenizer_->decoder_token(id));
}

std::string StreamDecoder::flush() { return run_.finish(); }

}  // namespace sluice::text
