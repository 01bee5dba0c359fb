// sluice bench moe --device cuda: MoE layers on a GPU against its limits, as a table, CSV, JSON and a roofline picture.
#include <fmt/core.h>

#include <cstdio>

#include "app/bench_moe_gpu.h"
#include "app/wiring.h"
#include "cli/bench_svg.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/report.h"
#include "core/error.h"
#include "core/file.h"

namespace sluice::cli {
namespace {

constexpr std::int64_t kMostTokens = 1 << 18;
// Those that `--shape all` stands for: the ones that other software was timed with.
constexpr std::string_view kGpuShapes[] = {"mixtral-8x7b", "qwen3-30b", "qwen3-235b", "deepseek-v3-rank",
                                           "gpt-oss-120b"};
constexpr Recipe kGpuRecipes[] = {Recipe::bf16, Recipe::fp8_block, Recipe::fp8_tensor};

app::GpuMoeOptions gpu_options(const Options& o) {
  app::GpuMoeOptions bench;
  bench.device = app::cuda_index(o.device);
  bench.threads = thread_count(o.threads);
  if (o.shape == "all") {
    for (const std::string_view name : kGpuShapes) bench.shapes.push_back(app::moe_shape(name));
  } else {
    bench.shapes.push_back(app::moe_shape(o.shape));
  }
  if (o.recipe == "all") bench.recipes.assign(std::begin(kGpuRecipes), std::end(kGpuRecipes));
  if (o.recipe != "all" && o.recipe != "auto") {
    const std::optional<Recipe> recipe = recipe_from_name(o.recipe);
    if (!recipe) fail(ErrorCode::usage, "--recipe " + o.recipe, "bf16, fp8-block, fp8-tensor or all");
    bench.recipes = {*recipe};
  }
  if (!o.tokens.empty()) bench.tokens.clear();
  for (const std::string& text : o.tokens) {
    bench.tokens.push_back(0);
    set_value(Count{&bench.tokens.back(), 1, kMostTokens}, text, "--tokens");
  }
  if (!o.baseline.empty()) bench.peers = app::read_peers(o.baseline);
  return bench;
}

void print_ceilings(const cuda::GpuCeilings& c) {
  fmt::print(
      "{}: reads {:.2f} TB/s, copies {:.2f} TB/s, products {:.0f} TFLOP/s bf16, {:.0f} e4m3; an empty kernel takes "
      "{:.2f} us by this method\n",
      c.name, c.read_tb_per_s, c.copy_tb_per_s, c.bf16_tflop_per_s, c.fp8_tflop_per_s, c.empty_us);
  fmt::print("floors: {:.2f} TB/s, {:.0f} TFLOP/s bf16, {:.0f} fp8\n", app::kFloorTbPerS,
             app::floor_tflop_per_s(Recipe::bf16), app::floor_tflop_per_s(Recipe::fp8_block));
  fmt::print("{:<11} {:<17} {:>6} {:>6} {:>10} {:>9} {:>5} {:>2} {:>6} {:>8} {:>9} {:>7} {:>9} {:>8} {}\n", "recipe",
             "shape", "tokens", "active", "time us", "floor us", "%", "", "TB/s", "TFLOP/s", "peer us", "faster",
             "row-inv.", "error", "kernel");
}

void print_point(const app::GpuMoePoint& p) {
  fmt::print(
      "{:<11} {:<17} {:>6} {:>6.0f} {:>10.1f} {:>9.1f} {:>5.0f} {:>2} {:>6.2f} {:>8.0f} {:>9.1f} {:>7.2f} {:>9.1f} "
      "{:>8.1e} "
      "{}\n",
      recipe_info(p.recipe).name, p.shape, p.tokens, p.active_experts, p.median_us, p.floor_us, p.percent_of_floor(),
      p.memory_bound ? "M" : "C", p.tb_per_s(), p.tflop_per_s(), p.peer_us, p.speedup(), p.invariant_us, p.error,
      p.kernel);
  std::fflush(stdout);
}

void print_csv_head(const cuda::GpuCeilings& c) {
  fmt::print(
      "# {}, read {:.3f} TB/s, copy {:.3f} TB/s, bf16 {:.0f} TFLOP/s, e4m3 {:.0f} TFLOP/s, empty kernel {:.2f} us\n",
      c.name, c.read_tb_per_s, c.copy_tb_per_s, c.bf16_tflop_per_s, c.fp8_tflop_per_s, c.empty_us);
  fmt::print(
      "recipe,shape,tokens,active_experts,median_us,min_us,floor_us,percent_of_floor,tb_per_s,tflop_per_s,peer_us,"
      "speedup,error,route_us,finalize_us,row_invariant_us,kernel\n");
}

void print_csv_point(const app::GpuMoePoint& p) {
  fmt::print(
      "{},{},{},{:.0f},{:.2f},{:.2f},{:.2f},{:.2f},{:.3f},{:.1f},{:.1f},{:.3f},{:.2e},{:.2f},{:.2f},{:.2f},\"{}\"\n",
      recipe_info(p.recipe).name, p.shape, p.tokens, p.active_experts, p.median_us, p.min_us, p.floor_us,
      p.percent_of_floor(), p.tb_per_s(), p.tflop_per_s(), p.peer_us, p.speedup(), p.error, p.route_us, p.finalize_us,
      p.invariant_us, p.kernel);
  std::fflush(stdout);
}

Json to_json(const app::GpuMoeResult& r) {
  Json::Array points;
  for (const app::GpuMoePoint& p : r.points) {
    points.push_back(Json(Json::Object{{"recipe", Json(recipe_info(p.recipe).name)},
                                       {"shape", Json(p.shape)},
                                       {"tokens", Json(p.tokens)},
                                       {"active_experts", Json(p.active_experts)},
                                       {"repetitions", Json(p.repetitions)},
                                       {"median_us", Json(p.median_us)},
                                       {"min_us", Json(p.min_us)},
                                       {"route_us", Json(p.route_us)},
                                       {"finalize_us", Json(p.finalize_us)},
                                       {"row_invariant_us", Json(p.invariant_us)},
                                       {"floor_us", Json(p.floor_us)},
                                       {"percent_of_floor", Json(p.percent_of_floor())},
                                       {"tb_per_s", Json(p.tb_per_s())},
                                       {"tflop_per_s", Json(p.tflop_per_s())},
                                       {"peer_us", p.peer_us > 0 ? Json(p.peer_us) : Json()},
                                       {"speedup", p.peer_us > 0 ? Json(p.speedup()) : Json()},
                                       {"error", Json(p.error)},
                                       {"checked_rows", Json(p.checked_rows)},
                                       {"kernel", Json(p.kernel)}}));
  }
  const cuda::GpuCeilings& c = r.ceilings;
  return Json(Json::Object{{"device", Json(c.name)},
                           {"read_tb_per_s", Json(c.read_tb_per_s)},
                           {"copy_tb_per_s", Json(c.copy_tb_per_s)},
                           {"bf16_tflop_per_s", Json(c.bf16_tflop_per_s)},
                           {"fp8_tflop_per_s", Json(c.fp8_tflop_per_s)},
                           {"empty_kernel_us", Json(c.empty_us)},
                           {"points", Json(points)}});
}

}  // namespace

int bench_moe_gpu_command(const Options& options) {
  const app::GpuMoeResult result = app::bench_moe_gpu(
      gpu_options(options), options.csv ? print_csv_head : print_ceilings, options.csv ? print_csv_point : print_point);
  if (!options.json.empty()) write_json(options.json, to_json(result));
  if (!options.svg.empty()) write_file(options.svg, roofline_svg(result));
  return 0;
}

}  // namespace sluice::cli
