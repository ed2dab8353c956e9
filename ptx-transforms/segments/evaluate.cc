#include "ptx-transforms/segments/evaluate.h"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace tally::ptx_transforms {
namespace {

// No allocation lies below or above, so a parameter with such a value is a number.
constexpr uint64_t kLowestPointer = uint64_t{1} << 32;
constexpr uint64_t kHighestPointer = uint64_t{1} << 57;

// Predicates looked at for one access; those beyond are taken to say nothing.
constexpr uint32_t kMaxPredicates = 100;

class Evaluation {
 public:
  Evaluation(const KernelSegments& segments, const SegmentLaunch& launch, const SegmentMemory& memory)
      : segments_(segments), launch_(launch), memory_(memory), values_(segments, launch, memory) {}

  LaunchSegments Run() {
    if (launch_.is_cooperative) {
      result_.barrier = "cooperative";
    } else if (!segments_.barriers.empty()) {
      result_.barrier = segments_.barriers[0].code;
    }
    for (uint32_t k = 0; k < segments_.accesses.size() && result_.barrier.empty(); ++k) AddAccess(k);
    Merge();
    return std::move(result_);
  }

 private:
  // Equal rows that touch become one: unrolled loops have many. The same bytes as before, sorted.
  void Merge() {
    std::vector<Segment>& all = result_.segments;
    const auto shape = [](const Segment& segment) {
      const SegmentBox& box = segment.box;
      return std::tuple(segment.kind, box.rows, box.rows == 1 ? 0 : box.pitch, box.address, box.row_bytes);
    };
    std::sort(all.begin(), all.end(), [&](const Segment& a, const Segment& b) { return shape(a) < shape(b); });
    size_t kept = 0;
    for (const Segment& next : all) {
      SegmentBox* const last = kept == 0 ? nullptr : &all[kept - 1].box;
      const bool is_alike = last != nullptr && all[kept - 1].kind == next.kind && last->rows == next.box.rows &&
                            (last->rows == 1 || last->pitch == next.box.pitch);
      const uint64_t apart = is_alike ? next.box.address - last->address : 0;
      const uint64_t row = is_alike ? std::max(last->row_bytes, apart + next.box.row_bytes) : 0;
      if (!is_alike || apart > last->row_bytes || (last->rows > 1 && row > last->pitch)) {
        all[kept++] = next;
        continue;
      }
      last->row_bytes = row;
      if (last->rows > 1 && row == last->pitch) *last = {last->address, row * last->rows, 1, 0};
      if (last->rows == 1) last->pitch = last->row_bytes;
      all[kept - 1].of_class = std::max(all[kept - 1].of_class, next.of_class);
    }
    all.resize(kept);
    std::sort(all.begin(), all.end(),
              [](const Segment& a, const Segment& b) { return std::tuple(a.box, a.kind) < std::tuple(b.box, b.kind); });
  }

  void Count(SegmentClass of_class) { ++result_.num_accesses[static_cast<size_t>(of_class)]; }

  void Anywhere(const GlobalAccess& access) {
    Count(SegmentClass::kAnywhere);
    if (access.kind == AccessKind::kRead) {
      result_.reads_anything = true;
    } else {
      result_.barrier = "pointer-from-memory";
    }
  }

  // Adds a sum that is at most zero where the condition holds, if it says such a thing.
  void AddConstraints(NodeId predicate, bool holds, std::vector<Affine>& constraints) {
    const Formula& formula = segments_.formula;
    const FormulaNode& node = formula[predicate];
    if (num_conditions_++ > kMaxPredicates) return;
    if (node.op == FormulaOp::kPredicateNot) return AddConstraints(formula.Operand(predicate, 0), !holds, constraints);
    if (node.op == (holds ? FormulaOp::kPredicateAnd : FormulaOp::kPredicateOr)) {
      AddConstraints(formula.Operand(predicate, 0), holds, constraints);
      return AddConstraints(formula.Operand(predicate, 1), holds, constraints);
    }
    if (node.op != FormulaOp::kCompare) return;
    const NodeId a_node = formula.Operand(predicate, 0), b_node = formula.Operand(predicate, 1);
    const Affine a = values_.Number(a_node, node.is_signed), b = values_.Number(b_node, node.is_signed);
    const auto add = [&](const Affine& least, const Affine& most, WideInteger apart) {
      Affine constraint = least;
      constraint.constant += apart;
      if (constraint.AddScaled(most, -1)) constraints.push_back(constraint);
    };
    const auto comparison = static_cast<Comparison>(node.value);
    switch (holds ? comparison : Negated(comparison)) {
      case Comparison::kLess:
        return add(a, b, 1);
      case Comparison::kLessOrEqual:
        return add(a, b, 0);
      case Comparison::kGreater:
        return add(b, a, 1);
      case Comparison::kGreaterOrEqual:
        return add(b, a, 0);
      case Comparison::kEqual:
        add(a, b, 0);
        return add(b, a, 0);
      case Comparison::kNotEqual: {  // says something at the end of a range only
        Affine difference = a;
        const auto range = difference.AddScaled(b, -1) ? values_.RangeOf(difference) : std::nullopt;
        if (range && range->low == 0) add(b, a, 1);
        if (range && range->high == 0) add(a, b, 1);
        return;
      }
    }
  }

  void AddAccess(uint32_t index) {
    const GlobalAccess& access = segments_.accesses[index];
    if (access.object != GlobalAccess::Object::kMemory) return AddObject(access);
    std::vector<Affine> constraints;
    num_conditions_ = 0;
    for (const AccessCondition& condition : access.conditions)
      AddConstraints(condition.predicate, condition.holds, constraints);
    const Affine address = values_.Of(access.address);
    Exactness exactness = values_.ExactnessOf(address);
    WideInteger bytes = access.bytes;
    if (access.extent != kNoNode) {
      const Affine& extent = values_.Of(access.extent);
      const auto ranged = values_.Ranged(extent, segments_.formula[access.extent].bits, false);
      const auto range = ranged ? values_.RangeOf(*ranged) : std::nullopt;
      bytes = range ? range->high : WideInteger{1} << 63;
      exactness = std::max(exactness, values_.ExactnessOf(extent));
    }
    const auto boxes = BoxesOf(values_, address, bytes, constraints);
    if (boxes && boxes->empty()) return Count(SegmentClass::kBox);
    if (boxes && (exactness == Exactness::kExact || AreInOneAllocation(access, *boxes))) {
      const SegmentClass of_class = exactness == Exactness::kExact ? SegmentClass::kBox : SegmentClass::kInterval;
      Count(of_class);
      for (const SegmentBox& box : *boxes) result_.segments.push_back({box, access.kind, of_class, index});
      return;
    }
    AddRoots(access, index);
  }

  // Bounds that are no more than bounds count if they stay where a pointer of that root may point to.
  bool AreInOneAllocation(const GlobalAccess& access, const std::vector<SegmentBox>& boxes) {
    const auto allocations = AllocationsOf(access);
    if (!allocations) return false;
    return std::all_of(boxes.begin(), boxes.end(), [&](const SegmentBox& box) {
      return std::any_of(allocations->begin(), allocations->end(), [&](const MemorySpan& span) {
        return box.address >= span.address && box.end() - span.address <= span.bytes;
      });
    });
  }

  // Where the pointer may have come from; nothing if that may be anywhere.
  std::optional<std::vector<MemorySpan>> AllocationsOf(const GlobalAccess& access) {
    std::vector<MemorySpan> found;
    const auto add = [&](MemorySpan span) {
      if (span.bytes == 0) return false;
      if (std::find(found.begin(), found.end(), span) == found.end()) found.push_back(span);
      return true;
    };
    for (const PointerRoot& root : access.roots) {
      if (root.kind == PointerRoot::Kind::kMemory) return std::nullopt;
      if (root.kind == PointerRoot::Kind::kSymbol) {
        if (!add(memory_.SymbolOf(segments_.symbols[root.value].name))) return std::nullopt;
        continue;
      }
      uint64_t value = 0;
      if (launch_.parameters.size() < 8 || root.value > launch_.parameters.size() - 8) return std::nullopt;
      std::memcpy(&value, launch_.parameters.data() + root.value, 8);
      // One past the end of one allocation may be the start of another.
      const bool is_inside = add(memory_.AllocationOf(value));
      const bool is_behind = value > 0 && add(memory_.AllocationOf(value - 1));
      const bool may_point =
          root.kind == PointerRoot::Kind::kParameter && value >= kLowestPointer && value < kHighestPointer;
      if (!is_inside && !is_behind && may_point) return std::nullopt;
    }
    return found.empty() ? std::nullopt : std::optional(found);
  }

  void AddRoots(const GlobalAccess& access, uint32_t index) {
    const auto allocations = AllocationsOf(access);
    if (!allocations) return Anywhere(access);
    const SegmentClass of_class = allocations->size() > 1 ? SegmentClass::kAllocations : SegmentClass::kAllocation;
    Count(of_class);
    for (const MemorySpan& span : *allocations)
      result_.segments.push_back({{span.address, span.bytes, 1, span.bytes}, access.kind, of_class, index});
  }

  void AddObject(const GlobalAccess& access) {
    ObjectUse use = {.object = access.object, .kind = access.kind};
    const FormulaNode& node = segments_.formula[access.address];
    if (access.object == GlobalAccess::Object::kTensorMap) {
      if (node.op != FormulaOp::kParameterAddress) return Anywhere(access);
      use.value = node.value;
    } else {
      const bool is_of_parameters = std::all_of(access.roots.begin(), access.roots.end(), [](const PointerRoot& root) {
        return root.kind == PointerRoot::Kind::kParameter;
      });
      Affine handle = values_.Of(access.address);
      if (!is_of_parameters || !handle.is_constant()) return Anywhere(access);
      use.value = static_cast<uint64_t>(handle.constant);
    }
    Count(SegmentClass::kBox);
    if (std::find(result_.objects.begin(), result_.objects.end(), use) == result_.objects.end())
      result_.objects.push_back(use);
  }

  const KernelSegments& segments_;
  const SegmentLaunch& launch_;
  const SegmentMemory& memory_;
  LaunchValues values_;
  LaunchSegments result_;
  uint32_t num_conditions_ = 0;  // of the access, looked at
};

}  // namespace

LaunchSegments EvaluateSegments(const KernelSegments& segments, const SegmentLaunch& launch,
                                const SegmentMemory& memory) {
  return Evaluation(segments, launch, memory).Run();
}

}  // namespace tally::ptx_transforms
