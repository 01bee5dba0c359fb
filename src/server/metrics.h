// Counters and histograms of the server, and their Prometheus text. Names follow SGLang's ("sluice:" instead of
// "sglang:"), so that a dashboard needs one replacement.
//
// Owned by the server; the loop's thread only. What the engine counts comes in as a snapshot.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/stats.h"

namespace sluice::server {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void observe(double value);
  // `label`: model_name="...", in every sample.
  void append_to(std::string& out, const std::string& name, const std::string& help, const std::string& label) const;
  double sum() const { return sum_; }
  std::int64_t count() const { return count_; }

 private:
  std::vector<double> bounds_;        // upper ones, ascending
  std::vector<std::int64_t> counts_;  // [bounds + 1]
  double sum_ = 0;
  std::int64_t count_ = 0;
};

struct Metrics {
  Metrics();

  Histogram time_to_first_token;  // seconds, all of them
  Histogram inter_token;
  Histogram end_to_end;
  Histogram queue_time;
  Histogram prompt_tokens;  // of a request
  Histogram generated_tokens;
  std::map<std::string, std::int64_t> finished;  // sequences, by reason
  std::map<int, std::int64_t> responses;         // by HTTP status
  std::int64_t requests = 0;
  std::int64_t prompt_tokens_total = 0;
  std::int64_t generated_tokens_total = 0;
  std::int64_t cached_tokens_total = 0;
  std::int64_t written_aside = 0;  // answers, or parts of them, that a worker wrote

  // Set before the text is made.
  std::int64_t connections = 0;
  std::int64_t open_requests = 0;
  double frontend_cpu_seconds = 0;  // of all threads that read requests and write answers; between steps, the engine's
  double generation_rate = 0;       // tokens per second, between the last two log lines
  double resident_bytes = 0;
};

// The whole page.
std::string prometheus_text(const Metrics& metrics, const engine::EngineStats& engine, const engine::ExpertLoad& load,
                            const std::string& model);

// Largest share of an expert times the number of experts: 1 = all equal. 0 when nothing was routed.
double imbalance(const engine::LayerLoad& layer);
// The same of the rows that ranks computed; 0 for one rank.
double rank_imbalance(const engine::LayerLoad& layer);

}  // namespace sluice::server
