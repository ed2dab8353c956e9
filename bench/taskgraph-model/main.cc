// taskgraph-model: what the plans of factorisations promise on 2, 4, 8 GPUs, by a model of the machine. Nothing is run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/taskgraph-model/machine.h"
#include "bench/taskgraph-model/picture.h"
#include "scheduler/taskgraph/needed_edges.h"
#include "scheduler/taskgraph/task_plan.h"

namespace tally::taskgraph_model {
namespace {

using scheduler::Factorisation;
using scheduler::GraphEdge;
using scheduler::RegionMap;
using scheduler::Task;
using scheduler::TaskGraph;
using scheduler::TaskPlan;

constexpr const char* kDescription =
    "Plans tiled LU (no pivots) and Cholesky, captured from one stream, for several GPUs of one host, and prints what "
    "the plan's own model of the machine predicts. SIMULATED: no kernel runs, and no figure is a measurement.";

struct Options {
  std::vector<uint64_t> sizes = {12'000, 24'000, 48'000};
  std::vector<uint64_t> tiles = {12};
  std::vector<size_t> gpus = {2, 4, 8};
  std::string json_path;
  std::string picture_path;
  bool is_smoke = false;
};

struct Case {
  const char* name;
  Factorisation kind;
};
constexpr Case kCases[] = {{"LU", Factorisation::kLu}, {"Cholesky", Factorisation::kCholesky}};

double MsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// As one captured stream submits it, less what memory proves false.
TaskGraph GraphOf(std::vector<Task> tasks, const RegionMap& regions) {
  std::vector<GraphEdge> edges;
  for (uint32_t i = 1; i < tasks.size(); ++i) edges.push_back({i - 1, i});
  const TaskGraph submitted = *TaskGraph::Make(std::move(tasks), std::move(edges));
  const auto needed = NeededEdges(submitted, regions);
  return needed ? submitted.With(*needed) : submitted;
}

nlohmann::json PrintMachine() {
  nlohmann::json json = nlohmann::json::array();
  fmt::print("The machine of the model:\n");
  for (const Figure& figure : kFigures) {
    fmt::print("  {:<22} {:>6} {:<8} {}\n", figure.name, figure.value, figure.unit, figure.source);
    json.push_back({{"name", figure.name}, {"value", figure.value}, {"unit", figure.unit}, {"source", figure.source}});
  }
  return json;
}

// One that can be seen at a glance.
std::string SmallPlan() {
  std::vector<scheduler::TileOperation> operations;
  const auto cost_ns = [&](scheduler::TileOperation operation, uint64_t rows, uint64_t columns, uint64_t depth) {
    operations.push_back(operation);
    return TileCostNs(operation, rows, columns, depth);
  };
  std::vector<Task> tasks = FactorisationTasks(Factorisation::kLu, {.size = 24'000, .tile = 4'000}, cost_ns);
  const RegionMap regions = *RegionMap::Make(tasks);
  const auto plan = TaskPlan::Make(GraphOf(std::move(tasks), regions), regions, MachineOf(4));
  return PictureOf(*plan, operations, "Simulated: LU of 24,000 rows, 6 x 6 tiles, on four GPUs");
}

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.flush();
  if (!file) fmt::print(stderr, "taskgraph-model: cannot write '{}'\n", path);
  return static_cast<bool>(file);
}

int Run(const Options& options) {
  nlohmann::json json = {{"simulated", true}, {"machine", PrintMachine()}, {"rows", nlohmann::json::array()}};
  fmt::print("\nSIMULATED. Speed-up over one GPU of the model, everything back on the first GPU at the end\n");
  fmt::print("{:<9} {:>6} {:>3} {:>6} {:>9} {:>5} {:>9} {:>9} {:>9} {:>9} {:>8}\n", "", "n", "T", "tasks", "1 GPU ms",
             "GPUs", "ms", "speed-up", "at most", "moved GB", "plan ms");
  for (const Case& factorisation : kCases) {
    for (const uint64_t size : options.sizes) {
      for (const uint64_t num_tiles : options.tiles) {
        const uint64_t tile = (size + num_tiles - 1) / num_tiles;
        std::vector<Task> tasks = FactorisationTasks(factorisation.kind, {.size = size, .tile = tile}, TileCostNs);
        const RegionMap regions = *RegionMap::Make(tasks);
        const TaskGraph graph = GraphOf(std::move(tasks), regions);
        const double alone_ms = static_cast<double>(TaskPlan::Make(graph, regions, MachineOf(1))->end_ns()) / 1e6;
        for (const size_t num_gpus : options.gpus) {
          const auto begin = std::chrono::steady_clock::now();
          const auto plan = TaskPlan::Make(graph, regions, MachineOf(num_gpus));
          const double plan_ms = MsSince(begin);
          const double ms = static_cast<double>(plan->end_ns()) / 1e6;
          // By the longest way through the graph, or by the GPUs.
          const double at_most =
              std::min(static_cast<double>(num_gpus), alone_ms * 1e6 / static_cast<double>(graph.critical_path_ns()));
          const double moved_gb = static_cast<double>(plan->moved_bytes()) / 1e9;
          fmt::print("{:<9} {:>6} {:>3} {:>6} {:>9.1f} {:>5} {:>9.1f} {:>9.2f} {:>9.2f} {:>9.1f} {:>8.1f}\n",
                     factorisation.name, size, num_tiles, graph.size(), alone_ms, num_gpus, ms, alone_ms / ms, at_most,
                     moved_gb, plan_ms);
          std::fflush(stdout);
          json["rows"].push_back({{"factorisation", factorisation.name},
                                  {"size", size},
                                  {"tiles", num_tiles},
                                  {"tasks", graph.size()},
                                  {"gpus", num_gpus},
                                  {"one_gpu_ms", alone_ms},
                                  {"ms", ms},
                                  {"speed_up", alone_ms / ms},
                                  {"speed_up_at_most", at_most},
                                  {"moved_gb", moved_gb},
                                  {"plan_ms", plan_ms}});
        }
      }
    }
  }
  const bool is_drawn = options.picture_path.empty() || Write(options.picture_path, SmallPlan());
  return is_drawn && (options.json_path.empty() || Write(options.json_path, json.dump(2) + '\n')) ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app(kDescription, "taskgraph-model");
  app.add_option("--sizes", options.sizes, "rows of the matrix (default 12000 24000 48000)")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--tiles", options.tiles, "rows of tiles (default 12)")->check(CLI::Range(1, 32));
  app.add_option("--gpus", options.gpus, "default 2 4 8")->check(CLI::Range(size_t{1}, scheduler::kMostDevices));
  app.add_option("--json", options.json_path, "also write everything to this file");
  app.add_option("--picture", options.picture_path, "also draw the plan of a small LU into this file (SVG)");
  app.add_flag("--smoke", options.is_smoke, "a short run, to see that it works");
  CLI11_PARSE(app, argc, argv);
  if (options.is_smoke) options.sizes = {2'001}, options.tiles = {4};
  return Run(options);
}

}  // namespace
}  // namespace tally::taskgraph_model

int main(int argc, char** argv) { return tally::taskgraph_model::Main(argc, argv); }
