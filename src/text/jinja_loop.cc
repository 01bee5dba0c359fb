#include "text/jinja_loop.h"

namespace sluice::text::jinja {
namespace {

// loop.cycle: picks the argument whose turn it is.
class Cycle : public Object {
 public:
  explicit Cycle(std::int64_t index) : index_(index) {}
  std::string type_name() const override { return "method"; }
  std::string text(Context&) const override { return "<method cycle of loop>"; }
  bool is_callable() const override { return true; }
  Value call(Context& context, CallArgs& args) override {
    if (args.positional.empty() || !args.named.empty()) context.fail("loop.cycle takes one or more values");
    return args.positional[static_cast<std::size_t>(index_) % args.positional.size()];
  }

 private:
  std::int64_t index_;
};

}  // namespace

Loop::Loop(Context& context, const Value& items, Keep keep) : items_(Iterator(context, items)), keep_(std::move(keep)) {
  if (!keep_) known_length_ = length_of(items);
}

std::optional<Value> Loop::pull(Context& context) {
  if (drained_) {
    if (drained_at_ >= drained_->size()) return std::nullopt;
    return (*drained_)[drained_at_++];
  }
  while (items_) {
    auto item = items_->next();
    if (!item) break;
    context.step();
    if (!keep_ || keep_(*item)) return item;
  }
  return std::nullopt;
}

const std::optional<Value>& Loop::peek(Context& context) {
  if (!after_) after_ = pull(context);
  return after_;
}

std::optional<Value> Loop::advance(Context& context) {
  std::optional<Value> item = after_ ? std::exchange(after_, std::nullopt) : pull(context);
  if (!item) return std::nullopt;
  ++index0_;
  previous_ = std::exchange(current_, item);
  return item;
}

std::int64_t Loop::length(Context& context) {
  if (!known_length_) {
    std::vector<Value> rest;
    while (auto item = pull(context)) {
      context.charge_bytes(sizeof(Value));
      rest.push_back(std::move(*item));
    }
    known_length_ = rest.size() + static_cast<std::size_t>(index0_ + 1) + (after_ ? 1 : 0);
    drained_ = std::move(rest);
  }
  return static_cast<std::int64_t>(*known_length_);
}

void Loop::finish() {
  items_.reset();
  keep_ = nullptr;
  drained_.reset();
  previous_.reset();
  current_.reset();
  after_.reset();
}

std::optional<Value> Loop::attribute(Context& context, std::string_view name) {
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(!peek(context).has_value());
  if (name == "length") return Value(length(context));
  if (name == "revindex") return Value(length(context) - index0_);
  if (name == "revindex0") return Value(length(context) - index0_ - 1);
  if (name == "depth") return Value(std::int64_t{1});
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "previtem") return previous_ ? *previous_ : Value::undefined("there is no previous item");
  if (name == "nextitem") return peek(context) ? *after_ : Value::undefined("there is no next item");
  if (name == "cycle") return context.make_object(std::make_shared<Cycle>(index0_), 0);
  return std::nullopt;
}

}  // namespace sluice::text::jinja
