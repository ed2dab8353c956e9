// How a request waits for what its session has on the device: what there is to wait for is noted with the sequencer,
// the wait comes after it was given up.
//
// Lives as long as its channel. On the channel's thread only.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/executor/driver/completion_source.h"
#include "server/executor/session/served_request.h"

namespace tally::server {

// What a channel waits for after releasing the sequencer: all work of a stream, or a mark that says where the work of
// one stands.
struct WaitPoint {
  CUstream stream = nullptr;  // null: the mark
  Mark mark;
  std::shared_ptr<std::atomic<uint64_t>> num_waited;  // of the stream, to be told when the wait is over
  uint64_t num_issued = 0;
  std::shared_ptr<RequestClock> requests;  // likewise
  std::shared_ptr<StreamWork> work;        // likewise
  uint64_t num_put = 0;
};

class StreamWaits {
 public:
  explicit StreamWaits(ServedRequest& served) : served_(served), session_(served.session()) {}

  // Notes a stream / the streams of a context (kNoContext: of the request's device) that have work to be waited for.
  // With the sequencer held. One stream is waited for by the driver's own wait for streams: an event recorded behind a
  // graph is seen 5 us later than the graph's end (H200). Of several, all get a mark now, so that what other threads
  // put on one while another is waited for does not count.
  void MarkStream(Stream& stream, std::vector<WaitPoint>* points);
  CUresult MarkContext(uint32_t context, std::vector<WaitPoint>* points);
  // The same for all streams of the session on one device.
  CUresult MarkDevice(int device, std::vector<WaitPoint>* points);
  // The driver's own waits. In front of them threads of best-effort programs look for a while and then sleep between
  // looks, because the driver would keep a processor busy for each, which those of a high-priority program may need.
  CUresult AwaitEvent(CUevent event) const;
  CUresult AwaitMark(const Mark& mark) const;
  CUresult AwaitStream(CUstream stream) const;
  // Releases the sequencer and waits for the points; takes device printf output when the session's kernels may print.
  CUresult AwaitPoints(std::vector<WaitPoint>* points);
  void CollectOutput();
  // The program is silent: what of its work has ended meanwhile (dispatch/busy_clock.h). With the sequencer held.
  void LookAtStreams();
  // Streams whose requests may end with a wait for an event / does end those of them that have nothing left to do. The
  // latter without the sequencer. Nothing without an objective.
  void MarkRequests(std::vector<WaitPoint>* points);
  void EndRequests(const std::vector<WaitPoint>& points);

 private:
  CUresult EnterDevice(int device) { return served_.EnterDevice(device); }
  const DriverTable& driver() const { return session_.driver; }
  // What is recorded of it ends here.
  void EndTracedRun(const Stream& stream);
  CUresult MarkBusy(const std::vector<ClientContext*>& contexts, std::vector<WaitPoint>* points);
  CUresult RecordPoint(Stream& stream, std::vector<WaitPoint>* points);
  CUresult Await(const WaitPoint& point);
  template <typename Query>
  void SleepUntilReady(const Query& query) const;

  ServedRequest& served_;
  SessionState& session_;
};

}  // namespace tally::server
