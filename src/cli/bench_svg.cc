#include "cli/bench_svg.h"

#include <fmt/core.h>

#include <algorithm>

namespace sluice::cli {
namespace {

// Pixels.
constexpr double kLeft = 60, kTop = 50, kPlotHeight = 240, kBar = 56, kStep = 96, kBottom = 60;

std::string text(double x, double y, const char* anchor, const std::string& words, int size = 13) {
  return fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n", x, y, anchor,
                     size, words);
}

std::string human_us(double us) {
  if (us < 1000) return fmt::format("{:.0f} us", us);
  return us < 1e6 ? fmt::format("{:.1f} ms", us / 1000) : fmt::format("{:.1f} s", us / 1e6);
}

std::string grid(double width) {
  std::string lines;
  for (int percent = 0; percent <= 100; percent += 20) {
    const double y = kTop + kPlotHeight * (1 - percent / 100.0);
    lines += fmt::format("<line x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ccc\"/>\n", kLeft,
                         width - 20, y, y);
    lines += text(kLeft - 8, y + 4, "end", fmt::format("{} %", percent));
  }
  return lines;
}

}  // namespace

std::string bench_svg(const app::MoeBenchResult& r) {
  const double width = kLeft + kStep * static_cast<double>(std::max<std::size_t>(r.points.size(), 3)) + 20;
  const double height = kTop + kPlotHeight + kBottom;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
  svg += text(kLeft, 22, "start",
              fmt::format("{} bf16, {} threads, {}: percent of the floor", r.shape.name, r.threads, r.isa), 14);
  svg += grid(width);
  for (std::size_t i = 0; i < r.points.size(); ++i) {
    const app::MoeBenchPoint& p = r.points[i];
    const double x = kLeft + kStep * (static_cast<double>(i) + 0.5);
    const double bar = kPlotHeight * std::clamp(p.percent_of_floor, 0.0, 100.0) / 100;
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                       x - kBar / 2, kTop + kPlotHeight - bar, kBar, bar, p.memory_bound ? "#3b78b5" : "#d1782f");
    svg += text(x, kTop + kPlotHeight - bar - 6, "middle", human_us(p.median_us), 12);
    svg += text(x, kTop + kPlotHeight + 18, "middle", fmt::format("T = {}", p.tokens));
  }
  svg +=
      text(kLeft, height - 12, "start", "blue: bound by memory, orange: by arithmetic; above the bar: median time", 12);
  return svg + "</svg>\n";
}

}  // namespace sluice::cli
