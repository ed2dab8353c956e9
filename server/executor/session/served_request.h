// One request being carried out: the session and the client's context that it is for, the sequencer, and what is said
// of it at its end. What else a channel has for its requests: client_names.h, stream_waits.h, arena_chunks.h.
//
// Lives as long as its channel; HoldSequencer and EnterContext prepare it for the next request. On the channel's thread
// only.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "proto/shm/channel_abi.h"
#include "server/executor/issue/launch_window.h"
#include "server/executor/issue/pending_launch.h"
#include "server/executor/issue/variant_registry.h"
#include "server/executor/session/sequencer.h"
#include "server/executor/session/session_state.h"

namespace tally::server {

class ServedRequest {
 public:
  static constexpr int kNoDevice = -1;

  ServedRequest(SessionState& session, Sequencer& sequencer);
  ServedRequest(const ServedRequest&) = delete;
  ServedRequest& operator=(const ServedRequest&) = delete;

  // The channel holds the sequencer for the request's sequence number: a new one begins.
  void HoldSequencer(const shm::RequestHeader& request);
  // Makes the request's context current. CUDA_ERROR_INVALID_CONTEXT: it names one that does not exist.
  CUresult EnterContext(uint32_t context_index);

  // Makes a device's context current for what follows in this request: marks must be put where their stream is.
  CUresult EnterDevice(int device);
  // Kernels of one device may use memory of another from now on.
  CUresult EnablePeer(int from, int to);
  // The operation made some other context current: EnterContext must not rely on what it knows.
  void ForgetCurrentDevice() { current_device_ = kUnknownDevice; }
  // Whose context is current on this thread; negative: none, or who knows.
  int current_device() const { return current_device_; }

  const DriverTable& driver() const { return session_.driver; }
  SessionState& session() const { return session_; }
  // Of the request; null if the calling thread has none.
  ClientContext* context() const { return context_; }
  uint32_t context_index() const { return context_index_; }
  bool wants_reply() const { return (flags_ & shm::kWantReply) != 0; }
  // shm::kReturnsEarly.
  bool returns_early() const { return (flags_ & shm::kReturnsEarly) != 0; }
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
  bool is_context_call() const { return waiting_.has_value(); }

  // Puts on its stream what the session's window holds: before anything else is done for the session. Whatever context
  // was current is so again.
  void IssueHeld(WindowEnd why);
  // Before a launch for that place: what is held for another one is put on its stream.
  void EnterWindow(const HeldPlace& place);
  // The session's window has taken the launch; else it is to be issued now.
  bool TryHold(PendingLaunch& launch);
  // A launch that was held, or came before this request and has no reply, was refused.
  void NoteLateFailure(CUresult result) {
    if (late_failure_ == CUDA_SUCCESS) late_failure_ = result;
  }
  // Since it was last asked: each is told once.
  CUresult TakeLateFailure() { return std::exchange(late_failure_, CUDA_SUCCESS); }

  // Lets other channels go on; from here on only what is thread-safe may be touched. At most once per request.
  void ReleaseSequencer();

  // The one being read: kept so that it keeps its memory.
  PendingLaunch& launch() { return *launch_; }

 private:
  SessionState& session_;
  Sequencer& sequencer_;

  const std::unique_ptr<PendingLaunch> launch_ = std::make_unique<PendingLaunch>();
  uint64_t sequence_number_ = 0;
  ClientContext* context_ = nullptr;
  uint32_t context_index_ = shm::kNoContext;
  uint16_t flags_ = 0;  // shm::RequestFlags
  std::optional<VariantRegistry::ContextCall> context_call_;
  std::optional<ContextCalls::Call> waiting_;
  bool holds_sequencer_ = false;
  const char* malformed_reason_ = nullptr;
  CUresult late_failure_ = CUDA_SUCCESS;
  static constexpr int kUnknownDevice = -2;
  int current_device_ = kNoDevice;
};

}  // namespace tally::server
