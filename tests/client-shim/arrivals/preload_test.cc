// The library as it ships, opened and called; what it looks at is a page of our own.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "proto/shm/arrival_abi.h"

namespace tally::client_shim {
namespace {

void* AddressOf(const char* name) {
  static void* const library = ::dlopen(TALLY_ARRIVALS_PATH, RTLD_NOW);
  EXPECT_NE(library, nullptr) << ::dlerror();
  return ::dlsym(library, name);
}
#define LIBRARY(name) reinterpret_cast<decltype(&::name)>(AddressOf(#name))

uint64_t NowNs() { return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()); }

class Preload : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets_.data()), 0);
    ASSERT_EQ(::pipe(pipe_.data()), 0);
    Attach(page_.get());
  }
  void TearDown() override {
    Attach(nullptr);
    for (const int fd : {sockets_[0], sockets_[1], pipe_[0], pipe_[1]}) ::close(fd);
  }
  static void Attach(shm::ArrivalPage* page) {
    reinterpret_cast<void (*)(void*)>(AddressOf("tally_arrivals_attach"))(page);
  }
  // As the executor does: it comes 0.4 ms after `received_ns`, which need not be over.
  void Work(uint64_t received_ns) {
    const uint64_t index = page_->num_begun.load();
    page_->begun_at_ns[index % shm::kArrivalTimes] = received_ns + 400'000;
    page_->num_begun = index + 1;
  }
  // Requests that `receive` takes from the socket, each with work.
  void Train(const std::function<void()>& receive, int write_to = -1, int times = 40) {
    for (int i = 0; i < times; ++i) {
      ASSERT_EQ(::write(write_to >= 0 ? write_to : sockets_[1], "request", 7), 7);
      receive();
      Work(NowNs());
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }

  const std::unique_ptr<shm::ArrivalPage> page_ = std::make_unique<shm::ArrivalPage>();
  std::array<int, 2> sockets_{}, pipe_{};
  char buffer_[64];
};

TEST_F(Preload, EachReceiveFromASocketIsLearned) {
  iovec vector{buffer_, sizeof(buffer_)};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  const int fd = sockets_[0];
  const std::function<void()> receives[] = {
      [&] { ASSERT_EQ(LIBRARY(recv)(fd, buffer_, sizeof(buffer_), 0), 7); },
      [&] { ASSERT_EQ(LIBRARY(recvfrom)(fd, buffer_, sizeof(buffer_), 0, nullptr, nullptr), 7); },
      [&] { ASSERT_EQ(LIBRARY(recvmsg)(fd, &message, 0), 7); },
      [&] { ASSERT_EQ(LIBRARY(read)(fd, buffer_, sizeof(buffer_)), 7); },
      [&] { ASSERT_EQ(LIBRARY(readv)(fd, &vector, 1), 7); },
  };
  for (const auto& receive : receives) {
    const uint32_t bell = page_->bell.load();
    const uint64_t began_ns = NowNs();
    Train(receive);
    EXPECT_GT(page_->bell.load(), bell + 5) << &receive - receives;
    EXPECT_GT(page_->expected_from_ns.load(), began_ns);
    EXPECT_LE(page_->expected_from_ns.load(), page_->expected_until_ns.load());
  }
}

TEST_F(Preload, WaitsForSocketsAreLearned) {
  const int fd = sockets_[0];
  const int epoll = ::epoll_create1(0);
  epoll_event event{};
  event.events = EPOLLIN;
  ASSERT_EQ(::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
  pollfd polled{fd, POLLIN, 0};
  fd_set set;
  const auto take = [&] { ASSERT_EQ(::read(fd, buffer_, sizeof(buffer_)), 7); };
  const std::function<void()> waits[] = {
      [&] { ASSERT_EQ(LIBRARY(epoll_wait)(epoll, &event, 1, -1), 1); },
      [&] { ASSERT_EQ(LIBRARY(epoll_pwait)(epoll, &event, 1, -1, nullptr), 1); },
      [&] { ASSERT_EQ(LIBRARY(poll)(&polled, 1, -1), 1); },
      [&] { ASSERT_EQ(LIBRARY(ppoll)(&polled, 1, nullptr, nullptr), 1); },
      [&] {
        FD_ZERO(&set);
        FD_SET(fd, &set);
        ASSERT_EQ(LIBRARY(select)(fd + 1, &set, nullptr, nullptr, nullptr), 1);
      },
  };
  for (const auto& wait : waits) {
    const uint32_t bell = page_->bell.load();
    Train([&] {
      wait();
      take();
    });
    EXPECT_GT(page_->bell.load(), bell + 5) << &wait - waits;
  }
  ::close(epoll);
}

TEST_F(Preload, PipesAndFilesAreNotLookedAt) {
  Train([&] { ASSERT_EQ(LIBRARY(read)(pipe_[0], buffer_, sizeof(buffer_)), 7); }, pipe_[1]);
  pollfd polled{pipe_[0], POLLIN, 0};
  Train(
      [&] {
        ASSERT_EQ(LIBRARY(poll)(&polled, 1, -1), 1);
        ASSERT_EQ(::read(pipe_[0], buffer_, sizeof(buffer_)), 7);
      },
      pipe_[1]);
  EXPECT_EQ(page_->bell.load(), 0u);
}

// The number of a socket that was closed is a pipe's.
TEST_F(Preload, ANumberThatIsUsedAgainIsLookedAtAgain) {
  const auto receive = [&](int fd) { ASSERT_EQ(LIBRARY(read)(fd, buffer_, sizeof(buffer_)), 7); };
  const int number = ::dup(sockets_[0]);
  Train([&] { receive(number); });
  const uint32_t bell = page_->bell.load();
  EXPECT_GT(bell, 5u);
  ASSERT_EQ(LIBRARY(close)(number), 0);
  ASSERT_EQ(::dup2(pipe_[0], number), number);
  Train([&] { receive(number); }, pipe_[1]);
  EXPECT_EQ(page_->bell.load(), bell);
  ASSERT_EQ(LIBRARY(dup2)(sockets_[0], number), number);
  Train([&] { receive(number); });
  EXPECT_GT(page_->bell.load(), bell);
  ::close(number);
}

TEST_F(Preload, NothingIsSaidWhileTheProgramHasTheGpu) {
  const auto receive = [&] { ASSERT_EQ(LIBRARY(recv)(sockets_[0], buffer_, sizeof(buffer_), 0), 7); };
  Train(receive);
  const uint32_t bell = page_->bell.load();
  page_->is_busy = 1;
  Train(receive);
  EXPECT_EQ(page_->bell.load(), bell);
}

TEST_F(Preload, WithoutAPageNothingHappens) {
  Attach(nullptr);
  Train([&] { ASSERT_EQ(LIBRARY(recv)(sockets_[0], buffer_, sizeof(buffer_), 0), 7); });
  EXPECT_EQ(page_->bell.load(), 0u);
}

TEST_F(Preload, ErrorsAndErrnoAreTheirOwn) {
  errno = 0;
  EXPECT_EQ(LIBRARY(recv)(-1, buffer_, sizeof(buffer_), 0), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(LIBRARY(recv)(sockets_[0], buffer_, sizeof(buffer_), MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(LIBRARY(recv)(pipe_[0], buffer_, sizeof(buffer_), 0), -1);
  EXPECT_EQ(errno, ENOTSOCK);
  EXPECT_EQ(LIBRARY(close)(-1), -1);
  EXPECT_EQ(errno, EBADF);
  epoll_event event{};
  EXPECT_EQ(LIBRARY(epoll_wait)(sockets_[0], &event, 1, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  page_->is_awaited = 1;
  errno = ERANGE;
  Train([&] {
    const int before = errno;
    ASSERT_EQ(LIBRARY(read)(sockets_[0], buffer_, sizeof(buffer_)), 7);
    ASSERT_EQ(errno, before);
  });
}

TEST_F(Preload, ItRingsForWhoSleeps) {
  page_->is_awaited = 1;
  const auto receive = [&] { ASSERT_EQ(LIBRARY(recv)(sockets_[0], buffer_, sizeof(buffer_), 0), 7); };
  Train(receive);
  const uint32_t bell = page_->bell.load();
  std::atomic<bool> is_awake = false;
  std::thread sleeper([&] {
    while (page_->bell.load() == bell)
      ::syscall(SYS_futex, &page_->bell, 0 /* FUTEX_WAIT */, bell, nullptr, nullptr, 0);
    is_awake = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  while (!is_awake) Train(receive, -1, 1);  // or the test's time is over; after a slow request it may expect nothing
  sleeper.join();
}

TEST_F(Preload, AThreadIsCancelledInIt) {
  std::array<std::function<void()>, 3> waits = {
      [&] { static_cast<void>(LIBRARY(recv)(sockets_[0], buffer_, sizeof(buffer_), 0)); },
      [&] { static_cast<void>(LIBRARY(read)(sockets_[0], buffer_, sizeof(buffer_))); },
      [&] { static_cast<void>(LIBRARY(poll)(nullptr, 0, -1)); },
  };
  for (auto& wait : waits) {
    pthread_t thread{};
    ASSERT_EQ(::pthread_create(
                  &thread, nullptr,
                  [](void* what) -> void* {
                    (*static_cast<std::function<void()>*>(what))();
                    return nullptr;
                  },
                  &wait),
              0);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_EQ(::pthread_cancel(thread), 0);
    void* result = nullptr;
    ASSERT_EQ(::pthread_join(thread, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED);
  }
}

int g_signal_fd = -1;
std::atomic<int> g_num_handled = 0;

// A signal comes while the library is at it, and its handler receives, too.
TEST_F(Preload, SignalHandlersMayReceive) {
  std::array<int, 2> others{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, others.data()), 0);
  g_signal_fd = others[0];
  static const auto read_in_handler = LIBRARY(read);  // dlsym is not for handlers
  struct sigaction action {};
  action.sa_handler = [](int) {
    char letter = 0;
    while (read_in_handler(g_signal_fd, &letter, 1) == 1 && letter != '!') {
    }
    ++g_num_handled;
  };
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  const pthread_t self = ::pthread_self();
  std::atomic<bool> is_over = false;
  std::thread sender([&] {
    for (int i = 0; i < 3000 && !is_over; ++i) {
      ASSERT_EQ(::write(others[1], "ab!", 3), 3);
      ::pthread_kill(self, SIGUSR1);
      while (g_num_handled <= i && !is_over) std::this_thread::yield();
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_EQ(::write(sockets_[1], "request", 7), 7);
    ASSERT_EQ(LIBRARY(recv)(sockets_[0], buffer_, sizeof(buffer_), 0), 7);
    Work(NowNs());
  }
  is_over = true;
  sender.join();
  ::signal(SIGUSR1, SIG_DFL);
  for (const int fd : others) ::close(fd);
}

TEST_F(Preload, InterruptedWaitsAreInterrupted) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  const pthread_t self = ::pthread_self();
  const auto receive = LIBRARY(recv);
  std::atomic<bool> is_over = false;
  std::thread sender([&] {
    while (!is_over) {  // a signal may come before the wait
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      ::pthread_kill(self, SIGUSR1);
    }
  });
  EXPECT_EQ(receive(sockets_[0], buffer_, sizeof(buffer_), 0), -1);
  EXPECT_EQ(errno, EINTR);
  is_over = true;
  sender.join();
  ::signal(SIGUSR1, SIG_DFL);
}

}  // namespace
}  // namespace tally::client_shim
