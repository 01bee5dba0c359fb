// Renders templates for test_chat_templates.py: reads a JSON list of jobs from a file and prints a JSON list of
// results.
//
// A job is {"template": text} or {"model_dir": folder, "tools"?: bool}, with "variables", an object for the template.
// For "messages" jobs {"messages", "options"} the ChatTemplate interface is used. A result is {"text"} or {"error",
// "code"}.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "text/chat_template.h"

namespace {

using sluice::Json;
using sluice::text::ChatOptions;
using sluice::text::ChatTemplate;

// 2024-07-04 09:05:06, a Thursday: what the tests' own clock shows too.
std::tm fixed_time() {
  std::tm t{};
  t.tm_year = 124;
  t.tm_mon = 6;
  t.tm_mday = 4;
  t.tm_hour = 9;
  t.tm_min = 5;
  t.tm_sec = 6;
  t.tm_wday = 4;
  t.tm_yday = 185;
  return t;
}

Json field(const Json& object, std::string_view name) {
  const Json* found = object.find(name);
  return found != nullptr ? *found : Json();
}

ChatOptions chat_options(const Json& job) {
  ChatOptions options;
  options.clock = fixed_time;
  options.tools = field(job, "tools");
  options.documents = field(job, "documents");
  const Json prompt = field(job, "add_generation_prompt");
  options.add_generation_prompt = prompt.is_bool() && prompt.as_bool("add_generation_prompt");
  if (const Json* bos = job.find("bos_token")) options.bos_token = bos->as_string("bos_token");
  if (const Json* eos = job.find("eos_token")) options.eos_token = eos->as_string("eos_token");
  options.variables = field(job, "variables");
  return options;
}

std::string render(const Json& job) {
  const Json* messages = job.find("messages");
  if (messages == nullptr) {
    const auto parsed = sluice::text::jinja::Template::parse(field(job, "template").as_string("template"), "job");
    return parsed.render(field(job, "variables"), fixed_time);
  }
  ChatOptions options = chat_options(job);
  if (const Json* dir = job.find("model_dir")) {
    const std::string& path = dir->as_string("model_dir");
    const auto loaded = sluice::text::load_chat_template(path, options.tools.is_array());
    if (!loaded) return "no template";
    sluice::text::load_special_tokens(path, options);
    return loaded->render(*messages, options);
  }
  return ChatTemplate::parse(field(job, "template").as_string("template"), "job").render(*messages, options);
}

Json run(const Json& job) {
  try {
    return Json(Json::Object{{"text", Json(render(job))}});
  } catch (const sluice::Error& error) {
    return Json(Json::Object{{"error", Json(std::string(error.what()))}, {"code", Json(error.exit_code())}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: jinja_probe JOBS.json\n";
    return 2;
  }
  try {
    const Json jobs = Json::parse_file(argv[1]);
    Json::Array results;
    for (const Json& job : jobs.as_array("jobs")) results.push_back(run(job));
    std::cout << Json(std::move(results)).dump() << "\n";
  } catch (const sluice::Error& error) {
    std::cerr << error.what() << "\n";
    return error.exit_code();
  }
  return 0;
}
