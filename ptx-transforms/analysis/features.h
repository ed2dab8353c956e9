// What a kernel uses, its callees included, that decides whether a pass may touch it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ptx-transforms/analysis/call_graph.h"
#include "ptx-transforms/syntax/module.h"

namespace tally::ptx_transforms {

enum class Feature : uint8_t {
  kAlloca,             // alloca, stacksave, stackrestore
  kAsyncCopy,          // cp.async
  kBarrierArrive,      // bar.arrive
  kBlockIndexNarrow,   // %ctaid or %nctaid read as something else than 32 bits of one component
  kBulkCopy,           // cp.async.bulk, cp.reduce.async.bulk (TMA)
  kCluster,            // cluster registers, directives, barriers and addresses
  kConstantSpace,      // isspacep.const, kernel parameters that point to .const: .const addresses by another way
  kDependentLaunch,    // griddepcontrol
  kDeviceLaunch,       // launches grids from the device
  kDynamicSharedSize,  // %dynamic_smem_size
  kEnvironment,        // %envreg
  kExitInFunction,     // exit in a .func
  kFunctionAddress,    // names a function in something else than a call
  kGridId,             // %gridid
  kIndirectCall,
  kInternalInstruction,  // _mma.warpgroup and its kin: other spellings (of wgmma), taken from NVIDIA's compilers only
  kMbarrier,             // mbarrier objects
  kOpaque,               // a statement that the parser kept without understanding it
  kRecursion,
  kSetMaxRegisters,   // setmaxnreg
  kTensorCore5,       // tcgen05
  kTextureReference,  // module-scope .texref, .samplerref, .surfref
  kTotalSharedSize,   // %total_smem_size, %aggr_smem_size
  kUnknownBarrier,
  kUnknownCallee,  // calls a function that is defined neither here nor by the driver
  kUnknownInstruction,
  kUnresolvedName,  // a label or register that nothing declares
  kWarpSync,        // shfl.sync and its kin, bar.warp.sync
  kWgmma,
  kNumFeatures,
};

struct FeatureSite {
  SourcePosition position;
  std::string what;  // "mbarrier.init", "%cluster_ctaid": as an operator would search for it
};

class Features {
 public:
  Features(const Module& module, const Function& kernel, const Reach& reach);

  bool Has(Feature feature) const { return first_[static_cast<size_t>(feature)].has_value(); }
  // Where it was seen first; null if it was not.
  const FeatureSite* Find(Feature feature) const;

 private:
  void AddFunction(const Module& module, const Function& function);
  void AddDirectives(const Function& kernel);
  void AddInstruction(const Function& function, const Statement& statement, const Instruction& instruction);
  void AddOperands(const Statement& statement, const Instruction& instruction);
  void Add(Feature feature, SourcePosition position, std::string_view what);

  std::array<std::optional<FeatureSite>, static_cast<size_t>(Feature::kNumFeatures)> first_;
};

}  // namespace tally::ptx_transforms
