// SGLang's POST /generate: what its requests mean, and its answers. Called by the router.
#pragma once

#include <memory>

#include "core/json.h"
#include "server/job.h"
#include "server/sampling_fields.h"
#include "server/served_model.h"

namespace sluice::server {

Ask read_generate(const Json& body, const ServedModel& model, Random& random);
std::unique_ptr<Reply> generate_reply(const Job& job, const ServedModel& model);

}  // namespace sluice::server
