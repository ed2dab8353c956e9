#include "server/executor/session/spread_tasks.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "server/executor/issue/kernel_code.h"
#include "server/executor/session/graph_mirrors.h"
#include "server/executor/session/graph_target.h"
#include "server/executor/session/kernel_ops.h"
#include "server/executor/session/served_request.h"

namespace tally::server {

using control::WholeReason;
using scheduler::Extent;

namespace {

// Of a kernel node. Nothing: it cannot be launched elsewhere.
std::optional<SpreadTasks::Command> LaunchOf(ServedRequest& served, CUgraphNode node) {
  shm::Launch head{};
  SpreadTasks::Command launch;
  std::vector<CUlaunchAttribute> attributes;
  if (ReadKernelNode(served, node, &head, &launch.parameters) != CUDA_SUCCESS ||
      !ReadLaunchAttributes(served.driver(), node, &attributes)) {
    return std::nullopt;
  }
  launch.kernel = FindKernel(served.session(), head.function);
  if (launch.kernel == nullptr || launch.parameters.size() > shm::kMirrorBytes) return std::nullopt;
  launch.command.kind = shm::MirrorCommandKind::kLaunch;
  launch.command.shared_bytes = head.shared_bytes;
  std::ranges::copy(head.grid, launch.command.grid);
  std::ranges::copy(head.block, launch.command.block);
  for (const CUlaunchAttribute& attribute : attributes) {
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) return std::nullopt;
    const auto& cluster = attribute.value.clusterDim;
    launch.command.cluster[0] = cluster.x;
    launch.command.cluster[1] = cluster.y;
    launch.command.cluster[2] = cluster.z;
  }
  return launch;
}

// Of a fill node. Nothing: its bytes are not all the same.
std::optional<SpreadTasks::Command> FillOf(ServedRequest& served, CUgraphNode node) {
  const auto found = TransferIn(served.driver(), node);
  if (!found || !found->is_fill()) return std::nullopt;
  const Transfer& transfer = *found;
  SpreadTasks::Command fill;
  shm::MirrorCommand& command = fill.command;
  const uint32_t byte = transfer.value & 0xff;
  const uint32_t same = transfer.element_bytes == 1   ? byte
                        : transfer.element_bytes == 2 ? byte * 0x101
                                                      : byte * 0x1010101;
  if (transfer.value != same) return std::nullopt;
  command.kind = shm::MirrorCommandKind::kFill;
  command.address = transfer.to;
  command.value = byte;
  command.rows = transfer.rows;
  command.row_bytes = transfer.row_bytes;
  command.pitch = transfer.rows == 1 ? transfer.row_bytes : transfer.to_pitch;
  return fill;
}

class Reader {
 public:
  Reader(const SpreadReading& reading, SpreadTasks& out) : reading_(reading), out_(out) {}

  void AddDeclared(std::vector<uint32_t> nodes, const DeclaredTask& declared) {
    scheduler::Task& task = Add(std::move(nodes));
    task.touches = AccessesOf(declared);
    Finish(task);
  }
  void AddNode(uint32_t node) {
    scheduler::Task& task = Add({node});
    const GraphTask& known = out_.nodes.tasks[node];
    task.touches = AccessesOf(known, task);
    Finish(task);
  }

 private:
  scheduler::Task& Add(std::vector<uint32_t> nodes) {
    out_.work.push_back({.nodes = std::move(nodes), .commands = {}});
    return out_.tasks.emplace_back();
  }

  scheduler::GraphNodeAccesses AccessesOf(const DeclaredTask& declared) {
    scheduler::GraphNodeAccesses touches{.extent = Extent::kSaid, .accesses = {}};
    for (size_t i = 0; i < declared.boxes.size(); ++i) {
      const auto& [address, row_bytes, rows, pitch] = declared.boxes[i];
      if (row_bytes == 0 || rows == 0) continue;
      const auto box = scheduler::Box::Rows(address, row_bytes, rows, pitch);
      if (!box || WhyNotBeside(*box, reading_.memory) != nullptr) return {};
      out_.answers.AllocationOf(reading_.memory, box->begin());
      if (i >= size_t{declared.num_reads} + declared.num_writes) {
        out_.work.back().scratch.push_back(*box);
        continue;
      }
      const bool is_read = i < declared.num_reads;
      touches.accesses.push_back({*box, is_read ? scheduler::AccessKind::kRead : scheduler::AccessKind::kWrite});
    }
    return touches;
  }

  scheduler::GraphNodeAccesses AccessesOf(const GraphTask& node, scheduler::Task& task) {
    if (node.kind == NodeKind::kEmpty) return {.extent = Extent::kSaid, .accesses = {}};
    if (const auto transfer = TransferIn(reading_.served.driver(), node.node)) {
      task.kind = transfer->is_fill() ? scheduler::TaskKind::kFill : scheduler::TaskKind::kCopy;
      LaunchAccesses found;
      if (FindAccesses(*transfer, reading_.memory, &found, &out_.answers) != nullptr) return {};
      task.overwrites = true;
      return {.extent = found.extent, .accesses = std::move(found.accesses)};
    }
    PendingLaunch launch;
    if (node.kind != NodeKind::kKernel || !ReadAsLaunch(reading_.served, reading_.stream, node.node, &launch)) {
      return {};
    }
    const LaunchAccesses& found = reading_.finder.Of(launch);
    if (found.barrier != nullptr) {
      out_.is_complete = out_.is_complete && std::string_view(found.barrier) != "not-yet";
      return {};
    }
    out_.answers.Join(reading_.finder.answers());
    return {.extent = found.extent, .accesses = found.accesses};
  }

  bool IsExportable(const scheduler::Box& box) const {
    const auto around = reading_.spread.Around(box.begin(), box.end());
    return around && around->device == reading_.stream.device;
  }
  bool IsAllExportable(const scheduler::GraphNodeAccesses& touches) const {
    return touches.extent == Extent::kSaid &&
           std::ranges::all_of(touches.accesses, [&](const auto& access) { return IsExportable(access.box); }) &&
           std::ranges::all_of(out_.work.back().scratch, [&](const auto& box) { return IsExportable(box); });
  }

  void Finish(scheduler::Task& task) {
    task.is_pinned = !MayLeave(task);
    if (task.is_pinned) out_.work.back().commands.clear();
  }
  bool MayLeave(const scheduler::Task& task) {
    SpreadTasks::OfTask& work = out_.work.back();
    if (!IsAllExportable(task.touches) || work.nodes.size() > GraphMirrors::kMostCommands) return false;
    for (const uint32_t node : work.nodes) {
      const GraphTask& known = out_.nodes.tasks[node];
      if (known.kind == NodeKind::kEmpty) continue;
      if (known.kind == NodeKind::kCopy) return false;
      auto command =
          known.kind == NodeKind::kKernel ? LaunchOf(reading_.served, known.node) : FillOf(reading_.served, known.node);
      if (!command) return false;
      work.commands.push_back(std::move(*command));
    }
    // One that does nothing has nothing to do elsewhere.
    return !work.commands.empty();
  }

  const SpreadReading& reading_;
  SpreadTasks& out_;
};

// The nodes of each declared task, by index; one that names a node of which the graph knows nothing, or that another
// one has, is none.
std::vector<std::vector<uint32_t>> NodesOf(const GraphTasks& nodes, std::span<const DeclaredTask> declared) {
  std::unordered_map<CUgraphNode, uint32_t> index_of;
  for (uint32_t i = 0; i < nodes.tasks.size(); ++i) index_of[nodes.tasks[i].node] = i;
  std::vector<std::vector<uint32_t>> of_task(declared.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    for (const CUgraphNode node : declared[i].nodes) {
      const auto found = index_of.find(node);
      if (found == index_of.end()) continue;
      of_task[i].push_back(found->second);
      index_of.erase(found);
    }
    std::ranges::sort(of_task[i]);
  }
  return of_task;
}

// Scratch memory that overlaps, directly or by others between, is one.
void NumberScratch(SpreadTasks* out) {
  struct Piece {
    uint64_t begin, end;
    uint32_t task;
  };
  std::vector<Piece> pieces;
  for (uint32_t task = 0; task < out->work.size(); ++task) {
    for (const scheduler::Box& box : out->work[task].scratch) pieces.push_back({box.begin(), box.end(), task});
  }
  std::ranges::sort(pieces, {}, &Piece::begin);
  uint32_t number = 0;
  uint64_t end = 0;
  for (const Piece& piece : pieces) {
    if (piece.begin >= end) ++number;
    end = std::max(end, piece.end);
    std::vector<uint32_t>& scratch = out->tasks[piece.task].scratch;
    if (scratch.empty() || scratch.back() != number) scratch.push_back(number);
  }
}

// False: there is a cycle.
bool ReadAs(const SpreadReading& reading, std::span<const DeclaredTask> declared, SpreadTasks* out) {
  out->work.clear();
  out->tasks.clear();
  out->edges.clear();
  Reader reader(reading, *out);
  const auto of_declared = NodesOf(out->nodes, declared);
  std::vector<uint32_t> task_of(out->nodes.tasks.size(), UINT32_MAX);
  for (size_t i = 0; i < of_declared.size(); ++i) {
    if (of_declared[i].empty()) continue;
    for (const uint32_t node : of_declared[i]) task_of[node] = static_cast<uint32_t>(out->work.size());
    reader.AddDeclared(of_declared[i], declared[i]);
  }
  for (uint32_t node = 0; node < task_of.size(); ++node) {
    if (task_of[node] != UINT32_MAX) continue;
    task_of[node] = static_cast<uint32_t>(out->work.size());
    reader.AddNode(node);
  }
  NumberScratch(out);
  for (const scheduler::GraphEdge& edge : out->nodes.edges) {
    if (task_of[edge.from] != task_of[edge.to]) out->edges.push_back({task_of[edge.from], task_of[edge.to]});
  }
  return scheduler::TaskGraph::Make(out->tasks, out->edges).has_value();
}

}  // namespace

WholeReason ReadSpreadTasks(const SpreadReading& reading, CUgraph graph, std::span<const DeclaredTask> declared,
                            SpreadTasks* tasks) {
  *tasks = {};
  const WholeReason refusal = ReadTasks(reading.served.driver(), graph, &tasks->nodes);
  if (refusal != WholeReason::kNone) return refusal;
  if (ReadAs(reading, declared, tasks) || ReadAs(reading, {}, tasks)) return WholeReason::kNone;
  return WholeReason::kRefused;
}

}  // namespace tally::server
