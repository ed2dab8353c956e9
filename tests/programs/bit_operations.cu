// Instructions on bits: count, find, reverse, funnel shift, byte permute, insert and extract fields, three-input logic,
// byte-wise dot products, averages, absolute differences, 24-bit multiplies, shifts by 32 and more.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 1000, kPerValue = 18;

std::vector<uint32_t> Source() {
  std::vector<uint32_t> values = check::RandomIntegers<uint32_t>(kCount * 3, 141);
  values[0] = 0, values[3] = ~0u, values[6] = 1, values[9] = 0x80000000u;
  return values;
}

uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    uint32_t nibble = selector >> (4 * i) & 15, byte = static_cast<uint32_t>(bytes >> (8 * (nibble & 7))) & 255;
    if (nibble & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
}

uint32_t Reverse(uint32_t x) {
  uint32_t result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1) << (31 - i);
  return result;
}

void Reference(Results& results) {
  std::vector<uint32_t> in = Source(), out;
  for (int i = 0; i < kCount; ++i) {
    uint32_t a = in[i * 3], b = in[i * 3 + 1], c = in[i * 3 + 2], shift = c % 70, position = b % 32, length = c % 33;
    uint64_t pair = static_cast<uint64_t>(b) << 32 | a;
    int32_t dot = static_cast<int32_t>(c);
    uint32_t unsigned_dot = c;
    for (int k = 0; k < 4; ++k) {
      dot += static_cast<int8_t>(a >> (8 * k)) * static_cast<int8_t>(b >> (8 * k));
      unsigned_dot += (a >> (8 * k) & 255) * (b >> (8 * k) & 255);
    }
    uint64_t field = (static_cast<uint64_t>(a) >> position) & ((uint64_t{1} << length) - 1);
    uint64_t mask = (((uint64_t{1} << length) - 1) << position) & 0xffffffffu;
    int32_t sa = static_cast<int32_t>(a), sb = static_cast<int32_t>(b);
    out.insert(
        out.end(),
        {static_cast<uint32_t>(__builtin_popcount(a)), static_cast<uint32_t>(a ? __builtin_clz(a) : 32),
         static_cast<uint32_t>(__builtin_ffs(sa)), Reverse(a), static_cast<uint32_t>(pair >> (c & 31)),
         static_cast<uint32_t>((pair << (c & 31)) >> 32), PermuteBytes(a, b, c & 0xffff), static_cast<uint32_t>(field),
         static_cast<uint32_t>((a & ~mask) | ((static_cast<uint64_t>(b) << position) & mask)), (a & b) | (~a & c),
         static_cast<uint32_t>(dot), unsigned_dot, static_cast<uint32_t>((static_cast<uint64_t>(a) + b) >> 1),
         static_cast<uint32_t>(sa > sb ? static_cast<int64_t>(sa) - sb : static_cast<int64_t>(sb) - sa) + c,
         (a & 0xffffff) * (b & 0xffffff), shift > 31 ? 0 : a << shift,
         static_cast<uint32_t>(sa >> (shift > 31 ? 31 : shift)), shift > 31 ? 0 : a >> shift});
  }
  results.Add("out", out);
}

__global__ void Compute(const uint32_t* in, uint32_t* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount) return;
  uint32_t a = in[i * 3], b = in[i * 3 + 1], c = in[i * 3 + 2], shift = c % 70, position = b % 32, length = c % 33;
  uint32_t* o = out + i * kPerValue;
  o[0] = __popc(a);
  o[1] = __clz(static_cast<int>(a));
  o[2] = __ffs(static_cast<int>(a));
  o[3] = __brev(a);
  o[4] = __funnelshift_r(a, b, c);
  o[5] = __funnelshift_l(a, b, c);
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(o[6]) : "r"(a), "r"(b), "r"(c & 0xffff));
  asm("bfe.u32 %0, %1, %2, %3;" : "=r"(o[7]) : "r"(a), "r"(position), "r"(length));
  asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(o[8]) : "r"(b), "r"(a), "r"(position), "r"(length));
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(o[9]) : "r"(a), "r"(b), "r"(c));
  o[10] = static_cast<uint32_t>(__dp4a(static_cast<int>(a), static_cast<int>(b), static_cast<int>(c)));
  o[11] = __dp4a(a, b, c);
  o[12] = __uhadd(a, b);
  o[13] = __sad(static_cast<int>(a), static_cast<int>(b), c);
  o[14] = __umul24(a, b);
  asm("shl.b32 %0, %1, %2;" : "=r"(o[15]) : "r"(a), "r"(shift));
  asm("shr.s32 %0, %1, %2;" : "=r"(o[16]) : "r"(a), "r"(shift));
  asm("shr.u32 %0, %1, %2;" : "=r"(o[17]) : "r"(a), "r"(shift));
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> in(Source()), out(kCount * kPerValue);
  Compute<<<(kCount + 127) / 128, 128>>>(in.get(), out.get());
  CHECK_LAUNCH();
  results.Add("out", out.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
