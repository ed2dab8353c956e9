// Computation: what keeps values different from thread to thread and from block to block.
#include "tests/sim-driver/differential/generator/body.h"

namespace tally::differential {
namespace {

bool Always(const Body&) { return true; }
bool HasVariables(const Body& body) { return !body.variables.empty(); }

void WriteBinary(Body& body) {
  Value a = body.Word();
  Value b = body.Word(body.random.Chance(30) ? Spread::kBlock : Spread::kThread);
  std::string d = body.code.Word();
  const char* op = body.random.Pick({"add.u32", "sub.s32", "mul.lo.u32", "mul.hi.u32", "and.b32", "or.b32", "xor.b32",
                                     "xor.b32", "min.u32", "max.s32", "add.s32"});
  body.code.Line("{} \t{}, {}, {};", op, d, a.name, b.name);
  body.Add(d, body.Join(a.spread, b.spread));
}

void WriteUnary(Body& body) {
  Value a = body.Word();
  std::string d = body.code.Word();
  uint32_t bits = body.random.Below(31) + 1;
  switch (body.random.Below(6)) {
    case 0:
      body.code.Line("shl.b32 \t{}, {}, {};", d, a.name, bits);
      break;
    case 1:
      body.code.Line("shr.{} \t{}, {}, {};", body.random.Pick({"u32", "s32"}), d, a.name, bits);
      break;
    case 2:
      body.code.Line("{} \t{}, {};", body.random.Pick({"popc.b32", "brev.b32", "clz.b32", "not.b32", "abs.s32"}), d,
                     a.name);
      break;
    case 3:
      body.code.Line("bfe.u32 \t{}, {}, {}, {};", d, a.name, bits, body.random.Below(33 - bits));
      break;
    case 4:
      body.code.Line("{}.u32 \t{}, {}, {};", body.random.Pick({"div", "rem"}), d, a.name, body.random.Between(3, 1000));
      break;
    default:
      body.code.Line("shf.l.wrap.b32 \t{}, {}, {}, {};", d, a.name, a.name, bits);
  }
  body.Add(d, a.spread);
}

void WriteTernary(Body& body) {
  Value a = body.Word();
  Value b = body.Word();
  Value c = body.Word();
  std::string d = body.code.Word();
  Spread spread = body.Join(body.Join(a.spread, b.spread), c.spread);
  switch (body.random.Below(4)) {
    case 0:
      body.code.Line("mad.lo.s32 \t{}, {}, {}, {};", d, a.name, b.name, c.name);
      break;
    case 1:
      body.code.Line("lop3.b32 \t{}, {}, {}, {}, {};", d, a.name, b.name, c.name, body.random.Below(256));
      break;
    case 2:
      body.code.Line("prmt.b32 \t{}, {}, {}, {};", d, a.name, b.name, body.random.Below(0x8000));
      spread = body.Join(a.spread, b.spread);
      break;
    default: {
      Value p = body.Predicate();
      body.code.Line("selp.b32 \t{}, {}, {}, {};", d, a.name, b.name, p.name);
      spread = body.Join(body.Join(a.spread, b.spread), p.spread);
    }
  }
  body.Add(d, spread);
}

// Through other types and back.
void WriteConversion(Body& body) {
  Value a = body.Word();
  Value b = body.Word();
  std::string d = body.code.Word();
  Spread spread = body.Join(a.spread, b.spread);
  switch (body.random.Below(4)) {
    case 0: {
      std::string wide = body.code.Long();
      body.code.Line("mul.wide.u32 \t{}, {}, {};", wide, a.name, b.name);
      body.code.Line("shr.u64 \t{}, {}, {};", wide, wide, body.random.Below(40));
      body.code.Line("cvt.u32.u64 \t{}, {};", d, wide);
      break;
    }
    case 1: {
      std::string pair = body.code.Long();
      std::string high = body.code.Word();
      body.code.Line("mov.b64 \t{}, {{{}, {}}};", pair, a.name, b.name);
      body.code.Line("mov.b64 \t{{{}, {}}}, {};", high, d, pair);
      body.code.Line("xor.b32 \t{}, {}, {};", d, d, high);
      break;
    }
    case 2: {
      std::string half = body.code.New(RegisterKind::kShort);
      body.code.Line("cvt.u16.u32 \t{}, {};", half, a.name);
      body.code.Line("mul.wide.u16 \t{}, {}, {};", d, half, half);
      spread = a.spread;
      break;
    }
    default: {
      std::string x = body.code.New(RegisterKind::kFloat);
      std::string y = body.code.New(RegisterKind::kFloat);
      std::string bits = Bounded(body, a.name, 4096);
      body.code.Line("cvt.rn.f32.u32 \t{}, {};", x, bits);
      body.code.Line("cvt.rn.f32.s32 \t{}, {};", y, b.name);
      body.code.Line("fma.rn.f32 \t{}, {}, 0f3FC00000, {};", x, x, y);
      body.code.Line("mov.b32 \t{}, {};", d, x);
    }
  }
  body.Add(d, spread);
}

void WriteAssignment(Body& body) {
  Value a = body.Word();
  const std::string& variable = body.random.Pick(body.variables);
  std::string guard;
  if (body.random.Chance(30)) {
    guard = fmt::format("@{}{} ", body.random.Chance(50) ? "" : "!", body.Predicate().name);
  }
  const char* op = body.random.Pick({"add.u32", "xor.b32", "sub.u32", "mul.lo.u32"});
  body.code.Line("{}{} \t{}, {}, {};", guard, op, variable, variable, a.name);
}

std::string LinearSpecial(Body& body) {
  std::string d = body.code.Word();
  std::string y = body.code.Word();
  body.code.Line("mov.u32 \t{}, %ctaid.x;", d);
  body.code.Line("mov.u32 \t{}, %ctaid.y;", y);
  body.code.Line("mad.lo.u32 \t{}, {}, 7, {};", d, y, d);
  body.code.Line("mov.u32 \t{}, %ctaid.z;", y);
  body.code.Line("mad.lo.u32 \t{}, {}, 13, {};", d, y, d);
  return d;
}

// Reads of what makes blocks and threads different, anywhere in the code and in all the forms that there are.
void WriteSpecialRegister(Body& body) {
  std::string d = body.code.Word();
  const char* axis = body.random.Pick({"x", "y", "z"});
  switch (body.random.Below(6)) {
    case 0:
    case 1:
      body.code.Line("mov.{} \t{}, %ctaid.{};", body.random.Pick({"u32", "b32", "s32"}), d, axis);
      body.Add(d, Spread::kBlock);
      return;
    case 2:
      body.code.Line("mov.u32 \t{}, %nctaid.{};", d, axis);
      body.Add(d, Spread::kBlock);
      return;
    case 3:
      body.code.Line("mov.u32 \t{}, {}.{};", d, body.random.Pick({"%tid", "%ntid"}), axis);
      body.Add(d, Spread::kThread);
      return;
    case 4: {  // a form that transforms may refuse: only where the kernel has it anyway
      if (!body.traits.reads_index_oddly) return body.Add(LinearSpecial(body), Spread::kBlock);
      std::string wide = body.code.Long();
      body.code.Line("cvt.u64.u32 \t{}, {}.{};", wide, body.random.Pick({"%ctaid", "%nctaid"}), axis);
      body.code.Line("cvt.u32.u64 \t{}, {};", d, wide);
      body.Add(d, Spread::kBlock);
      return;
    }
    default: {
      if (!body.traits.reads_index_oddly) return body.Add(LinearSpecial(body), Spread::kBlock);
      std::string half = body.code.New(RegisterKind::kShort);
      body.code.Line("mov.u16 \t{}, %ctaid.{};", half, axis);
      body.code.Line("cvt.u32.u16 \t{}, {};", d, half);
      body.Add(d, Spread::kBlock);
    }
  }
}

constexpr StatementKind kKinds[] = {
    {10, &Always, &WriteBinary},           {6, &Always, &WriteUnary},
    {6, &Always, &WriteTernary},           {4, &Always, &WriteConversion},
    {14, &HasVariables, &WriteAssignment}, {5, &Always, &WriteSpecialRegister},
};

}  // namespace

std::span<const StatementKind> ArithmeticStatements() { return kKinds; }

}  // namespace tally::differential
