#include "text/jinja_context.h"

#include <algorithm>

#include "core/error.h"
#include "text/jinja_compare.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {
namespace {

constexpr std::uint64_t kTextOverheadBytes = 64;
constexpr std::uint64_t kObjectOverheadBytes = 128;

}  // namespace

void Context::fail(const std::string& what, const std::string& hint) const {
  sluice::fail(ErrorCode::bad_input, origin_ + " line " + std::to_string(line_) + ": " + what, "", hint);
}

void Context::fail_undefined(const Value& undefined) const { fail(undefined.undefined_message()); }

void Context::exceed(const std::string& what) const {
  sluice::fail(ErrorCode::resources,
               origin_ + " line " + std::to_string(line_) + ": the template needs more than " + what, "",
               "it may loop without end; if it is right, raise the limits of the render");
}

void Context::step(std::uint64_t n) {
  steps_ = n > limits_.steps - steps_ ? limits_.steps + 1 : steps_ + n;
  if (steps_ > limits_.steps) exceed(std::to_string(limits_.steps) + " steps");
}

void Context::charge_bytes(std::uint64_t bytes) {
  // Saturating: a request may be as large as a product of two sizes.
  bytes_ = bytes > limits_.memory_bytes - bytes_ ? limits_.memory_bytes + 1 : bytes_ + bytes;
  if (bytes_ > limits_.memory_bytes) exceed(std::to_string(limits_.memory_bytes) + " bytes of values");
}

int Context::checked_depth(int inside) const {
  if (inside >= kMaxValueDepth) exceed(std::to_string(kMaxValueDepth) + " nested containers");
  return inside + 1;
}

Value Context::make_text(std::string bytes, bool is_markup) {
  charge_bytes(kTextOverheadBytes + bytes.size());
  Text text;
  text.code_points = count_code_points(bytes);
  text.bytes = std::move(bytes);
  text.is_markup = is_markup;
  return std::make_shared<const Text>(std::move(text));
}

Value Context::make_sequence(SequenceKind kind, std::vector<Value> items) {
  step(items.size());
  charge_bytes(items.size() * sizeof(Value));
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  int inside = 0;
  for (const Value& item : items) inside = std::max(inside, item.depth());
  sequence->depth = checked_depth(inside);
  sequence->items = std::move(items);
  return std::shared_ptr<const Sequence>(std::move(sequence));
}

Value Context::make_range(std::int64_t start, std::int64_t stop, std::int64_t stride, std::vector<Value> items) {
  step(items.size());
  charge_bytes(items.size() * sizeof(Value));
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = SequenceKind::range;
  sequence->depth = 1;
  sequence->items = std::move(items);
  sequence->start = start;
  sequence->stop = stop;
  sequence->stride = stride;
  return std::shared_ptr<const Sequence>(std::move(sequence));
}

Value Context::make_dict(std::vector<std::pair<Value, Value>> entries) {
  charge_bytes(entries.size() * 2 * sizeof(Value));
  auto dict = std::make_shared<Dict>();
  int inside = 0;
  for (std::pair<Value, Value>& entry : entries) {
    Value& key = entry.first;
    Value& value = entry.second;
    if (!is_hashable(*this, key)) fail("a value of type " + key.type_name() + " cannot be the key of a dict");
    inside = std::max({inside, key.depth(), value.depth()});
    const Value* old = dict->find(*this, key);
    if (old == nullptr) {
      dict->entries.emplace_back(std::move(key), std::move(value));
      continue;
    }
    for (auto& [name, kept] : dict->entries) {
      if (&kept != old) continue;
      kept = std::move(value);
      break;
    }
  }
  dict->depth = checked_depth(inside);
  return std::shared_ptr<const Dict>(std::move(dict));
}

Value Context::make_record(std::vector<std::pair<Value, Value>> entries) {
  step(entries.size());
  charge_bytes(entries.size() * 2 * sizeof(Value));
  auto dict = std::make_shared<Dict>();
  int inside = 0;
  for (const auto& [key, value] : entries) inside = std::max(inside, value.depth());
  dict->depth = checked_depth(inside);
  dict->entries = std::move(entries);
  return std::shared_ptr<const Dict>(std::move(dict));
}

Value Context::make_pair(Value first, Value second) {
  std::vector<Value> items;
  items.reserve(2);
  items.push_back(std::move(first));
  items.push_back(std::move(second));
  return make_tuple(std::move(items));
}

Value Context::make_object(std::shared_ptr<Object> object, int depth_inside) {
  charge_bytes(kObjectOverheadBytes);
  object->depth = checked_depth(depth_inside);
  return object;
}

Value Context::adopt(std::unique_ptr<Object> object) {
  step();
  charge_bytes(kObjectOverheadBytes);
  owned_.push_back(std::move(object));
  return std::shared_ptr<Object>(std::shared_ptr<void>(), owned_.back().get());
}

Context::Level::Level(Context& context, int line) : context_(context), outer_line_(context.line_) {
  context.line_ = line;
  if (context.level_ >= context.limits_.depth) context.exceed(std::to_string(context.limits_.depth) + " nested levels");
  ++context.level_;
}

Context::Level::~Level() {
  --context_.level_;
  context_.line_ = outer_line_;
}

}  // namespace sluice::text::jinja
