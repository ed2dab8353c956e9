#include "sim-driver/engine/machine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "sim-driver/engine/driver_thread.h"
#include "sim-driver/engine/execution.h"
#include "sim-driver/engine/grid.h"
#include "sim-driver/engine/memory_view.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {
namespace {

// Every so many picks the grid that waited longest gets a turn for a resident block, whatever its priority: on a
// device, too, what is resident keeps running.
constexpr uint64_t kAgingPeriod = 16;
constexpr size_t kPooledClusters = 64;
constexpr size_t kPooledBytes = 16u << 20;  // bigger cluster memory is not kept
constexpr uint32_t kPollsBeforeSleep = 256;

std::string CheckRequest(const LaunchRequest& request) {
  if (!request.program || !request.memory) return "no program or no memory";
  const ProgramCode& code = request.program->code();
  if (request.kernel_index >= code.kernels.size()) return "no such kernel";
  const Kernel& kernel = code.kernels[request.kernel_index];
  const Dim3& grid = request.grid;
  const Dim3& block = request.block;
  const Dim3& cluster = request.cluster;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 || grid.x > 0x7fffffff)
    return "grid dimensions";
  if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      block.Count() > kernel.max_threads_per_block)
    return "block dimensions";
  const auto& required = kernel.required_block;
  if (required[0] != 0 && (block.x != required[0] || block.y != required[1] || block.z != required[2]))
    return "block dimensions differ from .reqntid";
  if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0 || cluster.x > 16 || cluster.y > 16 || cluster.z > 16 ||
      cluster.Count() > 16 || grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
    return "cluster dimensions";
  if (uint64_t{kernel.dynamic_shared_offset_bytes} + request.dynamic_shared_bytes >
      MachineLimits::kSharedBytesPerBlockOptin)
    return "shared memory";
  if (request.variable_addresses.size() < code.variables.size()) return "addresses of variables";
  return {};
}

}  // namespace

class Machine::Core {
 public:
  explicit Core(const MachineOptions& machine_options) : options(machine_options) {
    uint32_t count = options.num_workers;
    if (count == 0) count = std::max(2u, std::thread::hardware_concurrency());
    for (uint32_t k = 0; k < count; ++k) {
      auto worker = StartDriverThread("sim-worker", [this] { Work(); });
      if (!worker) break;  // fewer do, more slowly
      workers_.push_back(std::move(*worker));
    }
  }

  ~Core() {
    Cancel([](const Grid&) { return true; });
    {
      std::lock_guard lock(mutex_);
      ends_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  uint64_t Submit(LaunchRequest request, OnDone on_done) {
    uint64_t id = next_id_.fetch_add(1, std::memory_order_relaxed);
    if (request.program && request.kernel_index < request.program->kernels().size()) {
      const auto& required = request.program->kernels()[request.kernel_index].required_cluster;
      if (required[0] != 0 && request.cluster.Count() == 1) request.cluster = {required[0], required[1], required[2]};
    }
    std::optional<Fault> refusal;
    if (std::string why = CheckRequest(request); !why.empty()) {
      refusal = Fault{kFaultInvalidValue, Format("launch refused: {}", why)};
    } else if (const Kernel& kernel = request.program->kernels()[request.kernel_index]; !kernel.unsupported.empty()) {
      refusal = Fault{kFaultNotSupported, Format("kernel {} needs what the software driver does not do: {}",
                                                 kernel.name, kernel.unsupported)};
    }
    if (refusal) {
      on_done(refusal);
      return id;
    }
    std::unique_lock lock(mutex_);
    std::shared_ptr<Heap> heap = HeapFor(request.memory);
    lock.unlock();
    auto grid = std::make_shared<Grid>(std::move(request), id, std::move(heap), options);
    grid->on_done = std::move(on_done);
    lock.lock();
    bool is_small = grid->num_clusters == 1;
    grid->last_served = picks_;
    grids_.push_back(std::move(grid));
    ++unfinished_;
    epoch_.fetch_add(1, std::memory_order_release);
    lock.unlock();
    if (is_small) {
      work_.notify_one();
    } else {
      work_.notify_all();
    }
    return id;
  }

  template <typename Matches>
  void Cancel(Matches matches) {
    std::vector<std::shared_ptr<Grid>> done;
    {
      std::lock_guard lock(mutex_);
      for (auto at = grids_.begin(); at != grids_.end();) {
        std::shared_ptr<Grid> grid = *at++;
        if (!matches(*grid)) continue;
        StopGrid(*grid, Fault{kFaultCancelled, "cancelled"});
        if (RetireIfDone(grid)) done.push_back(std::move(grid));
      }
      epoch_.fetch_add(1, std::memory_order_release);
    }
    for (const auto& grid : done) Report(*grid);
  }

  void WaitIdle() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return unfinished_ == 0; });
  }

  bool has_workers() const { return !workers_.empty(); }

  const MachineOptions options;
  std::atomic<uint64_t> thread_instructions{0};
  std::atomic<uint64_t> blocks{0};
  std::atomic<uint64_t> finished_grids{0};

 private:
  struct Piece {
    std::shared_ptr<Grid> grid;
    std::unique_ptr<Cluster> cluster{};
    bool is_new = false;
    uint64_t index = 0;  // of a new one
  };

  std::shared_ptr<Heap> HeapFor(const std::shared_ptr<const MemoryLookup>& memory) {
    std::shared_ptr<Heap> heap;
    std::erase_if(heaps_, [&](const auto& entry) {
      auto alive = entry.first.lock();
      if (alive == memory) heap = entry.second;
      return alive == nullptr;
    });
    if (!heap) heap = heaps_.emplace_back(memory, std::make_shared<Heap>()).second;
    return heap;
  }

  // Index of a suspended cluster of `grid` that wants to run; -1 if there is none. Lowers `wake_ns` to when one will.
  static int64_t FindAwake(const Grid& grid, uint64_t now_ns, uint64_t* wake_ns) {
    for (size_t k = 0; k < grid.suspended.size(); ++k) {
      if (grid.suspended[k]->wake_ns <= now_ns) return static_cast<int64_t>(k);
      *wake_ns = std::min(*wake_ns, grid.suspended[k]->wake_ns);
    }
    return -1;
  }

  static bool CanStart(const Grid& grid) {
    return !grid.is_stopping.load(std::memory_order_relaxed) && grid.resident < grid.max_resident &&
           grid.next_cluster.load(std::memory_order_relaxed) < grid.num_clusters;
  }

  // What to run next; needs the lock. An empty grid: nothing before `wake_ns`.
  Piece Pick(uint64_t* wake_ns) {
    ++picks_;
    bool ages = picks_ % kAgingPeriod == 0;
    uint64_t now_ns = 0;
    for (const auto& grid : grids_)
      for (const auto& cluster : grid->suspended)
        if (cluster->wake_ns != 0 && now_ns == 0) now_ns = NowNs();
    std::shared_ptr<Grid> best;
    bool best_has_suspended = false;
    for (const auto& grid : grids_) {
      bool has_suspended = FindAwake(*grid, now_ns, wake_ns) >= 0;
      if (!has_suspended && !CanStart(*grid)) continue;
      bool is_better = !best;
      if (best && ages && has_suspended != best_has_suspended) {
        is_better = has_suspended;
      } else if (best && !ages && grid->request.priority != best->request.priority) {
        is_better = grid->request.priority < best->request.priority;
      } else if (best) {
        is_better = grid->last_served < best->last_served;
      }
      if (!is_better) continue;
      best = grid;
      best_has_suspended = has_suspended;
    }
    if (!best) return {};
    best->last_served = picks_;
    Piece piece{.grid = best};
    bool starts = CanStart(*best) && (!best_has_suspended || best->request.is_cooperative ||
                                      best->resumed_since_start >= best->suspended.size());
    if (starts) {
      piece.index = best->next_cluster.fetch_add(1, std::memory_order_relaxed);
      starts = piece.index < best->num_clusters;  // a worker may take one without the lock
    }
    if (starts) {
      best->resumed_since_start = 0;
      ++best->resident;
      piece.is_new = true;
      if (!pool_.empty()) {
        piece.cluster = std::move(pool_.back());
        pool_.pop_back();
      }
      return piece;
    }
    int64_t at = FindAwake(*best, now_ns, wake_ns);
    if (at < 0) {
      *wake_ns = 0;  // look again at once
      return {};
    }
    piece.cluster = std::move(best->suspended[static_cast<size_t>(at)]);
    best->suspended.erase(best->suspended.begin() + at);
    best->num_suspended.store(static_cast<uint32_t>(best->suspended.size()), std::memory_order_relaxed);
    ++best->resumed_since_start;
    return piece;
  }

  void StopGrid(Grid& grid, Fault fault) {
    if (!grid.fault) grid.fault = std::move(fault);
    grid.is_stopping.store(true, std::memory_order_release);
    for (auto& cluster : grid.suspended) {
      --grid.resident;
      Recycle(std::move(cluster));
    }
    grid.suspended.clear();
    grid.num_suspended.store(0, std::memory_order_relaxed);
  }

  void Recycle(std::unique_ptr<Cluster> cluster) {
    if (pool_.size() >= kPooledClusters || cluster->memory_bytes > kPooledBytes) return;
    cluster->grid = nullptr;
    pool_.push_back(std::move(cluster));
  }

  // Takes a grid with nothing left to run off the list; the caller reports it without the lock.
  bool RetireIfDone(const std::shared_ptr<Grid>& grid) {
    if (grid->resident != 0) return false;
    if (!grid->is_stopping.load() && grid->next_cluster.load() < grid->num_clusters) return false;
    auto at = std::find(grids_.begin(), grids_.end(), grid);
    if (at == grids_.end()) return false;
    grids_.erase(at);
    return true;
  }

  void Report(Grid& grid) {
    finished_grids.fetch_add(1, std::memory_order_relaxed);
    OnDone on_done = std::move(grid.on_done);
    if (on_done) on_done(grid.fault);
    on_done = nullptr;
    std::lock_guard lock(mutex_);
    if (--unfinished_ == 0) idle_.notify_all();
  }

  // Runs clusters of one grid until something else may be more urgent.
  ClusterOutcome RunPiece(Piece& piece, MemoryView& memory) {
    Grid& grid = *piece.grid;
    uint64_t epoch = epoch_.load(std::memory_order_acquire);
    memory.Attach(&grid);
    if (!piece.cluster) piece.cluster = std::make_unique<Cluster>();
    if (piece.is_new) StartCluster(*piece.cluster, grid, piece.index, NextSm());
    for (;;) {
      uint64_t counted = 0;
      piece.cluster->wake_ns = 0;
      ClusterOutcome outcome = RunCluster(*piece.cluster, memory, options.slice_instructions, &counted);
      thread_instructions.fetch_add(counted, std::memory_order_relaxed);
      if (outcome != ClusterOutcome::kFinished) return outcome;
      blocks.fetch_add(grid.blocks_per_cluster, std::memory_order_relaxed);
      if (epoch_.load(std::memory_order_acquire) != epoch || grid.num_suspended.load(std::memory_order_relaxed) != 0 ||
          grid.is_stopping.load(std::memory_order_relaxed))
        return outcome;
      // Finishing one and starting one: the number of resident clusters stays, so no lock is needed.
      uint64_t index = grid.next_cluster.fetch_add(1, std::memory_order_relaxed);
      if (index >= grid.num_clusters) return outcome;
      StartCluster(*piece.cluster, grid, index, NextSm());
    }
  }

  uint32_t NextSm() { return next_sm_.fetch_add(1, std::memory_order_relaxed) % MachineLimits::kNumSms; }

  void Work() {
    MemoryView memory;
    uint32_t polls = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      uint64_t wake_ns = ~uint64_t{0};
      Piece piece = Pick(&wake_ns);
      if (!piece.grid) {
        if (ends_ && grids_.empty()) return;
        if (wake_ns == 0) continue;
        memory.Attach(nullptr);
        ++num_waiting_;
        if (wake_ns == ~uint64_t{0}) {
          work_.wait(lock);
        } else {
          uint64_t now_ns = NowNs();
          work_.wait_for(lock, std::chrono::nanoseconds(wake_ns > now_ns ? wake_ns - now_ns : 0));
        }
        --num_waiting_;
        continue;
      }
      lock.unlock();
      ClusterOutcome outcome = RunPiece(piece, memory);
      polls = outcome == ClusterOutcome::kPolling ? polls + 1 : 0;
      // Nothing but polling: leave the processor to whoever will change what is polled.
      if (polls > kPollsBeforeSleep) std::this_thread::sleep_for(std::chrono::microseconds(20));
      lock.lock();
      std::shared_ptr<Grid> grid = std::move(piece.grid);
      bool stays = outcome == ClusterOutcome::kSlice || outcome == ClusterOutcome::kPolling ||
                   outcome == ClusterOutcome::kSleeping;
      if (stays && !grid->is_stopping.load(std::memory_order_relaxed)) {
        grid->suspended.push_back(std::move(piece.cluster));
        grid->num_suspended.store(static_cast<uint32_t>(grid->suspended.size()), std::memory_order_relaxed);
        if (num_waiting_ > 0) work_.notify_one();
      } else {
        --grid->resident;
        if (outcome == ClusterOutcome::kFaulted) {
          Fault fault = std::move(*piece.cluster->fault);
          piece.cluster->fault.reset();
          StopGrid(*grid, std::move(fault));
        }
        Recycle(std::move(piece.cluster));
        // Others may be allowed to start, or to end, now.
        if (!grids_.empty()) work_.notify_one();
      }
      if (RetireIfDone(grid)) {
        if (ends_) work_.notify_all();
        lock.unlock();
        memory.Attach(nullptr);
        Report(*grid);
        grid.reset();
        lock.lock();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  std::list<std::shared_ptr<Grid>> grids_;      // not yet retired, in order of submission
  std::vector<std::unique_ptr<Cluster>> pool_;  // ready for reuse
  std::vector<std::pair<std::weak_ptr<const MemoryLookup>, std::shared_ptr<Heap>>> heaps_;
  uint64_t picks_ = 0;
  uint64_t unfinished_ = 0;   // submitted, on_done not yet returned
  uint32_t num_waiting_ = 0;  // workers without work
  bool ends_ = false;
  std::atomic<uint64_t> epoch_{0};  // changes when a worker should ask what to run
  std::atomic<uint64_t> next_id_{1};
  std::atomic<uint32_t> next_sm_{0};
  std::vector<std::thread> workers_;  // last: they use the rest
};

Result<std::unique_ptr<Machine>> Machine::Create(const Options& options) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c") ||
      !__builtin_cpu_supports("bmi2"))
    return Error(StatusCode::kUnimplemented, "the software GPU needs a CPU with AVX2, FMA, F16C and BMI2");
  auto core = std::make_unique<Core>(options);
  if (!core->has_workers()) return Error(StatusCode::kResourceExhausted, "no thread for the software GPU");
  return std::unique_ptr<Machine>(new Machine(std::move(core)));
}

Machine::Machine(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Machine::~Machine() = default;

uint64_t Machine::Submit(LaunchRequest request, OnDone on_done) {
  return core_->Submit(std::move(request), std::move(on_done));
}
void Machine::Cancel(uint64_t grid_id) {
  core_->Cancel([grid_id](const Grid& grid) { return grid.id == grid_id; });
}
void Machine::CancelAll(const MemoryLookup* memory) {
  core_->Cancel([memory](const Grid& grid) { return memory == nullptr || grid.request.memory.get() == memory; });
}
void Machine::WaitIdle() { core_->WaitIdle(); }
MachineCounters Machine::counters() const {
  return {core_->thread_instructions.load(), core_->blocks.load(), core_->finished_grids.load()};
}

}  // namespace tally::sim_driver
