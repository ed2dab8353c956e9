// Memory that comes, goes and changes between small kernels of one stream: freed in mid-step and given out again at the
// same address with another size, filled and copied, variables of the module that copies and kernels change by name and
// by address.
#include "tests/programs/either_side.h"

using check::Results;
using check::Side;

namespace {

constexpr int kCount = 600;
constexpr uint32_t kSteps = 20;

__device__ uint32_t table[kCount];
__device__ uint32_t counter;
__constant__ uint32_t factors[4];

// The host's variables of these names.
struct Module {
  uint32_t table[kCount] = {};
  uint32_t counter = 0;
  uint32_t factors[4] = {};
};
Module on_host;

#ifdef __CUDA_ARCH__
#define VARIABLE(name) name
#else
#define VARIABLE(name) on_host.name
#endif

struct Store {
  ONE_SIDED static void At(int i, uint32_t* out, uint32_t value) { out[i] = value * (i + 1u); }
};
struct Add {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* in, uint32_t factor) {
    out[i] = out[i] * factor + in[i];
  }
};
struct Scale {
  ONE_SIDED static void At(int i, uint32_t* words) { words[i] = words[i] * VARIABLE(factors)[i & 3] + 1; }
};
struct IntoTable {
  ONE_SIDED static void At(int i, const uint32_t* in) { VARIABLE(table)[i] = VARIABLE(table)[i] * 5 + in[i]; }
};
struct FromTable {
  ONE_SIDED static void At(int i, uint32_t* out) { out[i] += VARIABLE(table)[i]; }
};
struct CountUp {
  ONE_SIDED static void At(int i, const uint32_t* in) { check::AddTo(&VARIABLE(counter), in[i] & 15); }
};
struct FromCounter {
  ONE_SIDED static void At(int i, uint32_t* out) { out[i] = out[i] * 3 + VARIABLE(counter); }
};

uint32_t* AddressOfTable(const Side& side) {
  if (!side.is_device()) return on_host.table;
  void* address = nullptr;
  CHECK_CUDA(cudaGetSymbolAddress(&address, table));
  return static_cast<uint32_t*>(address);
}

// From memory of the call's own frame: gone when the call returns.
void SetFactors(const Side& side, cudaStream_t stream, uint32_t k) {
  uint32_t values[4] = {k, k + 2, k + 4, k + 6};
  if (side.is_device()) {
    CHECK_CUDA(cudaMemcpyToSymbolAsync(factors, values, sizeof(values), 0, cudaMemcpyHostToDevice, stream));
  } else {
    memcpy(on_host.factors, values, sizeof(values));
  }
  memset(values, 0xff, sizeof(values));
}
void SetSomeFactors(const Side& side, cudaStream_t stream, const uint32_t* from) {
  if (side.is_device()) {
    CHECK_CUDA(cudaMemcpyToSymbolAsync(factors, from, 8, 4, cudaMemcpyDeviceToDevice, stream));
  } else {
    memcpy(on_host.factors + 1, from, 8);
  }
}
void SetCounter(const Side& side, cudaStream_t stream, uint32_t value) {
  if (side.is_device()) CHECK_CUDA(cudaMemcpyToSymbolAsync(counter, &value, 4, 0, cudaMemcpyHostToDevice, stream));
  if (!side.is_device()) on_host.counter = value;
}
void GetCounter(const Side& side, cudaStream_t stream, uint32_t* to) {
  if (side.is_device()) CHECK_CUDA(cudaMemcpyFromSymbolAsync(to, counter, 4, 0, cudaMemcpyDeviceToDevice, stream));
  if (!side.is_device()) *to = on_host.counter;
}

struct Arrays {
  explicit Arrays(Side& side) {
    const auto words = [&side](uint64_t seed) { return side.New(check::RandomIntegers<uint32_t>(kCount, seed)); };
    kept = words(1), filled = words(2), copied = words(3), scaled = words(4), tabled = words(5), counted = words(6);
  }
  uint32_t *kept, *filled, *copied, *scaled, *tabled, *counted;
};

// One after another at what is likely to be the same address. `of_stream`: cudaMallocAsync and cudaFreeAsync.
void ComeAndGo(Side& side, cudaStream_t stream, const Arrays& m, uint32_t k, bool of_stream) {
  for (int i = 0; i < 3; ++i) {
    const int count = kCount / (i + 1);
    uint32_t* const first = of_stream ? side.NewInStream(stream, count) : side.New(count);
    uint32_t* const second = of_stream ? side.NewInStream(stream, count) : side.New(count);
    side.Run<Store>(stream, count, first, k + i);
    side.Run<Store>(stream, count, second, k + i + 9);
    side.Run<Add>(stream, count, first, second, k);
    side.Run<Add>(stream, count, m.kept, first, k);
    side.Run<Scale>(stream, kCount, m.scaled);  // of no concern to the others
    if (of_stream) {
      side.FreeInStream(stream, second);
      side.FreeInStream(stream, first);
    } else {
      side.Free(first);
      side.Free(second);
    }
  }
  // One is freed while the other is in use: what comes next takes its place only.
  uint32_t* const stays = side.NewInStream(stream, kCount);
  uint32_t* const goes = side.NewInStream(stream, kCount);
  side.Run<Store>(stream, kCount, goes, k);
  side.Run<Store>(stream, kCount, stays, k + 1);
  side.Run<Add>(stream, kCount, m.kept, goes, k);
  side.FreeInStream(stream, goes);
  uint32_t* const comes = side.NewInStream(stream, kCount / 2);
  side.Run<Store>(stream, kCount / 2, comes, k + 2);
  side.Run<Add>(stream, kCount / 2, stays, comes, k);
  side.Run<Add>(stream, kCount, m.kept, stays, k);
  side.FreeInStream(stream, stays);
  side.FreeInStream(stream, comes);
}

void Step(Side& side, cudaStream_t stream, const Arrays& m, uint32_t step) {
  const uint32_t k = 2 * step + 3;
  uint32_t* const by_address = AddressOfTable(side);
  SetFactors(side, stream, k);
  side.Run<Scale>(stream, kCount, m.scaled);
  side.Run<Store>(stream, kCount, m.filled, k);
  side.Fill(stream, m.filled + 100, static_cast<uint8_t>(k), 200);  // behind the store
  side.Run<Add>(stream, kCount, m.copied, m.filled, k);
  side.Fill(stream, m.filled, 1, 50);                // behind its reader
  side.Copy(stream, m.copied + 300, m.copied, 250);  // behind its writer, before the next reader
  side.Run<Add>(stream, kCount, m.kept, m.copied, k);
  side.Copy(stream, m.copied, m.scaled, 40);
  SetFactors(side, stream, k + 1);  // behind the kernel that read them
  side.Run<Scale>(stream, kCount, m.scaled);
  SetSomeFactors(side, stream, m.copied);
  side.Run<Scale>(stream, kCount, m.scaled);

  // The same variable by its name and by its address.
  side.Run<IntoTable>(stream, kCount, m.scaled);
  side.Run<FromTable>(stream, kCount, m.tabled);
  side.Run<Add>(stream, kCount, by_address, m.kept, k);
  side.Run<FromTable>(stream, kCount, m.tabled);
  side.Run<IntoTable>(stream, kCount, m.tabled);
  side.Run<Add>(stream, kCount, m.kept, by_address, k);
  side.Fill(stream, by_address + 10, 3, 20);
  side.Run<FromTable>(stream, kCount, m.tabled);

  SetCounter(side, stream, k);
  side.Run<CountUp>(stream, kCount, m.kept);
  side.Run<CountUp>(stream, kCount, m.tabled);
  side.Run<FromCounter>(stream, kCount, m.counted);
  GetCounter(side, stream, m.counted + k);
  SetCounter(side, stream, k + 1);
  side.Run<FromCounter>(stream, kCount, m.counted);

  ComeAndGo(side, stream, m, k, /*of_stream=*/step % 4 != 0);
}

void Play(Side& side, cudaStream_t stream, Results& results) {
  const Arrays m(side);
  if (!side.is_device()) on_host = Module{};
  for (uint32_t step = 0; step < kSteps; ++step) Step(side, stream, m, step);
  const auto show = [&](const char* name, const uint32_t* words) { side.Show(results, name, stream, words, kCount); };
  show("freed and given out again", m.kept);
  show("filled", m.filled);
  show("copied", m.copied);
  show("constants", m.scaled);
  show("table by name", m.tabled);
  show("table by address", AddressOfTable(side));
  show("counter", m.counted);
}

}  // namespace

int main(int argc, char** argv) { return check::RunOnEitherSide<Play>(argc, argv); }
