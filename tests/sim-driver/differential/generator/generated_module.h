// What the generator makes: PTX text, and for every kernel in it a launch that it is meant for.
//
// Every kernel is well defined: threads share memory only across barriers or by atomics whose order does not show, and
// nothing is read that was not written. So whatever order its blocks and threads run in, memory ends up the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim-driver/engine/machine.h"

namespace tally::differential {

using sim_driver::Dim3;

// The memory that a kernel is given. Sizes follow from the launch: see BufferBytes.
enum class Buffer : uint8_t {
  kThreads,       // kThreadWords words per thread, in order of the linear block and thread index; written by the thread
  kCells,         // one word per thread, in order of the thread's coordinates in the whole grid
  kInput,         // kInputWords words, read only
  kAccumulators,  // kAccumulatorWords words, changed by atomics
  kCounts,        // a word per block: how many of its threads started
  kProbe,         // ProbeWord
  kNumBuffers,
};
inline constexpr size_t kNumBuffers = static_cast<size_t>(Buffer::kNumBuffers);
inline constexpr uint32_t kThreadWords = 4;
inline constexpr uint32_t kInputWords = 1024;
inline constexpr uint32_t kAccumulatorWords = 192;

// Every block takes a ticket when it starts; the one that finds its ticket in kYieldAt sets kYieldFlag. That is also
// GateRecord::stopped of a record that begins at kGateRecord: with epoch 0 the block stops its own queue.
enum class ProbeWord : uint8_t { kTicket = 0, kYieldAt = 1, kGateRecord = 32, kYieldFlag = 33 };
inline constexpr uint32_t kProbeWords = 64;
inline constexpr uint32_t kProbeAlignment = 128;
inline constexpr uint32_t kNeverYield = 0xfffffffe;  // no ticket has this number

// A formal parameter: the address of a buffer, or bytes that the generator chose.
struct GeneratedParameter {
  bool is_buffer = false;
  Buffer buffer = Buffer::kThreads;
  std::vector<std::byte> bytes;
};

struct GeneratedKernel {
  std::string name;
  Dim3 grid;
  Dim3 block;
  uint32_t dynamic_shared_bytes = 0;
  std::vector<GeneratedParameter> parameters;  // in order; empty: the kernel finds its buffers in kRolesVariable
};

struct GeneratedModule {
  uint64_t seed = 0;
  std::string text;
  std::vector<GeneratedKernel> kernels;  // to be run in this order: they share variables of the module
};

// A variable of the module with the addresses of all buffers, in order; written by whoever loads the module. Only in
// modules with kernels that have no parameters.
inline constexpr const char* kRolesVariable = "buffer_addresses";
// Variables whose bytes are addresses, hence not to be compared.
inline bool HoldsAddresses(const std::string& variable) {
  return variable == kRolesVariable || variable.starts_with("pointer_");
}

// Deterministic: the same seed gives the same module, everywhere.
GeneratedModule GenerateModule(uint64_t seed);

inline uint64_t BufferBytes(const GeneratedKernel& kernel, Buffer buffer) {
  uint64_t num_threads = kernel.grid.Count() * kernel.block.Count();
  switch (buffer) {
    case Buffer::kThreads:
      return num_threads * kThreadWords * 4;
    case Buffer::kCells:
      return num_threads * 4;
    case Buffer::kInput:
      return kInputWords * 4;
    case Buffer::kAccumulators:
      return kAccumulatorWords * 4;
    case Buffer::kCounts:
      return kernel.grid.Count() * 4;
    default:
      return kProbeWords * 4;
  }
}

}  // namespace tally::differential
