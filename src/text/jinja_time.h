// strftime as Python's datetime has it in the C locale, independent of the locale of the process.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

namespace sluice::text::jinja {

class Context;

// Directives a A b B c d D e F H I j m M p S T u U w W x X y Y Z z % n t; fails for any other. Time zones are empty, as
// for a datetime without one.
std::string format_time(Context& context, std::string_view format, const std::tm& time);

}  // namespace sluice::text::jinja
