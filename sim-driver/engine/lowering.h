// Lowering: one PTX function on its way to Instructions, still with virtual registers and labels.
//
// The families (integer.cc, memory.cc, ...) decode one PTX instruction each through this interface: they take operands
// (Use, Define), choose the operation for the types, and Emit it. What is wrong with the program is recorded here
// (Invalid: the program is refused; Unsupported: the kernel is).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx-transforms/ptx_module.h"
#include "sim-driver/engine/code.h"
#include "sim-driver/engine/instruction.h"

namespace tally::sim_driver {

namespace ptx = ptx_transforms;
using ptx::OperandKind;
using ptx::ScalarType;
using ptx::StateSpace;

// An operand before registers are assigned: nothing, a virtual register, or a constant's offset in the pool.
using VirtualOperand = uint32_t;
inline constexpr VirtualOperand kNoOperand = 0;
inline constexpr VirtualOperand kRegisterTag = 1u << 30;
inline constexpr VirtualOperand kConstantTag = 2u << 30;
inline constexpr VirtualOperand kTagMask = 3u << 30;

inline constexpr uint32_t kPredicateClass = 0;  // register classes are bytes per lane, and this for predicates

struct LoweredInstruction {
  Instruction i;  // operands are VirtualOperands; target and list are set at the end
  std::vector<VirtualOperand> list;
  std::vector<uint32_t> numbers;  // becomes Instruction::list where there are no operands in it
  uint32_t num_defined = 0;       // so many of `list`, from its start, are written; the others are read
  bool is_guard = false;          // runs the next instruction for fewer lanes
  bool is_guarded = false;
  bool ends_block = false;      // never continues with the next instruction
  int32_t label = -1;           // where it may go
  std::vector<int32_t> labels;  // brx.idx
  bool rejoins_next = false;    // lanes that take different ways here meet at the next instruction
  uint32_t source = 0;          // index into Lowering::sources
};

// A name that PTX code may refer to, as the linker resolved it.
struct Symbol {
  enum class Kind : uint8_t { kGlobal, kShared, kDynamicShared, kFunction, kAbsent };
  Kind kind = Kind::kAbsent;
  uint32_t index = 0;                          // of the variable or function
  const ptx::Variable* shared = nullptr;       // kShared
  const ptx::Function* declaration = nullptr;  // kFunction: definition, or declaration if there is none
};

class ConstantPool {
 public:
  // Offset of `bits` broadcast to 32 lanes of `bytes` (2, 4, 8, 16; 0: a predicate).
  uint32_t Offset(uint32_t bytes, uint64_t bits);
  std::vector<uint64_t> Take();

 private:
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> offsets_;
  std::vector<uint64_t> words_;
};

// What the lowering of a function asks of the program being linked.
class SymbolTable {
 public:
  virtual ~SymbolTable() = default;
  virtual Symbol Find(std::string_view name) const = 0;
  // Offset of a .shared variable (of module or function scope) in the block's shared memory.
  virtual uint32_t SharedOffset(const ptx::Variable& variable) const = 0;
};

class Lowering {
 public:
  Lowering(const ptx::Module& module, uint32_t text_index, const ptx::Function& function, const SymbolTable& symbols,
           ConstantPool& constants, bool is_kernel);

  // ---- The whole function (called once, by the linker).
  void LowerBody();

  // ---- The PTX instruction being decoded.
  const ptx::Instruction& instruction() const { return *instruction_; }
  bool Has(std::string_view modifier) const { return instruction_->HasModifier(modifier); }
  std::string_view Modifier(size_t index) const;  // empty beyond the end
  size_t num_operands() const { return instruction_->operands.size(); }
  // Operand `index`; a sink (and the program is invalid) beyond the end.
  const ptx::Operand& operand(size_t index);
  // The n-th modifier that names a type; kNone beyond.
  ScalarType Type(size_t n = 0) const;

  // ---- Operands. A register must be as wide as `type` ...
  VirtualOperand Use(const ptx::Operand& operand, ScalarType type);
  VirtualOperand Use(size_t index, ScalarType type) { return Use(operand(index), type); }
  VirtualOperand UsePredicate(const ptx::Operand& operand);
  VirtualOperand UsePredicate(size_t index) { return UsePredicate(operand(index)); }
  // ... a sink gives a register that nobody reads.
  VirtualOperand Define(const ptx::Operand& operand, ScalarType type);
  VirtualOperand Define(size_t index, ScalarType type) { return Define(operand(index), type); }
  VirtualOperand DefinePredicate(const ptx::Operand& operand);
  VirtualOperand DefinePredicate(size_t index) { return DefinePredicate(operand(index)); }
  // ... or, for ld, st and cvt, may be wider than the type: the class it has. `width` receives bytes per lane.
  VirtualOperand UseWide(const ptx::Operand& operand, ScalarType type, uint32_t* width);
  VirtualOperand DefineWide(const ptx::Operand& operand, ScalarType type, uint32_t* width);

  VirtualOperand Constant(uint32_t width_bytes, uint64_t bits);
  VirtualOperand Temporary(uint32_t width_bytes);
  VirtualOperand CarryFlag();  // the condition code register, a predicate

  // A [base+offset] operand as 64-bit address register plus offset. Symbols become addresses.
  struct Address {
    VirtualOperand base = kNoOperand;
    int64_t offset = 0;
    bool is_wide = true;               // base has 64-bit lanes
    bool is_kernel_parameter = false;  // base is absent: offset into the kernel's parameters
    bool is_frame_parameter = false;   // offset into the frame's parameter area (plus base, if any)
  };
  Address AddressOf(const ptx::Operand& memory, StateSpace space);
  // As above, always with a 64-bit base.
  VirtualOperand WideAddress(const Address& address);

  // ---- Output.
  LoweredInstruction& Emit(OpFunction op, VirtualOperand d = kNoOperand, VirtualOperand a = kNoOperand,
                           VirtualOperand b = kNoOperand, VirtualOperand c = kNoOperand);
  int32_t NewLabel();
  void PlaceLabel(int32_t label);
  int32_t LabelNamed(std::string_view name);
  void EmitBranch(int32_t label, VirtualOperand predicate = kNoOperand, bool negated = false);

  bool Invalid(std::string_view why);      // returns false, for `return l.Invalid(...)`
  bool Unsupported(std::string_view why);  // the same
  // The address of the next free bytes in the frame's .local or parameter area.
  uint32_t AllocateLocal(uint64_t bytes, uint32_t align);

  // ---- For calls and parameters.
  struct ParameterSlot {
    uint32_t offset_bytes = 0;
    uint32_t size_bytes = 0;
    bool is_kernel = false;
  };
  std::optional<ParameterSlot> FindParameter(std::string_view name) const;
  uint32_t AllocateParameter(uint64_t bytes, uint32_t align);
  Symbol FindSymbol(std::string_view name) const { return symbols_.Find(name); }
  const ptx::CallPrototype* FindPrototype(std::string_view name) const;
  const ptx::TargetList* FindTargets(std::string_view name) const;
  bool IsRegister(std::string_view name);
  bool is_kernel() const { return is_kernel_; }
  const std::vector<VirtualOperand>& register_returns() const { return register_returns_; }

  // ---- What came out of it; read by assembly.cc and the linker.
  std::vector<LoweredInstruction> instructions;
  std::vector<SourceRef> sources;
  std::vector<int32_t> label_positions;  // index into instructions
  std::vector<uint8_t> classes;          // per virtual register
  uint32_t local_bytes = 0;
  uint32_t parameter_bytes = 0;
  std::vector<FormalSlot> parameters;
  std::vector<FormalSlot> returns;
  bool uses_printf = false;
  std::string invalid;      // empty: fine
  std::string unsupported;  // empty: fine

 private:
  static constexpr uint64_t kMaxAreaBytes = 8u << 20;  // of a frame's local or parameter memory
  static constexpr size_t kMaxRegisters = 1u << 20;

  struct RegisterRange {
    uint32_t count = 0;
    uint32_t first = 0;  // virtual register
    uint8_t width = 0;
  };
  struct Variable {
    StateSpace space = StateSpace::kNone;
    uint32_t offset = 0;
    uint32_t size = 0;
    const ptx::Variable* shared = nullptr;  // kShared, not dynamic
  };
  struct Scope {
    std::unordered_map<std::string_view, uint32_t> registers;
    std::unordered_map<std::string_view, RegisterRange> ranges;
    std::unordered_map<std::string_view, Variable> variables;
    std::unordered_map<std::string_view, int32_t> labels;
    std::unordered_map<std::string_view, const ptx::CallPrototype*> prototypes;
    std::unordered_map<std::string_view, const ptx::TargetList*> targets;
  };

  void LowerStatements(const std::vector<ptx::Statement>& statements);
  void LowerInstruction(const ptx::Statement& statement, const ptx::Instruction& instruction);
  void DeclareRegisters(const ptx::RegisterDeclaration& declaration);
  void DeclareVariables(const ptx::VariableDeclaration& declaration);
  void DeclareFormals();
  std::optional<uint32_t> FindRegister(std::string_view name);
  const Variable* FindVariable(std::string_view name) const;
  uint32_t NewRegister(uint32_t width_bytes);
  VirtualOperand SymbolAddress(std::string_view name, int64_t offset, uint32_t width_bytes);
  VirtualOperand SpecialRegister(const ptx::Operand& operand, uint32_t width_bytes);
  VirtualOperand Immediate(const ptx::Operand& operand, ScalarType type, uint32_t width_bytes);

  const ptx::Module& module_;
  uint32_t text_index_;
  const ptx::Function& function_;
  const SymbolTable& symbols_;
  ConstantPool& constants_;
  bool is_kernel_;
  const ptx::Instruction* instruction_ = nullptr;
  uint32_t source_ = 0;
  std::vector<Scope> scopes_;
  std::unordered_map<std::string_view, ParameterSlot> kernel_parameters_;
  std::vector<VirtualOperand> register_returns_;  // old style: return values in registers
  VirtualOperand carry_ = kNoOperand;
  uint32_t parameter_top_ = 0;
};

uint32_t TypeBytes(ScalarType type);  // bytes of a lane; 0 for predicates, 2 for 8-bit types (as they are kept)
uint32_t MemoryBytes(ScalarType type);
bool IsFloat(ScalarType type);
bool IsSigned(ScalarType type);

}  // namespace tally::sim_driver
