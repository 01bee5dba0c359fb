#include "dispatch/moe_layer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "moe/stages.h"

namespace sluice {
namespace {

std::size_t bytes_of(std::int64_t elements) {
  return Workspace::rounded_bytes(static_cast<std::size_t>(elements) * sizeof(float));
}

void require(bool present, const char* part) {
  if (!present)
    fail(ErrorCode::usage, std::string("a MoE layer was built without its ") + part, "all parts but biases");
}

void check_shared(const MoeInput& input, const TensorView& out) {
  if (out.dtype != DType::f32 || input.hidden_f32.rows != input.hidden.rows) {
    fail(ErrorCode::usage, "MoE layer with a shared expert: output or f32 input of another type or size",
         "f32 with a row for each token");
  }
}

void check_input(const LayerSpec& layer, DispatchKind dispatch, const MoeInput& input, const TensorView& out) {
  const std::int64_t tokens = input.hidden.rows;
  if (dispatch != DispatchKind::local && (out.dtype != DType::f32 || out.row_stride != out.cols)) {
    fail(ErrorCode::usage,
         "MoE layer over ranks: output in " + std::string(dtype_name(out.dtype)) + " with rows " +
             std::to_string(out.row_stride) + " apart",
         "f32, row after row");
  }
  if (input.hidden.cols != layer.width() || out.rows != tokens || out.cols != layer.width()) {
    fail(ErrorCode::usage, "MoE layer: input and output do not fit the layer",
         "[T, " + std::to_string(layer.width()) + "] both");
  }
  if (input.ids != nullptr) return;
  if (input.hidden_f32.rows != tokens || input.hidden_f32.cols != layer.hidden) {
    fail(ErrorCode::usage, "MoE layer: the router's input does not fit the layer",
         "[T, " + std::to_string(layer.hidden) + "] f32");
  }
}

}  // namespace

MoeLayer::MoeLayer(MoeLayerParts parts) : parts_(std::move(parts)) {
  require(parts_.backend != nullptr, "backend");
  require(parts_.runner != nullptr, "runner");
  require(parts_.experts != nullptr, "experts");
  require(parts_.dispatcher != nullptr, "dispatcher");
  require(parts_.router != nullptr, "router");
  validate(parts_.problem.layer);
  if (parts_.shared && parts_.shared->partial && parts_.dispatcher->kind() != DispatchKind::allreduce) {
    fail(ErrorCode::usage, "a MoE layer with a piece of a shared expert, whose output nobody sums over ranks",
         "the whole shared expert, or the sum over all ranks");
  }
}

std::size_t MoeLayer::workspace_bytes(std::int64_t tokens) const {
  const LayerSpec& layer = parts_.problem.layer;
  const Dispatcher& dispatcher = *parts_.dispatcher;
  const std::int64_t routes = tokens * layer.routing.slots();
  const std::size_t choice = bytes_of(tokens * layer.routing.experts) + 2 * bytes_of(routes);
  const std::size_t router =
      parts_.backend->workspace_bytes(tokens, 0, std::max<std::int64_t>(layer.hidden, layer.routing.experts));
  const std::size_t dispatch = dispatcher.workspace_bytes(tokens, layer.routing.slots(), layer.width());
  const std::size_t experts = parts_.runner->workspace_bytes(parts_.problem, dispatcher.most_rows(tokens));
  const std::size_t shared = parts_.shared ? parts_.shared->workspace_bytes(*parts_.backend, tokens) : 0;
  return choice + std::max(router, dispatch + std::max(experts, shared));
}

MoeRoutes MoeLayer::route_tokens(const MoeInput& input, Workspace& workspace, Stream stream) const {
  const TraceSpan span(input.trace, "route");
  const RoutingSpec& spec = parts_.problem.layer.routing;
  const std::int64_t tokens = input.hidden.rows;
  auto* ids = workspace.take<LogicalId>(tokens * spec.slots());
  auto* weights = workspace.take<float>(tokens * spec.slots());
  const TensorView logits = dense_view(workspace.take<float>(tokens * spec.experts), DType::f32, tokens, spec.experts);
  if (tokens == 0) return {ids, weights};
  {
    const Workspace::Scope scope(workspace);
    LinearArgs router;
    router.x = input.hidden_f32;
    router.weight = parts_.router.get();
    router.bias = parts_.router_bias.as<float>();
    router.y = logits;
    parts_.backend->linear(router, workspace, stream);
  }
  if (input.stages != nullptr) input.stages->record(stage::kRouterLogits, logits, nullptr);
  parts_.backend->route(spec, {logits, input.token_ids, -1}, {ids, weights}, stream);
  return {ids, weights};
}

Dispatched MoeLayer::dispatch(const MoeInput& input, const MoeRoutes& routes, Workspace& workspace,
                              Stream stream) const {
  const TraceSpan span(input.trace, "dispatch");
  const std::int32_t slots = parts_.problem.layer.routing.slots();
  return parts_.dispatcher->dispatch({input.hidden, routes.ids, routes.weights, slots}, workspace, stream);
}

void MoeLayer::run_experts(const MoeInput& input, const MoeRoutes& routes, const TensorView& out, Workspace& workspace,
                           Stream stream) const {
  const Workspace::Scope scope(workspace);
  const Dispatched local = dispatch(input, routes, workspace, stream);
  RunArgs run;
  run.hidden = local.hidden;
  run.quantized = local.quantized;
  run.ids = local.ids;
  run.weights = local.weights;
  run.top_k = local.top_k;
  run.slots = local.slots;
  run.routes = local.routes;
  if (!local.routes) run.sum = local.sum ? local.sum : out;
  run.workspace = &workspace;
  run.stream = stream;
  run.stages = input.stages;
  {
    const TraceSpan span(input.trace, "experts", "tokens", local.hidden.rows);
    parts_.runner->run(*parts_.experts, run);
  }
  combine(input, out, workspace, stream);
}

bool MoeLayer::overlaps() const {
  return parts_.shared && !parts_.shared->partial && parts_.dispatcher->kind() == DispatchKind::alltoall;
}

void MoeLayer::combine(const MoeInput& input, const TensorView& out, Workspace& workspace, Stream stream) const {
  const TraceSpan span(input.trace, "combine");
  const SharedExpert* shared = input.routed_only ? nullptr : parts_.shared.get();
  const auto add = [&] {
    shared->add(*parts_.backend, input.hidden, input.hidden_f32, out, workspace, stream, input.stages);
  };
  if (shared != nullptr) check_shared(input, out);
  if (shared != nullptr && shared->partial) add();
  SharedExpert::Output output;
  parts_.dispatcher->combine(
      out,
      [&] {
        if (shared == nullptr || !overlaps()) return;
        output = shared->run(*parts_.backend, input.hidden, input.hidden_f32, workspace, stream, input.stages);
      },
      workspace, stream);
  if (shared == nullptr || shared->partial) return;
  if (overlaps()) return SharedExpert::add_output(*parts_.backend, output, out, stream);
  add();
}

MoeRoutes MoeLayer::forward(const MoeInput& input, const TensorView& out, Workspace& workspace, Stream stream) const {
  check_input(parts_.problem.layer, parts_.dispatcher->kind(), input, out);
  MoeRoutes routes{input.ids, input.weights};
  if (input.ids == nullptr) routes = route_tokens(input, workspace, stream);

  run_experts(input, routes, out, workspace, stream);
  return routes;
}

}  // namespace sluice
