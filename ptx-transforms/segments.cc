#include "ptx-transforms/segments.h"

#include <algorithm>

#include "ptx-transforms/analysis/call_graph.h"
#include "ptx-transforms/analysis/features.h"
#include "ptx-transforms/analysis/spin_loops.h"
#include "ptx-transforms/segments/roots.h"
#include "ptx-transforms/segments/walk.h"

namespace tally::ptx_transforms {
namespace {

struct FeatureRule {
  Feature feature;
  std::string_view code;
};
// What a kernel may not have if others run beside it, or if its accesses are to be known.
constexpr FeatureRule kFeatureRules[] = {
    {Feature::kDeviceLaunch, "device-launch"},
    {Feature::kEnvironment, "grid-sync"},
    {Feature::kIndirectCall, "indirect-call"},
    {Feature::kRecursion, "recursion"},
    {Feature::kUnknownCallee, "call"},
    {Feature::kUnknownInstruction, "not-understood"},
    {Feature::kOpaque, "not-understood"},
    {Feature::kUnresolvedName, "not-understood"},
    {Feature::kGridId, "grid-id"},
    {Feature::kTextureReference, "texture-reference"},
};

void AddBarrier(KernelSegments& segments, std::string_view code, std::string seen) {
  for (const SegmentBarrier& barrier : segments.barriers)
    if (barrier.code == code) return;
  segments.barriers.push_back({std::string(code), std::move(seen)});
}

std::string At(std::string_view what, SourcePosition position) {
  std::string text(what);
  return position.line == 0 ? text : text + " (line " + std::to_string(position.line) + ")";
}

void AddBarriers(const Module& module, const Function& kernel, KernelSegments& segments) {
  const Reach reach = FindReach(module, kernel);
  const Features features(module, kernel, reach);
  for (const FeatureRule& rule : kFeatureRules)
    if (const FeatureSite* site = features.Find(rule.feature))
      AddBarrier(segments, rule.code, At(site->what, site->position));
  for (const std::string_view name : reach.system) {
    const std::string_view code = name == "vprintf"                    ? "printf"
                                  : name == "malloc" || name == "free" ? "device-heap"
                                                                       : "trap";
    AddBarrier(segments, code, std::string(name));
  }
  std::vector<const Function*> functions = reach.functions;
  functions.push_back(&kernel);
  for (const Function* function : functions) {
    const LinearBody body(*function);
    for (const LinearBody::Entry& entry : body.entries())
      if (entry.instruction->opcode == "trap") AddBarrier(segments, "trap", At("trap", entry.statement->span.position));
    if (const auto spin = FindSpinLoop(ControlFlow(body)))
      AddBarrier(segments, "spin-loop", At(spin->what, spin->position));
  }
}

// How often the predicate compares the value, or a sum with it; unsigned comparisons bound it twice.
uint32_t BoundsIn(const Formula& formula, NodeId predicate, NodeId value, uint32_t depth = 0) {
  constexpr uint32_t kDeepest = 12;  // further in, nobody looks
  const FormulaNode& node = formula[predicate];
  if (predicate == value) return 1;
  if (depth > kDeepest || node.op == FormulaOp::kInduction) return 0;
  uint32_t bounds = 0;
  for (uint32_t k = 0; k < node.num_operands; ++k)
    bounds += BoundsIn(formula, formula.Operand(predicate, k), value, depth + 1);
  return node.op == FormulaOp::kCompare && !node.is_signed ? 2 * bounds : bounds;
}

// Whether guards bound each of these values. A hope: what they are worth, only a launch shows.
bool AreGuarded(const Formula& formula, const GlobalAccess& access, const std::vector<NodeId>& values) {
  return std::all_of(values.begin(), values.end(), [&](NodeId value) {
    uint32_t bounds = 0;
    for (const AccessCondition& condition : access.conditions) bounds += BoundsIn(formula, condition.predicate, value);
    return bounds >= 2;
  });
}

// Roots and the class, of accesses that are global.
void Classify(KernelSegments& segments, const std::vector<LocalStore>& stores) {
  PointerOrigins origins(segments, stores);
  std::vector<GlobalAccess> kept;
  for (GlobalAccess& access : segments.accesses) {
    PointerOrigins::Found found = origins.Of(access.address);
    const bool is_map = access.object == GlobalAccess::Object::kTensorMap;
    if (found.roots.empty() && found.is_own && !is_map) continue;  // of the thread or the block
    const bool from_memory = found.has_memory();
    access.roots = std::move(found.roots);
    if (from_memory) {
      access.at_best = SegmentClass::kAnywhere;
    } else if (!AreGuarded(segments.formula, access, found.unknown) || access.extent != kNoNode) {
      access.at_best = access.roots.size() > 1 ? SegmentClass::kAllocations : SegmentClass::kAllocation;
    } else {
      access.at_best = found.is_computed ? SegmentClass::kInterval : SegmentClass::kBox;
    }
    kept.push_back(std::move(access));
  }
  segments.accesses = std::move(kept);
}

bool IsKernel(const Function& function) { return function.is_entry && function.has_body; }

KernelSegments SegmentsOf(const Module& module, const Function& kernel) {
  KernelSegments segments;
  segments.kernel = kernel.name;
  if (module.address_size != 64) {
    AddBarrier(segments, "not-understood", "addresses of 32 bits");
    return segments;
  }
  AddBarriers(module, kernel, segments);
  // Recursion would be walked without end.
  const bool is_hopeless = std::any_of(segments.barriers.begin(), segments.barriers.end(), [](const auto& barrier) {
    return barrier.code == "recursion" || barrier.code == "not-understood";
  });
  if (is_hopeless) return segments;
  KernelWalk walk(module, segments);
  walk.Run(kernel);
  Classify(segments, walk.local_stores());
  return segments;
}

}  // namespace

std::vector<KernelSegments> FindSegments(const Module& module) {
  std::vector<KernelSegments> all;
  for (const Item& item : module.items()) {
    const auto* kernel = std::get_if<Function>(&item.node);
    if (kernel != nullptr && IsKernel(*kernel)) all.push_back(SegmentsOf(module, *kernel));
  }
  return all;
}

std::optional<KernelSegments> FindSegments(const Module& module, std::string_view kernel) {
  for (const Item& item : module.items()) {
    const auto* function = std::get_if<Function>(&item.node);
    if (function != nullptr && IsKernel(*function) && function->name == kernel) return SegmentsOf(module, *function);
  }
  return std::nullopt;
}

}  // namespace tally::ptx_transforms
