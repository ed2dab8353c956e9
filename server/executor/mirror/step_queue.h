// StepQueue: where steps of a placed graph run: home's own GPU, or a mirror's.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "proto/shm/mirror_abi.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/mirror/mirror.h"

namespace tally::server {

struct StepCommand {
  shm::MirrorCommand command{};
  std::vector<std::byte> bytes{};  // a launch's parameters
};

// Makes them, one behind the other, a task of the mirror, which kRun starts by this number; nothing of them is carried
// out meanwhile. An error: there is no such task, or another one has the number.
CUresult DescribeTask(Mirror& mirror, uint32_t task, std::span<const StepCommand> commands);

// One step of a graph whose tasks have been given their GPUs: a launch, a fill or a task on GPU `gpu` (0: home), or a
// copy that the mirror `gpu` makes between its own memory and that of GPU `command.gpu`.
struct PlacedStep {
  uint32_t gpu = 0;
  shm::MirrorCommand command{};  // kNone, kLaunch, kFill; of mirrors also kRun, kFetch, kWriteBack
  std::vector<std::byte> bytes;  // a launch's parameters
  std::vector<uint32_t> after;   // steps that must have ended before: indices below its own
  // Of home: launched in place of the command, which may be kNone. Somebody else's.
  CUgraphExec graph = nullptr;
  uint64_t num_blocks = 1;  // that may run side by side

  bool is_empty() const { return command.kind == shm::MirrorCommandKind::kNone && graph == nullptr; }
  bool is_copy() const { return command.kind >= shm::MirrorCommandKind::kFetch; }
};

// A kLaunch with these parameters, on either side.
CUresult LaunchCommand(const DriverTable& driver, CUfunction function, const shm::MirrorCommand& command,
                       std::span<const std::byte> bytes, CUstream stream);

// The steps that run on one GPU, each on a stream of its own: nothing waits for what it does not come behind. Who comes
// first is for RunSteps to say, so no more is started than keeps the GPU busy; a copy never waits for a task.
class RunningSteps {
 public:
  using Ticket = uint64_t;
  static constexpr uint32_t kMostTasks = 8, kMostCopies = 4;
  static_assert(kMostTasks + kMostCopies == shm::kMirrorStreams);
  // Of all that run: two for each multiprocessor of an H100 or H200. While one task runs another may always begin, so
  // that the GPU need not wait for the next.
  static constexpr uint64_t kEnoughBlocks = 264;

  // The stream for it; nothing: it has to wait.
  std::optional<uint32_t> StreamFor(const PlacedStep& step) const;
  void Add(uint32_t stream, const PlacedStep& step, Ticket ticket);
  void Remove(Ticket ticket);
  // The lowest.
  std::optional<Ticket> first() const;

 private:
  struct Running {
    Ticket ticket = 0;
    uint64_t num_blocks = 0;
  };
  std::array<std::optional<Running>, shm::kMirrorStreams> on_stream_;
};

// One thread.
class StepQueue {
 public:
  using Ticket = RunningSteps::Ticket;
  virtual ~StepQueue() = default;
  // CUDA_ERROR_NOT_READY: not before one that runs has ended.
  virtual std::expected<Ticket, CUresult> Start(const PlacedStep& step) = 0;
  // CUDA_ERROR_NOT_READY while it runs; else what became of it. Once answered the ticket is used up.
  virtual CUresult StateOf(Ticket ticket) = 0;
};

class MirrorQueue final : public StepQueue {
 public:
  explicit MirrorQueue(Mirror& mirror) : mirror_(mirror) {}
  std::expected<Ticket, CUresult> Start(const PlacedStep& step) override;
  CUresult StateOf(Ticket ticket) override;

 private:
  Mirror& mirror_;
  RunningSteps running_;
};

// On streams of its own of the context that is current while it is used.
class HomeQueue final : public StepQueue {
 public:
  // Home's own numbers of kernels and allocations, as its mirrors have them.
  struct Names {
    std::map<uint32_t, CUfunction> functions;
    std::map<uint32_t, CUdeviceptr> allocations;
  };
  HomeQueue(const DriverTable& driver, CompletionSource& completions, const Names& names)
      : driver_(driver), completions_(completions), names_(names) {}
  ~HomeQueue() override;
  std::expected<Ticket, CUresult> Start(const PlacedStep& step) override;
  CUresult StateOf(Ticket ticket) override;

 private:
  CUresult Issue(const PlacedStep& step, CUstream stream);

  const DriverTable& driver_;
  CompletionSource& completions_;
  const Names& names_;
  std::array<CUstream, shm::kMirrorStreams> streams_{};
  RunningSteps running_;
  Ticket next_ticket_ = 0;
  std::map<Ticket, Mark> marks_;
};

}  // namespace tally::server
