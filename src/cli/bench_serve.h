// The parts of `sluice bench serve`: what is sent (bench_serve_load.cc), how it is measured (bench_serve.cc), how it is
// told (bench_serve_report.cc). Plain data and functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "core/json.h"

namespace sluice::cli {

// One request of the load.
struct LoadItem {
  Json prompt;                     // a string, or a list of token ids
  std::int64_t output_tokens = 0;  // wanted, whatever end tokens say
  double start_seconds = 0;        // earliest, since the begin of the load; 0 = as soon as there is room
};
// From --data, or random ids; deterministic in --seed.
std::vector<LoadItem> make_load(const Options& options);

// What became of it. Times in seconds, since the begin of the load.
struct LoadSample {
  double sent = 0;
  double done = 0;
  std::vector<double> token_times;  // of each part of the stream that brought text
  std::int64_t prompt_tokens = 0;   // as the server counts
  std::int64_t output_tokens = 0;
  std::string error;  // empty = answered in full
};

struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, most = 0;
};
struct LoadReport {
  std::string model;
  std::int64_t completed = 0, failed = 0;
  std::int64_t retries = 0;  // requests that a busy server sent back
  std::int64_t prompt_tokens = 0, output_tokens = 0;
  double seconds = 0;
  Percentiles ttft_ms, tpot_ms, itl_ms, e2e_ms;
  std::string first_error;
};
LoadReport summarise(const std::vector<LoadSample>& samples, double seconds);

void print_report(const LoadReport& report);
Json report_json(const LoadReport& report, const Options& options, const std::vector<LoadSample>& samples);
// Latencies at each percentile, as curves.
std::string report_svg(const LoadReport& report, const std::vector<LoadSample>& samples);

}  // namespace sluice::cli
