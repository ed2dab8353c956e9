// tally-switch-test: how long a forced switch from best-effort to high-priority work takes on this GPU with this
// driver. Two processes, one of which fills the GPU with kernels of 10 ms, with the driver's time slices, with the
// shortest, and descheduled between the kernels of a burst. With --notice: what is left of a switch that begins before
// the kernel comes. With --expectation: if that is known less exactly.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/command_line.h"
#include "base/unique_fd.h"
#include "proto/control/version.h"
#include "server/executor/process/gpu_channel_groups.h"
#include "server/executor/process/switch_expectation.h"
#include "server/executor/process/switch_gpu.h"
#include "server/executor/process/switch_notice.h"
#include "server/executor/process/switch_partner.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr microseconds kLongest{1'000'000};
constexpr int kRequests = 200;

SwitchLatency Measure(SwitchGpu& gpu) {
  std::vector<double> us;
  for (int i = 0; i < kRequests; ++i) {
    std::this_thread::sleep_for(microseconds(2000 + i * 37 % 1900));  // at all points of a slice
    const auto since = steady_clock::now();
    if (!gpu.Launch(0) || !gpu.Await()) break;
    us.push_back(std::chrono::duration<double, std::micro>(steady_clock::now() - since).count());
  }
  return Summary(std::move(us));
}

struct Descheduling {
  SwitchLatency without, with;  // of bursts, beside best-effort work with short slices
  microseconds taking_off{0}, going_on{0};
  bool is_possible = false;
  bool gets_on = false;  // with nobody else on the GPU
  bool is_of_use() const { return is_possible && with.p50_us > 0 && with.p50_us < without.p50_us; }
};

// `order` tells the best-effort process, which works, and says whether it did as told.
template <typename Order>
Descheduling MeasureDescheduling(SwitchGpu& gpu, const Order& order) {
  Descheduling found;
  const auto timed = [&](char word, microseconds* took) {
    const auto since = steady_clock::now();
    const bool is_done = order(word);
    *took = std::chrono::duration_cast<microseconds>(steady_clock::now() - since);
    return is_done;
  };
  found.without = MeasureBursts(gpu, /*num_staying=*/0);
  const bool can_deschedule = timed(kDeschedule, &found.taking_off);
  found.with = MeasureBursts(gpu, /*num_staying=*/0);
  found.is_possible = timed(kGoOn, &found.going_on) && can_deschedule;
  if (found.is_possible && order(kRest)) {
    std::this_thread::sleep_for(milliseconds(100));  // what is in flight
    found.gets_on = order(kGetOn);
  }
  return found;
}

void PrintBeside(SwitchGpu& gpu) {
  Print("beside a kernel on another stream that runs on for 300 us", MeasureBesideOneThatRuns(gpu, false));
  Print("behind a kernel on the same stream that runs on for 300 us", MeasureBesideOneThatRuns(gpu, true));
}

constexpr const char* kDescription =
    "tally-switch-test measures how soon this GPU can be taken from best-effort work by the driver's time slices,\n"
    "what descheduling that work spares the kernels of a burst, and whether it gets on afterwards.\n"
    "It takes a few seconds; end other programs that use the GPU first. tallyd runs it when it starts.";
constexpr const char* kFooter =
    "\nExit status:\n"
    "  0  time slices can be set and act\n"
    "  1  it could not be measured\n"
    "  2  time slices cannot be set, or do not act";

// Forks: the process must not have used a driver yet.
int Run(bool as_json, bool with_notice, bool with_expectation) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  int to_child[2], from_child[2];
  if (::pipe(to_child) != 0 || ::pipe(from_child) != 0) return 1;
  const pid_t child = ::fork();
  if (child < 0) return 1;
  if (child == 0) {
    ::close(to_child[1]);
    ::close(from_child[0]);
    BeBestEffort(to_child[0], from_child[1]);
  }
  UniqueFd commands(to_child[1]), answers(from_child[0]);
  ::close(to_child[0]);
  ::close(from_child[1]);
  const auto order = [&](char word) {
    char answer = kFailed;
    return Tell(commands.get(), word) && Hear(answers.get(), &answer, milliseconds(20'000)) && answer == kReady;
  };
  GpuChannelGroups::OfThisProcess().WantTimeSlice(kLongest);
  SwitchGpu gpu;
  const std::string failure = gpu.Open();
  char answer = kFailed;
  const bool is_child_ready = Hear(answers.get(), &answer, milliseconds(60'000)) && answer == kReady;
  if (!failure.empty() || !is_child_ready) {
    fmt::print(stderr, "tally-switch-test: the GPU cannot be used: {}\n",
               failure.empty() ? "the second process failed" : failure);
    return 1;
  }
  const GpuChannelGroups::TimeSlices slices = GpuChannelGroups::OfThisProcess().CheckTimeSlices();
  const SwitchLatency alone = Measure(gpu);
  const SwitchLatency burst_alone = as_json ? SwitchLatency{} : MeasureBursts(gpu, /*num_staying=*/0);
  bool is_set = slices.num_groups > 0 && slices.num_refused == 0;
  is_set = order(kOwn) && is_set;
  const SwitchLatency own = Measure(gpu);
  is_set = order(kShort) && is_set;
  const SwitchLatency forced = Measure(gpu);
  const Descheduling descheduling = as_json ? Descheduling{} : MeasureDescheduling(gpu, order);
  if (with_notice && order(kShort)) {
    PrintNotices(gpu, commands.get(), answers.get());
    Print("a kernel of 100 us in a burst, one stays meanwhile", MeasureBursts(gpu, /*num_staying=*/1));
    Print("the same, eight that queue stay meanwhile", MeasureBursts(gpu, /*num_staying=*/8));
    PrintBeside(gpu);
    order(kRest);
    std::this_thread::sleep_for(milliseconds(100));  // what is in flight
    fmt::print("with nobody else on the GPU:\n");
    PrintBeside(gpu);
  }
  if (with_expectation && order(kShort)) PrintExpectations(gpu);
  order(kRest);
  commands.Reset();
  ::waitpid(child, nullptr, 0);
  // The driver's own slices are 1 ms and more.
  const bool acts = is_set && forced.p99_us > 0 && forced.p99_us < 1000;
  if (as_json) {
    fmt::print("{{\"acts\": {}, \"p50_us\": {:.1f}, \"p99_us\": {:.1f}, \"own_p99_us\": {:.1f}}}\n", acts,
               forced.p50_us, forced.p99_us, own.p99_us);
    return acts ? 0 : 2;
  }
  fmt::print("time slices of {} GPU channel groups: {} to {} us; {} refused\n", slices.num_groups,
             slices.shortest.count(), slices.longest.count(), slices.num_refused);
  Print("a kernel alone", alone);
  Print("beside kernels of 10 ms, with the driver's time slices", own);
  Print("beside kernels of 10 ms, with time slices of 1 us", forced);
  Print("a kernel of 100 us in a burst, alone", burst_alone);
  Print("the same, with time slices of 1 us", descheduling.without);
  if (descheduling.is_of_use()) {
    Print("the same, best-effort work descheduled", descheduling.with);
    fmt::print("descheduling took {} us, going on {} us\n", descheduling.taking_off.count(),
               descheduling.going_on.count());
    fmt::print("with nobody else on the GPU, what was descheduled gets on with it: {}\n",
               descheduling.gets_on ? "always" : "not always");
  } else {
    fmt::print("best-effort work cannot be descheduled, or that is of no use\n");
  }
  if (!is_set) fmt::print("the driver refuses to set time slices\n");
  if (is_set && !acts) fmt::print("time slices are set but do not act\n");
  if (acts) fmt::print("a switch from best-effort work takes {:.1f} us at the 99th percentile\n", forced.p99_us);
  return acts ? 0 : 2;
}

}  // namespace
}  // namespace tally::server

int main(int argc, char** argv) {
  bool as_json = false, with_notice = false, with_expectation = false;
  CLI::App app(tally::server::kDescription, "tally-switch-test");
  app.footer(tally::server::kFooter);
  app.set_version_flag("--version", tally::control::VersionLine("tally-switch-test"));
  app.add_flag("--json", as_json, "print one JSON object instead of sentences, about the time slices only");
  app.add_flag(
      "--notice", with_notice,
      "also what is left of a switch that is brought about some time before a kernel comes, and what a kernel\n"
      "on a second stream waits for; 20 s");
  app.add_flag("--expectation", with_expectation,
               "also what is left of a switch if a kernel is only known to come within some time; 20 s");
  if (const auto exit_status = tally::ParseCommandLine(app, argc, argv, {.wrong_usage = 1})) return *exit_status;
  return tally::server::Run(as_json, with_notice, with_expectation);
}
