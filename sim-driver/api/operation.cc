#include "sim-driver/api/operation.h"

#include <fmt/format.h>

#include <cstring>

#include "sim-driver/api/copy.h"
#include "sim-driver/api/device.h"
#include "sim-driver/api/error.h"
#include "sim-driver/api/memory.h"
#include "sim-driver/api/stream_memory.h"

namespace tally::sim_driver {
namespace {

// Starts the grid; its end comes from a thread of the machine.
void StartKernel(const KernelOperation& kernel, const ContextPtr& context, int priority, const TaskPtr& task) {
  Machine* const machine = context->device().machine();
  if (machine == nullptr) {
    context->NoteFault(CUDA_ERROR_NOT_SUPPORTED, "this CPU cannot run the software device");
    Timeline::Get().Finish(task);
    return;
  }
  LaunchRequest request;
  request.program = kernel.function->code.program;
  request.kernel_index = kernel.function->code.index;
  request.grid = kernel.grid;
  request.block = kernel.block;
  request.cluster = kernel.cluster;
  request.dynamic_shared_bytes = kernel.dynamic_shared_bytes;
  request.parameters = kernel.parameters;
  request.variable_addresses = kernel.module->variable_addresses;
  request.memory = context->memory();
  request.observer = kernel.observer;
  request.is_cooperative = kernel.is_cooperative;
  request.priority = kernel.has_priority ? kernel.priority : priority;
  request.stack_bytes = static_cast<uint32_t>(context->Limit(CU_LIMIT_STACK_SIZE));
  request.heap_bytes = context->Limit(CU_LIMIT_MALLOC_HEAP_SIZE);
  request.schedule_seed = NextScheduleSeed();
  if (kernel.function->code.kernel().uses_printf) {
    request.on_printf = [buffer = context->shared_printf_buffer()](std::string_view text) { buffer->Append(text); };
  }
  machine->Submit(std::move(request), [context, task](const std::optional<Fault>& fault) {
    if (fault) context->NoteFault(fault->cu_result, fault->message);
    Timeline::Get().Finish(task);
  });
}

void NoteBadAddress(Context& context, const char* what, uint64_t address) {
  context.NoteFault(CUDA_ERROR_ILLEGAL_ADDRESS, fmt::format("{}: address {:#x} is not device memory", what, address));
}

struct TaskMaker {
  const ContextPtr& context;
  Task& task;

  void operator()(KernelOperation& kernel) {
    task.kind = TaskKind::kKernel;
    const int priority = task.priority;
    task.body = [kernel = std::make_shared<const KernelOperation>(std::move(kernel)), owner = context,
                 priority](const TaskPtr& self) { StartKernel(*kernel, owner, priority, self); };
  }
  void operator()(CopyOperation& copy) {
    task.kind = TaskKind::kCopy;
    task.body = [copy = std::move(copy), owner = context](const TaskPtr&) {
      if (const auto bad = RunCopy(copy)) NoteBadAddress(*owner, "copy", *bad);
    };
  }
  void operator()(MemsetOperation& memset) {
    task.kind = TaskKind::kCopy;
    task.body = [memset, owner = context](const TaskPtr&) {
      if (const auto bad = RunMemset(memset.given)) NoteBadAddress(*owner, "memset", *bad);
    };
  }
  void operator()(HostOperation& host) {
    task.kind = TaskKind::kHost;
    task.body = [host](const TaskPtr&) { host.function(host.argument); };
  }
  void operator()(CallbackOperation& callback) {
    task.kind = TaskKind::kHost;
    task.runs_after_fault = true;  // the program is told of the error
    task.body = [callback, owner = context](const TaskPtr&) {
      callback.function(callback.stream, owner->error(), callback.argument);
    };
  }
  void operator()(FreeOperation& free) {
    task.kind = TaskKind::kInline;
    task.runs_after_fault = true;
    task.body = [address = free.address](const TaskPtr&) {
      // A graph's own allocation stays with the graph: its address belongs to the next launch too.
      const auto region = MemoryMap::Get().Find(address);
      if (region && !region->is_graph_owned) ReleaseMemory(address);
    };
  }
  void operator()(MemOpsOperation& operations) {
    task.kind = TaskKind::kPoll;
    task.is_satisfied = MakeStreamMemoryPoll(std::move(operations.operations));
  }
  // Order only.
  void operator()(EmptyOperation&) {}
  void operator()(EventRecordOperation&) {}
  void operator()(EventWaitOperation&) {}
  void operator()(AllocOperation&) {}
  void operator()(ChildOperation&) {}
};

}  // namespace

TaskPtr MakeTask(Operation operation, const ContextPtr& context, int priority) {
  auto task = std::make_shared<Task>();
  task->priority = priority;
  task->fault = context->fault();
  std::visit(TaskMaker{context, *task}, operation);
  return task;
}

TaskPtr SubmitOperation(const StreamUse& use, Operation operation) {
  if (auto* const record = std::get_if<EventRecordOperation>(&operation)) {
    RecordEvent(record->event, use);
    return nullptr;
  }
  if (auto* const wait = std::get_if<EventWaitOperation>(&operation)) {
    WaitForEvent(use, wait->event);
    return nullptr;
  }
  TaskPtr task = MakeTask(std::move(operation), use.context, use.stream->priority);
  Append(use.stream, *use.context, task);
  return task;
}

}  // namespace tally::sim_driver
