// Machine: virtual streaming multiprocessors that execute the grids of Programs on CPU threads.
//
// Device addresses are host addresses of this process. Everything device code touches is looked up first
// (MemoryLookup), so that a wild, freed or misaligned access ends the launch with a Fault, never the process.
//
//   auto machine = Machine::Create({});
//   uint64_t id = (*machine)->Submit(std::move(request), [](const std::optional<Fault>& fault) { ... });
//
// Ordering (streams, events, legacy stream) is the caller's: a submitted grid may run at once, beside all others.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim-driver/engine/program.h"

namespace tally::sim_driver {

struct Image;          // texture.h
class AccessObserver;  // access_observer.h

// One allocation that device code may use. size_bytes 0: none.
struct MemoryRange {
  uint64_t base = 0;
  uint64_t size_bytes = 0;
  bool is_writable = true;
};

// Which memory device code may touch. Implemented by the driver API's context; called from the machine's threads, any
// number at once, on a cache miss (so: rarely, but it must not block for long). Workers remember answers until
// generation() changes.
//
// Contract: bump the generation *before* memory is unmapped or reused, and unmap only when no grid of this lookup runs
// that could still be inside an access (CUDA's cuMemFree waits for the device; stream-ordered frees come after their
// stream's work). Under that contract no stale answer is ever used.
class MemoryLookup {
 public:
  virtual ~MemoryLookup() = default;
  // The allocation that contains `address`, or an empty range.
  virtual MemoryRange Find(uint64_t address) const = 0;
  // The texture or surface object of that value, or null. Its memory is looked up like any other.
  virtual std::shared_ptr<const Image> FindImage(uint64_t) const { return nullptr; }
  // Call after removing a range and before its memory goes away. Adding ranges needs no bump.
  void BumpGeneration() { generation_.fetch_add(1, std::memory_order_release); }
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  // Lookups start far apart, so that one made where another was is not taken for it.
  static inline std::atomic<uint64_t> next_start_{1};
  std::atomic<uint64_t> generation_{next_start_.fetch_add(uint64_t{1} << 40, std::memory_order_relaxed)};
};

struct Dim3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
  uint64_t Count() const { return uint64_t{x} * y * z; }
};

// Why a grid did not finish.
struct Fault {
  int cu_result = 719;  // value of CUresult, such as 700 CUDA_ERROR_ILLEGAL_ADDRESS
  // "kernel saxpy, block (3,0,0), thread (17,0,0), PTX line 42 'ld.global.f32 %f1, [%rd4]': address 0x... is not ..."
  std::string message;
};

// CUresult values that Faults carry.
inline constexpr int kFaultInvalidValue = 1;  // a LaunchRequest that no device could run
inline constexpr int kFaultIllegalAddress = 700;
inline constexpr int kFaultLaunchTimeout = 702;  // barrier that can never be satisfied
inline constexpr int kFaultAssert = 710;
inline constexpr int kFaultHardwareStackError = 714;  // call depth or local memory used up
inline constexpr int kFaultIllegalInstruction = 715;  // brkpt without a debugger, unreachable code
inline constexpr int kFaultMisalignedAddress = 716;
inline constexpr int kFaultInvalidAddressSpace = 717;
inline constexpr int kFaultInvalidPc = 718;     // indirect call to what is not a function
inline constexpr int kFaultLaunchFailed = 719;  // trap, and everything without a code of its own
inline constexpr int kFaultNotSupported = 801;  // Kernel::unsupported
inline constexpr int kFaultCancelled = 999;     // Cancel or CancelAll: the caller knows why

struct LaunchRequest {
  std::shared_ptr<const Program> program;
  uint32_t kernel_index = 0;
  Dim3 grid;
  Dim3 block;
  Dim3 cluster;  // {1,1,1}: none, or what the kernel's .reqnctapercluster says; must divide `grid`
  uint32_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;         // packed as Kernel::parameters say; shorter is padded with zeros
  std::vector<uint64_t> variable_addresses;  // one per Program::variables()
  std::shared_ptr<const MemoryLookup> memory;
  std::shared_ptr<const AccessObserver> observer;  // null: nobody wants to know
  bool is_cooperative = false;                     // all blocks make progress together; grid synchronisation works
  int priority = 0;                                // as in CUDA: a lower number is more urgent
  // Per-thread stack of recursive and indirect calls, cuCtxGetLimit(CU_LIMIT_STACK_SIZE). A floor: the engine gives at
  // least kMinStackBytes on top of what the kernel declares.
  uint32_t stack_bytes = 1024;
  // Device-side malloc gives out at most this much at a time, over all launches with the same `memory`.
  uint64_t heap_bytes = uint64_t{8} << 20;
  // Not zero: the order in which blocks start, in which warps and parted lanes take turns, and how long a turn is, are
  // drawn from it instead of being the natural ones. On a machine with one worker a run repeats exactly. For tests that
  // look for results that depend on the order. Kernels whose blocks wait for blocks of lower index may then never end.
  uint64_t schedule_seed = 0;
  // One call per device printf, with the formatted text. From the machine's threads, one call at a time per grid.
  std::function<void(std::string_view)> on_printf;
};

inline constexpr uint32_t kMinStackBytes = 64 * 1024;

// What a device with this machine should report.
struct MachineLimits {
  static constexpr uint32_t kNumSms = 16;
  static constexpr uint32_t kWarpSize = 32;
  static constexpr uint32_t kMaxThreadsPerBlock = 1024;
  static constexpr uint32_t kMaxThreadsPerSm = 2048;
  static constexpr uint32_t kMaxBlocksPerSm = 32;
  static constexpr uint32_t kRegistersPerSm = 65536;
  static constexpr uint32_t kSharedBytesPerSm = 228 * 1024;
  static constexpr uint32_t kSharedBytesPerBlock = 48 * 1024;
  static constexpr uint32_t kSharedBytesPerBlockOptin = 227 * 1024;
  static constexpr uint32_t kReservedSharedBytesPerBlock = 1024;
  static constexpr uint32_t kMaxBlocksPerCluster = 8;
};

struct MachineOptions {
  uint32_t num_workers = 0;  // threads; 0: one per hardware thread, at least 2
  // Warp instructions that a block runs before its worker looks for other work.
  uint32_t slice_instructions = 65536;
  // Fault (719) when code loads bytes of shared memory that nothing wrote. Costs speed.
  bool check_uninitialized_shared = false;
  // Fault (702) when an aligned barrier, or one that reduces, is reached by a part of a warp while the rest is at
  // another one. Real devices since Volta tolerate the former; at the latter the two parts wait for one another for
  // ever.
  bool strict_aligned_barriers = false;
};

struct MachineCounters {
  uint64_t thread_instructions = 0;  // lanes that executed a PTX instruction
  uint64_t blocks = 0;
  uint64_t grids = 0;
};

// Thread-safe. The destructor cancels what runs and waits for the workers.
class Machine {
 public:
  using Options = MachineOptions;
  // Exactly once per submitted grid, from a worker thread (for a refused request: from Submit itself), without locks
  // held: it may Submit. Must not block on grids of this machine and must not destroy the machine.
  using OnDone = std::function<void(const std::optional<Fault>&)>;

  // kUnimplemented on a CPU without AVX2, FMA and F16C.
  static Result<std::unique_ptr<Machine>> Create(const Options& options);
  ~Machine();

  // Returns the grid's id (%gridid), unique for this machine.
  uint64_t Submit(LaunchRequest request, OnDone on_done);
  // Ends that grid soon with kFaultCancelled. Nothing happens if it is done already.
  void Cancel(uint64_t grid_id);
  // The same for every grid with this memory (a context), or for all when null.
  void CancelAll(const MemoryLookup* memory);
  // Waits until no grid is left and every on_done has returned.
  void WaitIdle();
  MachineCounters counters() const;

  class Core;  // internal

 private:
  explicit Machine(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace tally::sim_driver
