#include "tests/sim-driver/segments/random_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tally::ptx_transforms {
namespace {

class IndexKernel {
 public:
  explicit IndexKernel(differential::RandomSource& random) : random_(random) {}

  std::string Write() {
    for (const char* special : {"%tid.x", "%tid.y", "%ctaid.x", "%ntid.x", "%nctaid.x"})
      Line("mov.u32 {}, {};", NewWord(), special);
    for (const char* parameter : {"n", "m", "k"}) Line("ld.param.u32 {}, [{}];", NewWord(), parameter);
    Line("ld.param.u64 %p, [p];");
    Line("ld.param.u64 {}, [q];", NewLong());
    Line("mad.lo.u32 {}, {}, {}, {};", NewWord(), std::string(words_[2]), std::string(words_[3]),
         std::string(words_[0]));
    if (random_.Chance(40)) Line("ld.global.u32 {}, [%p];", NewWord());
    const uint32_t num_parts = random_.Between(1, 2);
    for (uint32_t part = 0; part < num_parts; ++part) {
      const bool has_loop = random_.Chance(50);
      const std::string counter = fmt::format("%loop{}", part);
      const bool ends_at_head = random_.Chance(50);
      if (has_loop) BeginLoop(part, counter, ends_at_head);
      for (uint32_t k = random_.Between(1, 5); k > 0; --k) Operation();
      if (random_.Chance(50)) Guard();
      Access();
      if (has_loop) EndLoop(part, counter, ends_at_head);
    }
    return fmt::format(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry index_kernel(.param .u64 p, .param .u32 n, "
        ".param .u32 m, .param .s32 k, .param .u64 q)\n{{\n.reg .b64 %p, %l<{}>, %bias;\n.reg .b32 %w<{}>, %loop<4>, "
        "%byte;\n.reg .b16 %h<{}>;\n.reg .f64 %wide, %rounds;\n.reg .pred %c<{}>, %in;\n{}ret;\n}}\n",
        longs_.size() + 1, num_words_ + 1, num_halves_ + 1, num_predicates_ + 1, code_);
  }

 private:
  template <typename... T>
  void Line(fmt::format_string<T...> format, T&&... arguments) {
    code_ += fmt::format(format, std::forward<T>(arguments)...) + "\n";
  }
  std::string NewWord() { return words_.emplace_back(fmt::format("%w{}", num_words_++)); }
  std::string NewLong() { return longs_.emplace_back(fmt::format("%l{}", longs_.size())); }
  std::string NewPredicate() { return fmt::format("%c{}", num_predicates_++); }
  // Those that were made last more often.
  std::string Word() {
    return random_.Chance(50) ? words_[words_.size() - 1 - random_.Below(std::min<uint32_t>(3, words_.size()))]
                              : random_.Pick(words_);
  }
  std::string Long() { return random_.Pick(longs_); }
  std::string Constant() { return std::to_string(static_cast<int32_t>(RandomSize(random_))); }
  std::string WordOrConstant() { return random_.Chance(50) ? Constant() : Word(); }
  const char* Sign() { return random_.Chance(50) ? "s" : "u"; }
  const char* Comparison() { return random_.Pick<const char*>({"lt", "le", "gt", "ge", "eq", "ne"}); }

  void Operation() {
    const std::string a = Word(), b = WordOrConstant();
    const char* sign = Sign();
    switch (random_.Below(22)) {
      case 0:
      case 1:
        return Line("add.{}32 {}, {}, {};", sign, NewWord(), a, b);
      case 2:
        return Line("sub.{}32 {}, {}, {};", sign, NewWord(), a, b);
      case 3:
      case 4:
        return Line("mul.lo.{}32 {}, {}, {};", sign, NewWord(), a, b);
      case 5:
        return Line("mad.lo.{}32 {}, {}, {}, {};", sign, NewWord(), a, b, WordOrConstant());
      case 6:
        return Line("shl.b32 {}, {}, {};", NewWord(), a, random_.Below(12));
      case 7:
        return Line("shr.{}32 {}, {}, {};", sign, NewWord(), a,
                    random_.Chance(20) ? Word() : std::to_string(random_.Below(34)));
      case 8:
        return Line("and.b32 {}, {}, {};", NewWord(), a,
                    random_.Chance(60) ? std::to_string((1u << random_.Below(12)) - 1) : b);
      case 9:
        return Line("and.b32 {}, {}, {};", NewWord(), a, -(1 << random_.Below(8)));
      case 10:
        return Line("or.b32 {}, {}, {};", NewWord(), a, random_.Chance(50) ? std::to_string(random_.Below(16)) : b);
      case 11:
        return Line("xor.b32 {}, {}, {};", NewWord(), a, random_.Chance(30) ? "-1" : b);
      case 12:
        return Line("{}.{}32 {}, {}, {};", random_.Chance(50) ? "min" : "max", sign, NewWord(), a, b);
      case 13:
        return Line("{}.{}32 {}, {}, {};", random_.Chance(50) ? "div" : "rem", sign, NewWord(), a,
                    random_.Between(1, 40));
      case 14:
        return Line("mul.hi.{}32 {}, {}, {};", sign, NewWord(), a, b);
      case 15: {
        const std::string predicate = NewPredicate();
        Line("setp.{}.{}32 {}, {}, {};", Comparison(), Sign(), predicate, Word(), WordOrConstant());
        if (random_.Chance(50)) return Line("selp.b32 {}, {}, {}, {};", NewWord(), a, b, predicate);
        const std::string old = Word(), to = NewWord();
        Line("mov.u32 {}, {};", to, old);
        return Line("@{}{} mov.u32 {}, {};", random_.Chance(50) ? "!" : "", predicate, to, b);
      }
      case 16: {
        const std::string half = fmt::format("%h{}", num_halves_++);
        Line("cvt.u16.u32 {}, {};", half, a);
        return Line("cvt.{}32.{}16 {}, {};", sign, random_.Chance(50) ? "s" : "u", NewWord(), half);
      }
      case 17:
        return Line("cvt.{}32.{}8 {}, {};", sign, sign, NewWord(), a);
      case 18:
        return Line("bfe.u32 {}, {}, {}, {};", NewWord(), a, random_.Below(20), random_.Below(12));
      case 19:
        return Line("{}.{}32 {}, {};", random_.Chance(50) ? "not" : "neg", random_.Chance(50) ? "b" : "b", NewWord(),
                    a);
      case 20:
        return Line("mul.wide.{}32 {}, {}, {};", sign, NewLong(), a, b);
      default: {
        const std::string from = Long();
        if (random_.Chance(50)) return Line("cvt.u32.u64 {}, {};", NewWord(), from);
        const std::string low = NewWord(), high = NewWord();
        return Line("mov.b64 {{{}, {}}}, {};", low, high, from);
      }
    }
  }

  // Plain ones, from which the analysis may learn.
  void Guard() {
    const std::string predicate = NewPredicate();
    Line("setp.{}.{}32 {}, {}, {};", Comparison(), Sign(), predicate, Word(), WordOrConstant());
    std::string deciding = predicate;
    if (random_.Chance(30)) {
      const std::string other = NewPredicate();
      deciding = NewPredicate();
      Line("setp.{}.{}32 {}, {}, {};", Comparison(), Sign(), other, Word(), WordOrConstant());
      Line("{}.pred {}, {}, {};", random_.Chance(50) ? "and" : "or", deciding, predicate, other);
    }
    if (random_.Chance(50)) {
      guard_ = fmt::format("{}{}", random_.Chance(50) ? "!" : "", deciding);
    } else {
      skip_ = fmt::format("SKIP{}", num_labels_++);
      Line("@{}{} bra {};", random_.Chance(50) ? "!" : "", deciding, skip_);
    }
  }

  // Bytes around p, if they lie in the arena: that is asked in floating point, of which the analysis knows nothing.
  void Access() {
    const std::string offset = NewLong();
    std::string index = Word();
    switch (random_.Below(5)) {
      case 0:
        Line("mul.wide.s32 {}, {}, {};", offset, index, random_.Pick({1, 2, 4, 8, 12, -4}));
        break;
      case 1:
        Line("mul.wide.u32 {}, {}, {};", offset, index, random_.Pick({1, 2, 4, 8, 12}));
        break;
      case 2:
        Line("cvt.{}64.{}32 {}, {};", random_.Chance(50) ? "s" : "u", Sign(), offset, index);
        break;
      case 3:
        Line("cvt.u64.u32 {}, {};\nshl.b64 {}, {}, {};", offset, index, offset, offset, random_.Below(4));
        break;
      default:
        Line("add.s64 {}, {}, {};", offset, Long(), random_.Below(64));
    }
    const std::string address = NewLong();
    Line("{}.s64 {}, %p, {};", random_.Chance(80) ? "add" : "sub", address, offset);
    const std::string in = NewLong();
    const int64_t displacement = random_.Chance(70) ? 0 : static_cast<int64_t>(random_.Below(256)) - 128;
    Line("sub.s64 {}, {}, %p;\nadd.s64 {}, {}, {};", in, address, in, in, displacement + int64_t{kArenaMiddle});
    Line("cvt.rn.f64.u64 %wide, {};\nsetp.lt.f64 %in, %wide, {}.0;", in, kArenaBytes);
    const std::string over = fmt::format("OVER{}", num_labels_++);
    Line("@!%in bra {};", over);
    if (!guard_.empty()) code_ += "@" + guard_ + " ";
    if (random_.Chance(70)) {
      Line("st.global.u8 [{}+{}], {};", address, displacement, words_[0]);
    } else {
      Line("ld.global.u8 %byte, [{}+{}];", address, displacement);
    }
    Line("{}:", over);
    if (!skip_.empty()) Line("{}:", skip_);
    guard_.clear();
    skip_.clear();
  }

  void BeginLoop(uint32_t part, const std::string& counter, bool ends_at_head) {
    words_before_ = words_.size();
    longs_before_ = longs_.size();
    loop_sign_ = Sign();
    loop_step_ = random_.Pick({1, 1, 2, 3, 4, 32, -1, -1, -2, -4});
    loop_bound_ = random_.Chance(50) ? Constant() : Word();
    const std::string start = WordOrConstant();
    Line("mov.u32 {}, {};\nmov.f64 %rounds, 0d0000000000000000;", counter, start);
    Line("HEAD{}:", part);
    // It ends soon, whatever its test says; the analysis does not follow floating point.
    Line("add.f64 %rounds, %rounds, 0d3FF0000000000000;\nsetp.gt.f64 %in, %rounds, 3000.0;\n@%in bra END{};", part);
    if (ends_at_head) LoopTest(part, counter, false);
    words_.push_back(counter);
  }
  // `goes_on`: branches back where the loop goes on; else out where it does not.
  void LoopTest(uint32_t part, const std::string& counter, bool goes_on) {
    const std::string predicate = NewPredicate();
    const char* comparison = random_.Chance(20)  ? "ne"
                             : random_.Chance(5) ? Comparison()
                             : loop_step_ > 0    ? random_.Pick<const char*>({"lt", "le"})
                                                 : random_.Pick<const char*>({"gt", "ge"});
    Line("setp.{}.{}32 {}, {}, {};", comparison, loop_sign_, predicate, counter, loop_bound_);
    Line("@{}{} bra {}{};", goes_on ? "" : "!", predicate, goes_on ? "HEAD" : "END", part);
  }
  void EndLoop(uint32_t part, const std::string& counter, bool ends_at_head) {
    Line("add.s32 {}, {}, {};", counter, counter, loop_step_);
    if (ends_at_head) {
      Line("bra HEAD{};", part);
    } else {
      LoopTest(part, counter, true);
    }
    Line("END{}:", part);
    if (random_.Chance(50)) {  // what the loop left in registers may still be used, if the loop surely ran
      if (!ends_at_head) return;
      words_.resize(words_before_);
      words_.push_back(counter);
    } else {
      words_.resize(words_before_);
    }
    longs_.resize(std::max(longs_before_, longs_.size()));
    for (size_t k = longs_before_; k < longs_.size(); ++k) longs_[k] = longs_[0];
  }

  differential::RandomSource& random_;
  std::string code_;
  std::vector<std::string> words_, longs_;
  size_t words_before_ = 0, longs_before_ = 0;
  uint32_t num_words_ = 0, num_predicates_ = 0, num_halves_ = 0, num_labels_ = 0;
  std::string guard_, skip_;
  const char* loop_sign_ = "s";
  int loop_step_ = 1;
  std::string loop_bound_;
};

}  // namespace

uint32_t RandomSize(differential::RandomSource& random) {
  switch (random.Below(8)) {
    case 0:
      return random.Next32();
    case 1:
      return 0u - random.Below(100);
    case 2:
      return (1u << random.Below(32)) + random.Below(3) - 1;
    case 3:
      return random.Below(5);
    case 4:
      return 0x80000000u + random.Below(64) - 32;
    default:
      return random.Below(300);
  }
}

std::string RandomIndexKernel(differential::RandomSource& random) { return IndexKernel(random).Write(); }

}  // namespace tally::ptx_transforms
