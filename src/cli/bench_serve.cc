// sluice bench serve: sends a load of streamed completions to a server, and measures when their tokens come.
#include "cli/bench_serve.h"

#include <fmt/core.h>

#include <chrono>
#include <deque>
#include <memory>

#include "cli/commands.h"
#include "cli/remote.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/file.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Cuts a stream of server-sent events into their data, however it arrives. Servers end lines in both ways, put other
// lines (comments, ids) between, and have one line of data an event.
class EventReader {
 public:
  template <class Take>
  void push(std::string_view part, Take take) {
    buffer_ += part;
    std::size_t begin = 0;
    for (std::size_t end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n', begin)) {
      std::string_view line(buffer_.data() + begin, end - begin);
      if (line.ends_with('\r')) line.remove_suffix(1);
      begin = end + 1;
      if (!line.starts_with(kData)) continue;
      line.remove_prefix(kData.size());
      if (line.starts_with(' ')) line.remove_prefix(1);
      take(line);
    }
    buffer_.erase(0, begin);
  }

 private:
  static constexpr std::string_view kData = "data:";
  std::string buffer_;
};

std::int64_t count_in(const Json& usage, const char* name) {
  const Json* count = usage.find(name);
  return count != nullptr && count->is_int() ? count->as_int(name) : 0;
}

class LoadRunner {
 public:
  LoadRunner(const Options& options, const Remote& remote, std::vector<LoadItem> load, ProgressSink progress)
      : options_(options),
        remote_(remote),
        load_(std::move(load)),
        samples_(load_.size()),
        progress_(std::move(progress)),
        arrival_(loop_, [this] { send_what_is_due(); }) {
    for (std::int64_t i = 0; i < options.max_concurrency; ++i) {
      free_.push_back(std::make_unique<RemoteCall>(loop_, remote, "/v1/completions"));
    }
  }

  LoadReport run() {
    begin_ = Clock::now();
    progress_({"requests", "requests", 0, load_.size()});
    send_what_is_due();
    loop_.run();
    LoadReport report = summarise(samples_, now());
    report.model = remote_.model;
    for (const auto& call : free_) report.retries += call->retries();
    return report;
  }

  const std::vector<LoadSample>& samples() const { return samples_; }

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  void send_what_is_due() {
    while (next_ < load_.size() && !free_.empty()) {
      const double wait = load_[next_].start_seconds - now();
      if (wait > 0) return arrival_.start(http::Seconds(wait));
      std::shared_ptr<RemoteCall> call = std::move(free_.front());
      free_.pop_front();
      send(next_++, call);
    }
  }

  std::string body_of(const LoadItem& item) const {
    return Json(Json::Object{{"model", Json(remote_.model)},
                             {"prompt", item.prompt},
                             {"max_tokens", Json(item.output_tokens)},
                             {"temperature", Json(0)},
                             {"ignore_eos", Json(true)},
                             {"stream", Json(true)},
                             {"stream_options", Json(Json::Object{{"include_usage", Json(true)}})}})
        .dump();
  }

  void send(std::size_t index, const std::shared_ptr<RemoteCall>& call) {
    LoadSample& sample = samples_[index];
    sample.sent = now();
    auto events = std::make_shared<EventReader>();
    call->ask(
        body_of(load_[index]),
        [this, &sample, call](const RemoteCall::Answer& answer) {
          if (answer.status != 200) sample.error = error_text(answer);
          finish(sample, call);
        },
        [this, &sample, events](std::string_view part) {
          events->push(part, [&](std::string_view data) { take_any(data, sample); });
        });
  }

  // What one server sends wrongly is an error of its request.
  void take_any(std::string_view data, LoadSample& sample) {
    try {
      take(data, sample);
    } catch (const Error& e) {
      sample.error = e.what();
    }
  }

  void take(std::string_view data, LoadSample& sample) {
    if (data == "[DONE]") return;
    const Json event = Json::parse(data, "event");
    if (const Json* error = event.find("error")) sample.error = error->dump();
    const Json* choices = event.find("choices");
    if (choices != nullptr && choices->is_array() && !choices->as_array("choices").empty()) {
      const Json* text = choices->as_array("choices").front().find("text");
      if (text != nullptr && text->is_string() && !text->as_string("text").empty()) {
        sample.token_times.push_back(now());
      }
    }
    const Json* usage = event.find("usage");
    if (usage == nullptr || !usage->is_object()) return;
    sample.prompt_tokens = count_in(*usage, "prompt_tokens");
    sample.output_tokens = count_in(*usage, "completion_tokens");
  }

  void finish(LoadSample& sample, const std::shared_ptr<RemoteCall>& call) {
    sample.done = now();
    if (sample.error.empty() && sample.output_tokens == 0) sample.error = "the stream ended without its usage";
    progress_({"requests", "requests", ++done_, load_.size()});
    if (done_ == load_.size()) loop_.stop();
    free_.push_back(call);
    loop_.defer([this] { send_what_is_due(); });
  }

  const Options& options_;
  const Remote& remote_;
  std::vector<LoadItem> load_;
  std::vector<LoadSample> samples_;
  ProgressSink progress_;
  http::Loop loop_;
  http::Timer arrival_;
  std::deque<std::shared_ptr<RemoteCall>> free_;
  Clock::time_point begin_{};
  std::size_t next_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace

int bench_serve_command(const Options& options) {
  Terminal terminal(options.quiet);
  std::vector<LoadItem> load = make_load(options);
  const Remote remote = connect_remote(options);
  LoadRunner runner(options, remote, std::move(load), terminal.progress());
  const LoadReport report = runner.run();
  print_report(report);
  if (!options.json.empty()) write_json(options.json, report_json(report, options, runner.samples()));
  if (!options.svg.empty()) write_file(options.svg, report_svg(report, runner.samples()));
  if (report.failed == 0) return 0;
  say(fmt::format("sluice: {} requests failed; the first: {}", report.failed, report.first_error));
  return static_cast<int>(ErrorCode::check_failed);
}

}  // namespace sluice::cli
