// The syntax tree of a PTX module (ISA 6.0 to 9.0): what is written, not what it means.
//
// A tree belongs to one Module (module.h): its string_views look into the Module's source text or arena and its Lists
// into the arena, so nodes must not outlive the Module. Nodes are plain values; statement lists are std::vector, to be
// edited in place. Whoever changes a node sets `edited` on the Statement or Item that holds it: the printer writes
// such nodes afresh, and every other byte as it was.
//
// What this version of the parser does not know survives: an unknown instruction is an Instruction like any other, an
// unknown directive or statement shape is an Opaque node that keeps its text.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "ptx-transforms/syntax/arena.h"
#include "ptx-transforms/syntax/source.h"
#include "ptx-transforms/syntax/types.h"

namespace tally::ptx_transforms {

// ---------------------------------------------------------------- operands

enum class OperandKind : uint8_t {
  kRegister,         // name [component] [negated]: %r1, p, %v.x, !%p2
  kSpecialRegister,  // name [component]: %tid.x, %laneid, %clock64
  kSymbol,           // name [offset]: variable, function, label, prototype; `buffer+16`
  kInteger,          // bits: two's complement; constant expressions are folded
  kFloat32,          // bits: low 32 (written 0fXXXXXXXX)
  kFloat64,          // bits (written 0dXXXXXXXXXXXXXXXX, or in decimal)
  kMemory,           // [base + offset, parts...]: see `base_kind`
  kSubscript,        // name[parts[0]]: element of an array variable
  kVector,           // {parts...}
  kPair,             // parts[0]|parts[1]: two destinations, as in setp and shfl.sync
  kGroup,            // (parts...): return values or arguments of a call
  kSink,             // _
};

struct Operand {
  OperandKind kind = OperandKind::kSink;
  OperandKind base_kind = OperandKind::kSymbol;  // of a kMemory: kRegister or kSymbol (name), or kInteger (bits)
  bool negated = false;                          // !p
  bool is_unsigned = false;                      // of a kInteger: written with the suffix U
  char component = 0;                            // 'x' 'y' 'z' 'w' ('r' 'g' 'b' 'a' read as these); 0: none
  TextRange range = {};                          // empty in operands made by a pass
  std::string_view name;                         // with its % or $
  uint64_t bits = 0;
  int64_t offset = 0;  // bytes, of a kMemory, kSymbol or kSubscript
  List<Operand> parts = {};
};

// ---------------------------------------------------------------- declarations

// One value of an initialiser, or a braced list of them.
struct Initializer {
  enum class Kind : uint8_t {
    kInteger,  // bits
    kFloat32,  // bits, low 32
    kFloat64,  // bits
    kSymbol,   // address of `name` plus offset; generic: as generic address
    kMask,     // bits = mask: the masked byte(s) of such an address, shifted down, as in 0xff00(sym)
    kList,     // elements
  };
  Kind kind = Kind::kInteger;
  bool is_generic = false;
  uint64_t bits = 0;
  int64_t offset = 0;
  std::string_view name;
  List<Initializer> elements;
};

// .param .u64 .ptr .global .align 16 name
struct PointerAttribute {
  bool is_present = false;
  StateSpace space = StateSpace::kNone;  // kNone: generic
  uint32_t align = 0;                    // bytes; 0: not given
};

// One variable: of module scope, of a body (.local, .shared, .param), or a formal parameter.
struct Variable {
  static constexpr uint64_t kUnspecifiedDimension = ~uint64_t{0};

  StateSpace space = StateSpace::kNone;
  Linkage linkage = Linkage::kInternal;
  ScalarType type = ScalarType::kNone;
  uint8_t vector_width = 1;  // 1, 2, 4 or 8
  bool is_array = false;     // has at least one dimension
  bool has_initializer = false;
  uint32_t align = 0;                 // bytes; 0: natural
  std::string_view type_name;         // as written, without the dot
  std::string_view name;              // "_" in prototypes
  List<uint64_t> dimensions;          // kUnspecifiedDimension for []
  List<std::string_view> attributes;  // .attribute(...): ".managed", ".unified(1,2)"
  PointerAttribute pointer;
  Initializer initializer;
  TextRange range;  // from its name to its end

  // Alignment in bytes: explicit, else that of the type (times the vector width).
  uint32_t Alignment() const;
  // Size in bytes; 0 if a dimension is unspecified (take it from the initialiser or the launch), saturated on overflow.
  uint64_t SizeBytes() const;
};

// .global .align 4 .u32 a, b[4] = {1, 2}; all share what stands before the first name.
struct VariableDeclaration {
  List<Variable> variables;
};

// .reg .b32 %r<100>, %x;
struct RegisterDeclaration {
  struct Name {
    std::string_view name;
    uint32_t count = 1;  // %r<100> declares %r0 to %r99
    bool is_range = false;
  };
  ScalarType type = ScalarType::kNone;
  uint8_t vector_width = 1;
  std::string_view type_name;
  List<Name> names;
};

// ---------------------------------------------------------------- statements

struct Guard {
  std::string_view predicate;  // empty: not predicated
  bool is_negated = false;

  bool is_present() const { return !predicate.empty(); }
};

// @!%p1 ld.global.nc.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1+16];
struct Instruction {
  Guard guard;
  std::string_view opcode;           // "ld"
  List<std::string_view> modifiers;  // "global" "nc" "v4" "f32"; "shared::cta" is one
  List<Operand> operands;

  bool HasModifier(std::string_view modifier) const;
};

struct Label {
  std::string_view name;
};

// .loc 1 12 3[, function_name $L__info_string0[+ 4], inlined_at 1 20 5]
struct LocDirective {
  uint32_t file = 0;
  uint32_t line = 0;
  uint32_t column = 0;
  std::string_view function_name;  // empty: not inlined
  int64_t function_name_offset = 0;
  uint32_t inlined_file = 0;
  uint32_t inlined_line = 0;
  uint32_t inlined_column = 0;
};

// .pragma "nounroll", "...";
struct Pragma {
  List<std::string_view> strings;  // without the quotes
};

// NAME: .callprototype (returns) _ (parameters) [.noreturn];
struct CallPrototype {
  std::string_view name;
  List<Variable> returns;
  List<Variable> parameters;
  bool is_noreturn = false;
};

// NAME: .branchtargets L1, L2;   NAME: .calltargets f, g;
struct TargetList {
  std::string_view name;
  bool is_call = false;
  List<std::string_view> targets;
};

// Text that was kept without being understood: an unknown directive, a .section, or a malformed statement.
struct Opaque {
  std::string_view reason;  // what the parser expected instead; empty where being opaque is normal (.section)
};

struct Statement;

// { ... } inside a body. Its registers and variables are its own.
struct Block {
  std::vector<Statement> statements;
  SourceSpan open;   // {
  SourceSpan close;  // }
};

struct Statement {
  SourceSpan span;  // of a Block: of its {
  bool edited = false;
  std::variant<Instruction, Label, RegisterDeclaration, VariableDeclaration, LocDirective, Pragma, CallPrototype,
               TargetList, Block, Opaque>
      node;
};

// ---------------------------------------------------------------- module scope

// .maxntid 256, 1, 1    .minnctapersm 2    .noreturn    .pragma "..."
struct FunctionDirective {
  std::string_view name;  // without the dot
  List<uint64_t> values;
  List<std::string_view> strings;
};

// .entry or .func, declaration or definition.
struct Function {
  bool is_entry = false;
  bool has_body = false;  // false: a declaration, ends with ;
  Linkage linkage = Linkage::kInternal;
  std::string_view name;
  List<Variable> returns;
  List<Variable> parameters;
  List<std::string_view> attributes;
  List<FunctionDirective> directives;
  std::vector<Statement> body;
  SourceSpan open;   // { of the body
  SourceSpan close;  // }

  // The directive of that name ("maxntid"); null if absent. Valid until `directives` is replaced.
  const FunctionDirective* FindDirective(std::string_view directive) const;
};

struct VersionDirective {
  uint32_t major = 0;
  uint32_t minor = 0;
};

struct TargetDirective {
  List<std::string_view> targets;  // "sm_90", "texmode_independent", "debug"
};

struct AddressSizeDirective {
  uint32_t bits = 64;
};

// .file 1 "path"[, timestamp, size]
struct FileDirective {
  uint64_t index = 0;
  std::string_view path;
  List<uint64_t> timestamp_and_size;  // as many of them as were written
};

// .alias name, target;
struct Alias {
  std::string_view name;
  std::string_view target;
};

// One thing at module scope. The span of a Function is that of its head, up to but without the { or through the ;.
struct Item {
  SourceSpan span;
  bool edited = false;  // of a Function: its head only; statements have their own
  std::variant<VersionDirective, TargetDirective, AddressSizeDirective, FileDirective, VariableDeclaration, Function,
               Alias, Pragma, Opaque>
      node;
};

}  // namespace tally::ptx_transforms
