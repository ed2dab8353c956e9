// Messages between tallyd and its executors, on the SOCK_SEQPACKET socket RUNTIME_DIR/executors.sock.
//
//   executor                                  tallyd
//     | -- Hello ----------------------------> |  first of every connection; status says if the driver is usable
//     | -- SessionReport x N, ReportEnd(0) --> |  what it serves already: empty at first, all sessions after a
//     |                                        |  re-connect
//     | -- Gpus, Gpu x N -------------------> |  after a Hello
//     | <- AddSession + session socket ------- |  a new client; its identity is what the kernel told tallyd
//     | <- EndSession ------------------------ |  its grant was revoked
//     | -- SessionReport (kEnded) -----------> |  the last figures of a session that is gone
//     | -- RefusedFunction x M --------------> |  before a ReportEnd and after a session's end, if there are any
//     | <- Query(n) -------------------------- |  tallyctl ps, a scrape
//     | -- SessionReport x N, ReportEnd(n) --> |
//     | <- QueryKernels(n) ------------------- |  tallyctl kernels
//     | -- KernelReport x N, ReportEnd(n) ---> |
//     | <- QueryWindowShapes(n) -------------- |  tallyctl window --shapes
//     | -- WindowShape x N, ReportEnd(n) ----> |
//     | <- QueryGraphs(n) -------------------- |  tallyctl graphs
//     | -- Graph x N, ReportEnd(n) ----------> |
//     | <- DrawGraph(n) + file --------------- |  tallyctl graph: one of them, into that file
//     | -- ReportEnd(n) ---------------------> |
//     | <- Trace(n) + file ------------------- |  tallyctl trace: record for a while, into that file (trace_abi.h)
//     | <- EndTrace -------------------------- |  end that now, not when its time is over
//     | -- ReportEnd(n) ---------------------> |
//     | <- SetTuning ------------------------- |  from the next launch on
//     | <- SetTimeSlice ---------------------- |  of its contexts on each GPU, now and later, and whether that is all
//     |                                        |  that keeps the classes apart
//     | -- TimeSlices -----------------------> |  what they are, when that has changed and after a Hello
//     | <- SetPriority(n) -------------------- |
//     | -- SetPriorityReply(n) --------------> |
//     | -- LongBlocks -----------------------> |  of a session: no gate ends its kernels in time
//     | -- Faulted --------------------------> |  its CUDA context is lost: no new session goes there
//     | -- Idle -----------------------------> |  no session for the configured time; answered by Shutdown or nothing
//     | <- Shutdown -------------------------- |  end now, sessions or not
//     | -- Leaving --------------------------> |  it ends now: nobody is left in it, whatever is still on the GPU
//
// The executor connects, not tallyd: when tallyd dies, each executor keeps serving and tries again every
// kReconnectMs until the next tallyd listens. tallyd accepts only peers of its own uid (SO_PEERCRED).
//
// One struct is one message; every message starts with LinkHeader. Strings are NUL-terminated. Times are of
// CLOCK_MONOTONIC, which all processes of a machine share. Both ends are always of one build: a different
// kLinkVersion, or another table of figures (session_figures.h), is refused, and the executor then ends when its
// sessions have.
//
// Behaviour lives in server/daemon/executor_link.cc and server/executor/process/daemon_link.cc;
// tests/proto/executor_link_abi_test.cc pins this page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "proto/control/granted_gpus.h"
#include "proto/control/graph_figures.h"
#include "proto/control/session_figures.h"
#include "proto/control/window_figures.h"

namespace tally::control {

inline constexpr uint32_t kLinkMagic = 0x4B4E494C;  // "LINK" in memory
inline constexpr uint32_t kLinkVersion = 26;
inline constexpr uint32_t kReconnectMs = 250;

inline constexpr size_t kLinkNameBytes = 64;
inline constexpr size_t kLinkDomainBytes = 128;  // a domain's name, with that of the tenants whose it is
inline constexpr size_t kLinkTextBytes = 512;
inline constexpr size_t kMaxKernelReports = 256;  // of one executor: those that take most of the time
inline constexpr size_t kMaxWindowShapes = 256;   // likewise: those that come most often
inline constexpr size_t kMaxGraphs = 256;         // likewise: those that are launched most often
// Of the file of a DrawGraph: how many bytes of text there are, 0 if there is no such graph, or it is launched as a
// whole, or its picture is too large; then the text.
inline constexpr size_t kGraphPictureBytes = size_t{2} << 20;
inline constexpr size_t kMostPictureText = kGraphPictureBytes - sizeof(uint64_t);

enum class LinkKind : uint32_t {
  kHello = 1,
  kSessionReport = 2,
  kReportEnd = 3,
  kAddSession = 4,
  kQuery = 5,
  kSetPriority = 6,
  kSetPriorityReply = 7,
  kFaulted = 8,
  kIdle = 9,
  kShutdown = 10,
  kRefusedFunction = 11,
  kQueryKernels = 12,
  kKernelReport = 13,
  kSetTuning = 14,
  kSetTimeSlice = 15,
  kTimeSlices = 16,
  kQueryWindowShapes = 17,
  kWindowShape = 18,
  kGpus = 19,
  kEndSession = 20,
  kTrace = 21,
  kGpu = 22,
  kQueryGraphs = 23,
  kGraph = 24,
  kDrawGraph = 25,
  kLeaving = 26,
  kEndTrace = 27,
  kLongBlocks = 28,
};

struct LinkHeader {
  uint32_t magic;       // kLinkMagic
  uint32_t kind;        // LinkKind
  uint64_t request_id;  // of the Query or SetPriority being answered; 0 for anything unasked
};
static_assert(sizeof(LinkHeader) == 16);

// Executor to tallyd.
struct LinkHello {
  LinkHeader header;
  uint32_t link_version;
  uint32_t priority_class;  // shm::PriorityClass of the domain
  uint64_t api_table_hash;  // as in shm::HelloRequest
  uint32_t owner_uid;       // whose sessions the domain is for; kSharedDomain: everybody's
  uint32_t status_code;     // StatusCode; not 0: could not start, says why in error and ends
  uint32_t num_devices;
  uint32_t is_faulted;    // 1 after its context was lost
  uint32_t is_software;   // 1: the software driver
  uint32_t figures_hash;  // kSessionFiguresHash: which values a LinkSessionReport has, in which order
  char domain_name[kLinkDomainBytes];
  char policy_name[kLinkNameBytes];  // as it was started with
  char driver_name[kLinkTextBytes];  // one line for people
  char error[kLinkTextBytes];
};
static_assert(sizeof(LinkHello) == 16 + 40 + 128 + 64 + 512 + 512);
inline constexpr uint32_t kSharedDomain = UINT32_MAX;

struct SessionIdentity {
  uint64_t session_id;
  uint64_t opened_ns;       // CLOCK_MONOTONIC
  int32_t pid;              // as tallyd sees it; 0 if it is in a process namespace that tallyd cannot see
  uint32_t uid;             // likewise
  uint32_t gid;             // likewise
  uint32_t priority_class;  // shm::PriorityClass, never kDefault
  uint32_t weight;          // among best-effort sessions
  uint16_t level;           // among high-priority sessions
  uint8_t keeps_kernels;    // 1: its kernels run as they are
  uint8_t window;           // WindowMode
  uint64_t turnaround_ns;   // how soon its kernels should give the GPU back; 0: as tallyd says
  uint64_t slo_latency_ns;  // 0: no objective
  double slo_percentile;
  char tenant_name[kLinkNameBytes];  // the grant's, else what the program calls itself
  uint64_t grant_id;                 // by which socket it came; 0: the common one
  uint64_t device_memory_bytes;      // what its tenant may hold on each GPU, all programs together; 0: no quota
  uint32_t share_permille;           // of each GPU's time, likewise; 1000: no cap
  uint16_t only_starts;              // 1: it is there to start an executor (HelloRequest)
  uint16_t graphs;                   // GraphMode
  uint32_t owner_uid;                // whose its grant is, who may see it; kNobody: nobody's
  uint32_t reserved;
  char gpus[kGrantedGpusBytes];  // that it may use, as JoinedGpus says; empty: all
};
inline constexpr uint32_t kNobody = UINT32_MAX;
static_assert(sizeof(SessionIdentity) == 160 + 656);

// Executor to tallyd.
struct LinkSessionReport {
  LinkHeader header;
  SessionIdentity identity;
  SessionFigures figures;
  uint32_t has_ended;  // 1: the last report of this session
  uint32_t reserved;
};
static_assert(sizeof(LinkSessionReport) == 16 + 816 + 8 * kNumFigureValues + 8);

// Executor to tallyd: one per function that was ever refused, with its count since the executor started.
struct LinkRefusedFunction {
  LinkHeader header;
  uint32_t symbol_index;  // row of driver_api.tsv; both ends have the same (LinkHello::api_table_hash)
  uint32_t reserved;
  uint64_t num_calls;
};
static_assert(sizeof(LinkRefusedFunction) == 32);

// Executor to tallyd, after the reports that answer request_id.
struct LinkReportEnd {
  LinkHeader header;
  uint64_t num_sessions;
};
static_assert(sizeof(LinkReportEnd) == 24);

// tallyd to executor, with one descriptor: the executor's end of the session socket.
struct LinkAddSession {
  LinkHeader header;
  SessionIdentity identity;
};
static_assert(sizeof(LinkAddSession) == 16 + 816);

// tallyd to executor: kQuery, kQueryKernels, kQueryWindowShapes, kQueryGraphs, kEndTrace and kShutdown. Executor to
// tallyd: kIdle and kLeaving.
struct LinkSignal {
  LinkHeader header;
};

struct LinkSetPriority {
  LinkHeader header;
  uint64_t session_id;
  uint32_t priority_class;  // shm::PriorityClass; kDefault: as it is
  uint32_t weight;          // kAsItIs: as it is
  uint32_t level;           // likewise
  uint32_t reserved;
  uint64_t turnaround_ns;  // 0: as tallyd says; kTurnaroundAsItIs: as it is
};
static_assert(sizeof(LinkSetPriority) == 48);
inline constexpr uint32_t kAsItIs = UINT32_MAX;
inline constexpr uint64_t kTurnaroundAsItIs = UINT64_MAX;

// tallyd to executor, with one descriptor: a file of kTraceFileBytes that cannot grow. Not a whole header in it at the
// end: the executor could not record.
struct LinkTrace {
  LinkHeader header;
  uint64_t duration_ns;  // at most kLongestTraceNs
  uint32_t uid;          // whose sessions; kEverybody: all
  uint32_t reserved;
};
static_assert(sizeof(LinkTrace) == 32);
inline constexpr uint32_t kEverybody = UINT32_MAX;

// tallyd to executor: this session is to end, as one that breaks the rules does. Nothing answers but its last report.
struct LinkEndSession {
  LinkHeader header;
  uint64_t session_id;
  char reason[kLinkTextBytes];
};
static_assert(sizeof(LinkEndSession) == 24 + 512);

struct LinkSetPriorityReply {
  LinkHeader header;
  uint32_t status_code;
  uint32_t reserved;
  char error[kLinkTextBytes];
};
static_assert(sizeof(LinkSetPriorityReply) == 24 + 512);

// Executor to tallyd: one launch shape of one kernel of a best-effort tenant. Times are nanoseconds.
struct LinkKernelReport {
  LinkHeader header;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  uint32_t form;    // scheduler::LaunchForm
  uint32_t degree;  // of the form
  uint32_t is_turnaround_measured;
  uint64_t num_launches;
  uint64_t gpu_time_ns;  // estimated: launches times duration
  uint64_t duration_ns;
  uint64_t turnaround_ns;
  uint64_t original_duration_ns;
  char kernel[kLinkTextBytes];  // its name, cut if need be
  char remark[kLinkTextBytes];
};
static_assert(sizeof(LinkKernelReport) == 16 + 40 + 40 + 2 * 512);

// Executor to tallyd: one shape of the window of one session.
struct LinkWindowShape {
  LinkHeader header;
  WindowShapeFigures shape;
};
static_assert(sizeof(LinkWindowShape) == 16 + 48);

// Executor to tallyd: one graph of one session.
struct LinkGraph {
  LinkHeader header;
  GraphFigures graph;
};
static_assert(sizeof(LinkGraph) == 16 + 88);

// tallyd to executor, with one descriptor: a file of kGraphPictureBytes that cannot grow. Answered by a ReportEnd.
struct LinkDrawGraph {
  LinkHeader header;
  uint64_t session_id;
  uint32_t number;  // GraphFigures::number
  uint32_t reserved;
};
static_assert(sizeof(LinkDrawGraph) == 32);

// tallyd to executor. Sent once more unchanged to executors of programs with an objective when tenants have come,
// changed or gone, here or elsewhere.
struct LinkSetTuning {
  LinkHeader header;
  uint64_t turnaround_ns;
  uint64_t min_hold_off_ns;
  uint64_t max_hold_off_ns;
  uint64_t target_drain_ns;
};
static_assert(sizeof(LinkSetTuning) == 48);

// tallyd to executor.
struct LinkSetTimeSlice {
  LinkHeader header;
  uint32_t is_left_to_slices;    // 1: launches are not held back; only for an executor whose policy is "auto"
  uint32_t num_gpus;             // at most kMostGpus; contexts on others keep the driver's own
  uint64_t slice_us[kMostGpus];  // by the executor's ordinals; 0: the driver's own
};
static_assert(sizeof(LinkSetTimeSlice) == 24 + 8 * kMostGpus);

// Whether an executor deschedules its contexts while high-priority work keeps coming. Of several devices the highest.
enum class LinkDescheduling : uint32_t {
  kOff = 0,  // it is not to, or has no contexts yet, or none of high priority is there
  kOn = 1,
  kRefused = 2,  // the driver does not do that
};
constexpr const char* NameOf(LinkDescheduling descheduling) {
  constexpr const char* kNames[] = {"off", "on", "refused"};
  const auto index = static_cast<size_t>(descheduling);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

// Executor to tallyd: on which GPUs it works, the time slices of its contexts' groups, as read back from the driver,
// how often it has descheduled them, how often they were let go on once more because somebody waited in vain, and how
// often it preempted them in a pause (server/executor/process/refresher.h).
struct LinkTimeSlices {
  LinkHeader header;
  uint64_t shortest_us;
  uint64_t longest_us;
  uint32_t num_groups;
  uint32_t num_refused;  // groups that are not as tallyd wants them
  uint64_t num_deschedulings;
  uint64_t num_standstills;
  uint64_t num_refreshes;
  LinkDescheduling descheduling;
  uint32_t has_contexts;  // 1: it has made one; no group by then means that the driver does not say
  uint64_t used_gpus;     // bit n: its programs, those that have ended too, have put work on its ordinal n
};
static_assert(sizeof(LinkTimeSlices) == 80);

// Executor to tallyd, after a Hello: its GPUs, which SessionReports name by their places here.
struct LinkGpus {
  LinkHeader header;
  uint32_t num_gpus;            // at most kMostGpus; others are not told of
  uint32_t driver_version;      // 13000 for 13.0
  uint8_t uuid[kMostGpus][16];  // as CUDA says; zeros: it does not say
};
static_assert(sizeof(LinkGpus) == 24 + 16 * kMostGpus);

// Executor to tallyd, after Gpus: one of them.
struct LinkGpu {
  LinkHeader header;
  uint32_t ordinal;
  uint32_t capability;  // 90 for 9.0
  uint64_t total_memory_bytes;
  uint32_t pci_domain, pci_bus, pci_device, reserved;
  uint8_t uuid[16];
  char name[kLinkNameBytes];
};
static_assert(sizeof(LinkGpu) == 16 + 48 + kLinkNameBytes);

// Executor to tallyd, once of a best-effort session in a context of both classes: blocks of this kernel run on for so
// long when a gate should end them (scheduler::GateChoice::kLongBlocks).
struct LinkLongBlocks {
  LinkHeader header;
  uint64_t session_id;
  uint64_t left_ns;
  char kernel[kLinkTextBytes];  // its name, cut if need be
};
static_assert(sizeof(LinkLongBlocks) == 16 + 16 + 512);

struct LinkFaulted {
  LinkHeader header;
  char reason[kLinkTextBytes];
};
static_assert(sizeof(LinkFaulted) == 16 + 512);

}  // namespace tally::control
