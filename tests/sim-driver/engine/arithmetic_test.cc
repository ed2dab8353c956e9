// Arithmetic against the host: random and special operands through one-instruction kernels.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <functional>
#include <random>

#include "tests/sim-driver/engine/launcher.h"

namespace tally::sim_driver {
namespace {

constexpr size_t kCount = 1024;

template <typename T>
std::vector<T> Operands(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(kCount);
  for (T& value : values) {
    uint64_t bits = random();
    if (random() % 4 == 0) bits = static_cast<uint64_t>(static_cast<int64_t>(random() % 9) - 4);  // small
    if (random() % 16 == 0) bits = uint64_t{1} << (random() % (8 * sizeof(T)));
    if constexpr (std::is_floating_point_v<T>) {
      if (random() % 2 == 0) {
        value = static_cast<T>(static_cast<int64_t>(random() % 20001) - 10000) / T{64};
        continue;
      }
      bits = random();
      if (random() % 16 == 0) bits = sizeof(T) == 4 ? 0x7f800000 : 0x7ff0000000000000;
    }
    std::memcpy(&value, &bits, sizeof value);
  }
  return values;
}

// Runs `body` over three arrays of T and returns the results.
template <typename R, typename T>
std::vector<R> Evaluate(Launcher& launcher, const std::string& in, const std::string& in_register,
                        const std::string& out, const std::string& out_register, const std::string& body,
                        const std::vector<T>& a, const std::vector<T>& b, const std::vector<T>& c) {
  auto program = launcher.Load({ElementKernel(in, in_register, out, out_register, body)});
  if (!program) return std::vector<R>(kCount);
  EXPECT_EQ(program->kernels()[0].unsupported, "") << body;
  uint64_t result = launcher.Upload(std::vector<R>(kCount));
  auto fault = launcher.Run(launcher.Request(program, "k", {kCount / 128}, {128}, launcher.Upload(a),
                                             launcher.Upload(b), launcher.Upload(c), result));
  EXPECT_FALSE(fault) << fault->message;
  return launcher.Download<R>(result, kCount);
}

template <typename T>
bool Same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (a != a && b != b) return true;
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <typename R, typename T>
void Check(Launcher& launcher, const std::string& in, const std::string& in_register, const std::string& out,
           const std::string& out_register, const std::string& body, std::function<R(T, T, T)> expected) {
  auto a = Operands<T>(1), b = Operands<T>(2), c = Operands<T>(3);
  auto results = Evaluate<R>(launcher, in, in_register, out, out_register, body, a, b, c);
  for (size_t k = 0; k < kCount; ++k) {
    R value = expected(a[k], b[k], c[k]);
    ASSERT_TRUE(Same(results[k], value)) << body << " of " << +a[k] << ", " << +b[k] << ", " << +c[k] << " gave "
                                         << +results[k] << " rather than " << +value;
  }
}

class ArithmeticTest : public ::testing::Test {
 protected:
  void U32(const std::string& body, std::function<uint32_t(uint32_t, uint32_t, uint32_t)> f) {
    Check<uint32_t, uint32_t>(launcher_, "u32", "b32", "u32", "b32", body, f);
  }
  void S32(const std::string& body, std::function<int32_t(int32_t, int32_t, int32_t)> f) {
    Check<int32_t, int32_t>(launcher_, "u32", "b32", "u32", "b32", body, f);
  }
  void U64(const std::string& body, std::function<uint64_t(uint64_t, uint64_t, uint64_t)> f) {
    Check<uint64_t, uint64_t>(launcher_, "u64", "b64", "u64", "b64", body, f);
  }
  void S64(const std::string& body, std::function<int64_t(int64_t, int64_t, int64_t)> f) {
    Check<int64_t, int64_t>(launcher_, "u64", "b64", "u64", "b64", body, f);
  }
  void U16(const std::string& body, std::function<uint16_t(uint16_t, uint16_t, uint16_t)> f) {
    Check<uint16_t, uint16_t>(launcher_, "u16", "b16", "u16", "b16", body, f);
  }
  void F32(const std::string& body, std::function<float(float, float, float)> f) {
    Check<float, float>(launcher_, "f32", "f32", "f32", "f32", body, f);
  }
  void F64(const std::string& body, std::function<double(double, double, double)> f) {
    Check<double, double>(launcher_, "f64", "f64", "f64", "f64", body, f);
  }
  Launcher launcher_;
};

TEST_F(ArithmeticTest, Integers) {
  U32("add.u32 %d,%a,%b;", [](auto a, auto b, auto) { return a + b; });
  U32("sub.s32 %d,%a,%b;", [](auto a, auto b, auto) { return a - b; });
  S32("add.sat.s32 %d,%a,%b;", [](auto a, auto b, auto) {
    return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} + b, INT32_MIN, INT32_MAX));
  });
  U32("mul.lo.u32 %d,%a,%b;", [](auto a, auto b, auto) { return a * b; });
  U32("mul.hi.u32 %d,%a,%b;", [](auto a, auto b, auto) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); });
  S32("mul.hi.s32 %d,%a,%b;", [](auto a, auto b, auto) { return static_cast<int32_t>(int64_t{a} * b >> 32); });
  S64("mul.hi.s64 %d,%a,%b;",
      [](auto a, auto b, auto) { return static_cast<int64_t>(static_cast<__int128>(a) * b >> 64); });
  U64("mad.lo.u64 %d,%a,%b,%c;", [](auto a, auto b, auto c) { return a * b + c; });
  U32("mad.hi.u32 %d,%a,%b,%c;",
      [](auto a, auto b, auto c) { return static_cast<uint32_t>(uint64_t{a} * b >> 32) + c; });
  U16("mad.lo.u16 %d,%a,%b,%c;", [](auto a, auto b, auto c) { return static_cast<uint16_t>(uint32_t{a} * b + c); });
  S32("div.s32 %d,%a,%b;", [](auto a, auto b, auto) {
    return b == 0 ? -1 : b == -1 ? static_cast<int32_t>(0u - static_cast<uint32_t>(a)) : a / b;
  });
  U64("rem.u64 %d,%a,%b;", [](auto a, auto b, auto) { return b == 0 ? a : a % b; });
  S64("min.s64 %d,%a,%b;", [](auto a, auto b, auto) { return std::min(a, b); });
  U32("max.u32 %d,%a,%b;", [](auto a, auto b, auto) { return std::max(a, b); });
  U32("sad.u32 %d,%a,%b,%c;", [](auto a, auto b, auto c) { return c + (a < b ? b - a : a - b); });
  U32("abs.s32 %d,%a;", [](auto a, auto, auto) { return static_cast<int32_t>(a) < 0 ? 0 - a : a; });
  U32("dp4a.s32.u32 %d,%a,%b,%c;", [](auto a, auto b, auto c) {
    for (int k = 0; k < 4; ++k)
      c += static_cast<uint32_t>(static_cast<int8_t>(a >> 8 * k) * static_cast<uint8_t>(b >> 8 * k));
    return c;
  });
  Check<uint64_t, uint32_t>(launcher_, "u32", "b32", "u64", "b64",
                            "mul.wide.u32 %rd7,%a,%b; cvt.u64.u32 %rd8,%c; add.u64 %d,%rd7,%rd8;",
                            [](auto a, auto b, auto c) { return uint64_t{a} * b + c; });
  Check<int64_t, int32_t>(
      launcher_, "u32", "b32", "u64", "b64", "mul.wide.s32 %rd7,%a,%b; mad.wide.s32 %d,%b,%c,%rd7;",
      [](auto a, auto b, auto c) {
        return static_cast<int64_t>(static_cast<uint64_t>(int64_t{a} * b) + static_cast<uint64_t>(int64_t{b} * c));
      });
}

TEST_F(ArithmeticTest, CarryChains) {
  // 64-bit sums and products from 32-bit parts.
  std::string unpack = "mov.b64 {%r5,%r6},%a; mov.b64 {%r7,%r8},%b;";
  U64(unpack + "add.cc.u32 %r9,%r5,%r7; addc.u32 %r10,%r6,%r8; mov.b64 %d,{%r9,%r10};",
      [](auto a, auto b, auto) { return a + b; });
  U64(unpack + "sub.cc.u32 %r9,%r5,%r7; subc.u32 %r10,%r6,%r8; mov.b64 %d,{%r9,%r10};",
      [](auto a, auto b, auto) { return a - b; });
  U64(unpack +
          "mul.lo.u32 %r9,%r5,%r7; mul.hi.u32 %r10,%r5,%r7; mad.lo.cc.u32 %r11,%r5,%r8,%r10; madc.hi.u32 "
          "%r12,%r5,%r8,0; mad.lo.u32 %r11,%r6,%r7,%r11; mov.b64 %d,{%r9,%r11};",
      [](auto a, auto b, auto) { return a * b; });
}

TEST_F(ArithmeticTest, Bits) {
  U32("and.b32 %r5,%a,%b; or.b32 %r6,%r5,%c; xor.b32 %r7,%r6,%a; not.b32 %d,%r7;",
      [](auto a, auto b, auto c) { return ~(((a & b) | c) ^ a); });
  U32("lop3.b32 %d,%a,%b,%c,0xca;", [](auto a, auto b, auto c) { return (a & b) | (~a & c); });
  U32("shl.b32 %d,%a,%b;", [](auto a, auto b, auto) { return b > 31 ? 0 : a << b; });
  S64("cvt.u32.u64 %r5,%b; shr.s64 %d,%a,%r5;",
      [](auto a, auto b, auto) { return a >> std::min<uint32_t>(static_cast<uint32_t>(b), 63); });
  U64("cvt.u32.u64 %r5,%b; shr.u64 %d,%a,%r5;",
      [](auto a, auto b, auto) { return static_cast<uint32_t>(b) > 63 ? 0 : a >> static_cast<uint32_t>(b); });
  U32("shf.l.wrap.b32 %d,%a,%b,%c;",
      [](auto a, auto b, auto c) { return c % 32 == 0 ? b : b << c % 32 | a >> (32 - c % 32); });
  U32("shf.r.clamp.b32 %d,%a,%b,%c;",
      [](auto a, auto b, auto c) { return static_cast<uint32_t>((uint64_t{b} << 32 | a) >> std::min(c, 32u)); });
  U32("and.b32 %r5,%b,31; and.b32 %r6,%c,31; bfe.u32 %d,%a,%r5,%r6;",
      [](auto a, auto b, auto c) { return a >> b % 32 & ((1u << c % 32) - 1); });
  S32("bfe.s32 %d,%a,4,9;", [](auto a, auto, auto) { return a << 19 >> 23; });
  S32("bfe.s32 %d,%a,4,0;", [](auto, auto, auto) { return 0; });  // of no bits: without a sign, too
  U32("bfi.b32 %d,%a,%b,5,11;", [](auto a, auto b, auto) { return (b & ~(2047u << 5)) | (a & 2047) << 5; });
  U32("popc.b32 %r5,%a; clz.b32 %r6,%b; add.u32 %r7,%r5,%r6; brev.b32 %r8,%c; xor.b32 %d,%r7,%r8;",
      [](auto a, auto b, auto c) {
        uint32_t r = 0;
        for (int k = 0; k < 32; ++k) r |= (c >> k & 1) << (31 - k);
        return static_cast<uint32_t>(std::popcount(a) + std::countl_zero(b)) ^ r;
      });
  U32("bfind.u32 %d,%a;",
      [](auto a, auto, auto) { return a == 0 ? ~0u : 31 - static_cast<uint32_t>(std::countl_zero(a)); });
  S32("bfind.s32 %d,%a;", [](auto a, auto, auto) {
    uint32_t v = static_cast<uint32_t>(a < 0 ? ~a : a);
    return v == 0 ? -1 : 31 - std::countl_zero(v);
  });
  U32("prmt.b32 %d,%a,%b,0x7a41;", [](auto a, auto b, auto) {
    uint64_t v = uint64_t{b} << 32 | a;
    return static_cast<uint32_t>((v >> 8 & 0xff) | (v >> 32 & 0xff) << 8 | ((v >> 23 & 1) ? 0xff0000 : 0) |
                                 (v >> 56) << 24);
  });
  U64("{.reg .b16 %x<4>; mov.b64 {%x0,%x1,%x2,%x3},%a; mov.b64 %d,{%x3,%x2,%x1,%x0};}",
      [](auto a, auto, auto) { return a << 48 | (a & 0xffff0000) << 16 | (a >> 16 & 0xffff0000) | a >> 48; });
}

TEST_F(ArithmeticTest, ComparisonsAndPredicates) {
  U32("setp.lt.s32 %p1,%a,%b; setp.gt.and.u32 %p2|%p3,%b,%c,%p1; selp.b32 %r5,1,0,%p1; selp.b32 %r6,2,0,%p2; selp.b32 "
      "%r7,4,0,%p3; or.b32 %r5,%r5,%r6; or.b32 %d,%r5,%r7;",
      [](auto a, auto b, auto c) {
        bool p = static_cast<int32_t>(a) < static_cast<int32_t>(b);
        return (p ? 1u : 0) | (p && b > c ? 2u : 0) | (p && !(b > c) ? 4u : 0);
      });
  U32("setp.ne.u32 %p1,%a,0; setp.lo.u32 %p2,%b,%c; xor.pred %p3,%p1,%p2; not.pred %p4,%p3; mov.u32 %d,5; @%p4 add.u32 "
      "%d,%d,%a; @!%p1 mov.u32 %d,%c;",
      [](auto a, auto b, auto c) {
        bool p = a != 0, q = b < c;
        uint32_t d = 5;
        if (p == q) d += a;
        if (!p) d = c;
        return d;
      });
  Check<uint32_t, float>(
      launcher_, "f32", "f32", "u32", "b32",
      "setp.ltu.f32 %p1,%a,%b; setp.eq.f32 %p2,%b,%b; set.ge.u32.f32 %r5,%a,%c; selp.b32 %r6,1,0,%p1; selp.b32 "
      "%r7,2,0,%p2; add.u32 %r6,%r6,%r7; and.b32 %r5,%r5,4; add.u32 %d,%r5,%r6;",
      [](float a, float b, float c) { return (!(a >= b) ? 1u : 0) + (b == b ? 2u : 0) + (a >= c ? 4u : 0); });
}

TEST_F(ArithmeticTest, Floats) {
  F32("add.f32 %d,%a,%b;", [](float a, float b, float) { return a + b; });
  F32("mul.rn.f32 %d,%a,%b;", [](float a, float b, float) { return a * b; });
  F32("fma.rn.f32 %d,%a,%b,%c;", [](float a, float b, float c) { return std::fma(a, b, c); });
  F32("div.rn.f32 %d,%a,%b;", [](float a, float b, float) { return a / b; });
  F32("abs.f32 %f1,%a; sqrt.rn.f32 %d,%f1;", [](float a, float, float) { return std::sqrt(std::fabs(a)); });
  F32("neg.f32 %f1,%a; max.f32 %f2,%f1,%b; min.f32 %d,%f2,%c;",
      [](float a, float b, float c) { return std::fmin(std::fmax(-a, b), c); });
  F32("add.sat.f32 %d,%a,%b;", [](float a, float b, float) {
    float s = a + b;
    return s != s ? 0 : std::clamp(s, 0.0f, 1.0f) + 0.0f;
  });
  F64("fma.rn.f64 %d,%a,%b,%c;", [](double a, double b, double c) { return std::fma(a, b, c); });
  F64("div.rn.f64 %fd1,%a,%b; sub.f64 %d,%fd1,%c;", [](double a, double b, double c) { return a / b - c; });
}

TEST_F(ArithmeticTest, Roundings) {
  struct Mode {
    const char* name;
    int value;
  };
  for (Mode mode : {Mode{"rz", FE_TOWARDZERO}, Mode{"rm", FE_DOWNWARD}, Mode{"rp", FE_UPWARD}}) {
    auto rounded = [mode](auto compute) {
      std::fesetround(mode.value);
      volatile auto r = compute();
      std::fesetround(FE_TONEAREST);
      return r;
    };
    std::string m = mode.name;
    F32("add." + m + ".f32 %d,%a,%b;", [&](float a, float b, float) {
      volatile float x = a, y = b;
      return rounded([&] { return x + y; });
    });
    F32("div." + m + ".f32 %d,%a,%b;", [&](float a, float b, float) {
      volatile float x = a, y = b;
      return rounded([&] { return x / y; });
    });
    F64("mul." + m + ".f64 %d,%a,%b;", [&](double a, double b, double) {
      volatile double x = a, y = b;
      return rounded([&] { return x * y; });
    });
    Check<float, uint64_t>(launcher_, "u64", "b64", "f32", "f32", "cvt." + m + ".f32.u64 %d,%a;",
                           [&](uint64_t a, uint64_t, uint64_t) {
                             // One rounding by hand: __int128 is exact.
                             float near = static_cast<float>(a);
                             auto exact = static_cast<__int128>(a);
                             auto value = static_cast<__int128>(near);
                             if (value > exact && mode.value != FE_UPWARD) near = std::nextafter(near, 0.0f);
                             if (value < exact && mode.value == FE_UPWARD) near = std::nextafter(near, INFINITY);
                             return near;
                           });
  }
}

TEST_F(ArithmeticTest, FlushToZero) {
  std::vector<float> a(kCount, 1e-40f), b(kCount, 0.5f), c(kCount, -1.3e-38f);
  auto flushed = Evaluate<float>(launcher_, "f32", "f32", "f32", "f32",
                                 "add.ftz.f32 %f1,%a,0f00000000; mul.ftz.f32 %f2,%c,%b; add.f32 %d,%f1,%f2;", a, b, c);
  auto kept = Evaluate<float>(launcher_, "f32", "f32", "f32", "f32", "add.f32 %d,%a,0f00000000;", a, b, c);
  EXPECT_EQ(flushed[5], 0.0f);
  EXPECT_EQ(kept[5], 1e-40f);
}

TEST_F(ArithmeticTest, Approximations) {
  auto near = [&](const std::string& body, double (*f)(double), double scale) {
    std::vector<float> a(kCount), zero(kCount);
    for (size_t k = 0; k < kCount; ++k) a[k] = static_cast<float>(0.01 + scale * static_cast<double>(k) / kCount);
    auto results = Evaluate<float>(launcher_, "f32", "f32", "f32", "f32", body, a, zero, zero);
    for (size_t k = 0; k < kCount; ++k)
      ASSERT_NEAR(results[k], f(a[k]), 1e-6 * (1 + std::abs(f(a[k])))) << body << a[k];
  };
  near(
      "sin.approx.f32 %d,%a;", [](double x) { return std::sin(x); }, 6);
  near(
      "cos.approx.ftz.f32 %d,%a;", [](double x) { return std::cos(x); }, 6);
  near(
      "ex2.approx.ftz.f32 %d,%a;", [](double x) { return std::exp2(x); }, 20);
  near(
      "lg2.approx.f32 %d,%a;", [](double x) { return std::log2(x); }, 50);
  near(
      "rsqrt.approx.f32 %d,%a;", [](double x) { return 1 / std::sqrt(x); }, 50);
  near(
      "rcp.approx.f32 %d,%a;", [](double x) { return 1 / x; }, 50);
  near(
      "tanh.approx.f32 %d,%a;", [](double x) { return std::tanh(x); }, 4);
}

TEST_F(ArithmeticTest, Conversions) {
  Check<int32_t, float>(
      launcher_, "f32", "f32", "u32", "b32", "cvt.rzi.s32.f32 %d,%a;", [](float a, float, float) -> int32_t {
        return a != a ? 0 : a >= 2147483648.0f ? INT32_MAX : a <= -2147483648.0f ? INT32_MIN : static_cast<int32_t>(a);
      });
  Check<int32_t, float>(launcher_, "f32", "f32", "u32", "b32", "cvt.rzi.s16.f32 %rs1,%a; cvt.s32.s16 %d,%rs1;",
                        [](float x, float, float) -> int32_t {
                          return x != x ? 0 : static_cast<int32_t>(std::trunc(std::clamp(x, -32768.F, 32767.F)));
                        });
  S32("mov.f32 %f1,0f7FC00000; cvt.rzi.s16.f32 %rs1,%f1; cvt.s32.s16 %d,%rs1;", [](auto, auto, auto) { return 0; });
  S32("mov.f32 %f1,0f7FC00000; cvt.rzi.u8.f32 %rs1,%f1; cvt.u32.u16 %d,%rs1;", [](auto, auto, auto) { return 0; });
  Check<uint32_t, float>(
      launcher_, "f32", "f32", "u32", "b32", "cvt.rni.u32.f32 %d,%a;", [](float a, float, float) -> uint32_t {
        return a != a || a < 0 ? 0 : a >= 4294967296.0f ? UINT32_MAX : static_cast<uint32_t>(std::nearbyint(a));
      });
  Check<float, int32_t>(launcher_, "u32", "b32", "f32", "f32", "cvt.rn.f32.s32 %d,%a;",
                        [](int32_t a, int32_t, int32_t) { return static_cast<float>(a); });
  Check<double, uint64_t>(launcher_, "u64", "b64", "f64", "f64", "cvt.rn.f64.u64 %d,%a;",
                          [](uint64_t a, uint64_t, uint64_t) { return static_cast<double>(a); });
  Check<float, double>(launcher_, "f64", "f64", "f32", "f32", "cvt.rn.f32.f64 %d,%a;",
                       [](double a, double, double) { return static_cast<float>(a); });
  F32("cvt.rmi.f32.f32 %d,%a;", [](float a, float, float) { return std::floor(a); });
  S32("cvt.s8.s32 %rs1,%a; cvt.s32.s8 %d,%rs1;", [](auto a, auto, auto) -> int32_t { return static_cast<int8_t>(a); });
  S32("cvt.sat.u8.s32 %rs1,%a; cvt.u32.u16 %d,%rs1;",
      [](auto a, auto, auto) -> int32_t { return std::clamp(a, 0, 255); });
  S64("cvt.s32.s64 %r5,%a; cvt.s64.s32 %d,%r5;", [](auto a, auto, auto) -> int64_t { return static_cast<int32_t>(a); });
}

uint16_t HalfOf(double x) {  // round to nearest even, by _Float16
  auto h = static_cast<_Float16>(x);
  uint16_t bits = 0;
  std::memcpy(&bits, &h, 2);
  return (bits & 0x7fff) > 0x7c00 ? 0x7fff : bits;
}
double FromHalf(uint16_t bits) {
  _Float16 h;
  std::memcpy(&h, &bits, 2);
  return static_cast<double>(h);
}

TEST_F(ArithmeticTest, Halves) {
  U16("add.f16 %d,%a,%b;", [](auto a, auto b, auto) { return HalfOf(FromHalf(a) + FromHalf(b)); });
  U16("mul.f16 %d,%a,%b;", [](auto a, auto b, auto) { return HalfOf(FromHalf(a) * FromHalf(b)); });
  U16("fma.rn.f16 %d,%a,%b,%c;", [](auto a, auto b, auto c) {
    // Exact in long double but for sums 64 bits apart, which are sticky there.
    long double r = static_cast<long double>(FromHalf(a)) * FromHalf(b) + FromHalf(c);
    auto h = static_cast<_Float16>(r);
    uint16_t bits = 0;
    std::memcpy(&bits, &h, 2);
    return static_cast<uint16_t>((bits & 0x7fff) > 0x7c00 ? 0x7fff : bits);
  });
  U16("cvt.f32.f16 %f1,%a; cvt.rn.f16.f32 %d,%f1;",
      [](auto a, auto, auto) { return static_cast<uint16_t>((a & 0x7fff) > 0x7c00 ? 0x7fff : a); });
  Check<uint16_t, float>(launcher_, "f32", "f32", "u16", "b16", "cvt.rn.f16.f32 %d,%a;",
                         [](float a, float, float) { return HalfOf(a); });
  Check<uint16_t, double>(launcher_, "f64", "f64", "u16", "b16", "cvt.rn.f16.f64 %d,%a;",
                          [](double a, double, double) { return HalfOf(a); });
  Check<uint16_t, float>(launcher_, "f32", "f32", "u16", "b16", "cvt.rz.bf16.f32 %d,%a;",
                         [](float a, float, float) -> uint16_t {
                           if (a != a) return 0x7fff;
                           return static_cast<uint16_t>(std::bit_cast<uint32_t>(a) >> 16);
                         });
  U32("min.f16x2 %r5,%a,%b; add.f16x2 %d,%r5,%c;", [](auto a, auto b, auto c) {
    uint32_t r = 0;
    for (int k = 0; k < 2; ++k) {
      auto x = static_cast<uint16_t>(a >> 16 * k), y = static_cast<uint16_t>(b >> 16 * k),
           z = static_cast<uint16_t>(c >> 16 * k);
      double dx = FromHalf(x), dy = FromHalf(y);
      double m = dx != dx ? dy : dy != dy ? dx : dx == dy ? (x & 0x8000 ? dx : dy) : std::min(dx, dy);
      r |= uint32_t{HalfOf(m + FromHalf(z))} << 16 * k;
    }
    return r;
  });
}

}  // namespace
}  // namespace tally::sim_driver
