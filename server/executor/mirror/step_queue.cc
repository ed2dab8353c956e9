#include "server/executor/mirror/step_queue.h"

#include <utility>

#include "scheduler/taskgraph/task_graph.h"

namespace tally::server {

CUresult LaunchCommand(const DriverTable& driver, CUfunction function, const shm::MirrorCommand& command,
                       std::span<const std::byte> bytes, CUstream stream) {
  size_t num_bytes = bytes.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(bytes.data()), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &num_bytes, CU_LAUNCH_PARAM_END};
  const auto& [x, y, z] = command.grid;
  const auto& [block_x, block_y, block_z] = command.block;
  if (command.cluster[0] == 0) {
    return driver.cuLaunchKernel(function, x, y, z, block_x, block_y, block_z, command.shared_bytes, stream, nullptr,
                                 extra);
  }
  if (driver.cuLaunchKernelEx == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {command.cluster[0], command.cluster[1], command.cluster[2]};
  const CUlaunchConfig config{x, y, z, block_x, block_y, block_z, command.shared_bytes, stream, &cluster, 1};
  return driver.cuLaunchKernelEx(&config, function, nullptr, extra);
}

CUresult DescribeTask(Mirror& mirror, uint32_t task, std::span<const StepCommand> commands) {
  shm::MirrorCommand command{};
  command.kind = shm::MirrorCommandKind::kBeginTask;
  command.task = task;
  // Waited for: what follows would be carried out.
  if (const CUresult r = mirror.Do(command); r != CUDA_SUCCESS) return r;
  for (const StepCommand& part : commands) {
    command = part.command;
    command.num_bytes = part.bytes.size();
    mirror.Post(command, part.bytes);
  }
  // It says what failed before, too.
  command = {};
  command.kind = shm::MirrorCommandKind::kEndTask;
  return mirror.Do(command);
}

std::optional<uint32_t> RunningSteps::StreamFor(const PlacedStep& step) const {
  const uint32_t begin = step.is_copy() ? kMostTasks : 0;
  const uint32_t end = step.is_copy() ? shm::kMirrorStreams : kMostTasks;
  uint64_t num_blocks = 0;
  uint32_t num_running = 0;
  std::optional<uint32_t> free;
  for (uint32_t stream = begin; stream < end; ++stream) {
    if (on_stream_[stream]) {
      ++num_running;
      num_blocks = scheduler::SaturatedSum(num_blocks, on_stream_[stream]->num_blocks);
    } else if (!free) {
      free = stream;
    }
  }
  return step.is_copy() || num_running < 2 || num_blocks < kEnoughBlocks ? free : std::nullopt;
}

void RunningSteps::Add(uint32_t stream, const PlacedStep& step, Ticket ticket) {
  on_stream_[stream] = {.ticket = ticket, .num_blocks = step.num_blocks};
}

void RunningSteps::Remove(Ticket ticket) {
  for (auto& running : on_stream_) {
    if (running && running->ticket == ticket) running.reset();
  }
}

std::optional<RunningSteps::Ticket> RunningSteps::first() const {
  std::optional<Ticket> first;
  for (const auto& running : on_stream_) {
    if (running && (!first || running->ticket < *first)) first = running->ticket;
  }
  return first;
}

std::expected<StepQueue::Ticket, CUresult> MirrorQueue::Start(const PlacedStep& step) {
  const auto stream = running_.StreamFor(step);
  if (!stream) return std::unexpected(CUDA_ERROR_NOT_READY);
  // The page has one place for each of so many: Post would wait for that one, and all other GPUs with it.
  if (const auto first = running_.first(); first && mirror_.next_position() >= *first + shm::kMirrorSlots) {
    return std::unexpected(CUDA_ERROR_NOT_READY);
  }
  shm::MirrorCommand command = step.command;
  command.stream = *stream;
  command.num_bytes = step.bytes.size();
  const auto position = mirror_.Post(command, step.bytes);
  if (position) running_.Add(*stream, step, *position);
  return position;
}

CUresult MirrorQueue::StateOf(Ticket ticket) {
  if (!mirror_.IsDone(ticket)) return CUDA_ERROR_NOT_READY;
  running_.Remove(ticket);
  return mirror_.Wait(ticket);
}

HomeQueue::~HomeQueue() {
  for (CUstream stream : streams_) {
    if (stream != nullptr) driver_.cuStreamDestroy_v2(stream);
  }
}

CUresult HomeQueue::Issue(const PlacedStep& step, CUstream stream) {
  if (step.graph != nullptr) return driver_.cuGraphLaunch(step.graph, stream);
  const shm::MirrorCommand& command = step.command;
  if (command.kind == shm::MirrorCommandKind::kFill) {
    const auto memory = names_.allocations.find(command.allocation);
    if (memory == names_.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t pitch = command.rows == 1 ? command.row_bytes : command.pitch;
    return driver_.cuMemsetD2D8Async(memory->second + command.offset, pitch, static_cast<unsigned char>(command.value),
                                     command.row_bytes, command.rows, stream);
  }
  const auto function = names_.functions.find(command.function);
  if (command.kind != shm::MirrorCommandKind::kLaunch || function == names_.functions.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return LaunchCommand(driver_, function->second, command, step.bytes, stream);
}

std::expected<StepQueue::Ticket, CUresult> HomeQueue::Start(const PlacedStep& step) {
  const auto free = running_.StreamFor(step);
  if (!free) return std::unexpected(CUDA_ERROR_NOT_READY);
  CUstream& stream = streams_[*free];
  if (stream == nullptr) {
    const CUresult made = driver_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
    if (made != CUDA_SUCCESS) return std::unexpected(made);
  }
  Mark mark;
  if (const CUresult r = completions_.Prepare(&mark); r != CUDA_SUCCESS) return std::unexpected(r);
  if (const CUresult r = Issue(step, stream); r != CUDA_SUCCESS) return std::unexpected(r);
  if (const CUresult r = completions_.Put(stream, &mark); r != CUDA_SUCCESS) return std::unexpected(r);
  running_.Add(*free, step, next_ticket_);
  marks_.emplace(next_ticket_, std::move(mark));
  return next_ticket_++;
}

CUresult HomeQueue::StateOf(Ticket ticket) {
  const auto found = marks_.find(ticket);
  if (found == marks_.end()) return CUDA_ERROR_INVALID_VALUE;
  const CUresult state = found->second.State();
  if (state == CUDA_ERROR_NOT_READY) return state;
  marks_.erase(found);
  running_.Remove(ticket);
  return state;
}

}  // namespace tally::server
