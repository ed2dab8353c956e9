// Conversions between integers of all widths, float and double in all rounding modes; saturation at the ends; bits
// reinterpreted; rounding functions (floor, ceil, trunc, rint); min, max, abs and copysign with signed zeros.
#include <cfenv>
#include <cmath>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 800, kPerValue = 22;

std::vector<double> Source() {
  check::Random random(131);
  std::vector<double> values = {0.0,
                                -0.0,
                                0.5,
                                1.5,
                                2.5,
                                -0.5,
                                -1.5,
                                -2.5,
                                0.49999999999999994,
                                2147483647.0,
                                2147483648.0,
                                -2147483648.0,
                                4294967295.0,
                                9007199254740993.0,
                                1e10,
                                -1e10,
                                16777217.0,
                                33554435.0};
  while (values.size() < kCount) {
    double value = (static_cast<double>(random.Next() >> 11) - 4503599627370496.0) / 1048576.0;
    values.push_back(values.size() % 2 ? value / 65536.0 : value);
  }
  return values;
}

// cvt.*.s32 saturates; NaN does not occur here.
int64_t Saturate(double value, double low, double high) {
  return static_cast<int64_t>(value < low ? low : value > high ? high : value);
}

uint64_t BitsOf(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
uint64_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

uint64_t FloatBitsInMode(int mode, double value) {
  volatile double source = value;
  fesetround(mode);
  volatile float result = static_cast<float>(source);
  fesetround(FE_TONEAREST);
  return BitsOf(static_cast<float>(result));
}
uint64_t LongToFloatBits(int mode, int64_t value) {
  volatile int64_t source = value;
  fesetround(mode);
  volatile float result = static_cast<float>(source);
  fesetround(FE_TONEAREST);
  return BitsOf(static_cast<float>(result));
}

void Reference(Results& results) {
  std::vector<uint64_t> out;
  for (double v : Source()) {
    float f = static_cast<float>(v);
    int64_t whole = static_cast<int64_t>(v * 1000.0);
    out.insert(out.end(), {static_cast<uint64_t>(Saturate(std::trunc(v), -2147483648.0, 2147483647.0)),
                           static_cast<uint64_t>(Saturate(std::nearbyint(v), -2147483648.0, 2147483647.0)),
                           static_cast<uint64_t>(Saturate(std::floor(v), -2147483648.0, 2147483647.0)),
                           static_cast<uint64_t>(Saturate(std::ceil(v), -2147483648.0, 2147483647.0)),
                           static_cast<uint64_t>(Saturate(std::trunc(v), 0.0, 4294967295.0)),
                           static_cast<uint64_t>(Saturate(std::nearbyint(static_cast<double>(f)), -9.2e18, 9.2e18)),
                           FloatBitsInMode(FE_TONEAREST, v),
                           FloatBitsInMode(FE_TOWARDZERO, v),
                           FloatBitsInMode(FE_UPWARD, v),
                           FloatBitsInMode(FE_DOWNWARD, v),
                           LongToFloatBits(FE_TONEAREST, whole),
                           LongToFloatBits(FE_UPWARD, whole),
                           BitsOf(static_cast<double>(whole)),
                           BitsOf(std::floor(v)),
                           BitsOf(std::ceil(v)),
                           BitsOf(std::trunc(v)),
                           BitsOf(std::nearbyint(v)),
                           BitsOf(std::fabs(f)),
                           BitsOf(std::copysign(2.5f, f)),
                           static_cast<uint64_t>(static_cast<int8_t>(whole)) ^ static_cast<uint16_t>(whole),
                           BitsOf(std::fmin(v, 100.0)) ^ BitsOf(std::fmax(v, -100.0)),
                           static_cast<uint64_t>(std::signbit(v))});
  }
  results.Add("out", out);
}

__global__ void Convert(const double* in, uint64_t* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount) return;
  double v = in[i];
  float f = static_cast<float>(v);
  int64_t whole = static_cast<int64_t>(v * 1000.0);
  uint64_t* o = out + i * kPerValue;
  auto float_bits = [](float x) { return static_cast<uint64_t>(__float_as_uint(x)); };
  auto double_bits = [](double x) { return static_cast<uint64_t>(__double_as_longlong(x)); };
  o[0] = static_cast<uint64_t>(static_cast<int64_t>(__double2int_rz(v)));
  o[1] = static_cast<uint64_t>(static_cast<int64_t>(__double2int_rn(v)));
  o[2] = static_cast<uint64_t>(static_cast<int64_t>(__double2int_rd(v)));
  o[3] = static_cast<uint64_t>(static_cast<int64_t>(__double2int_ru(v)));
  o[4] = __double2uint_rz(v);
  o[5] = static_cast<uint64_t>(__float2ll_rn(f));
  o[6] = float_bits(__double2float_rn(v));
  o[7] = float_bits(__double2float_rz(v));
  o[8] = float_bits(__double2float_ru(v));
  o[9] = float_bits(__double2float_rd(v));
  o[10] = float_bits(__ll2float_rn(whole));
  o[11] = float_bits(__ll2float_ru(whole));
  o[12] = double_bits(__ll2double_rn(whole));
  o[13] = double_bits(floor(v));
  o[14] = double_bits(ceil(v));
  o[15] = double_bits(trunc(v));
  o[16] = double_bits(rint(v));
  o[17] = float_bits(fabsf(f));
  o[18] = float_bits(copysignf(2.5f, f));
  o[19] = static_cast<uint64_t>(static_cast<int8_t>(whole)) ^ static_cast<uint16_t>(whole);
  o[20] = double_bits(fmin(v, 100.0)) ^ double_bits(fmax(v, -100.0));
  o[21] = signbit(v) != 0;
}

void Device(Results& results) {
  check::DeviceBuffer<double> in(Source());
  check::DeviceBuffer<uint64_t> out(kCount * kPerValue);
  Convert<<<(kCount + 63) / 64, 64>>>(in.get(), out.get());
  CHECK_LAUNCH();
  results.Add("out", out.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
