#include "model/quantised_model.h"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "checkpoint/export.h"
#include "checkpoint/scheme_plain.h"

namespace sluice::testing {
namespace {

std::string new_folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "sluice_quantised_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder " + pattern);
  return pattern;
}

}  // namespace

QuantisedModel::QuantisedModel(const std::string& source, const model::Family& family, const std::string& format,
                               std::vector<std::string> include)
    : folder_(new_folder()) {
  const auto checkpoint = ckpt::Checkpoint::open(source);
  const model::ModelConfig config = family.configure(checkpoint->config());
  const ckpt::NameMap names = family.names(config);
  const auto weights = ckpt::plain_scheme().open(*checkpoint, names);
  ckpt::ExportSource from{checkpoint.get(), &names, weights.get(), {}};
  for (const model::BlockSpec& block : config.layers) from.layers.push_back(block.moe());
  ThreadPool pool(1);
  ckpt::ExportOptions options;
  options.target = ckpt::resolve_target({format, "", "ceil", false}, family.name);
  options.include = std::move(include);
  options.pool = &pool;
  ckpt::export_checkpoint(from, folder_, options);
}

QuantisedModel::~QuantisedModel() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace sluice::testing
