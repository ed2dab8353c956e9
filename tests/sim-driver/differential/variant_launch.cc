#include "tests/sim-driver/differential/variant_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "proto/device/gate_abi.h"
#include "proto/device/variant_abi.h"

namespace tally::differential {
namespace {

using ptx_transforms::KernelVariant;
using sim_driver::LaunchRequest;

// What is launched, where, and who counts.
struct Setting {
  World& world;
  Runner& runner;
  RandomSource& random;
  const VariantProgram& program;
  const KernelVariant& variant;
  const size_t kernel;
  const uint64_t budget;
  LaunchCounts& counts;

  LaunchRequest Request() const;
  std::optional<std::string> Run(LaunchRequest request) const {
    ++counts.runs;
    return runner.Run(std::move(request), budget);
  }
  volatile uint32_t& Probe(ProbeWord word) const { return world.Probe(kernel, word); }
};

LaunchRequest Setting::Request() const {
  LaunchRequest request = world.Request(program.program, program.is_apart, kernel, variant.name);
  request.dynamic_shared_bytes += variant.extra_shared_bytes;
  request.schedule_seed = random.Chance(20) ? 0 : random.Next();
  const ptx_transforms::Transformed& transformed = *program.transformed;
  if (transformed.imports.empty()) return request;
  uint64_t table = (program.is_apart ? world.VariableAddressApart(transformed.import_table)
                                     : world.VariableAddress(transformed.import_table))
                       .value_or(0);
  for (size_t k = 0; table != 0 && k < transformed.imports.size(); ++k) {
    uint64_t address = world.VariableAddress(transformed.imports[k].name).value_or(0);
    std::memcpy(reinterpret_cast<void*>(table + k * 8), &address, 8);
  }
  return request;
}

template <typename T>
void SetHidden(LaunchRequest& request, const KernelVariant& variant, const T& value) {
  size_t end = size_t{variant.hidden_parameter_offset} + sizeof(T);
  if (request.parameters.size() < end) request.parameters.resize(end);
  std::memcpy(request.parameters.data() + variant.hidden_parameter_offset, &value, sizeof(T));
}

// ---------------------------------------------------------------- slices

struct Box {
  uint32_t first[3];
  uint32_t size[3];
};

// Parts `box` at random, now and then not at all.
void Split(RandomSource& random, const Box& box, std::vector<Box>& boxes) {
  uint32_t axis = random.Below(3);
  bool is_one = box.size[0] * box.size[1] * box.size[2] == 1;
  if (is_one || random.Chance(15)) {
    boxes.push_back(box);
    return;
  }
  while (box.size[axis] == 1) axis = (axis + 1) % 3;
  uint32_t low = random.Between(1, box.size[axis] - 1);
  Box a = box;
  Box b = box;
  a.size[axis] = low;
  b.size[axis] -= low;
  b.first[axis] += low;
  Split(random, a, boxes);
  Split(random, b, boxes);
}

std::optional<std::string> LaunchSlices(const Setting& setting) {
  RandomSource& random = setting.random;
  LaunchRequest whole = setting.Request();
  std::vector<Box> boxes;
  Split(random, {{0, 0, 0}, {whole.grid.x, whole.grid.y, whole.grid.z}}, boxes);
  for (size_t k = boxes.size(); k > 1; --k) std::swap(boxes[k - 1], boxes[random.Below(static_cast<uint32_t>(k))]);
  for (const Box& box : boxes) {
    LaunchRequest request = setting.Request();
    SetHidden(request, setting.variant,
              device::SliceParameters{{box.first[0], box.first[1], box.first[2]},
                                      {whole.grid.x, whole.grid.y, whole.grid.z}});
    request.grid = {box.size[0], box.size[1], box.size[2]};
    if (auto problem = setting.Run(std::move(request)))
      return fmt::format("slice of ({},{},{}) blocks from ({},{},{}) on: {}", box.size[0], box.size[1], box.size[2],
                         box.first[0], box.first[1], box.first[2], *problem);
  }
  return std::nullopt;
}

// ---------------------------------------------------------------- persistent blocks

class PersistentLaunch {
 public:
  explicit PersistentLaunch(const Setting& setting)
      : setting_(setting),
        control_(setting.world.Allocate(sizeof(device::PersistentControl))),
        can_yield_(std::ranges::count(setting.variant.passes, "yield_check") != 0) {}

  std::optional<std::string> Run() {
    LaunchRequest request = setting_.Request();
    num_blocks_ = request.grid.Count();
    uint32_t style = setting_.random.Below(4);  // never yields, every block yields, else now and then
    while (Taken() < num_blocks_) {
      uint64_t before = Taken();
      bool may_yield = can_yield_ && style != 0 && (style == 1 || setting_.random.Chance(80));
      bool is_asked_before = may_yield && setting_.random.Chance(10);
      uint32_t ticket = setting_.Probe(ProbeWord::kTicket);
      uint32_t distance = style == 1 ? 0 : setting_.random.Below(static_cast<uint32_t>(num_blocks_ - before));
      setting_.Probe(ProbeWord::kYieldAt) = may_yield ? ticket + distance : kNeverYield;
      setting_.Probe(ProbeWord::kYieldFlag) = is_asked_before ? 1 : 0;
      if (auto problem = RunOnce(may_yield)) return problem;
      uint32_t executed = setting_.Probe(ProbeWord::kTicket) - ticket;
      executed_ += executed;
      uint64_t done = std::min(Taken(), num_blocks_);
      if (executed != done - before)
        return fmt::format("persistent blocks took {} blocks and executed {}", done - before, executed);
      if (auto problem = CheckCompleted()) return problem;
      if (is_asked_before && executed != 0) return "persistent blocks that were asked to yield at once took a block";
      if (!may_yield && done < num_blocks_) return fmt::format("persistent blocks left at block {} unasked", done);
      if (!is_asked_before && executed == 0) return "persistent blocks left without having executed a block";
      if (Taken() < num_blocks_) ++setting_.counts.yields;
    }
    if (setting_.random.Chance(25)) {  // nothing is left to do
      uint32_t ticket = setting_.Probe(ProbeWord::kTicket);
      setting_.Probe(ProbeWord::kYieldFlag) = 0;
      if (auto problem = RunOnce(false)) return problem;
      if (setting_.Probe(ProbeWord::kTicket) != ticket) return "a complete launch executed a block again";
      if (auto problem = CheckCompleted()) return problem;
    }
    return std::nullopt;
  }

 private:
  device::PersistentControl Control() const {
    device::PersistentControl control{};
    std::memcpy(&control, reinterpret_cast<const void*>(control_), sizeof(control));
    return control;
  }
  uint64_t Taken() const { return Control().next_block; }

  // Between two runs no block is half done, so what the persistent blocks counted is what they executed: less, and a
  // stream waits forever; more, and it goes on too early.
  std::optional<std::string> CheckCompleted() const {
    uint32_t completed = Control().completed_blocks;
    if (completed == executed_) return std::nullopt;
    return fmt::format("persistent blocks counted {} completed blocks of {} that were executed", completed, executed_);
  }

  std::optional<std::string> RunOnce(bool has_flag) {
    LaunchRequest request = setting_.Request();
    uint64_t flag = setting_.world.ProbeAddress(setting_.kernel, ProbeWord::kYieldFlag);
    if (!has_flag && setting_.random.Chance(50)) flag = 0;
    SetHidden(request, setting_.variant,
              device::PersistentParameters{control_, flag, {request.grid.x, request.grid.y, request.grid.z}, 0});
    auto most = static_cast<uint32_t>(std::min<uint64_t>(num_blocks_ + 2, 12));
    uint32_t persistent_blocks = setting_.random.Between(1, most);
    request.grid = {persistent_blocks, 1, 1};
    uint64_t before = Taken();
    auto problem = setting_.Run(std::move(request));
    if (problem) return fmt::format("{} persistent blocks from block {} on: {}", persistent_blocks, before, *problem);
    // "persistent blocks may have counted it beyond, by at most one each per run"
    if (Taken() > std::max(before, num_blocks_) + persistent_blocks)
      return fmt::format("{} persistent blocks counted from {} to {} of {} blocks", persistent_blocks, before, Taken(),
                         num_blocks_);
    return std::nullopt;
  }

  const Setting& setting_;
  const uint64_t control_;
  const bool can_yield_;
  uint64_t num_blocks_ = 0;
  uint64_t executed_ = 0;  // blocks, in all runs so far
};

// ---------------------------------------------------------------- gate

// The queue's other launches are made up: blocks before `base_` ran in them, chunks of them may reach into this one.
class GatedLaunch {
 public:
  explicit GatedLaunch(const Setting& setting) : setting_(setting) {}

  std::optional<std::string> Run() {
    const LaunchRequest request = setting_.Request();
    if (setting_.random.Chance(10)) return RunOnce({});  // no gate
    has_many_axes_ = request.grid.y != 1 || request.grid.z != 1 || setting_.random.Chance(10);
    const auto num_blocks = static_cast<uint32_t>(request.grid.Count());
    base_ = setting_.random.Below(1000);
    const uint32_t end = base_ + num_blocks;
    record_.watermark = setting_.random.Chance(50) ? base_ : setting_.random.Below(end + 10);
    record_.start = std::min(setting_.random.Below(base_ + 1), record_.watermark);
    uint32_t num_stops = setting_.random.Below(4);
    for (uint32_t next = base_; next < end;) {
      const bool is_stopped_before = num_stops != 0 && setting_.random.Chance(10);
      record_.stopped = is_stopped_before ? 1 : 0;
      const uint32_t ticket = setting_.Probe(ProbeWord::kTicket);
      setting_.Probe(ProbeWord::kYieldAt) = num_stops != 0 ? ticket + setting_.random.Below(end - next) : kNeverYield;
      if (num_stops != 0) --num_stops;
      const device::GateParameters gate{setting_.world.ProbeAddress(setting_.kernel, ProbeWord::kGateRecord) |
                                            device::kGateOn | (has_many_axes_ ? device::kGateManyAxes : 0),
                                        base_,
                                        setting_.random.Chance(30) ? 1 : setting_.random.Between(1, num_blocks * 2)};
      const device::GateRecord before = record_;
      if (auto problem = RunOnce(gate)) return problem;
      if (record_.start != before.start || record_.epoch != 0) return "the gate wrote what is the host's";
      if (record_.watermark < before.watermark) return "the watermark fell";
      if (is_stopped_before && record_.watermark != before.watermark) return "a stopped queue's watermark rose";
      const uint32_t reached = std::clamp(record_.watermark, next, end);
      const uint32_t executed = setting_.Probe(ProbeWord::kTicket) - ticket;
      if (executed != reached - next)
        return fmt::format("watermark {} after {} blocks from {} on: {} were executed", record_.watermark,
                           reached - next, next, executed);
      if (reached != end && record_.stopped == 0) return fmt::format("left at block {} unasked", reached - base_);
      if (reached != end) ++setting_.counts.stops;
      next = reached;
      record_.start = reached;
    }
    return std::nullopt;
  }

 private:
  std::optional<std::string> RunOnce(const device::GateParameters& gate) {
    auto* shared = reinterpret_cast<void*>(setting_.world.ProbeAddress(setting_.kernel, ProbeWord::kGateRecord));
    std::memcpy(shared, &record_, sizeof(record_));
    LaunchRequest request = setting_.Request();
    SetHidden(request, setting_.variant, gate);
    auto problem = setting_.Run(std::move(request));
    std::memcpy(&record_, shared, sizeof(record_));
    return problem;
  }

  const Setting& setting_;
  device::GateRecord record_{};
  uint32_t base_ = 0;
  bool has_many_axes_ = false;
};

}  // namespace

std::optional<std::string> LaunchVariant(World& world, Runner& runner, RandomSource& random,
                                         const VariantProgram& program, const KernelVariant& variant, size_t kernel,
                                         uint64_t budget, LaunchCounts& counts) {
  const Setting setting{world, runner, random, program, variant, kernel, budget, counts};
  switch (variant.hidden_parameter_bytes) {
    case 0:  // launched as the original
      return setting.Run(setting.Request());
    case sizeof(device::SliceParameters):
      return LaunchSlices(setting);
    case sizeof(device::PersistentParameters):
      return PersistentLaunch(setting).Run();
    case sizeof(device::GateParameters):
      return GatedLaunch(setting).Run();
    default:
      return fmt::format("hidden parameter of {} bytes", variant.hidden_parameter_bytes);
  }
}

bool MayLaunch(const KernelVariant& variant, const Dim3& block) {
  return !variant.needs_warp_rows || block.x % 32 == 0 || (block.y == 1 && block.z == 1);
}

}  // namespace tally::differential
