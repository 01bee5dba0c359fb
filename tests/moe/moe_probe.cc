// Puts src/moe on files, so that the Python tests can compare it with independent implementations.
//   moe_probe activate DIR   spec.json, gate.f32, up.f32 > out.f32
//   moe_probe route DIR      spec.json, logits.f32 [, bias.f32, hash_table.i32, token_ids.i32] > ids.i32, weights.f32
//   moe_probe layer DIR      see moe_probe_layer.cc
//   moe_probe bound K S EXACT   prints gamma and underflow terms of tolerance::dot_bound; EXACT is 0 or 1
#include "moe/moe_probe.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "moe/routing.h"
#include "moe/spec.h"
#include "numerics/tolerance.h"

namespace {

using namespace sluice;
using namespace sluice::probe;

constexpr int kActivations = 8, kMethods = 6;

void run_activate(const Request& request) {
  ActivationSpec spec;
  spec.kind = by_name<ActivationKind>(request.text("activation"), kActivations, activation_name);
  spec.alpha = request.number("alpha");
  spec.beta = request.number("beta");
  spec.limit = request.number("limit");
  spec.linear_beta = request.number("linear_beta");
  const auto gate = read_array<float>(request.path("gate.f32"));
  const auto up = read_array<float>(request.path("up.f32"));
  std::vector<float> out;
  for (std::size_t i = 0; i < up.size(); ++i) out.push_back(activate(spec, gate.at(i), up[i]));
  write_array(request.path("out.f32"), out.data(), out.size());
}

Scoring scoring_of(const std::string& name) {
  if (name == "softmax") return Scoring::softmax;
  if (name == "sigmoid") return Scoring::sigmoid;
  if (name == "sqrt-softplus") return Scoring::sqrt_softplus;
  fail(ErrorCode::usage, "unknown scoring " + name);
}

RoutingSpec routing_spec(const Request& request) {
  RoutingSpec spec;
  spec.method = by_name<RoutingMethod>(request.text("method"), kMethods, routing_name);
  spec.scoring = scoring_of(request.text("scoring"));
  spec.experts = static_cast<std::int32_t>(request.integer("experts"));
  spec.top_k = static_cast<std::int32_t>(request.integer("top_k"));
  spec.groups = static_cast<std::int32_t>(request.integer("groups"));
  spec.top_groups = static_cast<std::int32_t>(request.integer("top_groups"));
  spec.fused_shared = static_cast<std::int32_t>(request.integer("fused_shared"));
  spec.renormalize = request.flag("renormalize");
  spec.renormalize_epsilon = request.number("epsilon");
  spec.routed_scaling_factor = request.number("scaling");
  return spec;
}

void run_route(const Request& request) {
  RoutingSpec spec = routing_spec(request);
  const auto logits = read_array<float>(request.path("logits.f32"));
  const auto bias = read_array<float>(request.path("bias.f32"));
  const auto table = read_array<std::int32_t>(request.path("hash_table.i32"));
  const auto tokens = read_array<std::int32_t>(request.path("token_ids.i32"));
  if (!bias.empty()) spec.correction_bias = bias.data();
  if (!table.empty()) spec.hash_table = table.data();
  spec.hash_vocab = static_cast<std::int64_t>(table.size()) / spec.top_k;
  validate(spec);
  const std::int64_t rows = static_cast<std::int64_t>(logits.size()) / spec.experts;
  std::vector<LogicalId> ids(static_cast<std::size_t>(rows * spec.slots()));
  std::vector<float> weights(ids.size());
  const RouteInput input{dense_view(logits.data(), DType::f32, rows, spec.experts),
                         tokens.empty() ? nullptr : tokens.data(), request.integer("valid_tokens")};
  route_rows(spec, input, {ids.data(), weights.data()}, 0, rows);
  write_array(request.path("ids.i32"), ids.data(), ids.size());
  write_array(request.path("weights.f32"), weights.data(), weights.size());
}

void print_bound(char** words) {
  const tolerance::DotOrder order{std::atoll(words[0]), std::atoll(words[1]), DType::f32, std::atoi(words[2]) != 0};
  std::printf("%.17g %.17g\n", tolerance::gamma(tolerance::rounding_depth(order), 0x1p-24),
              tolerance::underflow_bound(order));
}

int run(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "bound" && argc == 5) {
    print_bound(argv + 2);
    return 0;
  }
  if (argc != 3) fail(ErrorCode::usage, "moe_probe: wrong arguments", "activate|route|layer DIR, or bound K S EXACT");
  const std::string folder = argv[2];
  const Request request{folder, Json::parse_file(folder + "/spec.json")};
  if (command == "activate") run_activate(request);
  if (command == "route") run_route(request);
  if (command == "layer") run_layer(request);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const sluice::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
