#include "tests/client-shim/fake_executor.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <utility>

#include "base/futex.h"
#include "base/unix_socket.h"
#include "proto/driver/generated/wire_ops.h"

namespace tally::client_shim {
namespace {

template <typename T>
std::span<const std::byte> BytesOf(const T& message) {
  return std::as_bytes(std::span<const T, 1>(&message, 1));
}
constexpr auto kTick = std::chrono::milliseconds(50);

}  // namespace

FakeExecutor::FakeExecutor() {
  char path[] = "/tmp/tally-shim-test-XXXXXX";
  directory_ = ::mkdtemp(path);
  socket_path_ = directory_ + "/tally.sock";
  devices_ = {MakeDevice(0)};
  auto listening = ListenUnix(socket_path_, 0600);
  EXPECT_TRUE(listening.has_value());
  if (!listening) return;
  listening_ = std::move(*listening);
  threads_.push_back(StartSettled([this] { AcceptLoop(); }));
  threads_.push_back(StartSettled([this] { ReadLoop(); }));
}

FakeExecutor::~FakeExecutor() {
  is_stopping_ = true;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
  {
    const std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
  ::unlink(socket_path_.c_str());
  ::rmdir(directory_.c_str());
}

shm::DeviceDescription FakeExecutor::MakeDevice(int ordinal) {
  shm::DeviceDescription device{};
  std::snprintf(device.name, sizeof(device.name), "Fake %d", ordinal);
  for (int i = 0; i < 16; ++i) device.uuid[i] = static_cast<uint8_t>(16 * (ordinal + 1) + i);
  device.total_memory_bytes = uint64_t{8} << 30;
  device.pci_bus = static_cast<uint32_t>(ordinal + 1);
  std::fill(std::begin(device.attribute_valid), std::begin(device.attribute_valid) + 150, uint8_t{1});
  int32_t* a = device.attribute;
  a[1] = 1024;                                            // threads per block
  a[2] = a[3] = 1024, a[4] = 64;                          // block dimensions
  a[5] = 0x7fffffff, a[6] = a[7] = 65535;                 // grid dimensions
  a[8] = 49152, a[9] = 65536, a[10] = 32, a[12] = 65536;  // shared, constant, warp, registers
  a[16] = 4;                                              // multiprocessors
  a[39] = 2048;                                           // threads per multiprocessor
  a[41] = 1;                                              // unified addressing
  a[33] = ordinal + 1, a[34] = 3, a[50] = 2;              // PCI bus, device, domain
  a[75] = 9;                                              // sm_90
  device.lowest_stream_priority = 0;
  device.highest_stream_priority = -5;
  return device;
}

void FakeExecutor::On(uint16_t op, Script script) {
  const std::lock_guard lock(mutex_);
  scripts_[op] = std::move(script);
}

void FakeExecutor::Die() {
  is_dead_ = true;
  const std::lock_guard lock(mutex_);
  for (auto& session : sessions_) ::shutdown(session->socket.get(), 2);
}

shm::SessionHeader* FakeExecutor::session_header() {
  const std::lock_guard lock(mutex_);
  return sessions_.empty() ? nullptr : reinterpret_cast<shm::SessionHeader*>(sessions_.back()->region.data());
}

std::vector<FakeRequest> FakeExecutor::requests() {
  // Asynchronous calls of one channel may still be unread when those of another have been answered. The pass that is
  // under way may have passed them, the next one has not.
  const uint64_t seen = num_idle_passes_;
  while (num_idle_passes_ < seen + 2) std::this_thread::sleep_for(std::chrono::microseconds(200));
  const std::lock_guard lock(mutex_);
  std::vector<FakeRequest> sorted = requests_;
  std::ranges::sort(sorted, {}, &FakeRequest::sequence_number);
  return sorted;
}

size_t FakeExecutor::NumRequests(uint16_t op) {
  return static_cast<size_t>(std::ranges::count(requests(), op, &FakeRequest::op));
}

size_t FakeExecutor::num_channels() {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& session : sessions_) count += session->channels.size();
  return count;
}

bool FakeExecutor::IsRoomAwaited() {
  const std::lock_guard lock(mutex_);
  for (const auto& session : sessions_) {
    for (const auto& channel : session->channels) {
      auto* header = reinterpret_cast<shm::ChannelHeader*>(channel->region.data());
      if (header->request.writer_waiting.load() != 0) return true;
    }
  }
  return false;
}

std::byte* FakeExecutor::arena(uint32_t channel) {
  const std::lock_guard lock(mutex_);
  const MappedRegion& region = sessions_.back()->channels[channel]->region;
  return region.data() + reinterpret_cast<const shm::ChannelHeader*>(region.data())->arena_offset;
}

shm::HelloRequest FakeExecutor::last_hello() {
  const std::lock_guard lock(mutex_);
  return last_hello_;
}

std::vector<uint64_t> FakeExecutor::rejected_host_addresses() {
  const std::lock_guard lock(mutex_);
  return rejected_host_addresses_;
}

void FakeExecutor::AcceptLoop() {
  while (!is_stopping_) {
    pollfd poll_fd{listening_.get(), POLLIN, 0};
    if (::poll(&poll_fd, 1, static_cast<int>(kTick.count())) <= 0) continue;
    auto client = AcceptUnix(listening_.get());
    if (!client) continue;
    auto hello = ReceiveMessage(client->get(), std::chrono::seconds(5));
    if (!hello || hello->bytes.size() != sizeof(shm::HelloRequest)) continue;
    {
      const std::lock_guard lock(mutex_);
      std::memcpy(&last_hello_, hello->bytes.data(), sizeof(last_hello_));
    }
    auto pair = CreateSocketPair();
    if (!pair) continue;
    shm::HelloReply reply{};
    reply.magic = shm::kHelloMagic;
    reply.protocol_version = protocol_version_;
    reply.api_table_hash = kApiTableHash;
    reply.session_id = 7;
    const int fds[] = {pair->second.get()};
    const Status sent = SendMessage(client->get(), BytesOf(reply), fds);
    ++num_hellos_;
    if (!sent.ok() || num_to_lose_ > 0) {
      --num_to_lose_;
      continue;  // closes our end
    }
    auto session = std::make_unique<Session>();
    session->socket = std::move(pair->first);
    const std::lock_guard lock(mutex_);
    Session* added = sessions_.emplace_back(std::move(session)).get();
    threads_.emplace_back([this, added] { SessionLoop(added); });
  }
}

void FakeExecutor::SessionLoop(Session* session) {
  while (!is_stopping_) {
    auto message = ReceiveMessage(session->socket.get(), kTick);
    if (!message) {
      if (message.error().code() == StatusCode::kDeadlineExceeded) continue;
      return;
    }
    shm::SessionRequest request{};
    std::memcpy(&request, message->bytes.data(), std::min(sizeof(request), message->bytes.size()));
    shm::SessionReply reply{};
    reply.kind = request.kind;
    int fd = -1;
    UniqueFd owned;
    switch (static_cast<shm::SessionRequestKind>(request.kind)) {
      case shm::SessionRequestKind::kAttach: {
        session->region_fd = *CreateSealedMemfd("session", shm::kSessionRegionBytes);
        auto region = *MappedRegion::Map(session->region_fd.get(), shm::kSessionRegionBytes);
        auto* header = reinterpret_cast<shm::SessionHeader*>(region.data());
        header->magic = shm::kSessionMagic;
        header->protocol_version = shm::kProtocolVersion;
        const std::lock_guard lock(mutex_);
        session->region = std::move(region);
        reply.value[0] = shm::kSessionRegionBytes;
        reply.value[1] = wanted_;
        fd = session->region_fd.get();
        break;
      }
      case shm::SessionRequestKind::kOpenChannel: {
        if (session->channels.size() >= max_channels_) {
          reply.cuda_result = CUDA_ERROR_OUT_OF_MEMORY;
          break;
        }
        auto channel = std::make_unique<Channel>();
        channel->fd = *CreateSealedMemfd("channel", shm::kChannelRegionBytes);
        channel->region = *MappedRegion::Map(channel->fd.get(), shm::kChannelRegionBytes);
        auto* header = reinterpret_cast<shm::ChannelHeader*>(channel->region.data());
        header->magic = shm::kChannelMagic;
        header->protocol_version = shm::kProtocolVersion;
        header->request_offset = shm::kHeaderBytes;
        header->request_bytes = shm::kRequestRingBytes;
        header->reply_offset = shm::kHeaderBytes + shm::kRequestRingBytes;
        header->reply_bytes = shm::kReplyRingBytes;
        header->arena_offset = header->reply_offset + shm::kReplyRingBytes;
        header->arena_chunk_bytes = shm::kArenaChunkBytes;
        header->arena_chunks = shm::kArenaChunks;
        // As after many requests: what a record leaves out is not zero.
        std::memset(channel->region.data() + header->request_offset, 0xA5, header->request_bytes);
        const std::lock_guard lock(mutex_);
        channel->index = static_cast<uint32_t>(session->channels.size());
        header->channel_index = channel->index;
        reply.value[0] = shm::kChannelRegionBytes;
        reply.value[1] = channel->index;
        fd = channel->fd.get();
        session->channels.push_back(std::move(channel));
        break;
      }
      case shm::SessionRequestKind::kAllocateHost: {
        const uint64_t size = (request.value[0] + 4095) & ~uint64_t{4095};
        owned = *CreateSealedMemfd("host", size);
        const std::lock_guard lock(mutex_);
        reply.value[0] = next_host_address_;
        reply.value[1] = size;
        next_host_address_ += (size + 0x1fffff) & ~uint64_t{0x1fffff};
        fd = owned.get();
        break;
      }
      case shm::SessionRequestKind::kRejectHost: {
        const std::lock_guard lock(mutex_);
        rejected_host_addresses_.push_back(request.value[0]);
        break;
      }
      default:
        break;
    }
    const int fds[] = {fd};
    if (!SendMessage(session->socket.get(), BytesOf(reply), std::span(fds, fd >= 0 ? 1u : 0u)).ok()) return;
  }
}

void FakeExecutor::ReadLoop() {
  while (!is_stopping_) {
    bool any = false;
    if (!is_paused_ && !is_dead_) {
      std::vector<Channel*> channels;
      {
        const std::lock_guard lock(mutex_);
        for (const auto& session : sessions_) {
          for (const auto& channel : session->channels) channels.push_back(channel.get());
        }
      }
      for (Channel* channel : channels) any |= ServeChannel(channel);
    }
    // Polling keeps the fake simple; waking a sleeping reader is exercised by the ring tests.
    if (any) continue;
    ++num_idle_passes_;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

bool FakeExecutor::ServeChannel(Channel* channel) {
  auto* header = reinterpret_cast<shm::ChannelHeader*>(channel->region.data());
  bool any = false;
  while (!is_paused_ && !is_dead_ && channel->request_position != header->request.write_position.load()) {
    any = true;
    const size_t offset = channel->request_position & (shm::kRequestRingBytes - 1);
    const std::byte* record = channel->region.data() + header->request_offset + offset;
    shm::RequestHeader frame{};
    std::memcpy(&frame, record, std::min<size_t>(sizeof(frame), shm::kRequestRingBytes - offset));
    FakeRequest request;
    if (frame.op != 0) {
      request = {channel->index, frame.op, frame.flags, frame.sequence_number, frame.context, {}};
      request.payload.assign(record + sizeof(frame), record + sizeof(frame) + frame.payload_bytes);
    }
    channel->request_position += frame.size_bytes;
    header->request.read_position.store(channel->request_position);
    if (header->request.writer_waiting.exchange(0) != 0) {
      header->request.space_doorbell.fetch_add(1);
      FutexWake(header->request.space_doorbell, 1);
    }
    if (frame.op != 0) Answer(channel, request);
  }
  return any;
}

void FakeExecutor::Answer(Channel* channel, const FakeRequest& request) {
  FakeReply reply;
  Script script;
  {
    const std::lock_guard lock(mutex_);
    if (request.op != static_cast<uint16_t>(shm::Op::kDescribeDevices)) requests_.push_back(request);
    if (const auto found = scripts_.find(request.op); found != scripts_.end()) script = found->second;
  }
  if (script) {
    script(request, &reply);
  } else if (request.op == static_cast<uint16_t>(shm::Op::kDescribeDevices)) {
    reply.Append(static_cast<uint32_t>(devices_.size()));
    reply.Append(uint32_t{13000});
    for (const auto& device : devices_) reply.Append(device);
  }
  if ((request.flags & shm::kWantReply) != 0 && !reply.is_withheld) WriteReply(channel, request.op, reply);
}

void FakeExecutor::WriteReply(Channel* channel, uint16_t op, const FakeReply& reply) {
  auto* header = reinterpret_cast<shm::ChannelHeader*>(channel->region.data());
  std::byte* ring = channel->region.data() + header->reply_offset;
  const auto size = static_cast<uint32_t>((sizeof(shm::ReplyHeader) + reply.payload.size() + 15) & ~size_t{15});
  uint64_t offset = channel->reply_position & (shm::kReplyRingBytes - 1);
  if (offset + size > shm::kReplyRingBytes) {
    const auto padding = static_cast<uint32_t>(shm::kReplyRingBytes - offset);
    const shm::ReplyHeader frame{padding, 0, 0, 0, 0};
    std::memcpy(ring + offset, &frame, sizeof(frame));
    channel->reply_position += padding;
    offset = 0;
  }
  const shm::ReplyHeader frame{size, op, reply.flags, reply.result, static_cast<uint32_t>(reply.payload.size())};
  std::memcpy(ring + offset, &frame, sizeof(frame));
  if (!reply.payload.empty()) std::memcpy(ring + offset + sizeof(frame), reply.payload.data(), reply.payload.size());
  channel->reply_position += size;
  while (reply.is_unrung && header->reply.reader_waiting.load() == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  header->reply.write_position.store(channel->reply_position);
  if (reply.is_unrung) return;
  if (header->reply.reader_waiting.exchange(0) != 0) {
    header->reply.data_doorbell.fetch_add(1);
    FutexWake(header->reply.data_doorbell, 1);
  }
}

std::thread StartSettled(std::function<void()> body) {
  const auto is_settled = std::make_shared<std::latch>(1);
  std::thread thread([is_settled, body = std::move(body)] {
    std::make_unique<std::vector<char>>(1).reset();
    is_settled->count_down();
    body();
  });
  is_settled->wait();
  return thread;
}

int RunInChild(const std::string& socket_path, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TALLY_SOCKET", socket_path.c_str(), 1);
    ::alarm(60);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void* OpenShim() {
  const char* directory = std::getenv("TALLY_CLIENT_DIR");  // as tally-run: another build of the library
  const std::string path = directory != nullptr ? std::string(directory) + "/libcuda.so.1" : TALLY_SHIM_PATH;
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::fprintf(stderr, "%s\n", ::dlerror());
  return library;
}

}  // namespace tally::client_shim
