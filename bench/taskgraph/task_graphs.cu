// Task graphs: LU without pivots and Cholesky, tile by tile, and generated graphs; as one call of cuSOLVER, on streams
// ordered by events, as one CUDA graph. Plain CUDA: it knows nothing of Tally. README.md says what each row is for.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/taskgraph/check.h"
#include "bench/taskgraph/graph_shape.h"
#include "bench/taskgraph/kernels.cuh"
#include "bench/taskgraph/on_streams.h"
#include "bench/taskgraph/solver_libraries.h"
#include "bench/taskgraph/solver_of_several_gpus.h"
#include "bench/taskgraph/tile_kernels.cuh"
#include "bench/taskgraph/tiles.h"
#include "include/tally/taskgraph.h"

namespace taskgraph {
namespace {

constexpr const char* kUsage = R"(taskgraph [OPTIONS]
  --problem NAME     lu, cholesky, or a shape: chain, independent, fork-join, wavefront, tree-sum, butterfly, random
  --mode NAME        cusolver (lu and cholesky), cusolvermg (cholesky, on --gpus), streams, graph
  --n N              of the matrix (default 96)
  --tiles T          of a row (default 6); N is a multiple of it
  --tasks K          of a shape (default 120)
  --rounds R         multiply-adds of each thread of a task; 0 (default): empty tasks
  --uneven           each task has 0 to R of them, by chance; the same tasks in each run
  --blocks B         of 128 threads, of a task of a shape (default 1)
  --repetitions R    timed (default 5)
  --warm-ups W       before these (default 1), not timed
  --seconds S        instead: repeats for so long, for a program beside another one
  --each             prints a line for each repetition, warm-ups too: when it ended, s of CLOCK_MONOTONIC, and its ms
  --gpus N           of cusolvermg (default 2); columns are dealt out before the time begins
  --annotated        says what each task touches (tally/taskgraph.h)
  --plain            no cuBLAS and cuSOLVER, even if they are there
Prints one line: the median and the best time of a repetition. A wrong result ends it with status 1.
)";

struct Options {
  std::string problem = "cholesky", mode = "graph";
  uint32_t n = 96, tiles = 6, tasks = 120, rounds = 0, blocks = 1, repetitions = 5, warm_ups = 1, gpus = 2;
  double seconds = 0;
  bool is_plain = false, is_annotated = false, is_uneven = false, says_each = false;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help") std::exit(std::fputs(kUsage, stdout) < 0 ? 1 : 0);
    bool* const flag = name == "--plain"       ? &options.is_plain
                       : name == "--annotated" ? &options.is_annotated
                       : name == "--uneven"    ? &options.is_uneven
                       : name == "--each"      ? &options.says_each
                                               : nullptr;
    if (flag != nullptr) {
      *flag = true;
      continue;
    }
    if (i + 1 == argc) Fail(argv[i], "it has a value");
    const char* const value = argv[++i];
    const auto number = static_cast<uint32_t>(std::strtoul(value, nullptr, 10));
    if (name == "--problem")
      options.problem = value;
    else if (name == "--mode")
      options.mode = value;
    else if (name == "--n")
      options.n = number;
    else if (name == "--tiles")
      options.tiles = number;
    else if (name == "--tasks")
      options.tasks = number;
    else if (name == "--rounds")
      options.rounds = number;
    else if (name == "--blocks")
      options.blocks = number;
    else if (name == "--repetitions")
      options.repetitions = number;
    else if (name == "--warm-ups")
      options.warm_ups = number;
    else if (name == "--gpus")
      options.gpus = number;
    else if (name == "--seconds")
      options.seconds = std::strtod(value, nullptr);
    else
      Fail(name.c_str(), "there is no such option; --help says which there are");
  }
  if (options.n == 0 || options.tiles == 0 || options.n % options.tiles != 0) Fail("--n", "no multiple of --tiles");
  if (options.tasks == 0 || options.tasks > 1'000'000) Fail("--tasks", "1 to 1000000");
  if (options.gpus == 0 || options.gpus > 16) Fail("--gpus", "1 to 16");
  if (options.blocks == 0 || options.repetitions == 0) Fail("--blocks, --repetitions", "at least 1");
  return options;
}

using Clock = std::chrono::steady_clock;

// What is done again and again: made ready, timed, checked.
class Problem {
 public:
  virtual ~Problem() = default;
  virtual void Reset(cudaStream_t stream) = 0;
  // Behind what is on the first stream.
  virtual void Issue() = 0;
  // Of what is there now; ends the program if it is wrong. Returns what is to be printed of it.
  virtual std::string CheckResult() = 0;
  virtual size_t num_tasks() const = 0;
};

// Either way of a shape with a launch for each task.
class Issuer {
 public:
  Issuer(OnStreams& streams, bool is_graph, const Shape& shape, OnStreams::Launch launch)
      : streams_(streams), shape_(shape), launch_(std::move(launch)) {
    if (is_graph) exec_ = streams.Capture(shape, launch_);
  }
  ~Issuer() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  }
  void Issue() {
    if (exec_ != nullptr) return Check(cudaGraphLaunch(exec_, streams_.first()), "launch a graph");
    streams_.Issue(shape_, launch_);
  }

 private:
  OnStreams& streams_;
  const Shape& shape_;
  const OnStreams::Launch launch_;
  cudaGraphExec_t exec_ = nullptr;
};

// cudaMemcpy may return before pageable memory is there, and streams that do not block would not wait for it.
void CopyUp(void* to, const void* from, size_t num_bytes, cudaStream_t stream) {
  Check(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyHostToDevice, stream), "copy");
  Check(cudaStreamSynchronize(stream), "copy");
}

class Generated final : public Problem {
 public:
  Generated(const Options& options, OnStreams& streams) : shape_(ShapeOf(options.problem, options.tasks)) {
    if (shape_.empty()) Fail(options.problem.c_str(), "there is no such problem");
    if (options.mode.rfind("cusolver", 0) == 0) Fail(options.mode.c_str(), "that is for lu and cholesky");
    std::vector<uint32_t> before, begin, rounds(shape_.size(), options.rounds);
    for (const auto& row : shape_) {
      begin.push_back(static_cast<uint32_t>(before.size()));
      before.insert(before.end(), row.begin(), row.end());
    }
    std::mt19937 random(1);
    for (uint32_t& number : rounds) {
      if (options.is_uneven) number = static_cast<uint32_t>(random() % (uint64_t{options.rounds} + 1));
    }
    Check(cudaMalloc(&values_, AllocationBytes(shape_.size())), "values");
    Check(cudaMalloc(&before_, AllocationBytes(before.size())), "a list");
    Check(cudaMalloc(&sink_, sizeof(float)), "a word");
    if (!before.empty()) CopyUp(before_, before.data(), before.size() * sizeof(uint32_t), streams.first());
    const auto launch = [this, begin, rounds, options, &streams](uint32_t task, size_t stream) {
      const uint32_t* const list = before_ + begin[task];
      if (options.is_annotated) Declare(task, list, streams.stream(stream));
      GeneratedTask<<<options.blocks, 128, 0, streams.stream(stream)>>>(
          values_, task, list, static_cast<uint32_t>(shape_[task].size()), rounds[task], sink_);
      Check(cudaGetLastError(), "launch a task");
      if (options.is_annotated) Require(tallyTaskEnd(streams.stream(stream)), "tallyTaskEnd");
    };
    issuer_ = std::make_unique<Issuer>(streams, options.mode == "graph", shape_, launch);
  }
  ~Generated() override {
    issuer_.reset();
    cudaFree(values_);
    cudaFree(before_);
    cudaFree(sink_);
  }
  void Reset(cudaStream_t stream) override {
    Check(cudaMemsetAsync(values_, 0, shape_.size() * sizeof(uint32_t), stream), "fill");
  }
  void Issue() override { issuer_->Issue(); }
  std::string CheckResult() override {
    std::vector<uint32_t> found(shape_.size()), expected(shape_.size());
    Check(cudaMemcpy(found.data(), values_, found.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost), "copy");
    for (uint32_t task = 0; task < shape_.size(); ++task) {
      expected[task] = task + 1;
      for (const uint32_t other : shape_[task]) expected[task] = expected[task] * 31 + expected[other];
      if (found[task] != expected[task]) Fail("a task", "it has run before one that it comes behind, or not at all");
    }
    return "right";
  }
  size_t num_tasks() const override { return shape_.size(); }

 private:
  // Smaller allocations would keep tasks on the program's own GPU.
  static size_t AllocationBytes(size_t num_words) { return std::max(num_words * sizeof(uint32_t), size_t{1} << 20); }
  void Declare(uint32_t task, const uint32_t* list, cudaStream_t stream) const {
    constexpr size_t kWord = sizeof(uint32_t);
    std::vector<tallyTaskRegion> regions = {{values_ + task, kWord, 1, 0, TALLY_WRITES},
                                            {list, shape_[task].size() * kWord, 1, 0, TALLY_READS}};
    for (const uint32_t other : shape_[task]) regions.push_back({values_ + other, kWord, 1, 0, TALLY_READS});
    Require(tallyTaskBegin(stream, regions.data(), regions.size()), "tallyTaskBegin");
  }

  const Shape shape_;
  uint32_t *values_ = nullptr, *before_ = nullptr;
  float* sink_ = nullptr;
  std::unique_ptr<Issuer> issuer_;
};

class Factorization final : public Problem {
 public:
  Factorization(const Options& options, OnStreams& streams)
      : is_cholesky_(options.problem == "cholesky"),
        n_(options.n),
        streams_(streams),
        tiled_(Tiled(is_cholesky_, options.tiles)),
        libraries_(options.is_plain ? nullptr : SolverLibraries::Load()) {
    const size_t bytes = size_t{n_} * n_ * sizeof(double);
    for (double** matrix : {&matrix_, &original_}) Check(cudaMalloc(matrix, bytes), "a matrix");
    for (double*& vector : vectors_) Check(cudaMalloc(&vector, n_ * sizeof(double)), "a vector");
    Fill<<<256, 256, 0, streams.first()>>>(original_, n_);
    Check(cudaStreamSynchronize(streams.first()), "fill the matrix");
    kernels_ = std::make_unique<TileKernels>(libraries_.get(), streams, is_cholesky_, matrix_, n_, options.tiles,
                                             options.is_annotated);
    if (options.mode == "cusolvermg") {
      if (!is_cholesky_) Fail("--mode cusolvermg", "its LU has pivots: that is for cholesky");
      several_ = std::make_unique<SolverOfSeveralGpus>(n_, options.gpus);
      return;
    }
    is_whole_ = options.mode == "cusolver";
    if (is_whole_) {
      if (libraries_ == nullptr) Fail("--mode cusolver", "cuBLAS and cuSOLVER are not there");
      return;
    }
    // The first calls of a library may do what cannot be captured.
    Reset(streams.first());
    const auto launch = [this](uint32_t task, size_t stream) {
      kernels_->Launch(tiled_.tasks[task], streams_.stream(stream), stream);
    };
    streams.Issue(tiled_.shape, launch);
    Check(cudaStreamSynchronize(streams.first()), "the first factorisation");
    issuer_ = std::make_unique<Issuer>(streams, options.mode == "graph", tiled_.shape, launch);
  }
  ~Factorization() override {
    issuer_.reset();
    for (double* memory : {matrix_, original_, vectors_[0], vectors_[1], vectors_[2]}) cudaFree(memory);
  }
  void Reset(cudaStream_t stream) override {
    if (several_ != nullptr) return several_->DealOut(original_);
    Check(cudaMemcpyAsync(matrix_, original_, size_t{n_} * n_ * sizeof(double), cudaMemcpyDeviceToDevice, stream),
          "copy the matrix");
  }
  void Issue() override {
    if (several_ != nullptr) {
      several_->Factor();
    } else if (is_whole_) {
      kernels_->FactorWhole(streams_.first());
    } else {
      issuer_->Issue();
    }
  }
  // |A x - L (U x)| over |A| |x| n, for one x.
  std::string CheckResult() override {
    if (several_ != nullptr) several_->Gather(matrix_);
    std::vector<double> x(n_), left(n_), right(n_);
    for (uint32_t i = 0; i < n_; ++i) x[i] = 1.0 + i % 7;
    const auto multiply = [&](const double* a, Part part, int from, int to) {
      Multiply<<<(n_ + 127) / 128, 128, 0, streams_.first()>>>(a, n_, part, vectors_[from], vectors_[to]);
    };
    CopyUp(vectors_[0], x.data(), n_ * sizeof(double), streams_.first());
    multiply(original_, Part::kAll, 0, 1);
    Check(cudaStreamSynchronize(streams_.first()), "multiply");
    Check(cudaMemcpy(left.data(), vectors_[1], n_ * sizeof(double), cudaMemcpyDeviceToHost), "copy");
    multiply(matrix_, is_cholesky_ ? Part::kLowerTransposed : Part::kUpper, 0, 1);
    multiply(matrix_, is_cholesky_ ? Part::kLower : Part::kLowerUnit, 1, 2);
    Check(cudaStreamSynchronize(streams_.first()), "multiply");
    Check(cudaMemcpy(right.data(), vectors_[2], n_ * sizeof(double), cudaMemcpyDeviceToHost), "copy");
    double difference = 0, size = 0;
    for (uint32_t i = 0; i < n_; ++i) {
      difference = std::max(difference, std::fabs(left[i] - right[i]));
      size = std::max(size, std::fabs(left[i]));
    }
    const double residual = difference / (size * n_);
    if (!(residual < 1e-12)) Fail("the factors", "their product is not the matrix");
    char text[64];
    std::snprintf(text, sizeof(text), "residual %.1e", residual);
    return text;
  }
  size_t num_tasks() const override { return is_whole_ || several_ != nullptr ? 1 : tiled_.tasks.size(); }

 private:
  const bool is_cholesky_;
  const uint32_t n_;
  OnStreams& streams_;
  const TiledFactorization tiled_;
  const std::unique_ptr<SolverLibraries> libraries_;
  double *matrix_ = nullptr, *original_ = nullptr, *vectors_[3] = {};
  std::unique_ptr<TileKernels> kernels_;
  std::unique_ptr<Issuer> issuer_;
  std::unique_ptr<SolverOfSeveralGpus> several_;
  bool is_whole_ = false;
};

int Run(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (options.mode != "cusolver" && options.mode != "cusolvermg" && options.mode != "streams" &&
      options.mode != "graph") {
    Fail(options.mode.c_str(), "there is no such mode");
  }
  OnStreams streams;
  std::unique_ptr<Problem> problem;
  if (options.problem == "lu" || options.problem == "cholesky") {
    problem = std::make_unique<Factorization>(options, streams);
  } else {
    problem = std::make_unique<Generated>(options, streams);
  }
  std::vector<double> times_ms;
  std::string checked;
  const auto began = Clock::now();
  for (uint32_t i = 0;; ++i) {
    problem->Reset(streams.first());
    Check(cudaStreamSynchronize(streams.first()), "reset");
    const auto start = Clock::now();
    problem->Issue();
    Check(cudaStreamSynchronize(streams.first()), "wait");
    const auto end = Clock::now();
    const std::chrono::duration<double, std::milli> took = end - start;
    if (options.says_each) {
      std::printf("launch %.6f %.4f\n", std::chrono::duration<double>(end.time_since_epoch()).count(), took.count());
      std::fflush(stdout);
    }
    checked = problem->CheckResult();
    if (i >= options.warm_ups) times_ms.push_back(took.count());
    const std::chrono::duration<double> so_far = Clock::now() - began;
    const bool is_over =
        options.seconds > 0 ? so_far.count() >= options.seconds : times_ms.size() >= options.repetitions;
    if (is_over && !times_ms.empty()) break;
  }
  std::sort(times_ms.begin(), times_ms.end());
  std::printf("%s %s tasks %zu median_ms %.4f best_ms %.4f runs %zu %s\n", options.problem.c_str(),
              options.mode.c_str(), problem->num_tasks(), times_ms[times_ms.size() / 2], times_ms.front(),
              times_ms.size(), checked.c_str());
  return 0;
}

}  // namespace
}  // namespace taskgraph

int main(int argc, char** argv) { return taskgraph::Run(argc, argv); }
