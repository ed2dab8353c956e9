// fp16 and bfloat16: every 16-bit pattern converted to float and back, and sums, products and fused multiply-adds of
// pairs, compared bit for bit with a reference that rounds to nearest even once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kPairs = 8192;

// A 16-bit binary format with `kFractionBits` and 15 - kFractionBits exponent bits.
template <int kFractionBits>
struct Format {
  static constexpr int kExponentBits = 15 - kFractionBits, kBias = (1 << (kExponentBits - 1)) - 1;

  static double ToDouble(uint16_t bits) {
    int exponent = (bits >> kFractionBits) & ((1 << kExponentBits) - 1), fraction = bits & ((1 << kFractionBits) - 1);
    double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - kBias - kFractionBits)
                                     : std::ldexp(fraction + (1 << kFractionBits), exponent - kBias - kFractionBits);
    return bits & 0x8000 ? -magnitude : magnitude;
  }
  static bool IsFinite(uint16_t bits) {
    return ((bits >> kFractionBits) & ((1 << kExponentBits) - 1)) != (1 << kExponentBits) - 1;
  }
  // Rounds to nearest even; `value` must be exact.
  static uint16_t FromDouble(double value) {
    uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    double magnitude = std::fabs(value);
    int exponent = 0;
    if (magnitude > 0) std::frexp(magnitude, &exponent);
    int unit = std::max(exponent - 1, 1 - kBias) - kFractionBits;  // exponent of one unit in the last place
    double scaled = std::nearbyint(std::ldexp(magnitude, -unit));  // default mode: to nearest even
    double rounded = std::ldexp(scaled, unit);
    if (rounded >= std::ldexp(1.0, kBias + 1)) return sign | (((1 << kExponentBits) - 1) << kFractionBits);
    if (rounded == 0) return sign;
    std::frexp(rounded, &exponent);
    if (exponent - 1 < 1 - kBias) return sign | static_cast<uint16_t>(std::ldexp(rounded, kBias - 1 + kFractionBits));
    int fraction = static_cast<int>(std::ldexp(rounded, kFractionBits - (exponent - 1))) - (1 << kFractionBits);
    return sign | static_cast<uint16_t>(((exponent - 1 + kBias) << kFractionBits) | fraction);
  }
};
using Half = Format<10>;
using Bfloat = Format<7>;

struct Triple {
  uint16_t a, b, c;
};

// Finite values near enough to one another that sums and products are exact in double.
template <class F>
std::vector<Triple> Operands(uint64_t seed) {
  check::Random random(seed);
  std::vector<Triple> operands(kPairs);
  for (Triple& t : operands) {
    for (uint16_t* word : {&t.a, &t.b, &t.c}) {
      uint64_t bits = random.Next();
      int exponent = F::kBias - 8 + static_cast<int>((bits >> 20) % 16);
      *word = static_cast<uint16_t>((bits & 0x8000) | (exponent << (15 - F::kExponentBits)) |
                                    (bits & ((1 << (15 - F::kExponentBits)) - 1)));
    }
  }
  return operands;
}

template <class F>
void ReferenceOf(Results& results, uint64_t seed) {
  std::vector<float> floats;
  std::vector<uint16_t> back;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    bool finite = F::IsFinite(static_cast<uint16_t>(bits));
    floats.push_back(finite ? static_cast<float>(F::ToDouble(static_cast<uint16_t>(bits))) : 0.0f);
    back.push_back(finite ? static_cast<uint16_t>(bits) : 0);
  }
  results.Add("to float", floats);
  results.Add("and back", back);
  std::vector<uint16_t> out;
  for (const Triple& t : Operands<F>(seed)) {
    double a = F::ToDouble(t.a), b = F::ToDouble(t.b), c = F::ToDouble(t.c);
    out.insert(out.end(), {F::FromDouble(a + b), F::FromDouble(a * b), F::FromDouble(a * b + c)});
  }
  results.Add("sum, product, fused", out);
  std::vector<uint16_t> rounded;
  for (float value : check::RandomFloats(kPairs, seed + 1)) rounded.push_back(F::FromDouble(value * 3.0f));
  results.Add("rounded from float", rounded);
}

void Reference(Results& results) {
  ReferenceOf<Half>(results, 101);
  ReferenceOf<Bfloat>(results, 103);
}

__device__ float ToFloat(__half x) { return __half2float(x); }
__device__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ T FromFloat(float x);
template <>
__device__ __half FromFloat<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

template <class T>
__global__ void Convert(float* floats, T* back) {
  uint32_t bits = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned short word = static_cast<unsigned short>(bits);
  T value;
  memcpy(&value, &word, 2);
  float as_float = ToFloat(value);
  bool finite = isfinite(as_float);
  floats[bits] = finite ? as_float : 0.0f;
  back[bits] = finite ? FromFloat<T>(as_float) : FromFloat<T>(0.0f);
}

template <class T>
__global__ void Arithmetic(const T* in, T* out, const float* floats, T* rounded) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  T a = in[i * 3], b = in[i * 3 + 1], c = in[i * 3 + 2];
  out[i * 3] = __hadd_rn(a, b);
  out[i * 3 + 1] = __hmul_rn(a, b);
  out[i * 3 + 2] = __hfma(a, b, c);
  rounded[i] = FromFloat<T>(__fmul_rn(floats[i], 3.0f));
}

template <class T>
std::vector<uint16_t> Bits(const std::vector<T>& values) {
  std::vector<uint16_t> bits(values.size());
  memcpy(bits.data(), values.data(), values.size() * 2);
  return bits;
}

template <class T, class F>
void DeviceOf(Results& results, uint64_t seed) {
  check::DeviceBuffer<float> floats(65536);
  check::DeviceBuffer<T> back(65536);
  Convert<<<256, 256>>>(floats.get(), back.get());
  CHECK_LAUNCH();
  results.Add("to float", floats.Download());
  results.Add("and back", Bits(back.Download()));
  std::vector<Triple> operands = Operands<F>(seed);
  std::vector<T> in(kPairs * 3);
  memcpy(static_cast<void*>(in.data()), operands.data(), kPairs * 6);
  check::DeviceBuffer<T> in_device(in), out(kPairs * 3), rounded(kPairs);
  check::DeviceBuffer<float> sources(check::RandomFloats(kPairs, seed + 1));
  Arithmetic<<<kPairs / 128, 128>>>(in_device.get(), out.get(), sources.get(), rounded.get());
  CHECK_LAUNCH();
  results.Add("sum, product, fused", Bits(out.Download()));
  results.Add("rounded from float", Bits(rounded.Download()));
}

void Device(Results& results) {
  DeviceOf<__half, Half>(results, 101);
  DeviceOf<__nv_bfloat16, Bfloat>(results, 103);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
