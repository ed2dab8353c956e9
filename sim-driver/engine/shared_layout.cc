#include "sim-driver/engine/shared_layout.h"

#include <algorithm>
#include <map>

namespace tally::sim_driver {

bool LayOutShared(std::span<SharedVariable> variables) {
  constexpr uint64_t kLimit = 16u << 20;
  std::map<uint32_t, uint64_t> top;  // per kernel
  // What most kernels share comes first, so that it does not force a gap on those that have little else.
  std::vector<SharedVariable*> order;
  for (SharedVariable& variable : variables) order.push_back(&variable);
  std::stable_sort(order.begin(), order.end(), [](const SharedVariable* a, const SharedVariable* b) {
    return a->kernels.size() > b->kernels.size();
  });
  for (SharedVariable* next : order) {
    SharedVariable& variable = *next;
    uint64_t start = 0;
    for (uint32_t kernel : variable.kernels) start = std::max(start, top[kernel]);
    start = (start + variable.align - 1) / variable.align * variable.align;
    if (variable.size_bytes > kLimit || start + variable.size_bytes > kLimit) return false;
    variable.offset_bytes = static_cast<uint32_t>(start);
    for (uint32_t kernel : variable.kernels) top[kernel] = start + variable.size_bytes;
  }
  return true;
}

}  // namespace tally::sim_driver
