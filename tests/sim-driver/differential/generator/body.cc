#include "tests/sim-driver/differential/generator/body.h"

#include <array>

namespace tally::differential {
namespace {

using Family = std::span<const StatementKind>;

}  // namespace

Value Body::Word(Spread at_most) {
  if (at_most == Spread::kThread && !variables.empty() && random.Chance(40))
    return {variables[random.Below(static_cast<uint32_t>(variables.size()))], Spread::kThread};
  std::vector<Value> fitting;
  for (const Value& value : words)
    if (value.spread <= at_most) fitting.push_back(value);
  if (fitting.empty() || random.Chance(8)) {
    std::string word = code.Word();
    code.Line("mov.u32 \t{}, {};", word, random.Chance(50) ? random.Below(64) : random.Next32());
    return {word, Spread::kBlock};
  }
  // Younger values more often.
  size_t back = random.Chance(50) ? random.Below(4) : random.Next32();
  return fitting[fitting.size() - 1 - back % fitting.size()];
}

Value Body::Predicate(Spread at_most) {
  std::string predicate = code.Predicate();
  Value a = Word(at_most);
  if (at_most == Spread::kWarp && a.spread == Spread::kBlock && !warp_index.empty()) {
    std::string mixed = code.Word();
    code.Line("xor.b32 \t{}, {}, {};", mixed, a.name, warp_index);
    a = {mixed, Spread::kWarp};
  }
  if (random.Chance(60)) {  // a few of its low bits against a number: true now and then
    std::string bits = code.Word();
    uint32_t ones = random.Pick({1u, 3u, 3u, 7u});
    code.Line("and.b32 \t{}, {}, {};", bits, a.name, ones);
    const char* relation = random.Pick({"eq.u32", "eq.s32", "ne.b32", "lt.u32"});
    code.Line("setp.{} \t{}, {}, {};", relation, predicate, bits, random.Below(ones + 1));
    return {predicate, a.spread};
  }
  Value b = Word(at_most);
  const char* relation = random.Pick({"lt.u32", "gt.s32", "le.s32", "ne.u32", "ge.u32", "hs.u32"});
  if (random.Chance(25)) {
    std::string other = code.Predicate();
    code.Line("setp.{} \t{}|{}, {}, {};", relation, other, predicate, a.name, b.name);
  } else {
    code.Line("setp.{} \t{}, {}, {};", relation, predicate, a.name, b.name);
  }
  return {predicate, Join(a.spread, b.spread)};
}

void Body::Statements(uint32_t count) {
  static const std::array<Family, 6> kFamilies = {ArithmeticStatements(), BarrierStatements(), CallStatements(),
                                                  ControlStatements(),    MemoryStatements(),  WarpStatements()};
  for (; count > 0 && num_statements_left > 0; --count) {
    --num_statements_left;
    uint32_t total = 0;
    for (const Family& family : kFamilies)
      for (const StatementKind& kind : family)
        if (kind.applies(*this)) total += kind.weight;
    uint32_t at = random.Below(total);
    [&] {
      for (const Family& family : kFamilies) {
        for (const StatementKind& kind : family) {
          if (!kind.applies(*this)) continue;
          if (at < kind.weight) return kind.write(*this);
          at -= kind.weight;
        }
      }
    }();
  }
}

std::string ElementAddress(Body& body, const std::string& base, const std::string& index) {
  std::string address = body.code.Long();
  switch (body.random.Below(3)) {
    case 0:
      body.code.Line("mad.wide.u32 \t{}, {}, 4, {};", address, index, base);
      break;
    case 1: {
      std::string offset = body.code.Long();
      body.code.Line("mul.wide.u32 \t{}, {}, 4;", offset, index);
      body.code.Line("add.s64 \t{}, {}, {};", address, base, offset);
      break;
    }
    default: {
      std::string offset = body.code.Long();
      body.code.Line("cvt.u64.u32 \t{}, {};", offset, index);
      body.code.Line("shl.b64 \t{}, {}, 2;", offset, offset);
      body.code.Line("add.s64 \t{}, {}, {};", address, offset, base);
    }
  }
  return address;
}

std::string Bounded(Body& body, const std::string& index, uint32_t count) {
  std::string bounded = body.code.Word();
  if ((count & (count - 1)) == 0) {
    body.code.Line("and.b32 \t{}, {}, {};", bounded, index, count - 1);
  } else {
    body.code.Line("rem.u32 \t{}, {}, {};", bounded, index, count);
  }
  return bounded;
}

std::string NamedLanes(Body& body) {
  if (body.where == Spread::kThread || body.random.Chance(40)) return body.mask;
  if (body.random.Chance(60)) return "-1";
  std::string lanes = body.code.Word();
  body.code.Line("or.b32 \t{}, {}, {};", lanes, body.mask, body.random.Next32());
  return lanes;
}

std::string LanesWhere(Body& body, const std::string& predicate, bool is_true) {
  std::string lanes = body.code.Word();
  body.code.Line("vote.sync.ballot.b32 \t{}, {}{}, {};", lanes, is_true ? "" : "!", predicate, NamedLanes(body));
  return lanes;
}

}  // namespace tally::differential
