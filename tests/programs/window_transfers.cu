// Copies and fills between small kernels of one stream, of one row and of several, each of which has to come behind one
// other operation for one reason, and beside others that touch what lies between its rows; then random ones. The same
// step is played again and again with other numbers.
#include "tests/programs/either_side.h"

using check::Results;
using check::Side;

namespace {

constexpr int kRows = 24, kPitch = 32, kCount = kRows * kPitch;  // of a matrix of words
constexpr int kMatrices = 3;
constexpr uint32_t kSteps = 16;

struct Multiply {
  ONE_SIDED static void At(int i, uint32_t* words, uint32_t k) { words[i] = words[i] * (2 * k + 1) + i; }
};
struct Add {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* in) { out[i] = out[i] * 3 + in[i]; }
};
// Columns of a matrix: what it leaves alone is somebody else's.
struct Columns {
  ONE_SIDED static void At(int i, uint32_t* first, int width, uint32_t k) {
    uint32_t& word = first[i / width * kPitch + i % width];
    word = word * (2 * k + 1) + i;
  }
};

void FillBox(const Side& side, cudaStream_t stream, uint32_t* to, uint8_t value, int columns, int rows) {
  if (side.is_device()) CHECK_CUDA(cudaMemset2DAsync(to, kPitch * 4, value, columns * 4, rows, stream));
  for (int row = 0; row < rows && !side.is_device(); ++row) memset(to + row * kPitch, value, columns * 4);
}
void CopyBox(const Side& side, cudaStream_t stream, uint32_t* to, const uint32_t* from, int columns, int rows) {
  if (side.is_device()) {
    CHECK_CUDA(
        cudaMemcpy2DAsync(to, kPitch * 4, from, kPitch * 4, columns * 4, rows, cudaMemcpyDeviceToDevice, stream));
  }
  for (int row = 0; row < rows && !side.is_device(); ++row) {
    memcpy(to + row * kPitch, from + row * kPitch, columns * 4);
  }
}

using Matrices = uint32_t* const[kMatrices];

// One reason each, with the same memory used again at once.
void OneReasonEach(Side& side, cudaStream_t stream, const Matrices& m, uint32_t k) {
  side.Run<Multiply>(stream, 100, m[0], k);
  side.Copy(stream, m[1], m[0] + 50, 100);                    // reads what was written
  side.Run<Multiply>(stream, 100, m[0] + 60, k + 1);          // writes what is read
  side.Fill(stream, m[1] + 90, static_cast<uint8_t>(k), 40);  // writes what was written
  side.Run<Add>(stream, 120, m[2], m[1]);                     // reads what was filled
  side.Fill(stream, m[1] + 100, 1, 5);                        // writes what is read
  side.Copy(stream, m[1] + 200, m[1] + 99, 8);                // reads what was filled, from a fill
  side.Copy(stream, m[2] + 130, m[1] + 203, 3);               // reads what was copied
  side.Copy(stream, m[1] + 204, m[2], 2);                     // writes what a copy reads
  side.Run<Columns>(stream, kRows * 4, m[0] + 4, 4, k);
  FillBox(side, stream, m[0] + 8, static_cast<uint8_t>(k), 4, kRows);  // beside the columns
  CopyBox(side, stream, m[2] + 16, m[0] + 4, 8, kRows);                // of both
  side.Run<Columns>(stream, kRows * 4, m[0], 4, k + 1);                // beside what is copied
  FillBox(side, stream, m[2] + 20, 7, 8, kRows);                       // half of what was copied
  side.Run<Columns>(stream, kRows * 12, m[2] + 16, 12, k + 2);
  CopyBox(side, stream, m[0] + 9, m[2] + 17, 3, kRows - 1);
}

void AtRandom(Side& side, cudaStream_t stream, const Matrices& m, uint64_t seed, uint32_t step) {
  check::Random random(seed);
  const auto below = [&random](int bound) { return static_cast<int>(random.Next() % static_cast<uint64_t>(bound)); };
  for (int i = 0; i < 60; ++i) {
    const int a = below(kMatrices), b = (a + 1 + below(kMatrices - 1)) % kMatrices;
    const int row = below(kRows), column = below(kPitch), rows = 1 + below(kRows - row),
              columns = 1 + below(kPitch - column);
    const int first = row * kPitch + column, count = 1 + below(kCount - first);
    const uint32_t k = static_cast<uint32_t>(below(100)) + step;
    switch (below(7)) {
      case 0:
        side.Run<Multiply>(stream, count, m[a] + first, k);
        break;
      case 1:
        side.Run<Columns>(stream, rows * columns, m[a] + first, columns, k);
        break;
      case 2:
        side.Run<Add>(stream, count, m[a] + first, m[b] + first);
        break;
      case 3:
        side.Fill(stream, m[a] + first, static_cast<uint8_t>(k), count);
        break;
      case 4:
        side.Copy(stream, m[a] + first, m[b] + first, count);
        break;
      case 5:
        FillBox(side, stream, m[a] + first, 3, columns, rows);
        break;
      default:
        CopyBox(side, stream, m[a] + first, m[b] + first, columns, rows);
    }
  }
}

template <class PlayStep>
void Launched(const Side& side, cudaStream_t stream, uint32_t times, PlayStep step) {
  if (!side.is_device()) {
    for (uint32_t i = 0; i < times; ++i) step();
    return;
  }
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  step();
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  for (uint32_t i = 0; i < times; ++i) CHECK_CUDA(cudaGraphLaunch(executable, stream));
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaGraphDestroy(graph));
}

void Play(Side& side, cudaStream_t stream, Results& results) {
  uint32_t* m[kMatrices];
  for (int i = 0; i < kMatrices; ++i) m[i] = side.New(check::RandomIntegers<uint32_t>(kCount, i));
  const auto show = [&](const char* name) {
    for (const uint32_t* words : m) side.Show(results, name, stream, words, kCount);
  };
  for (uint32_t step = 0; step < kSteps; ++step) OneReasonEach(side, stream, m, step + 1);
  show("one reason each");
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    for (uint32_t step = 0; step < kSteps / 2; ++step) AtRandom(side, stream, m, seed, step);
    show("at random");
  }
  // Captured once.
  for (uint64_t seed = 7; seed <= 9; ++seed) {
    Launched(side, stream, kSteps, [&] {
      OneReasonEach(side, stream, m, static_cast<uint32_t>(seed));
      AtRandom(side, stream, m, seed, 0);
    });
    show("as a graph");
  }
  for (uint32_t* words : m) side.Free(words);
}

}  // namespace

int main(int argc, char** argv) { return check::RunOnEitherSide<Play>(argc, argv); }
