// strftime_now(format) in the C locale, of the moment that the caller gave.
#include <algorithm>
#include <array>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"

namespace tidemill::jinja {
namespace {

using std::string_view;

// 0 is Sunday (Zeller's congruence, shifted).
int WeekdayOf(int year, int month, int day) {
  static constexpr std::array<int, 12> kShift = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
  if (month < 3) --year;
  return (year + year / 4 - year / 100 + year / 400 + kShift[static_cast<size_t>(month - 1)] + day) % 7;
}

int DayOfYear(int year, int month, int day) {
  static constexpr std::array<int, 12> kBefore = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return kBefore[static_cast<size_t>(month - 1)] + day + (leap && month > 2 ? 1 : 0);
}

std::string Padded(int value, size_t width, char fill) {
  std::string text = std::to_string(value);
  if (text.size() < width) text.insert(0, width - text.size(), fill);
  return text;
}

// One conversion of strftime in the C locale. `pad` is '-' for "%-d", else 0.
std::string TimePart(const ChatTime& now, char conversion, char pad) {
  static constexpr std::array<string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                       "Thursday", "Friday", "Saturday"};
  static constexpr std::array<string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                          "May",       "June",     "July",     "August",
                                                          "September", "October",  "November", "December"};
  const auto number = [pad](int value, size_t width, char fill = '0') {
    return Padded(value, pad == '-' ? 0 : width, fill);
  };
  const int weekday = WeekdayOf(now.year, now.month, now.day);
  const string_view day_name = kDays[static_cast<size_t>(weekday)];
  const string_view month_name = kMonths[static_cast<size_t>(now.month - 1)];
  const int hour12 = now.hour % 12 == 0 ? 12 : now.hour % 12;
  const auto part = [&now](char c) { return TimePart(now, c, 0); };
  switch (conversion) {
    case 'Y': return number(now.year, 1);
    case 'y': return number(now.year % 100, 2);
    case 'm': return number(now.month, 2);
    case 'd': return number(now.day, 2);
    case 'e': return number(now.day, 2, ' ');
    case 'H': return number(now.hour, 2);
    case 'I': return number(hour12, 2);
    case 'M': return number(now.minute, 2);
    case 'S': return number(now.second, 2);
    case 'j': return number(DayOfYear(now.year, now.month, now.day), 3);
    case 'p': return now.hour < 12 ? "AM" : "PM";
    case 'A': return std::string(day_name);
    case 'a': return std::string(day_name.substr(0, 3));
    case 'B': return std::string(month_name);
    case 'b':
    case 'h': return std::string(month_name.substr(0, 3));
    case 'w': return std::to_string(weekday);
    case 'u': return std::to_string(weekday == 0 ? 7 : weekday);
    case 'f': return "000000";
    case 'F': return part('Y') + "-" + part('m') + "-" + part('d');
    case 'T':
    case 'X': return part('H') + ":" + part('M') + ":" + part('S');
    case 'R': return part('H') + ":" + part('M');
    case 'D':
    case 'x': return part('m') + "/" + part('d') + "/" + part('y');
    case 'c': return part('a') + " " + part('b') + " " + part('e') + " " + part('T') + " " + part('Y');
    case 'Z':
    case 'z': return "";
    case 'n': return "\n";
    case 't': return "\t";
    case '%': return "%";
    default: Fail("strftime_now: unsupported conversion \"%" + ForMessage(string_view(&conversion, 1)) + "\"");
  }
}

}  // namespace

Value StrftimeNow(Interpreter& in, const CallArguments& arguments) {
  const auto [format_value] = Bind<1>("strftime_now", arguments, {"format"}, 1);
  const Str& format = NeedString("strftime_now", "format", format_value);
  if (!in.now()) Fail("strftime_now: the caller gave no date");
  TextBuilder out(in.heap());
  const string_view text = format.bytes;
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    out.Append(format, at, percent);
    if (percent == text.size()) break;
    in.heap().Work(1);
    at = percent + 1;
    const char pad = at < text.size() && text[at] == '-' ? '-' : '\0';
    if (pad != 0) ++at;
    if (at >= text.size()) Fail("strftime_now: the format ends within a conversion");
    out.Append(TimePart(*in.now(), text[at], pad), IsCallerByte(format, percent));
    ++at;
  }
  return Value::Of(out.Finish());
}

}  // namespace tidemill::jinja
