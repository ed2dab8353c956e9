#include "server/executor/mirror/step_queue.h"

#include <utility>

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

std::expected<StepQueue::Ticket, CUresult> MirrorQueue::Start(const PlacedStep& step) {
  shm::MirrorCommand command = step.command;
  command.stream = next_stream_++ % shm::kMirrorStreams;
  command.num_bytes = step.bytes.size();
  const auto first = mirror_.Post(command, step.bytes);
  if (!first || step.more.empty()) return first;
  std::expected<uint64_t, CUresult> last = first;
  for (const StepCommand& other : step.more) {
    shm::MirrorCommand next = other.command;
    next.stream = command.stream;
    next.num_bytes = other.bytes.size();
    // The place of one of this step, which nobody will ask any more.
    if (*last + 1 >= *first + shm::kMirrorSlots) {
      const CUresult r = mirror_.Wait(*last + 1 - shm::kMirrorSlots);
      if (r != CUDA_SUCCESS) return std::unexpected(r);
    }
    last = mirror_.Post(next, other.bytes);
    if (!last) return last;
  }
  first_of_[*last] = *first;
  return last;
}

CUresult MirrorQueue::StateOf(Ticket ticket) {
  if (!mirror_.IsDone(ticket)) return CUDA_ERROR_NOT_READY;
  CUresult result = mirror_.Wait(ticket);
  if (const auto several = first_of_.find(ticket); several != first_of_.end()) {
    // On one stream: where the last has ended, all have. One that could not be launched says so itself.
    for (uint64_t position = several->second; position < ticket && result == CUDA_SUCCESS; ++position) {
      result = mirror_.Wait(position);
    }
    first_of_.erase(several);
  }
  return result;
}

HomeQueue::~HomeQueue() {
  for (CUstream stream : streams_) {
    if (stream != nullptr) driver_.cuStreamDestroy_v2(stream);
  }
}

CUresult HomeQueue::Issue(const PlacedStep& step, CUstream stream) {
  if (step.graph != nullptr) return driver_.cuGraphLaunch(step.graph, stream);
  CUresult result = IssueCommand(step.command, step.bytes, stream);
  for (const StepCommand& next : step.more) {
    if (result == CUDA_SUCCESS) result = IssueCommand(next.command, next.bytes, stream);
  }
  return result;
}

CUresult HomeQueue::IssueCommand(const shm::MirrorCommand& command, std::span<const std::byte> bytes, CUstream stream) {
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
  return LaunchCommand(driver_, function->second, command, bytes, stream);
}

std::expected<StepQueue::Ticket, CUresult> HomeQueue::Start(const PlacedStep& step) {
  CUstream& stream = streams_[next_stream_++ % streams_.size()];
  if (stream == nullptr) {
    const CUresult made = driver_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
    if (made != CUDA_SUCCESS) return std::unexpected(made);
  }
  Mark mark;
  if (const CUresult r = completions_.Prepare(&mark); r != CUDA_SUCCESS) return std::unexpected(r);
  if (const CUresult r = Issue(step, stream); r != CUDA_SUCCESS) return std::unexpected(r);
  if (const CUresult r = completions_.Put(stream, &mark); r != CUDA_SUCCESS) return std::unexpected(r);
  running_.emplace(next_ticket_, std::move(mark));
  return next_ticket_++;
}

CUresult HomeQueue::StateOf(Ticket ticket) {
  const auto found = running_.find(ticket);
  if (found == running_.end()) return CUDA_ERROR_INVALID_VALUE;
  const CUresult state = found->second.State();
  if (state != CUDA_ERROR_NOT_READY) running_.erase(found);
  return state;
}

}  // namespace tally::server
