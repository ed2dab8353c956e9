// __managed__ variables: one address for host and device. The executor's driver decides where they are; this process
// has pages of its own at the same address, and the bytes go to and fro when CUDA says that they must have arrived.
//
// The device does not offer concurrent access (attribute 89 is 0), so that the host may touch managed memory only after
// it has synchronised, and not while a kernel runs:
//   before work is put on a stream     what the host has changed goes to the device
//   after a call that waited           what the device has changed comes to the host
// Changes are found by comparing with what was exchanged last. Of each 4 KiB (of several in a row, if all have changed)
// the bytes from the first changed one to the last are sent: a program that touches different variables on both sides
// at once gets what a device with concurrent access gives.
//
// Thread-safe. Costs one load per call while a program has no such variable.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace tally::client_shim {

class Channel;

class ManagedVariables {
 public:
  bool any() const { return num_variables_.load(std::memory_order_relaxed) != 0; }

  // The addresses are held (address_reservations.h). Makes the pages usable and fetches the first bytes.
  CUresult Add(Channel* channel, uint64_t address, uint64_t size_bytes, uint32_t context);
  void Remove(uint64_t address);
  // Its streams end with a context.
  void ForgetContext(uint32_t context);

  // Call only if any(): the slow halves of the two moments above.
  CUresult SendChanges(Channel* channel);
  CUresult FetchChanges(Channel* channel);

 private:
  struct Variable {
    uint64_t size_bytes;
    uint32_t context;
    std::vector<std::byte> exchanged;  // what host and device last agreed on
  };
  CUresult StreamOf(Channel* channel, uint32_t context, uint64_t* stream);
  CUresult Fetch(Channel* channel, uint64_t address, Variable* variable);
  CUresult Send(Channel* channel, uint64_t address, Variable* variable);

  std::atomic<uint32_t> num_variables_{0};
  std::atomic<bool> device_may_change_{false};  // some work was put on a stream
  std::mutex mutex_;
  std::map<uint64_t, Variable> variables_;
  std::map<uint32_t, uint64_t> streams_;  // by context: never waited for by the program's own work
};

}  // namespace tally::client_shim
