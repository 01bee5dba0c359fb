// sluice bench moe: one MoE layer against the limit of this machine, as a table, CSV, JSON and a picture.
#include <fmt/core.h>

#include <optional>

#include "app/bench_moe.h"
#include "app/wiring.h"
#include "cli/bench_svg.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/file.h"

namespace sluice::cli {
namespace {

constexpr std::int64_t kMostTokens = 1 << 18;

int list_shapes() {
  fmt::print("{:<18} {:>8} {:>6} {:>8} {:>13} {}\n", "shape", "experts", "top k", "hidden", "intermediate", "");
  for (const app::MoeShape& s : app::moe_shapes()) {
    fmt::print("{:<18} {:>8} {:>6} {:>8} {:>13} {}\n", s.name, s.local_experts, s.top_k, s.hidden, s.intermediate,
               s.note);
  }
  return 0;
}

app::MoeBenchOptions bench_options(const Options& o) {
  if (o.device != "cpu") {
    fail(ErrorCode::usage, "--device " + o.device, "cpu, cuda or cuda:N");
  }
  app::MoeBenchOptions bench;
  bench.shape = app::moe_shape(o.shape);
  bench.isa = app::isa_for(o.isa);
  if (o.recipe != "auto") {
    const std::optional<Recipe> recipe = recipe_from_name(o.recipe);
    if (!recipe) fail(ErrorCode::usage, "--recipe " + o.recipe, "bf16, fp8-block, nvfp4-w4a16 or another recipe");
    bench.recipe = *recipe;
  }
  bench.threads = thread_count(o.threads);
  if (o.tokens.empty()) return bench;
  bench.tokens.clear();
  for (const std::string& text : o.tokens) {
    bench.tokens.push_back(0);
    set_value(Count{&bench.tokens.back(), 1, kMostTokens}, text, "--tokens");
  }
  return bench;
}

void print_table(const app::MoeBenchResult& r) {
  fmt::print("{} experts, top {}, H {}, I {}; {}, runner cpu, {}, {} threads; {} of packed weights\n",
             r.shape.local_experts, r.shape.top_k, r.shape.hidden, r.shape.intermediate, recipe_info(r.recipe).name,
             r.machine, r.threads, human_bytes(static_cast<double>(r.resident_bytes)));
  fmt::print("{:>7} {:>8} {:>11} {:>11} {:>8} {:>9} {:>10} {:>11} {:>11} {:>8} {:>9}\n", "tokens", "experts", "time us",
             "floor us", "GB/s", "GFLOP/s", "read GB/s", "peak GF/s", "bound by", "percent", "rel error");
  for (const app::MoeBenchPoint& p : r.points) {
    fmt::print("{:>7} {:>8.1f} {:>11.1f} {:>11.1f} {:>8.1f} {:>9.1f} {:>10.1f} {:>11.1f} {:>11} {:>7.0f}% {:>9.1e}\n",
               p.tokens, p.active_experts, p.median_us, p.floor_us, p.gb_per_s, p.gflop_per_s, p.read_gb_per_s,
               p.peak_gflop_per_s, p.memory_bound ? "memory" : "arithmetic", p.percent_of_floor, p.error);
  }
  fmt::print("time: median; floor: max(bytes / read, operations / peak), both measured between the repetitions\n");
}

void print_csv(const app::MoeBenchResult& r) {
  fmt::print(
      "shape,tokens,active_experts,median_us,min_us,floor_us,gb_per_s,gflop_per_s,read_gb_per_s,peak_gflop_per_s,"
      "percent_of_floor,error\n");
  for (const app::MoeBenchPoint& p : r.points) {
    fmt::print("{},{},{:.2f},{:.2f},{:.2f},{:.2f},{:.3f},{:.3f},{:.3f},{:.3f},{:.2f},{:.3e}\n", r.shape.name, p.tokens,
               p.active_experts, p.median_us, p.min_us, p.floor_us, p.gb_per_s, p.gflop_per_s, p.read_gb_per_s,
               p.peak_gflop_per_s, p.percent_of_floor, p.error);
  }
}

Json to_json(const app::MoeBenchResult& r) {
  Json::Array points;
  for (const app::MoeBenchPoint& p : r.points) {
    points.push_back(Json(Json::Object{{"tokens", Json(p.tokens)},
                                       {"active_experts", Json(p.active_experts)},
                                       {"repetitions", Json(p.repetitions)},
                                       {"median_us", Json(p.median_us)},
                                       {"min_us", Json(p.min_us)},
                                       {"floor_us", Json(p.floor_us)},
                                       {"gb_per_s", Json(p.gb_per_s)},
                                       {"gflop_per_s", Json(p.gflop_per_s)},
                                       {"read_gb_per_s", Json(p.read_gb_per_s)},
                                       {"peak_gflop_per_s", Json(p.peak_gflop_per_s)},
                                       {"percent_of_floor", Json(p.percent_of_floor)},
                                       {"error", Json(p.error)},
                                       {"checked_rows", Json(p.checked_rows)}}));
  }
  return Json(Json::Object{{"shape", Json(r.shape.name)},
                           {"recipe", Json(recipe_info(r.recipe).name)},
                           {"runner", "cpu"},
                           {"machine", Json(r.machine)},
                           {"isa", Json(r.isa)},
                           {"threads", Json(r.threads)},
                           {"error_bound", Json(r.error_bound)},
                           {"points", Json(points)}});
}

}  // namespace

int bench_moe_command(const Options& options) {
  if (options.shape == "help") return list_shapes();
  if (options.device.rfind("cuda", 0) == 0) return bench_moe_gpu_command(options);
  Terminal terminal(options.quiet);
  const app::MoeBenchResult result = app::bench_moe(bench_options(options), terminal.progress());
  options.csv ? print_csv(result) : print_table(result);
  if (!options.json.empty()) write_json(options.json, to_json(result));
  if (!options.svg.empty()) write_file(options.svg, bench_svg(result));
  return 0;
}

}  // namespace sluice::cli
