#include "client-shim/transport/channel.h"

#include <sched.h>

#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "client-shim/transport/session.h"

namespace tally::client_shim {
namespace {

// A sleeper looks this often whether the executor still lives: the bound on how late its end is noticed.
constexpr auto kLivenessPeriod = std::chrono::milliseconds(100);

// How long a wait for the device spins: at first alone, then giving the core to whoever else wants it at every look.
// Beyond, the cost of being woken up no longer shows.
constexpr auto kSpinAlone = std::chrono::microseconds(50);
constexpr auto kSpinForDevice = std::chrono::milliseconds(20);
constexpr unsigned kEnoughCpus = 4;

shm::ChannelHeader* HeaderOf(const MappedRegion& region) {
  return reinterpret_cast<shm::ChannelHeader*>(region.data());
}

}  // namespace

Channel::Channel(Session* session, MappedRegion region, uint32_t index)
    : session_(session),
      session_header_(session->header()),
      region_(std::move(region)),
      index_(index),
      spin_(session->num_cpus()),
      may_spin_long_(session->num_cpus() >= kEnoughCpus) {
  shm::ChannelHeader* header = HeaderOf(region_);
  writer_ = RingWriter(region_.data() + header->request_offset, header->request_bytes, &header->request);
  reader_ = RingReader(region_.data() + header->reply_offset, header->reply_bytes, &header->reply);
  arena_ = region_.data() + header->arena_offset;
}

CUresult Channel::sticky_error() const { return session_->sticky_error(); }

CUresult Channel::TakeAsyncError() {
  if (session_header_->async_error.load(std::memory_order_acquire) == 0) return CUDA_SUCCESS;
  return static_cast<CUresult>(session_header_->async_error.exchange(0, std::memory_order_acq_rel));
}

std::byte* Channel::ReserveSlowly(uint32_t size_bytes) {
  if (size_bytes > shm::kMaxRequestBytes) return nullptr;  // callers split before they come here
  while (true) {
    writer_.WaitForSpace(size_bytes, kLivenessPeriod);
    if (std::byte* record = writer_.TryReserve(size_bytes); record != nullptr) return record;
    if (session_->CheckGone()) return nullptr;
  }
}

// Between two looks at the clock. A pause takes 40 ns or more on current x86: each is a chance to see the reply.
bool Channel::LookOften() {
  const shm::ReplyHeader* record = nullptr;
  for (int i = 0; i < 8; ++i) {
    if (reader_.Peek(&record) != RingReader::Look::kEmpty) return true;
    CpuRelax();
  }
  return false;
}

// True once there is something to look at.
bool Channel::SpinForRecord(WaitFor wait) {
  const bool is_long = wait == WaitFor::kDevice && may_spin_long_;
  const SteadyClock clock;
  const TimePoint begin = clock.Now();
  const std::chrono::nanoseconds budget = is_long ? kSpinForDevice : spin_.budget();
  while (!LookOften()) {
    const std::chrono::nanoseconds spun = clock.Now() - begin;
    if (spun >= budget) {
      if (!is_long) spin_.OnFailure();
      return false;
    }
    if (spun >= kSpinAlone) ::sched_yield();
  }
  if (!is_long) spin_.OnSuccess();
  return true;
}

const shm::ReplyHeader* Channel::AwaitRecord(WaitFor wait) {
  SpinForRecord(wait);
  const shm::ReplyHeader* record = nullptr;
  while (true) {
    const RingReader::Look look = reader_.Peek(&record);
    if (look == RingReader::Look::kRecord) return record;
    if (look == RingReader::Look::kBroken) {
      session_->DeclareGone("a reply does not make sense");
      return nullptr;
    }
    if (!reader_.WaitForRecord(kLivenessPeriod) && session_->CheckGone()) {
      // What it wrote before it ended still counts.
      return reader_.Peek(&record) == RingReader::Look::kRecord ? record : nullptr;
    }
  }
}

Reply Channel::AwaitReply(WaitFor wait) {
  if (unconsumed_ != nullptr) reader_.Consume(std::exchange(unconsumed_, nullptr));
  const shm::ReplyHeader* record = AwaitRecord(wait);
  if (record == nullptr) return {sticky_error(), nullptr, 0};
  const auto* payload = reinterpret_cast<const std::byte*>(record + 1);
  Reply reply{static_cast<CUresult>(record->cuda_result), payload, record->payload_bytes};
  unconsumed_ = record;
  if ((record->flags & shm::kOutputPending) != 0 && !is_fetching_output_) {
    kept_payload_.assign(payload, payload + record->payload_bytes);
    FetchOutput();
    reply.payload = kept_payload_.data();
  }
  return reply;
}

void Channel::FetchOutput() {
  is_fetching_output_ = true;
  while (true) {
    const Reply output = CallEmpty(shm::Op::kFetchOutput);
    if (output.result != CUDA_SUCCESS || output.payload_bytes == 0) break;
    // Through the program's own stream, so that it stands where it belongs among the program's own lines.
    std::fwrite(output.payload, 1, output.payload_bytes, stdout);  // allow: the program's own printf
  }
  is_fetching_output_ = false;
}

CUresult Channel::NextChunk(uint32_t* chunk_index) {
  const uint32_t chosen = next_chunk_;
  if (chunk_in_use_[chosen]) {
    if (const CUresult result = AwaitChunk(chosen); result != CUDA_SUCCESS) return result;
  }
  if (!chunk_is_there_[chosen]) {
    if (!CommitPages(chunk(chosen), shm::kArenaChunkBytes).ok()) return CUDA_ERROR_OUT_OF_MEMORY;
    chunk_is_there_[chosen] = true;
  }
  next_chunk_ = (next_chunk_ + 1) % shm::kArenaChunks;
  chunk_in_use_[chosen] = true;
  *chunk_index = chosen;
  return CUDA_SUCCESS;
}

CUresult Channel::AwaitChunk(uint32_t chunk_index, WaitFor wait) {
  const uint32_t payload[2] = {chunk_index, 0};
  const Reply reply = CallStruct(shm::Op::kAwaitArena, payload, wait);
  if (reply.result == CUDA_SUCCESS) NoteChunkDone(chunk_index);
  return reply.result;
}

CUresult AcquireChannel(Channel** channel) {
  Session* session = CurrentSession();
  if (session == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (const CUresult sticky = session->sticky_error(); sticky != CUDA_SUCCESS) return sticky;
  if (const CUresult result = session->TakeChannel(channel); result != CUDA_SUCCESS) return result;
  t_thread.channel = *channel;
  WatchThreadEnd();
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim
