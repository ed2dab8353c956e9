#include "sim-driver/engine/printf_format.h"

#include <bit>
#include <cstdio>
#include <vector>

namespace tally::sim_driver {
namespace {

constexpr int kMaxWidth = 4096;  // of a field or precision, so that no format makes us print gigabytes

template <typename T>
void Print(std::string* output, const std::string& spec, T value) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  int length = std::snprintf(nullptr, 0, spec.c_str(), value);
  if (length <= 0) return;
  std::vector<char> text(static_cast<size_t>(length) + 1);
  std::snprintf(text.data(), text.size(), spec.c_str(), value);
#pragma GCC diagnostic pop
  output->append(text.data(), static_cast<size_t>(length));
}

bool IsOneOf(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

}  // namespace

bool FormatPrintf(std::string_view format, PrintfArguments& arguments, std::string* output, uint32_t* count) {
  *count = 0;
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      output->push_back(format[at++]);
      continue;
    }
    size_t start = at++;
    if (at < format.size() && format[at] == '%') {
      output->push_back('%');
      ++at;
      continue;
    }
    std::string spec = "%";
    while (at < format.size() && IsOneOf(format[at], "-+ #0")) {
      if (spec.size() < 8) spec.push_back(format[at]);
      ++at;
    }
    auto number = [&]() -> bool {
      int value = 0;
      if (at < format.size() && format[at] == '*') {
        ++at;
        uint64_t argument = 0;
        if (!arguments.Next(4, &argument)) return false;
        ++*count;
        value = static_cast<int>(argument);
        if (value < 0 && spec.back() != '.') {
          spec.push_back('-');
          value = -(value + 1) + 1 > 0 ? -(value + 1) + 1 : kMaxWidth;
        }
        if (value < 0) {  // a negative precision counts as none
          spec.pop_back();
          return true;
        }
        spec += std::to_string(std::min(value, kMaxWidth));
        return true;
      }
      bool has_digits = false;
      while (at < format.size() && format[at] >= '0' && format[at] <= '9') {
        value = std::min(value * 10 + (format[at++] - '0'), kMaxWidth);
        has_digits = true;
      }
      if (has_digits) spec += std::to_string(value);
      return true;
    };
    if (!number()) return false;
    if (at < format.size() && format[at] == '.') {
      spec.push_back('.');
      ++at;
      if (!number()) return false;
    }
    bool is_long = false;
    int shorts = 0;
    while (at < format.size() && IsOneOf(format[at], "hljztL")) {
      if (format[at] == 'h') {
        ++shorts;
      } else if (format[at] != 'L') {
        is_long = true;
      }
      ++at;
    }
    if (at >= format.size()) {
      output->append(format.substr(start));
      break;
    }
    char conversion = format[at++];
    uint64_t value = 0;
    if (IsOneOf(conversion, "diouxX")) {
      if (!arguments.Next(is_long ? 8 : 4, &value)) return false;
      bool is_signed = conversion == 'd' || conversion == 'i';
      if (!is_long && is_signed) value = static_cast<uint64_t>(int64_t{static_cast<int32_t>(value)});
      if (shorts == 1) value = is_signed ? static_cast<uint64_t>(int64_t{static_cast<int16_t>(value)}) : value & 0xffff;
      if (shorts >= 2) value = is_signed ? static_cast<uint64_t>(int64_t{static_cast<int8_t>(value)}) : value & 0xff;
      Print(output, spec + "ll" + conversion, static_cast<long long>(value));
    } else if (IsOneOf(conversion, "fFeEgGaA")) {
      if (!arguments.Next(8, &value)) return false;
      Print(output, spec + conversion, std::bit_cast<double>(value));
    } else if (conversion == 'c') {
      if (!arguments.Next(4, &value)) return false;
      Print(output, spec + 'c', static_cast<int>(value));
    } else if (conversion == 's') {
      std::string text;
      if (!arguments.Next(8, &value)) return false;
      if (value == 0) {
        text = "(null)";
      } else if (!arguments.String(value, &text)) {
        return false;
      }
      Print(output, spec + 's', text.c_str());
    } else if (conversion == 'p') {
      if (!arguments.Next(8, &value)) return false;
      Print(output, spec + 'p', reinterpret_cast<const void*>(value));
    } else {
      output->append(format.substr(start, at - start));
      continue;
    }
    ++*count;
  }
  return true;
}

}  // namespace tally::sim_driver
