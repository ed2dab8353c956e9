// What an executor recorded of its sessions, as it writes it into the file that tallyd gave it (LinkTrace): a header,
// events, then names.
//
// The file belongs to tallyd and cannot grow. An executor may write into it whatever it likes: whoever reads it copies,
// checks, then uses (server/daemon/trace_file.h). Times are of CLOCK_MONOTONIC.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tally::control {

inline constexpr uint64_t kTraceMagic = 0x1053'4543'4152'5401;  // "TRACES" and a version
inline constexpr size_t kMostTraceEvents = size_t{1} << 17;     // of one executor, 8 MiB
inline constexpr size_t kMostTraceNames = 4096;
inline constexpr size_t kTraceNameBytes = 256;  // a name is cut to one less
inline constexpr uint64_t kLongestTraceNs = 60'000'000'000;

enum class TraceKind : uint16_t {
  kRun = 1,          // one operation, or several that follow one another on a stream, on the GPU
  kWait = 2,         // a session's thread waited before it might hand something to the driver
  kRequest = 3,      // of a session with an objective: from its first work to the end of the wait for it
  kDescheduled = 4,  // the executor's contexts on one GPU; session 0
  kRefreshed = 5,    // likewise: preempted once in a pause
};

// Of a kWait: why.
enum class TraceReason : uint16_t {
  kNone = 0,
  kHighPriority = 1,  // high-priority work was on the GPU, or had been until just now
  kPolicy = 2,        // the policy let others go first, or had enough in flight
};

struct TraceEvent {
  uint64_t session_id;  // 0: the executor
  uint64_t begin_ns;    // of a kRun on the GPU; 0: it did not begin
  uint64_t end_ns;      // likewise; 0: it had not ended
  uint64_t asked_ns;    // of a kRun: when the executor was about to ask for admission of the first of them
  uint64_t issued_ns;   // when the driver had the last of them
  uint32_t queue;       // of its session and GPU: streams in the order of their first work
  uint32_t num_launches;
  uint32_t name;    // index; of the first
  uint16_t device;  // ordinal
  uint16_t kind;    // TraceKind
  uint16_t reason;  // TraceReason
  uint16_t reserved[3];
};
static_assert(sizeof(TraceEvent) == 64);

struct TraceFileHeader {
  uint64_t magic;
  uint64_t began_ns;
  uint64_t ended_ns;
  uint64_t num_dropped;     // operations of which there was no room for a record
  uint64_t clock_error_ns;  // how far GPU times may be off, as a whole
  uint32_t num_events;
  uint32_t num_names;
};
static_assert(sizeof(TraceFileHeader) == 48);

inline constexpr size_t kTraceFileBytes =
    sizeof(TraceFileHeader) + kMostTraceEvents * sizeof(TraceEvent) + kMostTraceNames * kTraceNameBytes;

}  // namespace tally::control
