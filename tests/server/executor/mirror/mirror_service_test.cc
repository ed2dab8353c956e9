// A mirror's own side, in this process: pages of random commands.
#include "server/executor/mirror/mirror_service.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <thread>

#include "base/futex.h"
#include "base/mapped_region.h"
#include "base/unix_socket.h"
#include "tests/server/executor/mirror/mirror_world.h"
#include "tests/server/executor/mirror/task_shapes.h"

namespace tally::server {
namespace {

using shm::MirrorCommandKind;

constexpr int kPlayedDevice = 3;

// Home as a test plays it: it writes into the page what it likes.
class PlayedHome {
 public:
  PlayedHome() {
    auto file = CreateSealedMemfd("page", sizeof(shm::MirrorPage));
    auto sockets = CreateSocketPair();
    EXPECT_TRUE(file.has_value() && sockets.has_value());
    auto region = MappedRegion::Map(file->get(), sizeof(shm::MirrorPage));
    EXPECT_TRUE(region.has_value());
    region_ = std::move(*region);
    page().header.magic = shm::kMirrorMagic;
    page().header.version = shm::kMirrorVersion;
    socket_ = std::move(sockets->first);
    thread_ = std::thread([page_fd = std::move(*file), other = std::move(sockets->second), this]() mutable {
      auto service = MirrorService::Open(HomeDriver(), kPlayedDevice, std::move(page_fd), std::move(other),
                                         [this](std::chrono::microseconds slice) { time_slice_us_ = slice.count(); });
      is_open_ = service.has_value();
      if (is_open_) (*service)->Run();
    });
  }
  ~PlayedHome() {
    socket_.Reset();
    thread_.join();
    EXPECT_TRUE(is_open_);
    // A mirror's process would end here, and its context with it, whatever state that is in.
    EXPECT_EQ(HomeDriver().cuDevicePrimaryCtxReset_v2(kPlayedDevice), CUDA_SUCCESS);
  }
  shm::MirrorPage& page() { return *reinterpret_cast<shm::MirrorPage*>(region_.data()); }
  int64_t time_slice_us() const { return time_slice_us_; }
  int socket() const { return socket_.get(); }
  bool IsBroken() { return page().header.error.load(std::memory_order_acquire) != 0; }
  shm::MirrorSlot& next_slot() { return page().slot[next_ % shm::kMirrorSlots]; }
  void SendFd(int fd) {
    const shm::MirrorParcel parcel{next_};
    const int fds[] = {fd};
    EXPECT_TRUE(SendMessage(socket_.get(), std::as_bytes(std::span(&parcel, 1)), fds).ok());
  }
  // What stands in the next slot. False: it broke the mirror.
  bool Post() {
    const uint32_t done = static_cast<uint32_t>(++next_);
    shm::MirrorSlot& slot = page().slot[(next_ - 1) % shm::kMirrorSlots];
    page().header.num_posted.store(done, std::memory_order_release);
    FutexWake(page().header.num_posted, 1);
    while (slot.done.load(std::memory_order_acquire) != done) {
      if (IsBroken()) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  MappedRegion region_;
  UniqueFd socket_;
  std::thread thread_;
  std::atomic<bool> is_open_{false};
  std::atomic<int64_t> time_slice_us_{-1};
  uint64_t next_ = 0;
};

// Which a mirror can reserve in this process, too; home's are taken.
uint64_t FreeAddresses() {
  constexpr uint64_t kNumBytes = uint64_t{1} << 30;
  CUdeviceptr address = 0;
  EXPECT_EQ(HomeDriver().cuMemAddressReserve(&address, kNumBytes, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(HomeDriver().cuMemAddressFree(address, kNumBytes), CUDA_SUCCESS);
  return address;
}

uint32_t SmallOrWild(std::mt19937_64& random, uint32_t limit) {
  return random() % 400 == 0 ? static_cast<uint32_t>(random()) : static_cast<uint32_t>(random() % limit);
}

// Mostly sensible: then it gets past the first checks.
shm::MirrorCommand RandomCommand(std::mt19937_64& random, uint64_t near) {
  const auto granules = [&] { return random() % 100 == 0 ? random() >> (random() % 64) : random() % 5 * kGranule; };
  shm::MirrorCommand command{};
  command.kind = static_cast<MirrorCommandKind>(1 + SmallOrWild(random, shm::kNumMirrorCommands - 1));
  command.stream = SmallOrWild(random, shm::kMirrorStreams);
  command.allocation = SmallOrWild(random, 3);
  const bool may_be_self = command.kind == MirrorCommandKind::kUnmap || random() % 100 == 0;
  command.gpu = may_be_self && random() % 2 == 0 ? shm::kMirrorSelf : SmallOrWild(random, 3);
  command.image = SmallOrWild(random, 2);
  command.function = SmallOrWild(random, 3);
  command.task = SmallOrWild(random, 2);
  command.value = static_cast<uint32_t>(random());
  command.shared_bytes = SmallOrWild(random, 4096);
  command.address = near + granules();
  command.offset = granules() + (random() % 4 == 0 ? random() % 4096 : 0);
  const bool is_code = command.kind >= MirrorCommandKind::kFunction;
  command.num_bytes = is_code ? SmallOrWild(random, 4000) : std::max<uint64_t>(granules(), kGranule);
  command.row_bytes = 1 + random() % 10'000;
  command.pitch = command.row_bytes + random() % 10'000;
  command.rows = 1 + random() % 200;
  for (uint32_t& size : command.grid) size = 1 + SmallOrWild(random, 2);
  for (uint32_t& size : command.block) size = 1 + SmallOrWild(random, 2);
  return command;
}

TEST(MirrorServiceTest, RandomCommandsAreAnsweredOrBreakIt) {
  UseHomeContext();
  const HomeAllocation memory(0, kGranule);
  const uint64_t near = FreeAddresses();
  const std::string image = TaskImage();
  auto file = CreateSealedMemfd("image", image.size());
  ASSERT_TRUE(file.has_value());
  ASSERT_EQ(::pwrite(file->get(), image.data(), image.size(), 0), static_cast<ssize_t>(image.size()));
  std::mt19937_64 random(1);
  int num_answered = 0, num_done = 0;
  for (int run = 0; run < 60; ++run) {
    PlayedHome home;
    for (int i = 0; i < 200 && !home.IsBroken(); ++i) {
      shm::MirrorCommand command = RandomCommand(random, near);
      const auto kind = command.kind;
      if (kind == MirrorCommandKind::kMapShared || kind == MirrorCommandKind::kMapOther) home.SendFd(memory.fd());
      if (kind == MirrorCommandKind::kLoadImage) {
        if (random() % 4 != 0) command.num_bytes = image.size();
        home.SendFd(file->get());
      }
      if (kind == MirrorCommandKind::kFunction) command.num_bytes = 7;
      home.next_slot().command = command;
      std::memcpy(home.next_slot().bytes, "combine", 7);
      const shm::MirrorSlot& slot = home.next_slot();
      if (!home.Post()) break;
      ++num_answered;
      num_done += slot.result.load() == CUDA_SUCCESS;
    }
  }
  EXPECT_GT(num_answered, 500);
  EXPECT_GT(num_done, 100) << "all was refused: nothing was tested";
}

// Nothing sensible at all, slots that change while they are read, positions that jump.
TEST(MirrorServiceTest, PagesOfRandomBytesBreakIt) {
  UseHomeContext();
  std::mt19937_64 random(2);
  for (int run = 0; run < 20; ++run) {
    PlayedHome home;
    while (home.page().header.state.load() != shm::MirrorState::kReady) std::this_thread::yield();
    auto* const words = reinterpret_cast<volatile uint32_t*>(home.page().slot);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!home.IsBroken() && std::chrono::steady_clock::now() < end) {
      for (int i = 0; i < 1000; ++i) words[random() % (sizeof home.page().slot / 4)] = static_cast<uint32_t>(random());
      home.page().header.num_posted.fetch_add(random() % 4 == 0 ? static_cast<uint32_t>(random()) : 1);
      FutexWake(home.page().header.num_posted, 1);
    }
    EXPECT_TRUE(home.IsBroken());
  }
}

TEST(MirrorServiceTest, TimeSlicesAreSetAsHomeSays) {
  UseHomeContext();
  PlayedHome home;
  for (const uint32_t us : {200u, 0u, 30'000u}) {
    home.next_slot().command = {};
    home.next_slot().command.kind = MirrorCommandKind::kTimeSlice;
    home.next_slot().command.value = us;
    EXPECT_TRUE(home.Post());
    EXPECT_EQ(home.time_slice_us(), us);
  }
}

TEST(MirrorServiceTest, PagesThatAreNoneAreRefused) {
  UseHomeContext();
  const auto open = [](Result<UniqueFd> page) {
    auto sockets = CreateSocketPair();
    return MirrorService::Open(HomeDriver(), 3, std::move(*page), std::move(sockets->first), {}).has_value();
  };
  EXPECT_FALSE(open(CreateSealedMemfd("small", sizeof(shm::MirrorPage) - 1)));
  EXPECT_FALSE(open(CreateSealedMemfd("zeros", sizeof(shm::MirrorPage))));
  UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), sizeof(shm::MirrorPage)), 0);
  EXPECT_FALSE(open(std::move(unsealed)));
}

}  // namespace
}  // namespace tally::server
