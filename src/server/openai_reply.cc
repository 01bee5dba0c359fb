// Answers of OpenAI's endpoints: whole ones, and the parts of a stream. What is the same in all parts of a job is
// written once.
#include <fmt/core.h>

#include <iterator>

#include "server/json_text.h"
#include "server/openai.h"
#include "server/token_json.h"

namespace sluice::server {
namespace {

std::string quoted_or_null(const std::string& text) { return text.empty() ? "null" : json_quoted(text); }

// What ends each choice, in parts and whole answers alike.
void append_finish(std::string& out, const Choice& choice) {
  out += ",\"finish_reason\":";
  out += quoted_or_null(choice.finish);
  if (!choice.open()) out += ",\"matched_stop\":" + matched_stop(choice);
}

class OpenAiReply : public Reply {
 public:
  OpenAiReply(const Job& job, const ServedModel& model, const char* object, const char* part_object)
      : tokenizer_(model.tokenizer), usage_(job.ask.include_usage), continuous_(job.ask.continuous_usage) {
    const auto head = [&](const char* name) {
      return fmt::format("{{\"id\":{},\"object\":\"{}\",\"created\":{},\"model\":{}", json_quoted(job.ask.id), name,
                         job.ask.created, json_quoted(job.ask.model));
    };
    head_ = head(object);
    part_head_ = "data: " + head(part_object);
  }

  void tail(std::string& out, const Job& job) override {
    if (usage_) out += part_head_ + ",\"choices\":[],\"usage\":" + usage_json(job) + "}\n\n";
    out += "data: [DONE]\n\n";
  }

  std::string whole(const Job& job) override {
    std::string out = head_ + ",\"choices\":[";
    for (std::size_t i = 0; i < job.choices.size(); ++i) {
      if (i > 0) out += ',';
      whole_choice(out, job, i);
    }
    return out + "],\"usage\":" + usage_json(job) + "}";
  }

 protected:
  virtual void whole_choice(std::string& out, const Job& job, std::size_t index) = 0;

  void begin_part(std::string& out, std::size_t index) const {
    out += part_head_;
    fmt::format_to(std::back_inserter(out), ",\"choices\":[{{\"index\":{}", index);
  }
  void end_part(std::string& out, const Job& job) const {
    out += "}]";
    if (usage_) out += ",\"usage\":" + (continuous_ ? usage_json(job) : "null");
    out += "}\n\n";
  }

  const text::Tokenizer& tokenizer_;

 private:
  bool usage_;
  bool continuous_;
  std::string head_;
  std::string part_head_;
};

class ChatReply : public OpenAiReply {
 public:
  ChatReply(const Job& job, const ServedModel& model)
      : OpenAiReply(job, model, "chat.completion", "chat.completion.chunk") {}

  void part(std::string& out, const Job& job, std::size_t index, const Delta& delta) override {
    const Choice& choice = job.choices[index];
    if (!choice.begun) {
      begin_part(out, index);
      out += ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null";
      end_part(out, job);
      if (delta.content.empty() && delta.thought.empty() && delta.notes.empty() && choice.open()) return;
    }
    begin_part(out, index);
    out += ",\"delta\":{";
    if (!delta.thought.empty()) out += "\"reasoning_content\":" + json_quoted(delta.thought);
    if (!delta.content.empty()) {
      if (!delta.thought.empty()) out += ',';
      out += "\"content\":";
      append_quoted(out, delta.content);
    }
    out += '}';
    append_logprobs(out, job, delta.notes);
    append_finish(out, choice);
    end_part(out, job);
  }

 protected:
  void whole_choice(std::string& out, const Job& job, std::size_t index) override {
    const Choice& choice = job.choices[index];
    fmt::format_to(std::back_inserter(out), "{{\"index\":{},\"message\":{{\"role\":\"assistant\",\"content\":", index);
    append_quoted(out, choice.content);
    if (!choice.thought.empty()) out += ",\"reasoning_content\":" + json_quoted(choice.thought);
    out += ",\"refusal\":null}";
    append_logprobs(out, job, choice.notes);
    append_finish(out, choice);
    out += '}';
  }

 private:
  void append_logprobs(std::string& out, const Job& job, const std::vector<TokenNote>& notes) const {
    if (!job.ask.logprobs) {
      out += ",\"logprobs\":null";
      return;
    }
    out += ",\"logprobs\":{\"content\":[";
    for (std::size_t i = 0; i < notes.size(); ++i) {
      if (i > 0) out += ',';
      append_chat_logprob(out, tokenizer_, notes[i]);
    }
    out += "],\"refusal\":null}";
  }
};

class CompletionReply : public OpenAiReply {
 public:
  CompletionReply(const Job& job, const ServedModel& model)
      : OpenAiReply(job, model, "text_completion", "text_completion"), places_(job.ask.prompts.size() * job.ask.n) {}

  void part(std::string& out, const Job& job, std::size_t index, const Delta& delta) override {
    const Choice& choice = job.choices[index];
    const bool with_prompt = job.ask.echo && !choice.begun;
    begin_part(out, index);
    out += ",\"text\":";
    append_quoted(out, with_prompt ? prompt_text(job, choice) + delta.content : delta.content);
    append_logprobs(out, job, index, delta.notes, with_prompt);
    append_finish(out, choice);
    end_part(out, job);
  }

 protected:
  void whole_choice(std::string& out, const Job& job, std::size_t index) override {
    const Choice& choice = job.choices[index];
    fmt::format_to(std::back_inserter(out), "{{\"index\":{},\"text\":", index);
    append_quoted(out, job.ask.echo ? prompt_text(job, choice) + choice.content : choice.content);
    append_logprobs(out, job, index, choice.notes, job.ask.echo);
    append_finish(out, choice);
    out += '}';
  }

 private:
  std::string prompt_text(const Job& job, const Choice& choice) const {
    const Prompt& prompt = job.ask.prompts[choice.prompt];
    return prompt.text.empty() ? tokenizer_.decode(prompt.ids, /*skip_special=*/false) : prompt.text;
  }

  void append_logprobs(std::string& out, const Job& job, std::size_t index, const std::vector<TokenNote>& notes,
                       bool with_prompt) {
    if (!job.ask.logprobs) {
      out += ",\"logprobs\":null";
      return;
    }
    CompletionLogprobs part;
    part.with_top = job.ask.request.top_logprobs > 0;
    part.first_unknown = with_prompt;
    if (with_prompt) part.notes = prompt_notes(job, job.choices[index]);
    part.notes.insert(part.notes.end(), notes.begin(), notes.end());
    out += ",\"logprobs\":";
    append_completion_logprobs(out, tokenizer_, part, places_[index]);
  }

  std::vector<TokenNote> prompt_notes(const Job& job, const Choice& choice) const {
    std::vector<TokenNote> notes;
    const std::vector<std::int32_t>& ids = job.ask.prompts[choice.prompt].ids;
    const std::string& text = job.ask.prompts[choice.prompt].text;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      TokenNote& note = notes.emplace_back();
      note.token = ids[i];
      if (i > 0 && i - 1 < choice.prompt_logprobs.size()) note.logprob = choice.prompt_logprobs[i - 1];
      if (i > 0 && i - 1 < choice.prompt_top.size()) note.top = choice.prompt_top[i - 1];
      // The token in front that the tokenizer has added is not in the text that the client sent.
      note.shown =
          i > 0 || text.empty() || !tokenizer_.is_special(ids[0]) || text.starts_with(tokenizer_.token_text(ids[0]));
    }
    return notes;
  }

  std::vector<TextPlace> places_;  // [choices] where the next note begins
};

}  // namespace

std::string usage_json(const Job& job) {
  const std::int64_t prompt = job.prompt_tokens();
  const std::int64_t completion = job.completion_tokens();
  return fmt::format(
      "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},\"prompt_tokens_details\":{{"
      "\"cached_tokens\":{}}},\"completion_tokens_details\":{{\"reasoning_tokens\":{}}}}}",
      prompt, completion, prompt + completion, job.cached_tokens(), job.thought_tokens());
}

std::string matched_stop(const Choice& choice) {
  if (!choice.stop_text.empty()) return json_quoted(choice.stop_text);
  return choice.stop_token >= 0 ? std::to_string(choice.stop_token) : "null";
}

std::unique_ptr<Reply> chat_reply(const Job& job, const ServedModel& model) {
  return std::make_unique<ChatReply>(job, model);
}

std::unique_ptr<Reply> completion_reply(const Job& job, const ServedModel& model) {
  return std::make_unique<CompletionReply>(job, model);
}

}  // namespace sluice::server
