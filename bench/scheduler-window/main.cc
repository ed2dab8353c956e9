// scheduler-window: what it costs on this machine to find out which pending launches a new one must come behind.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/scheduler-window/pair_loop.h"
#include "bench/scheduler-window/stream.h"
#include "scheduler/window/window.h"

namespace tally::scheduler_window {
namespace {

using scheduler::Slot;
using scheduler::Window;

constexpr const char* kDescription =
    "Measures the window's search for conflicts, launch by launch, on a stream like a rigid-body engine's; beside it "
    "the "
    "loop over pairs that ACS describes. The window is full all the time: the oldest launch leaves for each new one.";

struct Options {
  uint32_t num_kernels = 100;
  int repetitions = 15;
  uint32_t num_steps = 200;
  uint32_t seed = 11;
  std::string json_path;
  bool is_smoke = false;
};

struct Cost {
  double admit_median_ns = 0;
  double admit_p99_ns = 0;
  double both_ns = 0;  // Admit and Complete, mean
  double edges = 0;    // of a launch, mean
};

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

double Quantile(std::vector<double>& values, double q) {
  const auto at = values.begin() + static_cast<ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// What reading the clock twice takes.
double ClockNs() {
  std::vector<double> all;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t begin = NowNs();
    all.push_back(static_cast<double>(NowNs() - begin));
  }
  return Quantile(all, 0.5);
}

// The stream through `window`, full once `capacity` launches have come; they leave in program order. `admit(f)` calls
// f.
template <typename Search, typename Admit>
uint64_t Pass(Search& window, size_t capacity, const std::vector<Launch>& stream, const Admit& admit) {
  std::vector<Slot> slots(capacity);  // a ring, oldest first
  uint64_t num_edges = 0;
  for (size_t i = 0; i < stream.size(); ++i) {
    if (i >= capacity) window.Complete(slots[i % capacity]);
    const auto entry = admit([&] { return window.Admit(stream[i].accesses); });
    slots[i % capacity] = entry->slot;
    num_edges += static_cast<uint64_t>(std::popcount(entry->edges));
  }
  for (size_t i = 0; i < capacity; ++i) window.Complete(slots[i]);
  return num_edges;
}

// The least of each over the repetitions: others may be using the machine.
template <typename Search>
Cost Measure(size_t capacity, const std::vector<Launch>& stream, int repetitions) {
  Search window(capacity);
  Cost least;
  const auto at_least = [](double* least_so_far, double value) {
    *least_so_far = *least_so_far == 0 ? value : std::min(*least_so_far, value);
  };
  const double num_launches = static_cast<double>(stream.size());
  std::vector<double> times;
  times.reserve(stream.size());
  for (int i = 0; i < repetitions; ++i) {
    const double clock_ns = ClockNs();
    times.clear();
    Pass(window, capacity, stream, [&](const auto& f) {
      const uint64_t begin = NowNs();
      const auto entry = f();
      times.push_back(std::max(0.1, static_cast<double>(NowNs() - begin) - clock_ns));
      return entry;
    });
    at_least(&least.admit_median_ns, Quantile(times, 0.5));
    at_least(&least.admit_p99_ns, Quantile(times, 0.99));
    const uint64_t begin = NowNs();
    const uint64_t num_edges = Pass(window, capacity, stream, [](const auto& f) { return f(); });
    at_least(&least.both_ns, static_cast<double>(NowNs() - begin) / num_launches);
    least.edges = static_cast<double>(num_edges) / num_launches;
  }
  return least;
}

std::string Processor() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

int Run(const Options& options) {
  struct Row {
    const char* name;
    Memory memory;
  };
  constexpr Row kMemories[] = {
      {"ranges", Memory::kRanges}, {"tiles", Memory::kTiles}, {"fresh ranges", Memory::kFreshRanges}};
  nlohmann::json json = {{"processor", Processor()}, {"rows", nlohmann::json::array()}};
  fmt::print("{}; ns per launch, least of {} repetitions; edges per launch\n", Processor(), options.repetitions);
  fmt::print("{:<13} {:>2} {:>6}   {:<9} {:>7} {:>7} {:>15} {:>6}\n", "memory", "P", "window", "search", "median",
             "p99", "with completion", "edges");
  for (const Row& memory : kMemories) {
    for (const uint32_t width : {2u, 4u, 8u}) {
      const std::vector<Launch> stream =
          RigidBodyLike(options.seed, options.num_steps, options.num_kernels, width, memory.memory);
      for (const size_t capacity : {size_t{16}, size_t{32}, size_t{64}}) {
        const auto put = [&](const char* search, const Cost& cost) {
          fmt::print("{:<13} {:>2} {:>6}   {:<9} {:>7.0f} {:>7.0f} {:>15.0f} {:>6.2f}\n", memory.name, width, capacity,
                     search, cost.admit_median_ns, cost.admit_p99_ns, cost.both_ns, cost.edges);
          std::fflush(stdout);
          json["rows"].push_back({{"memory", memory.name},
                                  {"width", width},
                                  {"window", capacity},
                                  {"search", search},
                                  {"admit_median_ns", cost.admit_median_ns},
                                  {"admit_p99_ns", cost.admit_p99_ns},
                                  {"admit_and_complete_ns", cost.both_ns},
                                  {"edges", cost.edges}});
        };
        put("pair loop", Measure<PairLoop>(capacity, stream, options.repetitions));
        put("index", Measure<Window>(capacity, stream, options.repetitions));
      }
    }
  }
  if (options.json_path.empty()) return 0;
  std::ofstream file(options.json_path);
  file << json.dump(2) << '\n';
  file.flush();
  if (!file) fmt::print(stderr, "scheduler-window: cannot write '{}'\n", options.json_path);
  return file ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(kDescription, "scheduler-window");
  app.add_option("--kernels", options.num_kernels, "of a step (default 100)")->check(CLI::Range(1, 100'000));
  app.add_option("--steps", options.num_steps, "of a repetition (default 200)")->check(CLI::Range(2, 100'000));
  app.add_option("--repetitions", options.repetitions, "the least counts (default 15)")->check(CLI::Range(1, 10'000));
  app.add_option("--seed", options.seed, "of the stream (default 11)");
  app.add_option("--json", options.json_path, "also write everything to this file");
  app.add_flag("--smoke", options.is_smoke, "a short run of everything, to see that it works; numbers mean nothing");
  CLI11_PARSE(app, argc, argv);
  if (options.is_smoke) {
    options.num_steps = 4;
    options.repetitions = 1;
  }
  return Run(options);
}

}  // namespace
}  // namespace tally::scheduler_window

int main(int argc, char** argv) { return tally::scheduler_window::Main(argc, argv); }
