// What executors tell one another of shared objects: at the door of one, by another's ForeignObjects.
#include "server/executor/session/sharing_door.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "base/unix_socket.h"
#include "server/executor/session/foreign_objects.h"

namespace tally::server {
namespace {

constexpr uint64_t kAddress = 0x7c0000000000, kSize = 4096;

// Counts what is open, and says which handle it was.
struct OpeningDriver {
  static inline int num_open, num_opened, num_imported, num_released;
  static inline CUipcMemHandle last;

  static DriverTable Table() {
    num_open = num_opened = num_imported = num_released = 0;
    DriverTable table;
    table.cuIpcOpenMemHandle_v2 = [](CUdeviceptr* address, CUipcMemHandle handle, unsigned int) -> CUresult {
      last = handle;
      *address = kAddress + static_cast<uint64_t>(++num_opened) * kSize;
      return ++num_open, CUDA_SUCCESS;
    };
    table.cuIpcCloseMemHandle = [](CUdeviceptr) -> CUresult { return --num_open, CUDA_SUCCESS; };
    table.cuIpcOpenEventHandle = [](CUevent* event, CUipcEventHandle handle) -> CUresult {
      *event = reinterpret_cast<CUevent>(static_cast<uintptr_t>(handle.reserved[0]));
      return CUDA_SUCCESS;
    };
    table.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* handle, void* descriptor,
                                              CUmemAllocationHandleType) -> CUresult {
      char byte = 0;
      const int fd = static_cast<int>(reinterpret_cast<intptr_t>(descriptor));
      if (::pread(fd, &byte, 1, 0) != 1 || byte != 'p') return CUDA_ERROR_INVALID_VALUE;
      *handle = 1;
      return ++num_imported, CUDA_SUCCESS;
    };
    table.cuMemRelease = [](CUmemGenericAllocationHandle) -> CUresult { return ++num_released, CUDA_SUCCESS; };
    return table;
  }
};

class SharingDoorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = "/tmp/tally-door-XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    doors_ = {path, "1000@team"};
    door_ = std::make_unique<SharingDoor>(shared_, doors_);
    ASSERT_TRUE(door_->Open().ok());
    foreign_ = std::make_unique<ForeignObjects>(driver_, doors_, /*num_devices=*/2);
  }
  void TearDown() override {
    door_.reset();
    EXPECT_TRUE(std::filesystem::is_empty(doors_.directory)) << "the door is removed with its executor";
    std::filesystem::remove_all(doors_.directory);
  }
  static SharedDriverHandle HandleOf(char letter) {
    auto handle = std::make_shared<DriverHandle>();
    handle->bytes.fill(static_cast<uint8_t>(letter));
    return handle;
  }
  shm::SharedName OfferMemory(SharedDriverHandle handle, int device = 1) {
    shm::SharedName name{};
    EXPECT_TRUE(shared_.Offer({shm::SharedKind::kAllocation, kAddress, kSize, device, {}, std::move(handle)}, &name));
    return name;
  }
  CUresult Open(const shm::SharedName& name, int current_device = 0) {
    return foreign_->OpenMemory(name, current_device, &opened_);
  }

  Doors doors_;
  SharedObjects shared_;  // of the executor that offers
  DriverTable driver_ = OpeningDriver::Table();
  std::unique_ptr<SharingDoor> door_;
  std::unique_ptr<ForeignObjects> foreign_;  // of the one that opens
  ForeignObjects::Allocation opened_;
};

TEST_F(SharingDoorTest, MemoryIsOpenedByTheDriverOnceAndClosedByTheLast) {
  const shm::SharedName name = OfferMemory(HandleOf('m'));
  ASSERT_EQ(Open(name), CUDA_SUCCESS);
  EXPECT_EQ(OpeningDriver::last.reserved[0], 'm');
  EXPECT_EQ(opened_.size_bytes, kSize);
  EXPECT_EQ(opened_.device, 1);
  const uint64_t address = opened_.address;
  ASSERT_EQ(Open(name), CUDA_SUCCESS);
  EXPECT_EQ(opened_.address, address);
  ASSERT_EQ(Open(name, /*current_device=*/1), CUDA_SUCCESS);
  EXPECT_NE(opened_.address, address) << "another context has an opening of its own";
  EXPECT_EQ(OpeningDriver::num_open, 2);
  foreign_->CloseMemory(address);
  EXPECT_EQ(OpeningDriver::num_open, 2);
  foreign_->CloseMemory(address);
  EXPECT_EQ(OpeningDriver::num_open, 1);
  foreign_->CloseMemory(address);
  EXPECT_EQ(OpeningDriver::num_open, 1);
}

TEST_F(SharingDoorTest, WhoServesAnotherOwnerGetsNothing) {
  const shm::SharedName name = OfferMemory(HandleOf('m'));
  for (const char* owner : {"1001@team", "1000@team-b", "1000", ""}) {
    ForeignObjects stranger(driver_, {doors_.directory, owner}, 2);
    EXPECT_EQ(stranger.OpenMemory(name, 0, &opened_), CUDA_ERROR_INVALID_VALUE) << owner;
  }
  EXPECT_EQ(OpeningDriver::num_opened, 0);
}

TEST_F(SharingDoorTest, NamesAreNotGuessedAndEndWithTheirObject) {
  const shm::SharedName name = OfferMemory(HandleOf('m'));
  shm::SharedName other = name;
  other.token[1] ^= 1;
  EXPECT_EQ(Open(other), CUDA_ERROR_INVALID_VALUE);
  other = name;
  other.executor ^= 1;  // a process that has had this pid before
  EXPECT_EQ(Open(other), CUDA_ERROR_INVALID_VALUE);
  other = name;
  other.kind = static_cast<uint32_t>(shm::SharedKind::kEvent);
  EXPECT_EQ(Open(other), CUDA_ERROR_INVALID_VALUE);
  other = name;
  other.process = UINT32_MAX;
  EXPECT_EQ(Open(other), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Open(name), CUDA_SUCCESS);
  EXPECT_TRUE(shared_.Drop(shm::SharedKind::kAllocation, kAddress, /*is_owner=*/true));
  EXPECT_EQ(Open(name), CUDA_ERROR_INVALID_VALUE) << "open here or not: nobody new opens what its owner has freed";
}

TEST_F(SharingDoorTest, WhatTheDriverCannotShareIsRefused) {
  EXPECT_EQ(Open(OfferMemory(nullptr)), CUDA_ERROR_NOT_SUPPORTED);
  ForeignObjects doorless(driver_, {}, 2);
  EXPECT_EQ(doorless.OpenMemory(OfferMemory(HandleOf('m')), 0, &opened_), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(SharingDoorTest, AnEventIsOpenedByTheDriver) {
  shm::SharedName name{};
  ASSERT_TRUE(shared_.Offer({shm::SharedKind::kEvent, 5, 0, 1, {}, HandleOf('e')}, &name));
  CUevent event = nullptr;
  int device = 0;
  ASSERT_EQ(foreign_->OpenEvent(name, &event, &device), CUDA_SUCCESS);
  EXPECT_EQ(event, reinterpret_cast<CUevent>(uintptr_t{'e'}));
  EXPECT_EQ(device, 1);
}

TEST_F(SharingDoorTest, ADeviceThatIsNotHereIsRefused) {
  EXPECT_EQ(Open(OfferMemory(HandleOf('m'), /*device=*/2)), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharingDoorTest, PhysicalMemoryTravelsAsADescriptor) {
  auto memory = std::make_shared<PhysicalMemory>(driver_, 7);
  memory->size_bytes = kSize;
  memory->properties.device = 1;
  int num_made = 0;
  const auto make_handle = [&]() -> SharedDriverHandle {
    auto handle = std::make_shared<DriverHandle>();
    handle->descriptor = UniqueFd(::open(doors_.directory.c_str(), O_TMPFILE | O_RDWR, 0600));
    EXPECT_EQ(::pwrite(handle->descriptor.get(), "p", 1, 0), 1);
    ++num_made;
    return handle;
  };
  shm::SharedName name{}, again{};
  ASSERT_TRUE(shared_.OfferPhysical(memory, make_handle, &name));
  ASSERT_TRUE(shared_.OfferPhysical(memory, make_handle, &again));
  EXPECT_EQ(num_made, 1);
  EXPECT_EQ(std::memcmp(&name, &again, sizeof(name)), 0);

  SharedObjects opener;
  EXPECT_EQ(opener.OpenPhysical(name).error().code(), StatusCode::kFailedPrecondition);
  ForeignObjects::Answer answer;
  ASSERT_EQ(foreign_->Ask(name, &answer), CUDA_SUCCESS);
  std::shared_ptr<PhysicalMemory> imported;
  ASSERT_EQ(foreign_->Import(answer, &imported), CUDA_SUCCESS);
  EXPECT_EQ(imported->size_bytes, kSize);
  EXPECT_EQ(imported->properties.device, 1u);
  imported = opener.AddImported(name, std::move(imported));
  // The next session gets the same; and what it offers on is still the first executor's.
  const auto opened = opener.OpenPhysical(name);
  ASSERT_TRUE(opened);
  EXPECT_EQ(*opened, imported);
  ASSERT_TRUE(opener.OfferPhysical(imported, make_handle, &again));
  EXPECT_EQ(std::memcmp(&name, &again, sizeof(name)), 0);
  // Its owner lets go: no descriptor of ours keeps the memory.
  memory.reset();
  EXPECT_EQ(OpeningDriver::num_released, 1);
  EXPECT_EQ(foreign_->Ask(name, &answer), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharingDoorTest, WhoTalksNonsenseIsHungUpOnAndTheNextIsServed) {
  const std::string path = doors_.PathOf(static_cast<uint32_t>(::getpid()));
  for (const size_t size : {size_t{1}, sizeof(control::DoorRequest), size_t{4000}}) {
    const auto connection = ConnectUnix(path);
    ASSERT_TRUE(connection);
    const std::vector<std::byte> nonsense(size, std::byte{0x7f});
    ASSERT_TRUE(SendMessage(connection->get(), nonsense).ok());
    EXPECT_FALSE(ReceiveMessage(connection->get(), std::chrono::seconds(20)));
  }
  const auto silent = ConnectUnix(path);
  ASSERT_TRUE(silent);
  EXPECT_EQ(Open(OfferMemory(HandleOf('m'))), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tally::server
