#include "cli/parse.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "cli/flags.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

Parsed parse_words(std::vector<const char*> words) {
  words.insert(words.begin(), "sluice");
  return parse(static_cast<int>(words.size()), words.data(), "sluice test");
}

TEST(Parse, FlagsReachTheirOptions) {
  const Parsed p = parse_words(
      {"run", "models/x", "-p", "one", "-p", "two", "-n", "8k", "--temperature", "0.5", "--no-batch-invariant"});
  ASSERT_FALSE(p.done) << p.text;
  EXPECT_EQ(p.options.command, "run");
  EXPECT_EQ(p.options.model, "models/x");
  EXPECT_EQ(p.options.prompts, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(p.options.max_new_tokens, 8000);
  EXPECT_EQ(p.options.temperature, 0.5);
  EXPECT_FALSE(p.options.row_invariant());
}

TEST(Parse, RowsAreInvariantByTheDevice) {
  const auto invariant = [](std::vector<const char*> more) {
    std::vector<const char*> words = {"layer", "m", "--layer", "0", "--hidden", "in", "--out", "o"};
    words.insert(words.end(), more.begin(), more.end());
    const Parsed p = parse_words(words);
    EXPECT_FALSE(p.done) << p.text;
    return p.options.row_invariant();
  };
  EXPECT_TRUE(invariant({}));
  EXPECT_TRUE(invariant({"--device", "cpu"}));
  EXPECT_FALSE(invariant({"--device", "cuda"}));
  EXPECT_FALSE(invariant({"--device", "cuda:1"}));
  EXPECT_TRUE(invariant({"--device", "cuda", "--batch-invariant"}));
  EXPECT_FALSE(invariant({"--no-batch-invariant"}));
  EXPECT_FALSE(invariant({"--batch-invariant=off"}));
  const Parsed wrong = parse_words({"run", "m", "-p", "x", "--batch-invariant=banana"});
  EXPECT_TRUE(wrong.done);
  EXPECT_NE(wrong.text.find("'banana' is neither true nor false"), std::string::npos) << wrong.text;
}

TEST(Parse, APromptMayBeginWithAnything) {
  EXPECT_EQ(parse_words({"run", "m", "-p", "line\nline"}).options.prompts[0], "line\nline");
  EXPECT_EQ(parse_words({"run", "m", "--prompt=-5 is what?"}).options.prompts[0], "-5 is what?");
}

TEST(Parse, NestedCommandsAndModelPathSpelling) {
  const Parsed p = parse_words({"eval", "gsm8k", "--model-path", "m", "--data", "d", "--threshold", "0.98"});
  ASSERT_FALSE(p.done) << p.text;
  EXPECT_EQ(p.options.command, "eval.gsm8k");
  EXPECT_EQ(p.options.model, "m");
  EXPECT_EQ(p.options.threshold, 0.98);
  const Parsed bench = parse_words({"bench", "moe", "--tokens", "1,16,256"});
  EXPECT_EQ(bench.options.tokens, (std::vector<std::string>{"1", "16", "256"}));
}

TEST(Parse, WrongUsageExitsWithTwoAndSaysWhere) {
  for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{{"run"},
                                                                                     {"nonsense"},
                                                                                     {"run", "m", "--no-such-flag"},
                                                                                     {"eval"},
                                                                                     {"run", "m", "-n", "many"},
                                                                                     {"verify", "m", "-p", "x"}}) {
    const Parsed p = parse_words(words);
    EXPECT_TRUE(p.done);
    EXPECT_EQ(p.exit_code, 2) << words[0];
    EXPECT_FALSE(p.text.empty());
  }
  EXPECT_EQ(parse_words({}).exit_code, 2);
}

TEST(Parse, HelpAndVersionExitWithZero) {
  EXPECT_EQ(parse_words({"--version"}).exit_code, 0);
  EXPECT_NE(parse_words({"--version"}).text.find("sluice test"), std::string::npos);
  EXPECT_NE(parse_words({"run", "--help"}).text.find("--max-new-tokens"), std::string::npos);
  EXPECT_EQ(parse_words({"run", "--help"}).text.find("--num-shots"), std::string::npos) << "a flag of another command";
}

TEST(Parse, EnvironmentComesAfterTheCommandLine) {
  setenv("SLUICE_THREADS", "3", 1);
  EXPECT_EQ(parse_words({"run", "m"}).options.threads, 3);
  EXPECT_EQ(parse_words({"run", "m", "-t", "5"}).options.threads, 5);
  unsetenv("SLUICE_THREADS");
}

TEST(Parse, TheEnvironmentMayHoldRequiredAndOtherCommandsFlags) {
  setenv("SLUICE_MODEL", "from/environment", 1);
  setenv("SLUICE_NUM_SHOTS", "2", 1);
  EXPECT_EQ(parse_words({"run"}).options.model, "from/environment");
  EXPECT_EQ(parse_words({"run", "from/line"}).options.model, "from/line");
  unsetenv("SLUICE_MODEL");
  unsetenv("SLUICE_NUM_SHOTS");
}

TEST(Parse, AConfigFileHasASectionForEachCommand) {
  const std::string path = testing::TempDir() + std::to_string(getpid()) + "sluice.toml";
  std::ofstream(path) << "[run]\nthreads = 4\ntemperature = 0.25\n";
  const Parsed p = parse_words({"--config", path.c_str(), "run", "m", "--temperature", "0.75"});
  ASSERT_FALSE(p.done) << p.text;
  EXPECT_EQ(p.options.threads, 4);
  EXPECT_EQ(p.options.temperature, 0.75);
}

TEST(Flags, CountsHaveSuffixesAndNoOverflow) {
  EXPECT_EQ(parse_count("512", "-n"), 512);
  EXPECT_EQ(parse_count("8k", "-n"), 8000);
  EXPECT_EQ(parse_count("8K", "-n"), 8192);
  EXPECT_EQ(parse_count("-1", "-n"), -1);
  EXPECT_EQ(parse_count("2M", "-n"), 2000000);
  for (const char* bad : {"", "k", "1.5", "8kk", "9223372036854775808", "9223372036854775807k", "1e3"}) {
    EXPECT_THROW(parse_count(bad, "-n"), Error) << bad;
  }
}

TEST(Flags, EveryFlagIsDocumentedAndBelongsToKnownCommands) {
  std::set<std::string_view> commands;
  for (const Command& c : command_table()) commands.insert(c.name);
  Options options;
  const std::string page = flags_markdown();
  for (const Flag& flag : flag_table(options)) {
    EXPECT_FALSE(flag.help.empty()) << flag.names;
    EXPECT_NE(page.find(environment_name(flag)), std::string::npos) << flag.names;
    bool any = false;
    for (const std::string_view command : commands) any = any || applies_to(flag, command);
    EXPECT_TRUE(any) << flag.names;
  }
}

TEST(Parse, AFlagThatEndsInAnEqualsSignDoesNotTakeTheNextWord) {
  Options unused;
  std::set<std::string> seen;
  for (const Command& command : command_table()) {
    std::vector<std::string> words;
    std::string rest(command.name);
    const std::size_t dot = rest.find('.');
    words.push_back(rest.substr(0, dot));
    if (dot != std::string::npos) words.push_back(rest.substr(dot + 1));
    for (const Flag& flag : flag_table(unused)) {
      if (!applies_to(flag, command.name) || flag.names.find("--") == std::string_view::npos) continue;
      const std::string name = "--" + long_name(flag);
      std::vector<const char*> line;
      for (const std::string& word : words) line.push_back(word.c_str());
      const std::string empty = name + "=";
      for (const char* word : {empty.c_str(), "1"}) line.push_back(word);
      const Parsed p = parse_words(line);
      EXPECT_TRUE(p.done && p.exit_code == 2) << command.name << " " << empty;
      EXPECT_NE(p.text.find(empty + " has nothing behind it"), std::string::npos) << p.text;
      seen.insert(name);
    }
  }
  EXPECT_GT(seen.size(), 100u);
  EXPECT_EQ(parse_words({"run", "m", "--prompt", "--x="}).exit_code, 2);
  EXPECT_EQ(parse_words({"run", "m", "--prompt=a="}).options.prompts.at(0), "a=");
}

TEST(Parse, AnEmptyTextIsNoValue) {
  for (const char* flag : {"--api-key", "--host", "--model", "--served-model-name"}) {
    const Parsed p = parse_words({"serve", flag, "", "m"});
    EXPECT_EQ(p.exit_code, 2) << flag;
    EXPECT_NE(p.text.find(std::string(flag) + ": an empty value"), std::string::npos) << p.text;
  }
}

TEST(Parse, AVariableThatIsSetToNothingIsRefusedByName) {
  for (const char* variable : {"SLUICE_API_KEY", "SLUICE_PORT", "SLUICE_ENABLE_METRICS"}) {
    setenv(variable, "", 1);
    const Parsed p = parse_words({"serve", "m"});
    EXPECT_EQ(p.exit_code, 2) << variable;
    EXPECT_NE(p.text.find(std::string(variable) + " is set to nothing"), std::string::npos) << p.text;
    EXPECT_FALSE(parse_words({"doctor"}).done) << "a flag of another command";
    EXPECT_EQ(parse_words({"serve", "--help"}).exit_code, 0);
    unsetenv(variable);
  }
  setenv("SLUICE_API_KEY", "", 1);
  EXPECT_EQ(parse_words({"serve", "m", "--api-key", "k"}).options.api_key, "k");
  unsetenv("SLUICE_API_KEY");
}

struct ConfigText : ::testing::TestWithParam<std::vector<const char*>> {};

// File, its text, and what the message has.
TEST_P(ConfigText, IsToldWithFileAndLine) {
  const std::string path = ::testing::TempDir() + std::to_string(getpid()) + GetParam()[0];
  std::ofstream(path) << GetParam()[1];
  const Parsed p = parse_words({"serve", "m", "--config", path.c_str()});
  EXPECT_EQ(p.exit_code, 2);
  EXPECT_NE(p.text.find(path + ", line " + GetParam()[2]), std::string::npos) << p.text;
  EXPECT_EQ(p.text.find("INI"), std::string::npos) << p.text;
}

INSTANTIATE_TEST_SUITE_P(Mistakes, ConfigText,
                         ::testing::Values(std::vector{"a.toml", "# flags\n[serve]\nprot = 1\n",
                                                       "3: \"prot\" is no flag of sluice serve"},
                                           std::vector{"b.toml", "[serve]\n\nport = 70000\n", "3"},
                                           std::vector{"c.toml", "[serv]\nport = 1\n", "1: [serv] is no command"},
                                           std::vector{"d.toml", "port = 1\n", "1: \"port\" stands in no section"},
                                           std::vector{"e.toml", "[serve]\nsome words\n", "2: \"some words\""},
                                           std::vector{"f.toml", "[eval.gsm8k]\nnum-shot = 1\n", "2: \"num-shot\""},
                                           std::vector{"g.yaml", "\nprot: 1\n", "2: \"prot\""},
                                           std::vector{"h.yaml", "host: h\nport: 70000\n", "2"},
                                           std::vector{"i.yaml", "host: h\nport: [[1]]\n", "2: a list inside a list"},
                                           std::vector{"j.yaml", "- port\n", "1: the file is no map"}));

INSTANTIATE_TEST_SUITE_P(
    Empty, ConfigText,
    ::testing::Values(std::vector{"k.yaml", "host: h\napi-key:\n", "2: \"api-key\" has an empty value"},
                      std::vector{"l.yaml", "api_key: ~\n", "1: \"api-key\" has an empty value"},
                      std::vector{"m.yaml", "api-key: null\n", "1: \"api-key\" has an empty value"},
                      std::vector{"n.yaml", "api-key: \"\"\n", "1: \"api-key\" has an empty value"},
                      std::vector{"o.yaml", "port:\n", "1: \"port\" has an empty value"},
                      std::vector{"p.toml", "[serve]\napi-key = \"\"\n", "2: \"api-key\" has an empty value"},
                      std::vector{"q.toml", "[serve]\nport =\n", "2: \"port\" has an empty value"}));

INSTANTIATE_TEST_SUITE_P(
    Twice, ConfigText,
    ::testing::Values(std::vector{"r.yaml", "port: 1\nhost: h\nport: 2\n", "1: \"port\" comes twice"},
                      std::vector{"s.yaml", "log-level: info\nlog_level: debug\n", "1: \"log-level\" comes twice"},
                      std::vector{"t.yaml", "keep-alive-timeout: 1\ntimeout-keep-alive: 2\n",
                                  "2: \"timeout-keep-alive\" comes twice"},
                      std::vector{"u.toml", "[serve]\nport = 1\n[eval.gsm8k]\n[serve]\n",
                                  "4: serve stands in line 1 too"},
                      std::vector{"v.toml", "[serve]\nport = 1\nport = 2\n", "3: serve.port stands in line 2 too"}));

TEST(Parse, AConfigFileMayHaveSectionsOfOtherCommandsAndOtherNamesOfFlags) {
  const std::string path = ::testing::TempDir() + std::to_string(getpid()) + "good.toml";
  std::ofstream(path)
      << "[eval.gsm8k]\nnum-shots = 3\n[serve]\n\"port\" = 7\nkeep-alive-timeout = 9\nbatch-invariant = false\n";
  const Parsed p = parse_words({"serve", "m", "--config", path.c_str()});
  ASSERT_FALSE(p.done) << p.text;
  EXPECT_EQ(p.options.port, 7);
  EXPECT_EQ(p.options.keep_alive_timeout, 9);
  EXPECT_FALSE(p.options.row_invariant());
}

}  // namespace
}  // namespace sluice::cli
