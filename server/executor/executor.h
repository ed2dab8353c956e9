// The executor of one domain: owns the CUDA context of every device it uses and serves client sessions.
//
// Front desk of tally-executor. Sessions arrive as one end of a socket pair whose other end the client got from tallyd
// (proto/shm/handshake_abi.h). Each session has a socket thread and one thread per channel (session/).
//
// Thread-safe unless a method says otherwise. Callbacks (executor_config.h) run on threads of the executor, never while
// it holds a lock: they may call any method except Shutdown.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "proto/control/executor_choices.h"
#include "proto/control/executor_link_abi.h"
#include "proto/control/trace_abi.h"
#include "proto/control/window_figures.h"
#include "scheduler/tuning.h"
#include "server/executor/session/session_snapshot.h"

namespace tally::server {

class HighPriorityWatch;
struct ExecutorConfig;
struct KernelReport;  // issue/kernel_report.h

// A function that Tally does not offer, and how often it was called.
struct RefusedFunction {
  uint32_t symbol_index = 0;  // row of driver_api.tsv
  uint64_t num_calls = 0;
};

class Executor {
 public:
  // Opens and initialises the driver. kUnavailable: no usable driver; the message says what was tried.
  static Result<std::unique_ptr<Executor>> Create(ExecutorConfig config);
  // Calls Shutdown.
  virtual ~Executor() = default;

  // Serves `session_socket` (SOCK_SEQPACKET) until its other end closes. kUnavailable: faulted or shutting down;
  // kResourceExhausted: too many sessions; kAlreadyExists: the id is in use.
  virtual Status AddSession(UniqueFd session_socket, SessionIdentity identity) = 0;
  virtual std::vector<SessionSnapshot> Snapshot() const = 0;
  // Functions that were refused since the executor started, all sessions together.
  virtual std::vector<RefusedFunction> RefusedFunctions() const = 0;
  // kNotFound: no such session.
  virtual Status SetPriority(uint64_t session_id, const control::ShareChange& change) = 0;
  // Kernels of best-effort tenants, by GPU time, the most first.
  virtual std::vector<KernelReport> Kernels() const = 0;
  // Shapes that the windows of its sessions have come upon.
  virtual std::vector<control::WindowShapeFigures> WindowShapes() const = 0;
  // Graphs of sessions, as last published.
  virtual std::vector<control::GraphFigures> Graphs() const = 0;
  // Of one of them, for Graphviz; empty: there is no such graph, or it is launched as a whole.
  virtual std::string DrawGraph(uint64_t session_id, uint32_t number) const = 0;
  // Turnaround threshold, hold-off and drain budget, from the next launch on. Told once more unchanged: the machine's
  // tenants have changed.
  virtual void Tune(const scheduler::Tuning& tuning) = 0;
  // Whether this executor's context on a device is descheduled while high-priority work keeps coming there. From the
  // next launch on.
  virtual void ExpectDescheduling(int device, bool is_expected) = 0;
  // Whether the GPU's time slices alone keep the classes apart, with kAutoPolicy: then no launch is held back. From the
  // next one on.
  virtual void LeaveToTimeSlices(bool is_left) = 0;
  // On which devices (bit n: ordinal n) the GPU's time slices put this executor's contexts before best-effort ones that
  // there are: then it is of use to know when work is expected there.
  virtual void TakePrecedence(uint64_t devices) = 0;
  // How long the GPU runs this executor's contexts at a time beside others', by device; zero: as the driver has it. Of
  // contexts that its sessions have in processes of their own on further GPUs.
  virtual void NoteTimeSlices(const std::vector<std::chrono::microseconds>& slices) = 0;
  // As Admission::AllowHolding.
  virtual void AllowHolding(uint64_t devices) = 0;
  // What is known of high-priority work on this machine; null: nobody has priority, ever. Lives as long as this.
  virtual HighPriorityWatch* high_priority_watch() = 0;
  // Records what sessions do, or those of one user, until EndTrace, which writes it into a file (trace_abi.h). An
  // error: it does not.
  virtual Status StartTrace(std::optional<uint32_t> /*uid*/) {
    return Status(StatusCode::kUnavailable, "no recording");
  }
  virtual Status EndTrace(int /*file*/) { return OkStatus(); }
  // What happened to the executor's contexts, for a recording if there is one.
  virtual void NoteInTrace(control::TraceKind, int /*device*/, TimePoint /*begin*/, TimePoint /*end*/) {}
  // Ends a session as if it had misbehaved. kNotFound: no such session.
  virtual Status Evict(uint64_t session_id, const std::string& reason) = 0;

  // The context is lost: every session has its sticky error, new ones are refused.
  virtual bool faulted() const = 0;
  // "libcuda.so.1 (driver 13000) at /usr/lib/..." or "software driver ...".
  virtual const std::string& driver_description() const = 0;
  virtual bool is_software() const = 0;
  virtual int num_devices() const = 0;
  // On which of them its programs have ever put work: bit n, ordinal n.
  virtual uint64_t used_devices() const = 0;
  virtual uint32_t driver_version() const = 0;  // 13000 for 13.0
  // By ordinal.
  virtual std::vector<control::LinkGpu> gpus() const = 0;

  // Ends every session and releases the contexts. Idempotent. Not from a callback.
  virtual void Shutdown() = 0;
};

}  // namespace tally::server
