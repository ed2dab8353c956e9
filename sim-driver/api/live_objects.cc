#include "sim-driver/api/live_objects.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

namespace tally::sim_driver {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::function<uint64_t()>> counts;
};
Registry& GetRegistry() {
  static auto& registry = *new Registry();
  return registry;
}

}  // namespace

void RegisterLive(const char* kind, std::function<uint64_t()> count) {
  Registry& registry = GetRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.counts[kind] = std::move(count);
}

std::string DescribeLive() {
  Registry& registry = GetRegistry();
  const std::lock_guard lock(registry.mutex);
  std::string text;
  for (const auto& [kind, count] : registry.counts) text += fmt::format("{} {}\n", kind, count());
  return text;
}

}  // namespace tally::sim_driver
