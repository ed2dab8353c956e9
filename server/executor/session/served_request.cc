#include "server/executor/session/served_request.h"

namespace tally::server {

ServedRequest::ServedRequest(SessionState& session, Sequencer& sequencer) : session_(session), sequencer_(sequencer) {}

void ServedRequest::HoldSequencer(const shm::RequestHeader& request) {
  sequence_number_ = request.sequence_number;
  holds_sequencer_ = true;
  flags_ = request.flags;
}

CUresult ServedRequest::EnterContext(uint32_t context_index) {
  context_index_ = context_index;
  context_ = nullptr;
  if (context_index == shm::kNoContext) {
    if (current_device_ != kNoDevice) driver().cuCtxSetCurrent(nullptr);
    current_device_ = kNoDevice;
    return CUDA_SUCCESS;
  }
  context_ = session_.FindContext(context_index);
  if (context_ == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return EnterDevice(context_->device());
}

CUresult ServedRequest::EnterDevice(int device) {
  if (device == current_device_) return CUDA_SUCCESS;
  CUcontext real = nullptr;
  if (const CUresult r = session_.core.devices->Context(device, &real); r != CUDA_SUCCESS) return r;
  if (const CUresult r = driver().cuCtxSetCurrent(real); r != CUDA_SUCCESS) return r;
  if (current_device_ < 0 && driver().cuThreadExchangeStreamCaptureMode != nullptr) {
    // The client checks what its thread may do while it captures; here nothing is forbidden.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver().cuThreadExchangeStreamCaptureMode(&mode);
  }
  current_device_ = device;
  return CUDA_SUCCESS;
}

void ServedRequest::IssueHeld(WindowEnd why) {
  if (session_.window == nullptr) return;
  LaunchWindow& window = session_.window->launches();
  if (!window.has_launches() || window.device() == current_device_) return NoteLateFailure(window.Issue(why));
  const int before = current_device_;
  CUresult result = EnterDevice(window.device());
  if (result == CUDA_SUCCESS) result = window.Issue(why);
  NoteLateFailure(result);
  if (before >= 0) {
    EnterDevice(before);
  } else {
    driver().cuCtxSetCurrent(nullptr);
    current_device_ = kNoDevice;
  }
}

void ServedRequest::EnterWindow(const HeldPlace& place) {
  if (session_.window == nullptr || session_.window->launches().place() == place) return;
  IssueHeld(WindowEnd::kRequest);
  session_.window->launches().Enter(place);
}

bool ServedRequest::TryHold(PendingLaunch& launch) {
  if (session_.window == nullptr) return false;
  if (wants_reply()) {  // which is the launch's own
    IssueHeld(WindowEnd::kRequest);
    return false;
  }
  CUresult failure = CUDA_SUCCESS;
  const bool is_held = session_.window->launches().Take(launch, &failure);
  NoteLateFailure(failure);
  return is_held;
}

CUresult ServedRequest::EnablePeer(int from, int to) {
  const int before = current_device_;
  const CUresult result = session_.core.peers.Enable(from, to);
  ForgetCurrentDevice();
  if (before >= 0) EnterDevice(before);
  return result;
}

CUresult ServedRequest::Malformed(const char* reason) {
  if (malformed_reason_ == nullptr) malformed_reason_ = reason;
  return CUDA_ERROR_INVALID_VALUE;
}

void ServedRequest::BeginContextCall() {
  if (waiting_) return;
  context_call_.emplace(session_.core.variants.get(), session_.is_high_priority.load(std::memory_order_relaxed));
  waiting_.emplace(session_.core.context_calls, &session_);
}

void ServedRequest::ReleaseSequencer() {
  if (!holds_sequencer_) return;
  holds_sequencer_ = false;
  sequencer_.Pass(sequence_number_);
}

}  // namespace tally::server
