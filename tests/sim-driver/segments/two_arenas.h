// Two allocations, far apart, and a program that runs in them.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "sim-driver/engine/machine.h"
#include "sim-driver/engine/program.h"
#include "tests/sim-driver/differential/generator/random_source.h"

namespace tally::ptx_transforms {

class TwoArenas {
 public:
  // The text must compile, unless somebody asks is_good(). One at a time: all use the same two allocations, which lie
  // further apart than any index of 32 bits reaches.
  explicit TwoArenas(const std::string& text);

  bool is_good() const { return program_ != nullptr; }
  const sim_driver::Program& program() const { return *program_; }
  uint64_t base() const;  // kArenaBytes each
  uint64_t other() const;

  // Random bytes everywhere, and the variables as they start.
  void Fill(differential::RandomSource& random);
  // Of a few blocks, with parameters that are all zero.
  sim_driver::LaunchRequest Request(uint32_t kernel, differential::RandomSource& random);

 private:
  class Memory;
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<const sim_driver::Program> program_;
  std::vector<uint64_t> variables_;
};

// Writes a parameter, if the launch has one there.
template <typename T>
void Put(sim_driver::LaunchRequest& request, uint32_t offset, T value) {
  if (offset + sizeof value <= request.parameters.size())
    std::memcpy(request.parameters.data() + offset, &value, sizeof value);
}

}  // namespace tally::ptx_transforms
