// Double and float operations that IEEE 754 rounds exactly: sum, product, quotient, square root, fused multiply-add,
// in the four rounding modes where the instruction has them; denormals, infinities, signed zeros, comparisons.
#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 600;
const int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};

template <class T>
std::vector<T> Operands(uint64_t seed) {
  check::Random random(seed);
  using L = std::numeric_limits<T>;
  std::vector<T> values = {0,
                           T(-0.0),
                           1,
                           -1,
                           L::min(),
                           L::denorm_min(),
                           -L::denorm_min() * 5,
                           L::max(),
                           -L::max(),
                           L::infinity(),
                           -L::infinity(),
                           L::epsilon(),
                           T(1) + L::epsilon(),
                           T(0.1),
                           T(1) / T(3)};
  while (values.size() < kCount) {
    T fraction = T(1) + static_cast<T>(random.Next() >> 11) / static_cast<T>(uint64_t{1} << 53);
    int exponent = static_cast<int>(random.Next() % (L::max_exponent * 2)) - L::max_exponent;
    values.push_back(
        std::ldexp(random.Next() % 2 ? fraction : -fraction, values.size() % 3 ? exponent % 30 : exponent));
  }
  return values;
}

// NaNs may differ in their payload: all become one.
template <class T>
T Canonical(T value) {
  return value != value ? T(-12345) : value;
}

// volatile: each operation happens here, in the rounding mode that is set, and not in the compiler.
template <class T>
void ReferenceOf(Results& results, uint64_t seed) {
  std::vector<T> operands = Operands<T>(seed), out;
  for (int i = 0; i < kCount; ++i) {
    volatile T a = operands[i], b = operands[(i * 7 + 3) % kCount], c = operands[(i * 11 + 5) % kCount], r;
    for (int mode : kModes) {
      fesetround(mode);
      r = a + b, out.push_back(Canonical<T>(r));
      r = a * b, out.push_back(Canonical<T>(r));
      r = a / b, out.push_back(Canonical<T>(r));
      T square = std::fabs(a);
      r = std::sqrt(square), out.push_back(Canonical<T>(r));
      r = std::fma(a, b, c), out.push_back(Canonical<T>(r));
    }
    fesetround(FE_TONEAREST);
    out.push_back(static_cast<T>((a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b)));
  }
  results.Add("out", out);
}

void Reference(Results& results) {
  ReferenceOf<double>(results, 121);
  ReferenceOf<float>(results, 122);
}

__device__ double Canonical(double value) { return value != value ? -12345.0 : value; }
__device__ float Canonical(float value) { return value != value ? -12345.0f : value; }

#define ONE_MODE(mode)                                                                        \
  __device__ void Compute_##mode(double a, double b, double c, double* out) {                 \
    out[0] = __dadd_##mode(a, b), out[1] = __dmul_##mode(a, b), out[2] = __ddiv_##mode(a, b); \
    out[3] = __dsqrt_##mode(fabs(a)), out[4] = __fma_##mode(a, b, c);                         \
  }                                                                                           \
  __device__ void Compute_##mode(float a, float b, float c, float* out) {                     \
    out[0] = __fadd_##mode(a, b), out[1] = __fmul_##mode(a, b), out[2] = __fdiv_##mode(a, b); \
    out[3] = __fsqrt_##mode(fabsf(a)), out[4] = __fmaf_##mode(a, b, c);                       \
  }
ONE_MODE(rn)
ONE_MODE(rz)
ONE_MODE(ru)
ONE_MODE(rd)

template <class T>
__global__ void Compute(const T* operands, T* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount) return;
  T a = operands[i], b = operands[(i * 7 + 3) % kCount], c = operands[(i * 11 + 5) % kCount];
  T* mine = out + i * 21;
  Compute_rn(a, b, c, mine);
  Compute_rz(a, b, c, mine + 5);
  Compute_ru(a, b, c, mine + 10);
  Compute_rd(a, b, c, mine + 15);
  for (int k = 0; k < 20; ++k) mine[k] = Canonical(mine[k]);
  mine[20] = static_cast<T>((a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b));
}

template <class T>
void DeviceOf(Results& results, uint64_t seed) {
  check::DeviceBuffer<T> operands(Operands<T>(seed)), out(kCount * 21);
  Compute<<<(kCount + 63) / 64, 64>>>(operands.get(), out.get());
  CHECK_LAUNCH();
  results.Add("out", out.Download());
}

void Device(Results& results) {
  DeviceOf<double>(results, 121);
  DeviceOf<float>(results, 122);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
