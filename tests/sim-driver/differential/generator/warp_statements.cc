// Operations among the lanes of a warp. Every one names the lanes that are here, and perhaps some that have left.
#include "tests/sim-driver/differential/generator/body.h"

namespace tally::differential {
namespace {

bool Knows(const Body& body) { return body.KnowsLanes(); }
bool MayReduce(const Body& body) { return body.KnowsLanes() && body.traits.module.target >= 80; }
bool MayElect(const Body& body) { return body.KnowsLanes() && body.traits.module.target >= 90; }

// A value that all lanes of the warp which are here share.
Spread OfWarp(const Body& body) { return body.where == Spread::kThread ? Spread::kThread : Spread::kWarp; }

void WriteShuffle(Body& body) {
  CodeWriter& code = body.code;
  Value value = body.Word();
  std::string read = code.Word();
  std::string inside = code.Predicate();
  const char* mode = body.random.Pick({"bfly", "up", "down", "idx"});
  uint32_t distance = body.random.Between(1, 16);
  bool is_up = std::string_view(mode) == "up";
  std::string source = code.Word();
  code.Line("shfl.sync.{}.b32 \t{}|{}, {}, {}, {}, {};", mode, read, inside, value.name, distance, is_up ? 0 : 31,
            NamedLanes(body));
  // What a lane reads from one that is not here is undefined: then its own value counts.
  std::string lane = code.Word();
  code.Line("mov.u32 \t{}, %laneid;", lane);
  switch (mode[0]) {
    case 'b':
      code.Line("xor.b32 \t{}, {}, {};", source, lane, distance);
      break;
    case 'u':
      code.Line("sub.u32 \t{}, {}, {};", source, lane, distance);
      break;
    case 'd':
      code.Line("add.u32 \t{}, {}, {};", source, lane, distance);
      break;
    default:
      code.Line("mov.u32 \t{}, {};", source, distance);
  }
  code.Line("and.b32 \t{}, {}, 31;", source, source);
  code.Line("shr.u32 \t{}, {}, {};", source, body.mask, source);
  code.Line("and.b32 \t{}, {}, 1;", source, source);
  std::string is_here = code.Predicate();
  code.Line("setp.ne.u32 \t{}, {}, 0;", is_here, source);
  code.Line("and.pred \t{}, {}, {};", is_here, is_here, inside);
  code.Line("selp.b32 \t{}, {}, {}, {};", read, read, value.name, is_here);
  body.Add(read, Spread::kThread);
}

// The value of the first lane that is here.
void WriteBroadcast(Body& body) {
  CodeWriter& code = body.code;
  Value value = body.Word();
  std::string first = code.Word();
  std::string read = code.Word();
  code.Line("brev.b32 \t{}, {};", first, body.mask);
  code.Line("bfind.shiftamt.u32 \t{}, {};", first, first);
  code.Line("shfl.sync.idx.b32 \t{}, {}, {}, 31, {};", read, value.name, first, NamedLanes(body));
  body.Add(read, OfWarp(body));
}

void WriteVote(Body& body) {
  CodeWriter& code = body.code;
  Value given = body.Predicate();
  std::string result = code.Word();
  if (body.random.Chance(50)) {
    code.Line("vote.sync.ballot.b32 \t{}, {}, {};", result, given.name, NamedLanes(body));
  } else {
    std::string answer = code.Predicate();
    code.Line("vote.sync.{}.pred \t{}, {}, {};", body.random.Pick({"all", "any", "uni"}), answer, given.name,
              NamedLanes(body));
    code.Line("selp.b32 \t{}, {}, {}, {};", result, body.random.Below(50), body.random.Below(50), answer);
  }
  body.Add(result, OfWarp(body));
}

void WriteMatch(Body& body) {
  CodeWriter& code = body.code;
  std::string few = Bounded(body, body.Word().name, 4);
  std::string result = code.Word();
  if (body.random.Chance(50)) {
    code.Line("match.any.sync.b32 \t{}, {}, {};", result, few, NamedLanes(body));
    body.Add(result, Spread::kThread);
  } else {
    std::string same = code.Predicate();
    code.Line("match.all.sync.b32 \t{}|{}, {}, {};", result, same, few, NamedLanes(body));
    body.Add(result, OfWarp(body));
  }
}

void WriteWarpBarrier(Body& body) { body.code.Line("bar.warp.sync \t{};", NamedLanes(body)); }

void WriteWarpReduction(Body& body) {
  std::string result = body.code.Word();
  const char* op = body.random.Pick({"add.u32", "min.u32", "max.s32", "and.b32", "or.b32", "xor.b32"});
  Value value = body.Word();
  body.code.Line("redux.sync.{} \t{}, {}, {};", op, result, value.name, NamedLanes(body));
  body.Add(result, OfWarp(body));
}

// Whoever is elected does what has the same result for each of them.
void WriteElection(Body& body) {
  CodeWriter& code = body.code;
  std::string elected = code.Predicate();
  std::string lane = code.Word();
  std::string votes = code.Word();
  code.Line("elect.sync \t{}|{}, {};", lane, elected, body.mask);
  code.Line("vote.sync.ballot.b32 \t{}, {}, {};", votes, elected, NamedLanes(body));
  code.Line("popc.b32 \t{}, {};", votes, votes);
  body.Add(votes, OfWarp(body));
}

constexpr StatementKind kKinds[] = {
    {5, &Knows, &WriteShuffle},     {3, &Knows, &WriteBroadcast},   {4, &Knows, &WriteVote},
    {2, &Knows, &WriteMatch},       {2, &Knows, &WriteWarpBarrier}, {2, &MayReduce, &WriteWarpReduction},
    {1, &MayElect, &WriteElection},
};

}  // namespace

std::span<const StatementKind> WarpStatements() { return kKinds; }

}  // namespace tally::differential
