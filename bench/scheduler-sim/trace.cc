#include "bench/scheduler-sim/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <random>

namespace tally::scheduler_sim {
namespace {

using scheduler::TenantClass;
constexpr std::string_view kHeader = "time_us,tenant,class,level,weight,request,duration_us,fill,turnaround_us";
constexpr double kThresholdUs = 31.6;

Nanoseconds FromMicroseconds(double microseconds) { return Nanoseconds(std::llround(microseconds * 1e3)); }

std::vector<std::string_view> Split(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

std::optional<double> Number(std::string_view text, double least, double most) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || !(number >= least && number <= most)) return std::nullopt;
  return number;
}

// What is wrong with the line, or nothing.
std::string AddLine(std::string_view line, std::map<std::string, size_t, std::less<>>& index_of, Trace& trace) {
  const std::vector<std::string_view> field = Split(line);
  if (field.size() != 9) return fmt::format("{} fields instead of 9", field.size());
  const auto at = Number(field[0], 0, 1e12);
  const auto level = Number(field[3], 0, scheduler::kNumLevels - 1);
  const auto weight = Number(field[4], 1, scheduler::kMaxWeight);
  const auto request = Number(field[5], 0, 1e15);
  const auto duration = Number(field[6], 0.001, 1e10);
  const auto fill = Number(field[7], 0.001, 1);
  const auto turnaround = Number(field[8], 0, 1e10);
  if (!at) return fmt::format("time_us '{}' is no number of microseconds", field[0]);
  if (field[1].empty()) return "the tenant has no name";
  if (field[2] != "high" && field[2] != "best-effort")
    return fmt::format("class '{}' is neither high nor best-effort", field[2]);
  if (!level) return fmt::format("level '{}' is not between 0 and {}", field[3], scheduler::kNumLevels - 1);
  if (!weight) return fmt::format("weight '{}' is not between 1 and {}", field[4], scheduler::kMaxWeight);
  if (!request) return fmt::format("request '{}' is no number", field[5]);
  if (!duration) return fmt::format("duration_us '{}' is not a time above 0", field[6]);
  if (!fill) return fmt::format("fill '{}' is not above 0 and at most 1", field[7]);
  if (!turnaround) return fmt::format("turnaround_us '{}' is no number of microseconds", field[8]);
  auto found = index_of.find(field[1]);
  if (found == index_of.end()) {
    found = index_of.emplace(std::string(field[1]), trace.tenants.size()).first;
    TraceTenant tenant;
    tenant.name = field[1];
    tenant.share.tenant_class = field[2] == "high" ? TenantClass::kHighPriority : TenantClass::kBestEffort;
    tenant.share.level = static_cast<uint8_t>(*level);
    tenant.share.weight = static_cast<uint32_t>(*weight);
    trace.tenants.push_back(std::move(tenant));
  }
  std::vector<TraceLaunch>& launches = trace.tenants[found->second].launches;
  const TraceLaunch launch{.at = FromMicroseconds(*at),
                           .request = static_cast<uint64_t>(*request),
                           .duration = FromMicroseconds(*duration),
                           .fill = static_cast<uint16_t>(std::max(1.0, *fill * scheduler::kFillsGpu)),
                           .turnaround = FromMicroseconds(*turnaround)};
  if (!launches.empty() && launches.back().at > launch.at)
    return "earlier than the launch before it of the same tenant";
  launches.push_back(launch);
  return "";
}

}  // namespace

Result<Trace> ReadTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error(StatusCode::kNotFound, fmt::format("cannot open '{}'", path));
  std::string line;
  if (!std::getline(file, line) || line != kHeader) {
    return Error(StatusCode::kInvalidArgument, fmt::format("{}:1: the first line is not '{}'", path, kHeader));
  }
  Trace trace;
  std::map<std::string, size_t, std::less<>> index_of;
  for (int number = 2; std::getline(file, line); ++number) {
    if (const std::string wrong = AddLine(line, index_of, trace); !wrong.empty()) {
      return Error(StatusCode::kInvalidArgument, fmt::format("{}:{}: {}", path, number, wrong));
    }
  }
  if (trace.tenants.empty()) return Error(StatusCode::kInvalidArgument, fmt::format("{}: no launches", path));
  return trace;
}

Status WriteTrace(const Trace& trace, const std::string& path) {
  std::ofstream file(path);
  file << kHeader << '\n';
  for (const TraceTenant& tenant : trace.tenants) {
    for (const TraceLaunch& launch : tenant.launches) {
      const bool is_high = tenant.share.tenant_class == TenantClass::kHighPriority;
      file << fmt::format("{},{},{},{},{},{},{},{},{}\n", static_cast<double>(launch.at.count()) / 1e3, tenant.name,
                          is_high ? "high" : "best-effort", tenant.share.level, tenant.share.weight, launch.request,
                          static_cast<double>(launch.duration.count()) / 1e3,
                          launch.fill / double{scheduler::kFillsGpu},
                          static_cast<double>(launch.turnaround.count()) / 1e3);
    }
  }
  file.flush();
  return file ? OkStatus() : Status(StatusCode::kUnknown, fmt::format("cannot write '{}'", path));
}

Trace GenerateTrace(const GeneratorOptions& options) {
  std::mt19937_64 random(options.seed);
  const auto uniform = [&](double from, double to) { return std::uniform_real_distribution<double>(from, to)(random); };
  const auto exponential = [&](double mean) { return std::exponential_distribution<double>(1 / mean)(random); };
  Trace trace;
  const double end_us = options.seconds * 1e6;
  for (int i = 0; i < options.num_tenants; ++i) {
    TraceTenant tenant;
    if (i < options.num_high_priority) {
      tenant.name = fmt::format("service{}", i);
      tenant.share.tenant_class = TenantClass::kHighPriority;
      const auto num_kernels = static_cast<size_t>(uniform(5, 21));
      std::vector<TraceLaunch> request(num_kernels);
      double alone_us = 0;
      for (TraceLaunch& launch : request) {
        launch.duration = FromMicroseconds(uniform(10, 80));
        launch.fill = static_cast<uint16_t>(uniform(300, 1000));
        alone_us += static_cast<double>(launch.duration.count()) / 1e3;
      }
      const double mean_gap_us = alone_us * options.num_high_priority / std::max(options.load, 1e-6);
      double rate = 1;
      double period_ends_us = 0;
      double free_us = 0;
      uint64_t number = 0;
      for (double at_us = exponential(mean_gap_us); at_us < end_us; at_us += exponential(mean_gap_us) / rate) {
        if (at_us > period_ends_us) {
          rate = rate > 1 ? 0.25 : 1.75;
          period_ends_us = at_us + exponential(50e3);
        }
        // A program makes its launches in order: a request that arrives during another one's launches comes after them.
        double launch_us = std::max(at_us, free_us);
        for (TraceLaunch launch : request) {
          launch.at = FromMicroseconds(launch_us);
          launch.request = number;
          tenant.launches.push_back(launch);
          launch_us += uniform(2, 6);
        }
        free_us = launch_us;
        ++number;
      }
    } else {
      tenant.name = fmt::format("training{}", i - options.num_high_priority);
      tenant.share.weight = std::array{50u, 100u, 200u, 400u}[static_cast<size_t>(i) % 4];
      tenant.repeats = true;
      const bool fills_gpu = random() % 2 == 0;
      const auto fill = fills_gpu ? scheduler::kFillsGpu : static_cast<uint16_t>(uniform(50, 600));
      for (int kernel = 0; kernel < 64; ++kernel) {
        const double duration_us = 5 * std::pow(200, uniform(0, 1));
        const bool has_variant = duration_us > kThresholdUs && uniform(0, 1) < options.yieldable;
        tenant.launches.push_back({.at = Nanoseconds(0),
                                   .request = 0,
                                   .duration = FromMicroseconds(duration_us),
                                   .fill = fill,
                                   .turnaround = FromMicroseconds(has_variant ? uniform(3, kThresholdUs) : 0)});
      }
    }
    trace.tenants.push_back(std::move(tenant));
  }
  return trace;
}

}  // namespace tally::scheduler_sim
