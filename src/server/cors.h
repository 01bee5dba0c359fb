// Which pages of other origins a browser lets read answers (Cross-Origin Resource Sharing). Pure functions, called by
// the router.
#pragma once

#include <string>
#include <vector>

#include "http/message.h"

namespace sluice::server {

// A browser's question before a request that it would not send unasked.
bool is_preflight(const http::Request& request);

// Headers for an answer; none without an Origin, or for one that is not allowed. `allowed` holds origins or "*".
http::Headers cors_headers(const http::Request& request, const std::vector<std::string>& allowed);

}  // namespace sluice::server
