#include "server/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "server/json_text.h"

namespace sluice::server {
namespace {

class Page {
 public:
  explicit Page(const std::string& model) : label_("model_name=" + json_quoted(model)) {}

  void gauge(const char* name, const char* help, double value) { single(name, "gauge", help, value); }
  void counter(const char* name, const char* help, double value) { single(name, "counter", help, value); }
  void head(const char* name, const char* type, const char* help) {
    text_ += fmt::format("# HELP sluice:{0} {2}\n# TYPE sluice:{0} {1}\n", name, type, help);
  }
  void row(const char* name, const std::string& more, double value) {
    fmt::format_to(std::back_inserter(text_), "sluice:{}{{{}{}{}}} {}\n", name, label_, more.empty() ? "" : ",", more,
                   value);
  }
  void histogram(const char* name, const char* help, const Histogram& h) {
    h.append_to(text_, std::string("sluice:") + name, help, label_);
  }
  std::string take() { return std::move(text_); }

 private:
  void single(const char* name, const char* type, const char* help, double value) {
    head(name, type, help);
    row(name, "", value);
  }

  std::string label_;
  std::string text_;
};

std::vector<double> time_bounds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160};
}
std::vector<double> token_bounds() {
  return {1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
}

void add_requests(Page& p, const Metrics& m, const engine::EngineStats& e) {
  p.gauge("num_running_reqs", "Sequences that the engine works on.", static_cast<double>(e.running));
  p.gauge("num_queue_reqs", "Sequences that wait.", static_cast<double>(e.waiting));
  p.gauge("num_queue_tokens", "Prompt tokens of sequences that wait.", static_cast<double>(e.waiting_tokens));
  p.gauge("num_open_requests", "Requests of the API in work.", static_cast<double>(m.open_requests));
  p.gauge("num_connections", "Open connections.", static_cast<double>(m.connections));
  p.counter("num_requests_total", "Requests for generation that were read and found good.",
            static_cast<double>(m.requests));
  p.head("num_finished_total", "counter", "Sequences that have ended, by reason.");
  for (const auto& [reason, count] : m.finished) {
    p.row("num_finished_total", "finish_reason=\"" + reason + "\"", static_cast<double>(count));
  }
  p.head("http_responses_total", "counter", "Answers, by status.");
  for (const auto& [status, count] : m.responses) {
    p.row("http_responses_total", fmt::format("status=\"{}\"", status), static_cast<double>(count));
  }
}

void add_tokens(Page& p, const Metrics& m, const engine::EngineStats& e) {
  const double total = static_cast<double>(std::max<std::int64_t>(e.kv_blocks_total, 1));
  const double prompts = static_cast<double>(std::max<std::int64_t>(e.prompt_tokens, 1));
  p.counter("prompt_tokens_total", "Tokens of prompts.", static_cast<double>(m.prompt_tokens_total));
  p.counter("generation_tokens_total", "Tokens generated.", static_cast<double>(m.generated_tokens_total));
  p.counter("cached_tokens_total", "Tokens of prompts that the prefix cache had.",
            static_cast<double>(m.cached_tokens_total));
  p.gauge("gen_throughput", "Tokens generated a second, over the last log interval.", m.generation_rate);
  p.gauge("token_usage", "Share of the KV cache that running sequences hold.",
          static_cast<double>(e.kv_blocks_used) / total);
  p.gauge("num_used_tokens", "Tokens of the KV cache that running sequences hold.",
          static_cast<double>(e.kv_blocks_used * e.kv_block_tokens));
  p.gauge("num_cached_tokens", "Tokens of the KV cache that the prefix cache alone holds.",
          static_cast<double>(e.kv_blocks_cached * e.kv_block_tokens));
  p.gauge("max_total_num_tokens", "Capacity of the KV cache, in tokens.",
          static_cast<double>(e.kv_blocks_total * e.kv_block_tokens));
  p.gauge("cache_hit_rate", "Share of prompt tokens that the prefix cache had.",
          static_cast<double>(e.prefix_hit_tokens) / prompts);
  p.counter("num_preemptions_total", "Sequences that gave up their blocks.", static_cast<double>(e.preemptions));
}

void add_steps(Page& p, const Metrics& m, const engine::EngineStats& e) {
  p.head("engine_steps_total", "counter", "Steps of the engine.");
  p.row("engine_steps_total", "kind=\"prefill\"", static_cast<double>(e.prefill_steps));
  p.row("engine_steps_total", "kind=\"decode\"", static_cast<double>(e.decode_steps));
  p.head("engine_step_seconds_total", "counter", "Where the time of steps went.");
  p.row("engine_step_seconds_total", "part=\"schedule\"", e.time.schedule);
  p.row("engine_step_seconds_total", "part=\"execute\"", e.time.execute);
  p.row("engine_step_seconds_total", "part=\"sample\"", e.time.sample);
  p.row("engine_step_seconds_total", "part=\"output\"", e.time.output);
  p.counter("frontend_cpu_seconds_total",
            "Processor time of all threads for HTTP, JSON and text, and of the engine's between its steps.",
            m.frontend_cpu_seconds);
  p.counter("answers_written_aside_total",
            "Answers with many log-probabilities, or parts of them, written by a thread of their own.",
            static_cast<double>(m.written_aside));
  p.gauge("resident_memory_bytes", "Memory of this process.", m.resident_bytes);
}

void add_ranks(Page& p, const engine::ExpertLoad& load) {
  p.head("expert_rank_rows_total", "counter", "Rows that the experts of a rank have computed.");
  for (const engine::LayerLoad& layer : load.layers) {
    for (std::size_t r = 0; r < layer.ranks.size(); ++r) {
      p.row("expert_rank_rows_total", fmt::format("layer=\"{}\",rank=\"{}\"", layer.layer, r),
            static_cast<double>(layer.ranks[r].total()));
    }
  }
  p.head("expert_rank_imbalance", "gauge", "Rows of a layer's busiest rank, as a multiple of the mean.");
  for (const engine::LayerLoad& layer : load.layers) {
    p.row("expert_rank_imbalance", fmt::format("layer=\"{}\"", layer.layer), rank_imbalance(layer));
  }
}

void add_experts(Page& p, const engine::ExpertLoad& load) {
  p.head("expert_tokens_total", "counter", "How often routing chose an expert.");
  for (const engine::LayerLoad& layer : load.layers) {
    for (std::size_t e = 0; e < layer.choices.size(); ++e) {
      p.row("expert_tokens_total", fmt::format("layer=\"{}\",expert=\"{}\"", layer.layer, e),
            static_cast<double>(layer.choices[e]));
    }
  }
  p.head("expert_imbalance", "gauge", "Load of a layer's busiest expert, as a multiple of the mean.");
  for (const engine::LayerLoad& layer : load.layers) {
    p.row("expert_imbalance", fmt::format("layer=\"{}\"", layer.layer), imbalance(layer));
  }
  if (!load.layers.empty() && !load.layers.front().ranks.empty()) add_ranks(p, load);
}

}  // namespace

void Histogram::observe(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<std::size_t>(at - bounds_.begin())];
  sum_ += value;
  ++count_;
}

void Histogram::append_to(std::string& out, const std::string& name, const std::string& help,
                          const std::string& label) const {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  std::int64_t below = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    fmt::format_to(std::back_inserter(out), "{}_bucket{{{},le=\"{}\"}} {}\n", name, label, bounds_[i], below);
  }
  fmt::format_to(std::back_inserter(out),
                 "{0}_bucket{{{3},le=\"+Inf\"}} {1}\n{0}_sum{{{3}}} {2}\n{0}_count{{{3}}} {1}\n", name, count_, sum_,
                 label);
}

Metrics::Metrics()
    : time_to_first_token(time_bounds()),
      inter_token(time_bounds()),
      end_to_end(time_bounds()),
      queue_time(time_bounds()),
      prompt_tokens(token_bounds()),
      generated_tokens(token_bounds()) {}

namespace {

double most_by_mean(const std::vector<std::int64_t>& counts) {
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (total == 0) return 0;
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  return static_cast<double>(most) * static_cast<double>(counts.size()) / static_cast<double>(total);
}

}  // namespace

double imbalance(const engine::LayerLoad& layer) { return most_by_mean(layer.choices); }

double rank_imbalance(const engine::LayerLoad& layer) {
  std::vector<std::int64_t> rows;
  for (const engine::RankLoad& rank : layer.ranks) rows.push_back(rank.total());
  return most_by_mean(rows);
}

std::string prometheus_text(const Metrics& m, const engine::EngineStats& e, const engine::ExpertLoad& load,
                            const std::string& model) {
  Page p(model);
  add_requests(p, m, e);
  add_tokens(p, m, e);
  p.histogram("time_to_first_token_seconds", "From a request to its first token.", m.time_to_first_token);
  p.histogram("inter_token_latency_seconds", "Between two tokens of a sequence.", m.inter_token);
  p.histogram("e2e_request_latency_seconds", "From a request to the end of its answer.", m.end_to_end);
  p.histogram("queue_time_seconds", "From a request to the first step that works on it.", m.queue_time);
  p.histogram("prompt_tokens_histogram", "Tokens of a prompt.", m.prompt_tokens);
  p.histogram("generation_tokens_histogram", "Tokens of an answer.", m.generated_tokens);
  add_steps(p, m, e);
  add_experts(p, load);
  return p.take();
}

}  // namespace sluice::server
