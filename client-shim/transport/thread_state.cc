#include "client-shim/transport/thread_state.h"

#include <pthread.h>

#include <atomic>

#include "client-shim/transport/channel.h"
#include "client-shim/transport/declared_segments.h"
#include "client-shim/transport/session.h"
#include "proto/shm/handles_abi.h"

namespace tally::client_shim {

__thread ThreadState t_thread
    __attribute__((tls_model("initial-exec"))) = {nullptr, nullptr, shm::kNoContext, false, 0, 0, nullptr};

namespace {

constinit pthread_once_t g_key_once = PTHREAD_ONCE_INIT;
constinit pthread_key_t g_key = 0;
constinit bool g_has_key = false;
__thread bool t_is_watched __attribute__((tls_model("initial-exec"))) = false;

void OnThreadEnd(void*) {
  t_is_watched = false;  // a later destructor of the same thread may call CUDA again
  if (Channel* channel = t_thread.channel; channel != nullptr) {
    t_thread.channel = nullptr;
    channel->session()->ReturnChannel(channel);
  }
  delete t_thread.below;
  t_thread.below = nullptr;
  delete t_thread.declared;
  t_thread.declared = nullptr;
}

}  // namespace

void WatchThreadEnd() {
  if (t_is_watched) return;
  ::pthread_once(&g_key_once, [] { g_has_key = ::pthread_key_create(&g_key, &OnThreadEnd) == 0; });
  // Any value but null makes the destructor run. Without a key (the program used all 1024) channels are not reused.
  if (g_has_key) t_is_watched = ::pthread_setspecific(g_key, &t_thread) == 0;
}

void ForgetThread() {
  t_thread.channel = nullptr;
  delete t_thread.below;
  delete t_thread.declared;
  t_thread = {nullptr, nullptr, shm::kNoContext, false, 0, 0, nullptr};
}

}  // namespace tally::client_shim
