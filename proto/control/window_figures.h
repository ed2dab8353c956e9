// What the window of a session counts by (session_figures.h, docs/window.md): what is known of the memory that a launch
// touches, why it had to be a barrier, and what ended a batch of held launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace tally::control {

// By number those of ptx_transforms::SegmentClass; then launches that touch no global memory (docs/segments.md).
inline constexpr const char* kWindowClasses[] = {"C0", "C1", "C2", "C3", "C4", "none"};
inline constexpr size_t kWindowClassNone = std::size(kWindowClasses) - 1;

// Why a launch was a barrier. Metrics have a label for each, so what comes from a kernel is never one.
inline constexpr const char* kWindowBarriers[] = {
    // What the kernel is: the codes of docs/segments.md.
    "call",
    "cooperative",
    "device-heap",
    "device-launch",
    "flow",
    "grid-id",
    "grid-sync",
    "indirect-call",
    "names",
    "not-understood",
    "parameters",
    "pointer-from-memory",
    "printf",
    "recursion",
    "spin-loop",
    "system-scope",
    "texture-reference",
    "too-large",
    "trap",
    "unknown-access",
    "volatile",
    // What is known of it, and of this launch: docs/window.md.
    "no-ptx",
    "not-yet",
    "attributes",
    "capture",
    "declared",
    "declared-capture",
    "host-memory",
    "no-gain",
    "object",
    "preemptible",
    "reply",
    "shared-memory",
    "too-many",
    "unknown-memory",
    "other",
};
inline constexpr size_t kNumWindowBarriers = std::size(kWindowBarriers);

// Its place in the list; that of "other" if it has none. A few comparisons of lengths.
constexpr size_t WindowBarrierOf(std::string_view code) {
  for (size_t i = 0; i < kNumWindowBarriers; ++i) {
    if (code == kWindowBarriers[i]) return i;
  }
  return kNumWindowBarriers - 1;
}

// What ended a batch.
enum class WindowEnd : uint8_t {
  kFull,
  kStep,     // a launch like the first one came: the program's next step begins
  kRequest,  // another request of the session
  kIdle,     // nothing came for a moment
};
inline constexpr const char* kWindowEnds[] = {"full", "step", "request", "idle"};

// How batches of a shape are issued.
enum class WindowWay : uint32_t {
  kInOrder = 0,
  kGraph = 1,
  kRefused = 2,  // in order, because the driver refuses its graph
};
constexpr const char* NameOf(WindowWay way) {
  constexpr const char* kNames[] = {"in order", "graph", "refused"};
  const auto index = static_cast<size_t>(way);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

// A shape that came more than once.
struct WindowShapeFigures {
  uint64_t session_id;
  uint32_t num_nodes;    // launches of a batch
  uint32_t num_levels;   // of them in the longest chain
  uint32_t num_tracks;   // at most side by side
  WindowWay way;         // of the next batch
  uint64_t num_uses;     // batches
  uint64_t in_order_ns;  // of one batch, as last measured; 0: not yet
  uint64_t graph_ns;     // likewise
};

}  // namespace tally::control
