#include "moe/layout/layout_runner.h"

#include <string>
#include <utility>

#include "moe/layout/reader.h"
#include "moe/reference_runner.h"

namespace sluice::layout {
namespace {

class LayoutRunner final : public Runner {
 public:
  LayoutRunner(LayoutKind kind, ThreadPool* pool)
      : kind_(kind), name_("reference/" + std::string(layout_name(kind))), reference_(make_reference_runner(pool)) {}

  std::string_view name() const override { return name_; }

  Verdict supports(const Problem& problem) const override {
    const Verdict verdict = fits(kind_, problem.layer, problem.recipe);
    return verdict.ok ? reference_->supports(problem) : verdict;
  }

  bool takes_quantized_rows(const Problem& problem) const override { return reference_->takes_quantized_rows(problem); }

  std::unique_ptr<PreparedExperts> prepare(const Problem& problem, ExpertWeights&& weights) const override {
    return reference_->prepare(problem, read_layout(prepare_layout(kind_, weights)));
  }
  void reload(PreparedExperts& prepared, ExpertWeights&& weights) const override {
    reference_->reload(prepared, read_layout(prepare_layout(kind_, weights)));
  }
  std::size_t workspace_bytes(const Problem& problem, std::int64_t tokens) const override {
    return reference_->workspace_bytes(problem, tokens);
  }
  void run(const PreparedExperts& prepared, const RunArgs& args) const override { reference_->run(prepared, args); }

 private:
  LayoutKind kind_;
  std::string name_;
  std::unique_ptr<Runner> reference_;
};

}  // namespace

std::unique_ptr<Runner> make_layout_runner(LayoutKind kind, ThreadPool* pool) {
  return std::make_unique<LayoutRunner>(kind, pool);
}

}  // namespace sluice::layout
