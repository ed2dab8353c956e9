// Whether the assembler takes what the generator writes, and what the passes make of it, for every architecture that we
// support and the text's target allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/sim-driver/differential/generator/generated_module.h"

namespace tally::differential {

class Assembly {
 public:
  explicit Assembly(std::string ptxas) : ptxas_(std::move(ptxas)) {}

  // The module as it is, with all variants beside it, with them alone (their variables imported) and unified. Nothing,
  // or which text is refused for which architecture; what ptxas says goes to standard error.
  std::optional<std::string> Check(const GeneratedModule& module);
  // Texts assembled so far, once for each architecture.
  uint64_t num_assembled() const { return num_assembled_; }

 private:
  std::optional<std::string> Assemble(const GeneratedModule& module, const std::string& text, const char* what);

  const std::string ptxas_;
  uint64_t num_assembled_ = 0;
};

}  // namespace tally::differential
