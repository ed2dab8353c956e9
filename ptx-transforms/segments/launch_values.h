// LaunchValues: the formulas of a kernel for one launch, as numbers and variables.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx-transforms/segments/affine.h"
#include "ptx-transforms/segments/kernel_segments.h"

namespace tally::ptx_transforms {

struct SegmentLaunch {
  std::array<uint32_t, 3> grid = {1, 1, 1};   // blocks
  std::array<uint32_t, 3> block = {1, 1, 1};  // threads
  std::span<const std::byte> parameters;      // as the kernel gets them
  bool is_cooperative = false;
};

struct MemorySpan {
  uint64_t address = 0;
  uint64_t bytes = 0;  // 0: none
  bool operator==(const MemorySpan&) const = default;
};

// What the launch can touch. Implemented by whoever keeps the allocations.
class SegmentMemory {
 public:
  virtual ~SegmentMemory() = default;
  // The live allocation that holds that address.
  virtual MemorySpan AllocationOf(uint64_t address) const = 0;
  // A variable of the kernel's module.
  virtual MemorySpan SymbolOf(std::string_view name) const = 0;
};

// How sure one is that every value of a variable occurs.
enum class Exactness : uint8_t { kExact, kComputed, kUnknown };

struct LaunchVariable {
  WideInteger most = 0;
  bool is_bounded = true;
  Exactness exactness = Exactness::kExact;
};

class LaunchValues {
 public:
  // All must outlive this.
  LaunchValues(const KernelSegments& segments, const SegmentLaunch& launch, const SegmentMemory& memory);

  const Affine& Of(NodeId node);
  // The register as a number, signed or not; of the same variables whenever it is asked for.
  Affine Number(NodeId node, bool is_signed);
  const LaunchVariable& variable(VariableId id) const { return variables_[id]; }
  // Nothing if it is not bounded.
  std::optional<WideRange> RangeOf(const Affine& value) const;
  // The value of a register of `bits` bits as a number in its range, signed or not; nothing if it may leave that range.
  std::optional<Affine> Ranged(const Affine& value, uint32_t bits, bool is_signed) const;
  Exactness ExactnessOf(const Affine& value) const;

 private:
  Affine Compute(NodeId id);
  Affine Leaf(NodeId id, const FormulaNode& node);
  Affine Sum(NodeId id, const FormulaNode& node);
  Affine Product(NodeId id, const FormulaNode& node);
  Affine Extended(NodeId id, const FormulaNode& node);
  Affine Shifted(NodeId id, const FormulaNode& node);
  Affine Masked(NodeId id, const FormulaNode& node);
  Affine Joined(NodeId id, const FormulaNode& node);  // or, xor
  Affine Extreme(NodeId id, const FormulaNode& node);
  Affine Divided(NodeId id, const FormulaNode& node);
  Affine Chosen(NodeId id, const FormulaNode& node);
  VariableId RoundsOf(uint32_t loop);
  std::optional<WideInteger> RoundsBy(const TripTest& test);
  VariableId NewVariable(LaunchVariable variable);
  // low + stride * something, up to high.
  Affine Between(WideInteger low, WideInteger high, WideInteger stride, Exactness exactness);
  Affine Anything(uint32_t bits, bool is_signed);
  Affine Wrapped(const Affine& value, uint32_t bits, bool is_signed);
  Affine Reduced(Affine value, uint32_t bits) const;

  const KernelSegments& segments_;
  const SegmentLaunch& launch_;
  const SegmentMemory& memory_;
  std::vector<LaunchVariable> variables_;
  std::array<std::optional<VariableId>, 6> thread_variables_;  // tid, ctaid
  std::vector<std::optional<VariableId>> rounds_;              // by loop
  std::vector<uint32_t> places_;  // by node: in values_; 0: not computed, 1: being computed
  std::vector<std::unique_ptr<Affine>> values_;
  std::unordered_map<uint64_t, Affine> numbers_;  // by node and sign: those that are known by their multiples only
  uint32_t nesting_ = 0;
};

}  // namespace tally::ptx_transforms
