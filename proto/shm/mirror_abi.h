// What an executor and the mirrors of its domain tell each other: commands one way, completion words the other.
//
// A mirror is a process on one further GPU that has the executor's device memory at the executor's addresses, so that a
// kernel runs there with the parameters that it was given here. The executor ("home") makes the page (a sealed memfd)
// and starts the mirror with it and a socket. Descriptors of memory and images travel over the socket, each as the
// message MirrorParcel, in the order of the commands that need or make them.
//
//      offset 0            256                                      256 + kMirrorSlots * sizeof(MirrorSlot)
//      | MirrorHeader | slot 0 | slot 1 | ...                        |
//      a slot:  | done | command | parameters of a launch, a kernel's name |
//
// A command has a POSITION, counted from 0; it stands in slot position % kMirrorSlots.
//
//      free    -- home writes command and bytes, then num_posted = position + 1 (release), wakes num_posted -->  posted
//      posted  -- the mirror copies the slot out, checks the copy, carries it out                            -->
//      running running -- the mirror, or its GPU in order of the command's stream, writes done = position + 1 -->  free
//
// `done` holds the low 32 bits of position + 1: whatever was there before is another command's. Commands without a
// stream are carried out in order of their positions; those with one are started in that order.
//
// Errors: a command that fails alone (no memory, addresses that are taken, an image that does not load) says so in
// `result`. The mirror sets `error` once, to the CUresult that broke it: a fault of its context, a command that makes
// no sense. It carries nothing out any more then. A mirror whose process is gone is seen by its socket. Either way home
// lets the mirror go: there is no way back.
//
// TRUST. The mirror's GPU writes `done`, so the page is mapped there for kernels, which are a tenant's: they may write
// anything here at any time. So both sides read each field once into a copy, check the copy, and use that. What home
// believes of a mirror is three words and parcels that name exactly what it waits for; what a mirror does for a command
// stays inside of what home reserved in it before.
//
// Behaviour lives in server/executor/mirror; tests/proto/mirror_abi_test.cc pins the layout.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tally::shm {

inline constexpr uint32_t kMirrorMagic = 0x5252494d;  // "MIRR"
inline constexpr uint32_t kMirrorVersion = 3;
inline constexpr uint32_t kMirrorSlots = 128;
inline constexpr uint32_t kMirrorStreams = 12;
// A kernel's parameters: what CUDA allows without its large-parameter mode; and the longest name of a kernel.
inline constexpr uint32_t kMirrorBytes = 4096;
inline constexpr uint32_t kMirrorMaxDevices = 16;
// Numbers that home gives to what it has a mirror make are below these.
inline constexpr uint32_t kMirrorMaxAllocations = 4096;
inline constexpr uint32_t kMirrorMaxImages = 1024;
inline constexpr uint32_t kMirrorMaxFunctions = 16384;
inline constexpr uint32_t kMirrorMaxTasks = 65536;

enum class MirrorState : uint32_t {
  kStarting = 0,
  kReady = 1,  // it has a context on its GPU
};

enum class MirrorCommandKind : uint32_t {
  kNone = 0,
  // Memory. `allocation` is a number, `address` and `num_bytes` its place at home; whole granules of the device.
  kReserve = 1,    // the same addresses: `address`, `num_bytes`. From here on the allocation exists
  kRelease = 2,    // unmaps all of it, gives the addresses back
  kMapShared = 3,  // home's memory at home's addresses: `offset`, `num_bytes`; a parcel brings the descriptor
  kMapOwn = 4,     // new memory of the mirror's GPU there; a parcel takes its descriptor to home
  kMapOther = 5,   // memory of GPU `gpu` (0: home), elsewhere, for copies; a parcel brings the descriptor
  kUnmap = 6,      // what one of the three mapped at exactly `offset`, `num_bytes`; of GPU `gpu`, or kMirrorSelf
  // Code.
  kLoadImage = 7,    // `image`; a parcel brings a sealed memfd of `num_bytes`
  kUnloadImage = 8,  // its functions with it
  kFunction = 9,     // `function` is the kernel of `image` that is named by `num_bytes` bytes
  // Tasks of several launches and fills, which one kRun each starts later.
  kBeginTask = 10,  // `task`: the launches and fills from here to kEndTask become it, and are not carried out
  kEndTask = 11,    // in order, one behind the other
  kDropTask = 12,   // `task`; nothing of it runs any more
  // Its contexts run for `value` microseconds at a time beside others'; 0: as the driver has it.
  kTimeSlice = 13,
  // Work, on `stream`.
  kLaunch = 14,     // `function`, grid, block, shared_bytes; `num_bytes` of parameters
  kFill = 15,       // own memory: `rows` of `row_bytes` at `offset` become the byte `value`
  kRun = 16,        // `task`
  kFetch = 17,      // from GPU `gpu` into own memory: `rows` of `row_bytes`, each `pitch` behind the last, at `offset`
  kWriteBack = 18,  // the other way
};
inline constexpr uint32_t kNumMirrorCommands = 19;

// Of kUnmap: what kMapShared or kMapOwn mapped.
inline constexpr uint32_t kMirrorSelf = 0xffffffff;

struct MirrorCommand {
  MirrorCommandKind kind;
  uint32_t stream;  // below kMirrorStreams
  uint32_t allocation;
  uint32_t gpu;  // below kMirrorMaxDevices: 0 is home, others are mirrors
  uint32_t image;
  uint32_t function;
  uint32_t value;
  uint32_t shared_bytes;
  uint64_t address;
  uint64_t offset;     // bytes from the start of the allocation
  uint64_t num_bytes;  // of a mapping or an image; of what stands in MirrorSlot::bytes
  uint64_t row_bytes;
  uint64_t pitch;  // not looked at if rows is 1
  uint64_t rows;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3];  // of a launch, blocks; zeros: as the kernel has it
  uint32_t task;        // below kMirrorMaxTasks
};
static_assert(sizeof(MirrorCommand) == 120 && offsetof(MirrorCommand, address) == 32 &&
              offsetof(MirrorCommand, rows) == 72 && offsetof(MirrorCommand, grid) == 80 &&
              offsetof(MirrorCommand, cluster) == 104);

struct alignas(64) MirrorSlot {
  std::atomic<uint32_t> done;    // by the mirror or its GPU: low 32 bits of position + 1
  std::atomic<uint32_t> result;  // by the mirror, before `done`: CUresult of a command that failed and broke nothing
  uint32_t reserved[14];
  MirrorCommand command;
  uint8_t pad[8];
  uint8_t bytes[kMirrorBytes];
};
static_assert(sizeof(MirrorSlot) == 64 + 128 + kMirrorBytes && offsetof(MirrorSlot, result) == 4 &&
              offsetof(MirrorSlot, command) == 64 && offsetof(MirrorSlot, bytes) == 192);

struct alignas(64) MirrorHeader {
  // By home.
  uint32_t magic;
  uint32_t version;
  std::atomic<uint32_t> num_posted;  // futex: low 32 bits of the next position
  uint32_t reserved0[13];
  // By the mirror.
  std::atomic<MirrorState> state;
  std::atomic<uint32_t> error;  // CUresult, 0: none; never taken back
  // What kFetch and kWriteBack commands have been given to the driver, for figures.
  std::atomic<uint64_t> fetched_bytes;
  std::atomic<uint64_t> written_back_bytes;
  uint32_t reserved1[10];
  uint8_t pad[128];
};
static_assert(sizeof(MirrorHeader) == 256 && offsetof(MirrorHeader, num_posted) == 8 &&
              offsetof(MirrorHeader, state) == 64 && offsetof(MirrorHeader, error) == 68 &&
              offsetof(MirrorHeader, fetched_bytes) == 72);

struct MirrorPage {
  MirrorHeader header;
  MirrorSlot slot[kMirrorSlots];
};
static_assert(sizeof(MirrorPage) == sizeof(MirrorHeader) + kMirrorSlots * sizeof(MirrorSlot));

// With one descriptor, over the socket.
struct MirrorParcel {
  uint64_t position;  // of the command that it belongs to
};
static_assert(sizeof(MirrorParcel) == 8);

}  // namespace tally::shm
