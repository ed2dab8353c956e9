#include "server/executor/process/switch_partner.h"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>
#include <thread>

#include "base/thread.h"
#include "server/executor/process/gpu_channel_groups.h"
#include "server/executor/process/switch_gpu.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kShortest{1};
constexpr uint64_t kSpinNs = 10'000'000;
constexpr int kSpinsInFlight = 4;
// What is descheduled with nobody else on the GPU.
constexpr int kDeschedulings = 40;
constexpr uint64_t kDescheduledKernelNs = 300'000;
constexpr milliseconds kLongestGoingOn{50};

bool GetsOn(SwitchGpu& gpu) {
  GpuChannelGroups& groups = GpuChannelGroups::OfThisProcess();
  gpu.Enter();
  int num_stuck = 0;
  for (int i = 0; i < kDeschedulings; ++i) {
    for (int kernel = 0; kernel < kSpinsInFlight; ++kernel) gpu.Launch(kDescheduledKernelNs);
    std::this_thread::sleep_for(microseconds(50 + i * 97 % 700));
    if (groups.Deschedule(0, true) == 0) return false;
    std::this_thread::sleep_for(microseconds(100 + i * 61 % 900));
    groups.Deschedule(0, false);
    if (gpu.IsDoneWithin(kLongestGoingOn)) continue;
    ++num_stuck;
    if (!gpu.Launch(0) || !gpu.IsDoneWithin(milliseconds(1000))) return false;  // which helps
  }
  return num_stuck == 0;
}

// Whether the time slices are as they should be, or all groups that run kernels are.
bool Obey(char word) {
  GpuChannelGroups& groups = GpuChannelGroups::OfThisProcess();
  if (word == kDeschedule || word == kGoOn)
    return (groups.Deschedule(0, word == kDeschedule) > 0) == (word == kDeschedule);
  if (word != kRest) groups.WantTimeSlice(word == kShort ? kShortest : microseconds(0));
  const auto slices = groups.CheckTimeSlices();
  return slices.num_groups > 0 && slices.num_refused == 0;
}

}  // namespace

bool Tell(int fd, char word) { return ::write(fd, &word, 1) == 1; }
bool Hear(int fd, char* word, std::chrono::milliseconds limit) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, static_cast<int>(limit.count())) == 1 && ::read(fd, word, 1) == 1;
}

void BeBestEffort(int commands, int answers) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  SwitchGpu gpu;
  const std::string failure = gpu.Open();
  Tell(answers, failure.empty() ? kReady : kFailed);
  std::atomic<bool> is_working = false;
  auto worker = StartThread("best-effort", [&] {
    gpu.Enter();
    for (bool works = failure.empty(); works;) {
      for (int i = 0; is_working && i < kSpinsInFlight; ++i) gpu.Launch(kSpinNs);
      works = gpu.Await();
      if (!is_working) std::this_thread::sleep_for(milliseconds(1));
    }
  });
  if (!worker) ::_exit(1);
  worker->detach();
  for (char word = 0; Hear(commands, &word, milliseconds(60'000));) {
    is_working = word != kRest && word != kGetOn;
    const bool is_done = word == kGetOn ? GetsOn(gpu) : Obey(word);
    Tell(answers, is_done ? kReady : kFailed);
  }
  GpuChannelGroups::OfThisProcess().Deschedule(0, false);
  ::_exit(0);
}

}  // namespace tally::server
