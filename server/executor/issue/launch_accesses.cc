#include "server/executor/issue/launch_accesses.h"

#include <algorithm>
#include <string_view>

namespace tally::server {
namespace {

using ptx_transforms::GlobalAccess;
using ptx_transforms::KernelSegments;
using ptx_transforms::MemorySpan;
using ptx_transforms::PointerRoot;
using ptx_transforms::Segment;
using ptx_transforms::SegmentClass;

class KernelMemory final : public ptx_transforms::SegmentMemory {
 public:
  KernelMemory(const KernelSegments& segments, const LaunchMemory& memory, std::span<const MemorySpan> variables,
               MemoryAnswers& answers)
      : segments_(segments), memory_(memory), variables_(variables), answers_(answers) {}

  MemorySpan AllocationOf(uint64_t address) const override { return answers_.AllocationOf(memory_, address); }
  MemorySpan SymbolOf(std::string_view name) const override {
    for (size_t k = 0; k < variables_.size(); ++k) {
      if (segments_.symbols[k].name == name) return variables_[k];
    }
    return {};
  }

 private:
  const KernelSegments& segments_;
  const LaunchMemory& memory_;
  const std::span<const MemorySpan> variables_;
  MemoryAnswers& answers_;
};

// Of an evaluation that ended with a barrier: the kernel has none.
const char* WhyBarrier(const KernelSegments& segments, std::string_view code) {
  if (code == "cooperative") return "cooperative";
  const bool has_loaded = std::any_of(segments.accesses.begin(), segments.accesses.end(), [](const auto& access) {
    return access.roots.empty() || std::any_of(access.roots.begin(), access.roots.end(), [](const PointerRoot& root) {
             return root.kind == PointerRoot::Kind::kMemory;
           });
  });
  // Otherwise a parameter points to what is no memory of the session's.
  return has_loaded ? "pointer-from-memory" : "unknown-memory";
}

// Those that no program has asked for are no memory that the session knows.
bool IsVariable(const scheduler::Box& box, std::span<const MemorySpan> variables) {
  return std::any_of(variables.begin(), variables.end(), [&](const MemorySpan& place) {
    return box.begin() < place.address + place.bytes && place.address < box.end();
  });
}

scheduler::AccessKind KindOf(ptx_transforms::AccessKind kind) {
  switch (kind) {
    case ptx_transforms::AccessKind::kRead:
      return scheduler::AccessKind::kRead;
    case ptx_transforms::AccessKind::kWrite:
      return scheduler::AccessKind::kWrite;
    case ptx_transforms::AccessKind::kAtomic:
      break;
  }
  return scheduler::AccessKind::kReadWrite;
}

}  // namespace

LaunchAccesses BarrierFor(const char* code) {
  return {.accesses = {}, .extent = scheduler::Extent::kAnything, .barrier = code, .widest = SegmentClass::kAnywhere};
}

LaunchAccesses AccessesOf(const KernelSegments& segments, const ptx_transforms::SegmentLaunch& launch,
                          const LaunchMemory& memory, std::span<const MemorySpan> variables, MemoryAnswers& answers) {
  const KernelMemory kernel_memory(segments, memory, variables, answers);
  const ptx_transforms::LaunchSegments found = EvaluateSegments(segments, launch, kernel_memory);
  if (!found.barrier.empty()) return BarrierFor(WhyBarrier(segments, found.barrier));
  // What a texture, a surface or a tensor map stands for, only the driver knows.
  if (!found.objects.empty()) return BarrierFor("object");
  if (found.segments.size() > scheduler::Window::kMostAccesses) return BarrierFor("too-many");
  LaunchAccesses result;
  result.accesses.reserve(found.segments.size());
  for (const Segment& segment : found.segments) {
    const auto& [address, row_bytes, rows, pitch] = segment.box;
    if (row_bytes == 0 || rows == 0) continue;
    const auto box = scheduler::Box::Rows(address, row_bytes, rows, pitch);
    if (!box) return BarrierFor("unknown-memory");
    const LaunchMemory::Sort sort = answers.SortWithin(memory, box->begin(), box->end());
    const char* const why = WhyNotBeside(sort);
    if (why != nullptr && !(sort == LaunchMemory::Sort::kNone && IsVariable(*box, variables))) return BarrierFor(why);
    result.accesses.push_back({*box, KindOf(segment.kind)});
  }
  if (found.reads_anything) result.extent = scheduler::Extent::kReadsAnything;
  for (size_t k = 0; k < found.num_accesses.size(); ++k) {
    if (found.num_accesses[k] != 0) result.widest = static_cast<SegmentClass>(k);
  }
  return result;
}

}  // namespace tally::server
