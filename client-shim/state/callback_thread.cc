#include "client-shim/state/callback_thread.h"

#include <pthread.h>
#include <signal.h>

#include <cstring>

#include "client-shim/state/process.h"
#include "client-shim/transport/session.h"
#include "proto/shm/records_launch_abi.h"

namespace tally::client_shim {
namespace {

void RunCallback(const Callback& callback, CUresult stream_status) {
  if (callback.size_bytes != 0) {
    std::memcpy(callback.destination, callback.source, callback.size_bytes);
  } else if (callback.stream_callback != nullptr) {
    callback.stream_callback(callback.stream, stream_status, callback.user);
  } else {
    callback.function(callback.user);
  }
}

}  // namespace

CUresult CallbackThread::Ensure() {
  const std::lock_guard lock(mutex_);
  if (is_running_) return CUDA_SUCCESS;
  Session* session = CurrentSession();
  // Taken here: where there is none, the caller must know. A function that nobody runs holds its stream up for good.
  Channel* channel = nullptr;
  if (const CUresult result = session->TakeChannel(&channel); result != CUDA_SUCCESS) return result;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  pthread_t thread;
  const int error = ::pthread_create(&thread, nullptr, &CallbackThread::Run, channel);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    session->ReturnChannel(channel);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  ::pthread_detach(thread);
  ::pthread_setname_np(thread, "tally-callbacks");
  is_running_ = true;
  return CUDA_SUCCESS;
}

void* CallbackThread::Run(void* taken) {
  auto* channel = static_cast<Channel*>(taken);
  t_thread.channel = channel;
  WatchThreadEnd();
  uint64_t finished = 0;
  while (true) {
    const Reply reply = channel->CallStruct(shm::Op::kAwaitCallback, shm::AwaitCallback{finished});
    if (reply.result != CUDA_SUCCESS) return nullptr;
    finished = reply.Read<uint64_t>();
    if (finished == 0) continue;
    auto* callback = reinterpret_cast<Callback*>(finished);
    const auto status = static_cast<CUresult>(reply.Read<uint32_t>(8));
    // The function runs in the stream's order, so managed variables are up to date for it and for what comes after it.
    Process* process = CurrentProcess();
    const bool has_managed = process != nullptr && process->managed.any();
    if (has_managed) process->managed.FetchChanges(channel);
    RunCallback(*callback, status);
    if (has_managed) process->managed.SendChanges(channel);
    if (callback->runs_once) delete callback;
  }
}

}  // namespace tally::client_shim
