// One stream's queue of gated launches: as deep as one likes, because one store empties it.
//
//   stream   | K1 | K2 | K3 | M | wait for M's word | copy | K4 | ...
//                   ^ stop: blocks of K2 that have not begun leave, K3 and M leave whole; the copy waits
//   resume                                            | what is left of K2 | K3 | M |     (later, on another stream)
//
// A launch of a kernel with a gate (proto/device/gate_abi.h) is put on the stream and logged, so that it can be made
// again. What has no gate (a copy, an event, somebody's wait) must not overtake what was stopped before it: in front of
// it goes a *marker*, a gated kernel of one block that writes a number into a word, and a wait for that number. If the
// queue was stopped the marker has left, too, is in the log, and is made again behind everything before it. Beside
// high-priority work of the same context markers are the exception: gated_queues.h waits for an empty queue instead.
//
// The launches between two markers are a *batch*. The stream cannot get beyond the batch in which it was stopped, so
// that one alone is waited for and made again; those behind it run by themselves, later.
//
// Not thread-safe: guarded by the mutex of its device (gated_queues.h), whose context is current in every call.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "proto/device/gate_abi.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/gated_module.h"
#include "server/executor/issue/gated_transfers.h"
#include "server/executor/issue/pending_launch.h"

namespace tally::server {

// How a launch runs in a queue: what the gate in front of its kernel wants.
struct GatedForm {
  CUfunction function = nullptr;
  size_t hidden_offset = 0;     // of device::GateParameters, behind the program's parameters
  uint32_t cluster_blocks = 0;  // blocks of one cluster; 0: launched without clusters
  uint32_t chunk = 1;           // GateParameters::chunk
  bool is_whole = false;        // all of its blocks run, or none: they may wait for one another

  // What the launch counts for in its queue.
  uint64_t NumNumbers(const LaunchShape& shape) const {
    return cluster_blocks == 0 ? shape.num_blocks() : shape.num_blocks() / cluster_blocks;
  }
};

struct GatedCounts {
  uint64_t num_launches = 0;  // transfers included
  uint64_t num_transfers = 0;
  uint64_t num_markers = 0;
  uint64_t num_stops = 0;       // of queues with something in them
  uint64_t num_reopened = 0;    // queues
  uint64_t num_relaunches = 0;  // launches made again, markers apart
  uint64_t num_cut = 0;         // of them, such that had run in part
  uint64_t num_abandoned = 0;   // queues whose client had left
};

// How the host reaches the records of one device's queues, and what the queues share.
class GateControls {
 public:
  // Both outlive it.
  GateControls(const DriverTable& driver_in, CompletionSource& completions_in)
      : driver(driver_in), completions(completions_in), transfers(driver_in), module_(driver_in) {}
  ~GateControls();
  GateControls(const GateControls&) = delete;
  GateControls& operator=(const GateControls&) = delete;
  // The context must be current.
  CUresult Open();

  // Goes past all kernels. In order; Read and Settle wait until all before is done.
  CUresult Store(CUdeviceptr address, uint32_t value);
  CUresult Settle();
  CUresult Read(CUdeviceptr record, device::GateRecord* value);

  // Places of queues: a record, and the word of its markers. Zero.
  static constexpr uint64_t kPlaceBytes = 128;
  static constexpr uint64_t kWordOffset = 64;
  CUresult TakePlace(CUdeviceptr* place);
  void ReturnPlace(CUdeviceptr place) { free_places_.push_back(place); }

  const DriverTable& driver;
  CompletionSource& completions;
  GatedCounts counts;
  GatedModule::Kernel marker;
  GatedTransfers transfers;
  int lowest_priority = 0;

 private:
  GatedModule module_;
  CUstream signal_ = nullptr;
  void* read_back_ = nullptr;  // pinned
  std::vector<CUdeviceptr> slabs_;
  std::vector<CUdeviceptr> free_places_;
};

class GatedQueue {
 public:
  // Numbers are 32 bits wide and must not wrap: beyond this the queue wants to be empty once (Renumber).
  static constexpr uint32_t kMostNumbers = 1u << 30;

  // `controls` outlives this; `place` is given back at the end.
  GatedQueue(GateControls& controls, CUstream stream, CUdeviceptr place)
      : controls_(controls), driver_(controls.driver), stream_(stream), place_(place) {}
  // Must be empty, unless the context is lost.
  ~GatedQueue();
  GatedQueue(const GatedQueue&) = delete;
  GatedQueue& operator=(const GatedQueue&) = delete;

  // Makes what it needs to go on after a stop, before anything else.
  CUresult Open();

  // ---- for the owner of the stream, which must not be capturing
  // Behind everything on the stream so far. After an error nothing was put there. No attribute of the launch has an
  // event.
  CUresult Launch(const GatedForm& form, PendingLaunch&& launch);
  // Before anything without a gate is put on the stream.
  CUresult Seal();
  // Nothing would be done: the last on the stream is a marker, or nothing is left.
  bool is_sealed() const { return log_.empty() || log_.back().is_marker; }
  // Whether that many numbers are left.
  bool HasNumbersFor(uint64_t num_numbers) const { return promised_ + num_numbers <= kMostNumbers; }
  // Whether all that is on the stream has run or left. Needs no mutex.
  bool HasEnded() const { return driver_.cuStreamQuery(stream_) != CUDA_ERROR_NOT_READY; }
  // Begins to count anew; only if empty and open.
  CUresult Renumber();

  // ---- for whoever watches
  // Forgets what has run, as far as it was marked. Does nothing while stopped.
  void Sweep();
  // Has the stream say when the last launch has ended, so that all can be forgotten then.
  CUresult MarkLast();
  // No further block begins but those that were promised to.
  CUresult Stop();
  // Whether a stopped queue has left the GPU. CUDA_ERROR_NOT_READY: blocks still run.
  CUresult HasLeft();
  // Where a stopped queue stands.
  struct Standing {
    const PendingLaunch* last = nullptr;  // whose blocks were the last to run; null: none has run since it was opened
    uint64_t num_launches = 0;            // that are to go on or to be made again
    uint64_t num_blocks = 0;              // of them, not run yet; of launches with clusters, clusters
  };
  CUresult Read(Standing* standing);
  // Opens a stopped queue again and makes what is left of its launches again. CUDA_ERROR_NOT_READY: blocks still run.
  CUresult TryResume();
  // Instead: what is left is not made any more, and nothing waits for it. Likewise.
  CUresult TryAbandon();

  bool is_stopped() const { return is_stopped_; }
  // Its stream waits while the queue is stopped.
  bool has_marker() const { return num_logged_markers_ != 0; }
  bool empty() const { return log_.empty(); }
  size_t size() const { return log_.size(); }
  bool Holds(CUfunction function) const;

 private:
  struct Entry {
    GatedForm form;
    PendingLaunch launch;
    uint32_t base = 0;
    uint32_t end = 0;  // behind its last number
    bool is_marker = false;
    Mark ended;  // behind it on the stream where it ran last; none: of no entry but a later one
  };

  CUdeviceptr word() const { return place_ + GateControls::kWordOffset; }
  CUresult Append(const GatedForm& form, PendingLaunch&& launch, bool is_marker);
  CUresult Run(Entry& entry, CUstream stream, bool is_again);
  CUresult ReadWatermark();
  // Of a stopped queue: how many entries the stream can have come to, up to the end of the batch in which it stopped.
  size_t NumReached(uint32_t watermark) const;
  void Forget(size_t num_entries);
  CUresult Reopen(uint32_t start);
  CUresult RunAgain(size_t num_entries, uint32_t start);

  GateControls& controls_;
  const DriverTable& driver_;
  const CUstream stream_;
  const CUdeviceptr place_;
  CUstream resume_ = nullptr;
  std::deque<Entry> log_;  // what may not have run yet, in order
  uint32_t next_ = 0;      // number of the next launch's first block
  uint32_t promised_ = 0;  // what chunks so far may have raised the watermark to, at most
  uint32_t start_ = 0;     // blocks below ran before it was opened last
  uint32_t epoch_ = 0;
  uint32_t num_markers_ = 0;
  uint32_t num_logged_markers_ = 0;  // in the log
  uint32_t num_unmarked_ = 0;        // entries since the last that has a mark
  bool is_stopped_ = false;
  std::optional<uint32_t> watermark_;  // of a stopped queue, once it cannot change any more
};

}  // namespace tally::server
