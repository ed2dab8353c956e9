// An HTTP service on epoll: a request is prepared on the processor for a while, then one kernel answers it.
//
//   epoll_service [--port P] [--prepare-us M] [--kernel-us K] [--expect]
//
// Prints "ready PORT" when it is warm. Any POST is a request; the answer's headers say what the service saw: X-Own-Us
// from the receive to the end of the kernel, X-Gpu-Us from the launch to that end, X-Lead-Us from the receive to the
// launch. With --expect it says when it will need the GPU (include/tally/expect_work.h). Ends with its stdin.
#include <cuda_runtime.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "include/tally/expect_work.h"

namespace {

using Clock = std::chrono::steady_clock;

#define CHECK(call)                                                                                           \
  do {                                                                                                        \
    const cudaError_t result_of_call = (call);                                                                \
    if (result_of_call != cudaSuccess) {                                                                      \
      fprintf(stderr, "epoll_service: line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(result_of_call)); \
      exit(1);                                                                                                \
    }                                                                                                         \
  } while (false)

// On every multiprocessor, for so long.
__global__ void Answer(unsigned long long duration_ns) {
  unsigned long long begun, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begun < duration_ns);
}

struct Options {
  int port = 0;
  long prepare_us = 400;
  long kernel_us = 200;
  bool expects = false;
} g_options;

double Us(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

class Service {
 public:
  Service() {
    int device = 0;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&blocks_, cudaDevAttrMultiProcessorCount, device));
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (int i = 0; i < 20; ++i) Compute();
  }
  // The answer to a request that came at `received_at`.
  std::string Serve(Clock::time_point received_at, const std::string& request) {
    if (g_options.expects) tally_expect_work(static_cast<unsigned long>(g_options.prepare_us));
    Prepare(received_at, request);
    const auto launched_at = Clock::now();
    Compute();
    const auto done_at = Clock::now();
    char answer[256];
    snprintf(answer, sizeof(answer),
             "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Own-Us: %.1f\r\nX-Gpu-Us: %.1f\r\nX-Lead-Us: %.1f\r\n\r\nOK",
             Us(done_at - received_at), Us(done_at - launched_at), Us(launched_at - received_at));
    return answer;
  }

 private:
  // Stands for parsing and tokenising.
  void Prepare(Clock::time_point received_at, const std::string& request) {
    while (Us(Clock::now() - received_at) < static_cast<double>(g_options.prepare_us)) {
      for (const char letter : request) sum_ = sum_ * 31 + static_cast<unsigned char>(letter);
    }
  }
  void Compute() {
    Answer<<<blocks_, 128, 0, stream_>>>(static_cast<unsigned long long>(g_options.kernel_us) * 1000);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream_));
  }

  int blocks_ = 1;
  cudaStream_t stream_ = nullptr;
  volatile unsigned sum_ = 0;
};

// Whether `text` holds a whole request.
bool IsWhole(const std::string& text) {
  const size_t head = text.find("\r\n\r\n");
  if (head == std::string::npos) return false;
  const size_t length = text.find("Content-Length: ");
  const size_t body = length < head ? strtoul(text.c_str() + length + strlen("Content-Length: "), nullptr, 10) : 0;
  return text.size() >= head + 4 + body;
}

int Listen() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(g_options.port));
  socklen_t size = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 64) != 0) return -1;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  printf("ready %d\n", ntohs(address.sin_port));
  fflush(stdout);
  return listener;
}

void Watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

int Run() {
  Service service;
  const int listener = Listen();
  if (listener < 0) return 1;
  const int epoll = epoll_create1(0);
  Watch(epoll, listener);
  Watch(epoll, STDIN_FILENO);
  std::map<int, std::string> partial;
  for (;;) {
    epoll_event event;
    if (epoll_wait(epoll, &event, 1, -1) != 1) continue;
    const int fd = event.data.fd;
    char buffer[16384];
    if (fd == STDIN_FILENO) {
      if (read(fd, buffer, sizeof(buffer)) <= 0) return 0;
    } else if (fd == listener) {
      const int connection = accept(listener, nullptr, nullptr);
      const int yes = 1;
      setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
      Watch(epoll, connection);
    } else {
      const ssize_t size = recv(fd, buffer, sizeof(buffer), 0);
      const auto received_at = Clock::now();
      if (size <= 0) {
        close(fd);
        partial.erase(fd);
        continue;
      }
      std::string& text = partial[fd].append(buffer, static_cast<size_t>(size));
      if (!IsWhole(text)) continue;
      const std::string answer = service.Serve(received_at, text);
      text.clear();
      if (send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) close(fd);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const long number = i + 1 < argc ? atol(argv[i + 1]) : 0;
    if (word == "--expect") {
      g_options.expects = true;
      continue;
    }
    if (word == "--port") g_options.port = static_cast<int>(number);
    if (word == "--prepare-us") g_options.prepare_us = number;
    if (word == "--kernel-us") g_options.kernel_us = number;
    ++i;
  }
  return Run();
}
