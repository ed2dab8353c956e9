// What is counted of a session: one table. All that carries a figure comes from it: the executor's counters, its
// reports to tallyd, the sums of a tenant, gRPC and `tallyctl ps --json`, the Prometheus families, the page
// docs/metrics.md.
//
//   executor                            tallyd                                        people
//   FigureCounters --> SessionFigures --> Accumulate: by tenant --> families.cc ----> Prometheus
//    Add("yields")     (executor link)  --> session_fields.h: gRPC -----------------> tallyctl ps --json
//
// A figure is named by its row: figures["yields"]. A name that has no row does not compile. Values are whole numbers in
// the unit that the name ends with: _ns nanoseconds, _bytes bytes, else pieces.
//
// How to add one: docs/adding-a-metric.md. Order and names may change freely: both ends of the link are of one build,
// and kSessionFiguresHash says so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "proto/control/preemptibility.h"
#include "proto/control/window_figures.h"

namespace tally::control {

// How long a stopped queue took to leave the GPU: upper bounds of the buckets but the last.
inline constexpr uint64_t kStopBoundsNs[] = {10'000,  20'000,  30'000,  50'000,    75'000,    100'000,   150'000,
                                             200'000, 300'000, 500'000, 1'000'000, 2'000'000, 5'000'000, 10'000'000};
inline constexpr size_t kStopBuckets = std::size(kStopBoundsNs) + 1;
// The throttle level that an objective asks for goes from 0 to so many steps (scheduler::SloFeedback::kSteps).
inline constexpr uint64_t kThrottleSteps = 32;

enum class FigureKind : uint8_t {
  kCounter,      // never goes down; a tenant's is the sum over its sessions, also those that have ended
  kHeldNow,      // a tenant's is the sum over its sessions that run
  kOfObjective,  // of a high-priority session with an objective, at present; never summed. A time of 0: not known yet
};

// What the values of a row stand for.
enum class FigureEntries : uint8_t {
  kOne,
  kByPreemptibility,  // one for each Preemptibility
  kByStopTime,        // how many stops took how long, by kStopBoundsNs; how long all together is "stop_ns"
  kByGpu,             // by GPU and by the session's class at that time: GpuEntry
  // By name: the value of the family's last label.
  kByWindowClass,    // kWindowClasses
  kByWindowBarrier,  // kWindowBarriers
  kByWindowEnd,      // one for each WindowEnd
};
// By the executor's ordinals, as LinkGpus names them.
inline constexpr size_t kMostGpus = 64;
constexpr size_t GpuEntry(size_t ordinal, bool is_high_priority) { return ordinal * 2 + (is_high_priority ? 1 : 0); }
// Empty of rows whose entries have no names.
constexpr std::span<const char* const> EntryNames(FigureEntries entries) {
  switch (entries) {
    case FigureEntries::kByWindowClass:
      return kWindowClasses;
    case FigureEntries::kByWindowBarrier:
      return kWindowBarriers;
    case FigureEntries::kByWindowEnd:
      return kWindowEnds;
    default:
      return {};
  }
}
constexpr size_t NumEntries(FigureEntries entries) {
  if (entries == FigureEntries::kByPreemptibility) return kNumPreemptibilities;
  if (entries == FigureEntries::kByStopTime) return kStopBuckets;
  if (entries == FigureEntries::kByGpu) return kMostGpus * 2;
  return entries == FigureEntries::kOne ? 1 : EntryNames(entries).size();
}

// How Prometheus calls one or several rows. Rows of one family differ by the value of the family's last label.
struct FigureFamily {
  const char* name = "";  // "": none
  const char* unit = "";  // "seconds" for nanoseconds
  const char* sentence = "";
  const char* labels = "tenant, uid";  // in this order
};

struct FigureRow {
  const char* name;  // in ps --json, and in control.proto if it has a field of its own there
  FigureKind kind;
  FigureFamily family;
  const char* label = "";  // the value of the family's last label; "" if that is not the row's
  FigureEntries entries = FigureEntries::kOne;
  uint64_t one = 1;  // people see the figure divided by it
};

inline constexpr FigureFamily kCopiedBytes = {
    "tally_tenant_copied_bytes_total", "bytes",
    "Bytes copied; direction is host_to_device, device_to_host or device_to_device.", "tenant, uid, direction"};
inline constexpr FigureFamily kVariedLaunches = {
    "tally_tenant_varied_launches_total", "launches",
    "Best-effort launches in another form than the original; form is slices, workers or gated.", "tenant, uid, form"};
inline constexpr FigureFamily kYieldSeconds = {
    "tally_tenant_yield_seconds_total", "seconds",
    "How long those took: phase seen (from the announcement of high-priority work), written (the flag), left (the "
    "blocks).",
    "tenant, uid, phase"};
inline constexpr FigureFamily kCoveredSeconds = {
    "tally_tenant_covered_seconds_total", "seconds",
    "GPU time of best-effort launches, estimated, by what could take the GPU from them: slices, workers, gated, short "
    "or time_slice, the last with a reason; counted with transforms only.",
    "tenant, uid, by, reason"};
inline constexpr FigureFamily kStopSeconds = {
    "tally_tenant_stop_seconds", "seconds",
    "How long queues of gated launches that were stopped took to leave the GPU, from the store that stops them."};

inline constexpr FigureFamily kHints = {
    "tally_tenant_arrival_hints_total", "hints",
    "Times that a high-priority program's work was expected (docs/arrival-hints.md), by what came of it: hit, false "
    "(no "
    "work came), late (the work was there first), refused (the budget for false ones was spent).",
    "tenant, uid, outcome"};
inline constexpr FigureFamily kGaps = {
    "tally_tenant_gaps_total", "gaps",
    "Gaps of high-priority work in which best-effort programs were there, counted of the session that ended them; the "
    "outcome is hit (the GPU was held until then), late (not for so long), rule or guard (not at all, by whom; "
    "docs/scheduling.md#holding).",
    "tenant, uid, outcome"};
inline constexpr FigureFamily kGuardedRequests = {
    "tally_tenant_guarded_requests_total", "requests",
    "Requests of high-priority sessions that the guard of holding has timed; gaps is held or open, as it let them be.",
    "tenant, uid, gaps"};
inline constexpr FigureFamily kGuardedSeconds = {"tally_tenant_guarded_request_seconds_total", "seconds",
                                                 "How long those took, all together.", "tenant, uid, gaps"};
inline constexpr FigureFamily kWindowIssued = {
    "tally_tenant_window_issued_total", "launches",
    "Launches that a window has held and issued; how is graph, with others at once, or in_order.", "tenant, uid, how"};
inline constexpr FigureFamily kWindowTwinLaunches = {
    "tally_tenant_window_twin_launches_total", "graphs",
    "Launches of programs' graphs that have a twin; which is twin, or own if the twin was measured and is not faster.",
    "tenant, uid, which"};
inline constexpr FigureFamily kWindowChain = {
    "tally_tenant_window_chain_total", "launches",
    "The longest chain of those that have to follow one another, by hazards all or read_after_write; work over chain "
    "is the parallelism.",
    "tenant, uid, hazards"};
inline constexpr FigureFamily kWindowSeconds = {
    "tally_tenant_window_seconds_total", "seconds",
    "GPU time of the launches issued in graphs, as last measured for each shape: how is graph, what they take, or "
    "in_order, what they would take one after another.",
    "tenant, uid, how"};

inline constexpr auto kSessionFigures = [] {
  using enum FigureKind;
  using enum FigureEntries;
  return std::to_array<FigureRow>({
      {"kernel_launches",
       kCounter,
       {"tally_tenant_kernel_launches_total", "launches", "Kernels launched one by one, not through graphs."}},
      {"graph_launches", kCounter, {"tally_tenant_graph_launches_total", "launches", "Graphs launched."}},
      {"host_to_device_bytes", kCounter, kCopiedBytes, "host_to_device"},
      {"device_to_host_bytes", kCounter, kCopiedBytes, "device_to_host"},
      {"device_to_device_bytes", kCounter, kCopiedBytes, "device_to_device"},
      {"device_memory_bytes",
       kHeldNow,
       {"tally_tenant_device_memory_bytes", "bytes", "Device memory held by running sessions."}},
      {"pinned_memory_bytes",
       kHeldNow,
       {"tally_tenant_pinned_memory_bytes", "bytes", "Page-locked host memory held by running sessions."}},
      {"requests",
       kCounter,
       {"tally_tenant_requests_total", "calls",
        "Driver calls that reached the executor; most calls are answered in the client and are not counted."}},
      {"refused_calls",
       kCounter,
       {"tally_tenant_refused_calls_total", "calls",
        "Driver calls that Tally does not support and refused with CUDA_ERROR_NOT_SUPPORTED."}},
      {"failed_calls",
       kCounter,
       {"tally_tenant_failed_calls_total", "calls", "Driver calls that returned any other error."}},
      {"busy_ns",
       kCounter,
       {"tally_tenant_gpu_busy_seconds_total", "seconds",
        "How long sessions had work on the GPU, each by itself: kernels, graphs, copies, fills. Class is the session's "
        "at that time, high or best-effort. See below.",
        "tenant, uid, gpu, class"},
       "",
       kByGpu},
      // Of best-effort sessions, as far as the policy counts it.
      {"gpu_time_ns",
       kCounter,
       {"tally_tenant_gpu_seconds_total", "seconds",
        "GPU time of best-effort launches, as policies estimate it that share it out; 0 with time-slices, look-ahead "
        "and none."}},
      {"held_launches",
       kCounter,
       {"tally_tenant_held_launches_total", "launches",
        "Best-effort launches and copies that had to wait for admission."}},
      {"held_ns", kCounter, {"tally_tenant_held_seconds_total", "seconds", "How long those waited, all together."}},
      {"sliced_launches", kCounter, kVariedLaunches, "slices"},
      {"worker_launches", kCounter, kVariedLaunches, "workers"},
      {"gated_launches", kCounter, kVariedLaunches, "gated"},
      {"gated_transfers",
       kCounter,
       {"tally_tenant_gated_transfers_total", "transfers",
        "Fills and copies within the GPU's memory that went behind gated launches as one of them."}},
      {"yields",
       kCounter,
       {"tally_tenant_yields_total", "yields",
        "Times that a launch by persistent blocks, or a queue of gated ones, gave the GPU back and went on later."}},
      {"timed_yields",
       kCounter,
       {"tally_tenant_timed_yields_total", "yields",
        "Launches by persistent blocks, and queues of gated launches, that were running when they were asked to give "
        "the GPU back."}},
      {"yield_seen_ns", kCounter, kYieldSeconds, "seen"},
      {"yield_written_ns", kCounter, kYieldSeconds, "written"},
      {"yield_left_ns", kCounter, kYieldSeconds, "left"},
      {"preemptibility_ns", kCounter, kCoveredSeconds, "", kByPreemptibility},
      {"stops", kCounter, kStopSeconds, "", kByStopTime},
      {"stop_ns", kCounter, {}},  // the sum of those
      {"resumed_launches",
       kCounter,
       {"tally_tenant_resumed_launches_total", "launches",
        "Launches that had to go on, or to be made again, after such a stop."}},
      {"resumed_blocks",
       kCounter,
       {"tally_tenant_resumed_blocks_total", "blocks",
        "Blocks of those that had not run when the queue was stopped; clusters of launches with clusters."}},
      {"has_long_blocks",
       kHeldNow,
       {"tally_tenant_long_block_sessions", "sessions",
        "Running best-effort sessions that share a context with services and have kernels whose blocks no gate ends in "
        "time."}},
      // Of sessions with --window=shadow or on; each launch is in one of the first two.
      {"window_classes",
       kCounter,
       {"tally_tenant_window_classes_total", "launches",
        "Launches of programs with a window whose memory is known; class says how exactly.", "tenant, uid, class"},
       "",
       kByWindowClass},
      {"window_barriers",
       kCounter,
       {"tally_tenant_window_barriers_total", "launches",
        "Launches of programs with a window that nothing may run beside, by the reason.", "tenant, uid, reason"},
       "",
       kByWindowBarrier},
      {"window_held",
       kCounter,
       {"tally_tenant_window_held_total", "launches", "Launches that a window has held to gather them with others."}},
      {"window_transfers",
       kCounter,
       {"tally_tenant_window_transfers_total", "transfers", "Copies and fills among the launches that were held."}},
      {"window_in_graphs", kCounter, kWindowIssued, "graph"},
      {"window_in_order", kCounter, kWindowIssued, "in_order"},
      {"window_batches",
       kCounter,
       {"tally_tenant_window_batches_total", "batches",
        "Batches of held launches that were issued, by what ended them.", "tenant, uid, end"},
       "",
       kByWindowEnd},
      {"window_graphs",
       kCounter,
       {"tally_tenant_window_graphs_total", "graphs", "Graphs launched in the place of batches."}},
      {"window_shapes",
       kCounter,
       {"tally_tenant_window_shapes_total", "graphs", "Graphs built, one for a shape of batch that came again."}},
      {"window_twins",
       kCounter,
       {"tally_tenant_window_twins_total", "graphs",
        "Graphs made beside programs' own, with the edges that they need."}},
      {"window_twin_launches", kCounter, kWindowTwinLaunches, "twin"},
      {"window_twins_slower", kCounter, kWindowTwinLaunches, "own"},
      {"window_node_updates",
       kCounter,
       {"tally_tenant_window_node_updates_total", "updates",
        "Parameters of a kernel, copy or fill set in a graph built before."}},
      {"window_work",
       kCounter,
       {"tally_tenant_window_work_total", "launches",
        "Launches of programs with a window that were laid on a time line, as if each took equally long."}},
      {"window_compared",
       kCounter,
       {"tally_tenant_window_compared_total", "launches",
        "Of those, the launches that were compared with others; the rest count in proportion."}},
      {"window_chain", kCounter, kWindowChain, "all"},
      {"window_chain_read_after_write", kCounter, kWindowChain, "read_after_write"},
      {"window_in_order_ns", kCounter, kWindowSeconds, "in_order"},
      {"window_in_graphs_ns", kCounter, kWindowSeconds, "graph"},
      // Of sessions whose graphs are launched in partitions (docs/task-graphs.md).
      {"graph_cuts",
       kCounter,
       {"tally_tenant_graph_cuts_total", "graphs", "Graphs that were cut into partitions, each time counted."}},
      {"graphs_in_partitions",
       kCounter,
       {"tally_tenant_graphs_in_partitions_total", "graphs", "Launches of graphs in partitions."}},
      {"graph_partitions",
       kCounter,
       {"tally_tenant_graph_partitions_total", "partitions", "Partitions that these were."}},
      // Of sessions whose graphs run on several GPUs (docs/task-graphs.md).
      {"graphs_spread",
       kCounter,
       {"tally_tenant_graphs_spread_total", "graphs", "Launches of graphs that were spread over several GPUs."}},
      {"graph_moved_bytes",
       kCounter,
       {"tally_tenant_graph_moved_bytes_total", "bytes", "Bytes that these moved between GPUs."}},
      // Of high-priority sessions.
      {"hints_announced",
       kCounter,
       {"tally_tenant_expected_work_total", "hints",
        "Times that a high-priority program said, or Tally had learned, that its work was to come soon."}},
      {"hints_declared", kCounter, {"tally_tenant_declared_work_total", "calls", "Calls of tally_expect_work."}},
      {"hints_hit", kCounter, kHints, "hit"},
      {"hints_false", kCounter, kHints, "false"},
      {"hints_late", kCounter, kHints, "late"},
      {"hints_refused", kCounter, kHints, "refused"},
      {"gaps_hit", kCounter, kGaps, "hit"},
      {"gaps_late", kCounter, kGaps, "late"},
      {"gaps_by_rule", kCounter, kGaps, "rule"},
      {"gaps_by_guard", kCounter, kGaps, "guard"},
      {"gap_hold_ns",
       kCounter,
       {"tally_tenant_gap_hold_seconds_total", "seconds", "For how long the GPU was held in those gaps."}},
      {"requests_gaps_held", kCounter, kGuardedRequests, "held"},
      {"requests_gaps_open", kCounter, kGuardedRequests, "open"},
      {"requests_gaps_held_ns", kCounter, kGuardedSeconds, "held"},
      {"requests_gaps_open_ns", kCounter, kGuardedSeconds, "open"},
      {"prefers_holding",
       kHeldNow,
       {"tally_tenant_prefer_holding_sessions", "sessions",
        "Running sessions whose requests the guard found shorter with the GPU held in gaps; of the others it is "
        "held as a trial only."}},
      {"slo_requests",
       kCounter,
       {"tally_tenant_slo_requests_total", "requests",
        "Requests of high-priority sessions with an objective (--slo) that were timed."}},
      {"slo_observed_ns",
       kOfObjective,
       {"tally_slo_observed_seconds", "seconds",
        "What the last window of its requests had at that percentile; missing before the first window's end.",
        "tenant, uid, session, percentile"}},
      {"slo_caution",
       kOfObjective,
       {"tally_slo_caution", "none",
        "How careful with best-effort work the objective asks to be: 0 most generous, 1 most careful.",
        "tenant, uid, session"},
       "",
       kOne,
       kThrottleSteps},
  });
}();
inline constexpr size_t kNumSessionFigures = kSessionFigures.size();

// Where the values of each row begin; the last: how many there are.
inline constexpr auto kFigurePlaces = [] {
  std::array<size_t, kNumSessionFigures + 1> places{};
  for (size_t i = 0; i < kNumSessionFigures; ++i) places[i + 1] = places[i] + NumEntries(kSessionFigures[i].entries);
  return places;
}();
inline constexpr size_t kNumFigureValues = kFigurePlaces.back();

// One row of the table.
class Figure {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): figures["yields"] is to read like a member
  consteval Figure(const char* name) : index_(IndexOf(name)) {}
  constexpr const FigureRow& row() const { return kSessionFigures[index_]; }
  constexpr size_t index() const { return index_; }
  constexpr size_t place() const { return kFigurePlaces[index_]; }
  constexpr size_t num_entries() const { return NumEntries(row().entries); }

 private:
  static void HasNoRow() {}  // not constexpr: a name without a row ends the compilation here

  static consteval size_t IndexOf(std::string_view name) {
    for (size_t i = 0; i < kNumSessionFigures; ++i) {
      if (name == kSessionFigures[i].name) return i;
    }
    HasNoRow();
    return kNumSessionFigures;
  }

  size_t index_;
};

inline constexpr auto kAllFigures = []<size_t... i>(std::index_sequence<i...>) {
  return std::array{Figure(kSessionFigures[i].name)...};
}
(std::make_index_sequence<kNumSessionFigures>());

// What a session has done since it opened, and what it holds: the values of all rows, one row after the other.
struct SessionFigures {
  uint64_t values[kNumFigureValues];

  // Of a row with one entry; of others the first.
  constexpr uint64_t& operator[](Figure figure) { return values[figure.place()]; }
  constexpr uint64_t operator[](Figure figure) const { return values[figure.place()]; }
  constexpr std::span<uint64_t> entries(Figure figure) {
    return std::span(values).subspan(figure.place(), figure.num_entries());
  }
  constexpr std::span<const uint64_t> entries(Figure figure) const {
    return std::span(values).subspan(figure.place(), figure.num_entries());
  }
};

// Adds what `more` has to `sum`, of every row that is summed.
constexpr void Accumulate(SessionFigures& sum, const SessionFigures& more) {
  for (const Figure figure : kAllFigures) {
    if (figure.row().kind == FigureKind::kOfObjective) continue;
    for (size_t i = 0; i < figure.num_entries(); ++i) sum.entries(figure)[i] += more.entries(figure)[i];
  }
}

// Of names and sizes in their order (FNV-1a): a report whose values mean something else is not read (LinkHello).
constexpr uint32_t HashOfFigures(std::span<const FigureRow> rows) {
  uint32_t hash = 2166136261;
  const auto mix = [&](unsigned char byte) { hash = (hash ^ byte) * 16777619; };
  const auto mix_name = [&](std::string_view name) {
    for (const char letter : name) mix(static_cast<unsigned char>(letter));
    mix(0);
  };
  for (const FigureRow& row : rows) {
    mix_name(row.name);
    mix(static_cast<unsigned char>(NumEntries(row.entries)));
    for (const char* name : EntryNames(row.entries)) mix_name(name);
  }
  return hash;
}
inline constexpr uint32_t kSessionFiguresHash = HashOfFigures(kSessionFigures);

}  // namespace tally::control
