// A tallyd and an executor in a few threads of the test: speaks the hello, opens channels, records every request in the
// order of sequence numbers and answers what the test scripted; everything else with CUDA_SUCCESS and no payload.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mapped_region.h"
#include "base/unique_fd.h"
#include "proto/shm/channel_abi.h"
#include "proto/shm/handshake_abi.h"
#include "proto/shm/records_abi.h"

namespace tally::client_shim {

struct FakeRequest {
  uint32_t channel = 0;
  uint16_t op = 0;
  uint16_t flags = 0;
  uint64_t sequence_number = 0;
  uint32_t context = 0;
  std::vector<std::byte> payload;

  template <typename T>
  T Read(size_t offset = 0) const {
    T value{};
    if (offset + sizeof(T) <= payload.size()) std::memcpy(&value, payload.data() + offset, sizeof(T));
    return value;
  }
};

struct FakeReply {
  uint32_t result = 0;
  uint16_t flags = 0;
  std::vector<std::byte> payload;
  bool is_withheld = false;  // never answered
  bool is_unrung = false;    // written once the client sleeps, and nobody wakes it

  template <typename T>
  void Append(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    payload.insert(payload.end(), bytes, bytes + sizeof(value));
  }
};

class FakeExecutor {
 public:
  using Script = std::function<void(const FakeRequest&, FakeReply*)>;

  FakeExecutor();
  ~FakeExecutor();

  const std::string& socket_path() const { return socket_path_; }
  // Before the first client comes.
  void set_protocol_version(uint32_t version) { protocol_version_ = version; }
  void set_devices(std::vector<shm::DeviceDescription> devices) { devices_ = std::move(devices); }
  // What it tells who attaches that it has use for (shm::kWantsPtx and so on).
  void set_wanted(uint64_t wanted) { wanted_ = wanted; }
  // A device that passes for a small sm_90.
  static shm::DeviceDescription MakeDevice(int ordinal);
  void On(shm::Op op, Script script) { On(static_cast<uint16_t>(op), std::move(script)); }
  void On(uint16_t op, Script script);
  // The next `count` sessions come to an executor that is gone already.
  void LoseSessions(int count) { num_to_lose_ = count; }
  int num_hellos() const { return num_hellos_; }
  shm::HelloRequest last_hello();
  // More channels of a session than these are refused.
  void set_max_channels(size_t count) { max_channels_ = count; }
  // While paused no channel is read.
  void Pause(bool is_paused) { is_paused_ = is_paused; }
  // Closes every session socket, as if the process had died; channels are not read any more.
  void Die();
  // Session header of the latest session, for errors set behind the client's back.
  shm::SessionHeader* session_header();
  // Every request that was written before the call, except kDescribeDevices, in the order of sequence numbers.
  std::vector<FakeRequest> requests();
  // How many of those are of an operation.
  size_t NumRequests(uint16_t op);
  size_t NumRequests(shm::Op op) { return NumRequests(static_cast<uint16_t>(op)); }
  size_t num_channels();
  // Whether a client waits for room for a request.
  bool IsRoomAwaited();
  // Of a channel of the latest session.
  std::byte* arena(uint32_t channel);
  // Where the first pinned memory is offered, and which of it was not wanted.
  static constexpr uint64_t kFirstHostAddress = 0x500000000000;  // free under asan, too
  std::vector<uint64_t> rejected_host_addresses();

 private:
  struct Channel {
    uint32_t index;
    MappedRegion region;
    UniqueFd fd;
    uint64_t request_position = 0;
    uint64_t reply_position = 0;
  };
  struct Session {
    UniqueFd socket;
    UniqueFd region_fd;
    MappedRegion region;
    std::vector<std::unique_ptr<Channel>> channels;
  };
  void AcceptLoop();
  void SessionLoop(Session* session);
  void ReadLoop();
  bool ServeChannel(Channel* channel);
  void Answer(Channel* channel, const FakeRequest& request);
  void WriteReply(Channel* channel, uint16_t op, const FakeReply& reply);

  std::string directory_;
  std::string socket_path_;
  uint32_t protocol_version_ = shm::kProtocolVersion;
  uint64_t wanted_ = 0;
  std::vector<shm::DeviceDescription> devices_;
  UniqueFd listening_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> is_paused_{false};
  std::atomic<bool> is_dead_{false};
  std::atomic<int> num_to_lose_{0};
  std::atomic<size_t> max_channels_{SIZE_MAX};
  std::atomic<int> num_hellos_{0};
  std::atomic<uint64_t> num_idle_passes_{0};  // over all channels, without finding a record

  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Session>> sessions_;
  shm::HelloRequest last_hello_{};
  std::map<uint16_t, Script> scripts_;
  std::vector<FakeRequest> requests_;
  uint64_t next_host_address_ = kFirstHostAddress;
  std::vector<uint64_t> rejected_host_addresses_;

  std::vector<std::thread> threads_;  // guarded by mutex_ until the destructor
};

// A thread that has used the allocator when this returns. A child that is forked while one does so for the first time
// may wait for a lock for ever, with sanitizers at least: so who starts threads before RunInChild starts them by this.
std::thread StartSettled(std::function<void()> body);
// Runs `body` in a child process with TALLY_SOCKET set to `socket_path` and the built libcuda.so.1 not yet loaded. The
// body returns 0 for success. Returns the exit status, 128 + signal if one ended it.
int RunInChild(const std::string& socket_path, const std::function<int()>& body);

// The built library, opened in this process. Null and a test failure when it does not load.
void* OpenShim();
// A driver function of it, with the type that cuda.h gives it: SHIM(cuInit)(0).
template <typename Function>
Function* ShimFunction(const char* name, Function*) {
  return reinterpret_cast<Function*>(::dlsym(OpenShim(), name));
}
#define SHIM(symbol) SHIM_VARIANT(symbol, "")
// Of the same type, with a suffix that no header declares: "_ptds".
#define SHIM_VARIANT(symbol, suffix) \
  ::tally::client_shim::ShimFunction(#symbol suffix, static_cast<decltype(&::symbol)>(nullptr))

}  // namespace tally::client_shim
