// How the load of a model's experts is spread, as JSON and as a picture. Pure functions of a snapshot.
#pragma once

#include <string>

#include "core/json.h"
#include "engine/stats.h"

namespace sluice::server {

// Counts and imbalance of each layer; of a run over ranks also the rows that slots and ranks computed.
Json expert_load_json(const engine::ExpertLoad& load);
// A row for each layer, a cell for each expert: white = never chosen, dark = three times the mean or more. Then
// a cell for each rank.
std::string expert_load_svg(const engine::ExpertLoad& load);

}  // namespace sluice::server
