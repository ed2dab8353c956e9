#include "server/executor/session/client_context.h"

#include <algorithm>

namespace tally::server {

ClientContext::ClientContext(const DriverTable& driver, CompletionSource& completions, uint32_t index, int device,
                             uint32_t flags, const uint32_t* num_captures, AwaitedObjects* awaited, BusyClock& busy,
                             StreamPriorities priorities)
    : driver_(driver),
      completions_(completions),
      index_(index),
      device_(device),
      flags_(flags),
      num_captures_(num_captures),
      awaited_(awaited),
      busy_(busy),
      priorities_(priorities) {}

ClientContext::~ClientContext() {
  for (const auto& stream : streams_) *stream->num_waited = stream->num_issued;  // nobody is left to wait for it
  while (!streams_.empty()) DestroyStream(streams_.back().get());
}

CUresult ClientContext::NewStream(uint32_t flags, int priority, bool is_legacy, Stream** stream) {
  auto made = std::make_unique<Stream>();
  if (const CUresult r =
          driver_.cuStreamCreateWithPriority(&made->real, CU_STREAM_NON_BLOCKING, priorities_.Of(priority));
      r != CUDA_SUCCESS) {
    return r;
  }
  made->device = device_;
  made->work = std::make_shared<StreamWork>(busy_);
  made->context = this;
  made->flags = flags;
  made->priority = priority;
  made->is_legacy = is_legacy;
  made->is_blocking = !is_legacy && (flags & CU_STREAM_NON_BLOCKING) == 0;
  if (barrier_ != nullptr && barrier_->HasUnfinishedWork()) {
    if (const CUresult r = barrier_->joined.HoldBack(made->real); r != CUDA_SUCCESS) {
      driver_.cuStreamDestroy_v2(made->real);
      return r;
    }
    ++made->num_issued;
  }
  *stream = made.get();
  streams_.push_back(std::move(made));
  return CUDA_SUCCESS;
}

CUresult ClientContext::CreateStream(uint32_t flags, int priority, Stream** stream) {
  if ((flags & ~static_cast<uint32_t>(CU_STREAM_NON_BLOCKING)) != 0) return CUDA_ERROR_INVALID_VALUE;
  return NewStream(flags, priority, false, stream);
}

CUresult ClientContext::Legacy(Stream** stream) {
  if (legacy_ == nullptr) {
    if (const CUresult r = NewStream(0, 0, true, &legacy_); r != CUDA_SUCCESS) return r;
  }
  *stream = legacy_;
  return CUDA_SUCCESS;
}

CUresult ClientContext::PerThread(uint32_t channel, Stream** stream) {
  Stream*& slot = per_thread_[channel];
  if (slot == nullptr) {
    if (const CUresult r = NewStream(0, 0, false, &slot); r != CUDA_SUCCESS) return r;
  }
  *stream = slot;
  return CUDA_SUCCESS;
}

void ClientContext::KeepUnfinishedWork(Stream& stream) {
  if (&stream == remains_ || &stream == barrier_ || !stream.HasUnfinishedWork() || IsCapturing(stream)) return;
  if (remains_ == nullptr && NewStream(CU_STREAM_NON_BLOCKING, 0, false, &remains_) != CUDA_SUCCESS) return;
  if (Record(stream) != CUDA_SUCCESS) return;
  if (WaitFor(*remains_, stream.joined) == CUDA_SUCCESS) ++remains_->num_issued;
  Stream* legacy = nullptr;
  // Also if it is not there yet: one that is made later could not know what to wait for.
  if (stream.has_unjoined_work && Legacy(&legacy) == CUDA_SUCCESS) {
    WaitFor(*legacy, stream.joined);
    ++legacy->num_issued;
  }
}

void ClientContext::HandOnWork(Stream& stream) {
  if (stream.work->is_done()) return;
  if (remains_ != nullptr && remains_ != &stream) remains_->NoteBusy();  // which waits for it
  stream.work->OnSeen(stream.work->num_put(), busy_.Now());
}

void ClientContext::DestroyStream(Stream* stream) {
  KeepUnfinishedWork(*stream);
  HandOnWork(*stream);
  if (stream->has_unjoined_work) --num_unjoined_;
  stream->gated.reset();
  if (!awaited_->PutOffDestruction(stream->real)) driver_.cuStreamDestroy_v2(stream->real);
  if (stream == legacy_) legacy_ = nullptr;
  if (stream == remains_) remains_ = nullptr;
  if (stream == barrier_) barrier_ = nullptr;
  std::erase_if(per_thread_, [&](const auto& entry) { return entry.second == stream; });
  std::erase_if(streams_, [&](const auto& owned) { return owned.get() == stream; });
}

bool ClientContext::IsCapturing(const Stream& stream) const {
  if (*num_captures_ == 0) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver_.cuStreamIsCapturing(stream.real, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUgraph ClientContext::CapturedGraph(const Stream& stream) const {
  if (!IsCapturing(stream)) return nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (driver_.cuStreamGetCaptureInfo_v3 != nullptr) {
    result = driver_.cuStreamGetCaptureInfo_v3(stream.real, &status, nullptr, &graph, nullptr, nullptr, nullptr);
  } else if (driver_.cuStreamGetCaptureInfo_v2 != nullptr) {
    result = driver_.cuStreamGetCaptureInfo_v2(stream.real, &status, nullptr, &graph, nullptr, nullptr);
  }
  return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? graph : nullptr;
}

CUresult ClientContext::Record(Stream& stream) {
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  return completions_.Put(stream.real, &stream.joined);
}

CUresult ClientContext::WaitFor(Stream& stream, const Mark& mark) {
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  return mark.HoldBack(stream.real);
}

CUresult ClientContext::WaitFor(Stream& stream, CUevent event) {
  if (const CUresult r = stream.Seal(); r != CUDA_SUCCESS) return r;
  return driver_.cuStreamWaitEvent(stream.real, event, 0);
}

CUresult ClientContext::GatherAll(CUstream* behind) {
  if (remains_ == nullptr) {
    if (const CUresult r = NewStream(CU_STREAM_NON_BLOCKING, 0, false, &remains_); r != CUDA_SUCCESS) return r;
  }
  for (const auto& stream : streams_) {
    if (stream.get() == remains_ || !stream->HasUnfinishedWork() || IsCapturing(*stream)) continue;
    if (const CUresult r = Record(*stream); r != CUDA_SUCCESS) return r;
    if (const CUresult r = WaitFor(*remains_, stream->joined); r != CUDA_SUCCESS) return r;
  }
  ++remains_->num_issued;
  *behind = remains_->real;
  return CUDA_SUCCESS;
}

CUresult ClientContext::RecordAll(CUevent event) {
  CUstream behind = nullptr;
  const CUresult result = GatherAll(&behind);
  return result == CUDA_SUCCESS ? driver_.cuEventRecord(event, behind) : result;
}

CUresult ClientContext::MarkAll(Mark* mark) {
  CUstream behind = nullptr;
  const CUresult result = GatherAll(&behind);
  return result == CUDA_SUCCESS ? completions_.Put(behind, mark) : result;
}

CUresult ClientContext::WaitAll(CUevent event) {
  if (barrier_ == nullptr) {
    if (const CUresult r = NewStream(CU_STREAM_NON_BLOCKING, 0, false, &barrier_); r != CUDA_SUCCESS) return r;
  }
  for (const auto& stream : streams_) {
    if (IsCapturing(*stream)) continue;
    if (const CUresult r = WaitFor(*stream, event); r != CUDA_SUCCESS) return r;
    ++stream->num_issued;
  }
  return Record(*barrier_);
}

CUresult ClientContext::Order(Stream& stream) {
  if (stream.arrivals_seen != num_arrivals_) [[unlikely]] {
    if (const CUresult r = AwaitArrivals(stream); r != CUDA_SUCCESS) return r;
  }
  if (stream.is_legacy) return OrderLegacy(stream);
  if (stream.is_blocking) return OrderBlocking(stream);
  ++stream.num_issued;
  return CUDA_SUCCESS;
}

CUresult ClientContext::OrderLegacy(Stream& legacy) {
  if (*num_captures_ != 0) {
    bool any = false;
    for (const auto& stream : streams_) {
      if (!stream->is_blocking || !IsCapturing(*stream)) continue;
      stream->capture_spoiled = any = true;
    }
    if (any) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (num_unjoined_ != 0) {
    for (const auto& stream : streams_) {
      if (!stream->has_unjoined_work) continue;
      if (const CUresult r = Record(*stream); r != CUDA_SUCCESS) return r;
      if (const CUresult r = WaitFor(legacy, stream->joined); r != CUDA_SUCCESS) {
        return r;
      }
      stream->has_unjoined_work = false;
      --num_unjoined_;
    }
  }
  ++legacy_version_;
  ++legacy.num_issued;
  return CUDA_SUCCESS;
}

CUresult ClientContext::OrderBlocking(Stream& stream) {
  if (IsCapturing(stream)) return CUDA_SUCCESS;
  if (stream.legacy_seen != legacy_version_) {
    if (legacy_recorded_ != legacy_version_) {
      if (const CUresult r = Record(*legacy_); r != CUDA_SUCCESS) return r;
      legacy_recorded_ = legacy_version_;
    }
    if (const CUresult r = WaitFor(stream, legacy_->joined); r != CUDA_SUCCESS) return r;
    stream.legacy_seen = legacy_version_;
  }
  if (!stream.has_unjoined_work) {
    stream.has_unjoined_work = true;
    ++num_unjoined_;
  }
  ++stream.num_issued;
  return CUDA_SUCCESS;
}

CUresult ClientContext::NoteArrival(Stream& stream) {
  if (const CUresult r = completions_.Put(stream.real, &stream.arrived); r != CUDA_SUCCESS) return r;
  stream.arrival = stream.arrivals_seen = ++num_arrivals_;  // Order has seen to those before
  return CUDA_SUCCESS;
}

CUresult ClientContext::AwaitArrivals(Stream& stream) {
  if (IsCapturing(stream)) return CUDA_SUCCESS;
  for (const auto& other : streams_) {
    const bool are_in_order = (other->is_legacy && stream.is_blocking) || (other->is_blocking && stream.is_legacy);
    if (are_in_order || other->arrival <= stream.arrivals_seen) continue;
    if (const CUresult r = WaitFor(stream, other->arrived); r != CUDA_SUCCESS) return r;
  }
  stream.arrivals_seen = num_arrivals_;
  return CUDA_SUCCESS;
}

}  // namespace tally::server
