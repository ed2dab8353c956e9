// Formulas: what a PTX register holds, as an expression over what a launch fixes (parameters, sizes) and over what
// differs between threads (tid, ctaid, how often loops went round, what was loaded).
//
// An expression is a node of a graph without cycles, but for inductions, whose steps are named beside them. Pure nodes
// are made once; those that stand for something unknown are each their own. All that is known of a node's value is
// known modulo 2^bits, as for the register itself: whoever widens, compares or shifts right must ask for its range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tally::ptx_transforms {

using NodeId = uint32_t;
inline constexpr NodeId kNoNode = ~NodeId{0};

enum class FormulaOp : uint8_t {
  // Leaves.
  kConstant,          // value
  kParameter,         // `value` = offset of bits / 8 bytes in the kernel's parameters
  kParameterAddress,  // generic or param address of offset `value`
  kSpecial,           // `value` = SpecialValue
  kSymbol,            // address of symbol `value` of the kernel
  kLocalAddress,      // into the thread's local memory, nobody asks where
  kSharedAddress,     // into the block's shared memory
  kOpaque,            // anything from 0 to `value`; operands say only where a pointer may come from
  kLoad,              // what memory holds: operand 0 is the address, `value` the LoadSpace
  kInduction,         // `value` = index among the inductions of the kernel; operand 0 = value at first
  // Modulo 2^bits, whatever the signs.
  kAdd,
  kSubtract,
  kMultiply,
  kPack,      // operand 0 | operand 1 << 32
  kTruncate,  // to fewer bits
  // These read their operands as signed or not (is_signed), at the operand's width.
  kExtend,
  kMultiplyHigh,
  kShiftLeft,  // the amount is unsigned
  kShiftRight,
  kAnd,
  kOr,
  kXor,
  kMinimum,
  kMaximum,
  kDivide,
  kRemainder,
  // One of the operands, for reasons that are not followed. With a predicate in front: kSelect.
  kChoice,
  kSelect,
  // Predicates.
  kCompare,  // `value` = Comparison
  kPredicateAnd,
  kPredicateOr,
  kPredicateNot,
};

enum class SpecialValue : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
};
inline constexpr uint32_t kNumSpecialValues = 12;

enum class LoadSpace : uint8_t { kGlobal, kConstant, kShared, kLocal, kGeneric };
enum class Comparison : uint8_t { kEqual, kNotEqual, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

struct FormulaNode {
  FormulaOp op = FormulaOp::kConstant;
  uint8_t bits = 32;  // 1 (a predicate), 8, 16, 32, 64 or 128
  bool is_signed = false;
  uint16_t depth = 0;
  uint32_t first_operand = 0;  // in Formula's list
  uint32_t num_operands = 0;
  uint64_t value = 0;
  // Loops of the kernel in which the value may change from one round to the next, one bit each; the last bit stands for
  // all beyond (see kManyLoops).
  uint64_t variance = 0;
};

// The bit of loops that have none of their own. Nothing is known of values that change in them.
inline constexpr uint32_t kManyLoops = 63;

class Formula {
 public:
  // The node with these operands, simplified. Too deep a one becomes opaque, so whoever follows operands may recurse.
  NodeId Make(FormulaOp op, uint8_t bits, bool is_signed, const std::vector<NodeId>& operands, uint64_t value = 0);
  NodeId Constant(uint64_t value, uint8_t bits);
  // A value of its own that may be anything up to `most` in each round of the loops in `variance`.
  NodeId Opaque(uint8_t bits, uint64_t most, const std::vector<NodeId>& origins, uint64_t variance);
  NodeId Load(uint8_t bits, LoadSpace space, NodeId address, uint64_t variance);
  NodeId Choice(uint8_t bits, const std::vector<NodeId>& operands, uint64_t variance);
  NodeId Induction(uint8_t bits, uint32_t index, NodeId start, uint64_t variance);

  const FormulaNode& operator[](NodeId id) const { return nodes_[id]; }
  NodeId Operand(NodeId id, uint32_t index) const { return Operand(nodes_[id], index); }
  NodeId Operand(const FormulaNode& node, uint32_t index) const { return operands_[node.first_operand + index]; }
  size_t size() const { return nodes_.size(); }
  bool IsConstant(NodeId id) const { return nodes_[id].op == FormulaOp::kConstant; }

 private:
  NodeId Append(FormulaNode node, const std::vector<NodeId>& operands);
  NodeId Simplify(FormulaOp op, uint8_t bits, const std::vector<NodeId>& operands);

  std::vector<FormulaNode> nodes_;
  std::vector<NodeId> operands_;
  std::unordered_multimap<uint64_t, NodeId> pure_;  // by hash
};

// The all-ones value of so many bits.
inline uint64_t MaskOf(uint32_t bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

std::string_view SpecialValueName(SpecialValue value);
std::string_view ComparisonName(Comparison comparison);
// What holds when `comparison` does not.
Comparison Negated(Comparison comparison);

}  // namespace tally::ptx_transforms
