#include "cli/flags_serve.h"

#include <cstdint>

namespace sluice::cli {
namespace {

constexpr std::int64_t kMostRequests = 1 << 16;
constexpr std::int64_t kMostQueuedTokens = std::int64_t{1} << 36;

void add_server_flags(Options& o, std::vector<Flag>& t) {
  t.push_back({"--host", "ADDRESS", "serve", "Address to listen at; 0.0.0.0 = all of this machine", &o.host});
  t.push_back({"--port", "N", "serve", "Port to listen at; 0 = any free one", Count{&o.port, 0, 65535}});
  t.push_back({"--api-key", "KEY", "serve eval.gsm8k bench.serve",
               "serve: what clients must send as a bearer token, but for /health; else: what to send", &o.api_key});
  t.push_back({"--served-model-name", "NAME", "serve", "Name of the model in requests; default: its path",
               &o.served_model_name});
  t.push_back({"--weight-version", "NAME", "serve", "Told by /generate and /model_info, for clients that compare",
               &o.weight_version});
  t.push_back({"--allowed-origins", "LIST", "serve",
               "Whose pages may read answers in a browser (CORS): * (any), none, or origins separated by commas",
               &o.allowed_origins});
  t.push_back({"--max-queued-requests", "N", "serve",
               "Sequences that may wait; further ones are answered with 429 at once",
               Count{&o.max_queued_requests, 0, kMostRequests}});
  t.push_back({"--max-queued-tokens", "N", "serve", "Prompt tokens that may wait, likewise; 0 = no limit",
               Count{&o.max_queued_tokens, 0, kMostQueuedTokens}});
  t.push_back({"--sampling-defaults", "NAME", "serve",
               "What a request gets that does not say: model (generation_config.json) or openai",
               &o.sampling_defaults});
  t.push_back({"--log-level", "NAME", "serve", "debug, info, warning or error", &o.log_level});
  t.push_back({"--log-interval,--decode-log-interval", "SECONDS", "serve", "Between two lines about the load; 0 = none",
               Real{&o.log_interval, 0, 1e6}});
  t.push_back({"--enable-metrics", "", "serve", "Serve /metrics, the default here", &o.enable_metrics});
  t.push_back({"--seed,--random-seed", "N", "serve", "Seed of requests that bring none; 0 = different at every start",
               Count{&o.seed, INT64_MIN, INT64_MAX}});
}

void add_http_flags(Options& o, std::vector<Flag>& t) {
  t.push_back({"--max-connections", "N", "serve", "Open connections; further ones are closed at once",
               Count{&o.max_connections, 1, 1 << 20}});
  t.push_back({"--max-body-bytes", "N", "serve", "Largest body of a request", Count{&o.max_body_bytes, 1024, 1 << 30}});
  t.push_back({"--max-header-bytes", "N", "serve", "Largest request line and headers together",
               Count{&o.max_header_bytes, 1024, 64 << 10}});
  t.push_back({"--max-unsent-bytes", "N", "serve", "Of a stream that its client does not read, before it is ended",
               Count{&o.max_unsent_bytes, 1024, 1 << 30}});
  t.push_back({"--request-timeout", "SECONDS", "serve", "From the first byte of a request to its last",
               Real{&o.request_timeout, 0.01, 1e6}});
  t.push_back({"--timeout-keep-alive,--keep-alive-timeout", "SECONDS", "serve", "Between two requests of a connection",
               Real{&o.keep_alive_timeout, 0.01, 1e6}});
  t.push_back({"--write-timeout", "SECONDS", "serve", "Until a client takes the next byte of an answer",
               Real{&o.write_timeout, 0.01, 1e6}});
  t.push_back({"--drain-timeout", "SECONDS", "serve", "For requests in work after the first SIGTERM",
               Real{&o.drain_timeout, 0, 1e6}});
}

void add_client_flags(Options& o, std::vector<Flag>& t) {
  t.push_back(
      {"--base-url", "URL", "eval.gsm8k", "Ask this OpenAI-compatible server instead of loading a model", &o.base_url});
  t.push_back({"--base-url", "URL", "bench.serve", "The server to measure", &o.base_url, true});
  t.push_back({"--model", "NAME", "bench.serve", "Name of the model there; default: the first", &o.model});
  t.push_back(
      {"--data", "FILE", "bench.serve",
       "Prompts with answers, one JSON object with `question` and `answer` a line, or ShareGPT's JSON; default: "
       "random ids of --input-length",
       &o.data});
  t.push_back({"--num-prompts", "N", "bench.serve", "Requests to send", Count{&o.num_prompts, 1, 1 << 24}});
  t.push_back({"--input-length,--random-input-len", "N", "bench.serve", "Tokens of a prompt, without --data",
               Count{&o.input_length, 1, 1 << 24}});
  t.push_back({"--output-length,--random-output-len", "N", "bench.serve", "Tokens of an answer",
               Count{&o.output_length, 1, 1 << 24}});
  t.push_back({"--length-range,--random-range-ratio", "X", "bench.serve",
               "Lengths are drawn from (1 - X) to (1 + X) times the given ones", Real{&o.length_range, 0, 1}});
  t.push_back({"--request-rate", "X", "bench.serve",
               "Requests a second, Poisson arrivals; 0 = as --max-concurrency lets", Real{&o.request_rate, 0, 1e9}});
  t.push_back({"--max-concurrency", "N", "bench.serve", "Requests open at the same time",
               Count{&o.max_concurrency, 1, kMostRequests}});
  t.push_back(
      {"--seed", "N", "bench.serve", "Seed of lengths, prompts and arrivals", Count{&o.seed, INT64_MIN, INT64_MAX}});
}

}  // namespace

void add_serve_flags(Options& options, std::vector<Flag>& table) {
  add_server_flags(options, table);
  add_http_flags(options, table);
  add_client_flags(options, table);
}

}  // namespace sluice::cli
