// Parts of weights for ranks that hold a part of a model: rows and columns of a matrix with its scales, as views.
//
// Called at load time by checkpoint and model. Pure functions on views: a part owns nothing and lives as long as the
// whole does. Decoding a part gives the bits of the same elements of the whole. Throws Error(unsupported) when a part
// is no view, because it begins inside of a block of scales that it leaves, or inside of a byte of packed codes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "moe/parallel.h"
#include "moe/recipe.h"
#include "moe/weights.h"

namespace sluice {

QuantTensor rows_of(const QuantTensor& whole, const Share& rows);
QuantTensor columns_of(const QuantTensor& whole, const Share& cols);
BiasView part_of(const BiasView& whole, const Share& elements);

// `rows` of a matrix whose blocks of scales span several rows, wherever they begin: where that is no view of the scales
// either, `scales` gets a copy of those that are needed, in blocks of fewer rows, and must outlive the part.
QuantTensor rows_of(const QuantTensor& whole, const Share& rows, std::vector<std::byte>& scales);

// Elements that a cut leaves together along either dimension of a weight of this stored format: a group or block of
// scales, and never less than 16.
std::int64_t cut_group(Recipe stored);

// What piece `piece` of [0, n) is when cut between groups. Throws Error(unsupported) when it would be empty, naming
// `what` ("the intermediate size of layer 3's experts"), the numbers of pieces that work, and what the user can do.
Share cut_share(std::int64_t n, std::int64_t group, const Piece& piece, std::string_view what, std::string_view hint);

}  // namespace sluice
