// Many small kernels of one stream, in chains that have nothing to do with one another, issued in turns: the order
// within each chain is all that counts. One chain for each way in which two launches may touch the same memory. The
// same step comes again with other numbers, then with one kernel more.
#include "tests/programs/either_side.h"

using check::Results;
using check::Side;

namespace {

constexpr int kCount = 700;  // no multiple of a block
constexpr int kSlices = 6, kSlice = 96;
constexpr int kRows = 48, kPitch = 80;
constexpr uint32_t kSteps = 20;

struct Affine {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* in, uint32_t factor) { out[i] = in[i] * factor + i; }
};
// The only one of its kind: what looks for the beginning of a step that comes again finds it here.
struct Begin {
  ONE_SIDED static void At(int i, uint32_t* words, uint32_t step) { words[i] = words[i] * 3 + step; }
};
struct AffineInPlace {
  ONE_SIDED static void At(int i, uint32_t* words, uint32_t factor) { words[i] = words[i] * factor + 7u * i; }
};
struct Store {
  ONE_SIDED static void At(int i, uint32_t* out, uint32_t value) { out[i] = value + i; }
};
struct Accumulate {
  ONE_SIDED static void At(int i, uint32_t* sums, const uint32_t* in) { check::AddTo(&sums[i % 3], in[i]); }
};
struct Sum {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* a, const uint32_t* b) {
    out[i] = out[i] * 3 + a[i] + b[i];
  }
};
// `in` points into the middle of an array: the words before it and behind its end belong to neighbours.
struct BothNeighbours {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* in, uint32_t factor) {
    out[i] = in[i - 1] + in[i] * factor + in[i + 1] * 3;
  }
};
// A tile of a matrix, in place.
struct Tile {
  ONE_SIDED static void At(int i, uint32_t* first, int width, int pitch, uint32_t factor) {
    uint32_t& word = first[i / width * pitch + i % width];
    word = word * factor + i;
  }
};
// Every other word only.
struct Strided {
  ONE_SIDED static void At(int i, uint32_t* first, int stride, uint32_t factor) {
    first[i * stride] = first[i * stride] * factor + i;
  }
};
// Downwards from the end.
struct Backwards {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* end, uint32_t factor) {
    out[i] += *(end - 1 - i) * factor;
  }
};
// Pointers in a struct, and one in memory.
struct Pair {
  uint32_t* out;
  const uint32_t* in;
};
struct FromStruct {
  ONE_SIDED static void At(int i, Pair pair, uint32_t factor) { pair.out[i] += pair.in[i] * factor; }
};
struct PutPointer {
  ONE_SIDED static void At(int, Pair* to, uint32_t* out, const uint32_t* in) { *to = {out, in}; }
};
struct ThroughPointer {
  ONE_SIDED static void At(int i, const Pair* pair, uint32_t factor) {
    pair->out[i] = pair->out[i] * factor + pair->in[i];
  }
};
// Which words are written is in memory, too.
struct Scatter {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* index, uint32_t value) {
    out[index[i]] = value * (i + 1u);
  }
};

struct Arrays {
  explicit Arrays(Side& side) {
    const auto words = [&side](uint64_t seed, size_t count) {
      return side.New(check::RandomIntegers<uint32_t>(count, seed));
    };
    a = words(1, kCount), b = words(2, kCount), c = words(3, kCount), in_place = words(4, kCount),
    fresh = words(5, kCount);
    sums = words(6, 3), table = words(7, kCount), partial = words(8, kCount), strided = words(9, kCount);
    for (int i = 0; i < 4; ++i) readers[i] = words(10 + i, kCount);
    even = words(20, (kSlices + 2) * kSlice), odd = words(21, (kSlices + 2) * kSlice);
    matrix = words(22, kRows * kPitch);
    in_struct = words(23, kCount), by_pointer = words(24, kCount), scattered = words(26, kCount);
    pair = reinterpret_cast<Pair*>(side.New(sizeof(Pair) / 4));
    std::vector<uint32_t> order(kCount);
    for (uint32_t i = 0; i < kCount; ++i) order[i] = i * 9 % kCount;
    index = side.New(order);
  }
  uint32_t *a, *b, *c, *in_place, *fresh, *sums, *table, *partial, *strided, *readers[4], *even, *odd, *matrix,
      *in_struct, *by_pointer, *scattered, *index;
  Pair* pair;
};

// Lines that follow one another belong to different chains as a rule.
void Step(Side& side, cudaStream_t stream, const Arrays& m, uint32_t step) {
  const uint32_t k = 2 * step + 3;
  side.Run<Begin>(stream, kCount, m.a, step);
  side.Run<Affine>(stream, kCount, m.b, m.a, k);           // chain 1: b is read next
  side.Run<AffineInPlace>(stream, kCount, m.in_place, k);  // chain 2
  side.Run<Accumulate>(stream, kCount, m.sums, m.table);   // chain 3
  side.Run<Store>(stream, kCount, m.fresh, k);             // chain 4: overwritten next
  side.Run<Store>(stream, 200, m.partial + 100, k);        // chain 5
  for (int i = 0; i < 4; ++i) side.Run<Sum>(stream, kCount, m.readers[i], m.table, m.readers[i]);
  side.Run<Affine>(stream, kCount, m.c, m.b, k + 1);              // RAW
  side.Run<AffineInPlace>(stream, kCount, m.in_place, k + 2);     // in place again
  side.Run<Affine>(stream, kCount, m.b, m.a, k + 3);              // WAR against the reader of b, WAW against its writer
  side.Run<Store>(stream, kCount, m.fresh, k + 4);                // WAW
  side.Run<AffineInPlace>(stream, 150, m.partial + 250, k);       // overlaps the last 50 words of the store
  side.Run<AffineInPlace>(stream, 100, m.partial + 300, k);       // begins where that ended
  side.Run<Accumulate>(stream, kCount, m.sums, m.c);              // two atomics; c was written above
  side.Run<AffineInPlace>(stream, kCount, m.table, k);            // WAR against all readers of the table
  side.Run<Sum>(stream, kCount, m.readers[0], m.table, m.fresh);  // RAW against that, and against chain 4
  side.Run<AffineInPlace>(stream, 3, m.sums, k);                  // behind all atomics, before further ones
  side.Run<Accumulate>(stream, kCount, m.sums, m.in_place);

  // Slices of one array that look at their neighbours' edges, to and fro.
  for (int turn = 0; turn < 2; ++turn) {
    uint32_t* const from = turn == 0 ? m.even : m.odd;
    uint32_t* const to = turn == 0 ? m.odd : m.even;
    for (int i = 1; i <= kSlices; ++i) {
      side.RunInBlocks<BothNeighbours>(stream, 32, kSlice, to + i * kSlice, from + i * kSlice, k);
    }
  }
  // Tiles: beside one another in the same rows, overlapping in a corner, one in another.
  const auto tile = [&](int row, int column, int rows, int columns, uint32_t factor) {
    side.Run<Tile>(stream, rows * columns, m.matrix + row * kPitch + column, columns, kPitch, factor);
  };
  for (int column = 0; column < kPitch; column += 16) tile(0, column, 16, 16, k);
  tile(12, 10, 10, 12, k + 1);
  tile(20, 20, 10, 10, k + 2);
  tile(14, 14, 2, 2, k + 3);
  tile(16, 79, 32, 1, k + 4);
  tile(47, 0, 1, 80, k + 5);
  tile(21, 21, 8, 8, k + 6);

  side.Run<Strided>(stream, kCount / 2, m.strided, 2, k);
  side.Run<Strided>(stream, kCount / 2, m.strided + 1, 2, k + 1);  // the words between
  side.Run<Strided>(stream, kCount / 3, m.strided, 3, k + 2);      // some of both
  side.Run<Backwards>(stream, kCount, m.strided, m.a + kCount, k);
  side.Run<AffineInPlace>(stream, 1, m.a + kCount - 1, k);  // the last word, behind all who read it
  side.Run<AffineInPlace>(stream, 1, m.a, k);               // the first

  side.Run<FromStruct>(stream, kCount, Pair{m.in_struct, m.b}, k);
  side.Run<PutPointer>(stream, 1, m.pair, m.by_pointer, static_cast<const uint32_t*>(m.in_struct));
  side.Run<AffineInPlace>(stream, kCount, m.by_pointer, k);
  side.Run<ThroughPointer>(stream, kCount, static_cast<const Pair*>(m.pair), k);
  side.Run<AffineInPlace>(stream, kCount, m.by_pointer, k + 1);
  side.Run<AffineInPlace>(stream, kCount, m.in_struct, k + 1);
  side.Run<Scatter>(stream, kCount, m.scattered, m.index, k);
  side.Run<AffineInPlace>(stream, kCount, m.scattered, k);
  side.Run<Sum>(stream, kCount, m.scattered, m.by_pointer, m.in_struct);
}

void Play(Side& side, cudaStream_t stream, Results& results) {
  const Arrays m(side);
  for (uint32_t step = 0; step < kSteps; ++step) {
    Step(side, stream, m, step);
    if (step % 8 == 5) side.Run<AffineInPlace>(stream, kCount, m.c, step);  // a step of another shape
  }
  const auto show = [&](const char* name, const uint32_t* words, size_t count) {
    side.Show(results, name, stream, words, count);
  };
  show("read after write", m.c, kCount);
  show("write after read", m.b, kCount);
  show("write after write", m.fresh, kCount);
  show("in place", m.in_place, kCount);
  show("atomics", m.sums, 3);
  show("shared by readers", m.table, kCount);
  for (const uint32_t* reader : m.readers) show("reader", reader, kCount);
  show("partly overwritten", m.partial, kCount);
  show("edges of neighbours", m.even, (kSlices + 2) * kSlice);
  show("tiles", m.matrix, kRows * kPitch);
  show("strided", m.strided, kCount);
  show("edge words", m.a, kCount);
  show("pointers in a struct", m.in_struct, kCount);
  show("pointers in memory", m.by_pointer, kCount);
  show("scattered", m.scattered, kCount);
}

}  // namespace

int main(int argc, char** argv) { return check::RunOnEitherSide<Play>(argc, argv); }
