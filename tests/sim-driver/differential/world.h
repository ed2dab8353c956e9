// All memory that the kernels of one module may touch. Two worlds of one module start alike; whatever runs in them,
// they should end alike.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim-driver/engine/machine.h"
#include "tests/sim-driver/differential/generator/generated_module.h"
#include "tests/sim-driver/engine/test_memory.h"

namespace tally::differential {

class World {
 public:
  // Both must outlive the world. `original` is the module's own text, compiled.
  World(const GeneratedModule& module, std::shared_ptr<const sim_driver::Program> original);

  // A launch of that kernel as the program would make it.
  sim_driver::LaunchRequest Request(size_t kernel);
  // The same with the kernel `name` of a program made from the module's text. It is loaded in the original's place, so
  // that variables of one name are one; or apart from it, with variables of its own.
  sim_driver::LaunchRequest Request(const std::shared_ptr<const sim_driver::Program>& program, bool is_apart,
                                    size_t kernel, const std::string& name);
  // Address of a variable of the original or of what was loaded in its place; of what was loaded apart from it.
  std::optional<uint64_t> VariableAddress(const std::string& name) const;
  std::optional<uint64_t> VariableAddressApart(const std::string& name) const;
  // The word of Buffer::kProbe.
  volatile uint32_t& Probe(size_t kernel, ProbeWord word);
  uint64_t ProbeAddress(size_t kernel, ProbeWord word) const;
  // More memory, zero at first.
  uint64_t Allocate(uint64_t bytes) { return memory_->Allocate(bytes); }

  // Where this world differs from another one of the module; nothing if it does not. Probes are not compared.
  std::optional<std::string> DifferenceFrom(const World& other) const;
  // Why the counts of that kernel are wrong, after it ran once from the start: every block counts every thread once.
  std::optional<std::string> CheckCounts(size_t kernel) const;

 private:
  struct Allocation {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };
  using Variables = std::map<std::string, Allocation>;
  void PlaceVariables(const sim_driver::Program& program, Variables& variables, std::vector<uint64_t>& addresses);

  const GeneratedModule& module_;
  std::shared_ptr<const sim_driver::Program> original_;
  std::shared_ptr<sim_driver::TestMemory> memory_;
  std::vector<std::array<Allocation, kNumBuffers>> buffers_;  // per kernel
  Variables variables_;
  Variables variables_apart_;
};

}  // namespace tally::differential
