// StepQueue: where steps of a placed graph run: home's own GPU, or a mirror's.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <expected>
#include <map>
#include <span>
#include <vector>

#include "proto/shm/mirror_abi.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/mirror/mirror.h"

namespace tally::server {

// A launch or fill behind another one of the same step, as PlacedStep has the first.
struct StepCommand {
  shm::MirrorCommand command{};
  std::vector<std::byte> bytes;
};

// One step of a graph whose tasks have been given their GPUs: a launch or fill on GPU `gpu` (0: home), or a copy that
// the mirror `gpu` makes between its own memory and that of GPU `command.gpu`.
struct PlacedStep {
  uint32_t gpu = 0;
  shm::MirrorCommand command{};  // kNone, kLaunch, kFill; of mirrors also kFetch, kWriteBack. Its stream is chosen here
  std::vector<std::byte> bytes;  // a launch's parameters
  std::vector<uint32_t> after;   // steps that must have ended before: indices below its own
  // Of a launch or fill: others, one behind the other, kMostMore at most. They end as one.
  static constexpr size_t kMostMore = 511;
  std::vector<StepCommand> more{};
  // Of home: launched in place of the command, which may be kNone. Somebody else's.
  CUgraphExec graph = nullptr;

  size_t num_commands() const { return 1 + more.size(); }
  bool is_empty() const { return command.kind == shm::MirrorCommandKind::kNone && graph == nullptr; }
};

// A kLaunch with these parameters, on either side.
CUresult LaunchCommand(const DriverTable& driver, CUfunction function, const shm::MirrorCommand& command,
                       std::span<const std::byte> bytes, CUstream stream);

// One thread. Steps that were started on one queue run in any order.
class StepQueue {
 public:
  using Ticket = uint64_t;
  virtual ~StepQueue() = default;
  virtual std::expected<Ticket, CUresult> Start(const PlacedStep& step) = 0;
  // CUDA_ERROR_NOT_READY while it runs; else what became of it. Once answered the ticket is used up.
  virtual CUresult StateOf(Ticket ticket) = 0;
  // How many commands may run at once.
  virtual size_t capacity() const = 0;
};

class MirrorQueue final : public StepQueue {
 public:
  explicit MirrorQueue(Mirror& mirror) : mirror_(mirror) {}
  std::expected<Ticket, CUresult> Start(const PlacedStep& step) override;
  CUresult StateOf(Ticket ticket) override;
  // A step of more than that runs by itself; of one that has more than the page holds, Start waits for some to end.
  size_t capacity() const override { return shm::kMirrorSlots - 8; }

 private:
  Mirror& mirror_;
  uint32_t next_stream_ = 0;
  std::map<Ticket, uint64_t> first_of_;  // of several commands: the first one's position, by the last one's
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
  size_t capacity() const override { return shm::kMirrorSlots / 2; }
  // Puts a step on any stream.
  CUresult Issue(const PlacedStep& step, CUstream stream);

 private:
  CUresult IssueCommand(const shm::MirrorCommand& command, std::span<const std::byte> bytes, CUstream stream);

  const DriverTable& driver_;
  CompletionSource& completions_;
  const Names& names_;
  std::array<CUstream, shm::kMirrorStreams> streams_{};
  uint32_t next_stream_ = 0;
  Ticket next_ticket_ = 0;
  std::map<Ticket, Mark> running_;
};

}  // namespace tally::server
