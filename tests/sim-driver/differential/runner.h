// Runs launches on the software GPU to their end, in an order that a seed determines.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "sim-driver/engine/machine.h"

namespace tally::differential {

class Runner {
 public:
  Runner();

  // Nothing if the grid ended well; else the fault, or that it ran for more than `budget` thread instructions.
  std::optional<std::string> Run(sim_driver::LaunchRequest request, uint64_t budget);
  // Of the last Run.
  uint64_t thread_instructions() const { return thread_instructions_; }

 private:
  std::unique_ptr<sim_driver::Machine> machine_;
  uint64_t thread_instructions_ = 0;
};

}  // namespace tally::differential
