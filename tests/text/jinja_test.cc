#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "text/chat_template.h"
#include "text/jinja_template.h"

// What jinja2 cannot be asked: messages, limits, threads. That texts are right is checked against it in
// test_chat_templates.py; the white space cases here are the rules of its documentation, worked out by hand.
namespace sluice::text {
namespace {

using jinja::Limits;
using jinja::Template;

std::tm epoch() {
  std::tm t{};
  t.tm_year = 70;
  t.tm_mday = 1;
  return t;
}

std::string render(std::string_view source, const Json& variables = Json(Json::Object()), const Limits& limits = {}) {
  return Template::parse(source, "t.jinja").render(variables, epoch, limits);
}

// The message of the error that rendering ends with; "" when it does not fail.
std::string failure(std::string_view source, const Limits& limits = {}) {
  try {
    render(source, Json(Json::Object()), limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

ErrorCode code_of(std::string_view source, const Limits& limits = {}) {
  try {
    render(source, Json(Json::Object()), limits);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error from " << source;
  return ErrorCode::usage;
}

// --- white space

struct WhiteSpace {
  const char* source;
  const char* expected;
};

class WhiteSpaceTest : public testing::TestWithParam<WhiteSpace> {};

TEST_P(WhiteSpaceTest, FollowsTheRules) { EXPECT_EQ(render(GetParam().source), GetParam().expected); }

INSTANTIATE_TEST_SUITE_P(Rules, WhiteSpaceTest,
                         testing::Values(WhiteSpace{"a\n", "a"},              // one line break at the end goes
                                         WhiteSpace{"a\n\n", "a\n"},          // and only one
                                         WhiteSpace{"a\r\nb\rc", "a\nb\nc"},  // line breaks become \n
                                         WhiteSpace{"{% if 1 %}\nx\n{% endif %}\ny", "x\ny"},   // trim_blocks
                                         WhiteSpace{"{% if 1 %}\n\nx{% endif %}", "\nx"},       // of one line break
                                         WhiteSpace{"{% if 1 +%}\nx{% endif %}", "\nx"},        // + keeps it
                                         WhiteSpace{"a\n  {% if 1 %}x{% endif %}", "a\nx"},     // lstrip_blocks
                                         WhiteSpace{"a  {% if 1 %}x{% endif %}", "a  x"},       // not behind text
                                         WhiteSpace{"a\n  {%+ if 1 %}x{% endif %}", "a\n  x"},  // + keeps it
                                         WhiteSpace{"a\n  {{ 1 }}\nb", "a\n  1\nb"},  // prints keep their surroundings
                                         WhiteSpace{"a \n {{- 1 -}} \n b", "a1b"},    // unless marked
                                         WhiteSpace{"a \n {%- if 1 -%} \n x{% endif %}", "ax"},  //
                                         WhiteSpace{"a\n  {# c #}\nb", "a\nb"},  // comments count as blocks
                                         WhiteSpace{"{% raw %}{{ x }}\n{% endraw %}\nb", "{{ x }}\nb"}
                                         // raw text is as it is
                                         ));

// --- messages

struct Failure {
  const char* source;
  const char* line;      // "line N"
  const char* mentions;  // the construct
};

class FailureTest : public testing::TestWithParam<Failure> {};

TEST_P(FailureTest, NamesLineAndConstruct) {
  const std::string message = failure(GetParam().source);
  EXPECT_NE(message.find(std::string("t.jinja ") + GetParam().line + ":"), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().mentions), std::string::npos) << message;
  EXPECT_EQ(code_of(GetParam().source), ErrorCode::bad_input);
}

INSTANTIATE_TEST_SUITE_P(
    Parse, FailureTest,
    testing::Values(Failure{"a\n{% include 'x' %}", "line 2", "'include'"},
                    Failure{"{% if x %}\n{% trans %}", "line 2", "'trans' inside 'if'"},
                    Failure{"{{ 1 | pprint }}", "line 1", "no filter 'pprint'; Jinja has it"},
                    Failure{"\n\n{{ x is nice }}", "line 3", "no test 'nice'"},
                    Failure{"{{ x | map('shout') }}", "line 1", "no filter 'shout'"},
                    Failure{"{{ x | selectattr('a', 'likes', 1) }}", "line 1", "no test 'likes'"},
                    Failure{"{% for x in y recursive %}{% endfor %}", "line 1", "recursive"},
                    Failure{"{% if x %}\n\n", "line 2", "inside 'if'"}, Failure{"{% endif %}", "line 1", "'endif'"},
                    Failure{"{{ 'abc }}", "line 1", "string is not closed"},
                    Failure{"{{ [1, 2 }}", "line 1", "expected ']'"}, Failure{"{{ 1 ? 2 }}", "line 1", "'?'"},
                    Failure{"{{ 99999999999999999999 }}", "line 1", "64 bits"}, Failure{"{# x", "line 1", "comment"},
                    Failure{"{% break %}", "line 1", "'break' outside"},
                    Failure{"{% set true = 1 %}", "line 1", "'true'"}, Failure{"\n{{ '\\N{DASH}' }}", "line 2", "\\N"},
                    Failure{"\n\xFF", "line 2", "UTF-8 at byte 1"}));

INSTANTIATE_TEST_SUITE_P(
    Render, FailureTest,
    testing::Values(Failure{"a\n{{ missing.x }}", "line 2", "'missing' is undefined"},
                    Failure{"{% set d = {} %}\n{{ d.a.b }}", "line 2", "no attribute 'a'"},
                    Failure{"{{ raise_exception('roles must alternate') }}", "line 1", "roles must alternate"},
                    Failure{"{{ 1 +\n 'a' }}", "line 1", "operator +"},
                    Failure{"\n{{ 'a'.nope() }}", "line 2", "'nope'"},
                    Failure{"{% set l = [] %}{{ l.append(1) }}", "line 1", "list.append would change"},
                    Failure{"{{ 'x'.strip(1) }}", "line 1", "str.strip"},
                    Failure{"{{ 5 | replace('a') }}", "line 1", "filter 'replace' needs the argument 'new'"},
                    Failure{"{{ 5 | trim(color=1) }}", "line 1", "'color'"},
                    Failure{"{{ [1, 'a'] | sort }}", "line 1", "cannot order"},
                    Failure{"{{ {} | tojson | int | length }}", "line 1", "has no length"},
                    Failure{"{{ missing | tojson }}", "line 1", "'missing' is undefined"},
                    Failure{"{{ 9223372036854775807 + 1 }}", "line 1", "64 bits"},
                    Failure{"{{ 1 // 0 }}", "line 1", "division by zero"},
                    Failure{"{% set a, b = [1] %}", "line 1", "unpack 1 values into 2"},
                    Failure{"{% set x = 1 %}{% set x.a = 1 %}", "line 1", "'x', which is no namespace"},
                    Failure{"{% macro m(a) %}{% endmacro %}\n{{ m(b=1) }}", "line 2", "macro 'm'"},
                    Failure{"{{ strftime_now('%Q') }}", "line 1", "%Q"},
                    Failure{"{% set ns = namespace() %}{% for x in [1] %}{% macro m() %}{% endmacro %}"
                            "{% set ns.m = m %}{% endfor %}{{ ns.m() }}",
                            "line 1", "after the block that defined it"}));

// --- limits

class HostileTest : public testing::TestWithParam<const char*> {};

// With a tenth of the default limits, for the builds with sanitizers.
TEST_P(HostileTest, EndsWithAnError) {
  const Limits limits{.steps = 5'000'000, .memory_bytes = 100'000'000};
  EXPECT_EQ(code_of(GetParam(), limits), ErrorCode::resources);
}

INSTANTIATE_TEST_SUITE_P(
    Templates, HostileTest,
    testing::Values(
        // loops
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
        "{% set s = ' ' * 1000000 %}{% for a in range(100000) %}{{ s.strip() }}{% endfor %}",
        "{% set s = ' ' * 1000000 %}{% for a in range(100000) %}{{ s | trim }}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for a in range(100000) %}{{ 'x'.find(s) }}{{ s in 'x' }}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for a in range(100000) %}{{ s is upper }}{% endfor %}",
        "{% set s = ('a' * 1000000) ~ 'b' %}{% for a in range(100000) %}{{ s.rfind('b' ~ s[1:500000]) }}{% endfor %}",
        "{% set ns = namespace(d={}) %}{% for i in range(100000) %}{% set ns.d = dict(ns.d, **{i ~ '': 1}) %}{% endfor "
        "%}",
        // memory
        "{{ 'x' * 9999999999 }}", "{{ [0] * 9999999999 }}", "{{ 9223372036854775807 * 'ab' }}",
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(l=[0]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{{ 'x'.center(9223372036854775807) }}",
        "{{ '%999999s' % 1 }}{% for i in range(9999) %}{{ '%999999s' % i }}{% endfor %}{{ 1 }}",
        "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}", "{{ (',' * 1000000).join('x' * 1000000) }}",
        // recursion
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}",
        "{% set ns = namespace(g=[1]) %}{% for i in range(1000) %}{% set ns.g = ns.g | map('string') %}{% endfor %}",
        // values that share their parts and are exponentially larger than their memory
        "{% set ns = namespace(l=[]) %}{% for i in range(200) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(200) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
        "{{ ns.l | tojson }}",
        "{% set ns = namespace(a=[], b=[]) %}{% for i in range(200) %}{% set ns.a = [ns.a, ns.a] %}"
        "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
        "{% set ns = namespace(a=()) %}{% for i in range(200) %}{% set ns.a = (ns.a, ns.a) %}{% endfor %}{{ {ns.a: 1} "
        "}}"));

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(JinjaLimits, NestingIsRefusedWhenParsing) {
  EXPECT_NE(failure("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}").find("nest deeper"),
            std::string::npos);
  EXPECT_NE(failure("{{ " + repeated("not ", 5000) + "1 }}").find("nest deeper"), std::string::npos);
  EXPECT_NE(failure("{{ " + repeated("-", 5000) + "1 }}").find("nest deeper"), std::string::npos);
  EXPECT_NE(failure(repeated("{% if 1 %}", 5000)).find("nest deeper"), std::string::npos);
  EXPECT_NE(failure("{{ 1" + repeated(" + 1", 5000) + " }}").find("nested operations"), std::string::npos);
  EXPECT_NE(failure("{{ x" + repeated(".a", 5000) + " }}").find("nested operations"), std::string::npos);
  EXPECT_NE(failure("{% set " + repeated("(", 5000) + "a" + repeated(")", 5000) + " = 1 %}").find("nest deeper"),
            std::string::npos);
}

TEST(JinjaLimits, OrdinaryNestingIsAccepted) {
  EXPECT_EQ(render("{{ " + repeated("(", 90) + "1" + repeated(")", 90) + " }}"), "1");
  EXPECT_EQ(render("{{ 1" + repeated(" + 1", 300) + " }}"), "301");
  EXPECT_EQ(render("{{ ''" + repeated(" ~ 'a'", 5000) + " }}"), repeated("a", 5000));
  EXPECT_EQ(render(repeated("{% if 1 %}", 90) + "x" + repeated("{% endif %}", 90)), "x");
  EXPECT_EQ(render("{% macro f(k) %}{% if k %}{{ f(k - 1) }}{% endif %}{{ k % 10 }}{% endmacro %}{{ f(99) | length }}"),
            "100");
}

TEST(JinjaLimits, AreTheCallers) {
  const Limits few_steps{.steps = 1000};
  EXPECT_EQ(code_of("{% for i in range(1000) %}{% endfor %}", few_steps), ErrorCode::resources);
  EXPECT_EQ(render("{% for i in range(10) %}{{ i }}{% endfor %}", Json(Json::Object()), few_steps), "0123456789");
  const Limits little_memory{.memory_bytes = 10'000};
  EXPECT_EQ(code_of("{{ 'x' * 10000 }}", little_memory), ErrorCode::resources);
  EXPECT_NE(failure("{{ 'x' * 10000 }}", little_memory).find("10000 bytes"), std::string::npos);
}

TEST(JinjaLimits, ALongConversationIsFarBelow) {
  Json::Array messages;
  for (int i = 0; i < 2000; ++i) {
    messages.push_back(Json(
        Json::Object{{"role", Json(i % 2 == 0 ? "user" : "assistant")}, {"content", Json(std::string(1000, 'x'))}}));
  }
  const auto chat = ChatTemplate::parse(
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m.content | trim + '<|im_end|>' }}{% endfor %}",
      "t.jinja");
  ChatOptions options;
  options.limits = {.steps = 500'000, .memory_bytes = 20'000'000};
  EXPECT_EQ(chat.render(Json(std::move(messages)), options).size(), 2000u * (1000 + 12 + 1 + 10) + 1000u * (4 + 9));
}

// --- the interface

TEST(ChatTemplate, PassesWhatTransformersPasses) {
  const auto chat = ChatTemplate::parse(
      "{{ messages[0].role }} {{ tools }} {{ documents is none }} {{ add_generation_prompt }} {{ bos_token is defined "
      "}} "
      "{{ eos_token }} {{ extra.a[1] }}",
      "t.jinja");
  const Json messages(Json::Array{Json(Json::Object{{"role", Json("user")}})});
  ChatOptions options;
  options.eos_token = "</s>";
  options.variables = Json::parse(R"({"extra": {"a": [1, 2.5]}})", "options");
  EXPECT_EQ(chat.render(messages, options), "user None True False False </s> 2.5");
  options.bos_token = "<s>";
  options.add_generation_prompt = true;
  options.tools = Json::parse(R"([{"name": "f"}])", "tools");
  EXPECT_EQ(chat.render(messages, options), "user [{'name': 'f'}] True True True </s> 2.5");
}

TEST(ChatTemplate, TakesItsTimeFromTheCaller) {
  const auto chat = ChatTemplate::parse("{{ strftime_now('%d %b %Y') }}", "t.jinja");
  ChatOptions options;
  options.clock = epoch;
  EXPECT_EQ(chat.render(Json(Json::Array()), options), "01 Jan 1970");
  options.clock = nullptr;
  EXPECT_EQ(chat.render(Json(Json::Array()), options).size(), 11u);
}

TEST(ChatTemplate, ServesManyThreads) {
  const auto chat = ChatTemplate::parse(
      "{% macro m(x) %}[{{ x }}]{% endmacro %}{% set ns = namespace(n=0) %}{% for i in range(50) %}"
      "{% set ns.n = ns.n + i %}{{ m(i) if i == id }}{% endfor %}{{ ns.n }}",
      "t.jinja");
  std::vector<std::string> results(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      ChatOptions options;
      options.variables = Json(Json::Object{{"id", Json(static_cast<int>(i))}});
      for (int round = 0; round < 20; ++round) results[i] = chat.render(Json(Json::Array()), options);
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i], "[" + std::to_string(i) + "]1225");
}

}  // namespace
}  // namespace sluice::text
