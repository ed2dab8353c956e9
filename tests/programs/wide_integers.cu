// Integer arithmetic wider than a register: 64- and 128-bit products and quotients, carry chains in PTX (add.cc, addc,
// mad.lo.cc, madc.hi), and a 256-bit product by rows.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 1500;
using Wide = unsigned __int128;

std::vector<uint64_t> Source() { return check::RandomIntegers<uint64_t>(kCount * 8, 111); }

// 4 x 64 bits times 4 x 64 bits, all 8 words.
__host__ __device__ inline void Multiply256(const uint64_t* a, const uint64_t* b, uint64_t* out) {
  for (int i = 0; i < 8; ++i) out[i] = 0;
  for (int i = 0; i < 4; ++i) {
    uint64_t carry = 0;
    for (int k = 0; k < 4; ++k) {
      Wide sum = static_cast<Wide>(a[i]) * b[k] + out[i + k] + carry;
      out[i + k] = static_cast<uint64_t>(sum);
      carry = static_cast<uint64_t>(sum >> 64);
    }
    out[i + 4] = carry;
  }
}

void Reference(Results& results) {
  std::vector<uint64_t> in = Source(), out;
  for (int i = 0; i < kCount; ++i) {
    const uint64_t* x = &in[i * 8];
    int64_t s = static_cast<int64_t>(x[0]), t = static_cast<int64_t>(x[1] >> (i % 50)) | 1;
    out.push_back(x[0] * x[1]);
    out.push_back(static_cast<uint64_t>((static_cast<Wide>(x[0]) * x[1]) >> 64));
    out.push_back(static_cast<uint64_t>((static_cast<__int128>(s) * t) >> 64));
    out.push_back(x[2] / (x[3] >> (i % 60) | 1));
    out.push_back(static_cast<uint64_t>(s % t));
    Wide a = static_cast<Wide>(x[0]) << 64 | x[1], b = static_cast<Wide>(x[2]) << 64 | x[3];
    Wide sum = a + b, difference = a - b;
    out.push_back(static_cast<uint64_t>(sum >> 64) ^ static_cast<uint64_t>(sum));
    out.push_back(static_cast<uint64_t>(difference >> 64) ^ static_cast<uint64_t>(difference));
    // 32-bit words: (x * y + z) of 64 bits, from halves.
    uint32_t x0 = static_cast<uint32_t>(x[4]), y0 = static_cast<uint32_t>(x[5]);
    out.push_back(static_cast<uint64_t>(x0) * y0 + x[6]);
    uint64_t product[8];
    Multiply256(x, x + 4, product);
    uint64_t hash = 0;
    for (uint64_t word : product) hash = hash * 0x100000001b3ull + word;
    out.push_back(hash);
  }
  results.Add("out", out);
}

__global__ void Compute(const uint64_t* in, uint64_t* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount) return;
  const uint64_t* x = in + i * 8;
  uint64_t* o = out + i * 9;
  int64_t s = static_cast<int64_t>(x[0]), t = static_cast<int64_t>(x[1] >> (i % 50)) | 1;
  o[0] = x[0] * x[1];
  o[1] = __umul64hi(x[0], x[1]);
  o[2] = static_cast<uint64_t>(__mul64hi(s, t));
  o[3] = x[2] / (x[3] >> (i % 60) | 1);
  o[4] = static_cast<uint64_t>(s % t);
  uint64_t low, high;
  asm("add.cc.u64 %0, %2, %3; addc.u64 %1, %4, %5;"
      : "=&l"(low), "=l"(high)
      : "l"(x[1]), "l"(x[3]), "l"(x[0]), "l"(x[2]));
  o[5] = low ^ high;
  asm("sub.cc.u64 %0, %2, %3; subc.u64 %1, %4, %5;"
      : "=&l"(low), "=l"(high)
      : "l"(x[1]), "l"(x[3]), "l"(x[0]), "l"(x[2]));
  o[6] = low ^ high;
  uint32_t x0 = static_cast<uint32_t>(x[4]), y0 = static_cast<uint32_t>(x[5]), product_low, product_high;
  asm("mad.lo.cc.u32 %0, %2, %3, %4; madc.hi.u32 %1, %2, %3, %5;"
      : "=&r"(product_low), "=r"(product_high)
      : "r"(x0), "r"(y0), "r"(static_cast<uint32_t>(x[6])), "r"(static_cast<uint32_t>(x[6] >> 32)));
  o[7] = static_cast<uint64_t>(product_high) << 32 | product_low;
  uint64_t product[8], hash = 0;
  Multiply256(x, x + 4, product);
  for (uint64_t word : product) hash = hash * 0x100000001b3ull + word;
  o[8] = hash;
}

void Device(Results& results) {
  check::DeviceBuffer<uint64_t> in(Source()), out(kCount * 9);
  Compute<<<(kCount + 63) / 64, 64>>>(in.get(), out.get());
  CHECK_LAUNCH();
  results.Add("out", out.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
