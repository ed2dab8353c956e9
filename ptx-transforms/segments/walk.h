// KernelWalk: executes a kernel once with formulas instead of numbers, its callees in their callers' places.
//
// Blocks are walked in reverse post-order, each once. Where ways meet, a register that differs becomes a choice; at the
// head of a loop, one that the loop changes becomes an induction. Whatever is not followed becomes opaque.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx-transforms/analysis/control_flow.h"
#include "ptx-transforms/analysis/dominators.h"
#include "ptx-transforms/analysis/loops.h"
#include "ptx-transforms/segments/kernel_segments.h"
#include "ptx-transforms/segments/roots.h"
#include "ptx-transforms/syntax/module.h"

namespace tally::ptx_transforms {

// The fundamental type that an instruction ends with.
struct OperationType {
  uint8_t bits = 64;
  bool is_signed = false;
  bool is_integer = false;  // .b types too
};
// Of the modifier `from_last` places before the last that is a type; bits 0 if there is none.
OperationType TypeOf(const Instruction& instruction, uint32_t from_last = 0);
std::string MnemonicOf(const Instruction& instruction);

class KernelWalk {
 public:
  // Both must outlive the walk.
  KernelWalk(const Module& module, KernelSegments& segments);
  void Run(const Function& kernel);
  // What may have been stored into local memory.
  const std::vector<LocalStore>& local_stores() const { return local_stores_; }

 private:
  // Bytes of a parameter variable around a call.
  struct Piece {
    int64_t offset = 0;
    uint32_t bytes = 0;
    NodeId value = kNoNode;
  };
  using Pieces = std::vector<Piece>;

  struct HeadedLoop {
    uint32_t header = 0;
    std::vector<bool> contains;  // by block
    std::vector<uint32_t> latches = {};
    uint32_t index = 0;                                            // in KernelSegments
    std::vector<std::pair<RegisterId, uint32_t>> inductions = {};  // and which
  };

  struct Frame {
    explicit Frame(const Function& callee);
    const Function& function;
    LinearBody body;
    ControlFlow flow;
    DominatorTree dominators;
    std::vector<HeadedLoop> loops;
    std::vector<uint64_t> masks;               // by block: the loops around it, callers' included
    std::vector<std::vector<NodeId>> leaving;  // by block: registers at its end
    std::vector<NodeId> branch_predicates;     // by block
    std::unordered_map<std::string_view, const Variable*> variables;
    std::unordered_map<std::string_view, uint8_t> register_bits;  // by name or first part of names; 0: not clear
    std::unordered_map<std::string_view, Pieces> arguments;       // by parameter of the function
    std::vector<AccessCondition> context;                         // holds wherever the function runs
    uint64_t context_mask = 0;
    uint32_t depth = 0;
    bool is_kernel = false;
    // What came back, by return variable: from each way out.
    std::vector<std::vector<Pieces>> returns;
    // Of the block and instruction that are being walked.
    uint32_t block = 0;
    uint32_t index = 0;
    std::vector<NodeId> registers;
    std::vector<AccessCondition> conditions;
    std::unordered_map<std::string_view, Pieces> pieces;
  };

  // walk.cc
  void Barrier(std::string_view code, std::string seen);
  void WalkFunction(Frame& frame);
  void PlaceLoops(Frame& frame);
  void EnterBlock(Frame& frame);
  void EnterLoop(Frame& frame, HeadedLoop& loop);
  void LeaveBlock(Frame& frame);
  NodeId Merged(Frame& frame, const std::vector<NodeId>& values);
  std::vector<AccessCondition> ConditionsOf(Frame& frame) const;
  void FinishLoops(Frame& frame);
  void CollectVariables(const std::vector<Statement>& statements, Frame& frame);

  // inductions.cc
  NodeId StepOfAll(const std::vector<NodeId>& latches, NodeId induction, uint32_t loop);
  NodeId StepOf(NodeId value, NodeId induction, uint32_t loop, uint32_t& budget);
  NodeId FindInduction(NodeId value, uint32_t loop) const;
  void AddTripTest(CountedLoop& counted, uint32_t loop, NodeId predicate, bool holds, uint32_t nesting = 0);
  bool IsInvariant(NodeId node, uint32_t loop) const;

  // calls.cc
  void Call(Frame& frame);
  void Return(Frame& frame);
  void StoreParameter(Frame& frame, const Operand& place, const std::vector<const Operand*>& values, uint32_t bytes);
  NodeId Widened(const Frame& frame, const Operand& to, NodeId value, bool is_signed);
  NodeId LoadPiece(Frame& frame, const Pieces& pieces, int64_t offset, uint32_t bytes, uint8_t bits);

  // values.cc
  void Walk(Frame& frame);
  NodeId Read(Frame& frame, const Operand& operand, uint8_t bits);
  NodeId ReadRegister(Frame& frame, const Operand& operand);
  NodeId AddressOfSymbol(Frame& frame, std::string_view name, int64_t offset);
  NodeId SpecialRegister(Frame& frame, const Operand& operand);
  NodeId Fitted(NodeId value, uint8_t bits, uint64_t mask);
  NodeId ValueOf(Frame& frame);
  NodeId Arithmetic(Frame& frame, std::string_view opcode, OperationType type);
  NodeId Shift(Frame& frame, std::string_view opcode, OperationType type);
  NodeId Converted(Frame& frame);
  NodeId Moved(Frame& frame, OperationType type);
  void Compare(Frame& frame);
  NodeId Predicate(Frame& frame, std::string_view opcode);
  void Define(Frame& frame, const Operand& operand, NodeId value);
  void DefineOpaque(Frame& frame, const Operand& operand, const std::vector<NodeId>& origins);
  NodeId Unknown(Frame& frame, uint8_t bits);
  std::vector<NodeId> Origins(Frame& frame);
  NodeId GuardOf(Frame& frame);

  // accesses.cc
  bool WalkMemory(Frame& frame);
  void Load(Frame& frame);
  void Store(Frame& frame);
  void LoadParameter(Frame& frame, const Operand& place, OperationType type);
  void CopyAsync(Frame& frame);
  void CopyTensor(Frame& frame);
  NodeId AddressOf(Frame& frame, const Operand& memory);
  void Add(Frame& frame, AccessKind kind, NodeId address, uint32_t bytes, NodeId extent = kNoNode,
           GlobalAccess::Object object = GlobalAccess::Object::kMemory);
  std::string Seen(const Frame& frame) const;  // "ld.global.u32 (line 7)"

  const Module& module_;
  KernelSegments& segments_;
  Formula& formula_;
  std::unordered_map<std::string_view, const Variable*> module_variables_;
  std::unordered_map<std::string_view, const Function*> functions_;
  std::unordered_map<std::string_view, std::string_view> aliases_;
  std::unordered_map<std::string_view, uint32_t> symbols_;
  std::vector<LocalStore> local_stores_;
  uint64_t num_walked_ = 0;  // instructions and register states: the bound on time
  bool is_given_up_ = false;
};

}  // namespace tally::ptx_transforms
