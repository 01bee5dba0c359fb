#include "cli/commands.h"
#include "core/error.h"

namespace sluice::cli {

int bench_moe_command(const Options&) { fail(ErrorCode::unsupported, "bench moe is not wired yet"); }

}  // namespace sluice::cli
