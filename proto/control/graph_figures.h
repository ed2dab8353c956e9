// How graphs that programs submit are launched (docs/task-graphs.md): as a whole, in partitions of which each passes
// admission by itself, or spread over several GPUs. Said by the program, constant for its session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace tally::control {

// Numbered for good: part of a client's hello (proto/shm/handshake_abi.h).
enum class GraphMode : uint16_t {
  kPartitions = 0,  // where somebody may have to be given the GPU; the default
  kOff = 1,         // always as a whole
  kSpread = 2,      // on several GPUs where that is quicker; on one GPU as kPartitions
};
inline constexpr const char* kGraphModeNames[] = {"partitions", "off", "spread"};

// Of a number that came from elsewhere, too.
constexpr const char* NameOf(GraphMode mode) {
  const auto index = static_cast<size_t>(mode);
  return index < std::size(kGraphModeNames) ? kGraphModeNames[index] : "unknown";
}

// Nothing: it is no mode.
constexpr std::optional<GraphMode> ParseGraphMode(std::string_view name) {
  for (size_t i = 0; i < std::size(kGraphModeNames); ++i) {
    if (name == kGraphModeNames[i]) return static_cast<GraphMode>(i);
  }
  return std::nullopt;
}

// Why a graph was last launched as a whole.
enum class WholeReason : uint32_t {
  kNone = 0,      // it was not
  kOff,           // its program says so
  kKernelsKept,   // ... or that its kernels run as they are; or it has a cap on its GPU time
  kHighPriority,  // nobody comes before it
  kNobodyThere,   // no high-priority program is there, or none has worked lately
  kShort,         // it gives the GPU back soon enough as it is
  kNodes,         // it has nodes that are not cut: of the host, events, memory, conditions, other graphs
  kEdges,         // it has edges that say more than "behind": those that order launches
  kTooLarge,      // it has too many nodes or edges
  kUserObjects,   // its program wants to be told when its graphs are gone
  kSeveralGpus,   // the executor has several
  kChanged,       // a node of the executable was changed in a way that is not followed
  kUpdated,       // it is updated about as often as it is launched
  kCodeUnloaded,  // code was unloaded since: what it was to be cut from may not be read again
  kNoRoom,        // too many nodes are kept for the session already
  kRefused,       // the driver refuses a partition
  kOnePartition,  // there is nothing to cut
  // Of those that are to be spread.
  kLooking,    // it is not known yet what its tasks touch, or how long they take
  kStaysHome,  // none of its tasks may leave the program's GPU
  kNoGain,     // other GPUs would not make it quicker, as planned
  kSlower,     // ... as measured
  kNoMirrors,  // other GPUs cannot have its memory or its code
  kBusy,       // what the program had queued did not end, or something was being captured
};
inline constexpr const char* kWholeReasonNames[] = {
    "",           "off",           "kernels-kept", "high-priority", "nobody-there",  "short",
    "nodes",      "edges",         "too-large",    "user-objects",  "several-gpus",  "changed",
    "updated",    "code-unloaded", "no-room",      "refused",       "one-partition", "looking",
    "stays-home", "no-gain",       "slower",       "no-mirrors",    "busy"};

// Of a number that came from elsewhere, too.
constexpr const char* NameOf(WholeReason reason) {
  const auto index = static_cast<size_t>(reason);
  return index < std::size(kWholeReasonNames) ? kWholeReasonNames[index] : "unknown";
}

// An executable graph of a session. Times are nanoseconds of one launch, as last measured while no high-priority work
// came between; 0: not yet.
struct GraphFigures {
  uint64_t session_id;
  uint32_t number;  // of the session's graphs, from 1
  uint32_t num_nodes;
  uint32_t num_partitions;  // 0: it has not been cut
  uint32_t num_streams;     // that its partitions go to; 0 likewise
  uint32_t num_gpus;        // that they are on
  WholeReason reason;       // of its last launch
  uint64_t num_launches;
  uint64_t num_partitioned;  // of those, in partitions
  uint64_t whole_ns;
  uint64_t partitioned_ns;
  uint64_t num_spread;  // of those launches, on several GPUs
  uint64_t spread_ns;
  uint64_t moved_bytes;  // between GPUs, by all launches
};

}  // namespace tally::control
