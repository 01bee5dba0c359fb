#include "text/post_processor.h"

#include "core/error.h"
#include "text/fields.h"

namespace sluice::text {
namespace {

constexpr std::size_t kMaxIds = 64;

class Reader {
 public:
  explicit Reader(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  void read(const Json& json, const std::string& where) {
    if (json.is_null()) return;
    const std::string type = type_field(json, where);
    if (type == "ByteLevel") return;  // changes offsets only
    if (type == "Sequence") {
      const Json::Array& list = array_field(json, "processors", where);
      for (std::size_t i = 0; i < list.size(); ++i) read(list[i], place(place(where, "processors"), i));
    } else if (type == "TemplateProcessing") {
      read_template(json, where);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      wrap({pair_id(json, "cls", where)}, {pair_id(json, "sep", where)}, where);
    } else {
      refuse_type(where, type, "Sequence, ByteLevel, TemplateProcessing, BertProcessing or RobertaProcessing");
    }
  }

  PostProcessor take() { return std::move(result_); }

 private:
  using Ids = std::vector<std::int32_t>;

  // A later processor of a sequence works on the result of the earlier.
  void wrap(Ids before, const Ids& after, const std::string& where) {
    before.insert(before.end(), result_.before.begin(), result_.before.end());
    result_.before = std::move(before);
    result_.after.insert(result_.after.end(), after.begin(), after.end());
    if (result_.before.size() + result_.after.size() > kMaxIds) {
      fail(ErrorCode::bad_input, where + ": adds more than " + std::to_string(kMaxIds) + " tokens");
    }
  }

  std::int32_t checked(const Json& id, const std::string& where) const {
    const std::int64_t v = id.as_int(where);
    if (!vocabulary_.contains(v)) {
      fail(ErrorCode::bad_input, where + ": id " + std::to_string(v), "the id of a token in the file");
    }
    return static_cast<std::int32_t>(v);
  }

  // ["token", id]
  std::int32_t pair_id(const Json& json, std::string_view key, const std::string& where) const {
    const Json::Array& pair = array_field(json, key, where);
    if (pair.size() != 2) fail(ErrorCode::bad_input, place(where, key) + ": not a token and its id");
    return checked(pair[1], place(place(where, key), std::size_t{1}));
  }

  void read_template(const Json& json, const std::string& where) {
    const Json::Array& items = array_field(json, "single", where);
    const Json& special = field(json, "special_tokens", where);
    Ids before;
    Ids after;
    bool text_seen = false;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::string at = place(place(where, "single"), i);
      if (const Json* token = items[i].find("SpecialToken")) {
        const std::string name = string_field(*token, "id", at);
        const std::string list = place(where, "special_tokens");
        const std::string entry = place(list, name);
        const Json& ids = field(field(special, name, list), "ids", entry);
        for (const Json& id : ids.as_array(entry)) (text_seen ? after : before).push_back(checked(id, entry));
        continue;
      }
      const Json& sequence = field(items[i], "Sequence", at);
      if (text_seen || string_field(sequence, "id", at) != "A") {
        fail(ErrorCode::bad_input, at + ": a template for one text", "the sequence A, once");
      }
      text_seen = true;
    }
    if (!text_seen) fail(ErrorCode::bad_input, place(where, "single") + ": leaves the text out");
    wrap(std::move(before), after, where);
  }

  const Vocabulary& vocabulary_;
  PostProcessor result_;
};

}  // namespace

PostProcessor read_post_processor(const Json& json, const std::string& where, const Vocabulary& vocabulary) {
  Reader reader(vocabulary);
  reader.read(json, where);
  return reader.take();
}

}  // namespace sluice::text
