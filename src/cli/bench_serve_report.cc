#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "cli/bench_serve.h"

namespace sluice::cli {
namespace {

constexpr double kMs = 1e3;

// Pixels.
constexpr double kLeft = 70, kTop = 50, kWidth = 560, kHeight = 260, kBottom = 70;

// The latencies that samples are made of, in milliseconds.
struct Latencies {
  std::vector<double> ttft, tpot, itl, e2e;
};

Latencies latencies_of(const std::vector<LoadSample>& samples) {
  Latencies out;
  for (const LoadSample& s : samples) {
    if (!s.error.empty() || s.token_times.empty()) continue;
    const std::vector<double>& t = s.token_times;
    out.ttft.push_back((t.front() - s.sent) * kMs);
    out.e2e.push_back((s.done - s.sent) * kMs);
    if (s.output_tokens > 1) {
      out.tpot.push_back((t.back() - t.front()) * kMs / static_cast<double>(s.output_tokens - 1));
    }
    for (std::size_t i = 1; i < t.size(); ++i) out.itl.push_back((t[i] - t[i - 1]) * kMs);
  }
  for (std::vector<double>* list : {&out.ttft, &out.tpot, &out.itl, &out.e2e}) std::sort(list->begin(), list->end());
  return out;
}

// Of ascending values, by linear interpolation.
double at_share(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - static_cast<double>(low));
}

Percentiles percentiles(const std::vector<double>& sorted) {
  Percentiles p;
  if (sorted.empty()) return p;
  p.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
  p.p50 = at_share(sorted, 0.5);
  p.p90 = at_share(sorted, 0.9);
  p.p99 = at_share(sorted, 0.99);
  p.most = sorted.back();
  return p;
}

Json percentiles_json(const Percentiles& p) {
  return Json(Json::Object{
      {"mean", Json(p.mean)}, {"p50", Json(p.p50)}, {"p90", Json(p.p90)}, {"p99", Json(p.p99)}, {"max", Json(p.most)}});
}

void print_line(const char* name, const Percentiles& p) {
  fmt::print("{:<28} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}\n", name, p.mean, p.p50, p.p90, p.p99, p.most);
}

std::string curve(const std::vector<double>& sorted, double most, const char* colour, const char* name, int row) {
  std::string points;
  for (int percent = 0; percent <= 100; ++percent) {
    const double value = at_share(sorted, percent / 100.0);
    fmt::format_to(std::back_inserter(points), "{:.1f},{:.1f} ", kLeft + kWidth * percent / 100.0,
                   kTop + kHeight * (1 - value / most));
  }
  return fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n<text x=\"{:.0f}\" y=\"{:.0f}\" "
      "fill=\"{}\">{}</text>\n",
      points, colour, kLeft + 10, kTop + 16.0 + 16 * row, colour, name);
}

}  // namespace

LoadReport summarise(const std::vector<LoadSample>& samples, double seconds) {
  LoadReport r;
  r.seconds = seconds;
  for (const LoadSample& s : samples) {
    if (!s.error.empty()) {
      if (r.failed++ == 0) r.first_error = s.error;
      continue;
    }
    ++r.completed;
    r.prompt_tokens += s.prompt_tokens;
    r.output_tokens += s.output_tokens;
  }
  const Latencies l = latencies_of(samples);
  r.ttft_ms = percentiles(l.ttft);
  r.tpot_ms = percentiles(l.tpot);
  r.itl_ms = percentiles(l.itl);
  r.e2e_ms = percentiles(l.e2e);
  return r;
}

void print_report(const LoadReport& r) {
  fmt::print("{}: {} requests answered, {} failed, {} sent again, in {:.2f} s\n", r.model, r.completed, r.failed,
             r.retries, r.seconds);
  fmt::print("{:.2f} requests/s, {:.0f} prompt tokens/s, {:.0f} generated tokens/s\n\n",
             static_cast<double>(r.completed) / r.seconds, static_cast<double>(r.prompt_tokens) / r.seconds,
             static_cast<double>(r.output_tokens) / r.seconds);
  fmt::print("{:<28} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "milliseconds", "mean", "p50", "p90", "p99", "max");
  print_line("time to first token", r.ttft_ms);
  print_line("time per output token", r.tpot_ms);
  print_line("between parts of a stream", r.itl_ms);
  print_line("whole request", r.e2e_ms);
}

Json report_json(const LoadReport& r, const Options& o, const std::vector<LoadSample>& samples) {
  Json::Array requests;
  for (const LoadSample& s : samples) {
    requests.push_back(Json(Json::Object{{"sent", Json(s.sent)},
                                         {"first_token", s.token_times.empty() ? Json() : Json(s.token_times.front())},
                                         {"done", Json(s.done)},
                                         {"prompt_tokens", Json(s.prompt_tokens)},
                                         {"output_tokens", Json(s.output_tokens)},
                                         {"error", s.error.empty() ? Json() : Json(s.error)}}));
  }
  return Json(Json::Object{{"base_url", Json(o.base_url)},
                           {"model", Json(r.model)},
                           {"request_rate", Json(o.request_rate)},
                           {"max_concurrency", Json(o.max_concurrency)},
                           {"seed", Json(o.seed)},
                           {"completed", Json(r.completed)},
                           {"failed", Json(r.failed)},
                           {"retries", Json(r.retries)},
                           {"seconds", Json(r.seconds)},
                           {"prompt_tokens", Json(r.prompt_tokens)},
                           {"output_tokens", Json(r.output_tokens)},
                           {"requests_per_second", Json(static_cast<double>(r.completed) / r.seconds)},
                           {"output_tokens_per_second", Json(static_cast<double>(r.output_tokens) / r.seconds)},
                           {"ttft_ms", percentiles_json(r.ttft_ms)},
                           {"tpot_ms", percentiles_json(r.tpot_ms)},
                           {"itl_ms", percentiles_json(r.itl_ms)},
                           {"e2e_ms", percentiles_json(r.e2e_ms)},
                           {"requests", Json(std::move(requests))}});
}

std::string report_svg(const LoadReport& r, const std::vector<LoadSample>& samples) {
  const Latencies l = latencies_of(samples);
  const double most = std::max({r.ttft_ms.most, r.tpot_ms.most, r.itl_ms.most, 1e-3});
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kLeft + kWidth + 30, kTop + kHeight + kBottom);
  svg += fmt::format(
      "<text x=\"{}\" y=\"24\" font-size=\"14\">{} requests, {:.0f} generated tokens/s: milliseconds at "
      "each percentile</text>\n",
      kLeft, r.completed, static_cast<double>(r.output_tokens) / r.seconds);
  for (int i = 0; i <= 4; ++i) {
    const double y = kTop + kHeight * (1 - i / 4.0);
    svg += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ccc\"/>\n<text x=\"{3}\" "
        "y=\"{4:.1f}\" text-anchor=\"end\">{5:.3g}</text>\n",
        kLeft, kLeft + kWidth, y, kLeft - 6, y + 4, most * i / 4);
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{} %</text>\n", kLeft + kWidth * i / 4.0,
                       kTop + kHeight + 18, 25 * i);
  }
  svg += curve(l.ttft, most, "#3b78b5", "time to first token", 0);
  svg += curve(l.tpot, most, "#d1782f", "time per output token", 1);
  svg += curve(l.itl, most, "#4c9a4c", "between parts of a stream", 2);
  return svg + "</svg>\n";
}

}  // namespace sluice::cli
