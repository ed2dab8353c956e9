#include "client-shim/state/process.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "base/log.h"
#include "client-shim/state/visible_devices.h"
#include "client-shim/transport/expected_work.h"
#include "client-shim/transport/session.h"

namespace tally::client_shim {

constinit std::atomic<Process*> g_process{nullptr};

namespace {

constinit std::mutex g_start_mutex;
constinit std::atomic<bool> g_watches_forks{false};
// The process between the handlers of one fork: cuInit of another thread may come in between.
constinit thread_local Process* t_forking = nullptr;

void BeforeFork() {
  t_forking = g_process.load();
  if (t_forking != nullptr) t_forking->registered.BeforeFork();
}
void AfterForkInParent() {
  if (t_forking != nullptr) t_forking->registered.AfterForkInParent();
  t_forking = nullptr;
}
// In a fork's child of a process that had initialised CUDA, and in its children. A program's libraries (the CUDA
// runtime) remember there what they did in the parent: a session of its own would give their handles another meaning.
constinit std::atomic<bool> g_is_child_of_user{false};

}  // namespace

// In the child. Only calls that are safe there: nothing is freed, the parent's objects are left as they are.
void ForgetProcessInChild() {
  Process* process = g_process.exchange(nullptr);
  if (t_forking != nullptr) t_forking->registered.AfterForkInChild();
  t_forking = nullptr;
  if (process != nullptr) g_is_child_of_user.store(true);
  ForgetArrivalHints();
  if (Session* session = g_session.exchange(nullptr); session != nullptr) session->Close();
  new (&g_start_mutex) std::mutex;  // its holder does not exist here
  ForgetThread();
}

CUresult Process::Start() {
  if (CurrentProcess() != nullptr) return CUDA_SUCCESS;
  if (g_is_child_of_user.load()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard lock(g_start_mutex);
  if (CurrentProcess() != nullptr) return CUDA_SUCCESS;
  if (!g_watches_forks.exchange(true)) ::pthread_atfork(&BeforeFork, &AfterForkInParent, &ForgetProcessInChild);

  std::string sentence;
  Session* session = nullptr;
  if (const CUresult result = Session::Connect(&session, &sentence); result != CUDA_SUCCESS) {
    LOG_ERROR("{}", sentence);
    return result;
  }
  // Published before the first call, which needs them; taken back if that fails. Who finds a session finds its process.
  Process* started = std::make_unique<Process>().release();
  g_process.store(started, std::memory_order_release);
  g_session.store(session, std::memory_order_release);
  const CUresult result = started->DescribeDevices();
  if (result != CUDA_SUCCESS) {
    g_session.store(nullptr);
    g_process.store(nullptr);
    t_thread.channel = nullptr;
    session->Close();  // ends the session; its few objects stay, as another thread may have seen them
  } else {
    StartArrivalHints();
  }
  return result;
}

CUresult Process::DescribeDevices() {
  Channel* channel = nullptr;
  if (const CUresult result = CurrentChannel(&channel); result != CUDA_SUCCESS) return result;
  const Reply reply = channel->CallEmpty(shm::Op::kDescribeDevices);
  if (reply.result != CUDA_SUCCESS) return reply.result;
  const auto count = reply.Read<uint32_t>();
  if (count > shm::kMaxDevices || reply.payload_bytes < 8 + count * sizeof(shm::DeviceDescription)) {
    CurrentSession()->DeclareGone("its description of the devices makes no sense");
    return kExecutorGone;
  }
  driver_version_ = static_cast<int>(reply.Read<uint32_t>(4));
  described_.resize(count);
  if (count != 0) std::memcpy(described_.data(), reply.payload + 8, count * sizeof(shm::DeviceDescription));
  auto visible = VisibleDevices(std::getenv("CUDA_VISIBLE_DEVICES"), described_);
  if (!visible) return visible.error();
  visible_ = std::move(*visible);
  for (CUdevice device = 0; device < num_devices(); ++device) {
    Context& primary = contexts[static_cast<uint32_t>(server_ordinal(device))];
    primary.device = device;
    primary.is_visible = true;
  }
  return visible_.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult BeginCall(Call* call) {
  if (const CUresult result = CurrentChannel(&call->channel); result != CUDA_SUCCESS) return result;
  call->process = CurrentProcess();
  return CUDA_SUCCESS;
}

CUresult BeginCallInContext(Call* call) {
  if (const CUresult result = BeginCall(call); result != CUDA_SUCCESS) return result;
  if (t_thread.context == shm::kNoContext) return CUDA_ERROR_INVALID_CONTEXT;
  return call->process->contexts.IsActive(t_thread.context) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void ForgetContext(Process* process, uint32_t context) {
  process->contexts[context].epoch.fetch_add(1);
  process->contexts[context].limits.Forget();
  process->storage.EndContext(context, process->contexts.Handle(context));
  process->managed.ForgetContext(context);
  for (const Allocation& allocation : process->addresses.RemoveContext(context)) ReleaseAllocation(process, allocation);
  process->contexts.ForgetPeersOf(context);
  process->captures.ForgetContext(context);
  process->streams.RemoveIf([context](const Stream& stream) { return stream.context == context; });
}

void ReleaseAllocation(Process* process, const Allocation& allocation) {
  if (allocation.kind == MemoryKind::kDevice) {
    process->reservations.ReleaseSoon(allocation.address, allocation.reserved_bytes);
  } else {
    process->reservations.Release(allocation.address, allocation.reserved_bytes);
  }
  if (allocation.is_managed_variable) process->managed.Remove(allocation.address);
  if (allocation.is_managed()) process->advice.Forget(allocation.address, allocation.size_bytes);
  if (allocation.kind == MemoryKind::kRegistered && !allocation.is_device_view()) {
    const std::lock_guard lock(process->registered.mutex());
    process->registered.GiveBack(allocation.registered_page);
  }
  if (allocation.mapped_bytes != 0) ::munmap(reinterpret_cast<void*>(allocation.address), allocation.mapped_bytes);
}

}  // namespace tally::client_shim
