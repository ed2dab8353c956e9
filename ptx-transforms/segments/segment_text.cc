#include "ptx-transforms/segments/segment_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tally::ptx_transforms {
namespace {

// A formula may name one node very often: what is longer is cut.
constexpr size_t kMaxText = 600;

// "<", or "<u" of numbers without a sign.
std::string SignedComparison(Comparison comparison, bool is_signed) {
  const bool minds_signs = comparison != Comparison::kEqual && comparison != Comparison::kNotEqual;
  return fmt::format("{}{}", ComparisonName(comparison), minds_signs && !is_signed ? "u" : "");
}

class FormulaText {
 public:
  // What binds weaker than what stands around it gets parentheses.
  enum Level : uint8_t { kConnective, kComparison, kBits, kSum, kProduct, kOperand };

  explicit FormulaText(const KernelSegments& segments) : segments_(segments), formula_(segments.formula) {}

  std::string Of(NodeId id, Level level = kConnective) {
    text_.clear();
    Write(id, level);
    return text_.size() > kMaxText ? fmt::format("{}...", std::string_view(text_).substr(0, kMaxText)) : text_;
  }

  // start + step * loop0
  std::string OfRounds(NodeId start, NodeId step, uint32_t loop) {
    text_.clear();
    Rounds(start, step, loop, kSum);
    return text_;
  }

 private:
  void Rounds(NodeId start, NodeId step, uint32_t loop, Level around) {
    const FormulaNode& by = formula_[step];
    const bool is_number = by.op == FormulaOp::kConstant;
    const uint64_t below = is_number ? Below(by) : 0;
    const bool is_from_zero = formula_.IsConstant(start) && formula_[start].value == 0 && below == 0;
    const Level own = !is_from_zero ? kSum : is_number && by.value == 1 ? kOperand : kProduct;
    if (own < around) text_ += '(';
    if (!is_from_zero) Write(start, kSum);
    if (!is_from_zero) text_ += below != 0 ? " - " : " + ";
    if (is_number) {
      const uint64_t size = below != 0 ? below : by.value;
      if (size != 1) text_ += fmt::format("{} * ", size);
    } else {
      Write(step, kProduct);
      text_ += " * ";
    }
    text_ += fmt::format("loop{}{}", loop, own < around ? ")" : "");
  }

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

  void Infix(NodeId id, std::string_view sign, Level own, Level around) {
    const auto next = static_cast<Level>(own + 1);
    const bool is_chain = own == kSum || own == kProduct;  // a + b + c
    if (own < around) text_ += '(';
    Write(formula_.Operand(id, 0), is_chain ? own : own == kBits ? kOperand : next);
    text_ += fmt::format(" {} ", sign);
    Write(formula_.Operand(id, 1), own == kBits ? kOperand : sign == "+" ? kSum : next);
    if (own < around) text_ += ')';
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

  // How far below zero the constant is, if it is that rather than a large one.
  static uint64_t Below(const FormulaNode& node) {
    const uint64_t below = (0 - node.value) & MaskOf(node.bits);
    return node.bits >= 16 && below <= MaskOf(node.bits / 2) ? below : 0;
  }

  void Number(const FormulaNode& node) {
    const uint64_t below = Below(node);
    text_ += below == 0 ? fmt::format("{}", node.value) : fmt::format("-{}", below);
  }

  void Sum(NodeId id, Level around) {
    const NodeId last = formula_.Operand(id, 1);
    const uint64_t below = formula_.IsConstant(last) ? Below(formula_[last]) : 0;
    if (below == 0) return Infix(id, "+", kSum, around);
    if (around > kSum) text_ += '(';
    Write(formula_.Operand(id, 0), kSum);
    text_ += fmt::format(" - {}{}", below, around > kSum ? ")" : "");
  }

  void Write(NodeId id, Level around = kConnective) {
    if (text_.size() > kMaxText) return;
    const FormulaNode& node = formula_[id];
    const char sign = node.is_signed ? 's' : 'u';
    switch (node.op) {
      case FormulaOp::kConstant:
        return Number(node);
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
        if (induction.step == kNoNode) {
          text_ += "changed(";
          Write(formula_.Operand(id, 0));
          text_ += fmt::format(", loop{})", induction.loop);
          return;
        }
        Rounds(formula_.Operand(id, 0), induction.step, induction.loop, around);
        return;
      }
      case FormulaOp::kAdd:
        return Sum(id, around);
      case FormulaOp::kSubtract:
        return Infix(id, "-", kSum, around);
      case FormulaOp::kMultiply:
        return Infix(id, "*", kProduct, around);
      case FormulaOp::kPack:
        return Call(id, "pack");
      case FormulaOp::kTruncate:
        return Call(id, fmt::format("low{}", node.bits));
      case FormulaOp::kExtend:
        return Call(id, fmt::format("{}{}", sign, node.bits));
      case FormulaOp::kMultiplyHigh:
        return Call(id, "high");
      case FormulaOp::kShiftLeft:
        return Infix(id, "<<", kBits, around);
      case FormulaOp::kShiftRight:
        return Infix(id, ">>", kBits, around);
      case FormulaOp::kAnd:
        return Infix(id, "&", kBits, around);
      case FormulaOp::kOr:
        return Infix(id, "|", kBits, around);
      case FormulaOp::kXor:
        return Infix(id, "^", kBits, around);
      case FormulaOp::kMinimum:
        return Call(id, "min");
      case FormulaOp::kMaximum:
        return Call(id, "max");
      case FormulaOp::kDivide:
        return Infix(id, "/", kProduct, around);
      case FormulaOp::kRemainder:
        return Infix(id, "%", kProduct, around);
      case FormulaOp::kChoice:
        return Call(id, "either");
      case FormulaOp::kSelect:
        return Call(id, "either", 1);
      case FormulaOp::kCompare:
        return Infix(id, SignedComparison(static_cast<Comparison>(node.value), node.is_signed), kComparison, around);
      case FormulaOp::kPredicateAnd:
        return Infix(id, "and", kConnective, around);
      case FormulaOp::kPredicateOr:
        return Infix(id, "or", kConnective, around);
      case FormulaOp::kPredicateNot:
        text_ += "not ";
        return Write(formula_.Operand(id, 0), kOperand);
    }
  }

  const KernelSegments& segments_;
  const Formula& formula_;
  std::string text_;
};

// Whether a guard says something that can bound an address.
bool IsBound(const Formula& formula, const AccessCondition& condition) {
  const FormulaOp op = formula[condition.predicate].op;
  return op == FormulaOp::kCompare || op == FormulaOp::kPredicateAnd || op == FormulaOp::kPredicateOr ||
         op == FormulaOp::kPredicateNot;
}

std::string OperandText(const KernelSegments& segments, NodeId node) {
  return FormulaText(segments).Of(node, FormulaText::kBits);
}

struct Meaning {
  std::string_view code;
  std::string_view text;  // it ...
};
constexpr Meaning kMeanings[] = {
    {"call", "calls what its module does not define"},
    {"cooperative", "is launched so that all its blocks run at the same time"},
    {"device-heap", "takes memory from the device's heap"},
    {"device-launch", "launches grids itself"},
    {"flow", "has a loop that can be entered at two places"},
    {"grid-id", "reads the number of its launch"},
    {"grid-sync", "waits for all blocks of its grid"},
    {"indirect-call", "calls a function whose name is not known"},
    {"names", "has a name that may mean two things"},
    {"not-understood", "holds something that is not understood"},
    {"parameters", "has more parameters than a kernel can have"},
    {"pointer-from-memory", "writes through a pointer that was loaded from memory"},
    {"printf", "prints, and prints stay in the order of launches"},
    {"recursion", "calls itself, or nests calls very deep"},
    {"spin-loop", "waits for what other blocks write"},
    {"system-scope", "touches what the host or another device may watch meanwhile"},
    {"texture-reference", "reads a texture or surface that is bound by name"},
    {"too-large", "is larger than what is looked at"},
    {"trap", "may end with an error that belongs to its place in the stream"},
    {"unknown-access", "touches memory in a way that is not understood"},
    {"volatile", "touches what others may watch meanwhile"},
};

}  // namespace

std::string ClassName(SegmentClass of_class) { return fmt::format("C{}", static_cast<int>(of_class)); }

std::string KindName(AccessKind kind) {
  return kind == AccessKind::kRead ? "read" : kind == AccessKind::kWrite ? "write" : "atomic";
}

std::string_view BarrierMeaning(std::string_view code) {
  for (const Meaning& meaning : kMeanings)
    if (meaning.code == code) return meaning.text;
  return {};
}

std::vector<std::string_view> BarrierCodes() {
  std::vector<std::string_view> codes;
  for (const Meaning& meaning : kMeanings) codes.push_back(meaning.code);
  return codes;
}

std::vector<SegmentBarrier> BarriersOf(const KernelSegments& segments) {
  std::vector<SegmentBarrier> barriers = segments.barriers;
  for (const GlobalAccess& access : segments.accesses) {
    if (access.at_best != SegmentClass::kAnywhere || access.kind == AccessKind::kRead) continue;
    barriers.push_back({"pointer-from-memory", fmt::format("{} (line {})", access.what, access.position.line)});
    break;
  }
  return barriers;
}

SegmentClass WidestClass(const KernelSegments& segments) {
  SegmentClass widest = SegmentClass::kBox;
  for (const GlobalAccess& access : segments.accesses) widest = std::max(widest, access.at_best);
  return widest;
}

std::string VerdictOf(const KernelSegments& segments) {
  if (!BarriersOf(segments).empty()) return "barrier";
  return segments.accesses.empty() ? "none" : ClassName(WidestClass(segments));
}

std::string FormulaAsText(const KernelSegments& segments, NodeId node) { return FormulaText(segments).Of(node); }

std::vector<std::string> GuardsAsText(const KernelSegments& segments, const GlobalAccess& access) {
  std::vector<std::string> guards;
  const Formula& formula = segments.formula;
  for (const AccessCondition& condition : access.conditions) {
    if (!IsBound(formula, condition)) continue;
    const FormulaNode& node = formula[condition.predicate];
    if (node.op == FormulaOp::kCompare && !condition.holds) {
      guards.push_back(fmt::format("{} {} {}", OperandText(segments, formula.Operand(condition.predicate, 0)),
                                   SignedComparison(Negated(static_cast<Comparison>(node.value)), node.is_signed),
                                   OperandText(segments, formula.Operand(condition.predicate, 1))));
    } else if (condition.holds) {
      guards.push_back(FormulaText(segments).Of(condition.predicate, FormulaText::kComparison));
    } else {
      guards.push_back(fmt::format("not {}", FormulaText(segments).Of(condition.predicate, FormulaText::kOperand)));
    }
  }
  return guards;
}

std::vector<std::string> RootsAsText(const KernelSegments& segments, const GlobalAccess& access) {
  std::vector<std::string> roots;
  for (const PointerRoot& root : access.roots) {
    switch (root.kind) {
      case PointerRoot::Kind::kParameter:
        roots.push_back(fmt::format("parameters[{}]", root.value));
        break;
      case PointerRoot::Kind::kSearched:
        roots.push_back(fmt::format("parameters[{}]?", root.value));
        break;
      case PointerRoot::Kind::kSymbol:
        roots.push_back(segments.symbols[root.value].name);
        break;
      case PointerRoot::Kind::kMemory:
        roots.push_back("memory");
        break;
    }
  }
  return roots;
}

std::vector<std::string> TripsAsText(const KernelSegments& segments, uint32_t loop) {
  std::vector<std::string> trips;
  for (const TripTest& test : segments.loops[loop].tests)
    trips.push_back(fmt::format("{} {} {}", FormulaText(segments).OfRounds(test.start, test.step, loop),
                                SignedComparison(test.goes_on, test.is_signed), OperandText(segments, test.bound)));
  return trips;
}

std::string SegmentsAsText(const KernelSegments& segments) {
  std::string text = fmt::format("{}: {}\n", segments.kernel, VerdictOf(segments));
  for (const SegmentBarrier& barrier : BarriersOf(segments))
    text += fmt::format("  barrier [{}]: {}: {}\n", barrier.code, BarrierMeaning(barrier.code), barrier.seen);
  for (uint32_t k = 0; k < segments.loops.size(); ++k) {
    const std::vector<std::string> trips = TripsAsText(segments, k);
    text += fmt::format("  loop{} (line {}): {}{}\n", k, segments.loops[k].position.line,
                        trips.empty() ? "not counted" : "while ", fmt::join(trips, " and "));
  }
  for (const GlobalAccess& access : segments.accesses) {
    const std::string size = access.object == GlobalAccess::Object::kTexture     ? "texture or surface"
                             : access.object == GlobalAccess::Object::kTensorMap ? "tensor map"
                             : access.extent != kNoNode
                                 ? fmt::format("up to {} bytes at", FormulaAsText(segments, access.extent))
                                 : fmt::format("{} bytes at", access.bytes);
    const std::vector<std::string> guards = GuardsAsText(segments, access), roots = RootsAsText(segments, access);
    const std::string from = roots.empty() ? "" : fmt::format("; from {}", fmt::join(roots, ", "));
    text += fmt::format("  {} {} {} {}{}{}{} (line {}, {})\n", ClassName(access.at_best), KindName(access.kind), size,
                        FormulaAsText(segments, access.address), guards.empty() ? "" : " if ",
                        fmt::join(guards, " and "), from, access.position.line, access.what);
  }
  return text;
}

}  // namespace tally::ptx_transforms
