// Moves: mov, from and to parts of wide registers; copies and extensions that other families need.
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/type_switch.h"

namespace tally::sim_driver {
namespace {

struct Copy {
  template <typename T>
  T operator()(T a) const {
    return a;
  }
};
void OpMovePredicate(Warp& w, const Instruction& i) { SetPredicate(w, i.d, SourcePredicate(w, i.a)); }

struct Bits128 {
  uint64_t low;
  uint64_t high;
};
void OpMove128(Warp& w, const Instruction& i) {
  auto* d = Target<Bits128>(w, i.d);
  const auto* a = Source<Bits128>(w, i.a);
  ForLanes(w.mask, [=](uint32_t l) { d[l] = a[l]; });
}

// Into a part of a wide register, or out of one: x = which part, counted in parts.
template <bool kInto, typename Part, typename Whole>
void OpPart(Warp& w, const Instruction& i) {
  Part* d = Target<Part>(w, i.d);
  const Part* a = Source<Part>(w, i.a);
  constexpr uint32_t kParts = sizeof(Whole) / sizeof(Part);
  uint32_t part = i.x;
  ForLanes(w.mask, [=](uint32_t l) {
    if constexpr (kInto) {
      d[l * kParts + part] = a[l];
    } else {
      d[l] = a[l * kParts + part];
    }
  });
}

template <bool kInto>
OpFunction PartOp(uint32_t part_bytes, uint32_t whole_bytes) {
  if (whole_bytes == 4 && part_bytes == 2) return &OpPart<kInto, uint16_t, uint32_t>;
  if (whole_bytes == 8 && part_bytes == 2) return &OpPart<kInto, uint16_t, uint64_t>;
  if (whole_bytes == 8 && part_bytes == 4) return &OpPart<kInto, uint32_t, uint64_t>;
  if (whole_bytes == 16 && part_bytes == 8) return &OpPart<kInto, uint64_t, Bits128>;
  if (whole_bytes == 16 && part_bytes == 4) return &OpPart<kInto, uint32_t, Bits128>;
  return nullptr;
}

ScalarType BitsType(uint32_t bytes) {
  return bytes == 2   ? ScalarType::kB16
         : bytes == 4 ? ScalarType::kB32
         : bytes == 8 ? ScalarType::kB64
                      : ScalarType::kB128;
}

bool DecodeMove(Lowering& l) {
  ScalarType type = l.Type();
  uint32_t bytes = TypeBytes(type);
  if (type == ScalarType::kNone) return false;
  const ptx::Operand& to = l.operand(0);
  const ptx::Operand& from = l.operand(1);
  if (from.kind == OperandKind::kVector) {
    auto parts = static_cast<uint32_t>(from.parts.size());
    if (parts == 0 || bytes / parts == 1) return l.Unsupported("mov of four bytes");
    OpFunction op = PartOp<true>(bytes / parts, bytes);
    if (op == nullptr) return false;
    // Into a fresh register first: a part may be the destination's own neighbour.
    VirtualOperand whole = l.Temporary(bytes);
    for (uint32_t part = 0; part < parts; ++part) {
      VirtualOperand a = l.Use(from.parts[part], BitsType(bytes / parts));
      Instruction& i = l.Emit(op, whole, a).i;
      if (part > 0) i.f = whole;  // keeps the parts written before: a use
      i.x = part;
    }
    l.Emit(MoveOp(bytes), l.Define(to, type), whole);
    return true;
  }
  if (to.kind == OperandKind::kVector) {
    auto parts = static_cast<uint32_t>(to.parts.size());
    if (parts == 0 || bytes / parts == 1) return l.Unsupported("mov to four bytes");
    OpFunction op = PartOp<false>(bytes / parts, bytes);
    if (op == nullptr) return false;
    VirtualOperand whole = l.Use(from, type);
    VirtualOperand copy = l.Temporary(bytes);  // a destination may be the source of a later part
    l.Emit(MoveOp(bytes), copy, whole);
    for (uint32_t part = 0; part < parts; ++part) {
      if (to.parts[part].kind == OperandKind::kSink) continue;
      l.Emit(op, l.Define(to.parts[part], BitsType(bytes / parts)), copy).i.x = part;
    }
    return true;
  }
  VirtualOperand a = l.Use(from, type);
  l.Emit(MoveOp(bytes), l.Define(to, type), a);
  return true;
}

template <typename D, typename A, typename T>
struct Extended {
  D operator()(A a) const { return static_cast<D>(static_cast<T>(a)); }
};
template <typename D, typename A>
OpFunction ExtendFrom(ScalarType type) {
  switch (type) {
    case ScalarType::kS8:
      return &Unary<D, A, Extended<D, A, int8_t>{}>;
    case ScalarType::kU8:
    case ScalarType::kB8:
      return &Unary<D, A, Extended<D, A, uint8_t>{}>;
    case ScalarType::kS16:
      return &Unary<D, A, Extended<D, A, int16_t>{}>;
    case ScalarType::kU16:
    case ScalarType::kB16:
      return &Unary<D, A, Extended<D, A, uint16_t>{}>;
    case ScalarType::kS32:
      return &Unary<D, A, Extended<D, A, int32_t>{}>;
    case ScalarType::kU32:
    case ScalarType::kB32:
      return &Unary<D, A, Extended<D, A, uint32_t>{}>;
    default:
      return &Unary<D, A, Extended<D, A, uint64_t>{}>;
  }
}

}  // namespace

OpFunction MoveOp(uint32_t width_bytes) {
  if (width_bytes == kPredicateClass) return &OpMovePredicate;
  if (width_bytes == 16) return &OpMove128;
  return ForWidth(width_bytes, []<typename T>(T) -> OpFunction { return &Unary<T, T, Copy{}>; });
}

void EmitSplit128(Lowering& l, const VirtualOperand parts[2], VirtualOperand whole) {
  for (uint32_t k = 0; k < 2; ++k) l.Emit(&OpPart<false, uint64_t, Bits128>, parts[k], whole).i.x = k;
}
void EmitJoin128(Lowering& l, VirtualOperand whole, const VirtualOperand parts[2]) {
  VirtualOperand joined = l.Temporary(16);
  for (uint32_t k = 0; k < 2; ++k) {
    Instruction& i = l.Emit(&OpPart<true, uint64_t, Bits128>, joined, parts[k]).i;
    i.x = k;
    if (k > 0) i.f = joined;
  }
  l.Emit(&OpMove128, whole, joined);
}

OpFunction ExtendOp(uint32_t to_bytes, uint32_t from_bytes, ScalarType type) {
  auto from = [&]<typename D>(D) -> OpFunction {
    return from_bytes == 2   ? ExtendFrom<D, uint16_t>(type)
           : from_bytes == 4 ? ExtendFrom<D, uint32_t>(type)
                             : ExtendFrom<D, uint64_t>(type);
  };
  return ForWidth(to_bytes, from);
}

void AddMoveOpcodes(OpcodeTable& table) { table["mov"] = {&DecodeMove}; }

}  // namespace tally::sim_driver
