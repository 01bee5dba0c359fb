// What one render has besides values: its limits and what is used up of them, the line for messages, and the
// namespaces.
//
// Made by Template::render, passed to everything that runs, used by one thread. All values that a template computes are
// made here, so that no template can use more memory or time than the limits say. Errors are thrown from here, so that
// each names the template and the line.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace sluice::text::jinja {

// Far above what a real conversation needs; they end a hostile template in seconds.
struct Limits {
  std::uint64_t steps = 50'000'000;                     // evaluated nodes, loop turns and items handled
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;  // of all values made in one render, output included
  int depth = 600;  // nested blocks, operands and macro calls; at most 2 MiB of stack
};

// Containers nest at most so deep; JSON documents are refused at 200 already.
inline constexpr int kMaxValueDepth = 256;

using Clock = std::function<std::tm()>;

class Context {
 public:
  Context(std::string origin, Limits limits, Clock clock)
      : origin_(std::move(origin)), limits_(limits), clock_(std::move(clock)) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Throws Error(bad_input) "<origin> line <n>: <what>; <hint>".
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const;
  // For an undefined value that is used for more than printing, testing or iterating.
  [[noreturn]] void fail_undefined(const Value& undefined) const;

  void step(std::uint64_t n = 1);
  // For reading through a text: nothing for other values.
  void charge_reading(const Value& value) {
    if (value.is_text()) step(1 + value.bytes().size() / 16);
  }
  void charge_bytes(std::uint64_t bytes);

  Value make_text(std::string bytes, bool is_markup = false);
  Value make_list(std::vector<Value> items) { return make_sequence(SequenceKind::list, std::move(items)); }
  Value make_tuple(std::vector<Value> items) { return make_sequence(SequenceKind::tuple, std::move(items)); }
  Value make_sequence(SequenceKind kind, std::vector<Value> items);
  Value make_range(std::int64_t start, std::int64_t stop, std::int64_t stride, std::vector<Value> items);
  // Entries with equal keys: the last value wins, at the place of the first. Refuses keys that cannot be hashed.
  Value make_dict(std::vector<std::pair<Value, Value>> entries);
  // The same for text keys that are known to differ, without the search for equal ones.
  Value make_record(std::vector<std::pair<Value, Value>> entries);
  Value make_pair(Value first, Value second);  // a tuple of two
  // A shared object; `depth` of what it holds. Refuses chains of objects that nest too deep.
  Value make_object(std::shared_ptr<Object> object, int depth_inside);
  // An object that lives until the render ends, so that it may refer to itself.
  Value adopt(std::unique_ptr<Object> object);

  const Clock& clock() const { return clock_; }

  // One level of evaluation; also restores the line when it ends.
  class Level {
   public:
    Level(Context& context, int line);
    explicit Level(Context& context) : Level(context, context.line_) {}
    ~Level();
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Context& context_;
    int outer_line_;
  };

 private:
  [[noreturn]] void exceed(const std::string& what) const;
  int checked_depth(int inside) const;

  std::string origin_;
  Limits limits_;
  Clock clock_;
  int line_ = 1;
  int level_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t bytes_ = 0;
  std::vector<std::unique_ptr<Object>> owned_;
};

}  // namespace sluice::text::jinja
