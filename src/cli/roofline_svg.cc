#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/bench_svg.h"

namespace sluice::cli {
namespace {

// Pixels; both axes are logarithmic.
constexpr double kWidth = 900, kHeight = 560, kLeft = 70, kRight = 20, kTop = 50, kBottom = 60;
constexpr double kLeastIntensity = 0.25, kMostIntensity = 8192;  // FLOP a byte
constexpr double kLeastRate = 0.1, kMostRate = 2000;             // TFLOP/s

double x_of(double intensity) {
  const double share = std::log(intensity / kLeastIntensity) / std::log(kMostIntensity / kLeastIntensity);
  return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft - kRight);
}

double y_of(double rate) {
  const double share = std::log(rate / kLeastRate) / std::log(kMostRate / kLeastRate);
  return kHeight - kBottom - std::clamp(share, 0.0, 1.0) * (kHeight - kTop - kBottom);
}

std::string text(double x, double y, const char* anchor, const std::string& words) {
  return fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"{}\" font-size=\"12\">{}</text>\n", x, y, anchor,
                     words);
}

std::string axes() {
  std::string svg;
  for (double rate = 1; rate <= 1000; rate *= 10) {
    svg += fmt::format("<line x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", kLeft,
                       kWidth - kRight, y_of(rate), y_of(rate));
    svg += text(kLeft - 8, y_of(rate) + 4, "end", fmt::format("{:.0f}", rate));
  }
  for (double intensity = 1; intensity <= 4096; intensity *= 4) {
    svg += fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.0f}\" y2=\"{:.0f}\" stroke=\"#eee\"/>\n",
                       x_of(intensity), x_of(intensity), kTop, kHeight - kBottom);
    svg += text(x_of(intensity), kHeight - kBottom + 18, "middle", fmt::format("{:.0f}", intensity));
  }
  svg += text((kLeft + kWidth) / 2, kHeight - kBottom + 38, "middle", "FLOP a byte of active weights and rows");
  return svg + text(kLeft - 8, kTop - 10, "start", "TFLOP/s");
}

std::string roof(Recipe recipe, const char* colour) {
  const double peak = app::floor_tflop_per_s(recipe), knee = peak / app::kFloorTbPerS;
  return fmt::format("<polyline points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\" fill=\"none\" stroke=\"{}\"/>\n",
                     x_of(kLeastIntensity), y_of(kLeastIntensity * app::kFloorTbPerS), x_of(knee), y_of(peak),
                     x_of(kMostIntensity), y_of(peak), colour);
}

const char* colour_of(Recipe recipe) {
  return recipe == Recipe::bf16 ? "#3b78b5" : recipe == Recipe::fp8_block ? "#2e8b57" : "#d1782f";
}

}  // namespace

std::string roofline_svg(const app::GpuMoeResult& r) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg +=
      text(kLeft, 22, "start",
           fmt::format("MoE layers on {}: dots are Sluice (blue bf16, green fp8-block, orange fp8-tensor), rings the "
                       "baseline",
                       r.ceilings.name));
  svg += axes() + roof(Recipe::bf16, colour_of(Recipe::bf16)) + roof(Recipe::fp8_tensor, colour_of(Recipe::fp8_tensor));
  for (const app::GpuMoePoint& p : r.points) {
    const double x = x_of(p.operations / p.bytes);
    if (p.peer_us > 0) {
      // At the same intensity, at the share of the floor that the baseline reached with its own routing.
      const double rate = p.tflop_per_s() * p.median_us / p.floor_us * p.peer_floor_us / p.peer_us;
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"none\" stroke=\"{}\"/>\n", x, y_of(rate),
                         colour_of(p.recipe));
    }
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{} {} T {}: {:.1f} us, {:.0f} %"
        "</title></circle>\n",
        x, y_of(p.tflop_per_s()), colour_of(p.recipe), recipe_info(p.recipe).name, p.shape, p.tokens, p.median_us,
        p.percent_of_floor());
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::cli
