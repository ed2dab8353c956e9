// Loads, stores and atomics that need no barrier around them.
#include "tests/sim-driver/differential/generator/body.h"

namespace tally::differential {
namespace {

bool Always(const Body& body) { return body.traits.module.has_tables; }
bool IsKernel(const Body& body) { return body.traits.is_kernel; }
bool HasLocal(const Body& body) { return body.traits.has_local; }
bool HasShared(const Body& body) { return body.traits.is_kernel && body.traits.has_shared; }
bool HasStruct(const Body& body) { return body.traits.struct_words > 0; }
bool HasScalars(const Body& body) { return !body.traits.scalars.empty(); }
bool HasPointers(const Body& body) { return body.traits.module.has_pointers; }

const std::string& AddressOf(Body& body, Buffer buffer) { return body.buffers[static_cast<size_t>(buffer)]; }

void WriteInputLoad(Body& body) {
  CodeWriter& code = body.code;
  Value index = body.Word();
  const std::string& input = AddressOf(body, Buffer::kInput);
  std::string read = code.Word();
  switch (body.random.Below(4)) {
    case 0: {
      std::string address = ElementAddress(body, input, Bounded(body, index.name, kInputWords));
      code.Line("ld.global.nc.u32 \t{}, [{}];", read, address);
      break;
    }
    case 1: {
      std::string other = code.Word();
      std::string even = code.Word();
      code.Line("and.b32 \t{}, {}, {};", even, index.name, kInputWords - 2);
      code.Line("ld.global.v2.u32 \t{{{}, {}}}, [{}];", read, other, ElementAddress(body, input, even));
      code.Line("sub.u32 \t{}, {}, {};", read, read, other);
      break;
    }
    case 2: {
      std::string generic = code.Long();
      code.Line("cvta.global.u64 \t{}, {};", generic, input);
      std::string address = ElementAddress(body, generic, Bounded(body, index.name, kInputWords / 2));
      code.Line("ld.u32 \t{}, [{}+{}];", read, address, body.random.Below(kInputWords / 2) * 4);
      break;
    }
    default: {
      std::string address = ElementAddress(body, input, Bounded(body, index.name, kInputWords));
      code.Line("ld.global.u32 \t{}, [{}];", read, address);
    }
  }
  body.Add(read, index.spread);
}

void WriteResultStore(Body& body) {
  CodeWriter& code = body.code;
  std::string guard;
  if (body.random.Chance(30)) guard = fmt::format("@{} ", body.Predicate().name);
  switch (body.random.Below(3)) {
    case 0:
      code.Line("{}st.global.v2.u32 \t[{}], {{{}, {}}};", guard, body.own_words, body.Word().name, body.Word().name);
      return;
    case 1:
      code.Line("{}st.global.u8 \t[{}+{}], {};", guard, body.own_words, body.random.Below(12), body.Word().name);
      return;
    default:
      code.Line("{}st.global.u32 \t[{}+{}], {};", guard, body.own_words, body.random.Below(3) * 4, body.Word().name);
  }
}

// One operation per part of the accumulators: only then does the order not show.
struct AtomicKind {
  const char* type;
  uint32_t first_word;
  uint32_t num;
  uint32_t bytes;
};
constexpr AtomicKind kGlobalAtomics[] = {
    {"add.u32", 0, 16, 4},  {"min.u32", 16, 16, 4},  {"max.s32", 32, 16, 4}, {"and.b32", 48, 16, 4},
    {"or.b32", 64, 16, 4},  {"xor.b32", 80, 16, 4},  {"inc.u32", 96, 16, 4}, {"add.u64", 112, 8, 8},
    {"max.u64", 128, 8, 8}, {"add.f32", 144, 16, 4},
};

// With an old value that nobody looks at, or without one.
std::string AtomicOpcode(Body& body, const char* space, const char* type, uint32_t bytes) {
  std::string how = body.random.Chance(20) ? ".relaxed.gpu" : "";
  if (body.random.Chance(50)) return fmt::format("red{}.{}.{} \t", how, space, type);
  return fmt::format("atom{}.{}.{} \t{}, ", how, space, type, bytes == 8 ? body.code.Long() : body.code.Word());
}

void WriteGlobalAtomic(Body& body) {
  CodeWriter& code = body.code;
  const AtomicKind& kind = kGlobalAtomics[body.random.Below(std::size(kGlobalAtomics))];
  Value value = body.Word();
  std::string index = Bounded(body, body.Word().name, kind.num);
  std::string address = code.Long();
  code.Line("mad.wide.u32 \t{}, {}, {}, {};", address, index, kind.bytes, AddressOf(body, Buffer::kAccumulators));
  std::string operand = value.name;
  if (kind.bytes == 8) {
    operand = code.Long();
    code.Line("mul.wide.u32 \t{}, {}, 0x10001;", operand, value.name);
  } else if (std::string_view(kind.type) == "add.f32") {  // small whole numbers: exact in any order
    operand = code.New(RegisterKind::kFloat);
    code.Line("cvt.rn.f32.u32 \t{}, {};", operand, Bounded(body, value.name, 4));
  } else if (std::string_view(kind.type) == "inc.u32") {
    operand = "1000";
  }
  std::string guard;
  if (body.random.Chance(20)) guard = fmt::format("@{} ", body.Predicate().name);
  std::string opcode = AtomicOpcode(body, "global", kind.type, kind.bytes);
  code.Line("{}{}[{}+{}], {};", guard, opcode, address, kind.first_word * 4, operand);
}

// The maximum by compare and swap: ends, because every failure is another thread's success.
void WriteSwapLoop(Body& body) {
  CodeWriter& code = body.code;
  std::string index = Bounded(body, body.Word().name, 16);
  std::string address = ElementAddress(body, AddressOf(body, Buffer::kAccumulators), index);
  std::string value = body.Word().name;
  std::string old = code.Word();
  std::string wanted = code.Word();
  std::string seen = code.Word();
  std::string failed = code.Predicate();
  std::string again = code.Label();
  code.Line("ld.relaxed.gpu.global.u32 \t{}, [{}+640];", old, address);
  code.Mark(again);
  code.Line("max.u32 \t{}, {}, {};", wanted, old, value);
  code.Line("atom.global.cas.b32 \t{}, [{}+640], {}, {};", seen, address, old, wanted);
  code.Line("setp.ne.u32 \t{}, {}, {};", failed, seen, old);
  code.Line("mov.u32 \t{}, {};", old, seen);
  code.Line("@{} bra \t{};", failed, again);
}

void WriteSharedAtomic(Body& body) {
  static constexpr const char* kTypes[] = {"add.u32", "max.u32", "xor.b32"};
  uint32_t kind = body.random.Below(3);
  std::string index = Bounded(body, body.Word().name, kSharedSums / 3);
  std::string address = body.code.Word();
  std::string base = body.code.Word();
  body.code.Line("mov.u32 \t{}, sums_s;", base);
  body.code.Line("mad.lo.u32 \t{}, {}, 4, {};", address, index, base);
  std::string opcode = AtomicOpcode(body, "shared", kTypes[kind], 4);
  body.code.Line("{}[{}+{}], {};", opcode, address, kind * (kSharedSums / 3) * 4, body.Word().name);
}

void WriteTableLoad(Body& body) {
  CodeWriter& code = body.code;
  Value index = body.Word();
  std::string base = code.Long();
  std::string read = code.Word();
  bool is_constant = body.random.Chance(50);
  code.Line("mov.u64 \t{}, {};", base, is_constant ? "table_c" : "table_g");
  std::string address = ElementAddress(body, base, Bounded(body, index.name, 64));
  code.Line("ld.{}.u32 \t{}, [{}];", is_constant ? "const" : "global", read, address);
  body.Add(read, index.spread);
}

void WriteVariableAtomic(Body& body) {
  CodeWriter& code = body.code;
  std::string base = code.Long();
  code.Line("mov.u64 \t{}, counters_g;", base);
  std::string address = ElementAddress(body, base, Bounded(body, body.Word().name, 16));
  code.Line("{}[{}], {};", AtomicOpcode(body, "global", "add.u32", 4), address, body.Word().name);
}

// Through a variable that holds the address of another.
void WriteIndirectLoad(Body& body) {
  CodeWriter& code = body.code;
  Value index = body.Word();
  std::string base = code.Long();
  std::string read = code.Word();
  code.Line("ld.global.u64 \t{}, [pointer_g];", base);
  code.Line("ld.u32 \t{}, [{}];", read, ElementAddress(body, base, Bounded(body, index.name, 64)));
  body.Add(read, index.spread);
}

void WriteLocalAccess(Body& body) {
  CodeWriter& code = body.code;
  Value index = body.Word();
  std::string base = code.Long();
  std::string read = code.Word();
  code.Line("mov.u64 \t{}, array_l;", base);
  bool is_generic = body.random.Chance(30);
  if (is_generic) code.Line("cvta.local.u64 \t{}, {};", base, base);
  const char* space = is_generic ? "" : ".local";
  std::string address = ElementAddress(body, base, Bounded(body, index.name, 16));
  if (body.random.Chance(60)) code.Line("st{}.u32 \t[{}], {};", space, address, body.Word().name);
  code.Line("ld{}.u32 \t{}, [{}];", space, read, address);
  body.Add(read, Spread::kThread);
}

void WriteParameterLoad(Body& body) {
  std::string read = body.code.Word();
  body.code.Line("ld.param.u32 \t{}, [{}];", read, body.random.Pick(body.traits.scalars));
  body.Add(read, Spread::kBlock);
}

void WriteStructLoad(Body& body) {
  std::string read = body.code.Word();
  body.code.Line("ld.param.u32 \t{}, [block_of_words+{}];", read, body.random.Below(body.traits.struct_words) * 4);
  body.Add(read, Spread::kBlock);
}

void WriteScopedRegisters(Body& body) {
  CodeWriter& code = body.code;
  Value a = body.Word();
  std::string d = code.Word();
  code.Line("{{ .reg .b32 inner; .reg .pred chosen;");
  code.Line("add.u32 \tinner, {}, 77;", a.name);
  code.Line("setp.gt.u32 \tchosen, inner, {};", body.random.Next32());
  code.Line("selp.b32 \t{}, inner, {}, chosen; }}", d, a.name);
  body.Add(d, a.spread);
}
bool Anywhere(const Body&) { return true; }

constexpr StatementKind kKinds[] = {
    {5, &IsKernel, &WriteInputLoad},       {4, &IsKernel, &WriteResultStore},     {4, &IsKernel, &WriteGlobalAtomic},
    {1, &IsKernel, &WriteSwapLoop},        {3, &HasShared, &WriteSharedAtomic},   {3, &Always, &WriteTableLoad},
    {2, &Always, &WriteVariableAtomic},    {2, &HasPointers, &WriteIndirectLoad}, {4, &HasLocal, &WriteLocalAccess},
    {3, &HasScalars, &WriteParameterLoad}, {3, &HasStruct, &WriteStructLoad},     {1, &Anywhere, &WriteScopedRegisters},
};

}  // namespace

std::span<const StatementKind> MemoryStatements() { return kKinds; }

}  // namespace tally::differential
