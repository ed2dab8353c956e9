#include "server/executor/mirror/placed_run.h"

#include <chrono>
#include <queue>
#include <thread>
#include <utility>

#include "server/executor/mirror/mirror_command.h"

namespace tally::server {
namespace {

using shm::MirrorCommandKind;

using std::chrono::microseconds;
using std::chrono::steady_clock;

// Looks at which nothing had ended: one after the other at first, as a step is waited for by others; then these apart.
constexpr microseconds kLooksAtOnce{200}, kBetweenLooksAtSteps{20};
// For whether to go on at all.
constexpr microseconds kBetweenQuestions{1000};

// The state of one run: which steps wait for what, which are running.
class Run {
 public:
  Run(std::span<const PlacedStep> steps, std::span<StepQueue* const> queues, const std::function<CUresult()>& look,
      std::vector<StepTimes>* times)
      : steps_(steps),
        queues_(queues),
        look_(look),
        times_(times),
        lanes_(queues.size()),
        missing_(steps.size()),
        followers_(steps.size()) {
    for (uint32_t i = 0; i < steps.size(); ++i) {
      missing_[i] = steps[i].after.size();
      for (const uint32_t before : steps[i].after) followers_[before].push_back(i);
      if (missing_[i] == 0) MakeReady(i);
    }
    if (times_ != nullptr) times_->assign(steps.size(), {});
  }

  CUresult ToTheEnd() {
    auto changed_at = steady_clock::now(), asked_at = changed_at;
    while (true) {
      const bool has_changed = Start() | Look();
      if (num_running_ == 0 && (error_ != CUDA_SUCCESS || num_ended_ == steps_.size())) return error_;
      const auto now = steady_clock::now();
      if (now - asked_at > kBetweenQuestions) {
        Note(look_());
        asked_at = now;
      }
      if (has_changed) {
        changed_at = now;
      } else if (now - changed_at > kLooksAtOnce) {
        std::this_thread::sleep_for(kBetweenLooksAtSteps);
      }
    }
  }

 private:
  struct Running {
    uint32_t step;
    StepQueue::Ticket ticket;
  };
  // In the plan's order: the first is waited for most.
  using Ready = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;
  struct Lane {
    Ready tasks, copies;
    std::vector<Running> running;
  };

  void Note(CUresult result) {
    if (error_ == CUDA_SUCCESS) error_ = result;
  }
  void MakeReady(uint32_t step) {
    Lane& lane = lanes_[steps_[step].gpu];
    (steps_[step].is_copy() ? lane.copies : lane.tasks).push(step);
  }

  bool Start() {
    bool has_started = false;
    for (size_t gpu = 0; gpu < lanes_.size(); ++gpu) {
      for (Ready* ready : {&lanes_[gpu].copies, &lanes_[gpu].tasks}) {
        while (error_ == CUDA_SUCCESS && !ready->empty() && StartOne(gpu, ready->top())) {
          ready->pop();
          has_started = true;
        }
      }
    }
    return has_started;
  }
  // False: it has to wait, or there was an error.
  bool StartOne(size_t gpu, uint32_t step) {
    if (times_ != nullptr) (*times_)[step].begin = steady_clock::now() - began_;
    if (steps_[step].is_empty()) {
      empty_.push_back(step);
      ++num_running_;
      return true;
    }
    const auto ticket = queues_[gpu]->Start(steps_[step]);
    if (!ticket) {
      if (ticket.error() != CUDA_ERROR_NOT_READY) Note(ticket.error());
      return false;
    }
    lanes_[gpu].running.push_back({step, *ticket});
    ++num_running_;
    return true;
  }

  bool Look() {
    bool has_ended = !empty_.empty();
    for (const uint32_t step : std::exchange(empty_, {})) End(step, CUDA_SUCCESS);
    for (size_t gpu = 0; gpu < lanes_.size(); ++gpu) {
      std::erase_if(lanes_[gpu].running, [&](const Running& running) {
        const CUresult state = queues_[gpu]->StateOf(running.ticket);
        if (state == CUDA_ERROR_NOT_READY) return false;
        End(running.step, state);
        has_ended = true;
        return true;
      });
    }
    return has_ended;
  }

  void End(uint32_t step, CUresult result) {
    --num_running_;
    ++num_ended_;
    if (result != CUDA_SUCCESS) return Note(result);
    if (times_ != nullptr) (*times_)[step].end = steady_clock::now() - began_;
    for (const uint32_t follower : followers_[step]) {
      if (--missing_[follower] == 0) MakeReady(follower);
    }
  }

  const std::span<const PlacedStep> steps_;
  const std::span<StepQueue* const> queues_;
  const std::function<CUresult()>& look_;
  std::vector<StepTimes>* const times_;
  const steady_clock::time_point began_ = steady_clock::now();
  std::vector<Lane> lanes_;      // by GPU
  std::vector<uint32_t> empty_;  // that have been started
  std::vector<size_t> missing_;  // of each step: how many it still waits for
  std::vector<std::vector<uint32_t>> followers_;
  size_t num_running_ = 0;
  size_t num_ended_ = 0;
  CUresult error_ = CUDA_SUCCESS;
};

Status BadStep(const char* what) { return Status(StatusCode::kInvalidArgument, what); }

}  // namespace

Status CheckSteps(std::span<const PlacedStep> steps, size_t num_queues) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const PlacedStep& step = steps[i];
    const shm::MirrorCommand& command = step.command;
    if (step.gpu >= num_queues) return BadStep("a step on a GPU that has no queue");
    if (step.bytes.size() > shm::kMirrorBytes) return BadStep("parameters that are too long");
    for (const uint32_t before : step.after) {
      if (before >= i) return BadStep("an edge that does not lead backwards");
    }
    if (step.graph != nullptr && step.gpu != 0) return BadStep("a graph that is not home's");
    if (command.kind == MirrorCommandKind::kNone) continue;
    if (command.kind < MirrorCommandKind::kLaunch) return BadStep("a step that is no work");
    if (Status status = CheckCommand(command); !status.ok()) return status;
    if (step.gpu == 0 && command.kind == MirrorCommandKind::kRun) return BadStep("a task that home has no graph of");
    if (!step.is_copy()) continue;
    if (step.gpu == 0) return BadStep("a copy that home is to make");
    if (command.gpu == step.gpu || command.gpu >= num_queues) return BadStep("a copy that leads nowhere");
  }
  return OkStatus();
}

CUresult RunSteps(std::span<const PlacedStep> steps, std::span<StepQueue* const> queues,
                  const std::function<CUresult()>& look, std::vector<StepTimes>* times) {
  return Run(steps, queues, look, times).ToTheEnd();
}

uint64_t CopiedBytes(std::span<const PlacedStep> steps) {
  uint64_t num_bytes = 0;
  for (const PlacedStep& step : steps) {
    if (step.is_copy()) num_bytes += step.command.row_bytes * step.command.rows;
  }
  return num_bytes;
}

}  // namespace tally::server
