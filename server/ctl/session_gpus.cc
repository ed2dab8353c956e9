#include "server/ctl/session_gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace tally::cli {

std::string GpusOf(const control::v1::Session& session, const std::vector<GpuReading>& gpus) {
  std::set<uint32_t> numbers;
  for (const auto& busy : session.busy()) {
    const auto found = std::ranges::find(gpus, busy.gpu(), &GpuReading::uuid);
    numbers.insert(found == gpus.end() ? busy.place() : found->index);
  }
  return numbers.empty() ? "-" : fmt::format("{}", fmt::join(numbers, ","));
}

}  // namespace tally::cli
