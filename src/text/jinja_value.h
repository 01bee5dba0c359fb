// Values of a template: Python's None, bool, int, float, str, list, tuple, range, dict, dict views, and objects
// (macros, namespaces, generators), plus Jinja's undefined.
//
// A Value is cheap to copy: strings and containers are shared and never change after they were made, which is what the
// immutable sandbox of the reference implementation allows too. Only objects have state; they live in one render on one
// thread. Containers know how deep they nest, so that no recursion over a value can run out of stack.
// Values are made through Context (jinja_context.h), which counts the memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sluice::text::jinja {

class Context;
class Value;
struct CallArgs;

struct Text {
  std::string bytes;  // valid UTF-8
  std::size_t code_points = 0;
  bool is_markup = false;  // marked safe: adding plain text to it escapes that text, as markupsafe does
};

enum class SequenceKind { list, tuple, range, keys, values, items };  // the last three are views of a dict

struct Sequence {
  SequenceKind kind = SequenceKind::list;
  int depth = 0;
  std::vector<Value> items;
  std::int64_t start = 0, stop = 0, stride = 1;  // of a range, for printing
};

struct Dict {
  int depth = 0;
  std::vector<std::pair<Value, Value>> entries;  // in order of insertion, keys distinct

  // Value of an equal key, or nullptr. Linear; charges the context for it.
  const Value* find(Context& context, const Value& key) const;
  const Value* find(Context& context, std::string_view key) const;
};

// What has identity or state. Owned by values, except namespaces, which the Context owns because they can form cycles.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;  // for messages, for example "macro"
  virtual std::string text(Context& context) const = 0;
  virtual std::optional<Value> attribute(Context& context, std::string_view name);
  virtual bool is_callable() const { return false; }
  virtual Value call(Context& context, CallArgs& args);
  virtual bool is_iterable() const { return false; }
  virtual std::optional<Value> next(Context& context);  // the iterator protocol; nullopt at the end
  int depth = 0;
};

class Value {
 public:
  struct Undefined {
    std::shared_ptr<const std::string> why;  // message of the error that using it raises
  };

  Value() = default;                                                 // None
  Value(bool v) : data_(v) {}                                        // NOLINT(google-explicit-constructor)
  Value(std::int64_t v) : data_(v) {}                                // NOLINT(google-explicit-constructor)
  Value(double v) : data_(v) {}                                      // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<const Text> v) : data_(std::move(v)) {}      // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<const Sequence> v) : data_(std::move(v)) {}  // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<const Dict> v) : data_(std::move(v)) {}      // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Object> v) : data_(std::move(v)) {}          // NOLINT(google-explicit-constructor)
  static Value undefined(std::string why);
  // Text that no render made: literals of the template. Not charged to anything.
  static Value literal(std::string bytes);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_integral() const { return is_bool() || is_int(); }  // what Python takes for an index
  bool is_text() const { return std::holds_alternative<std::shared_ptr<const Text>>(data_); }
  bool is_sequence() const { return std::holds_alternative<std::shared_ptr<const Sequence>>(data_); }
  bool is_kind(SequenceKind kind) const { return is_sequence() && sequence().kind == kind; }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_object() const { return std::holds_alternative<std::shared_ptr<Object>>(data_); }

  // Access; the caller has asked for the type before.
  std::int64_t integer() const;  // of a bool or an int
  double real() const;           // of any number
  const Text& text() const { return **std::get_if<std::shared_ptr<const Text>>(&data_); }
  const std::string& bytes() const { return text().bytes; }
  const Sequence& sequence() const { return **std::get_if<std::shared_ptr<const Sequence>>(&data_); }
  const Dict& dict() const { return **std::get_if<std::shared_ptr<const Dict>>(&data_); }
  Object& object() const { return **std::get_if<std::shared_ptr<Object>>(&data_); }
  const std::string& undefined_message() const { return *std::get_if<Undefined>(&data_)->why; }

  bool truth() const;
  int depth() const;                       // 0 for scalars
  std::string type_name() const;           // as Python spells it: "str", "int", "dict", "NoneType", ...
  bool same_as(const Value& other) const;  // Python's `is`, as far as it can be told apart

 private:
  std::variant<std::monostate, Undefined, bool, std::int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

}  // namespace sluice::text::jinja
