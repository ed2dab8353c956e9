// Binary layout of the memory shared by one client process and its executor: one session region, and one channel region
// per client thread that calls the driver.
//
// A *channel* is a pair of rings and an arena:
//
//   offset 0            +-------------------------------+
//                       | ChannelHeader, 4096 bytes     |
//   request_offset      +-------------------------------+
//                       | request ring, client -> server|  driver calls, in order (records_abi.h)
//   reply_offset        +-------------------------------+
//                       | reply ring, server -> client  |  answers to calls that want one
//   arena_offset        +-------------------------------+
//                       | arena: num_chunks chunks      |  bytes of pageable copies, pinned by the server on first use
//                       +-------------------------------+
//
// The executor creates every region as a sealed memfd (nobody can shrink or grow it) and passes the descriptor over the
// session socket. All of it has pages but the arena, whose pages the client has made before it first uses a chunk.
// Glossary: *record* = one framed message in a ring; *position* = bytes ever written or read, never wrapped (masked
// when used as an offset); *doorbell* = the futex word a sleeper waits on; *sequence number* = place of a request in
// the order of the whole session.
//
// TRUST. The other side may change anything at any time. The server reads a position once into a local, checks it,
// copies the record out, then validates the copy. Nothing here names the client: identity is the session socket's.
//
// PROGRESS. Each ring has one writer and one reader. A record goes
//     free --(writer reserves, writer fills)--> being written --(writer stores write_position, release)--> published
//     --(reader copies)--> consumed --(reader stores read_position, release)--> free
// A record is contiguous: when it does not fit before the end of the ring the writer publishes a padding record (op 0)
// first. No lock crosses. Waiting: spin a little, then set *_waiting = 1 (seq_cst), look once more, FUTEX_WAIT on the
// doorbell; the other side, after publishing (seq_cst), and only if *_waiting is set, clears it, increments the
// doorbell and wakes. If either side dies the other sees the session socket close; whatever is in the rings is dropped.
//
// ORDER. CUDA orders calls of different threads by happens-before. Every request takes a sequence number from the
// session region (fetch_add) just before it is published; the server carries out requests of all channels in the order
// of these numbers. A request that only waits (synchronise) releases the session's sequencer before it waits.
//
// COMPATIBILITY. kProtocolVersion (handshake_abi.h) is raised by: any change of a field, size, offset or enumerator
// here; any change of a record's meaning.
//
// Behaviour lives in client-shim/transport and server/executor/channel; tests/proto/channel_abi_test.cc pins this page.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tally::shm {

inline constexpr uint32_t kChannelMagic = 0x454E414C;  // "LANE", its former name
inline constexpr uint32_t kSessionMagic = 0x53534553;  // "SESS"

// A power of two, so that a growing position is masked, not divided. 1 MiB is several hundred launches of look-ahead.
inline constexpr uint32_t kRequestRingBytes = 1u << 20;
inline constexpr uint32_t kReplyRingBytes = 1u << 18;
// No record may be longer: a full ring always has room for the next one once it is empty, whatever the padding.
inline constexpr uint32_t kMaxRequestBytes = kRequestRingBytes / 4;
inline constexpr uint32_t kMaxReplyBytes = kReplyRingBytes / 4;
inline constexpr uint32_t kRecordAlignment = 16;
inline constexpr uint32_t kHeaderBytes = 4096;

// A chunk is transferred while the next one is filled or the one before is emptied. At 55 GB/s it takes 19 us, ten
// times what asking for it costs; a copy of 4 MiB already overlaps. All of them together absorb jitter.
inline constexpr uint32_t kArenaChunkBytes = 1u << 20;
inline constexpr uint32_t kArenaChunks = 16;

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "lock-free atomics are address-free: valid between processes");

// One direction. Each position has a cache line of its own: writer and reader do not share one.
struct alignas(64) RingState {
  std::atomic<uint64_t> write_position;  // bytes; stored by the writer (release)
  uint8_t pad0[56];
  std::atomic<uint64_t> read_position;  // bytes; stored by the reader (release)
  uint8_t pad1[56];
  std::atomic<uint32_t> data_doorbell;   // futex: incremented by the writer to wake the reader
  std::atomic<uint32_t> reader_waiting;  // 1 while the reader sleeps or is about to
  uint8_t pad2[56];
  std::atomic<uint32_t> space_doorbell;  // futex: incremented by the reader to wake the writer
  std::atomic<uint32_t> writer_waiting;  // 1 while the writer waits for space
  uint8_t pad3[56];
};
static_assert(sizeof(RingState) == 256 && alignof(RingState) == 64);
static_assert(offsetof(RingState, read_position) == 64 && offsetof(RingState, data_doorbell) == 128 &&
              offsetof(RingState, space_doorbell) == 192);

// Written by the executor before the descriptor is passed; constant afterwards except the ring states.
struct ChannelHeader {
  uint32_t magic;             // kChannelMagic
  uint32_t protocol_version;  // kProtocolVersion
  uint32_t channel_index;     // within the session
  uint32_t request_offset;    // bytes from the region's start
  uint32_t request_bytes;     // kRequestRingBytes
  uint32_t reply_offset;
  uint32_t reply_bytes;  // kReplyRingBytes
  uint32_t arena_offset;
  uint32_t arena_chunk_bytes;
  uint32_t arena_chunks;
  uint8_t reserved[24];
  RingState request;  // client writes
  RingState reply;    // server writes
};
static_assert(sizeof(ChannelHeader) == 576 && offsetof(ChannelHeader, request) == 64 &&
              offsetof(ChannelHeader, reply) == 320);

inline constexpr uint32_t kChannelRegionBytes =
    kHeaderBytes + kRequestRingBytes + kReplyRingBytes + kArenaChunkBytes * kArenaChunks;

// One per session, mapped by every channel of it.
struct alignas(64) SessionHeader {
  uint32_t magic;  // kSessionMagic
  uint32_t protocol_version;
  uint8_t pad0[56];
  std::atomic<uint64_t> next_sequence_number;  // client: fetch_add(1) per published request; starts at 0
  uint8_t pad1[56];
  // CUresult of the first asynchronous call that failed and was not yet reported; the server stores it, the client's
  // next synchronising call exchanges it with 0 and returns it. 0: none.
  std::atomic<uint32_t> async_error;
  // CUresult that every call returns from now on (a fault of the context, the executor's end). 0: none. Server only.
  std::atomic<uint32_t> sticky_error;
  uint8_t pad2[56];
};
static_assert(sizeof(SessionHeader) == 192 && offsetof(SessionHeader, next_sequence_number) == 64 &&
              offsetof(SessionHeader, async_error) == 128);
inline constexpr uint32_t kSessionRegionBytes = kHeaderBytes;

// Frames a request. Records start at multiples of kRecordAlignment; `size_bytes` includes this header and is padded.
struct RequestHeader {
  uint32_t size_bytes;       // multiple of 16, sizeof(RequestHeader) to kMaxRequestBytes
  uint16_t op;               // operations_abi.h; 0 is padding (then only size_bytes counts: it may be as small as 16)
  uint16_t flags;            // RequestFlags
  uint64_t sequence_number;  // place in the session's order
  uint32_t context;          // the calling thread's current context (handles_abi.h); kNoContext if none
  uint32_t payload_bytes;    // meaningful bytes after this header, <= size_bytes - sizeof(RequestHeader)
  uint64_t reserved;
};
static_assert(sizeof(RequestHeader) == 32);

enum RequestFlags : uint16_t {
  kWantReply = 1,  // the client waits; without it failures go to SessionHeader::async_error
  // The program's call is a blocking one, which returns before the work is complete. What the program does next, on
  // whatever stream of the context, comes after it. Of copies (kCopy); elsewhere it says nothing.
  kReturnsEarly = 2,
};

// Frames a reply: exactly one per request that wants one, in the channel's order.
struct ReplyHeader {
  uint32_t size_bytes;   // as above, at most kMaxReplyBytes
  uint16_t op;           // of the request; 0 is padding
  uint16_t flags;        // ReplyFlags
  uint32_t cuda_result;  // CUresult
  uint32_t payload_bytes;
};
static_assert(sizeof(ReplyHeader) == 16);

enum ReplyFlags : uint16_t {
  kOutputPending = 1,  // device printf output waits: fetch it with Op::kFetchOutput
};

}  // namespace tally::shm
