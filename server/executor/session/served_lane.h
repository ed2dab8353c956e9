// One request being carried out: what the generated calls (server_wire.cc) and the hand-written operations see of the
// lane it came on, its session and the driver.
//
// Lives as long as its lane; HoldTurn and EnterContext prepare it for the next request. On the lane's thread only.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/executor/channel/lane_region.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/issue/variant_registry.h"
#include "server/executor/session/session_state.h"
#include "server/executor/session/turn_order.h"

namespace tally::server {

class LaunchParameters;

enum class StreamUse {
  kOrdered,  // the call puts something on the stream: the implicit waits of CUDA's stream rules go first
  kLaunch,   // it may be a launch with a gate: likewise, but whoever launches seals the stream if it is none
  kNamed,    // the call only names it
};

// What a lane waits for after giving its turn up: all work of a stream, or a mark that says where the work of one
// stands.
struct WaitPoint {
  CUstream stream = nullptr;  // null: the mark
  Mark mark;
  std::shared_ptr<std::atomic<uint64_t>> num_waited;  // of the stream, to be told when the wait is over
  uint64_t num_issued = 0;
  std::shared_ptr<RequestClock> requests;  // likewise
};

class ServedLane {
 public:
  ServedLane(SessionState& session, TurnOrder& turns, uint32_t lane_index, const LaneRegion& region);
  ~ServedLane();
  ServedLane(const ServedLane&) = delete;
  ServedLane& operator=(const ServedLane&) = delete;

  // The lane has the turn of `ticket`: a new request begins.
  void HoldTurn(uint64_t ticket, bool wants_reply);
  // Makes the request's context current. CUDA_ERROR_INVALID_CONTEXT: it names one that does not exist.
  CUresult EnterContext(uint32_t context_index);

  // Makes a device's context current for what follows in this request: marks must be put where their stream is.
  CUresult EnterDevice(int device);
  // Kernels of one device may use memory of another from now on.
  CUresult EnablePeer(int from, int to);
  // The operation made some other context current: EnterContext must not rely on what it knows.
  void ForgetCurrentDevice() { current_device_ = kUnknownDevice; }

  const DriverTable& driver() const { return session_.driver; }
  SessionState& session() const { return session_; }
  uint32_t lane_index() const { return lane_index_; }
  // Of the request; null if the calling thread has none.
  ClientContext* context() const { return context_; }
  uint32_t context_index() const { return context_index_; }
  bool wants_reply() const { return wants_reply_; }

  // Handles. CUDA_ERROR_INVALID_HANDLE when the session has no such object.
  template <typename T>
  CUresult Find(shm::HandleKind kind, uint64_t handle, T* out) {
    *out = static_cast<T>(session_.handles(kind).Find(handle));
    return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  // Kernels, modules and libraries are objects of ours around the driver's.
  CUresult Find(shm::HandleKind kind, uint64_t handle, CUfunction* out);
  CUresult Find(shm::HandleKind kind, uint64_t handle, CUkernel* out);
  CUresult Find(shm::HandleKind kind, uint64_t handle, CUmodule* out);
  CUresult Find(shm::HandleKind kind, uint64_t handle, CUlibrary* out);
  template <typename T>
  CUresult FindOptional(shm::HandleKind kind, uint64_t handle, T* out) {
    *out = nullptr;
    return handle == 0 ? CUDA_SUCCESS : Find(kind, handle, out);
  }
  template <typename T>
  CUresult FindAll(shm::HandleKind kind, const std::vector<uint64_t>& handles, std::vector<T>* out) {
    out->resize(handles.size());
    for (size_t i = 0; i < handles.size(); ++i) {
      if (const CUresult r = Find(kind, handles[i], &(*out)[i]); r != CUDA_SUCCESS) return r;
    }
    return CUDA_SUCCESS;
  }
  void Forget(shm::HandleKind kind, uint64_t handle) { session_.handles(kind).Remove(handle); }
  // The id of a driver object, named now if need be. 0 and a malformed request when the table is full.
  uint64_t NameOf(shm::HandleKind kind, void* value);

  // `handle` is 0 or 1 (legacy), 2 (per-thread) or a stream's id.
  CUresult FindStream(uint64_t handle, Stream** out);
  CUresult ResolveStream(uint64_t handle, StreamUse use, CUstream* out);
  CUresult ResolveStream(uint64_t handle, StreamUse use, Stream** out);
  bool OwnsAddresses(CUdeviceptr address, uint64_t size_bytes) const {
    return session_.memory.Find(address, size_bytes).has_value();
  }

  // The request makes no sense: the session will be ended. Returns an error to pass on.
  CUresult Malformed(const char* reason = "record does not fit its operation");
  const char* malformed_reason() const { return malformed_reason_; }  // null: fine so far

  // From here to the end of the request (or of a wait, which comes between) the driver may wait for the whole context:
  // nothing of this executor is stopped half-way meanwhile.
  void BeginContextCall();
  void EndContextCall() {
    waiting_.reset();
    context_call_.reset();
  }

  // Lets other lanes go on; from here on only what is thread-safe may be touched. At most once per request.
  void GiveUpTurn();
  bool has_turn() const { return has_turn_; }

  // Notes a stream / the streams of a context (kNoContext: of the request's device) that have work to be waited for.
  // With the turn. One stream is waited for by the driver's own wait for streams: an event recorded behind a graph is
  // seen 5 us later than the graph's end (H200). Of several, all get a mark now, so that what other threads
  // put on one while another is waited for does not count.
  void MarkStream(Stream& stream, std::vector<WaitPoint>* points);
  CUresult MarkContext(uint32_t context, std::vector<WaitPoint>* points);
  // The same for all streams of the session on one device.
  CUresult MarkDevice(int device, std::vector<WaitPoint>* points);
  // The driver's own waits. In front of them threads of best-effort programs look for a while and then sleep between
  // looks, because the driver would keep a processor busy for each, which those of a high-priority program may need.
  CUresult AwaitEvent(CUevent event) const;
  CUresult AwaitStream(CUstream stream) const;
  // Gives the turn up and waits for the points; takes device printf output when the session's kernels may print.
  CUresult AwaitPoints(std::vector<WaitPoint>* points);
  void CollectOutput();
  // Streams whose requests may end with a wait for an event / does end those of them that have nothing left to do. The
  // latter without the turn. Nothing without an objective.
  void MarkRequests(std::vector<WaitPoint>* points);
  void EndRequests(const std::vector<WaitPoint>& points);

  // One launch at a time: kept so that its vectors keep their memory.
  LaunchParameters& launch_parameters() { return *launch_parameters_; }

  // The arena, registered with the driver on first use. Null: it could not be, *result says why.
  std::byte* Arena(CUresult* result);
  // The last copy that uses the chunk was just put on this stream.
  CUresult MarkChunks(uint64_t offset_bytes, uint64_t size_bytes, const Stream& stream);
  // Gives the turn up.
  CUresult AwaitChunk(uint32_t chunk);

 private:
  CUresult MarkBusy(const std::vector<ClientContext*>& contexts, std::vector<WaitPoint>* points);
  CUresult RecordPoint(Stream& stream, std::vector<WaitPoint>* points);
  CUresult AwaitMark(const Mark& mark) const;
  CUresult Await(const WaitPoint& point);
  template <typename Query>
  void SleepUntilReady(const Query& query) const;

  SessionState& session_;
  TurnOrder& turns_;
  const uint32_t lane_index_;
  const LaneRegion& region_;

  std::unique_ptr<LaunchParameters> launch_parameters_;
  uint64_t ticket_ = 0;
  ClientContext* context_ = nullptr;
  uint32_t context_index_ = shm::kNoContext;
  bool wants_reply_ = false;
  std::optional<VariantRegistry::ContextCall> context_call_;
  std::optional<ContextCalls::Call> waiting_;
  bool has_turn_ = false;
  const char* malformed_reason_ = nullptr;
  static constexpr int kNoDevice = -1;
  static constexpr int kUnknownDevice = -2;
  int current_device_ = kNoDevice;              // whose context is current on this thread
  int arena_device_ = kNoDevice;                // on which the arena was registered
  std::array<Mark, shm::kArenaChunks> chunks_;  // behind the copy that used it last
};

}  // namespace tally::server
