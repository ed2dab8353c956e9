#include "server/executor/mirror/placed_run.h"

#include <chrono>
#include <deque>
#include <thread>

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

bool IsCopy(MirrorCommandKind kind) {
  return kind == MirrorCommandKind::kFetch || kind == MirrorCommandKind::kWriteBack;
}

bool IsTask(MirrorCommandKind kind) { return kind == MirrorCommandKind::kLaunch || kind == MirrorCommandKind::kFill; }

// The state of one run: which steps wait for what, which are running.
class Run {
 public:
  Run(std::span<const PlacedStep> steps, std::span<StepQueue* const> queues, const std::function<CUresult()>& look)
      : steps_(steps),
        queues_(queues),
        look_(look),
        lanes_(queues.size()),
        missing_(steps.size()),
        followers_(steps.size()) {
    for (uint32_t i = 0; i < steps.size(); ++i) {
      missing_[i] = steps[i].after.size();
      for (const uint32_t before : steps[i].after) followers_[before].push_back(i);
      if (missing_[i] == 0) lanes_[steps[i].gpu].ready.push_back(i);
    }
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
  struct Lane {
    std::deque<uint32_t> ready;
    std::deque<Running> running;
    size_t num_commands = 0;  // that run
  };

  void Note(CUresult result) {
    if (error_ == CUDA_SUCCESS) error_ = result;
  }

  bool HasRoom(const Lane& lane, const StepQueue& queue) const {
    return lane.running.empty() || lane.num_commands + steps_[lane.ready.front()].num_commands() <= queue.capacity();
  }
  bool Start() {
    bool has_started = false;
    for (size_t gpu = 0; gpu < lanes_.size(); ++gpu) {
      Lane& lane = lanes_[gpu];
      while (error_ == CUDA_SUCCESS && !lane.ready.empty() && HasRoom(lane, *queues_[gpu])) {
        const uint32_t step = lane.ready.front();
        lane.ready.pop_front();
        has_started = true;
        if (steps_[step].is_empty()) {
          ++num_running_;
          End(step, CUDA_SUCCESS);
          continue;
        }
        const auto ticket = queues_[gpu]->Start(steps_[step]);
        if (!ticket) {
          Note(ticket.error());
          break;
        }
        lane.running.push_back({step, *ticket});
        lane.num_commands += steps_[step].num_commands();
        ++num_running_;
      }
    }
    return has_started;
  }

  bool Look() {
    bool has_ended = false;
    for (size_t gpu = 0; gpu < lanes_.size(); ++gpu) {
      std::erase_if(lanes_[gpu].running, [&](const Running& running) {
        const CUresult state = queues_[gpu]->StateOf(running.ticket);
        if (state == CUDA_ERROR_NOT_READY) return false;
        lanes_[gpu].num_commands -= steps_[running.step].num_commands();
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
    for (const uint32_t follower : followers_[step]) {
      if (--missing_[follower] == 0) lanes_[steps_[follower].gpu].ready.push_back(follower);
    }
  }

  const std::span<const PlacedStep> steps_;
  const std::span<StepQueue* const> queues_;
  const std::function<CUresult()>& look_;
  std::vector<Lane> lanes_;      // by GPU
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
    if (!step.more.empty() && !IsTask(command.kind)) return BadStep("commands behind none");
    if (step.more.size() > PlacedStep::kMostMore) return BadStep("too many commands");
    for (const StepCommand& next : step.more) {
      if (!IsTask(next.command.kind)) return BadStep("a command behind others that is no task's");
      if (next.bytes.size() > shm::kMirrorBytes) return BadStep("parameters that are too long");
      if (Status status = CheckCommand(next.command); !status.ok()) return status;
    }
    if (command.kind == MirrorCommandKind::kNone) continue;
    if (command.kind < MirrorCommandKind::kLaunch) return BadStep("a step that is no work");
    if (Status status = CheckCommand(command); !status.ok()) return status;
    if (!IsCopy(command.kind)) continue;
    if (step.gpu == 0) return BadStep("a copy that home is to make");
    if (command.gpu == step.gpu || command.gpu >= num_queues) return BadStep("a copy that leads nowhere");
  }
  return OkStatus();
}

CUresult RunSteps(std::span<const PlacedStep> steps, std::span<StepQueue* const> queues,
                  const std::function<CUresult()>& look) {
  return Run(steps, queues, look).ToTheEnd();
}

uint64_t CopiedBytes(std::span<const PlacedStep> steps) {
  uint64_t num_bytes = 0;
  for (const PlacedStep& step : steps) {
    if (IsCopy(step.command.kind)) num_bytes += step.command.row_bytes * step.command.rows;
  }
  return num_bytes;
}

}  // namespace tally::server
