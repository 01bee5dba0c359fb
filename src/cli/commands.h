// The commands. Each returns the exit code (architecture section 6) or throws Error.
#pragma once

#include "cli/options.h"

namespace sluice::cli {

int run_command(const Options& options);
int chat_command(const Options& options);
int serve_command(const Options& options);
int verify_command(const Options& options);
int verify_against_command(const Options& options);  // verify --against
int layer_command(const Options& options);
int eval_gsm8k_command(const Options& options);
int eval_remote_command(const Options& options);  // eval gsm8k --base-url
int bench_moe_command(const Options& options);
int bench_moe_gpu_command(const Options& options);  // its --device cuda
int bench_serve_command(const Options& options);
int check_command(const Options& options);
int explain_command(const Options& options);
int quantize_command(const Options& options);
int doctor_command(const Options& options);

}  // namespace sluice::cli
