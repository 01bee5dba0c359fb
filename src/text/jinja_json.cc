#include <algorithm>
#include <cmath>

#include "text/jinja_compare.h"
#include "text/jinja_context.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Context& context, const JsonStyle& style, std::string& out)
      : context_(context), style_(style), out_(out) {}

  void write(const Value& v) {
    context_.step();
    if (v.is_text()) {
      write_text(v.bytes());
    } else if (v.is_none()) {
      out_ += "null";
    } else if (v.is_bool()) {
      out_ += v.integer() != 0 ? "true" : "false";
    } else if (v.is_int()) {
      out_ += std::to_string(v.integer());
    } else if (v.is_float()) {
      out_ += number(v.real());
    } else if (v.is_dict()) {
      write_dict(v.dict());
    } else if (v.is_kind(SequenceKind::list) || v.is_kind(SequenceKind::tuple)) {
      write_list(v.sequence());
    } else {
      context_.fail("tojson: a value of type " + v.type_name() + " has no JSON form" +
                    (v.is_undefined() ? " (" + v.undefined_message() + ")" : ""));
    }
  }

 private:
  static std::string number(double v) {
    if (std::isnan(v)) return "NaN";
    if (std::isinf(v)) return v > 0 ? "Infinity" : "-Infinity";
    return float_repr(v);
  }

  void write_text(std::string_view text) {
    context_.charge_bytes(text.size());
    out_ += '"';
    for (std::size_t at = 0; at < text.size();) write_character(decode_next(text, at));
    out_ += '"';
  }

  void write_character(char32_t c) {
    static constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kNames = "\"\\nrtfb";
    const std::size_t found = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
    if (found != std::string_view::npos) {
      out_ += '\\';
      out_ += kNames[found];
    } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F)) {
      write_unicode_escape(c);
    } else {
      append_utf8(out_, c);
    }
  }

  void write_unicode_escape(char32_t c) {
    if (c > 0xFFFF) {
      write_unicode_escape(0xD800 + ((c - 0x10000) >> 10));
      c = 0xDC00 + ((c - 0x10000) & 0x3FF);
    }
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += "0123456789abcdef"[(c >> shift) & 0xF];
  }

  void write_list(const Sequence& s) {
    if (s.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++level_;
    for (std::size_t i = 0; i < s.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line();
      write(s.items[i]);
    }
    --level_;
    new_line();
    out_ += ']';
  }

  void write_dict(const Dict& d) {
    if (d.entries.empty()) {
      out_ += "{}";
      return;
    }
    out_ += '{';
    ++level_;
    const char* separator = "";
    for (const auto* entry : ordered(d)) {
      out_ += separator;
      new_line();
      write_key(entry->first);
      out_ += style_.key_separator;
      write(entry->second);
      separator = style_.item_separator.c_str();
    }
    --level_;
    new_line();
    out_ += '}';
  }

  std::vector<const std::pair<Value, Value>*> ordered(const Dict& d) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : d.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return less(context_, a->first, b->first); });
    }
    return entries;
  }

  void write_key(const Value& key) {
    if (key.is_text()) return write_text(key.bytes());
    if (!key.is_number() && !key.is_none()) {
      context_.fail("tojson: a key of type " + key.type_name() + " has no JSON form");
    }
    out_ += '"';
    write(key);
    out_ += '"';
  }

  void new_line() {
    if (!style_.indent) return;
    context_.charge_bytes(1 + level_ * style_.indent->size());
    out_ += '\n';
    for (std::size_t i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  Context& context_;
  const JsonStyle& style_;
  std::string& out_;
  std::size_t level_ = 0;
};

}  // namespace

std::string to_json(Context& context, const Value& value, const JsonStyle& style) {
  std::string out;
  JsonWriter(context, style, out).write(value);
  return out;
}

Value from_json(Context& context, const Json& json) {
  if (json.is_null()) return Value();
  if (json.is_bool()) return Value(json.as_bool("value"));
  if (json.is_int()) return Value(json.as_int("value"));
  if (json.is_number()) return Value(json.as_number("value"));
  if (json.is_string()) return context.make_text(json.as_string("value"));
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& item : json.as_array("value")) items.push_back(from_json(context, item));
    return context.make_list(std::move(items));
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : json.as_object("value")) {
    entries.emplace_back(context.make_text(name), from_json(context, value));
  }
  return context.make_record(std::move(entries));
}

}  // namespace sluice::text::jinja
