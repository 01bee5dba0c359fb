// sluice verify --against: a model's predictions beside those of another version of it.
#include <fmt/core.h>

#include "app/calibrate.h"
#include "app/compare.h"
#include "cli/commands.h"
#include "cli/report.h"
#include "cli/session.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

constexpr std::int64_t kMaxTokens = 512;  // of a text

Json to_json(const app::ModelDistance& d) {
  return Json(Json::Object{{"tokens", Json(d.tokens)},
                           {"mean_kl", Json(d.mean_kl)},
                           {"max_kl", Json(d.max_kl)},
                           {"mean_abs_logprob_difference", Json(d.mean_logprob)},
                           {"p99_abs_logprob_difference", Json(d.p99_logprob)},
                           {"same_top_token", Json(d.same_top_token)}});
}

app::LoadedModel load_reference(const Options& options, Terminal& terminal) {
  app::LoadOptions load;
  load.isa = options.isa;
  load.threads = load_options(options).threads;
  return app::load_model(app::open_model(options.against, load, terminal.log()), terminal.progress(), terminal.log());
}

}  // namespace

int verify_against_command(const Options& options) {
  if (options.data.empty()) {
    fail(ErrorCode::usage, "--against without --data", "--data FILE with texts: JSON lines, or paragraphs");
  }
  if (options.tp > 1) fail(ErrorCode::unsupported, fmt::format("--against with --tp {}", options.tp), "--tp 1");
  Terminal terminal(options.quiet);
  const std::vector<std::string> texts = app::read_calibration_texts(options.data);
  const app::LoadedModel model = load_session(options, terminal);
  const app::LoadedModel reference = load_reference(options, terminal);
  const app::ModelDistance d = app::compare_models(model, reference, texts, kMaxTokens, terminal.progress());
  fmt::print(
      "against {}, {} tokens: mean KL {:.3e} (largest {:.2e}); |difference of logprob| mean {:.2e}, 99th "
      "percentile {:.2e}; same likeliest token {:.2f} %\n",
      options.against, d.tokens, d.mean_kl, d.max_kl, d.mean_logprob, d.p99_logprob, 100 * d.same_top_token);
  if (!options.json.empty()) write_json(options.json, to_json(d));
  return 0;
}

}  // namespace sluice::cli
