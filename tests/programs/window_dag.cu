// Random programs, one for each seed: kernels of several kinds over slices of a few arrays, copies, fills, memory that
// is freed and given out again, host functions, events between streams, captured graphs. The same step is played again
// and again with other numbers; now and then it has another shape. The reference plays it on the host, in the order of
// the program, which is one that the streams and events allow.
//
// PROGRAM_SEEDS=FIRST-LAST plays other seeds than the committed ones: more of them, or the one that failed.
#include "tests/programs/either_side.h"

using check::Results;
using check::Side;
using check::Where;

namespace {

constexpr int kArrays = 4, kSlices = 16, kSlice = 128, kPitch = 32;  // a slice is four rows of a matrix
constexpr int kStreams = 3, kCounters = 8;
constexpr int kSteps = 20, kOperations = 48, kGraphs = 3;

// Kernels of several names, so that one does not come again at once.
constexpr int kVariants = 4;
template <int kVariant>
struct Mix {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* a, const uint32_t* b, uint32_t k) {
    out[i] = a[i] * k + (b[i] >> (kVariant + 1)) + i;
  }
};
template <int kVariant>
struct InPlace {
  ONE_SIDED static void At(int i, uint32_t* words, uint32_t k) {
    words[i] = words[i] * (2 * k + 1) + i * (kVariant + 1);
  }
};
struct Store {
  ONE_SIDED static void At(int i, uint32_t* words, uint32_t k) { words[i] = k + i; }
};
struct Count {
  ONE_SIDED static void At(int i, uint32_t* counter, const uint32_t* in) { check::AddTo(counter, in[i]); }
};
struct FromCounter {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* counter) { out[i] ^= *counter + i; }
};
struct BothNeighbours {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* in, uint32_t k) {
    out[i] += in[i - 1] * k + in[i + 1];
  }
};
struct Tile {
  ONE_SIDED static void At(int i, uint32_t* first, int width, uint32_t k) {
    uint32_t& word = first[i / width * kPitch + i % width];
    word = word * (2 * k + 1) + i;
  }
};
struct EachThird {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* in, uint32_t k) { out[3 * i] = in[3 * i + 1] + k; }
};

enum class Action : uint8_t {
  kMix,
  kInPlace,
  kCount,
  kFromCounter,
  kNeighbours,
  kTile,
  kEachThird,
  kFill,
  kCopy,
  kScratch,
  kNewScratch,
  kOnHost,
  kRoundTrip,
  kGraph,
  kNumber
};
// How often of 64.
constexpr int kShares[] = {16, 8, 4, 3, 6, 7, 4, 3, 3, 3, 1, 2, 2, 2};
static_assert(sizeof(kShares) / sizeof(int) == static_cast<size_t>(Action::kNumber), "one for each");

struct Operation {
  Action action;
  int stream;
  int array[3], slice[3];
  uint32_t number;  // what it computes with, besides the step
};
using Program = std::vector<Operation>;

// What a program is made of. Wild ones change streams and do other things than launch all the time. Calm ones are long
// rows of kernels in one stream, with something else now and then.
enum class Style { kWild, kCalm, kKernelsOnly };

Operation RandomOperation(check::Random& random, Style style) {
  const auto below = [&random](int bound) { return static_cast<int>(random.Next() % static_cast<uint64_t>(bound)); };
  Operation one{};
  do {
    int at = below(64), action = 0;
    while (at >= kShares[action]) at -= kShares[action++];
    one.action = static_cast<Action>(action);
  } while ((style == Style::kKernelsOnly && one.action > Action::kCopy) ||
           (style == Style::kCalm && one.action > Action::kEachThird && below(12) != 0));
  one.stream = below(style == Style::kCalm ? 30 : 4) == 0 ? below(kStreams) : 0;
  for (int i = 0; i < 3; ++i) one.array[i] = below(kArrays), one.slice[i] = below(kSlices);
  one.number = static_cast<uint32_t>(below(1000));
  return one;
}
Program RandomProgram(check::Random& random, int num_operations, Style style) {
  Program program;
  while (program.size() < static_cast<size_t>(num_operations)) {
    program.push_back(RandomOperation(random, style));
  }
  return program;
}

struct HostCall {
  uint32_t* words;  // pinned
  uint32_t k;
};
void CUDART_CB OnHost(void* argument) {
  const HostCall* const call = static_cast<HostCall*>(argument);
  for (int i = 0; i < kSlice; ++i) call->words[i] = call->words[i] % 1000003 + call->k;
}

// Who touched a piece of memory last, so that a stream waits for the others that it has to follow.
struct Use {
  int stream = -1;
  int position = 0;
};
struct Piece {
  Use writer;
  Use readers[kStreams];
};

class Player {
 public:
  Player(Side& side, uint64_t seed) : side_(side) {
    for (int a = 0; a < kArrays; ++a) {
      // A word on either side, for the neighbours of the first and the last slice.
      memory_[a] = side.New(check::RandomIntegers<uint32_t>(kSlices * kSlice + 2, seed + a)) + 1;
    }
    counters_ = side.New(std::vector<uint32_t>(kCounters, 0));
    scratch_ = side.New(std::vector<uint32_t>(kSlice, 0));
    if (!side.is_device()) {
      pinned_on_host_.resize(kSlice);
      pinned_ = pinned_on_host_.data();
      return;
    }
    CHECK_CUDA(cudaMallocHost(&pinned_, kSlice * 4));
    for (cudaStream_t& stream : streams_) CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (cudaEvent_t& event : events_) CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  void Play(const Program& program, const std::vector<Program>& graphs, uint32_t step) {
    for (const Operation& one : program) PlayOne(one, graphs, step);
  }

  void End(Results& results) {
    if (side_.is_device()) CHECK_CUDA(cudaDeviceSynchronize());
    for (const uint32_t* words : memory_) side_.Show(results, "array", streams_[0], words - 1, kSlices * kSlice + 2);
    side_.Show(results, "counters", streams_[0], counters_, kCounters);
    for (uint32_t* words : memory_) side_.Free(words - 1);
    side_.Free(counters_);
    side_.Free(scratch_);
    if (!side_.is_device()) return;
    for (cudaGraphExec_t executable : executables_) {
      if (executable != nullptr) CHECK_CUDA(cudaGraphExecDestroy(executable));
    }
    for (cudaStream_t stream : streams_) CHECK_CUDA(cudaStreamDestroy(stream));
    for (cudaEvent_t event : events_) CHECK_CUDA(cudaEventDestroy(event));
    CHECK_CUDA(cudaFreeHost(pinned_));
  }

 private:
  // Pieces of memory: the slices of all arrays, the counters, the scratch memory, the pinned memory.
  static constexpr int kCountersPiece = kArrays * kSlices, kScratchPiece = kCountersPiece + 1,
                       kPinnedPiece = kCountersPiece + 2, kPieces = kCountersPiece + 3;
  struct Pieces {
    std::vector<int> read, written;
  };

  static int PieceOf(int array, int slice) { return array * kSlices + slice; }
  uint32_t* Slice(const Operation& one, int i) const { return memory_[one.array[i]] + one.slice[i] * kSlice; }

  static Pieces PiecesOf(const Operation& one) {
    const int to = PieceOf(one.array[0], one.slice[0]), from = PieceOf(one.array[1], one.slice[1]),
              other = PieceOf(one.array[2], one.slice[2]);
    switch (one.action) {
      case Action::kMix:
        return {{from, other}, {to}};
      case Action::kInPlace:
      case Action::kFill:
        return {{}, {to}};
      case Action::kCount:
        return {{from}, {kCountersPiece}};
      case Action::kFromCounter:
        return {{kCountersPiece}, {to}};
      case Action::kNeighbours: {
        Pieces pieces{{from}, {to}};
        if (one.slice[1] > 0) pieces.read.push_back(from - 1);
        if (one.slice[1] < kSlices - 1) pieces.read.push_back(from + 1);
        return pieces;
      }
      case Action::kTile: {
        Pieces pieces;
        for (int slice = 0; slice < kSlices; ++slice) {
          if (slice >= FirstRow(one) / 4 && slice <= (FirstRow(one) + Rows(one) - 1) / 4) {
            pieces.written.push_back(PieceOf(one.array[0], slice));
          }
        }
        return pieces;
      }
      case Action::kEachThird:
      case Action::kCopy:
        return {{from}, {to}};
      case Action::kScratch:
        return {{from}, {to, kScratchPiece}};
      case Action::kNewScratch:
        return {{}, {kScratchPiece}};
      case Action::kOnHost:
        return {{}, {kPinnedPiece}};
      case Action::kRoundTrip:
        return {{}, {to, kPinnedPiece}};
      default:
        return {};
    }
  }
  static int FirstRow(const Operation& one) { return one.slice[0] * 4 % (kSlices * 4 - 12); }
  static int Rows(const Operation& one) { return 1 + one.slice[1] % 12; }
  static int FirstColumn(const Operation& one) { return one.slice[2]; }
  static int Columns(const Operation& one) { return 1 + (one.slice[1] + one.slice[2]) % (kPitch - 16); }

  void Follow(int stream, const Use& use) {
    if (use.stream < 0 || use.stream == stream || waited_[stream][use.stream] >= use.position) return;
    cudaEvent_t& event = events_[use.stream];
    CHECK_CUDA(cudaEventRecord(event, streams_[use.stream]));
    CHECK_CUDA(cudaStreamWaitEvent(streams_[stream], event, 0));
    waited_[stream][use.stream] = positions_[use.stream];
  }
  // Events as they are needed, and no more.
  void Order(int stream, const Pieces& pieces) {
    if (!side_.is_device()) return;
    for (const int piece : pieces.read) Follow(stream, pieces_[piece].writer);
    for (const int piece : pieces.written) {
      Follow(stream, pieces_[piece].writer);
      for (const Use& reader : pieces_[piece].readers) Follow(stream, reader);
    }
    const int position = ++positions_[stream];
    for (const int piece : pieces.read) pieces_[piece].readers[stream] = {stream, position};
    for (const int piece : pieces.written) pieces_[piece].writer = {stream, position};
  }

  void PlayOne(const Operation& one, const std::vector<Program>& graphs, uint32_t step) {
    if (one.action == Action::kGraph) return PlayGraph(one, graphs);
    Order(one.stream, PiecesOf(one));
    Issue(one, streams_[one.stream], one.number + step);
  }

  void Issue(const Operation& one, cudaStream_t stream, uint32_t k) {
    uint32_t *const to = Slice(one, 0), *const from = Slice(one, 1);
    uint32_t* const counter = counters_ + one.number % kCounters;
    const bool is_same = to == from;
    switch (one.action) {
      case Action::kMix:
        return RunMix(stream, one.number, to, from, Slice(one, 2), k);
      case Action::kInPlace:
        return RunInPlace(stream, one.number, to, k);
      case Action::kCount:
        return side_.Run<Count>(stream, kSlice, counter, from);
      case Action::kFromCounter:
        return side_.Run<FromCounter>(stream, kSlice, to, counter);
      case Action::kNeighbours:
        // What it reads must not be what others of its threads write.
        if (one.array[0] == one.array[1]) return RunInPlace(stream, one.number, to, k);
        return side_.RunInBlocks<BothNeighbours>(stream, 32, kSlice, to, from, k);
      case Action::kTile:
        return side_.Run<Tile>(stream, Rows(one) * Columns(one),
                               memory_[one.array[0]] + FirstRow(one) * kPitch + FirstColumn(one), Columns(one), k);
      case Action::kEachThird:
        return side_.Run<EachThird>(stream, kSlice / 3, to, from, k);
      case Action::kFill:
        return side_.Fill(stream, to + 8, static_cast<uint8_t>(k), kSlice - 16);
      case Action::kCopy:
        if (!is_same) side_.Copy(stream, to + 3, from, kSlice - 3);
        return;
      case Action::kScratch: {
        uint32_t* const own = side_.NewInStream(stream, kSlice);
        side_.Run<Mix<0>>(stream, kSlice, own, from, from, k);
        side_.Run<Mix<0>>(stream, kSlice, scratch_, own, from, k + 1);
        side_.FreeInStream(stream, own);
        uint32_t* const next = side_.NewInStream(stream, kSlice);
        side_.Run<Mix<0>>(stream, kSlice, next, scratch_, scratch_, k + 2);
        side_.Run<Mix<0>>(stream, kSlice, to, next, scratch_, k);
        return side_.FreeInStream(stream, next);
      }
      case Action::kNewScratch: {
        side_.Free(scratch_);
        scratch_ = side_.New(kSlice);
        return side_.Run<Store>(stream, kSlice, scratch_, k);
      }
      case Action::kOnHost:
        return CallHost(stream, k);
      case Action::kRoundTrip:
        side_.Copy(stream, pinned_, to, kSlice);
        CallHost(stream, k);
        return side_.Copy(stream, to, pinned_, kSlice);
      default:
        return;
    }
  }

  template <int kVariant = 0>
  void RunMix(cudaStream_t stream, uint32_t number, uint32_t* out, const uint32_t* in, const uint32_t* other,
              uint32_t k) {
    if (number % kVariants == kVariant) return side_.Run<Mix<kVariant>>(stream, kSlice, out, in, other, k);
    if constexpr (kVariant + 1 < kVariants) RunMix<kVariant + 1>(stream, number, out, in, other, k);
  }
  template <int kVariant = 0>
  void RunInPlace(cudaStream_t stream, uint32_t number, uint32_t* words, uint32_t k) {
    if (number % kVariants == kVariant) return side_.Run<InPlace<kVariant>>(stream, kSlice, words, k);
    if constexpr (kVariant + 1 < kVariants) RunInPlace<kVariant + 1>(stream, number, words, k);
  }

  void CallHost(cudaStream_t stream, uint32_t k) {
    calls_.push_back(std::make_unique<HostCall>(HostCall{pinned_, k}));
    if (side_.is_device()) CHECK_CUDA(cudaLaunchHostFunc(stream, OnHost, calls_.back().get()));
    if (!side_.is_device()) OnHost(calls_.back().get());
  }

  // Captured when it is first wanted, with the numbers of no step; then launched again.
  void PlayGraph(const Operation& one, const std::vector<Program>& graphs) {
    const size_t which = one.number % graphs.size();
    Pieces all;
    for (const Operation& node : graphs[which]) {
      const Pieces pieces = PiecesOf(node);
      all.read.insert(all.read.end(), pieces.read.begin(), pieces.read.end());
      all.written.insert(all.written.end(), pieces.written.begin(), pieces.written.end());
    }
    const cudaStream_t stream = streams_[one.stream];
    Order(one.stream, all);
    if (!side_.is_device()) {
      for (const Operation& node : graphs[which]) Issue(node, stream, node.number);
      return;
    }
    cudaGraphExec_t& executable = executables_[which];
    if (executable == nullptr) {
      CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      for (const Operation& node : graphs[which]) Issue(node, stream, node.number);
      cudaGraph_t graph;
      CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
      CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
      CHECK_CUDA(cudaGraphDestroy(graph));
    }
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
  }

  Side& side_;
  uint32_t* memory_[kArrays];
  uint32_t *counters_, *scratch_, *pinned_;
  std::vector<uint32_t> pinned_on_host_;
  std::vector<std::unique_ptr<HostCall>> calls_;
  cudaStream_t streams_[kStreams] = {};
  cudaEvent_t events_[kStreams] = {};
  cudaGraphExec_t executables_[kGraphs] = {};
  Piece pieces_[kPieces];
  int positions_[kStreams] = {};         // operations so far
  int waited_[kStreams][kStreams] = {};  // by whom, of whom: up to which position
};

void Play(Where where, Results& results) {
  const check::Seeds seeds = check::SeedsToPlay({1, 6});
  for (unsigned seed = seeds.first; seed <= seeds.last; ++seed) {
    check::Random random(seed);
    const Style style = seed % 2 == 0 ? Style::kCalm : Style::kWild;
    Program program = RandomProgram(random, kOperations, style);
    std::vector<Program> graphs;
    for (int i = 0; i < kGraphs; ++i) graphs.push_back(RandomProgram(random, 3 + i, Style::kKernelsOnly));
    Side side(where);
    Player player(side, seed * 100);
    for (uint32_t step = 0; step < kSteps; ++step) {
      if (step % 7 == 5) {
        // Another shape, once; and every other time it stays so from its middle on.
        const Program other = RandomProgram(random, kOperations / 2, style);
        player.Play(other, graphs, step);
        if (step % 2 == 0) std::copy(other.begin(), other.end(), program.begin() + kOperations / 2);
        continue;
      }
      player.Play(program, graphs, step);
    }
    player.End(results);
  }
}

void Reference(Results& results) { Play(Where::kHost, results); }
void Device(Results& results) { Play(Where::kDevice, results); }

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
