#include "sim-driver/api/driver_waits.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "sim-driver/api/context.h"
#include "sim-driver/api/device.h"

namespace tally::sim_driver {
namespace {

// Of each context that there was; a test has few.
std::shared_mutex& GateOf(const Context& context) {
  static std::mutex mutex;
  static auto* const gates = new std::map<uint64_t, std::shared_mutex>();
  const std::lock_guard lock(mutex);
  return (*gates)[context.id()];
}

void AwaitWithLocks(Context& context) {
  std::vector<ContextPtr> contexts = {context.shared_from_this()};
  if (WaitMode() == 2) contexts = AllContexts();
  std::ranges::sort(contexts, {}, [](const ContextPtr& each) { return each->id(); });
  std::vector<std::unique_lock<std::shared_mutex>> locks;
  for (const ContextPtr& each : contexts) locks.emplace_back(GateOf(*each));
  for (const ContextPtr& each : contexts) each->Synchronize();
}

}  // namespace

void AwaitContext(Context& context) {
  if (WaitMode() != 0) return AwaitWithLocks(context);
  context.Synchronize();
}

void AwaitContextIfAsked(Context& context) {
  if (WaitMode() != 0) AwaitWithLocks(context);
}

LaunchTurn::LaunchTurn(const Context& context) {
  if (WaitMode() != 0) lock_ = std::shared_lock(GateOf(context));
}

}  // namespace tally::sim_driver
