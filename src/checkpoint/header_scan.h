// A quick reader of headers and indexes as writers of safetensors make them: one pass, no document in between. With ten
// thousand tensors a general JSON document takes a tenth of the time of loading them.
//
// Called by safetensors.cc and index.cc before the general way. Whatever is unusual (escapes, other types than
// expected, fields too many, missing or twice, offsets that don't fit) is left to that, which has the messages: nothing
// here fails. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "checkpoint/index.h"
#include "checkpoint/safetensors.h"

namespace sluice::ckpt {

// Tensors in the order of the text, with offsets from the start of the data, and metadata. `type_of` gives the type of
// a name of the format, if it has one. Returns false when the text is not plain; `header` is then of no use.
using TypeOf = std::optional<DType> (*)(std::string_view name);
bool scan_header(std::string_view text, std::uint64_t data_bytes, TypeOf type_of, SafetensorsHeader& header);

// "weight_map" of an index. Shard names are any plain text.
bool scan_index(std::string_view text, WeightMap& map);

}  // namespace sluice::ckpt
