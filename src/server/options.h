// How a server is to be run. Plain data, filled by the serve command.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "http/server.h"

namespace sluice::server {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 30000;
  std::string api_key;                               // empty = none is asked for
  std::string served_model_name;                     // empty = the path of the model
  std::vector<std::string> allowed_origins = {"*"};  // whose pages may read answers, as SGLang and vLLM have it
  std::string weight_version = "default";            // told in answers of /generate
  bool sampling_from_model = true;                   // generation_config.json gives defaults
  std::int64_t max_queued_requests = 1024;
  std::int64_t max_queued_tokens = 0;  // 0 = no limit
  double drain_seconds = 30;           // for requests in work after SIGTERM
  double log_seconds = 10;             // between two log lines; 0 = none
  bool metrics = true;                 // GET /metrics
  std::uint64_t seed = 0;              // of requests without one; 0 = of its own
  http::ServerLimits http;
};

}  // namespace sluice::server
