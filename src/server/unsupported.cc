// The table of fields that would change an answer and that nothing here can do: of OpenAI, vLLM, SGLang and llama.cpp.
// A request that sets one is refused by name; fields that change no answer and are not known are ignored.
#include <array>
#include <optional>
#include <string_view>

#include "server/sampling_fields.h"

namespace sluice::server {
namespace {

struct Unsupported {
  const char* name;
  const char* why;
  std::optional<double> neutral = std::nullopt;  // the number that asks for nothing, as false, "", [] and {} do
  bool empty_asks = false;                       // but for {} here
};

constexpr const char* kGuided = "output is not guided by a grammar here";
constexpr const char* kTextOnly = "there is text only";
constexpr const char* kIdsOrText = "prompts are text or token ids";
constexpr const char* kNoAdapters = "there are no adapters";
constexpr const char* kNoProcessor = "logits are changed by penalties, logit_bias and min_tokens only";
constexpr const char* kNoBeams = "there is sampling only";
constexpr const char* kNoFilter = "tokens are chosen by temperature, top_k, top_p and min_p only";
constexpr const char* kNoBudget = "thoughts have no limit of their own";
constexpr const char* kNotReturned = "it is not returned";

constexpr std::array kTable = {
    Unsupported{"guided_json", kGuided, {}, true},
    Unsupported{"guided_regex", kGuided},
    Unsupported{"guided_choice", kGuided},
    Unsupported{"guided_grammar", kGuided},
    Unsupported{"structured_outputs", kGuided},
    Unsupported{"json_schema", kGuided, {}, true},
    Unsupported{"regex", kGuided},
    Unsupported{"ebnf", kGuided},
    Unsupported{"structural_tag", kGuided},
    Unsupported{"grammar", kGuided},
    Unsupported{"audio", kTextOnly},
    Unsupported{"image_data", kTextOnly},
    Unsupported{"video_data", kTextOnly},
    Unsupported{"audio_data", kTextOnly},
    Unsupported{"mm_processor_kwargs", kTextOnly},
    Unsupported{"input_embeds", kIdsOrText},
    Unsupported{"prompt_embeds", kIdsOrText},
    Unsupported{"suffix", "text is not filled in"},
    Unsupported{"prediction", "answers are not predicted"},
    Unsupported{"web_search_options", "nothing is searched", {}, true},
    Unsupported{"truncate_prompt_tokens", "a prompt that is too long is refused", -1},
    Unsupported{"chat_template", "the model's own template is used"},
    Unsupported{"documents", "hand them to the template in chat_template_kwargs"},
    Unsupported{"continue_final_message", "every answer is a new message"},
    Unsupported{"session_params", "every request has its whole prompt; prefixes are found again without a session"},
    Unsupported{"lora_path", kNoAdapters},
    Unsupported{"lora_id", kNoAdapters},
    Unsupported{"lora_request", kNoAdapters},
    Unsupported{"lora", kNoAdapters},
    Unsupported{"allowed_token_ids", kNoProcessor},
    Unsupported{"bad_words", kNoProcessor},
    Unsupported{"bad_words_ids", kNoProcessor},
    Unsupported{"logits_processors", kNoProcessor},
    Unsupported{"custom_logit_processor", kNoProcessor},
    Unsupported{"vllm_xargs", kNoProcessor},
    Unsupported{"stop_regex", "answers end at stop and stop_token_ids"},
    Unsupported{"use_beam_search", kNoBeams},
    Unsupported{"num_beams", kNoBeams, 1},
    Unsupported{"length_penalty", kNoBeams, 1},
    Unsupported{"early_stopping", kNoBeams},
    Unsupported{"typical_p", kNoFilter, 1},
    Unsupported{"tfs_z", kNoFilter, 1},
    Unsupported{"top_a", kNoFilter, 0},
    Unsupported{"top_n_sigma", kNoFilter, -1},
    Unsupported{"epsilon_cutoff", kNoFilter, 0},
    Unsupported{"eta_cutoff", kNoFilter, 0},
    Unsupported{"mirostat", kNoFilter, 0},
    Unsupported{"dynatemp_range", kNoFilter, 0},
    Unsupported{"xtc_probability", kNoFilter, 0},
    Unsupported{"dry_multiplier", kNoFilter, 0},
    Unsupported{"no_repeat_ngram_size", kNoFilter, 0},
    Unsupported{"samplers", kNoFilter},
    Unsupported{"repeat_penalty", "its name is repetition_penalty", 1},
    Unsupported{"n_predict", "its name is max_tokens", -1},
    Unsupported{"repeat_last_n", "repetition_penalty looks at the prompt and the whole answer", 0},
    Unsupported{"max_output_tokens", "its name is max_tokens, in /generate max_new_tokens"},
    Unsupported{"n_probs", "its name is logprobs", 0},
    Unsupported{"thinking_budget", kNoBudget, -1},
    Unsupported{"reasoning_budget", kNoBudget, -1},
    Unsupported{"thinking_token_budget", kNoBudget, -1},
    Unsupported{"prompt_logprobs", "/v1/completions has echo with logprobs, /generate logprob_start_len"},
    Unsupported{"logprob_token_ids", kNotReturned},
    Unsupported{"return_tokens_as_token_ids", kNotReturned},
    Unsupported{"return_token_ids", "/generate returns them"},
    Unsupported{"return_hidden_states", kNotReturned},
    Unsupported{"return_routed_experts", "GET /expert_load tells how often each expert was chosen"},
    Unsupported{"kv_transfer_params", "prefill and decode are not on separate servers"},
    Unsupported{"bootstrap_room", "prefill and decode are not on separate servers"},
};

}  // namespace

void refuse_unsupported(const Fields& f) {
  for (const Unsupported& field : kTable) f.refuse(field.name, field.why, field.neutral, field.empty_asks);
  for (const char* name : {"thinking", "enable_thinking"}) {
    if (f.find(name) != nullptr) f.bad(name, "is not supported here: hand it to the template in chat_template_kwargs");
  }
  if (const Json* format = f.find("response_format")) {
    const Json* type = format->find("type");
    if (type == nullptr || !type->is_string()) f.bad("response_format", "expected an object with a type");
    if (type->as_string("type") != "text") f.refuse("response_format", kGuided);
  }
  if (f.text("verbosity").value_or("medium") != "medium") f.bad("verbosity", "is not supported: ask for it in words");
  for (const char* name : {"include_reasoning", "stream_reasoning"}) {
    if (!f.flag(name).value_or(true)) f.bad(name, "false is not supported: thoughts are always part of the answer");
  }
}

}  // namespace sluice::server
