// Barriers of the block in all their forms, and memory that is exchanged across them.
#include "tests/sim-driver/differential/generator/body.h"

namespace tally::differential {
namespace {

bool WholeBlock(const Body& body) { return body.where == Spread::kBlock && body.traits.has_barriers; }
bool MayCount(const Body& body) {
  return WholeBlock(body) && body.traits.is_kernel && body.traits.exits == EarlyExits::kNone;
}
bool MayExchange(const Body& body) { return WholeBlock(body) && body.traits.has_shared; }
bool MayExchangeGlobally(const Body& body) { return WholeBlock(body) && body.traits.is_kernel; }
bool MayPart(const Body& body) { return MayExchange(body) && MayCount(body) && body.traits.NumThreads() >= 64; }
bool MayMeetApart(const Body& body) { return WholeBlock(body) && body.depth < 3; }

// "bar" and "barrier" are one instruction; the second is not .aligned unless it says so.
std::string BarrierOpcode(Body& body, const char* verb, bool may_be_unaligned) {
  std::string cta = body.traits.module.version >= 78 && body.random.Chance(20) ? ".cta" : "";
  switch (body.random.Below(may_be_unaligned ? 4 : 2)) {
    case 0:
      return "bar" + cta + "." + verb;
    case 1:
      return "bar." + std::string(verb);
    case 2:
      return "barrier" + cta + "." + verb;
    default:
      return "barrier" + cta + "." + verb;
  }
}
std::string Aligned(Body& body, const std::string& opcode) {
  return opcode.starts_with("barrier") && body.random.Chance(40) ? ".aligned" : "";
}

// 0 mostly, as __syncthreads.
std::string BarrierName(Body& body) {
  if (body.traits.only_barrier) return std::to_string(*body.traits.only_barrier);
  uint32_t id = body.random.Chance(65) ? 0 : body.random.Between(1, 15);
  if (!body.random.Chance(4)) return std::to_string(id);
  std::string name = body.code.Word();
  body.code.Line("mov.u32 \t{}, {};", name, id);
  return name;
}

// ", 64" or nothing.
std::string Count(Body& body) {
  if (!MayCount(body) || !body.random.Chance(25)) return "";
  uint32_t count = body.traits.NumWarps() * 32;
  if (body.random.Chance(70)) return fmt::format(", {}", count);
  std::string word = body.code.Word();
  body.code.Line("mov.u32 \t{}, %ntid.x;", word);
  body.code.Line("mul.lo.u32 \t{}, {}, 0;", word, word);
  body.code.Line("add.u32 \t{}, {}, {};", word, word, count);
  return fmt::format(", {}", word);
}

void WriteReduction(Body& body) {
  CodeWriter& code = body.code;
  Value given = body.Predicate();
  const char* sign = body.random.Chance(25) ? "!" : "";
  std::string opcode = BarrierOpcode(body, "red", true);
  std::string name = BarrierName(body);
  std::string count = Count(body);
  std::string result = code.Word();
  if (body.random.Chance(40)) {
    std::string aligned = Aligned(body, opcode);
    code.Line("{}.popc{}.u32 \t{}, {}{}, {}{};", opcode, aligned, result, name, count, sign, given.name);
  } else {
    std::string all = code.Predicate();
    const char* op = body.random.Pick({"and", "or"});
    std::string aligned = Aligned(body, opcode);
    code.Line("{}.{}{}.pred \t{}, {}{}, {}{};", opcode, op, aligned, all, name, count, sign, given.name);
    code.Line("selp.b32 \t{}, {}, {}, {};", result, body.random.Below(100), body.random.Below(100), all);
  }
  body.Add(result, Spread::kBlock);
}

void WriteBarrier(Body& body) { WriteBlockBarrier(body); }

// All threads of the block, but at two places: each warp (or each thread) takes one of two ways with a barrier.
void WriteMeetingApart(Body& body) {
  CodeWriter& code = body.code;
  bool parts_warps = body.random.Chance(50);
  Value condition = body.Predicate(parts_warps ? Spread::kThread : Spread::kWarp);
  std::string otherwise = code.Label();
  std::string end = code.Label();
  // Lanes of one warp that are apart may only meet at the kind that is not aligned.
  std::string barrier = condition.spread == Spread::kThread ? "barrier.sync" : "bar.sync";
  uint32_t id = body.traits.only_barrier.value_or(body.random.Pick({0u, 0u, 2u}));
  Spread inner = body.Join(body.where, condition.spread);
  code.Line("@{} bra \t{};", condition.name, otherwise);
  {
    Body::Scope scope(body, inner, condition.spread == Spread::kThread ? "" : body.mask);
    body.Statements(body.random.Below(2));
    code.Line("{} \t{};", barrier, id);
    body.Statements(body.random.Below(2));
  }
  code.Line("bra \t{};", end);
  code.Mark(otherwise);
  {
    Body::Scope scope(body, inner, condition.spread == Spread::kThread ? "" : body.mask);
    code.Line("{} \t{};", barrier, id);
    body.Statements(body.random.Below(2));
  }
  code.Mark(end);
}

// ---------------------------------------------------------------- memory across barriers

std::string SlotAddress(Body& body, const std::string& index) {
  std::string address = body.code.Word();
  body.code.Line("mad.lo.u32 \t{}, {}, 4, {};", address, index, body.shared_slots);
  return address;
}

void WriteSharedExchange(Body& body) {
  CodeWriter& code = body.code;
  WriteBlockBarrier(body);  // what others still read
  std::string own = SlotAddress(body, body.linear_thread);
  code.Line("st.shared.u32 \t[{}], {};", own, body.Word().name);
  WriteBlockBarrier(body);
  for (uint32_t k = body.random.Between(1, 2); k > 0; --k) {
    Value from = body.Word(body.random.Chance(30) ? Spread::kBlock : Spread::kThread);
    std::string other = SlotAddress(body, Bounded(body, from.name, body.traits.NumThreads()));
    std::string read = code.Word();
    if (body.random.Chance(25)) {
      std::string generic = code.Long();
      code.Line("cvt.u64.u32 \t{}, {};", generic, other);
      code.Line("cvta.shared.u64 \t{}, {};", generic, generic);
      code.Line("ld.u32 \t{}, [{}];", read, generic);
    } else {
      code.Line("ld.shared.u32 \t{}, [{}];", read, other);
    }
    body.Add(read, from.spread);
  }
}

// Sums made with atomics, read by everybody.
void WriteSharedSums(Body& body) {
  CodeWriter& code = body.code;
  WriteBlockBarrier(body);
  std::string read = code.Word();
  code.Line("ld.shared.u32 \t{}, [sums_s+{}];", read, body.random.Below(kSharedSums) * 4);
  WriteBlockBarrier(body);
  body.Add(read, Spread::kBlock);
}

void WriteGlobalExchange(Body& body) {
  CodeWriter& code = body.code;
  WriteBlockBarrier(body);
  code.Line("st.global.u32 \t[{}+12], {};", body.own_words, body.Word().name);
  WriteBlockBarrier(body);
  Value from = body.Word();
  std::string index = Bounded(body, from.name, body.traits.NumThreads());
  std::string address = code.Long();
  code.Line("mad.wide.u32 \t{}, {}, {}, {};", address, index, kThreadWords * 4, body.block_words);
  std::string read = code.Word();
  code.Line("ld.global.u32 \t{}, [{}+12];", read, address);
  body.Add(read, from.spread);
}

// The first warps alone, at a barrier of their own.
void WritePartialBarrier(Body& body) {
  CodeWriter& code = body.code;
  uint32_t num_warps = body.random.Between(1, body.traits.NumThreads() / 32 - 1);
  uint32_t id = body.random.Between(1, 15);
  WriteBlockBarrier(body);
  std::string is_other = code.Predicate();
  std::string end = code.Label();
  code.Line("setp.ge.u32 \t{}, {}, {};", is_other, body.warp_index, num_warps);
  code.Line("@{} bra \t{};", is_other, end);
  {
    Body::Scope scope(body, Spread::kWarp, body.mask);
    code.Line("st.shared.u32 \t[{}], {};", SlotAddress(body, body.linear_thread), body.Word().name);
    code.Line("{} \t{}, {};", body.random.Pick({"bar.sync", "barrier.sync"}), id, num_warps * 32);
    std::string index = Bounded(body, body.Word().name, num_warps * 32);
    std::string read = code.Word();
    code.Line("ld.shared.u32 \t{}, [{}];", read, SlotAddress(body, index));
    code.Line("add.u32 \t{}, {}, {};", body.variables[0], body.variables[0], read);
    body.Statements(body.random.Below(3));
  }
  code.Mark(end);
  code.Line("bar.sync \t0;");  // nobody comes to barrier `id` for something else before these left it
}

// Producers arrive and go on, consumers wait.
void WriteArrival(Body& body) {
  CodeWriter& code = body.code;
  uint32_t producers = body.random.Between(1, body.traits.NumThreads() / 32 - 1);
  uint32_t id = body.random.Between(1, 15);
  uint32_t count = body.traits.NumWarps() * 32;
  WriteBlockBarrier(body);
  std::string consumes = code.Predicate();
  std::string consumer = code.Label();
  std::string end = code.Label();
  code.Line("setp.ge.u32 \t{}, {}, {};", consumes, body.warp_index, producers);
  code.Line("@{} bra \t{};", consumes, consumer);
  code.Line("st.shared.u32 \t[{}], {};", SlotAddress(body, body.linear_thread), body.Word().name);
  code.Line("{} \t{}, {};", body.random.Pick({"bar.arrive", "barrier.arrive"}), id, count);
  code.Line("bra \t{};", end);
  code.Mark(consumer);
  code.Line("{} \t{}, {};", body.random.Pick({"bar.sync", "barrier.sync"}), id, count);
  std::string index = Bounded(body, body.linear_thread, producers * 32);
  std::string read = code.Word();
  code.Line("ld.shared.u32 \t{}, [{}];", read, SlotAddress(body, index));
  code.Line("xor.b32 \t{}, {}, {};", body.variables[0], body.variables[0], read);
  code.Mark(end);
  code.Line("bar.sync \t0;");
}

constexpr StatementKind kKinds[] = {
    {3, &WholeBlock, &WriteBarrier},        {4, &WholeBlock, &WriteReduction},
    {2, &MayMeetApart, &WriteMeetingApart}, {8, &MayExchange, &WriteSharedExchange},
    {4, &MayExchange, &WriteSharedSums},    {3, &MayExchangeGlobally, &WriteGlobalExchange},
    {2, &MayPart, &WritePartialBarrier},    {2, &MayPart, &WriteArrival},
};

}  // namespace

void WriteBlockBarrier(Body& body) {
  CodeWriter& code = body.code;
  if (body.random.Chance(30)) {
    code.Line("bar.sync \t{};", body.traits.only_barrier.value_or(0));
    return;
  }
  if (body.random.Chance(12)) return WriteReduction(body);
  std::string guard;
  if (body.random.Chance(8)) {  // always true
    std::string holds = code.Predicate();
    std::string word = body.Word(Spread::kBlock).name;
    code.Line("setp.eq.u32 \t{}, {}, {};", holds, word, word);
    guard = fmt::format("@{} ", holds);
  }
  std::string opcode = BarrierOpcode(body, "sync", true);
  std::string name = BarrierName(body);
  std::string count = Count(body);
  code.Line("{}{}{} \t{}{};", guard, opcode, Aligned(body, opcode), name, count);
}

std::span<const StatementKind> BarrierStatements() { return kKinds; }

}  // namespace tally::differential
