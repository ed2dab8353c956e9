#include "tests/sim-driver/differential/world.h"

#include <fmt/format.h>

#include <cstring>

#include "tests/sim-driver/differential/generator/random_source.h"

namespace tally::differential {
namespace {

constexpr const char* kBufferNames[] = {"thread words", "cells", "input", "accumulators", "counts", "probe"};

std::string Describe(const char* what, const std::string& where, uint64_t word, uint32_t expected, uint32_t got) {
  return fmt::format("{} {}: word {} is {:#x} and should be {:#x}", where, what, word, got, expected);
}

uint32_t WordAt(uint64_t address, uint64_t word) {
  uint32_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(address + word * 4), 4);
  return value;
}

std::optional<uint64_t> FirstDifference(uint64_t a, uint64_t b, uint64_t bytes) {
  if (std::memcmp(reinterpret_cast<const void*>(a), reinterpret_cast<const void*>(b), bytes) == 0) return std::nullopt;
  for (uint64_t word = 0; word < bytes / 4; ++word)
    if (WordAt(a, word) != WordAt(b, word)) return word;
  return bytes / 4;
}

}  // namespace

World::World(const GeneratedModule& module, std::shared_ptr<const sim_driver::Program> original)
    : module_(module), original_(std::move(original)), memory_(std::make_shared<sim_driver::TestMemory>()) {
  RandomSource random(module.seed ^ 0x776f726c64);
  for (const GeneratedKernel& kernel : module.kernels) {
    auto& buffers = buffers_.emplace_back();
    for (size_t k = 0; k < kNumBuffers; ++k) {
      auto buffer = static_cast<Buffer>(k);
      const uint64_t align = buffer == Buffer::kProbe ? kProbeAlignment : 1;
      const uint64_t address = memory_->Allocate(BufferBytes(kernel, buffer) + align - 1);
      buffers[k] = {(address + align - 1) / align * align, BufferBytes(kernel, buffer)};
      auto* words = reinterpret_cast<uint32_t*>(buffers[k].address);
      if (buffer == Buffer::kCounts || buffer == Buffer::kProbe) continue;
      // Accumulators start small: floats stay exact, and the operations have something to change.
      bool is_small = buffer == Buffer::kAccumulators;
      for (uint64_t word = 0; word < buffers[k].bytes / 4; ++word) words[word] = is_small ? 0 : random.Next32();
    }
    Probe(buffers_.size() - 1, ProbeWord::kYieldAt) = kNeverYield;
  }
  std::vector<uint64_t> addresses;
  PlaceVariables(*original_, variables_, addresses);
}

sim_driver::LaunchRequest World::Request(size_t kernel) {
  return Request(original_, false, kernel, module_.kernels[kernel].name);
}

void World::PlaceVariables(const sim_driver::Program& program, Variables& placed, std::vector<uint64_t>& addresses) {
  const auto& variables = program.variables();
  std::vector<bool> is_new(variables.size());
  for (size_t k = 0; k < variables.size(); ++k) {
    auto [at, inserted] = placed.try_emplace(variables[k].name);
    is_new[k] = inserted;
    if (inserted) at->second = {memory_->Allocate(variables[k].size_bytes), variables[k].size_bytes};
    addresses.push_back(at->second.address);
  }
  for (uint32_t k = 0; k < variables.size(); ++k) {
    if (!is_new[k]) continue;
    std::vector<std::byte> bytes = program.InitialBytes(k, addresses);
    std::memcpy(reinterpret_cast<void*>(addresses[k]), bytes.data(), bytes.size());
  }
}

sim_driver::LaunchRequest World::Request(const std::shared_ptr<const sim_driver::Program>& program, bool is_apart,
                                         size_t kernel, const std::string& name) {
  const GeneratedKernel& generated = module_.kernels[kernel];
  sim_driver::LaunchRequest request;
  request.program = program;
  request.kernel_index = program->FindKernel(name).value_or(~0u);
  request.grid = generated.grid;
  request.block = generated.block;
  request.dynamic_shared_bytes = generated.dynamic_shared_bytes;
  request.memory = memory_;
  PlaceVariables(*program, is_apart ? variables_apart_ : variables_, request.variable_addresses);
  if (auto roles = variables_.find(kRolesVariable); roles != variables_.end())
    for (size_t k = 0; k < kNumBuffers; ++k)
      std::memcpy(reinterpret_cast<void*>(roles->second.address + k * 8), &buffers_[kernel][k].address, 8);
  if (request.kernel_index >= program->kernels().size()) return request;  // the machine refuses it
  const auto& formal = program->kernels()[request.kernel_index];
  request.parameters.resize(formal.parameter_bytes);
  for (size_t k = 0; k < generated.parameters.size() && k < formal.parameters.size(); ++k) {
    const GeneratedParameter& parameter = generated.parameters[k];
    std::byte* at = request.parameters.data() + formal.parameters[k].offset_bytes;
    if (parameter.is_buffer) {
      std::memcpy(at, &buffers_[kernel][static_cast<size_t>(parameter.buffer)].address, 8);
    } else {
      std::memcpy(at, parameter.bytes.data(), parameter.bytes.size());
    }
  }
  return request;
}

std::optional<uint64_t> World::VariableAddress(const std::string& name) const {
  auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second.address;
}

std::optional<uint64_t> World::VariableAddressApart(const std::string& name) const {
  auto found = variables_apart_.find(name);
  if (found == variables_apart_.end()) return std::nullopt;
  return found->second.address;
}

uint64_t World::ProbeAddress(size_t kernel, ProbeWord word) const {
  return buffers_[kernel][static_cast<size_t>(Buffer::kProbe)].address + static_cast<uint64_t>(word) * 4;
}

volatile uint32_t& World::Probe(size_t kernel, ProbeWord word) {
  return *reinterpret_cast<volatile uint32_t*>(ProbeAddress(kernel, word));
}

std::optional<std::string> World::DifferenceFrom(const World& other) const {
  for (size_t kernel = 0; kernel < buffers_.size(); ++kernel) {
    for (size_t k = 0; k < kNumBuffers; ++k) {
      if (static_cast<Buffer>(k) == Buffer::kProbe) continue;
      const Allocation& here = buffers_[kernel][k];
      const Allocation& there = other.buffers_[kernel][k];
      if (auto word = FirstDifference(here.address, there.address, here.bytes))
        return Describe(kBufferNames[k], "kernel " + module_.kernels[kernel].name, *word, WordAt(there.address, *word),
                        WordAt(here.address, *word));
    }
  }
  for (const auto& [name, here] : variables_) {
    auto there = other.variables_.find(name);
    if (there == other.variables_.end() || HoldsAddresses(name)) continue;
    if (auto word = FirstDifference(here.address, there->second.address, here.bytes))
      return Describe(name.c_str(), "variable", *word, WordAt(there->second.address, *word),
                      WordAt(here.address, *word));
  }
  return std::nullopt;
}

std::optional<std::string> World::CheckCounts(size_t kernel) const {
  const GeneratedKernel& generated = module_.kernels[kernel];
  const Allocation& counts = buffers_[kernel][static_cast<size_t>(Buffer::kCounts)];
  auto threads = static_cast<uint32_t>(generated.block.Count());
  for (uint64_t block = 0; block < generated.grid.Count(); ++block) {
    uint32_t count = WordAt(counts.address, block);
    if (count == threads) continue;
    return fmt::format("kernel {}: block {} was started by {} of its {} threads", generated.name, block, count,
                       threads);
  }
  return std::nullopt;
}

}  // namespace tally::differential
