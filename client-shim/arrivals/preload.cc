// libtally-arrivals.so: the receives of a program as its C library makes them, and a look at each that has brought
// something from a socket (arrival_watch.h). tally-run --hints=on preloads it for high-priority programs.
//
// Each function is the next library's of that name: the C library's, or that of whatever else the program preloads.
// What it returns, errno, cancellation and signals are untouched: it is called exactly once, with the same arguments,
// and no object of ours has to be destroyed if the thread is cancelled there.
#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>

#include "client-shim/arrivals/arrival_watch.h"
#include "client-shim/arrivals/socket_table.h"

#define TALLY_EXPORTED extern "C" __attribute__((visibility("default")))

namespace tally::client_shim {
namespace {

constinit ArrivalWatch g_watch;
constinit SocketTable g_sockets;

bool AskKernel(int fd) {
  struct stat state {};
  return ::fstat(fd, &state) == 0 && S_ISSOCK(state.st_mode);
}

// What follows keeps errno.
class KeptErrno {
 public:
  KeptErrno() : value_(errno) {}
  ~KeptErrno() { errno = value_; }
  KeptErrno(const KeptErrno&) = delete;
  KeptErrno& operator=(const KeptErrno&) = delete;

 private:
  const int value_;
};

// What a call site is known by: where it is, and how much came, as a power of two. So of one place that reads
// everything the bodies of requests are told from what else comes.
uint64_t SiteOf(const void* caller, uint64_t amount) {
  const uint64_t mixed =
      (reinterpret_cast<uintptr_t>(caller) ^ static_cast<uint64_t>(std::bit_width(amount)) << 56) * 0x9E3779B97F4A7C15;
  return mixed ^ mixed >> 29;
}

void OnReceived(const void* caller, uint64_t amount) {
  if (!g_watch.is_attached()) return;
  const KeptErrno kept;
  g_watch.OnReceived(SiteOf(caller, amount));
}

bool IsSocket(int fd) {
  if (!g_watch.is_attached()) return false;
  const KeptErrno kept;
  return g_sockets.IsSocket(fd, AskKernel);
}

template <typename Function>
class Next {
 public:
  explicit constexpr Next(const char* name) : name_(name) {}
  // Found when the library is loaded; before that (the start of another preloaded one) by the first call.
  Function* get() {
    Function* found = found_.load(std::memory_order_relaxed);
    if (found == nullptr) [[unlikely]] {
      const KeptErrno kept;
      found = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name_));
      found_.store(found, std::memory_order_relaxed);
    }
    return found;
  }

 private:
  const char* const name_;
  std::atomic<Function*> found_{nullptr};
};

using Read = ssize_t(int, void*, size_t);
using Recv = ssize_t(int, void*, size_t, int);
using Recvfrom = ssize_t(int, void*, size_t, int, sockaddr*, socklen_t*);
using Recvmsg = ssize_t(int, msghdr*, int);
using Readv = ssize_t(int, const iovec*, int);
using EpollWait = int(int, epoll_event*, int, int);
using EpollPwait = int(int, epoll_event*, int, int, const sigset_t*);
using Poll = int(pollfd*, nfds_t, int);
using Ppoll = int(pollfd*, nfds_t, const timespec*, const sigset_t*);
using Select = int(int, fd_set*, fd_set*, fd_set*, timeval*);
constinit Next<Recv> g_recv("recv");
constinit Next<Recvfrom> g_recvfrom("recvfrom");
constinit Next<Recvmsg> g_recvmsg("recvmsg");
constinit Next<Read> g_read("read");
constinit Next<Readv> g_readv("readv");
constinit Next<EpollWait> g_epoll_wait("epoll_wait");
constinit Next<EpollPwait> g_epoll_pwait("epoll_pwait");
constinit Next<Poll> g_poll("poll");
constinit Next<Ppoll> g_ppoll("ppoll");
constinit Next<Select> g_select("select");
constinit Next<int(int)> g_close("close");
constinit Next<int(int, int)> g_dup2("dup2");
constinit Next<int(int, int, int)> g_dup3("dup3");

// A signal handler may read, and dlsym is not for signal handlers.
__attribute__((constructor)) void FindAll() {
  g_recv.get(), g_recvfrom.get(), g_recvmsg.get(), g_read.get(), g_readv.get();
  g_epoll_wait.get(), g_epoll_pwait.get(), g_poll.get(), g_ppoll.get(), g_select.get();
  g_close.get(), g_dup2.get(), g_dup3.get();
}

ssize_t Received(ssize_t size, const void* caller) {
  if (size > 0) OnReceived(caller, static_cast<uint64_t>(size));
  return size;
}

ssize_t ReadBy(ssize_t size, int fd, const void* caller) {
  if (size > 0 && IsSocket(fd)) OnReceived(caller, static_cast<uint64_t>(size));
  return size;
}

int Polled(int num_ready, const pollfd* fds, nfds_t num_fds, const void* caller) {
  if (num_ready <= 0 || !g_watch.is_attached()) return num_ready;
  for (nfds_t i = 0; i < num_fds; ++i) {
    if ((fds[i].revents & POLLIN) == 0 || !IsSocket(fds[i].fd)) continue;
    OnReceived(caller, 0);
    break;
  }
  return num_ready;
}

int Selected(int num_ready, int num_fds, fd_set* readable, const void* caller) {
  if (num_ready <= 0 || readable == nullptr || !g_watch.is_attached()) return num_ready;
  for (int fd = 0; fd < num_fds && fd < FD_SETSIZE; ++fd) {
    if (!FD_ISSET(fd, readable) || !IsSocket(fd)) continue;
    OnReceived(caller, 0);
    break;
  }
  return num_ready;
}

}  // namespace
}  // namespace tally::client_shim

using namespace tally::client_shim;

// By libcuda.so.1, once it has a session; null in the child of a fork. Safe there and in signal handlers.
TALLY_EXPORTED void tally_arrivals_attach(void* page) { g_watch.Attach(static_cast<tally::shm::ArrivalPage*>(page)); }

TALLY_EXPORTED ssize_t recv(int fd, void* buffer, size_t size, int flags) {
  return Received(g_recv.get()(fd, buffer, size, flags), __builtin_return_address(0));
}
TALLY_EXPORTED ssize_t recvfrom(int fd, void* buffer, size_t size, int flags, sockaddr* from, socklen_t* from_size) {
  return Received(g_recvfrom.get()(fd, buffer, size, flags, from, from_size), __builtin_return_address(0));
}
TALLY_EXPORTED ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return Received(g_recvmsg.get()(fd, message, flags), __builtin_return_address(0));
}
TALLY_EXPORTED ssize_t read(int fd, void* buffer, size_t size) {
  return ReadBy(g_read.get()(fd, buffer, size), fd, __builtin_return_address(0));
}
TALLY_EXPORTED ssize_t readv(int fd, const iovec* buffers, int num_buffers) {
  return ReadBy(g_readv.get()(fd, buffers, num_buffers), fd, __builtin_return_address(0));
}
// What is ready they do not say in a way that others understand: the place is learned all the same.
TALLY_EXPORTED int epoll_wait(int epoll, epoll_event* events, int num_events, int timeout) {
  return static_cast<int>(
      Received(g_epoll_wait.get()(epoll, events, num_events, timeout), __builtin_return_address(0)));
}
TALLY_EXPORTED int epoll_pwait(int epoll, epoll_event* events, int num_events, int timeout, const sigset_t* signals) {
  return static_cast<int>(
      Received(g_epoll_pwait.get()(epoll, events, num_events, timeout, signals), __builtin_return_address(0)));
}
TALLY_EXPORTED int poll(pollfd* fds, nfds_t num_fds, int timeout) {
  return Polled(g_poll.get()(fds, num_fds, timeout), fds, num_fds, __builtin_return_address(0));
}
TALLY_EXPORTED int ppoll(pollfd* fds, nfds_t num_fds, const timespec* timeout, const sigset_t* signals) {
  return Polled(g_ppoll.get()(fds, num_fds, timeout, signals), fds, num_fds, __builtin_return_address(0));
}
TALLY_EXPORTED int select(int num_fds, fd_set* readable, fd_set* writable, fd_set* exceptional, timeval* timeout) {
  return Selected(g_select.get()(num_fds, readable, writable, exceptional, timeout), num_fds, readable,
                  __builtin_return_address(0));
}

// Before, since the thread may be cancelled there; and behind it, as others may have looked meanwhile.
TALLY_EXPORTED int close(int fd) {
  g_sockets.Forget(fd);
  const int result = g_close.get()(fd);
  g_sockets.Forget(fd);
  return result;
}
TALLY_EXPORTED int dup2(int from, int to) noexcept {
  g_sockets.Forget(to);
  return g_dup2.get()(from, to);
}
TALLY_EXPORTED int dup3(int from, int to, int flags) noexcept {
  g_sockets.Forget(to);
  return g_dup3.get()(from, to, flags);
}
