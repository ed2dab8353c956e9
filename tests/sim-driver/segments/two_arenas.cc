#include "tests/sim-driver/segments/two_arenas.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "tests/sim-driver/segments/random_index.h"

namespace tally::ptx_transforms {
namespace {

constexpr std::array<uint64_t, 2> kBases = {0x2000'0000'0000, 0x3000'0000'0000};

void MapOnce() {
  [[maybe_unused]] static const bool is_mapped = [] {
    for (const uint64_t base : kBases) {
      void* const wanted = reinterpret_cast<void*>(base);
      CHECK(mmap(wanted, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
                 0) == wanted);
    }
    return true;
  }();
}

}  // namespace

class TwoArenas::Memory final : public sim_driver::MemoryLookup {
 public:
  Memory() {
    MapOnce();
    for (const uint64_t base : kBases) ranges_.push_back({base, kArenaBytes, true});
  }
  sim_driver::MemoryRange Find(uint64_t address) const override {
    for (const sim_driver::MemoryRange& range : ranges_)
      if (address - range.base < range.size_bytes) return range;
    return {};
  }
  uint64_t Allocate(uint64_t bytes) {
    blocks_.push_back(std::make_unique<std::byte[]>(bytes));
    ranges_.push_back({reinterpret_cast<uint64_t>(blocks_.back().get()), bytes, true});
    return ranges_.back().base;
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::vector<sim_driver::MemoryRange> ranges_;
};

TwoArenas::TwoArenas(const std::string& text) : memory_(std::make_shared<Memory>()) {
  const std::string_view view = text;
  auto program = sim_driver::CompileProgram({&view, 1});
  EXPECT_TRUE(program) << (program ? "" : program.error().ToString()) << text;
  if (!program) return;
  program_ = *program;
  for (const auto& variable : program_->variables())
    variables_.push_back(memory_->Allocate(std::max<uint64_t>(variable.size_bytes, 16)));
}

uint64_t TwoArenas::base() const { return kBases[0]; }
uint64_t TwoArenas::other() const { return kBases[1]; }

void TwoArenas::Fill(differential::RandomSource& random) {
  for (const uint64_t base : kBases) {
    auto* words = reinterpret_cast<uint64_t*>(base);
    for (uint64_t k = 0; k < kArenaBytes / 8; k += 1 + random.Below(64)) words[k] = random.Next();
  }
  for (uint32_t k = 0; k < variables_.size(); ++k) {
    const auto bytes = program_->InitialBytes(k, variables_);
    std::memcpy(reinterpret_cast<void*>(variables_[k]), bytes.data(), bytes.size());
  }
}

sim_driver::LaunchRequest TwoArenas::Request(uint32_t kernel, differential::RandomSource& random) {
  sim_driver::LaunchRequest request;
  request.program = program_;
  request.kernel_index = kernel;
  request.grid = {random.Between(1, 5), random.Between(1, 2), 1};
  request.block = {random.Pick({1u, 7u, 32u, 33u}), random.Pick({1u, 1u, 2u}), 1};
  request.dynamic_shared_bytes = 4096;
  request.memory = memory_;
  request.variable_addresses = variables_;
  request.parameters.resize(program_->kernels()[kernel].parameter_bytes);
  return request;
}

}  // namespace tally::ptx_transforms
