// What single driver calls cost, natively and under tally-run alike: this program does not know under which it runs.
//
//   driver_calls [--smoke] [--json FILE] [--only SUBSTRING]... [--skip SUBSTRING]... [--divide N] [--seconds N]
//   driver_calls --attach
//
// Each line is one measurement: a batch of calls is timed by the client's clock and divided by their number, many
// batches are taken, and median, p10, p90 and p99 over the batches are printed. Batches of asynchronous calls are
// followed by a synchronisation that is not timed, so that a full queue is not measured (but for `sustained launches`,
// which is about just that). --smoke takes few and small batches: it shows that everything runs, its numbers mean
// nothing.
// --divide takes 1/N of the batches: forwarding.py runs the program several times, natively and under tally-run by
// turns.
//
// --seconds goes on for so long, for whoever looks on meanwhile; the last round counts.
//
// --attach is a client that does nothing: one launch and one synchronisation, the word "attached" on stdout, then it
// waits for the end of stdin.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

#define CHECK(call)                                                                                          \
  do {                                                                                                       \
    cudaError_t result_of_call = (call);                                                                     \
    if (result_of_call != cudaSuccess) {                                                                     \
      fprintf(stderr, "driver_calls: line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(result_of_call)); \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (false)
#define CHECK_DRIVER(call)                                                                                   \
  do {                                                                                                       \
    CUresult result_of_call = (call);                                                                        \
    if (result_of_call != CUDA_SUCCESS) {                                                                    \
      fprintf(stderr, "driver_calls: line %d: %s: driver error %d\n", __LINE__, #call, (int)result_of_call); \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (false)

struct Parameters64 {
  unsigned char bytes[64];
};
struct Parameters4k {
  unsigned char bytes[4000];
};
__global__ void Empty() {}
__global__ void Empty64(Parameters64) {}
__global__ void Empty4k(Parameters4k) {}

template <class Function>
Function* Entry(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found));
  if (entry == nullptr) {
    fprintf(stderr, "driver_calls: the driver has no %s\n", name);
    exit(1);
  }
  return reinterpret_cast<Function*>(entry);
}
#define ENTRY(name) Entry<decltype(name)>(#name)

struct Options {
  bool smoke = false;
  bool attach = false;
  int divide = 1;
  int seconds = 0;
  const char* json_path = nullptr;
  std::vector<std::string> only, skip;
};

struct Row {
  std::string name, unit;
  std::vector<double> samples;  // one per batch, sorted
  int per_batch;

  double Quantile(double q) const {
    return samples[std::min(samples.size() - 1, static_cast<size_t>(q * static_cast<double>(samples.size())))];
  }
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {}

  bool Wants(const std::string& name) const {
    auto is_part = [&name](const std::string& text) { return name.find(text) != std::string::npos; };
    const auto& [only, skip] = std::tie(options_.only, options_.skip);
    return (only.empty() || std::any_of(only.begin(), only.end(), is_part)) &&
           std::none_of(skip.begin(), skip.end(), is_part);
  }

  // Time of one `body` (or of one of the calls in it), microseconds. `settle` runs after each batch, untimed.
  void Time(const std::string& name, int per_batch, int batches, const std::function<void()>& body,
            const std::function<void()>& settle, double calls_in_body = 1) {
    if (!Wants(name)) return;
    Adapt(&per_batch, &batches);
    body();
    settle();
    std::vector<double> samples;
    for (int batch = 0; batch < batches; ++batch) {
      Clock::time_point begin = Clock::now();
      for (int i = 0; i < per_batch; ++i) body();
      samples.push_back(Microseconds(begin) / (per_batch * calls_in_body));
      settle();
    }
    Add(name, "us", samples, per_batch);
  }

  // Bandwidth of one `body` that moves `bytes`, GB/s (10^9), synchronised within the time.
  void Bandwidth(const std::string& name, size_t bytes, const std::function<void()>& body) {
    if (!Wants(name)) return;
    int per_batch = static_cast<int>(std::max<size_t>(1, std::min<size_t>(50, (size_t{64} << 20) / bytes))),
        batches = 15;
    Adapt(&per_batch, &batches);
    body();
    std::vector<double> samples;
    for (int batch = 0; batch < batches; ++batch) {
      Clock::time_point begin = Clock::now();
      for (int i = 0; i < per_batch; ++i) body();
      samples.push_back(static_cast<double>(bytes) * per_batch / (Microseconds(begin) * 1e3));
    }
    Add(name, "GB/s", samples, per_batch);
  }

  bool smoke() const { return options_.smoke; }
  const std::vector<Row>& rows() const { return rows_; }
  void Clear() { rows_.clear(); }

 private:
  static double Microseconds(Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }

  void Adapt(int* per_batch, int* batches) const {
    *batches = std::max(*batches / options_.divide, 2);
    if (!options_.smoke) return;
    *per_batch = std::min(*per_batch, 3);
    *batches = 2;
  }

  void Add(const std::string& name, const char* unit, std::vector<double> samples, int per_batch) {
    std::sort(samples.begin(), samples.end());
    rows_.push_back({name, unit, std::move(samples), per_batch});
    const Row& row = rows_.back();
    printf("%-44s %10.3f %10.3f %10.3f %10.3f  %-5s %6zu x %d\n", row.name.c_str(), row.Quantile(0.5),
           row.Quantile(0.1), row.Quantile(0.9), row.Quantile(0.99), row.unit.c_str(), row.samples.size(),
           row.per_batch);
    fflush(stdout);
  }

  const Options options_;
  std::vector<Row> rows_;
};

void MeasureAsynchronousCalls(Bench& bench, cudaStream_t stream) {
  auto settle = [stream] { CHECK(cudaStreamSynchronize(stream)); };
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  void* device;
  CHECK(cudaMalloc(&device, 1 << 20));
  char* pinned;
  CHECK(cudaMallocHost(&pinned, 1 << 20));
  // What the runtime passes, and what it stands for.
  auto launch = ENTRY(cuLaunchKernel);
  cudaKernel_t kernel;
  CHECK(cudaGetKernel(&kernel, reinterpret_cast<const void*>(&Empty)));
  auto kernel_as_function = reinterpret_cast<CUfunction>(kernel);
  CUfunction function;
  CHECK_DRIVER(ENTRY(cuKernelGetFunction)(&function, reinterpret_cast<CUkernel>(kernel)));
  Parameters64 small = {};
  Parameters4k large = {};
  bench.Time(
      "launch, no parameters", 100, 300, [=] { Empty<<<1, 32, 0, stream>>>(); }, settle);
  bench.Time(
      "launch, 64 bytes of parameters", 100, 300, [=] { Empty64<<<1, 32, 0, stream>>>(small); }, settle);
  bench.Time(
      "launch, 4000 bytes of parameters", 100, 300, [=] { Empty4k<<<1, 32, 0, stream>>>(large); }, settle);
  bench.Time(
      "launch by kernel handle", 100, 300,
      [=] { CHECK_DRIVER(launch(kernel_as_function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr)); }, settle);
  bench.Time(
      "launch by function handle", 100, 300,
      [=] { CHECK_DRIVER(launch(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr)); }, settle);
  bench.Time(
      "cudaMemsetAsync, 4 KB", 100, 300, [=] { CHECK(cudaMemsetAsync(device, 0, 4096, stream)); }, settle);
  bench.Time(
      "cudaMemcpyAsync, 4 KB, pinned to device", 100, 300,
      [=] { CHECK(cudaMemcpyAsync(device, pinned, 4096, cudaMemcpyHostToDevice, stream)); }, settle);
  bench.Time(
      "cudaEventRecord", 100, 300, [=] { CHECK(cudaEventRecord(event, stream)); }, settle);
  bench.Time(
      "cudaStreamWaitEvent", 100, 300, [=] { CHECK(cudaStreamWaitEvent(stream, event, 0)); }, settle);
  CHECK(cudaGetLastError());
  CHECK(cudaEventDestroy(event));
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(device));
}

void MeasureRoundTrips(Bench& bench, cudaStream_t stream) {
  auto nothing = [] {};
  auto query = ENTRY(cuStreamQuery);
  CUstream driver_stream = stream;
  cudaEvent_t event;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaStreamSynchronize(stream));
  bench.Time(
      "cuStreamQuery, idle stream", 100, 300, [=] { CHECK_DRIVER(query(driver_stream)); }, nothing);
  bench.Time(
      "cudaStreamSynchronize, idle stream", 100, 300, [=] { CHECK(cudaStreamSynchronize(stream)); }, nothing);
  bench.Time(
      "cudaEventQuery, event that has happened", 100, 300, [=] { CHECK(cudaEventQuery(event)); }, nothing);
  bench.Time(
      "cudaMemGetInfo", 20, 100,
      [=] {
        size_t free_bytes, total_bytes;
        CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
      },
      nothing);
  bench.Time(
      "empty launch + cudaStreamSynchronize", 1, 3000,
      [=] {
        Empty<<<1, 32, 0, stream>>>();
        CHECK(cudaStreamSynchronize(stream));
      },
      nothing);
  bench.Time(
      "empty launch + cudaDeviceSynchronize", 1, 1000,
      [=] {
        Empty<<<1, 32, 0, stream>>>();
        CHECK(cudaDeviceSynchronize());
      },
      nothing);
  CHECK(cudaEventDestroy(event));
}

void MeasureSustained(Bench& bench, cudaStream_t stream) {
  // All launches and the wait for them are one sample, divided by their number.
  const int launches = bench.smoke() ? 200 : 100000;
  bench.Time(
      "sustained launches (" + std::to_string(launches) + "), each", 1, 5,
      [=] {
        for (int i = 0; i < launches; ++i) Empty<<<1, 32, 0, stream>>>();
        CHECK(cudaStreamSynchronize(stream));
      },
      [] {}, launches);
}

void MeasureGraphs(Bench& bench, cudaStream_t stream) {
  for (int num_nodes : {1, 20, 100}) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < num_nodes; ++i) Empty<<<1, 32, 0, stream>>>();
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    std::string nodes = std::to_string(num_nodes) + (num_nodes == 1 ? " node" : " nodes");
    bench.Time(
        "graph launch, " + nodes + ", call only", 10, 100, [=] { CHECK(cudaGraphLaunch(executable, stream)); },
        [=] { CHECK(cudaStreamSynchronize(stream)); });
    bench.Time(
        "graph launch, " + nodes + ", + synchronise", 1, 500,
        [=] {
          CHECK(cudaGraphLaunch(executable, stream));
          CHECK(cudaStreamSynchronize(stream));
        },
        [] {});
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
  }
}

std::string SizeName(size_t bytes) {
  return bytes >= 1 << 20 ? std::to_string(bytes >> 20) + " MB" : std::to_string(bytes >> 10) + " KB";
}

void MeasureCopies(Bench& bench, cudaStream_t stream) {
  const size_t largest = bench.smoke() ? size_t{1} << 20 : size_t{256} << 20;
  const char* const kinds[] = {"copy pinned to device", "copy device to pinned", "copy pageable to device",
                               "copy device to pageable"};
  bool wants_any = false;
  for (size_t bytes = 4096; bytes <= largest; bytes *= 4) {
    for (const char* kind : kinds) wants_any |= bench.Wants(std::string(kind) + ", " + SizeName(bytes));
  }
  if (!wants_any) return;  // the memory takes its time
  char *device, *pinned;
  CHECK(cudaMalloc(&device, largest));
  CHECK(cudaMallocHost(&pinned, largest));
  std::vector<char> pageable(largest, 1);
  memset(pinned, 1, largest);
  for (size_t bytes = 4096; bytes <= largest; bytes *= 4) {
    auto copy = [&](const char* kind, void* target, const void* source, cudaMemcpyKind direction, bool asynchronous) {
      bench.Bandwidth(std::string(kind) + ", " + SizeName(bytes), bytes, [=] {
        if (asynchronous) {
          CHECK(cudaMemcpyAsync(target, source, bytes, direction, stream));
          CHECK(cudaStreamSynchronize(stream));
        } else {
          CHECK(cudaMemcpy(target, source, bytes, direction));
        }
      });
    };
    copy(kinds[0], device, pinned, cudaMemcpyHostToDevice, true);
    copy(kinds[1], pinned, device, cudaMemcpyDeviceToHost, true);
    copy(kinds[2], device, pageable.data(), cudaMemcpyHostToDevice, false);
    copy(kinds[3], pageable.data(), device, cudaMemcpyDeviceToHost, false);
  }
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(device));
}

void MeasureAllocations(Bench& bench, cudaStream_t stream) {
  for (size_t bytes : {size_t{4096}, size_t{16} << 20}) {
    bench.Time(
        "cudaMalloc + cudaFree, " + SizeName(bytes), 1, 200,
        [=] {
          void* pointer;
          CHECK(cudaMalloc(&pointer, bytes));
          CHECK(cudaFree(pointer));
        },
        [] {});
    bench.Time(
        "cudaMallocAsync + cudaFreeAsync, " + SizeName(bytes), 10, 100,
        [=] {
          void* pointer;
          CHECK(cudaMallocAsync(&pointer, bytes, stream));
          CHECK(cudaFreeAsync(pointer, stream));
        },
        [=] { CHECK(cudaStreamSynchronize(stream)); });
  }
  bench.Time(
      "cudaMallocHost + cudaFreeHost, 1 MB", 1, 100,
      [] {
        void* pointer;
        CHECK(cudaMallocHost(&pointer, 1 << 20));
        CHECK(cudaFreeHost(pointer));
      },
      [] {});
}

void WriteJson(const Bench& bench, const char* path, const cudaDeviceProp& properties) {
  FILE* file = fopen(path, "w");
  if (file == nullptr) {
    fprintf(stderr, "driver_calls: cannot write %s: %s\n", path, strerror(errno));
    exit(1);
  }
  fprintf(file, "{\"device\": \"%s\", \"smoke\": %s, \"rows\": [", properties.name, bench.smoke() ? "true" : "false");
  const char* separator = "\n";
  for (const Row& row : bench.rows()) {
    fprintf(file, "%s  {\"name\": \"%s\", \"unit\": \"%s\", \"samples\": [", separator, row.name.c_str(),
            row.unit.c_str());
    for (size_t i = 0; i < row.samples.size(); ++i) fprintf(file, "%s%.6g", i == 0 ? "" : ",", row.samples[i]);
    fprintf(file, "]}");
    separator = ",\n";
  }
  fprintf(file, "\n]}\n");
  if (fclose(file) != 0) {
    fprintf(stderr, "driver_calls: cannot write %s: %s\n", path, strerror(errno));
    exit(1);
  }
}

bool ReadOptions(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (option == "--smoke") {
      options->smoke = true;
    } else if (option == "--attach") {
      options->attach = true;
    } else if (value == nullptr) {
      return false;
    } else {
      ++i;
      if (option == "--json") {
        options->json_path = value;
      } else if (option == "--only") {
        options->only.push_back(value);
      } else if (option == "--skip") {
        options->skip.push_back(value);
      } else if (option == "--divide" && atoi(value) > 0) {
        options->divide = atoi(value);
      } else if (option == "--seconds" && atoi(value) > 0) {
        options->seconds = atoi(value);
      } else {
        return false;
      }
    }
  }
  return true;
}

int Attach() {
  Empty<<<1, 32>>>();
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  puts("attached");
  fflush(stdout);
  while (getchar() != EOF) {
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!ReadOptions(argc, argv, &options)) {
    fprintf(stderr,
            "usage: driver_calls [--smoke] [--json FILE] [--only SUBSTRING]... [--skip SUBSTRING]... [--divide N]\n"
            "                    [--seconds N]\n"
            "       driver_calls --attach\n");
    return 2;
  }
  if (options.attach) return Attach();
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  printf("device: %s%s\n", properties.name, options.smoke ? " (smoke: numbers mean nothing)" : "");
  printf("%-44s %10s %10s %10s %10s  %-5s %s\n", "what", "median", "p10", "p90", "p99", "unit", "batches");
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Bench bench(options);
  const Clock::time_point end = Clock::now() + std::chrono::seconds(options.seconds);
  do {
    bench.Clear();
    MeasureAsynchronousCalls(bench, stream);
    MeasureRoundTrips(bench, stream);
    MeasureSustained(bench, stream);
    MeasureGraphs(bench, stream);
    MeasureCopies(bench, stream);
    MeasureAllocations(bench, stream);
  } while (Clock::now() < end && !bench.rows().empty());
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaStreamDestroy(stream));
  if (options.json_path != nullptr) WriteJson(bench, options.json_path, properties);
  if (bench.rows().empty()) {
    fprintf(stderr, "driver_calls: nothing is called like that\n");
    return 1;
  }
  return fflush(stdout) == 0 ? 0 : 1;
}
