// Every refusal of validate() names its field.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "moe/spec.h"

namespace sluice {
namespace {

RoutingSpec good(RoutingMethod method) {
  RoutingSpec spec;
  spec.method = method;
  spec.experts = 16;
  spec.top_k = method == RoutingMethod::top1_sigmoid ? 1 : 4;
  return spec;
}

const float kBias[16] = {};
const std::int32_t kTable[8] = {0, 1, 2, 3, 3, 2, 1, 15};
const std::int32_t kTwice[8] = {0, 1, 2, 3, 3, 2, 3, 0};
const std::int32_t kOutside[8] = {0, 1, 2, 16, 3, 2, 1, 0};

struct Refusal {
  RoutingMethod method;
  std::string field;
  std::function<void(RoutingSpec&)> spoil;
};

const std::vector<Refusal> kRefusals = {
    {RoutingMethod::score_topk, "experts", [](RoutingSpec& s) { s.experts = 0; }},
    {RoutingMethod::score_topk, "top_k", [](RoutingSpec& s) { s.top_k = 0; }},
    {RoutingMethod::score_topk, "top_k", [](RoutingSpec& s) { s.top_k = 17; }},
    {RoutingMethod::score_topk, "fused_shared", [](RoutingSpec& s) { s.fused_shared = -1; }},
    {RoutingMethod::score_topk, "groups", [](RoutingSpec& s) { s.groups = 2; }},
    {RoutingMethod::score_topk, "epsilon", [](RoutingSpec& s) { s.renormalize_epsilon = -1.0f; }},
    {RoutingMethod::score_topk, "scaling", [](RoutingSpec& s) { s.routed_scaling_factor = INFINITY; }},
    {RoutingMethod::top1_sigmoid, "top_k", [](RoutingSpec& s) { s.top_k = 2; }},
    {RoutingMethod::topk_softmax, "correction_bias", [](RoutingSpec& s) { s.correction_bias = kBias; }},
    {RoutingMethod::grouped_max, "correction_bias", [](RoutingSpec& s) { s.correction_bias = kBias; }},
    {RoutingMethod::grouped_top2, "groups", [](RoutingSpec& s) { s.groups = 3; }},
    {RoutingMethod::grouped_top2, "groups", [](RoutingSpec& s) { s.groups = 16, s.top_groups = 8; }},
    {RoutingMethod::grouped_top2, "top_groups", [](RoutingSpec& s) { s.groups = 4, s.top_groups = 5; }},
    {RoutingMethod::grouped_max, "top_k", [](RoutingSpec& s) { s.groups = 8, s.top_groups = 1; }},
    {RoutingMethod::hash, "hash_table", [](RoutingSpec& s) { s.hash_vocab = 2; }},
    {RoutingMethod::hash, "hash_vocab", [](RoutingSpec& s) { s.hash_table = kTable; }},
    {RoutingMethod::hash, "hash_table of token 1", [](RoutingSpec& s) { s.hash_table = kTwice, s.hash_vocab = 2; }},
    {RoutingMethod::hash, "hash_table of token 0", [](RoutingSpec& s) { s.hash_table = kOutside, s.hash_vocab = 2; }},
};

TEST(ValidateRouting, RefusalsNameTheField) {
  for (const Refusal& r : kRefusals) {
    RoutingSpec spec = good(r.method);
    r.spoil(spec);
    try {
      validate(spec);
      ADD_FAILURE() << routing_name(r.method) << ": no refusal for " << r.field;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_NE(std::string(error.what()).find(r.field), std::string::npos) << error.what();
    }
  }
}

TEST(ValidateRouting, AcceptsWhatModelsUse) {
  EXPECT_NO_THROW(validate(good(RoutingMethod::score_topk)));
  RoutingSpec v3 = good(RoutingMethod::grouped_top2);
  v3.experts = 256, v3.top_k = 8, v3.groups = 8, v3.top_groups = 4, v3.routed_scaling_factor = 2.5f;
  v3.scoring = Scoring::sigmoid, v3.renormalize = true, v3.fused_shared = 1;
  EXPECT_NO_THROW(validate(v3));
  EXPECT_EQ(v3.slots(), 9);
  EXPECT_EQ(v3.total_experts(), 257);
  RoutingSpec hash = good(RoutingMethod::hash);
  hash.hash_table = kTable, hash.hash_vocab = 2;
  EXPECT_NO_THROW(validate(hash));
}

struct LayerRefusal {
  std::string field;
  std::function<void(LayerSpec&)> spoil;
};

const std::vector<LayerRefusal> kLayerRefusals = {
    {"hidden", [](LayerSpec& l) { l.hidden = 0; }},
    {"intermediate", [](LayerSpec& l) { l.intermediate = -1; }},
    {"expert_width", [](LayerSpec& l) { l.expert_width = -8; }},
    {"weight_on_input", [](LayerSpec& l) { l.weight_on_input = true; }},
    {"top_k", [](LayerSpec& l) { l.routing.top_k = 0; }},
    {"limit",
     [](LayerSpec& l) {
       l.activation = {ActivationKind::swiglu_step, 1.0f, 1.0f, 0.0f};
     }},
    {"limit",
     [](LayerSpec& l) {
       l.activation = {ActivationKind::swiglu_oai, 1.0f, 1.0f, NAN};
     }},
    {"beta",
     [](LayerSpec& l) {
       l.activation = {ActivationKind::situ, 1.0f, 0.0f};
     }},
};

TEST(ValidateLayer, RefusalsNameTheField) {
  for (const LayerRefusal& r : kLayerRefusals) {
    LayerSpec layer;
    layer.hidden = 64;
    layer.intermediate = 32;
    layer.routing = good(RoutingMethod::score_topk);
    EXPECT_NO_THROW(validate(layer));
    r.spoil(layer);
    try {
      validate(layer);
      ADD_FAILURE() << "no refusal for " << r.field;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(r.field), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace sluice
