// The single steps of a decoder. Part of decoder.h, which alone uses it.
#pragma once

#include <memory>
#include <string>

#include "text/decoder.h"

namespace sluice::text {

// The step of that type; throws Error(unsupported) when there is none.
std::unique_ptr<const DecoderStep> make_decoder_step(const std::string& type, const Json& json,
                                                     const std::string& where);

// Puts a space between tokens: what happens without any decoder.
std::unique_ptr<const DecoderStep> make_join_step();

}  // namespace sluice::text
