// A channel as its thread uses it: writes requests into the ring, waits for replies, and shares an arena for pageable
// bytes.
//
// One thread at a time owns a channel (thread_state.h). Begin and Post take no lock, allocate nothing and make no
// system call while the executor polls and the ring has room: a launch is written straight into shared memory.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/mapped_region.h"
#include "client-shim/transport/ring_reader.h"
#include "client-shim/transport/ring_writer.h"
#include "client-shim/transport/spin_budget.h"
#include "client-shim/transport/thread_state.h"
#include "proto/shm/channel_abi.h"
#include "proto/shm/operations_abi.h"

namespace tally::client_shim {

class Session;

// What came back. The payload stays valid until the next reply on the same channel; it may be there also after an error
// (logs of a failed compilation).
struct Reply {
  CUresult result = CUDA_SUCCESS;
  const std::byte* payload = nullptr;
  uint32_t payload_bytes = 0;
  uint64_t sequence_number = 0;  // of the request

  // The struct at `offset`, zeros if the reply is too short.
  template <typename T>
  T Read(size_t offset = 0) const {
    T value{};
    if (offset + sizeof(T) <= payload_bytes) std::memcpy(&value, payload + offset, sizeof(T));
    return value;
  }
};

// What a caller waits for. The device may take long; a program that did not ask to sleep meanwhile (CU_CTX_SCHED_*)
// natively spins, and sleeping through a graph of a millisecond costs a tenth of one to wake up in a virtual machine.
enum class WaitFor : uint8_t { kAnswer, kDevice };

class Channel {
 public:
  Channel(Session* session, MappedRegion region, uint32_t index);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Room in the ring for a request with this payload, to be filled and then sent with Post or Call. Waits while the
  // ring is full. Null when the executor is gone; then failure() is what to return.
  std::byte* Begin(uint16_t op, uint32_t payload_bytes) {
    const uint32_t size = RecordBytes(payload_bytes);
    std::byte* record = writer_.TryReserve(size);
    if (record == nullptr) [[unlikely]] {
      record = ReserveSlowly(size);
      if (record == nullptr) return nullptr;
    }
    auto* header = reinterpret_cast<shm::RequestHeader*>(record);
    header->size_bytes = size;
    header->op = op;
    header->context = t_thread.context;
    header->payload_bytes = payload_bytes;
    header->reserved = 0;
    current_ = header;
    return record + sizeof(shm::RequestHeader);
  }
  std::byte* Begin(shm::Op op, uint32_t payload_bytes) { return Begin(static_cast<uint16_t>(op), payload_bytes); }

  // Sends what Begin reserved; nobody waits. Failures come with the next synchronising call. `flags`: RequestFlags.
  void Post(uint16_t flags = 0) { Publish(flags); }
  // Sends what Begin reserved and waits for the answer.
  Reply Call(WaitFor wait = WaitFor::kAnswer) {
    Publish(shm::kWantReply);
    const uint64_t sequence_number =
        posted_sequence_number_;  // output that waits to be printed is fetched by requests of its own
    Reply reply = AwaitReply(wait);
    reply.sequence_number = answered_sequence_number_ = sequence_number;
    return reply;
  }
  // Of the request sent last.
  uint64_t posted_sequence_number() const { return posted_sequence_number_; }
  // The context of the request being written, where it is not the thread's current one.
  void SetContext(uint32_t context) { current_->context = context; }

  // Shorthands for payloads of one struct.
  template <typename T>
  CUresult PostStruct(shm::Op op, const T& payload) {
    std::byte* room = Begin(op, sizeof(T));
    if (room == nullptr) return failure();
    std::memcpy(room, &payload, sizeof(T));
    Post();
    return CUDA_SUCCESS;
  }
  template <typename T>
  Reply CallStruct(shm::Op op, const T& payload, WaitFor wait = WaitFor::kAnswer) {
    std::byte* room = Begin(op, sizeof(T));
    if (room == nullptr) return {failure(), nullptr, 0};
    std::memcpy(room, &payload, sizeof(T));
    return Call(wait);
  }
  Reply CallEmpty(shm::Op op) {
    if (Begin(op, 0) == nullptr) return {failure(), nullptr, 0};
    return Call();
  }

  // What every call must return now; CUDA_SUCCESS while all is well.
  CUresult sticky_error() const;
  // Why Begin gave no room: the executor is gone, or the request is longer than any may be.
  CUresult failure() const {
    const CUresult sticky = sticky_error();
    return sticky != CUDA_SUCCESS ? sticky : CUDA_ERROR_INVALID_VALUE;
  }
  // The first failure of an asynchronous call that was not reported yet. Calls of programs end with FinishWait
  // (state/streams.h), which does more.
  CUresult TakeAsyncError();

  // A stream, or all streams of a context, that the request answered last found idle: known until any thread of this
  // process asks the executor for anything at all.
  static constexpr uint64_t kAllStreams = UINT64_MAX;
  void NoteIdle(uint64_t stream_word, uint32_t context) {
    idle_ = {stream_word, context, answered_sequence_number_ + 1};
  }
  bool WasFoundIdle(uint64_t stream_word, uint32_t context) const {
    return (idle_.stream_word == stream_word || idle_.stream_word == kAllStreams) && idle_.context == context &&
           IsNext(idle_.next_sequence_number);
  }

  // The same for the legacy stream of a context with all that comes before its next work, but for uploads that returned
  // early (KeepQuiet: the request sent last was one): nothing is under way there that the host could see the end of.
  void NoteQuiet(uint32_t context) { quiet_ = {context, answered_sequence_number_ + 1}; }
  bool WasFoundQuiet(uint32_t context) {
    if (WasFoundIdle(kAllStreams, context)) quiet_ = {context, idle_.next_sequence_number};
    return quiet_.context == context && IsNext(quiet_.next_sequence_number);
  }
  void KeepQuiet() {
    if (posted_sequence_number_ == quiet_.next_sequence_number) ++quiet_.next_sequence_number;
  }

  Session* session() const { return session_; }
  uint32_t index() const { return index_; }

  // The arena, in kArenaChunks pieces of kArenaChunkBytes. NextChunk waits until the copies that used it are complete.
  std::byte* chunk(uint32_t chunk_index) const { return arena_ + size_t{chunk_index} * shm::kArenaChunkBytes; }
  static uint64_t chunk_offset(uint32_t chunk_index) { return uint64_t{chunk_index} * shm::kArenaChunkBytes; }
  CUresult NextChunk(uint32_t* chunk_index);
  // Waits until the last copy that uses the chunk is complete.
  CUresult AwaitChunk(uint32_t chunk_index, WaitFor wait = WaitFor::kAnswer);
  // The same is known from a reply: it came after the copy.
  void NoteChunkDone(uint32_t chunk_index) { chunk_in_use_[chunk_index] = false; }

 private:
  static constexpr uint32_t RecordBytes(uint32_t payload_bytes) {
    const uint32_t size = static_cast<uint32_t>(sizeof(shm::RequestHeader)) + payload_bytes;
    return (size + shm::kRecordAlignment - 1) & ~(shm::kRecordAlignment - 1);
  }
  void Publish(uint16_t flags) {
    current_->flags = flags;
    // Nothing may come between taking the sequence number and publishing: the executor waits for every sequence number.
    posted_sequence_number_ = session_header_->next_sequence_number.fetch_add(1, std::memory_order_seq_cst);
    current_->sequence_number = posted_sequence_number_;
    writer_.Publish();
  }
  // No thread of this process has asked for anything since that number was the next.
  bool IsNext(uint64_t sequence_number) const {
    return sequence_number == session_header_->next_sequence_number.load(std::memory_order_seq_cst);
  }
  std::byte* ReserveSlowly(uint32_t size_bytes);
  Reply AwaitReply(WaitFor wait);
  bool LookOften();
  bool SpinForRecord(WaitFor wait);
  const shm::ReplyHeader* AwaitRecord(WaitFor wait);
  void FetchOutput();

  Session* session_;
  shm::SessionHeader* session_header_;
  MappedRegion region_;
  uint32_t index_;
  RingWriter writer_;
  RingReader reader_;
  shm::RequestHeader* current_ = nullptr;
  const shm::ReplyHeader* unconsumed_ = nullptr;
  uint64_t posted_sequence_number_ = 0;
  uint64_t answered_sequence_number_ = 0;
  struct {
    uint64_t stream_word = 0;
    uint32_t context = 0;
    uint64_t next_sequence_number = UINT64_MAX;
  } idle_;
  struct {
    uint32_t context = 0;
    uint64_t next_sequence_number = UINT64_MAX;
  } quiet_;
  SpinBudget spin_;
  const bool may_spin_long_;
  bool is_fetching_output_ = false;
  std::vector<std::byte> kept_payload_;

  std::byte* arena_ = nullptr;
  uint32_t next_chunk_ = 0;
  bool chunk_in_use_[shm::kArenaChunks] = {};
  bool chunk_is_there_[shm::kArenaChunks] = {};  // its pages are
};

// The calling thread's channel. Anything but success is what the entry point must return: not initialised, the sticky
// error, or no channel to be had.
CUresult AcquireChannel(Channel** channel);
inline CUresult CurrentChannel(Channel** channel) {
  *channel = t_thread.channel;
  if (*channel != nullptr) [[likely]]
    return (*channel)->sticky_error();
  return AcquireChannel(channel);
}

}  // namespace tally::client_shim
