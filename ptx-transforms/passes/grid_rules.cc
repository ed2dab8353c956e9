#include "ptx-transforms/passes/grid_rules.h"

#include <fmt/format.h>

#include "ptx-transforms/analysis/spin_loops.h"
#include "ptx-transforms/passes/edit.h"

namespace tally::ptx_transforms {
namespace {

constexpr FeatureRule kRules[] = {
    {Feature::kCluster, "cluster", "its blocks work together in clusters"},
    {Feature::kDependentLaunch, "dependent-launch", "takes part in a programmatic dependent launch"},
    {Feature::kDeviceLaunch, "device-launch", "launches kernels from the device"},
    {Feature::kGridId, "grid-id", "reads the identity of its launch"},
    {Feature::kEnvironment, "environment-register", "reads a driver-defined register"},
    {Feature::kIndirectCall, "indirect-call", "calls a function through a pointer, which may read the block index"},
    {Feature::kUnknownCallee, "unknown-callee",
     "calls a function that is defined elsewhere and may read the block index"},
    {Feature::kBlockIndexNarrow, "narrow-block-index", "reads the block index as a vector or as 16 bits"},
};

// The largest number of bytes of kernel parameters.
constexpr uint64_t kMaxParameterBytes = 4096;
constexpr uint64_t kMaxParameterBytesNew = 32764;  // PTX ISA 8.1, sm_70

std::optional<Refusal> CheckSpinning(const Function& function) {
  const LinearBody body(function);
  const ControlFlow flow(body);
  const std::optional<SpinLoop> loop = FindSpinLoop(flow);
  if (!loop) return std::nullopt;
  return Refusal{"inter-block-wait", fmt::format("the loop around {} in {} waits for what other blocks write ({})",
                                                 loop->position.ToString(), function.name, loop->what)};
}

}  // namespace

std::optional<Refusal> CheckGridRules(const Variant& variant, const Features& features) {
  if (variant.has_slice_parameters || variant.has_persistent_parameters || variant.has_gate)
    return Refusal{"already-transformed", "slice_grid, persistent_blocks and gate_entry exclude one another"};
  if (auto refusal = CheckUnderstood(variant, features)) return refusal;
  if (auto refusal = CheckFeatures(features, kRules)) return refusal;
  if (auto refusal = CheckSpinning(variant.original)) return refusal;
  for (const Function* function : variant.reach.functions)
    if (auto refusal = CheckSpinning(*function)) return refusal;
  return std::nullopt;
}

std::optional<Refusal> AddHiddenParameter(Variant& variant, std::string_view name, uint32_t size, uint32_t align) {
  const uint64_t offset = NextParameterOffset(variant.kernel, align);
  const bool is_new = IsInVersion(variant.module, 8, 1) && IsForTarget(variant.module, 70);
  const uint64_t limit = is_new ? kMaxParameterBytesNew : kMaxParameterBytes;
  if (offset + size > limit)
    return Refusal{"parameter-space",
                   fmt::format("its parameters and ours are {} bytes, more than {}", offset + size, limit)};
  variant.hidden_parameter_offset = static_cast<uint32_t>(offset);
  AppendParameters(variant.module, variant.kernel,
                   fmt::format(".param .align {} .b8 {}[{}]", align, variant.Symbol(name), size));
  return std::nullopt;
}

}  // namespace tally::ptx_transforms
