#include "text/jinja_iterate.h"

#include <algorithm>

#include "text/jinja_context.h"
#include "text/jinja_unicode.h"

namespace sluice::text::jinja {

bool is_iterable(const Value& value) {
  return value.is_text() || value.is_sequence() || value.is_dict() || value.is_undefined() ||
         (value.is_object() && value.object().is_iterable());
}

Iterator::Iterator(Context& context, Value source) : context_(&context), source_(std::move(source)) {
  if (!is_iterable(source_)) context.fail("a value of type " + source_.type_name() + " cannot be iterated over");
}

std::optional<Value> Iterator::next() {
  context_->step();
  if (source_.is_object()) return source_.object().next(*context_);
  if (source_.is_text()) {
    const std::string& bytes = source_.bytes();
    if (at_ >= bytes.size()) return std::nullopt;
    const std::size_t begin = at_;
    decode_next(bytes, at_);
    return context_->make_text(bytes.substr(begin, at_ - begin), source_.text().is_markup);
  }
  if (source_.is_sequence() && at_ < source_.sequence().items.size()) return source_.sequence().items[at_++];
  if (source_.is_dict() && at_ < source_.dict().entries.size()) return source_.dict().entries[at_++].first;
  return std::nullopt;
}

std::vector<Value> collect(Context& context, const Value& source) {
  std::vector<Value> items;
  Iterator iterator(context, source);
  while (auto item = iterator.next()) {
    context.charge_bytes(sizeof(Value));
    items.push_back(std::move(*item));
  }
  return items;
}

std::optional<std::size_t> length_of(const Value& value) {
  if (value.is_text()) return value.text().code_points;
  if (value.is_sequence()) return value.sequence().items.size();
  if (value.is_dict()) return value.dict().entries.size();
  if (value.is_undefined()) return 0;
  return std::nullopt;
}

Value Generator::make(Context& context, const Value& source, Step step, int depth_of_arguments) {
  auto generator = std::make_shared<Generator>(context, source, std::move(step));
  return context.make_object(std::move(generator), std::max(source.depth(), depth_of_arguments));
}

std::optional<Value> Generator::next(Context& context) {
  const Context::Level level(context);
  while (auto item = items_.next()) {
    if (auto result = step_(*item)) return result;
  }
  return std::nullopt;
}

}  // namespace sluice::text::jinja
