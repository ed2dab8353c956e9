// AccessObserver: is told of every access of a launch. For tests that ask what a kernel touches.
#pragma once

#include <cstdint>
#include <string>

namespace tally::sim_driver {

struct Instruction;
struct Warp;

// Of one lane, to memory that is neither the thread's nor the block's own, before it is made; an atomic one is a write.
struct ObservedAccess {
  uint64_t address = 0;
  uint32_t bytes = 0;
  bool is_write = false;
  const Warp& warp;
  const Instruction& instruction;
};

class AccessObserver {
 public:
  virtual ~AccessObserver() = default;
  // From the machine's threads. Workers then remember no allocation, so each access comes by: everything is slower.
  virtual void OnAccess(const ObservedAccess& access) const = 0;
};

// "kernel saxpy, PTX line 42 'ld.global.f32 %f1, [%rd4];'".
std::string DescribePlace(const ObservedAccess& access);

}  // namespace tally::sim_driver
