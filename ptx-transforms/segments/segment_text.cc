#include "ptx-transforms/segments/segment_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace tally::ptx_transforms {
namespace {

// A formula may name one node very often: what is longer is cut.
constexpr size_t kMaxText = 600;

class FormulaText {
 public:
  explicit FormulaText(const KernelSegments& segments) : segments_(segments), formula_(segments.formula) {}

  std::string Of(NodeId id) {
    text_.clear();
    Write(id);
    return text_.size() > kMaxText ? text_.substr(0, kMaxText) + "..." : text_;
  }

 private:
  void Parameter(const FormulaNode& node) {
    for (const KernelParameterSlot& slot : segments_.parameters) {
      if (node.value < slot.offset || node.value - slot.offset >= slot.bytes) continue;
      const size_t number = slot.name.rfind("_param_");  // nvcc's names repeat the kernel's
      text_ += number == std::string::npos ? slot.name : slot.name.substr(number + 1);
      if (node.value > slot.offset || slot.bytes > 8) text_ += fmt::format("[{}]", node.value - slot.offset);
      return;
    }
    text_ += fmt::format("parameters[{}]", node.value);
  }

  void Infix(NodeId id, std::string_view sign) {
    text_ += '(';
    Write(formula_.Operand(id, 0));
    text_ += fmt::format(" {} ", sign);
    Write(formula_.Operand(id, 1));
    text_ += ')';
  }

  void Call(NodeId id, std::string_view name, uint32_t first = 0) {
    text_ += name;
    text_ += '(';
    for (uint32_t k = first; k < formula_[id].num_operands; ++k) {
      if (k > first) text_ += ", ";
      Write(formula_.Operand(id, k));
    }
    text_ += ')';
  }

  void Sum(NodeId id) {
    const NodeId last = formula_.Operand(id, 1);
    const FormulaNode& node = formula_[last];
    const uint64_t sign = uint64_t{1} << (node.bits - 1);
    if (!formula_.IsConstant(last) || (node.value & sign) == 0) return Infix(id, "+");
    text_ += '(';
    Write(formula_.Operand(id, 0));
    text_ += fmt::format(" - {})", (0 - node.value) & MaskOf(node.bits));
  }

  void Write(NodeId id) {
    if (text_.size() > kMaxText) return;
    const FormulaNode& node = formula_[id];
    const char sign = node.is_signed ? 's' : 'u';
    switch (node.op) {
      case FormulaOp::kConstant:
        text_ += fmt::format("{}", node.value);
        return;
      case FormulaOp::kParameter:
        return Parameter(node);
      case FormulaOp::kParameterAddress:
        text_ += '&';
        return Parameter(node);
      case FormulaOp::kSpecial:
        text_ += SpecialValueName(static_cast<SpecialValue>(node.value));
        return;
      case FormulaOp::kSymbol:
        text_ += segments_.symbols[node.value].name;
        return;
      case FormulaOp::kLocalAddress:
        text_ += "local";
        return;
      case FormulaOp::kSharedAddress:
        text_ += "shared";
        return;
      case FormulaOp::kOpaque:
        text_ += node.value == MaskOf(node.bits) ? "?" : fmt::format("?(0..{})", node.value);
        return;
      case FormulaOp::kLoad:
        text_ += "loaded?";
        return;
      case FormulaOp::kInduction: {
        const InductionVariable& induction = segments_.inductions[node.value];
        text_ += '(';
        Write(formula_.Operand(id, 0));
        if (induction.step == kNoNode) {
          text_ += fmt::format(" changed? in loop{})", induction.loop);
          return;
        }
        text_ += " + ";
        Write(induction.step);
        text_ += fmt::format(" * loop{})", induction.loop);
        return;
      }
      case FormulaOp::kAdd:
        return Sum(id);
      case FormulaOp::kSubtract:
        return Infix(id, "-");
      case FormulaOp::kMultiply:
        return Infix(id, "*");
      case FormulaOp::kPack:
        return Call(id, "pack");
      case FormulaOp::kTruncate:
        return Call(id, fmt::format("low{}", node.bits));
      case FormulaOp::kExtend:
        return Call(id, fmt::format("{}{}", sign, node.bits));
      case FormulaOp::kMultiplyHigh:
        return Call(id, "high");
      case FormulaOp::kShiftLeft:
        return Infix(id, "<<");
      case FormulaOp::kShiftRight:
        return Infix(id, ">>");
      case FormulaOp::kAnd:
        return Infix(id, "&");
      case FormulaOp::kOr:
        return Infix(id, "|");
      case FormulaOp::kXor:
        return Infix(id, "^");
      case FormulaOp::kMinimum:
        return Call(id, "min");
      case FormulaOp::kMaximum:
        return Call(id, "max");
      case FormulaOp::kDivide:
        return Infix(id, "/");
      case FormulaOp::kRemainder:
        return Infix(id, "%");
      case FormulaOp::kChoice:
        return Call(id, "either");
      case FormulaOp::kSelect:
        return Call(id, "either", 1);
      case FormulaOp::kCompare:
        return Infix(id, ComparisonName(static_cast<Comparison>(node.value)));
      case FormulaOp::kPredicateAnd:
        return Infix(id, "and");
      case FormulaOp::kPredicateOr:
        return Infix(id, "or");
      case FormulaOp::kPredicateNot:
        return Call(id, "not");
    }
  }

  const KernelSegments& segments_;
  const Formula& formula_;
  std::string text_;
};

std::string RootsText(const KernelSegments& segments, const GlobalAccess& access) {
  std::string text;
  for (const PointerRoot& root : access.roots) {
    if (!text.empty()) text += ", ";
    switch (root.kind) {
      case PointerRoot::Kind::kParameter:
        text += fmt::format("parameters[{}]", root.value);
        break;
      case PointerRoot::Kind::kSearched:
        text += fmt::format("parameters[{}]?", root.value);
        break;
      case PointerRoot::Kind::kSymbol:
        text += segments.symbols[root.value].name;
        break;
      case PointerRoot::Kind::kMemory:
        text += "memory";
        break;
    }
  }
  return text.empty() ? "nothing known" : text;
}

// Whether a guard says something that can bound an address.
bool IsBound(const Formula& formula, const AccessCondition& condition) {
  const FormulaOp op = formula[condition.predicate].op;
  return op == FormulaOp::kCompare || op == FormulaOp::kPredicateAnd || op == FormulaOp::kPredicateOr ||
         op == FormulaOp::kPredicateNot;
}

}  // namespace

std::string ClassName(SegmentClass of_class) { return fmt::format("C{}", static_cast<int>(of_class)); }

std::string KindName(AccessKind kind) {
  return kind == AccessKind::kRead ? "read" : kind == AccessKind::kWrite ? "write" : "atomic";
}

std::string SegmentsAsText(const KernelSegments& segments) {
  FormulaText formula(segments);
  std::string text = segments.kernel + "\n";
  for (const SegmentBarrier& barrier : segments.barriers)
    text += fmt::format("  barrier [{}]: {}\n", barrier.code, barrier.sentence);
  for (uint32_t k = 0; k < segments.loops.size(); ++k) {
    const CountedLoop& loop = segments.loops[k];
    text += fmt::format("  loop{} (line {}):", k, loop.position.line);
    if (loop.tests.empty()) text += " not counted";
    for (const TripTest& test : loop.tests)
      text += fmt::format(" while {} + {} * loop{} {} {}", formula.Of(test.start), formula.Of(test.step), k,
                          ComparisonName(test.goes_on), formula.Of(test.bound));
    text += '\n';
  }
  for (const GlobalAccess& access : segments.accesses) {
    const std::string size = access.object == GlobalAccess::Object::kTexture     ? "texture or surface"
                             : access.object == GlobalAccess::Object::kTensorMap ? "tensor map"
                             : access.extent != kNoNode ? "up to " + formula.Of(access.extent) + " bytes at"
                                                        : fmt::format("{} bytes at", access.bytes);
    text += fmt::format("  {} {} {} {}", ClassName(access.at_best), KindName(access.kind), size,
                        formula.Of(access.address));
    for (const AccessCondition& condition : access.conditions)
      if (IsBound(segments.formula, condition))
        text += fmt::format(" if {}{}", condition.holds ? "" : "not ", formula.Of(condition.predicate));
    text += fmt::format("; from {} (line {}, {})\n", RootsText(segments, access), access.position.line, access.what);
  }
  return text;
}

}  // namespace tally::ptx_transforms
