#include "sim-driver/engine/program.h"

#include <cstring>

#include "sim-driver/engine/code.h"

namespace tally::sim_driver {

Program::Program(std::unique_ptr<const ProgramCode> code) : code_(std::move(code)) {}
Program::~Program() = default;

const std::vector<Kernel>& Program::kernels() const { return code_->kernels; }
const std::vector<Variable>& Program::variables() const { return code_->variables; }

std::optional<uint32_t> Program::FindKernel(std::string_view name) const {
  auto found = code_->kernel_names.find(std::string(name));
  if (found == code_->kernel_names.end()) return std::nullopt;
  return found->second;
}

std::optional<uint32_t> Program::FindVariable(std::string_view name) const {
  auto found = code_->variable_names.find(std::string(name));
  if (found == code_->variable_names.end()) return std::nullopt;
  return found->second;
}

uint64_t Program::FunctionAddress(uint32_t function_index) const {
  return kFunctionWindow | (uint64_t{function_index} + 1) * 16;
}

std::vector<std::byte> Program::InitialBytes(uint32_t index, std::span<const uint64_t> variable_addresses) const {
  const Variable& variable = code_->variables[index];
  std::vector<std::byte> bytes(variable.size_bytes);
  std::copy(variable.initial_bytes.begin(), variable.initial_bytes.end(), bytes.begin());
  for (const Relocation& relocation : variable.relocations) {
    uint64_t address = 0;
    if (relocation.is_function) {
      address = FunctionAddress(relocation.index);
    } else if (relocation.index < variable_addresses.size()) {
      address = variable_addresses[relocation.index];
    }
    address = (address + static_cast<uint64_t>(relocation.addend)) >> relocation.shift_bits;
    std::memcpy(bytes.data() + relocation.offset_bytes, &address, relocation.size_bytes);
  }
  return bytes;
}

}  // namespace tally::sim_driver
