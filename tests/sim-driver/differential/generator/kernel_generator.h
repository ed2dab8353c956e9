// Whole functions: declaration, prologue, a random body, epilogue.
#pragma once

#include <string>
#include <vector>

#include "tests/sim-driver/differential/generator/body.h"
#include "tests/sim-driver/differential/generator/generated_module.h"

namespace tally::differential {

// Text of a device function that does what `plan` says; it may call the functions in `callable`.
std::string WriteFunction(RandomSource& random, const FunctionPlan& plan, const ModuleTraits& module,
                          const std::vector<FunctionPlan>& callable);
// ".func (.param .b32 result) NAME (.param .b32 a0, ...)"
std::string FunctionSignature(const FunctionPlan& plan);

struct KernelText {
  GeneratedKernel kernel;
  std::string module_scope;  // declarations that the kernel needs in front of it
  std::string text;
};
KernelText WriteKernel(RandomSource& random, const std::string& name, bool has_parameters, const ModuleTraits& module,
                       const std::vector<FunctionPlan>& callable);

}  // namespace tally::differential
