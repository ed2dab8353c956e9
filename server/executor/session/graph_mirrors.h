// The mirrors of one session (mirror/mirror.h): processes on its other GPUs, the code and memory that they have been
// given so far, and the queues that steps of its graphs go to.
//
//      Start      a process for each GPU but home, once; about half a second each on a real GPU
//      NumberOf   a kernel: its image is loaded everywhere, once
//      Have       an allocation: memory for all of it on each GPU, at home's addresses, once
//      Define     a task of several launches, on the GPU where a plan has it
//
// What is refused by one GPU is refused: then it stays home. Guarded by the session's sequencer; home's context is
// current.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/executor/driver/driver_libraries.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/mirror/mirror.h"
#include "server/executor/mirror/plan_steps.h"
#include "server/executor/mirror/step_queue.h"
#include "server/executor/session/executor_core.h"
#include "server/executor/session/memory_quota.h"
#include "server/executor/session/spread_memory.h"

namespace tally::server {

// A task that a mirror has; it is dropped there when the next one is defined after this is gone. May outlive the
// mirrors.
class DefinedTask {
 public:
  using Dropped = std::vector<std::pair<uint32_t, uint32_t>>;  // GPU, number
  DefinedTask(std::shared_ptr<Dropped> dropped, uint32_t gpu, uint32_t number)
      : dropped_(std::move(dropped)), gpu_(gpu), number_(number) {}
  ~DefinedTask() { dropped_->emplace_back(gpu_, number_); }
  DefinedTask(const DefinedTask&) = delete;
  DefinedTask& operator=(const DefinedTask&) = delete;
  uint32_t number() const { return number_; }

 private:
  const std::shared_ptr<Dropped> dropped_;
  const uint32_t gpu_, number_;
};

class GraphMirrors {
 public:
  // Memory of other GPUs counts as the session's; nothing: there is no room for it.
  using TakeChargeOf = std::function<std::optional<SharedCharge>(int device, uint64_t num_bytes)>;

  GraphMirrors(ExecutorCore& core, const SpreadMemory& memory, TakeChargeOf take_charge)
      : driver_(core.driver), core_(core), memory_(memory), take_charge_(std::move(take_charge)) {}

  // `home` and the ordinals of all GPUs. Again: whether they are there, for that home.
  bool Start(const DriverLibraries& libraries, int home, const std::vector<int>& ordinals);
  bool has_started() const { return !mirrors_.empty(); }

  // Nothing: some GPU cannot have it.
  std::optional<uint32_t> NumberOf(Kernel& kernel);
  const MirroredAllocation* Have(const SpreadMemory::Allocation& allocation);
  // As Have made it, and still there.
  bool Has(const MirroredAllocation& allocation) const;

  // Launches and fills as one task of GPU `gpu`'s mirror. Null: it cannot be made.
  static constexpr size_t kMostCommands = 4096;
  std::unique_ptr<const DefinedTask> Define(uint32_t gpu, std::span<const StepCommand> commands);

  // GPU n's is the n-th; home's is the first, and takes graphs only.
  const std::vector<StepQueue*>& queues() const { return queues_; }

  // Before each launch: the mirrors' contexts give way to others as home's do, from now on.
  void KeepTimeSlices();

  // It is about to be freed / code is about to be unloaded.
  void OnFreed(uint64_t address);
  void ForgetCode();
  // What one of the mirrors was lost of; CUDA_SUCCESS: all are well.
  CUresult error();
  // All processes end now.
  void End();

 private:
  struct OfAllocation {
    MirroredAllocation place;
    std::vector<SharedCharge> charges;
  };
  void DropTasks();
  static shm::MirrorCommand Command(shm::MirrorCommandKind kind, uint32_t allocation, uint64_t num_bytes);
  std::optional<uint32_t> NumberOf(const std::shared_ptr<ImageBytes>& image);
  // All mirrors do it; the first error. `fd`: goes with it.
  CUresult Everywhere(const shm::MirrorCommand& command, std::span<const std::byte> bytes = {}, int fd = -1);
  // Has it made everywhere; else why not, as words.
  std::string WhyNot(const SpreadMemory::Allocation& allocation, OfAllocation* made);
  CUresult Load(uint32_t number, const ImageBytes& image);
  CUresult Map(const MirroredAllocation& place, int fd);
  CUresult ShareOut(const MirroredAllocation& place, uint32_t gpu, int fd);
  // Why something stays home, into the log: the first few of a session.
  void Say(std::string_view what, std::string_view why);
  void Say(std::string_view what, CUresult error) { Say(what, CudaErrorName(driver_, error)); }

  const DriverTable& driver_;
  ExecutorCore& core_;
  const SpreadMemory& memory_;
  const TakeChargeOf take_charge_;
  int home_device_ = 0;
  std::vector<int> ordinals_;                           // of the mirrors
  std::vector<std::chrono::microseconds> time_slices_;  // that they have been told
  std::vector<std::unique_ptr<Mirror>> mirrors_;
  const HomeQueue::Names names_;
  std::unique_ptr<HomeQueue> home_;
  std::vector<std::unique_ptr<MirrorQueue>> mirror_queues_;
  std::vector<StepQueue*> queues_;
  std::map<const ImageBytes*, std::pair<std::shared_ptr<ImageBytes>, std::optional<uint32_t>>> images_;
  std::map<const Kernel*, std::optional<uint32_t>> kernels_;
  std::map<uint64_t, OfAllocation> allocations_;  // by address
  std::set<uint64_t> refused_;                    // ids of allocations
  uint32_t num_numbers_ = 0;
  std::vector<uint32_t> free_numbers_;  // of allocations that were there
  std::shared_ptr<DefinedTask::Dropped> dropped_ = std::make_shared<DefinedTask::Dropped>();
  std::vector<uint32_t> free_tasks_;
  uint32_t num_tasks_ = 0;
  int num_said_ = 0;
};

}  // namespace tally::server
