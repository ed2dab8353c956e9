// Not CUDA's: for tests.
#include "sim-driver/api/live_objects.h"

#include <algorithm>
#include <cstring>

#include "sim-driver/api/entry/entry.h"

using namespace tally::sim_driver;

// Writes at most `capacity` bytes of DescribeLive(), without a NUL, and how many it wrote.
TALLY_EXPORT CUresult cuTallyDescribeLive(char* text, size_t capacity, size_t* size) {
  TALLY_ENTRY({
    RequireOut(text);
    RequireOut(size);
    const std::string live = DescribeLive();
    *size = std::min(capacity, live.size());
    std::memcpy(text, live.data(), *size);
  });
}
