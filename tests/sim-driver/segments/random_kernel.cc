#include "tests/sim-driver/segments/random_kernel.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tests/sim-driver/segments/random_index.h"

namespace tally::ptx_transforms {
namespace {

constexpr int kMostRounds = 150;  // of all loops of a thread together

class KernelWriter {
 public:
  explicit KernelWriter(differential::RandomSource& random) : random_(random) {}

  std::string Write() {
    std::string functions;
    const uint32_t num_functions = random_.Chance(40) ? random_.Between(1, 2) : 0;
    for (uint32_t k = 0; k < num_functions; ++k) functions += Function(k);
    num_functions_ = num_functions;
    Begin();
    for (const char* special : {"%tid.x", "%tid.y", "%ctaid.x", "%ctaid.y", "%ntid.x", "%nctaid.x"})
      Line("mov.u32 {}, {};", NewWord(), special);
    Line("mad.lo.u32 {}, {}, {}, {};", NewWord(), "%w2", "%w4", "%w0");
    for (const char* parameter : {"n", "m", "k"}) Line("ld.param.u32 {}, [{}];", NewWord(), parameter);
    Line("ld.param.u64 %p, [p];\nld.param.u64 %r, [r];");
    FillDepot();
    pointers_ = {"%p", "%r"};
    if (random_.Chance(30)) Line("cvta.to.global.u64 {}, %p;", NewPointer());
    Statements(random_.Between(2, 6), 0);
    Access();
    return fmt::format(
        ".version 8.0\n.target sm_80\n.address_size 64\n{}.visible .entry random_kernel(.param .u64 p, .param .u64 r, "
        ".param .u32 n, .param .u32 m, .param .s32 k)\n{{\n{}ret;\n}}\n",
        functions, Registers() + code_);
  }

 private:
  template <typename... T>
  void Line(fmt::format_string<T...> format, T&&... arguments) {
    code_ += fmt::format(format, std::forward<T>(arguments)...) + "\n";
  }
  std::string NewWord() { return words_.emplace_back(fmt::format("%w{}", num_words_++)); }
  std::string NewPointer() { return pointers_.emplace_back(fmt::format("%a{}", num_pointers_++)); }
  std::string NewLong() { return fmt::format("%l{}", num_longs_++); }
  std::string NewPredicate() { return fmt::format("%c{}", num_predicates_++); }
  std::string NewLabel() { return fmt::format("L{}", num_labels_++); }
  std::string Word() {
    return random_.Chance(50) ? words_[words_.size() - 1 - random_.Below(std::min<uint32_t>(4, words_.size()))]
                              : random_.Pick(words_);
  }
  std::string Constant() {
    return std::to_string(random_.Chance(80) ? static_cast<int32_t>(random_.Below(40)) - 8
                                             : static_cast<int32_t>(RandomSize(random_)));
  }
  std::string WordOrConstant() { return random_.Chance(40) ? Constant() : Word(); }
  const char* Sign() { return random_.Chance(60) ? "s" : "u"; }
  const char* Comparison() { return random_.Pick<const char*>({"lt", "le", "gt", "ge", "lt", "ge", "eq", "ne"}); }
  const char* Not() { return random_.Chance(50) ? "!" : ""; }

  void Begin() {
    code_.clear();
    words_.clear();
    pointers_.clear();
    num_words_ = num_pointers_ = num_longs_ = num_predicates_ = num_labels_ = 0;
    has_depot_ = random_.Chance(25);
    Line("mov.f64 %rounds, 0d0000000000000000;");
  }
  // Behind what loads p and r: what local memory holds that nobody wrote, nobody says.
  void FillDepot() {
    if (!has_depot_) return;
    Line("mov.u64 %depot, depot;");
    for (int k = 0; k < 4; ++k) Line("st.local.u64 [%depot+{}], {};", 8 * k, random_.Chance(70) ? "%p" : "%r");
  }
  std::string Registers() const {
    return fmt::format(
        "{}.reg .b64 %p, %r, %depot, %in, %a<{}>, %l<{}>;\n.reg .b32 %w<{}>;\n.reg .f64 %rounds, %wide;\n.reg .pred "
        "%near, %c<{}>;\n",
        has_depot_ ? ".local .align 16 .b8 depot[32];\n" : "", num_pointers_ + 1, num_longs_ + 1, num_words_ + 1,
        num_predicates_ + 1);
  }

  // (a, b, c) and, for what lies near, p and r; returns a pointer.
  std::string Function(uint32_t number) {
    num_functions_ = number;
    Begin();
    Line("ld.param.u64 %p, [p];\nld.param.u64 %r, [r];\nld.param.u64 {}, [a];", NewPointer());
    FillDepot();
    Line("ld.param.u32 {}, [b];\nld.param.u32 {}, [c];\nmov.u32 {}, %tid.x;", NewWord(), NewWord(), NewWord());
    Statements(random_.Between(1, 3), 1);
    Access();
    MovePointer();
    Line("st.param.b64 [back], {};", pointers_.back());
    return fmt::format(
        ".func (.param .b64 back) callee{}(.param .b64 a, .param .b32 b, .param .b32 c, .param .b64 p, .param .b64 r)\n"
        "{{\n{}ret;\n}}\n",
        number, Registers() + code_);
  }

  void Statements(uint32_t count, uint32_t depth) {
    while (count-- > 0) Statement(depth);
  }
  void Statement(uint32_t depth) {
    const uint32_t what = random_.Below(100);
    if (what < 25) return Operation();
    if (what < 35) return Redefine();
    if (what < 45) return MovePointer();
    if (what < 60 || depth >= 3) return Access();
    if (what < 80) return Loop(depth);
    if (what < 90) return Branch(depth);
    if (what < 94) return Call();
    if (what < 97) return Depot();
    Line("@{}{} {};", Not(), Guard(), depth > 0 && random_.Chance(30) ? "exit" : "ret");
  }

  void Operation() {
    const std::string a = Word(), b = WordOrConstant(), c = WordOrConstant(), to = NewWord();
    const char* sign = Sign();
    switch (random_.Below(12)) {
      case 0:
      case 1:
        return Line("{}.{}32 {}, {}, {};", random_.Chance(60) ? "add" : "sub", sign, to, a, b);
      case 2:
        return Line("mul.lo.s32 {}, {}, {};", to, a, b);
      case 3:
      case 4:
        return Line("mad.lo.s32 {}, {}, {}, {};", to, a, b, c);
      case 5:
        return Line("shl.b32 {}, {}, {};", to, a, random_.Below(6));
      case 6:
        return Line("shr.{}32 {}, {}, {};", sign, to, a, random_.Below(6));
      case 7:
        return Line("and.b32 {}, {}, {};", to, a, random_.Chance(50) ? (1 << random_.Below(8)) - 1 : -4);
      case 8:
        return Line("{}.{}32 {}, {}, {};", random_.Chance(50) ? "min" : "max", sign, to, a, b);
      case 9:
        return Line("{}.{}32 {}, {}, {};", random_.Chance(50) ? "div" : "rem", sign, to, a,
                    random_.Chance(50) ? std::to_string(random_.Between(1, 20)) : Word());
      case 10:
        return Line("selp.b32 {}, {}, {}, {};", to, a, b, Guard());
      default:
        return Line("{}.b32 {}, {}, {};", random_.Chance(50) ? "or" : "xor", to, a, b);
    }
  }
  // What a loop around it hands on to its next round, or one of two ways changes.
  void Redefine() {
    if (words_.size() < 8) return Operation();
    const std::string to = words_[random_.Between(3, static_cast<uint32_t>(words_.size()) - 1)];
    const std::string by = WordOrConstant();
    const std::string guard = random_.Chance(30) ? fmt::format("@{}{} ", Not(), Guard()) : "";
    switch (random_.Below(3)) {
      case 0:
        return Line("{}mov.u32 {}, {};", guard, to, by);
      case 1:
        return Line("{}sub.s32 {}, {}, {};", guard, to, to, by);
      default:
        return Line("{}add.s32 {}, {}, {};", guard, to, to, by);
    }
  }
  void MovePointer() {
    const std::string from = random_.Pick(pointers_), offset = NewLong();
    const bool is_new = random_.Chance(70);
    const int scale = random_.Pick({16, 16, 32, -16, 64});
    if (random_.Chance(40)) {
      Line("mov.u64 {}, {};", offset, scale * (static_cast<int>(random_.Below(40)) - 20));
    } else {
      Widen(offset, Word(), scale);
    }
    const std::string to = is_new || from.size() < 3 ? NewPointer() : from;
    if (random_.Chance(10)) return Line("selp.b64 {}, {}, {}, {};", to, from, random_.Pick(pointers_), Guard());
    Line("{}.s64 {}, {}, {};", random_.Chance(80) ? "add" : "sub", to, from, offset);
  }

  // Never so far that a pointer gets from one allocation to the other, which no program may do.
  void Widen(const std::string& to, const std::string& index, int scale) {
    const bool is_signed = scale < 0 || random_.Chance(60);
    Line("mul.wide.{}32 {}, {}, {};", is_signed ? "s" : "u", to, index, scale);
  }

  std::string Comparing() {
    const std::string predicate = NewPredicate();
    if (random_.Chance(15)) {
      const std::string a = NewLong(), b = NewLong();
      Line("cvt.{0}64.{0}32 {1}, {2};\ncvt.{0}64.{0}32 {3}, {4};", Sign(), a, Word(), b, Word());
      Line("setp.{}.{}64 {}, {}, {};", Comparison(), Sign(), predicate, a, b);
    } else {
      Line("setp.{}.{}32 {}, {}, {};", Comparison(), Sign(), predicate, Word(), WordOrConstant());
    }
    return predicate;
  }
  std::string Guard() {
    const std::string first = Comparing();
    if (random_.Chance(70)) return first;
    if (random_.Chance(30)) {
      const std::string both = NewPredicate();
      Line("setp.{}.{}.{}32 {}, {}, {}, {};", Comparison(), random_.Chance(50) ? "and" : "or", Sign(), both, Word(),
           WordOrConstant(), first);
      return both;
    }
    const std::string second = Comparing(), both = NewPredicate();
    Line("{}.pred {}, {}, {};", random_.Chance(50) ? "and" : "or", both, first, second);
    return both;
  }

  void Access() {
    const std::string offset = NewLong(), address = fmt::format("%a{}", num_pointers_++);
    const uint32_t bytes = random_.Pick({1u, 2u, 4u, 4u, 4u, 8u, 16u});
    const int scale = static_cast<int>(bytes) * random_.Pick({1, 1, 1, 2, -1});
    std::string index = Word();
    if (random_.Chance(30)) {  // row * pitch + column
      const std::string row = Word(), pitch = WordOrConstant(), column = index;
      index = fmt::format("%w{}", num_words_++);
      Line("mad.lo.s32 {}, {}, {}, {};", index, row, pitch, column);
    }
    if (random_.Chance(70)) {
      Widen(offset, index, scale);
    } else {
      Line("cvt.{0}64.{0}32 {1}, {2};\nmul.lo.s64 {1}, {1}, {3};", Sign(), offset, index, scale);
    }
    Line("add.s64 {}, {}, {};", address, random_.Pick(pointers_), offset);
    const int displacement = random_.Chance(60) ? 0 : 16 * (static_cast<int>(random_.Below(16)) - 8);
    // Near p or r, which is asked in a way that the analysis does not follow.
    const std::string over = NewLabel(), near = NewPredicate();
    for (const char* base : {"%p", "%r"}) {
      Line("sub.s64 %in, {}, {};\nadd.s64 %in, %in, {};\ncvt.rn.f64.u64 %wide, %in;", address, base,
           displacement + static_cast<int64_t>(kArenaMiddle));
      Line("setp.lt.f64 {}, %wide, {}.0;", base[1] == 'p' ? near : "%near", kArenaBytes - 16);
    }
    Line("or.pred %near, %near, {};\n@!%near bra {};", near, over);
    const std::string guard = random_.Chance(20) ? fmt::format("@{}{} ", Not(), Guard()) : "";
    const std::string place = fmt::format("[{}+{}]", address, displacement);
    const char* space = random_.Chance(80) ? ".global" : "";
    switch (random_.Below(bytes == 4 ? 6 : 3)) {
      case 0:
      case 3:
        if (bytes == 16) {
          Line("{}ld{}.v2.u64 {{{}, {}}}, {};", guard, space, NewLong(), NewLong(), place);
        } else if (bytes == 8) {
          Line("{}ld{}.u64 {}, {};", guard, space, NewLong(), place);
        } else {
          const std::string to = random_.Chance(40) ? NewWord() : fmt::format("%w{}", num_words_++);
          Line("{}ld{}.{}{} {}, {};", guard, space, Sign(), bytes * 8, to, place);
        }
        break;
      case 4:
        Line("{}red{}.add.u32 {}, {};", guard, space, place, Word());
        break;
      case 5:
        Line("{}atom{}.{}.u32 {}, {}, {};", guard, space, random_.Pick<const char*>({"add", "max", "exch"}),
             fmt::format("%w{}", num_words_++), place, Word());
        break;
      default:
        if (bytes == 16) {
          Line("{}st{}.v4.u32 {}, {{{}, {}, {}, {}}};", guard, space, place, Word(), Word(), Word(), Word());
        } else if (bytes == 8) {
          Line("{}st{}.u64 {}, {};", guard, space, place, offset);
        } else {
          Line("{}st{}.u{} {}, {};", guard, space, bytes * 8, place, Word());
        }
    }
    Line("{}:", over);
  }

  void Branch(uint32_t depth) {
    const std::string over = NewLabel(), guard = Guard();
    Line("@{}{} bra {};", Not(), guard, over);
    Statements(random_.Between(1, 3), depth + 1);
    if (random_.Chance(40)) {
      const std::string end = NewLabel();
      Line("bra {};\n{}:", end, over);
      Statements(random_.Between(1, 2), depth + 1);
      Line("{}:", end);
    } else {
      Line("{}:", over);
    }
  }

  // Up or down, tested at its head, at its end, or at its end behind a guard as compilers write it; with another
  // counter or pointer that goes along, and other ways out and on.
  void Loop(uint32_t depth) {
    const std::string counter = NewWord(), head = NewLabel(), end = NewLabel(), next = NewLabel();
    const char* sign = random_.Chance(75) ? "s" : "u";
    const bool is_up = random_.Chance(65);
    const std::string low = random_.Chance(60) ? std::to_string(random_.Below(3)) : Word(), high = WordOrConstant();
    const std::string step = random_.Chance(75) ? std::to_string(random_.Pick({1, 1, 1, 2, 3, 4})) : Word();
    const char* goes_on = random_.Chance(10)  ? "ne"
                          : random_.Chance(5) ? Comparison()
                          : is_up             ? random_.Pick<const char*>({"lt", "lt", "le"})
                                              : random_.Pick<const char*>({"gt", "gt", "ge"});
    const std::string bound = is_up ? high : low;
    std::string walking, stride;
    if (random_.Chance(40)) {
      walking = NewPointer();
      stride = NewLong();
      Line("mov.u64 {}, {};", walking, pointers_[random_.Below(static_cast<uint32_t>(pointers_.size()) - 1)]);
      if (random_.Chance(60)) {
        Line("mov.u64 {}, {};", stride, random_.Pick({16, 64, -16, -48, 256}));
      } else {
        Line("mul.wide.s32 {}, {}, 16;", stride, Word());
      }
    }
    Line("mov.u32 {}, {};", counter, is_up ? low : high);
    const auto test = [&](const char* where, const std::string& to, bool if_it_goes_on) {
      const std::string predicate = NewPredicate();
      Line("setp.{}.{}32 {}, {}, {};\n@{}{} bra {};{}", goes_on, sign, predicate, counter, bound,
           if_it_goes_on ? "" : "!", predicate, to, where);
    };
    const bool is_at_head = random_.Chance(40);
    if (!is_at_head && random_.Chance(60)) test("", end, false);
    Line("{}:", head);
    Line("add.f64 %rounds, %rounds, 0d3FF0000000000000;");
    const std::string over = NewPredicate();
    Line("setp.gt.f64 {}, %rounds, {}.0;\n@{} bra {};", over, kMostRounds, over, end);
    if (is_at_head) test("", end, false);
    Statements(random_.Between(1, 3), depth + 1);
    if (random_.Chance(60)) Access();
    if (random_.Chance(15)) Line("@{}{} bra {};", Not(), Guard(), random_.Chance(50) ? end : next);
    if (random_.Chance(30)) Statements(1, depth + 1);
    Line("{}:", next);
    if (!walking.empty()) Line("add.s64 {}, {}, {};", walking, walking, stride);
    Line("{}.s32 {}, {}, {};", is_up ? "add" : "sub", counter, counter, step);
    if (is_at_head) {
      Line("bra {};", head);
    } else {
      test("", head, true);
    }
    Line("{}:", end);
  }

  void Call() {
    if (num_functions_ == 0) return Access();
    const std::string pointer = random_.Pick(pointers_), b = Word(), c = Word();
    Line("{{\n.param .b64 pa;\n.param .b32 pb;\n.param .b32 pc;\n.param .b64 pp;\n.param .b64 pr;\n.param .b64 pback;");
    Line("st.param.b64 [pa], {};\nst.param.b32 [pb], {};\nst.param.b32 [pc], {};", pointer, b, c);
    Line("st.param.b64 [pp], %p;\nst.param.b64 [pr], %r;");
    Line("call.uni (pback), callee{}, (pa, pb, pc, pp, pr);", random_.Below(num_functions_));
    Line("ld.param.b64 {}, [pback];\n}}", NewPointer());
  }

  // A pointer goes into local memory, and one comes out.
  void Depot() {
    if (!has_depot_) return MovePointer();
    const std::string guard = random_.Chance(20) ? fmt::format("@{}{} ", Not(), Guard()) : "";
    const std::string from = random_.Pick(pointers_);
    const uint32_t place = random_.Below(4) * 8;
    if (random_.Chance(50)) {
      const std::string generic = NewLong();
      Line("cvta.local.u64 {0}, %depot;\n{1}st.u64 [{0}+{2}], {3};\nld.u64 {4}, [{0}+{5}];", generic, guard, place,
           from, NewPointer(), random_.Chance(60) ? place : random_.Below(4) * 8);
    } else {
      Line("{}st.local.u64 [%depot+{}], {};\nld.local.u64 {}, [%depot+{}];", guard, place, from, NewPointer(),
           random_.Chance(60) ? place : random_.Below(4) * 8);
    }
  }

  differential::RandomSource& random_;
  std::string code_;
  std::vector<std::string> words_, pointers_;
  uint32_t num_words_ = 0, num_pointers_ = 0, num_longs_ = 0, num_predicates_ = 0, num_labels_ = 0, num_functions_ = 0;
  bool has_depot_ = false;
};

}  // namespace

std::string RandomKernel(differential::RandomSource& random) { return KernelWriter(random).Write(); }

}  // namespace tally::ptx_transforms
