#include "client-shim/transport/expected_work.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "client-shim/transport/session.h"
#include "proto/shm/arrival_abi.h"

namespace tally::client_shim {
namespace {

using Attach = void(void* page);

constexpr uint64_t kMostMicroseconds = 1'000'000;
// How exact people are, and computers that do as they say.
constexpr uint64_t kToleranceNs = 300'000;

constinit std::mutex g_opening;
constinit std::atomic<shm::ArrivalPage*> g_page{nullptr};
constinit std::atomic<Session*> g_asked{nullptr};  // the session that was asked for the page
constinit std::atomic<Attach*> g_attach{nullptr};

// Null: nobody wants to know, which is said once.
shm::ArrivalPage* OpenPage(Session& session) {
  if (g_asked.load(std::memory_order_acquire) == &session) return g_page.load(std::memory_order_acquire);
  const std::lock_guard lock(g_opening);
  if (g_asked.load(std::memory_order_acquire) == &session) return g_page.load(std::memory_order_acquire);
  const char* reason = "";
  shm::ArrivalPage* const page = session.OpenArrivals(&reason);
  if (page == nullptr) LOG_WARNING("expected work is not announced: {}", reason);
  g_page.store(page, std::memory_order_release);
  g_asked.store(&session, std::memory_order_release);
  return page;
}

}  // namespace

void StartArrivalHints() {
  const char* const hints = std::getenv("TALLY_HINTS");
  Session* const session = CurrentSession();
  if (session == nullptr || hints == nullptr || std::strcmp(hints, "on") != 0) return;
  auto* const attach = reinterpret_cast<Attach*>(::dlsym(RTLD_DEFAULT, "tally_arrivals_attach"));
  if (attach == nullptr) {
    LOG_WARNING(
        "TALLY_HINTS=on: libtally-arrivals.so is not preloaded (tally-run --hints=on does that for programs "
        "with --priority high): only tally_expect_work announces work");
    return;
  }
  g_attach.store(attach);
  attach(OpenPage(*session));
}

int ExpectWork(uint64_t microseconds) {
  if (microseconds > kMostMicroseconds) return EINVAL;
  Session* const session = CurrentSession();
  if (session == nullptr) return 0;
  shm::ArrivalPage* const page = OpenPage(*session);
  if (page == nullptr) return 0;
  const uint64_t from_ns = MonotonicNs() + microseconds * 1000;
  page->expected_from_ns.store(from_ns, std::memory_order_relaxed);
  page->expected_until_ns.store(from_ns + kToleranceNs + microseconds * 250, std::memory_order_relaxed);
  page->num_declared.fetch_add(1, std::memory_order_relaxed);
  page->bell.fetch_add(1, std::memory_order_seq_cst);
  if (page->is_awaited.load(std::memory_order_seq_cst) != 0) FutexWake(page->bell, 1);
  return 0;
}

void ForgetArrivalHints() {
  if (Attach* const attach = g_attach.exchange(nullptr); attach != nullptr) attach(nullptr);
  new (&g_opening) std::mutex;  // its holder does not exist here
  g_page.store(nullptr);
  g_asked.store(nullptr);
}

}  // namespace tally::client_shim
