// Several software GPUs with a mirror on each but the first, and memory that all of them have.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/mirror/mirror.h"
#include "server/executor/mirror/plan_steps.h"
#include "server/executor/mirror/step_queue.h"

namespace tally::server {

constexpr uint64_t kGranule = 2 << 20;

DriverLibraries SimLibraries();
// The driver of this process, loaded once, with the context of device 0.
const DriverTable& HomeDriver();
void UseHomeContext();

// Exportable memory of home, at an address as executors take it.
class HomeAllocation {
 public:
  HomeAllocation(uint32_t number, uint64_t num_bytes);
  ~HomeAllocation();
  HomeAllocation(const HomeAllocation&) = delete;
  HomeAllocation& operator=(const HomeAllocation&) = delete;

  MirroredAllocation place() const { return {number_, address_, num_bytes_}; }
  int fd() const { return fd_.get(); }
  void Write(const std::vector<uint32_t>& words);
  std::vector<uint32_t> Read() const;

 private:
  const uint32_t number_;
  const uint64_t num_bytes_;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
  UniqueFd fd_;
};

class MirrorWorld {
 public:
  // GPUs 0 (home) to num_gpus - 1. Mirrors have `image` as image 0, and its kernels as functions 0, 1, ...
  MirrorWorld(int num_gpus, const std::string& image, const std::vector<std::string>& kernels);

  // Allocation 0, 1, ...: reserved at all mirrors, without memory there.
  HomeAllocation& Allocate(uint64_t num_bytes);
  // All allocations: home's memory at all mirrors; or memory of their own, everybody's where copies need it.
  void ShareHome();
  void GiveOwn();
  void GiveOwn(const HomeAllocation& allocation);

  Mirror& mirror(int gpu) { return *mirrors_[static_cast<size_t>(gpu - 1)]; }
  HomeAllocation& allocation(size_t number) { return *allocations_[number]; }
  std::vector<MirroredAllocation> places() const;
  const std::vector<StepQueue*>& queues() const { return queues_; }
  uint64_t copied_bytes() const;  // by all mirrors so far

  static shm::MirrorCommand Command(shm::MirrorCommandKind kind, uint32_t allocation = 0, uint64_t offset = 0,
                                    uint64_t num_bytes = 0);

 private:
  void LoadCode(Mirror& mirror, const std::string& image, const std::vector<std::string>& kernels);

  std::vector<std::unique_ptr<HomeAllocation>> allocations_;
  std::vector<std::unique_ptr<Mirror>> mirrors_;
  HomeQueue::Names names_;
  std::unique_ptr<CompletionSource> completions_;
  std::vector<std::unique_ptr<StepQueue>> owned_queues_;
  std::vector<StepQueue*> queues_;
};

}  // namespace tally::server
