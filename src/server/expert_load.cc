#include "server/expert_load.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "server/metrics.h"

namespace sluice::server {
namespace {

// Pixels.
constexpr int kLeft = 60, kTop = 66, kCellHeight = 16, kMostWidth = 1200, kMostCell = 24, kRight = 70;
constexpr int kLeastWidth = 480;  // of the words
constexpr double kDarkest = 3;    // times the mean

std::string colour(double relative) {
  const double shade = std::clamp(relative / kDarkest, 0.0, 1.0);
  const auto mix = [&](int light, int dark) { return static_cast<int>(light + (dark - light) * shade); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(255, 12), mix(255, 44), mix(255, 99));
}

void append_row(std::string& svg, const engine::LayerLoad& layer, int y, double cell) {
  const std::int64_t total = std::accumulate(layer.choices.begin(), layer.choices.end(), std::int64_t{0});
  const double mean = static_cast<double>(std::max<std::int64_t>(total, 1)) / static_cast<double>(layer.choices.size());
  auto out = std::back_inserter(svg);
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLeft - 6, y + 12, layer.layer);
  for (std::size_t e = 0; e < layer.choices.size(); ++e) {
    fmt::format_to(out,
                   "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>layer {}, expert {}: "
                   "{}</title></rect>\n",
                   kLeft + cell * static_cast<double>(e), y, cell, kCellHeight,
                   colour(static_cast<double>(layer.choices[e]) / mean), layer.layer, e, layer.choices[e]);
  }
  fmt::format_to(out, "<text x=\"{:.0f}\" y=\"{}\">{:.2f}</text>\n",
                 kLeft + cell * static_cast<double>(layer.choices.size()) + 6, y + 12, imbalance(layer));
}

}  // namespace

Json expert_load_json(const engine::ExpertLoad& load) {
  Json::Array layers;
  for (const engine::LayerLoad& layer : load.layers) {
    Json::Array choices;
    for (const std::int64_t n : layer.choices) choices.emplace_back(n);
    layers.push_back(Json(Json::Object{{"layer", Json(static_cast<std::int64_t>(layer.layer))},
                                       {"imbalance", Json(imbalance(layer))},
                                       {"choices", Json(std::move(choices))}}));
  }
  return Json(Json::Object{{"tokens", Json(load.tokens)}, {"layers", Json(std::move(layers))}});
}

std::string expert_load_svg(const engine::ExpertLoad& load) {
  std::size_t experts = 1;
  for (const engine::LayerLoad& layer : load.layers) experts = std::max(experts, layer.choices.size());
  const double cell = std::min<double>(kMostCell, static_cast<double>(kMostWidth) / static_cast<double>(experts));
  const int width = std::max(kLeastWidth, kLeft + static_cast<int>(cell * static_cast<double>(experts)) + kRight);
  const int height = kTop + kCellHeight * static_cast<int>(load.layers.size()) + 20;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"20\" font-size=\"14\">Load of experts, {3} tokens</text>\n"
      "<text x=\"{2}\" y=\"38\">rows: layers; columns: experts; on the right: busiest expert / mean</text>\n"
      "<text x=\"{2}\" y=\"54\">white: never chosen; darkest: {4} times the mean or more</text>\n",
      width, height, kLeft, load.tokens, kDarkest);
  int y = kTop;
  for (const engine::LayerLoad& layer : load.layers) {
    if (!layer.choices.empty()) append_row(svg, layer, y, cell);
    y += kCellHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::server
