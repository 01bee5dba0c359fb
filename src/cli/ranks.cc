#include "cli/ranks.h"

#include <algorithm>
#include <array>

#include "app/version.h"
#include "cli/flags.h"
#include "cli/session.h"

namespace sluice::cli {
namespace {

constexpr std::array<std::string_view, 5> kCommands = {"run", "chat", "serve", "verify", "eval.gsm8k"};

// Flags whose values are a rank's own, or that ranks above 0 do not look at.
constexpr std::array<std::string_view, 19> kOwn = {
    "model",        "threads",  "isa",  "prompt", "file",  "hidden", "data", "shots",     "reference",        "api-key",
    "log-interval", "base-url", "json", "trace",  "quiet", "host",   "svg",  "log-level", "served-model-name"};

bool is_own(const Flag& flag) { return std::find(kOwn.begin(), kOwn.end(), long_name(flag)) != kOwn.end(); }

struct ValueText {
  std::string operator()(const bool* v) const { return *v ? "on" : "off"; }
  std::string operator()(const std::optional<bool>* v) const { return !v->has_value() ? "" : **v ? "on" : "off"; }
  std::string operator()(const Count& v) const { return std::to_string(*v.value); }
  std::string operator()(const Real& v) const { return std::to_string(*v.value); }
  std::string operator()(const std::string* v) const { return *v; }
  std::string operator()(const std::vector<std::string>* v) const {
    std::string text;
    for (const std::string& word : *v) text += (text.empty() ? "" : ", ") + word;
    return text;
  }
  std::string operator()(const Foreign&) const { return ""; }
};

}  // namespace

bool runs_on_ranks(const Options& o) {
  return std::find(kCommands.begin(), kCommands.end(), o.command) != kCommands.end() && o.base_url.empty() &&
         o.against.empty();
}

app::Facts rank_facts(Options options) {
  app::Facts facts = {{"the version", app::build_text()}, {"the command", options.command}};
  for (const Flag& flag : flag_table(options)) {
    if (!applies_to(flag, options.command) || is_own(flag)) continue;
    if (std::holds_alternative<Foreign>(flag.target)) continue;
    facts.emplace_back("--" + long_name(flag), std::visit(ValueText(), flag.target));
  }
  return facts;
}

int follow_command(const Options& options) {
  Terminal terminal(/*quiet=*/true);
  open_session(with_command_defaults(options), terminal).follow();
  return 0;
}

}  // namespace sluice::cli
