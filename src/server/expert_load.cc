#include "server/expert_load.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "server/metrics.h"

namespace sluice::server {
namespace {

// Pixels.
constexpr int kLeft = 60, kTop = 66, kCellHeight = 16, kMostWidth = 1200, kMostCell = 24, kRight = 70, kRankCell = 12;
constexpr int kLeastWidth = 480;  // of the words
constexpr double kDarkest = 3;    // times the mean

std::string colour(double relative) {
  const double shade = std::clamp(relative / kDarkest, 0.0, 1.0);
  const auto mix = [&](int light, int dark) { return static_cast<int>(light + (dark - light) * shade); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(255, 12), mix(255, 44), mix(255, 99));
}

// Cells in a row, each coloured by what it is of their mean, and `note` behind them.
struct Cells {
  std::int32_t layer = 0;
  const char* what = "";
  std::vector<std::int64_t> counts;
  double left = 0, width = 0;
  double note = 0;
};

void append_cells(std::string& svg, const Cells& cells, int y) {
  const std::int64_t total = std::accumulate(cells.counts.begin(), cells.counts.end(), std::int64_t{0});
  const double mean = static_cast<double>(std::max<std::int64_t>(total, 1)) / static_cast<double>(cells.counts.size());
  auto out = std::back_inserter(svg);
  for (std::size_t i = 0; i < cells.counts.size(); ++i) {
    fmt::format_to(out,
                   "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>layer {}, {} {}: "
                   "{}</title></rect>\n",
                   cells.left + cells.width * static_cast<double>(i), y, cells.width, kCellHeight,
                   colour(static_cast<double>(cells.counts[i]) / mean), cells.layer, cells.what, i, cells.counts[i]);
  }
  fmt::format_to(out, "<text x=\"{:.0f}\" y=\"{}\">{:.2f}</text>\n",
                 cells.left + cells.width * static_cast<double>(cells.counts.size()) + 6, y + 12, cells.note);
}

// `ranks_left` is where the cells of ranks begin.
void append_row(std::string& svg, const engine::LayerLoad& layer, int y, double cell, double ranks_left) {
  fmt::format_to(std::back_inserter(svg), "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLeft - 6, y + 12,
                 layer.layer);
  append_cells(svg, {layer.layer, "expert", layer.choices, kLeft, cell, imbalance(layer)}, y);
  if (layer.ranks.empty()) return;
  std::vector<std::int64_t> rows;
  for (const engine::RankLoad& rank : layer.ranks) rows.push_back(rank.total());
  append_cells(svg, {layer.layer, "rank", std::move(rows), ranks_left, kRankCell, rank_imbalance(layer)}, y);
}

Json numbers(const auto& list) {
  Json::Array array;
  for (const auto n : list) array.emplace_back(static_cast<std::int64_t>(n));
  return Json(std::move(array));
}

// Which slots the ranks have and the rows that they computed.
void add_ranks(Json::Object& object, const engine::LayerLoad& layer) {
  std::vector<std::int64_t> slot_rows(layer.expert_of.size(), 0);
  Json::Array ranks;
  for (const engine::RankLoad& rank : layer.ranks) {
    // Pieces of an expert count the same rows.
    std::copy(rank.rows.begin(), rank.rows.end(), slot_rows.begin() + rank.first_slot);
    ranks.push_back(Json(Json::Object{{"first_slot", Json(static_cast<std::int64_t>(rank.first_slot))},
                                      {"slots", Json(static_cast<std::int64_t>(rank.rows.size()))},
                                      {"rows", Json(rank.total())}}));
  }
  object.emplace_back("slot_experts", numbers(layer.expert_of));
  object.emplace_back("slot_rows", numbers(slot_rows));
  object.emplace_back("rank_imbalance", Json(rank_imbalance(layer)));
  object.emplace_back("ranks", Json(std::move(ranks)));
}

}  // namespace

Json expert_load_json(const engine::ExpertLoad& load) {
  Json::Array layers;
  for (const engine::LayerLoad& layer : load.layers) {
    Json::Object object{{"layer", Json(static_cast<std::int64_t>(layer.layer))},
                        {"imbalance", Json(imbalance(layer))},
                        {"choices", numbers(layer.choices)}};
    if (!layer.ranks.empty()) add_ranks(object, layer);
    layers.push_back(Json(std::move(object)));
  }
  return Json(Json::Object{{"tokens", Json(load.tokens)}, {"layers", Json(std::move(layers))}});
}

std::string expert_load_svg(const engine::ExpertLoad& load) {
  std::size_t experts = 1, ranks = 0;
  for (const engine::LayerLoad& layer : load.layers) {
    experts = std::max(experts, layer.choices.size());
    ranks = std::max(ranks, layer.ranks.size());
  }
  const double cell = std::min<double>(kMostCell, static_cast<double>(kMostWidth) / static_cast<double>(experts));
  const double ranks_left = kLeft + cell * static_cast<double>(experts) + kRight;
  const int used = static_cast<int>(ranks_left) + (ranks > 0 ? kRankCell * static_cast<int>(ranks) + kRight : 0);
  const int width = std::max(kLeastWidth, used);
  const int height = kTop + kCellHeight * static_cast<int>(load.layers.size()) + 20;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"20\" font-size=\"14\">Load of experts, {3} tokens</text>\n"
      "<text x=\"{2}\" y=\"38\">rows: layers; columns: experts{5}; on the right: busiest / mean</text>\n"
      "<text x=\"{2}\" y=\"54\">white: never chosen; darkest: {4} times the mean or more</text>\n",
      width, height, kLeft, load.tokens, kDarkest, ranks > 0 ? ", then ranks by rows" : "");
  int y = kTop;
  for (const engine::LayerLoad& layer : load.layers) {
    if (!layer.choices.empty()) append_row(svg, layer, y, cell, ranks_left);
    y += kCellHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::server
