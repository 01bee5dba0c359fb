#include "text/jinja_time.h"

#include <algorithm>

#include "text/jinja_context.h"

namespace sluice::text::jinja {
namespace {

constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};

std::string padded(int value, std::size_t width, char fill = '0') {
  const std::string digits = std::to_string(value);
  return std::string(width - std::min(width, digits.size()), fill) + digits;
}

std::string_view day_name(const std::tm& t) { return kDays[std::clamp(t.tm_wday, 0, 6)]; }
std::string_view month_name(const std::tm& t) { return kMonths[std::clamp(t.tm_mon, 0, 11)]; }

// Directives that are short for others.
std::string_view expansion(char directive) {
  switch (directive) {
    case 'c':
      return "%a %b %e %H:%M:%S %Y";
    case 'x':
    case 'D':
      return "%m/%d/%y";
    case 'X':
    case 'T':
      return "%H:%M:%S";
    case 'F':
      return "%Y-%m-%d";
    case 'R':
      return "%H:%M";
    default:
      return "";
  }
}

std::string date_part(Context& context, char directive, const std::tm& t) {
  const int monday_based = (t.tm_wday + 6) % 7;
  switch (directive) {
    case 'Y':
      return std::to_string(t.tm_year + 1900);
    case 'y':
      return padded((t.tm_year % 100 + 100) % 100, 2);
    case 'm':
      return padded(t.tm_mon + 1, 2);
    case 'd':
      return padded(t.tm_mday, 2);
    case 'e':
      return padded(t.tm_mday, 2, ' ');
    case 'j':
      return padded(t.tm_yday + 1, 3);
    case 'u':
      return std::to_string(monday_based + 1);
    case 'w':
      return std::to_string(t.tm_wday);
    case 'U':
      return padded((t.tm_yday + 7 - t.tm_wday) / 7, 2);
    case 'W':
      return padded((t.tm_yday + 7 - monday_based) / 7, 2);
    default:
      context.fail(std::string("strftime_now: the directive %") + directive + " is not supported");
  }
}

std::string part(Context& context, char directive, const std::tm& t) {
  const int hour12 = t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12;
  switch (directive) {
    case 'A':
      return std::string(day_name(t));
    case 'a':
      return std::string(day_name(t).substr(0, 3));
    case 'B':
      return std::string(month_name(t));
    case 'b':
    case 'h':
      return std::string(month_name(t).substr(0, 3));
    case 'H':
      return padded(t.tm_hour, 2);
    case 'I':
      return padded(hour12, 2);
    case 'M':
      return padded(t.tm_min, 2);
    case 'S':
      return padded(t.tm_sec, 2);
    case 'f':
      return "000000";
    case 'p':
      return t.tm_hour < 12 ? "AM" : "PM";
    case 'Z':
    case 'z':
      return "";
    case '%':
      return "%";
    case 'n':
      return "\n";
    case 't':
      return "\t";
    default:
      return date_part(context, directive, t);
  }
}

}  // namespace

std::string format_time(Context& context, std::string_view format, const std::tm& time) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    char directive = format[++i];
    const bool unpadded = directive == '-' && i + 1 < format.size();
    if (unpadded) directive = format[++i];
    const std::string_view longer = expansion(directive);
    std::string text = longer.empty() ? part(context, directive, time) : format_time(context, longer, time);
    if (unpadded && !text.empty()) text.erase(0, std::min(text.find_first_not_of("0 "), text.size() - 1));
    context.charge_bytes(text.size());
    out += text;
  }
  return out;
}

}  // namespace sluice::text::jinja
