// Random programs, one for each seed, about who comes behind whom: streams of all kinds (legacy, blocking,
// non-blocking, with priorities, a thread's own), work of all kinds, and all ways to have one thing come behind
// another. There is as much order as the next operation needs, and no more: of what orders enough already nothing is
// said twice, and what is needed comes from an event, from a wait of the host, or from what CUDA promises without being
// asked. So an order that somebody forgets to keep gives other numbers.
//
// PROGRAM_SEEDS=FIRST-LAST plays other seeds than the committed ones: more of them, or the one that failed.
#include <algorithm>
#include <array>
#include <mutex>
#include <thread>

#include "tests/programs/either_side.h"

using check::Results;
using check::Side;
using check::Where;

namespace {

// The end of each array is what is computed with; the rest makes copies long.
constexpr int kWords = 320 << 10, kTail = 256;
constexpr int kArrays = 5, kPinned = 3, kPieces = kArrays + kPinned;
constexpr int kOperations = 120, kMaxStreams = 48;

struct Mix {
  ONE_SIDED static void At(int i, uint32_t* out, const uint32_t* a, const uint32_t* b, uint32_t k, int pause) {
#ifdef __CUDA_ARCH__
    for (int n = 0; n < pause; ++n) __nanosleep(2000);
#else
    (void)pause;
#endif
    out[i] = out[i] * (2 * k + 1) + (a[i] >> 3) + b[i] * k + i;
  }
};

enum class Action : uint8_t {
  kMix,
  kMixPinned,  // a kernel that works on pinned memory itself
  kFill,
  kCopy,
  kUpload,          // from pinned memory
  kDownload,        // into pinned memory
  kUploadPageable,  // asynchronous; the source changes right behind the call
  kOnHost,          // a host function, on pinned memory
  kOfHost,          // the program itself, on pinned memory
  kPooled,          // memory from a pool, for a moment
  kAllocated,       // the same with cudaMalloc and cudaFree
  kGraph,
  // Blocking ones, on the legacy stream.
  kUploadNow,       // from pinned memory
  kDownloadNow,     // into pinned memory
  kFillPinned,      // cudaMemset
  kBlockingUpload,  // from pageable memory
  kBlockingBox,     // the same with cudaMemcpy2D
  kBlockingRead,    // into pageable memory: a result
  kNumber
};
// How often of 64.
constexpr int kShares[] = {18, 3, 4, 4, 4, 4, 3, 3, 3, 3, 2, 4, 1, 1, 1, 4, 1, 1};
static_assert(sizeof(kShares) / sizeof(int) == static_cast<size_t>(Action::kNumber), "one for each");
bool IsBlocking(Action action) { return action >= Action::kUploadNow; }

struct Operation {
  Action action = Action::kMix;
  int to = 0, from = 0, other = 0, pinned = 0;  // arrays, and a piece of pinned memory
  uint32_t number = 0;
  int length = 0;  // of copies: which of kLengths
  int pause = 0;
  std::vector<Operation> nodes;  // of a graph
};
// In words: inline in a request, longer, longer than what the program's copies go through at once.
constexpr int kLengths[] = {kTail, 20 << 10, 90 << 10, kWords};

Operation RandomOperation(check::Random& random, bool in_graph) {
  const auto below = [&random](int bound) { return static_cast<int>(random.Next() % static_cast<uint64_t>(bound)); };
  Operation one;
  do {
    int at = below(64), action = 0;
    while (at >= kShares[action]) at -= kShares[action++];
    one.action = static_cast<Action>(action);
  } while (in_graph && one.action > Action::kDownload);
  one.to = below(kArrays), one.other = below(kArrays), one.pinned = below(kPinned);
  one.from = (one.to + 1 + below(kArrays - 1)) % kArrays;  // copies do not overlap
  one.number = static_cast<uint32_t>(below(1000)) + 1;
  one.length = below(4);
  one.pause = below(3) == 0 ? below(12) : 0;
  if (one.action == Action::kGraph) {
    for (int n = 2 + below(5); n > 0; --n) one.nodes.push_back(RandomOperation(random, true));
  }
  return one;
}

struct Pieces {
  std::vector<int> read, written;
};
int PieceOfPinned(int pinned) { return kArrays + pinned; }
Pieces PiecesOf(const Operation& one) {
  const int pinned = PieceOfPinned(one.pinned);
  switch (one.action) {
    case Action::kMix:
    case Action::kPooled:
    case Action::kAllocated:
      return {{one.from, one.other}, {one.to}};
    case Action::kMixPinned:
      return {{one.from, one.other}, {pinned}};
    case Action::kCopy:
      return {{one.from}, {one.to}};
    case Action::kUpload:
    case Action::kUploadNow:
      return {{pinned}, {one.to}};
    case Action::kDownload:
    case Action::kDownloadNow:
      return {{one.from}, {pinned}};
    case Action::kBlockingRead:
      return {{one.from}, {}};
    case Action::kOnHost:
    case Action::kOfHost:
    case Action::kFillPinned:
      return {{}, {pinned}};
    case Action::kGraph: {
      Pieces all;
      for (const Operation& node : one.nodes) {
        const Pieces pieces = PiecesOf(node);
        all.read.insert(all.read.end(), pieces.read.begin(), pieces.read.end());
        all.written.insert(all.written.end(), pieces.written.begin(), pieces.written.end());
      }
      return all;
    }
    default:
      return {{}, {one.to}};
  }
}

// ---------------------------------------------------------------- what is ordered

// Of each stream: how many of its operations come before something.
using Clock = std::array<int, kMaxStreams>;
void Join(Clock* clock, const Clock& other) {
  for (int s = 0; s < kMaxStreams; ++s) (*clock)[s] = std::max((*clock)[s], other[s]);
}

enum class Kind : uint8_t { kLegacy, kBlocking, kNonBlocking, kOwn };

struct Stream {
  Kind kind = Kind::kBlocking;
  bool is_there = false;
  cudaStream_t handle = nullptr;
  Clock next{};  // what comes before its next operation
  Clock done{};  // what has happened when its last operation has
  int num_put = 0;
  bool is_blocking() const { return kind == Kind::kBlocking || kind == Kind::kOwn; }
};

// An operation that touched a piece of memory: the position'th of its stream. Stream -1: the host's, which is over.
struct Use {
  int stream = -1;
  int position = 0;
};
struct History {
  Use writer;
  std::vector<Use> readers;
};

struct HostCall {
  uint32_t* words;
  uint32_t k;
};
void CUDART_CB OnHost(void* argument) {
  const HostCall* const call = static_cast<HostCall*>(argument);
  for (int i = 0; i < kTail; ++i) call->words[i] = call->words[i] % 1000003 * 3 + call->k;
}

__global__ void Nothing() {}

// While anything of the context is captured, nobody may wait for all of it.
std::mutex& CaptureMutex() {
  static std::mutex mutex;
  return mutex;
}
void SynchronizeDevice() {
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  CHECK_CUDA(cudaDeviceSynchronize());
}

// Tally promises more than CUDA: what a blocking copy wrote is there for whatever comes next.
bool PromisesArrival() {
  static const bool promises = getenv("PROGRAM_COPIES_ARRIVE") != nullptr;
  return promises;
}

class Player {
 public:
  Player(Side& side, uint64_t seed, Results& results)
      : side_(side), results_(results), seed_(seed), choice_(seed * 77 + 5) {
    for (int a = 0; a < kArrays; ++a) {
      const std::lock_guard<std::mutex> lock(CaptureMutex());  // it waits for the device
      arrays_[a] = side.New(check::RandomIntegers<uint32_t>(kWords, seed * 10 + a));
    }
    for (int p = 0; p < kPinned; ++p) {
      const std::vector<uint32_t> values = check::RandomIntegers<uint32_t>(kTail, seed * 10 + 7 + p);
      if (side.is_device()) CHECK_CUDA(cudaMallocHost(&pinned_[p], kWords * 4));
      if (!side.is_device()) pinned_[p] = side.New(size_t{kWords});
      std::fill_n(pinned_[p], kWords - kTail, 0);
      std::copy(values.begin(), values.end(), pinned_[p] + kWords - kTail);
    }
    if (!side.is_device()) return;
    streams_.resize(1);
    streams_[0].kind = Kind::kLegacy;
    streams_[0].is_there = true;
    for (int s = 0; s < 5; ++s) NewStream();
    for (cudaEvent_t& event : events_) CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    Nothing<<<1, 1>>>();  // lazy loading of a kernel may wait for those that run
    SynchronizeDevice();
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  void Play(const Operation& one) {
    const Pieces pieces = PiecesOf(one);
    if (!side_.is_device()) return Carry(one, nullptr);
    if (one.action == Action::kOfHost) {
      OrderHost(pieces);
      Carry(one, nullptr);
      for (const int piece : pieces.written) history_[piece] = {};
      return;
    }
    MaybeChangeStreams();
    const int s = IsBlocking(one.action) ? 0 : AnyStream();
    OrderStream(s, pieces);
    const Use use = Put(s);
    Clock before = streams_[s].done;
    --before[s];
    for (const int piece : pieces.read) history_[piece].readers.push_back(use);
    for (const int piece : pieces.written) history_[piece] = {use, {}};
    Carry(one, streams_[s].handle);
    if (IsBlocking(one.action)) NoteReturn(one, before);
  }

  void End() {
    if (side_.is_device()) SynchronizeDevice();
    for (uint32_t* array : arrays_) side_.Show(results_, Name("array").c_str(), nullptr, array + kWords - kTail, kTail);
    for (uint32_t* words : pinned_) {
      results_.Add(Name("pinned").c_str(), words + kWords - kTail, kTail);
      if (side_.is_device()) CHECK_CUDA(cudaFreeHost(words));
      if (!side_.is_device()) side_.Free(words);
    }
    for (uint32_t* array : arrays_) side_.Free(array);
    if (!side_.is_device()) return;
    for (Stream& stream : streams_) {
      if (stream.is_there && stream.kind != Kind::kLegacy && stream.kind != Kind::kOwn)
        CHECK_CUDA(cudaStreamDestroy(stream.handle));
    }
    for (cudaEvent_t event : events_) CHECK_CUDA(cudaEventDestroy(event));
    for (cudaGraphExec_t graph : graphs_) CHECK_CUDA(cudaGraphExecDestroy(graph));
  }

 private:
  // A blocking one has returned, so it has happened, and what it came behind. Only of copies from pageable memory CUDA
  // promises less: the last of it may still be on its way, and up to 64 KiB may have waited for nothing.
  void NoteReturn(const Operation& one, const Clock& before) {
    const bool is_pageable = one.action == Action::kBlockingUpload || one.action == Action::kBlockingBox;
    if (!is_pageable || PromisesArrival()) return Join(&host_, streams_[0].done);
    if (kLengths[one.length] * 4 > (64 << 10)) Join(&host_, before);
  }

  // How things come about; what they compute does not depend on it.
  int Choose(int bound) { return static_cast<int>(choice_.Next() % static_cast<uint64_t>(bound)); }

  void NewStream() {
    Stream stream;
    stream.is_there = true;
    const int kind = Choose(6);
    if (kind == 0 && !has_own_) {
      has_own_ = true;
      stream.kind = Kind::kOwn;
      stream.handle = cudaStreamPerThread;
    } else {
      stream.kind = kind < 3 ? Kind::kBlocking : Kind::kNonBlocking;
      const unsigned flags = stream.is_blocking() ? cudaStreamDefault : cudaStreamNonBlocking;
      CHECK_CUDA(cudaStreamCreateWithPriority(&stream.handle, flags, -Choose(2)));
    }
    streams_.push_back(stream);
  }
  int AnyStream() {
    for (;;) {
      const int s = Choose(static_cast<int>(streams_.size()));
      if (streams_[s].is_there) return s;
    }
  }
  // Now and then one is destroyed, with work on it, and another comes.
  void MaybeChangeStreams() {
    if (Choose(12) != 0 || streams_.size() == kMaxStreams) return;
    const int s = AnyStream();
    if (streams_[s].kind == Kind::kLegacy || streams_[s].kind == Kind::kOwn) return;
    CHECK_CUDA(cudaStreamDestroy(streams_[s].handle));
    streams_[s].is_there = false;
    NewStream();
  }

  // One more operation on that stream: behind what CUDA says without being asked.
  Use Put(int s) {
    Stream& stream = streams_[s];
    if (stream.kind == Kind::kLegacy) {
      for (const Stream& other : streams_) {
        if (other.is_there && other.is_blocking()) Join(&stream.next, other.done);
      }
    } else if (stream.is_blocking()) {
      Join(&stream.next, streams_[0].done);
    }
    Join(&stream.next, host_);
    stream.next[s] = ++stream.num_put;
    stream.done = stream.next;
    return {s, stream.num_put};
  }
  // Before the next operation on `s`.
  bool IsBefore(const Use& use, int s) const {
    if (use.stream < 0 || use.stream == s) return true;
    const Stream& stream = streams_[s];
    const auto covers = [&use](const Clock& clock) { return clock[use.stream] >= use.position; };
    if (covers(stream.next) || covers(host_)) return true;
    if (stream.is_blocking()) return covers(streams_[0].done);
    return stream.kind == Kind::kLegacy && std::any_of(streams_.begin(), streams_.end(), [&](const Stream& other) {
             return other.is_there && other.is_blocking() && covers(other.done);
           });
  }

  template <typename ForOne>
  void ForEachConflict(const Pieces& pieces, ForOne for_one) {
    for (const int piece : pieces.read) for_one(history_[piece].writer);
    for (const int piece : pieces.written) {
      for_one(history_[piece].writer);
      for (const Use& reader : history_[piece].readers) for_one(reader);
    }
  }
  void OrderStream(int s, const Pieces& pieces) {
    ForEachConflict(pieces, [&](const Use& use) {
      if (!IsBefore(use, s)) HaveBefore(use, s);
    });
  }
  void OrderHost(const Pieces& pieces) {
    ForEachConflict(pieces, [&](const Use& use) {
      if (use.stream >= 0 && host_[use.stream] < use.position) AwaitOnHost(use.stream);
    });
  }

  void HaveBefore(const Use& use, int s) {
    Stream &from = streams_[use.stream], &to = streams_[s];
    if (!from.is_there) return AwaitDevice();
    const int way = Choose(8);
    if (way < 4) {
      const Clock before = from.next;
      cudaEvent_t event = events_[Choose(static_cast<int>(events_.size()))];
      CHECK_CUDA(cudaEventRecord(event, from.handle));
      CHECK_CUDA(cudaStreamWaitEvent(to.handle, event, 0));
      return Join(&to.next, before);
    }
    if (way == 4 && from.is_blocking() && to.is_blocking()) {
      // By way of the legacy stream.
      Nothing<<<1, 1>>>();
      CHECK_LAUNCH();
      Put(0);
      return;
    }
    AwaitOnHost(use.stream);
  }

  void AwaitDevice() {
    SynchronizeDevice();
    for (int s = 0; s < static_cast<int>(streams_.size()); ++s) host_[s] = streams_[s].num_put;
  }
  void AwaitOnHost(int s) {
    Stream& stream = streams_[s];
    if (!stream.is_there) return AwaitDevice();
    const int way = Choose(7);
    if (way == 0) return AwaitDevice();
    if (way < 3) {
      CHECK_CUDA(cudaStreamSynchronize(stream.handle));
    } else if (way < 5) {
      cudaEvent_t event = events_[Choose(static_cast<int>(events_.size()))];
      CHECK_CUDA(cudaEventRecord(event, stream.handle));
      if (way == 3) CHECK_CUDA(cudaEventSynchronize(event));
      if (way == 4) Poll([event] { return cudaEventQuery(event); });
    } else {
      Poll([&stream] { return cudaStreamQuery(stream.handle); });
    }
    Join(&host_, stream.next);
  }
  template <typename Query>
  static void Poll(Query query) {
    cudaError_t state;
    while ((state = query()) == cudaErrorNotReady) cudaGetLastError();  // "not ready" is an answer
    CHECK_CUDA(state);
  }

  uint32_t* Tail(int array) const { return arrays_[array] + kWords - kTail; }
  uint32_t* EndOf(uint32_t* words, const Operation& one) const { return words + kWords - kLengths[one.length]; }

  // On the device: puts it on the stream. On the host: does it.
  void Carry(const Operation& one, cudaStream_t stream) {
    const size_t length = static_cast<size_t>(kLengths[one.length]);
    uint32_t *const to = EndOf(arrays_[one.to], one), *const from = EndOf(arrays_[one.from], one);
    switch (one.action) {
      case Action::kMix:
        return side_.Run<Mix>(stream, kTail, Tail(one.to), Tail(one.from), Tail(one.other), one.number, one.pause);
      case Action::kMixPinned:
        return side_.Run<Mix>(stream, kTail, pinned_[one.pinned] + kWords - kTail, Tail(one.from), Tail(one.other),
                              one.number, one.pause);
      case Action::kFill:
        return side_.Fill(stream, to, static_cast<uint8_t>(one.number), length);
      case Action::kCopy:
        return side_.Copy(stream, to, from, length);
      case Action::kUpload:
        return side_.Copy(stream, to, EndOf(pinned_[one.pinned], one), length);
      case Action::kDownload:
        return side_.Copy(stream, EndOf(pinned_[one.pinned], one), from, length);
      case Action::kUploadNow:
        return CopyNow(to, EndOf(pinned_[one.pinned], one), length);
      case Action::kDownloadNow:
        return CopyNow(EndOf(pinned_[one.pinned], one), from, length);
      case Action::kFillPinned: {
        uint32_t* const pinned = EndOf(pinned_[one.pinned], one);
        if (side_.is_device()) CHECK_CUDA(cudaMemset(pinned, static_cast<int>(one.number % 256), length * 4));
        if (!side_.is_device()) memset(pinned, static_cast<int>(one.number % 256), length * 4);
        return;
      }
      case Action::kUploadPageable:
      case Action::kBlockingUpload:
      case Action::kBlockingBox:
        return UploadPageable(one, stream, to, length);
      case Action::kBlockingRead: {
        std::vector<uint32_t> values(length);
        CopyNow(values.data(), from, length);
        return results_.Add(Name("read").c_str(), values.data() + length - kTail, kTail);
      }
      case Action::kOnHost:
        calls_.push_back(std::make_unique<HostCall>(HostCall{pinned_[one.pinned] + kWords - kTail, one.number}));
        if (side_.is_device()) CHECK_CUDA(cudaLaunchHostFunc(stream, OnHost, calls_.back().get()));
        if (!side_.is_device()) OnHost(calls_.back().get());
        return;
      case Action::kOfHost: {
        HostCall call{pinned_[one.pinned] + kWords - kTail, one.number * 5};
        return OnHost(&call);
      }
      case Action::kPooled: {
        uint32_t* const own = side_.NewInStream(stream, kTail);
        MixBy(own, one, stream);
        return side_.FreeInStream(stream, own);
      }
      case Action::kAllocated: {
        uint32_t* const own = side_.New(size_t{kTail});
        MixBy(own, one, stream);
        return side_.Free(own);  // while it is used: whoever gets it next may count on its being free
      }
      default:
        return CarryGraph(one, stream);
    }
  }

  void CopyNow(uint32_t* to, const uint32_t* from, size_t length) {
    if (side_.is_device()) CHECK_CUDA(cudaMemcpy(to, from, length * 4, cudaMemcpyDefault));
    if (!side_.is_device()) memcpy(to, from, length * 4);
  }
  void MixBy(uint32_t* own, const Operation& one, cudaStream_t stream) {
    side_.Fill(stream, own, static_cast<uint8_t>(one.number + 1), kTail);
    side_.Run<Mix>(stream, kTail, own, Tail(one.from), Tail(one.other), one.number, one.pause);
    side_.Run<Mix>(stream, kTail, Tail(one.to), own, Tail(one.from), one.number + 1, 0);
  }

  void UploadPageable(const Operation& one, cudaStream_t stream, uint32_t* to, size_t length) {
    const std::vector<uint32_t> tail = check::RandomIntegers<uint32_t>(kTail, one.number * 3);
    if (!side_.is_device()) {
      std::copy(tail.begin(), tail.end(), to + length - kTail);
      return;
    }
    std::vector<uint32_t> source(length);
    std::copy(tail.begin(), tail.end(), source.data() + length - kTail);
    if (one.action == Action::kUploadPageable)
      CHECK_CUDA(cudaMemcpyAsync(to, source.data(), length * 4, cudaMemcpyHostToDevice, stream));
    if (one.action == Action::kBlockingUpload)
      CHECK_CUDA(cudaMemcpy(to, source.data(), length * 4, cudaMemcpyHostToDevice));
    if (one.action == Action::kBlockingBox)
      CHECK_CUDA(
          cudaMemcpy2D(to, kTail * 4, source.data(), kTail * 4, kTail * 4, length / kTail, cudaMemcpyHostToDevice));
    std::fill(source.begin(), source.end(), 0xdeadbeef);  // it has been read
  }

  // On two streams, with an event wherever one needs the other.
  void Capture(const Operation& one, cudaStream_t (&sides)[2], cudaEvent_t event, cudaGraph_t* graph) {
    const auto join = [&](int from, int to) {
      CHECK_CUDA(cudaEventRecord(event, sides[from]));
      CHECK_CUDA(cudaStreamWaitEvent(sides[to], event, 0));
    };
    CHECK_CUDA(cudaStreamBeginCapture(sides[0], cudaStreamCaptureModeRelaxed));
    join(0, 1);
    std::array<std::array<bool, 2>, kPieces> has_read{}, has_written{};  // since the two were joined
    for (const Operation& node : one.nodes) {
      const int mine = Choose(2), other = 1 - mine;
      const Pieces pieces = PiecesOf(node);
      bool conflicts = false;
      for (const int piece : pieces.read) conflicts = conflicts || has_written[piece][other];
      for (const int piece : pieces.written)
        conflicts = conflicts || has_written[piece][other] || has_read[piece][other];
      if (conflicts) {
        join(other, mine);
        for (auto& sides_of : has_read) sides_of[other] = false;
        for (auto& sides_of : has_written) sides_of[other] = false;
      }
      for (const int piece : pieces.read) has_read[piece][mine] = true;
      for (const int piece : pieces.written) has_written[piece][mine] = true;
      Carry(node, sides[mine]);
    }
    join(1, 0);
    CHECK_CUDA(cudaStreamEndCapture(sides[0], graph));
  }

  // Launched once or twice.
  void CarryGraph(const Operation& one, cudaStream_t stream) {
    const int times = 1 + static_cast<int>(one.number % 2);
    if (!side_.is_device()) {
      for (int n = 0; n < times; ++n) {
        for (const Operation& node : one.nodes) Carry(node, nullptr);
      }
      return;
    }
    cudaStream_t sides[2];
    for (cudaStream_t& side : sides) CHECK_CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    cudaEvent_t event;
    CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    cudaGraph_t graph;
    {
      const std::lock_guard<std::mutex> lock(CaptureMutex());
      Capture(one, sides, event, &graph);
    }
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaEventDestroy(event));
    for (cudaStream_t side : sides) CHECK_CUDA(cudaStreamDestroy(side));
    for (int n = 0; n < times; ++n) CHECK_CUDA(cudaGraphLaunch(executable, stream));
    graphs_.push_back(executable);
  }

  // Of a result: says which program failed.
  std::string Name(const char* what) const { return "seed " + std::to_string(seed_) + ": " + what; }

  Side& side_;
  Results& results_;
  uint64_t seed_;
  check::Random choice_;
  uint32_t* arrays_[kArrays];
  uint32_t* pinned_[kPinned];
  std::vector<Stream> streams_;  // 0: the legacy one
  bool has_own_ = false;
  std::array<cudaEvent_t, 4> events_{};
  std::vector<cudaGraphExec_t> graphs_;
  std::vector<std::unique_ptr<HostCall>> calls_;
  std::array<History, kPieces> history_;
  Clock host_{};  // what the host knows to be over
};

void PlayOne(Where where, unsigned seed, Results& results) {
  check::Random random(seed);
  Side side(where);
  Player player(side, seed, results);
  for (int n = 0; n < kOperations; ++n) player.Play(RandomOperation(random, false));
  player.End();
}

void Play(Where where, Results& results) {
  const check::Seeds seeds = check::SeedsToPlay({1, 8});
  for (unsigned seed = seeds.first; seed <= seeds.last; ++seed) PlayOne(where, seed, results);
  // At one time, in threads that have the legacy stream in common.
  constexpr unsigned kThreads = 4;
  std::array<Results, kThreads> of_threads;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] { PlayOne(where, seeds.last + 1 + t, of_threads[t]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Results& one : of_threads) results.AddAll(one);
}

void Reference(Results& results) { Play(Where::kHost, results); }
void Device(Results& results) { Play(Where::kDevice, results); }

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
