#include "server/executor/mirror/step_queue.h"

#include <utility>

namespace tally::server {

std::expected<StepQueue::Ticket, CUresult> MirrorQueue::Start(const PlacedStep& step) {
  shm::MirrorCommand command = step.command;
  command.stream = next_stream_++ % shm::kMirrorStreams;
  command.num_bytes = step.bytes.size();
  return mirror_.Post(command, step.bytes);
}

CUresult MirrorQueue::StateOf(Ticket ticket) {
  return mirror_.IsDone(ticket) ? mirror_.Wait(ticket) : CUDA_ERROR_NOT_READY;
}

HomeQueue::~HomeQueue() {
  for (CUstream stream : streams_) {
    if (stream != nullptr) driver_.cuStreamDestroy_v2(stream);
  }
}

CUresult HomeQueue::Issue(const PlacedStep& step, CUstream stream) {
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
  size_t num_bytes = step.bytes.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(step.bytes.data()),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &num_bytes, CU_LAUNCH_PARAM_END};
  return driver_.cuLaunchKernel(function->second, command.grid[0], command.grid[1], command.grid[2], command.block[0],
                                command.block[1], command.block[2], command.shared_bytes, stream, nullptr, extra);
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
