#include "moe/selection.h"

#include <algorithm>

#include "core/error.h"

namespace sluice {
namespace {

std::string names(const std::vector<const Runner*>& runners) {
  std::string list;
  for (const Runner* runner : runners) list += (list.empty() ? "" : ", ") + std::string(runner->name());
  return list.empty() ? "none is registered" : list;
}

void check_names(const std::vector<const Runner*>& runners, std::string_view wanted) {
  for (std::size_t i = 0; i < runners.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (runners[i]->name() != runners[j]->name()) continue;
      fail(ErrorCode::usage, "runner " + std::string(runners[i]->name()) + " is registered twice", "distinct names");
    }
  }
  const auto has_name = [&](const Runner* runner) { return runner->name() == wanted; };
  if (wanted == "auto" || std::any_of(runners.begin(), runners.end(), has_name)) return;
  fail(ErrorCode::usage, "there is no MoE runner \"" + std::string(wanted) + "\"", "auto, " + names(runners));
}

std::string problem_text(const Problem& problem) {
  const bool cuda = problem.device.kind == DeviceKind::cuda;
  return "recipe " + std::string(recipe_info(problem.recipe).name) + ", activation " +
         std::string(activation_name(problem.layer.activation.kind)) + ", device " + (cuda ? "cuda" : "cpu");
}

std::string fitting(const std::vector<const Runner*>& runners, const Problem& problem) {
  std::string list;
  for (const Runner* runner : runners) {
    if (runner->supports(problem).ok) list += (list.empty() ? "" : ", ") + std::string(runner->name());
  }
  return list;
}

// What would work: another runner, or the f32 recipe, which takes weights of any format.
std::string advice(const std::vector<const Runner*>& runners, Problem problem) {
  const std::string same = fitting(runners, problem);
  if (!same.empty()) return "what would work: " + same;
  problem.recipe = Recipe::f32;
  const std::string f32 = fitting(runners, problem);
  return f32.empty() ? "choose another device" : "what would work: recipe f32 on " + f32;
}

}  // namespace

Selection select_runner(const std::vector<const Runner*>& runners, const Problem& problem, std::string_view wanted) {
  check_names(runners, wanted);
  Selection selection;
  for (const Runner* runner : runners) {
    selection.table.push_back({runner, runner->supports(problem)});
    const bool acceptable = wanted == "auto" || runner->name() == wanted;
    if (selection.chosen == nullptr && acceptable && selection.table.back().verdict.ok) selection.chosen = runner;
  }
  if (selection.chosen != nullptr) return selection;
  const std::string who =
      wanted == "auto" ? "no MoE runner fits " : "MoE runner " + std::string(wanted) + " cannot run ";
  fail(ErrorCode::unsupported, who + problem_text(problem), "one of these:\n" + describe(selection),
       advice(runners, problem));
}

std::string describe(const Selection& selection) {
  std::size_t width = 0;
  for (const Candidate& c : selection.table) width = std::max(width, c.runner->name().size());
  std::string text;
  for (const Candidate& c : selection.table) {
    std::string line(c.runner->name());
    line.resize(width + 2, ' ');
    line += c.verdict.ok ? "yes" : "no ";
    const std::string note = c.verdict.ok && c.runner == selection.chosen ? "chosen" : c.verdict.reason;
    if (!note.empty()) line.append("  ").append(note);
    text.append(line).append("\n");
  }
  return text;
}

}  // namespace sluice
