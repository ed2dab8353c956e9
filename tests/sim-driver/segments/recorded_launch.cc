#include "tests/sim-driver/segments/recorded_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "sim-driver/engine/access_observer.h"
#include "sim-driver/engine/program.h"

namespace tally::ptx_transforms {
namespace {

struct HashAccess {
  size_t operator()(const RecordedAccess& access) const {
    return std::hash<uint64_t>()(access.address * 64 + access.bytes * 2 + access.is_write);
  }
};

class AccessRecorder final : public sim_driver::AccessObserver {
 public:
  void OnAccess(const sim_driver::ObservedAccess& access) const override {
    seen_.insert({access.address, access.bytes, access.is_write});
  }
  std::vector<RecordedAccess> seen() const { return {seen_.begin(), seen_.end()}; }

 private:
  mutable std::unordered_set<RecordedAccess, HashAccess> seen_;  // of the one worker that the machine has
};

class LaunchMemory final : public SegmentMemory {
 public:
  explicit LaunchMemory(const sim_driver::LaunchRequest& request) : request_(request) {}
  MemorySpan AllocationOf(uint64_t address) const override {
    const sim_driver::MemoryRange range = request_.memory->Find(address);
    return {range.base, range.size_bytes};
  }
  MemorySpan SymbolOf(std::string_view name) const override {
    const auto& variables = request_.program->variables();
    for (size_t k = 0; k < variables.size(); ++k)
      if (variables[k].name == name) return {request_.variable_addresses[k], variables[k].size_bytes};
    return {};
  }

 private:
  const sim_driver::LaunchRequest& request_;
};

bool Holds(const SegmentBox& box, uint64_t address, uint64_t bytes) {
  if (address < box.address || address >= box.end()) return false;
  const uint64_t inside = address - box.address;
  const uint64_t row = box.rows == 1 ? 0 : std::min(inside / box.pitch, box.rows - 1);
  const uint64_t column = inside - row * box.pitch;
  return bytes <= box.row_bytes && column <= box.row_bytes - bytes;
}

// What differs if the bytes of parameters are others that LaunchInputs does not name.
std::optional<std::string> FirstThatMatters(const KernelSegments& kernel, const SegmentLaunch& launch,
                                            const SegmentMemory& memory, const LaunchSegments& predicted) {
  std::vector<std::byte> changed(launch.parameters.begin(), launch.parameters.end());
  for (std::byte& byte : changed) byte = ~byte;
  for (const auto& [offset, bytes] : LaunchInputs(kernel))
    for (size_t at = offset; at < std::min<size_t>(offset + bytes, changed.size()); ++at)
      changed[at] = launch.parameters[at];
  SegmentLaunch other = launch;
  other.parameters = changed;
  const LaunchSegments found = EvaluateSegments(kernel, other, memory);
  const auto is_same = [](const Segment& a, const Segment& b) { return a.box == b.box && a.kind == b.kind; };
  if (found.barrier == predicted.barrier && found.reads_anything == predicted.reads_anything &&
      found.objects == predicted.objects && std::ranges::equal(found.segments, predicted.segments, is_same)) {
    return std::nullopt;
  }
  return "bytes of parameters matter that are not among the inputs of " + SegmentsAsText(kernel);
}

}  // namespace

std::optional<std::string> FirstOutside(const std::vector<RecordedAccess>& accesses, const LaunchSegments& predicted,
                                        const KernelSegments& kernel) {
  if (!predicted.barrier.empty()) return std::nullopt;
  for (const RecordedAccess& access : accesses) {
    if (!access.is_write && predicted.reads_anything) continue;
    const bool is_inside =
        std::any_of(predicted.segments.begin(), predicted.segments.end(), [&](const Segment& segment) {
          const bool is_kind =
              segment.kind == AccessKind::kAtomic || (segment.kind == AccessKind::kWrite) == access.is_write;
          return is_kind && Holds(segment.box, access.address, access.bytes);
        });
    if (is_inside) continue;
    std::string text = fmt::format("{} of {} bytes at {:#x} is outside all segments of {}:\n",
                                   access.is_write ? "write" : "read", access.bytes, access.address, kernel.kernel);
    for (const Segment& segment : predicted.segments)
      text += fmt::format("  {} {} {:#x}: {} rows of {} bytes each {} ({})\n", ClassName(segment.of_class),
                          KindName(segment.kind), segment.box.address, segment.box.rows, segment.box.row_bytes,
                          segment.box.pitch, kernel.accesses[segment.access].what);
    return text + SegmentsAsText(kernel);
  }
  return std::nullopt;
}

std::string Report(std::string_view what, const LaunchTotals& totals) {
  std::string text = fmt::format("{}: {} launches ({} barriers, {} faults), {} different accesses; ", what,
                                 totals.launches, totals.barriers, totals.faults, totals.accesses);
  for (size_t k = 0; k < kNumSegmentClasses; ++k) text += fmt::format("C{} {} ", k, totals.by_class[k]);
  return text + "\n";
}

std::optional<std::string> RecordedLaunches::Check(sim_driver::LaunchRequest request, const KernelSegments& kernel,
                                                   uint64_t budget) {
  const SegmentLaunch launch = {.grid = {request.grid.x, request.grid.y, request.grid.z},
                                .block = {request.block.x, request.block.y, request.block.z},
                                .parameters = request.parameters,
                                .is_cooperative = request.is_cooperative};
  const LaunchMemory live(request);
  const LaunchSegments predicted = EvaluateSegments(kernel, launch, live);
  if (auto input = FirstThatMatters(kernel, launch, live, predicted)) return input;
  ++totals_.launches;
  totals_.barriers += !predicted.barrier.empty();
  for (size_t k = 0; k < kNumSegmentClasses; ++k) totals_.by_class[k] += predicted.num_accesses[k];
  const auto recorder = std::make_shared<AccessRecorder>();
  request.observer = recorder;
  const std::string grid = fmt::format("grid ({},{},{}), block ({},{},{})", request.grid.x, request.grid.y,
                                       request.grid.z, request.block.x, request.block.y, request.block.z);
  totals_.faults += runner_.Run(std::move(request), budget).has_value();
  const std::vector<RecordedAccess> seen = recorder->seen();
  totals_.accesses += seen.size();
  auto outside = FirstOutside(seen, predicted, kernel);
  if (outside) *outside = grid + ": " + *outside;
  return outside;
}

}  // namespace tally::ptx_transforms
