// The routes that tell about the server and its model.
#include <fmt/core.h>
#include <unistd.h>

#include <fstream>

#include "app/version.h"
#include "http/url.h"
#include "server/api_error.h"
#include "server/api_server.h"
#include "server/cpu_time.h"
#include "server/expert_load.h"

namespace sluice::server {
namespace {

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// What every runner said to each kind of layer; layers that got the same answers are one entry.
Json runner_table(const app::OpenedModel& opened) {
  Json::Array kinds;
  std::string last;
  for (std::size_t layer = 0; layer < opened.selections.size(); ++layer) {
    const Selection& selection = opened.selections[layer];
    if (selection.chosen == nullptr) continue;
    const std::string table = describe(selection);
    if (table == last) continue;
    last = table;
    Json::Array candidates;
    for (const Candidate& c : selection.table) {
      candidates.push_back(Json(Json::Object{{"runner", Json(std::string(c.runner->name()))},
                                             {"ok", Json(c.verdict.ok)},
                                             {"reason", Json(c.verdict.reason)}}));
    }
    kinds.push_back(Json(Json::Object{{"first_layer", Json(static_cast<std::int64_t>(layer))},
                                      {"recipe", Json(std::string(recipe_info(opened.problems[layer].recipe).name))},
                                      {"chosen", Json(std::string(selection.chosen->name()))},
                                      {"candidates", Json(std::move(candidates))}}));
  }
  return Json(std::move(kinds));
}

Json stats_json(const engine::EngineStats& e) {
  return Json(Json::Object{{"running", Json(e.running)},
                           {"waiting", Json(e.waiting)},
                           {"preemptions", Json(e.preemptions)},
                           {"generated_tokens", Json(e.generated_tokens)},
                           {"prefill_tokens", Json(e.prefill_tokens)},
                           {"prefix_hit_tokens", Json(e.prefix_hit_tokens)},
                           {"kv_blocks_used", Json(e.kv_blocks_used)},
                           {"kv_blocks_cached", Json(e.kv_blocks_cached)},
                           {"kv_blocks_total", Json(e.kv_blocks_total)}});
}

// What a request finds: its own group's limits. The same numbers without "per_dp_rank" are those of all groups.
Json sizes_of_group(const app::OpenedModel& opened, const engine::EngineStats& stats) {
  const std::int64_t groups = opened.plan.sizes.dp;
  const engine::EngineOptions& own = opened.options.engine;
  return Json(Json::Object{{"max_running_requests", Json(own.max_sequences)},
                           {"max_total_num_tokens", Json(stats.kv_blocks_total / groups * stats.kv_block_tokens)},
                           {"chunked_prefill_size", Json(own.max_batch_tokens)}});
}

}  // namespace

void ApiServer::health(const Exchange& exchange) {
  const bool alive = engine_.state() != EngineThread::State::failed;
  reply(exchange, alive ? 200 : 503, alive ? "{\"status\":\"ok\"}" : "{\"status\":\"failed\"}");
}

void ApiServer::ready(const Exchange& exchange) {
  if (draining_) throw shutting_down();
  if (!served_) throw ApiError(503, "the model is being loaded", "", "loading");
  reply(exchange, 200, "{\"status\":\"ready\"}");
}

Json ApiServer::model_card() const {
  const std::int64_t created = unix_time() - static_cast<std::int64_t>(seconds_since_start());
  return Json(Json::Object{{"id", Json(served_->name)},
                           {"object", "model"},
                           {"created", Json(created)},
                           {"owned_by", "sluice"},
                           {"root", Json(model_->opened.path)},
                           {"parent", Json()},
                           {"max_model_len", Json(served_->longest)}});
}

void ApiServer::models(const Exchange& exchange) {
  reply(exchange, 200, Json(Json::Object{{"object", "list"}, {"data", Json(Json::Array{model_card()})}}).dump());
}

void ApiServer::one_model(const Exchange& exchange) {
  const std::string asked =
      http::percent_decoded(std::string_view(exchange->request().path).substr(std::string_view("/v1/models/").size()));
  std::string name = served_->name;
  while (name.starts_with('/')) name.erase(0, 1);  // a path in a path
  if (asked != served_->name && asked != name) {
    throw ApiError(
        404, fmt::format("the model \"{}\" is not served here; there is \"{}\"", asked.substr(0, 200), served_->name),
        "model", "model_not_found");
  }
  reply(exchange, 200, model_card().dump());
}

void ApiServer::model_info(const Exchange& exchange) {
  const app::ModelFacts& f = model_->facts;
  reply(exchange, 200,
        Json(Json::Object{{"model_path", Json(model_->opened.path)},
                          {"tokenizer_path", Json(model_->opened.path)},
                          {"served_model_name", Json(served_->name)},
                          {"is_generation", Json(true)},
                          {"architecture", Json(f.architecture)},
                          {"parameters", Json(f.parameters)},
                          {"recipe", Json(f.recipe)},
                          {"weight_version", Json(served_->weight_version)},
                          {"max_model_len", Json(served_->longest)}})
            .dump());
}

void ApiServer::server_info(const Exchange& exchange) {
  const app::ModelFacts& f = model_->facts;
  const ParallelSizes& sizes = model_->opened.plan.sizes;
  const engine::EngineStats stats = engine_.stats();
  reply(exchange, 200,
        Json(Json::Object{{"version", Json(app::version_number())},
                          {"model_path", Json(model_->opened.path)},
                          {"served_model_name", Json(served_->name)},
                          {"status", draining_ ? "draining" : "ready"},
                          {"uptime_seconds", Json(seconds_since_start())},
                          {"load_seconds", Json(load_end_ - load_begin_)},
                          {"architecture", Json(f.architecture)},
                          {"device", Json(f.device)},
                          {"recipe", Json(f.recipe)},
                          {"runner", Json(f.runner)},
                          {"runners", runner_table(model_->opened)},
                          {"ranks", Json(f.ranks)},
                          {"tp_size", Json(static_cast<std::int64_t>(sizes.tp))},
                          {"ep_size", Json(static_cast<std::int64_t>(sizes.ep))},
                          {"dp_size", Json(static_cast<std::int64_t>(sizes.dp))},
                          {"moe_a2a_backend", Json(model_->opened.options.a2a)},
                          {"per_dp_rank", sizes_of_group(model_->opened, stats)},
                          {"resident_bytes", Json(f.resident_bytes)},
                          {"context_length", Json(served_->context)},
                          {"max_model_len", Json(served_->longest)},
                          {"max_total_num_tokens", Json(stats.kv_blocks_total * stats.kv_block_tokens)},
                          {"max_running_requests", Json(engine_options_.max_sequences)},
                          {"max_queued_requests", Json(options_.max_queued_requests)},
                          {"max_queued_tokens", Json(options_.max_queued_tokens)},
                          {"chunked_prefill_size", Json(engine_options_.max_batch_tokens)},
                          {"schedule_policy", Json(std::string(engine::schedule_policy_name(engine_options_.policy)))},
                          {"prefix_cache", Json(engine_options_.prefix_cache)},
                          {"batch_invariant", Json(model_->opened.options.row_invariant)},
                          {"engine", stats_json(stats)}})
            .dump());
}

void ApiServer::version(const Exchange& exchange) {
  reply(exchange, 200, Json(Json::Object{{"version", Json(app::version_number())}}).dump());
}

void ApiServer::metrics_page(const Exchange& exchange) {
  if (!options_.metrics) throw ApiError(404, "--enable-metrics is false", "", "not_found");
  metrics_.connections = http_->connections();
  metrics_.open_requests = open_requests();
  metrics_.frontend_cpu_seconds =
      cpu_seconds_of(CLOCK_THREAD_CPUTIME_ID) + workers_.cpu_seconds() + engine_.handover_cpu_seconds();
  metrics_.resident_bytes = resident_bytes();
  reply(exchange, 200,
        prometheus_text(metrics_, engine_.stats(), engine_.expert_load(), served_ ? served_->name : "loading"),
        "text/plain; version=0.0.4; charset=utf-8");
}

void ApiServer::expert_load(const Exchange& exchange) {
  const http::Request& request = exchange->request();
  const bool picture = request.path.ends_with(".svg") || request.query.find("format=svg") != std::string::npos;
  const engine::ExpertLoad load = engine_.expert_load();
  if (picture) return reply(exchange, 200, expert_load_svg(load), "image/svg+xml");
  reply(exchange, 200, expert_load_json(load).dump());
}

}  // namespace sluice::server
