// A client's context: its streams, and CUDA's implicit order between the legacy stream and blocking ones.
//
// All client contexts of one device share the executor's one real context, in which the real legacy stream would order
// every tenant after every other. So every real stream is a non-blocking one, and what the program sees as its legacy
// stream is a real stream of its own, tied to its blocking streams by marks:
//
//   work on the legacy stream   waits for all earlier work of the blocking streams of this client context
//   work on a blocking stream   waits for all earlier work of the legacy stream
//
// A program that uses only one of the two kinds pays nothing but a comparison. Streams that are being captured take no
// part: joining them would put our marks into the program's graph. Legacy work while a blocking stream is captured is
// an error, as it is natively.
//
// A blocking copy may have returned to the program before it is complete (shm::kReturnsEarly). The program counts on it
// from then on, on streams too that are in no order with that of the copy: their next work waits for it, and for
// nothing that came behind it.
//
// Guarded by the session's sequencer.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/launch_stream.h"
#include "server/executor/session/awaited_objects.h"
#include "server/executor/session/host_call_words.h"
#include "server/executor/session/request_clock.h"

namespace tally::server {

class ClientContext;

struct Stream : LaunchStream {
  ClientContext* context = nullptr;
  uint64_t handle = 0;  // 0: legacy and per-thread streams
  uint32_t flags = 0;   // as the client created it
  int priority = 0;
  bool is_legacy = false;
  bool is_blocking = false;
  bool began_capture = false;      // between BeginCapture and EndCapture on this stream
  bool capture_spoiled = false;    // EndCapture must fail with 901
  bool has_unjoined_work = false;  // blocking: work that the legacy stream has not waited for
  uint64_t legacy_seen = 0;        // blocking: version of the legacy stream's work this one has waited for
  uint64_t arrival = 0;            // number of its last blocking copy in its context; 0: none
  uint64_t arrivals_seen = 0;      // the last one of the context that it waits for, whatever stream it was on
  uint64_t num_issued = 0;         // operations ever
  // Of them known to be complete, by a wait for the whole stream. Shared with channels that wait without the sequencer
  // and may outlive the stream.
  std::shared_ptr<std::atomic<uint64_t>> num_waited = std::make_shared<std::atomic<uint64_t>>(0);
  // Of the requests that the program waits for on this stream; shared like num_waited, used if there is an objective.
  std::shared_ptr<RequestClock> requests = std::make_shared<RequestClock>();
  Mark joined;              // what other streams of the context wait for
  Mark arrived;             // behind its last blocking copy
  HostCallWord host_calls;  // none before the first host function

  bool HasUnfinishedWork() const { return num_issued > num_waited->load(std::memory_order_acquire); }
};

// Which priority a stream gets on the GPU.
struct StreamPriorities {
  // Programs of both classes share the real context: nothing but the streams' priorities tells the GPU whose blocks
  // come first. Else the program's own priorities are all that matters.
  bool are_classes_mixed = false;
  const std::atomic<bool>* is_high_priority = nullptr;  // the session's class

  // As CUDA counts: 0 is the lowest, negative ones come first; the driver cuts what is out of its range.
  int Of(int asked) const {
    if (!are_classes_mixed) return asked;
    return is_high_priority->load(std::memory_order_relaxed) ? asked - 1 : 0;
  }
};

class ClientContext {
 public:
  // `num_captures` counts the captures of the whole session: while it is 0 no stream is asked. `awaited` knows the
  // streams that channels are waiting for; `busy` counts the session's time on the device. All outlive this.
  ClientContext(const DriverTable& driver, CompletionSource& completions, uint32_t index, int device, uint32_t flags,
                const uint32_t* num_captures, AwaitedObjects* awaited, BusyClock& busy,
                StreamPriorities priorities = {});
  // Destroys the streams. The real context must be current.
  ~ClientContext();
  ClientContext(const ClientContext&) = delete;
  ClientContext& operator=(const ClientContext&) = delete;

  uint32_t index() const { return index_; }
  int device() const { return device_; }
  uint32_t flags() const { return flags_; }

  CUresult CreateStream(uint32_t flags, int priority, Stream** stream);
  // Work that it still has goes on, and counts for waits of the whole context.
  void DestroyStream(Stream* stream);
  // Created on first use.
  bool HasLegacy() const { return legacy_ != nullptr; }
  bool HasPerThread(uint32_t channel) const { return per_thread_.contains(channel); }
  CUresult Legacy(Stream** stream);
  CUresult PerThread(uint32_t channel, Stream** stream);

  // Puts the implicit waits in front of an operation that the caller is about to put on `stream`. Seals nothing but
  // what they need.
  CUresult Order(Stream& stream);
  // The program counts on the copy that was just put on `stream`, behind Order. Not one that is being captured.
  CUresult NoteArrival(Stream& stream);
  // cuCtxRecordEvent, cuCtxWaitEvent: `event` comes after all work of this context so far / before all from now on,
  // that of streams yet to be made too.
  CUresult RecordAll(CUevent event);
  // As RecordAll.
  CUresult MarkAll(Mark* mark);
  CUresult WaitAll(CUevent event);
  // Asks the driver, if anything of this session is being captured at all.
  bool IsCapturing(const Stream& stream) const;
  // Into which graph. Null: the stream is not being captured, or not any more.
  CUgraph CapturedGraph(const Stream& stream) const;

  const std::vector<std::unique_ptr<Stream>>& streams() const { return streams_; }

 private:
  CUresult NewStream(uint32_t flags, int priority, bool is_legacy, Stream** stream);
  CUresult Record(Stream& stream);
  CUresult WaitFor(Stream& stream, CUevent event);
  CUresult WaitFor(Stream& stream, const Mark& mark);
  // `behind`: a stream that comes after all work of this context so far.
  CUresult GatherAll(CUstream* behind);
  void KeepUnfinishedWork(Stream& stream);
  // The stream is about to be destroyed, which nobody will see the end of.
  void HandOnWork(Stream& stream);
  CUresult OrderLegacy(Stream& legacy);
  CUresult OrderBlocking(Stream& stream);
  CUresult AwaitArrivals(Stream& stream);

  const DriverTable& driver_;
  CompletionSource& completions_;
  uint32_t index_;
  int device_;
  uint32_t flags_;
  const uint32_t* num_captures_;
  AwaitedObjects* awaited_;
  BusyClock& busy_;
  const StreamPriorities priorities_;
  std::vector<std::unique_ptr<Stream>> streams_;
  Stream* legacy_ = nullptr;
  Stream* barrier_ = nullptr;               // waits for what WaitAll was told; new streams wait for it
  Stream* remains_ = nullptr;               // waits for what destroyed streams still had to do; no client sees it
  std::map<uint32_t, Stream*> per_thread_;  // by channel
  uint32_t num_unjoined_ = 0;               // blocking streams with has_unjoined_work
  uint64_t legacy_version_ = 0;             // raised by every operation on the legacy stream
  uint64_t legacy_recorded_ = 0;            // version that legacy_->joined covers
  uint64_t num_arrivals_ = 0;               // blocking copies that returned early
};

}  // namespace tally::server
