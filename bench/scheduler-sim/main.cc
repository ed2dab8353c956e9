// scheduler-sim: the policies on traces, on a model of a GPU; and what their decisions cost on this machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/scheduler-sim/decision_cost.h"
#include "bench/scheduler-sim/simulation.h"
#include "scheduler/policy_list.h"

namespace tally::scheduler_sim {
namespace {

constexpr const char* kDescription =
    "Simulates Tally's scheduling policies on a model of a GPU, and measures what their decisions cost on this "
    "machine.\n"
    "Latencies, shares and fairness are SIMULATED: they say how policies differ, not how fast a GPU is.";
constexpr const char* kFooter = R"(Examples:
  scheduler-sim                                   1000 tenants, 10 of them high-priority, every policy
  scheduler-sim --tenants 2 --high 1 --load 0.5   one service beside one training
  scheduler-sim --policy tally --yieldable 0      nothing can yield, as PyTorch's own kernels today
  scheduler-sim --write-trace t.csv; scheduler-sim --trace t.csv

A trace is a CSV file with a header line and a line per launch (bench/scheduler-sim/README.md):
  time_us,tenant,class,level,weight,request,duration_us,fill,turnaround_us)";

struct Options {
  GeneratorOptions generator;
  SimulationOptions simulation;
  std::string trace_path;
  std::string write_trace_path;
  std::string json_path;
  std::vector<std::string> policies;
  int decision_ms = 1000;
  bool is_smoke = false;
};

double Milliseconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

// The high-priority tenants without anybody beside them.
Trace HighPriorityOnly(const Trace& trace) {
  Trace alone;
  for (const TraceTenant& tenant : trace.tenants) {
    if (tenant.share.tenant_class == scheduler::TenantClass::kHighPriority) alone.tenants.push_back(tenant);
  }
  return alone;
}

std::string Processor() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

nlohmann::json ToJson(std::string_view name, const SimulationResult& result) {
  return {{"policy", name},
          {"simulated",
           {{"requests", result.num_requests},
            {"requests_unfinished", result.num_unfinished},
            {"high_priority_p50_ms", Milliseconds(result.p50)},
            {"high_priority_p99_ms", Milliseconds(result.p99)},
            {"high_priority_max_ms", Milliseconds(result.longest)},
            {"high_priority_gpu_share", result.high_priority_share},
            {"best_effort_gpu_share", result.best_effort_share},
            {"best_effort_fairness", result.fairness},
            {"dispatches", result.num_dispatches},
            {"yielded", result.num_yields}}},
          {"simulation_wall_s", result.wall_seconds}};
}

void PrintRow(std::string_view name, const SimulationResult& result) {
  fmt::print("{:<16} {:>9} {:>9.3f} {:>9.3f} {:>9.3f} {:>7.1f}% {:>7.1f}% {:>9.3f} {:>10} {:>8}\n", name,
             result.num_requests, Milliseconds(result.p50), Milliseconds(result.p99), Milliseconds(result.longest),
             100 * result.high_priority_share, 100 * result.best_effort_share, result.fairness, result.num_dispatches,
             result.num_yields);
  std::fflush(stdout);
}

int Run(Options& options) {
  Result<Trace> trace = options.trace_path.empty() ? GenerateTrace(options.generator) : ReadTrace(options.trace_path);
  if (!trace) {
    fmt::print(stderr, "scheduler-sim: {}\n", trace.error().message());
    return 2;
  }
  if (!options.write_trace_path.empty()) {
    const Status written = WriteTrace(*trace, options.write_trace_path);
    if (!written.ok()) fmt::print(stderr, "scheduler-sim: {}\n", written.message());
    return written.ok() ? 0 : 1;
  }
  std::vector<const scheduler::PolicyRow*> policies;
  for (const std::string& name : options.policies) {
    const Result<const scheduler::PolicyRow*> row = scheduler::FindPolicy(name);
    if (!row) {
      fmt::print(stderr, "scheduler-sim: {}\n", row.error().message());
      return 2;
    }
    policies.push_back(*row);
  }
  if (policies.empty()) {
    // Without time slices, which the model has not, the GPU's own turns are `none`.
    for (const scheduler::PolicyRow& row : scheduler::Policies()) {
      if (!row.is_by_auto_only) policies.push_back(&row);
    }
  }
  options.simulation.end = Nanoseconds(static_cast<int64_t>(options.generator.seconds * 1e9));

  const Trace alone = HighPriorityOnly(*trace);
  nlohmann::json json = {{"what", "SIMULATED scheduling on a model of a GPU; decision costs are measured"},
                         {"tenants", trace->tenants.size()},
                         {"high_priority_tenants", alone.tenants.size()},
                         {"simulated_seconds", options.generator.seconds},
                         {"load", options.generator.load},
                         {"yieldable", options.generator.yieldable},
                         {"trace", options.trace_path.empty() ? "generated" : options.trace_path},
                         {"seed", options.generator.seed},
                         {"depth", options.simulation.depth},
                         {"variant_cost", options.simulation.variant_cost},
                         {"processor", Processor()}};
  fmt::print("SIMULATED: {} tenants, {} of them high-priority, {} s on a model of a GPU\n", trace->tenants.size(),
             alone.tenants.size(), options.generator.seconds);
  fmt::print("{:<16} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>10} {:>8}\n", "policy", "requests", "p50 ms",
             "p99 ms", "max ms", "high", "best-eff", "fairness", "dispatches", "yielded");
  if (!alone.tenants.empty()) {
    const SimulationResult result = Simulate(alone, **scheduler::FindPolicy("none"), options.simulation);
    PrintRow("(alone)", result);
    json["alone"] = ToJson("none", result);
  }
  for (const scheduler::PolicyRow* row : policies) {
    const SimulationResult result = Simulate(*trace, *row, options.simulation);
    PrintRow(row->name, result);
    json["policies"].push_back(ToJson(row->name, result));
  }

  fmt::print(
      "\nMEASURED on this machine ({}), by processor time of one thread: decisions of {} tenants that always want "
      "more\n",
      Processor(), trace->tenants.size());
  fmt::print("{:<16} {:>12} {:>14} {:>14} {:>13}\n", "policy", "decisions/s", "bytes/tenant", "bytes fixed",
             "allocations");
  for (size_t i = 0; i < policies.size(); ++i) {
    const DecisionCost cost = MeasureDecisions(*trace, *policies[i], options.simulation.policy,
                                               std::chrono::milliseconds(options.decision_ms));
    fmt::print("{:<16} {:>12.0f} {:>14.0f} {:>14.0f} {:>13}\n", policies[i]->name, cost.decisions_per_second,
               cost.bytes_per_tenant, cost.bytes_fixed, cost.num_allocations);
    json["policies"][i]["measured"] = {{"decisions_per_second", cost.decisions_per_second},
                                       {"bytes_per_tenant", cost.bytes_per_tenant},
                                       {"bytes_fixed", cost.bytes_fixed},
                                       {"allocations_while_deciding", cost.num_allocations}};
  }
  if (options.json_path.empty()) return 0;
  std::ofstream file(options.json_path);
  file << json.dump(2) << '\n';
  file.flush();
  if (!file) fmt::print(stderr, "scheduler-sim: cannot write '{}'\n", options.json_path);
  return file ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options options;
  double starvation_ms = 0;
  double max_hold_off_us = 500;
  CLI::App app(kDescription, "scheduler-sim");
  app.footer(kFooter);
  app.add_option("--policy", options.policies, "only this one (may be repeated; default: all)");
  app.add_option("--trace", options.trace_path, "replay this CSV file instead of a generated trace");
  app.add_option("--write-trace", options.write_trace_path,
                 "write the generated trace to this file, once through, and end");
  app.add_option("--tenants", options.generator.num_tenants, "tenants of a generated trace (default 1000)")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--high", options.generator.num_high_priority, "so many of them are high-priority (default 10)")
      ->check(CLI::Range(0, 100'000));
  app.add_option("--load", options.generator.load, "part of the GPU's time that high-priority work needs (default 0.3)")
      ->check(CLI::Range(0.001, 2.0));
  app.add_option("--yieldable", options.generator.yieldable,
                 "part of the long best-effort kernels that have a variant which yields (default 1)")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seconds", options.generator.seconds, "simulated time (default 10)")->check(CLI::Range(0.001, 1e5));
  app.add_option("--seed", options.generator.seed, "of the generator (default 1)");
  app.add_option("--depth", options.simulation.depth,
                 "launches of one program that may be in flight before its next one waits (default 8)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--variant-cost", options.simulation.variant_cost,
                 "how much longer kernels take in variants (default 1.05)")
      ->check(CLI::Range(1.0, 10.0));
  app.add_option("--starvation-ms", starvation_ms, "starvation bound of 'look-ahead' and 'tally' (default: none)")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--max-hold-off-us", max_hold_off_us, "longest hold-off of 'look-ahead' and 'tally' (default 500)")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--decision-ms", options.decision_ms, "for how long to measure decisions, per policy (default 1000)")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--json", options.json_path, "also write everything to this file");
  app.add_flag("--smoke", options.is_smoke, "a short run of everything, to see that it works; numbers mean nothing");
  CLI11_PARSE(app, argc, argv);
  if (options.is_smoke) {
    options.generator.num_tenants = 50;
    options.generator.num_high_priority = 3;
    options.generator.seconds = 0.2;
    options.decision_ms = 5;
  }
  if (options.generator.num_high_priority > options.generator.num_tenants) {
    fmt::print(stderr, "scheduler-sim: --high {} is more than --tenants {}\n", options.generator.num_high_priority,
               options.generator.num_tenants);
    return 2;
  }
  scheduler::Tuning& tuning = options.simulation.policy.tuning;
  tuning.max_hold_off = Nanoseconds(static_cast<int64_t>(max_hold_off_us * 1e3));
  tuning.min_hold_off = std::min(tuning.min_hold_off, tuning.max_hold_off);
  if (starvation_ms > 0) {
    options.simulation.policy.starvation_bound = Nanoseconds(static_cast<int64_t>(starvation_ms * 1e6));
  }
  return Run(options);
}

}  // namespace
}  // namespace tally::scheduler_sim

int main(int argc, char** argv) { return tally::scheduler_sim::Main(argc, argv); }
