// The formatting of device printf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tally::sim_driver {

// Where the arguments come from. Both return false if the memory cannot be read.
class PrintfArguments {
 public:
  virtual ~PrintfArguments() = default;
  // The next argument of 4 or 8 bytes, at an address aligned to as much.
  virtual bool Next(uint32_t bytes, uint64_t* value) = 0;
  virtual bool String(uint64_t address, std::string* text) = 0;
};

// Appends to `output` what printf would print; `count` receives the number of arguments used. What is no valid
// conversion is printed as it stands. False if an argument cannot be read.
bool FormatPrintf(std::string_view format, PrintfArguments& arguments, std::string* output, uint32_t* count);

}  // namespace tally::sim_driver
