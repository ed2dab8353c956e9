// Branches, loops, jump tables and threads that leave early.
#include "tests/sim-driver/differential/generator/body.h"

namespace tally::differential {
namespace {

constexpr uint32_t kMaxDepth = 3;

bool MayNest(const Body& body) { return body.depth < kMaxDepth && body.num_statements_left > 2; }

// Whom a condition may part here.
Spread AnySpread(Body& body) {
  return body.random.Pick({Spread::kBlock, Spread::kWarp, Spread::kThread, Spread::kThread});
}

const char* BranchOpcode(Body& body, Spread spread) {
  bool is_uniform = spread <= Spread::kWarp && body.where <= Spread::kWarp;
  return is_uniform && body.random.Chance(30) ? "bra.uni" : "bra";
}

void WriteIf(Body& body) {
  CodeWriter& code = body.code;
  Value condition = body.Predicate(AnySpread(body));
  std::string then_mask = body.mask;
  std::string else_mask = body.mask;
  if (condition.spread == Spread::kThread && body.KnowsLanes()) {
    then_mask = else_mask = "";
    if (body.traits.parts_warp_operations) {
      then_mask = LanesWhere(body, condition.name, true);
      else_mask = code.Word();
      code.Line("xor.b32 \t{}, {}, {};", else_mask, body.mask, then_mask);
    }
  }
  Spread inner = body.Join(body.where, condition.spread);
  std::string otherwise = code.Label();
  std::string end = code.Label();
  bool has_else = body.random.Chance(45);
  const char* branch = BranchOpcode(body, condition.spread);
  if (body.random.Chance(70)) {
    code.Line("@!{} {} \t{};", condition.name, branch, otherwise);
  } else {  // over a jump
    std::string then = code.Label();
    code.Line("@{} {} \t{};", condition.name, branch, then);
    code.Line("{} \t{};", branch, otherwise);
    code.Mark(then);
  }
  {
    Body::Scope scope(body, inner, then_mask);
    body.Statements(body.random.Between(1, 5));
  }
  if (has_else) {
    code.Line("bra{} \t{};", body.random.Chance(30) ? ".uni" : "", end);
    code.Mark(otherwise);
    Body::Scope scope(body, inner, else_mask);
    body.Statements(body.random.Between(1, 5));
  } else {
    code.Mark(otherwise);
  }
  code.Mark(end);
}

// Leaves the enclosing loop, or goes on with its next round. The caller has the loop's mask in `loop_mask`.
void WriteLeave(Body& body, const std::string& target, const std::string& loop_mask, bool is_break) {
  // Never parts threads that the rest of the loop needs together.
  Value condition = body.Predicate(body.where);
  if (condition.spread == Spread::kThread && body.KnowsLanes()) {
    std::string stay = LanesWhere(body, condition.name, false);
    if (is_break) {
      body.code.Line("mov.b32 \t{}, {};", loop_mask, stay);
    } else {
      body.mask = stay;  // until the scope ends
    }
  }
  body.code.Line("@{} bra \t{};", condition.name, target);
}

void WriteLoop(Body& body) {
  CodeWriter& code = body.code;
  Value trips = body.Word(AnySpread(body));
  std::string count = Bounded(body, trips.name, body.random.Pick({2u, 3u, 4u}));
  bool tests_first = body.random.Chance(50);
  Spread inner = body.Join(body.where, trips.spread);
  std::string mask = body.mask;
  if (inner == Spread::kThread && body.KnowsLanes()) {
    mask = "";
    if (body.traits.parts_warp_operations) {
      mask = code.Word();
      code.Line("mov.b32 \t{}, {};", mask, body.mask);
    }
  }
  std::string index = code.Word();
  std::string head = code.Label();
  std::string next = code.Label();
  std::string end = code.Label();
  std::string goes_on = code.Predicate();
  code.Line("mov.u32 \t{}, 0;", index);
  if (body.random.Chance(20)) code.Line(".pragma \"nounroll\";");
  code.Mark(head);
  Body::Scope scope(body, inner, mask);
  if (tests_first) {
    code.Line("setp.lt.u32 \t{}, {}, {};", goes_on, index, count);
    if (inner == Spread::kThread && body.KnowsLanes())
      code.Line("mov.b32 \t{}, {};", mask, LanesWhere(body, goes_on, true));
    code.Line("@!{} bra \t{};", goes_on, end);
  }
  body.Add(index, inner == Spread::kThread ? Spread::kThread : trips.spread);
  {
    Body::Scope round(body, inner, mask);
    body.Statements(body.random.Between(1, 4));
    bool leaves = body.random.Chance(30);
    if (leaves) {
      bool is_break = body.random.Chance(60);
      WriteLeave(body, is_break ? end : next, mask, is_break);
      body.Statements(body.random.Between(1, 3));
    }
  }
  code.Mark(next);
  code.Line("add.u32 \t{}, {}, 1;", index, index);
  if (tests_first) {
    code.Line("bra{} \t{};", body.random.Chance(30) ? ".uni" : "", head);
  } else {
    code.Line("setp.le.u32 \t{}, {}, {};", goes_on, index, count);
    if (inner == Spread::kThread && body.KnowsLanes())
      code.Line("mov.b32 \t{}, {};", mask, LanesWhere(body, goes_on, true));
    code.Line("@{} bra \t{};", goes_on, head);
  }
  code.Mark(end);
}

void WriteSwitch(Body& body) {
  CodeWriter& code = body.code;
  Value chosen = body.Word(AnySpread(body));
  uint32_t num_cases = body.random.Pick({2u, 4u});
  std::string index = Bounded(body, chosen.name, num_cases);
  std::string table = code.Label();
  std::string end = code.Label();
  std::vector<std::string> cases;
  std::string list;
  for (uint32_t k = 0; k < num_cases; ++k) {
    cases.push_back(code.Label());
    list += (k == 0 ? "" : ", ") + cases.back();
  }
  code.Mark(table);
  code.Line(".branchtargets {};", list);
  code.Line("brx.idx{} \t{}, {};", chosen.spread == Spread::kBlock && body.random.Chance(30) ? ".uni" : "", index,
            table);
  Spread inner = body.Join(body.where, chosen.spread);
  std::string mask = chosen.spread == Spread::kThread ? "" : body.mask;
  for (uint32_t k = 0; k < num_cases; ++k) {
    code.Mark(cases[k]);
    Body::Scope scope(body, inner, mask);
    body.Statements(body.random.Between(0, 2));
    if (k + 1 < num_cases && body.random.Chance(80)) code.Line("bra \t{};", end);  // else on into the next case
  }
  code.Mark(end);
}

// ---------------------------------------------------------------- threads that leave

bool MayLeave(const Body& body) {
  if (body.num_exits_left == 0) return false;
  if (!body.traits.is_kernel) return body.where == Spread::kBlock || !body.traits.has_barriers;
  if (body.where == Spread::kBlock || body.traits.exits == EarlyExits::kWild) return true;
  return body.traits.exits == EarlyExits::kTidy && body.where == Spread::kWarp;
}

void WriteResultWord(Body& body) {
  if (body.own_words.empty()) return;
  body.code.Line("st.global.u32 \t[{}+{}], {};", body.own_words, body.random.Below(3) * 4, body.Word().name);
}

void WriteEarlyExit(Body& body) {
  CodeWriter& code = body.code;
  const Traits& traits = body.traits;
  --body.num_exits_left;
  bool may_part = traits.is_kernel ? traits.exits != EarlyExits::kNone : !traits.has_barriers;
  Spread parted = may_part ? AnySpread(body) : Spread::kBlock;
  // Rarely true, so that most threads stay: some bits of a hash are all one.
  Value word = body.Word(parted);
  std::string hash = code.Word();
  std::string leaves = code.Predicate();
  code.Line("mad.lo.u32 \t{}, {}, 0x9e3779b1, {};", hash, word.name, body.random.Next32());
  code.Line("shr.u32 \t{}, {}, {};", hash, hash, parted == Spread::kBlock ? 30 : 29);
  code.Line("setp.eq.u32 \t{}, {}, {};", leaves, hash, body.random.Below(4));
  const char* opcode = "ret";
  if (traits.is_kernel ? body.random.Chance(50) : traits.may_exit && body.random.Chance(30)) opcode = "exit";
  if (!traits.is_kernel && std::string_view(opcode) == "ret") {
    code.Line("@{} st.param.b32 \t[result+0], {};", leaves, body.Word().name);
  }
  if (traits.is_kernel && word.spread == Spread::kThread && body.KnowsLanes())
    code.Line("mov.b32 \t{}, {};", body.mask, LanesWhere(body, leaves, false));
  switch (body.random.Below(4)) {
    case 0: {
      code.Line("@{} {};", leaves, opcode);
      return;
    }
    case 1: {
      std::string stays = code.Predicate();
      code.Line("not.pred \t{}, {};", stays, leaves);
      code.Line("@!{} {};", stays, opcode);
      return;
    }
    case 2: {  // the leaving part first
      std::string stay = code.Label();
      code.Line("@!{} bra \t{};", leaves, stay);
      {
        Body::Scope scope(body, body.Join(body.where, word.spread), "");
        body.Statements(body.random.Below(3));
        WriteResultWord(body);
      }
      if (!traits.is_kernel && std::string_view(opcode) == "ret")
        code.Line("st.param.b32 \t[result+0], {};", body.Word().name);
      code.Line("{};", opcode);
      code.Mark(stay);
      return;
    }
    default: {  // to a shared end further down the text, with a jump over it
      std::string leave = code.Label();
      std::string stay = code.Label();
      code.Line("@{} bra \t{};", leaves, leave);
      code.Line("bra \t{};", stay);
      code.Mark(leave);
      WriteResultWord(body);
      code.Line("{}{};", opcode, std::string_view(opcode) == "ret" && body.random.Chance(20) ? ".uni" : "");
      code.Mark(stay);
    }
  }
}

// Never taken.
void WriteTrap(Body& body) {
  Value word = body.Word();
  std::string impossible = body.code.Predicate();
  std::string bits = body.code.Word();
  body.code.Line("and.b32 \t{}, {}, 1;", bits, word.name);
  body.code.Line("setp.gt.u32 \t{}, {}, 1;", impossible, bits);
  body.code.Line("@{} trap;", impossible);
}

bool Always(const Body&) { return true; }

constexpr StatementKind kKinds[] = {
    {9, &MayNest, &WriteIf},         {6, &MayNest, &WriteLoop}, {2, &MayNest, &WriteSwitch},
    {6, &MayLeave, &WriteEarlyExit}, {1, &Always, &WriteTrap},
};

}  // namespace

std::span<const StatementKind> ControlStatements() { return kKinds; }

}  // namespace tally::differential
