// Which descriptors of the process are sockets, as far as one can know who sees only some of the calls that close and
// open them. Asks the kernel once per descriptor, and now and then again; forgets on close and dup2.
//
// Lock-free, of constant size, usable in signal handlers. Descriptors above its size are taken for no sockets.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tally::client_shim {

class SocketTable {
 public:
  static constexpr int kDescriptors = 4096;
  // The C library closes some descriptors without a call that can be seen (fclose). So "no socket" is believed so
  // often.
  static constexpr uint8_t kBelievedTimes = 64;

  // `ask(fd)`: what the kernel says.
  template <typename Ask>
  bool IsSocket(int fd, const Ask& ask) {
    if (fd < 0 || fd >= kDescriptors) return false;
    std::atomic<uint8_t>& state = states_[fd];
    const uint8_t known = state.load(std::memory_order_relaxed);
    if (known == kSocket) return true;
    if (known != kUnknown) {  // how often it is still believed
      state.store(static_cast<uint8_t>(known - 1), std::memory_order_relaxed);
      return false;
    }
    const bool is_socket = ask(fd);
    state.store(is_socket ? kSocket : kBelievedTimes, std::memory_order_relaxed);
    return is_socket;
  }
  void Forget(int fd) {
    if (fd >= 0 && fd < kDescriptors) states_[fd].store(kUnknown, std::memory_order_relaxed);
  }

 private:
  static constexpr uint8_t kUnknown = 0;
  static constexpr uint8_t kSocket = 255;
  static_assert(kBelievedTimes < kSocket);

  std::atomic<uint8_t> states_[kDescriptors] = {};
};

}  // namespace tally::client_shim
