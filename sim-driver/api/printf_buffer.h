// What kernels of one context printed and the program has not seen yet.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace tally::sim_driver {

// Text goes to file descriptor 1 when Flush() is called at the points where a real driver does so, or when more than
// the limit is waiting (a real driver would overwrite then). Thread-safe.
class PrintfBuffer {
 public:
  void Append(std::string_view text);
  void Flush();
  void SetLimit(size_t num_bytes);

 private:
  std::mutex mutex_;
  std::string waiting_;
  size_t limit_bytes_ = 1 << 20;
};

}  // namespace tally::sim_driver
