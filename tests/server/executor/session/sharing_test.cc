// Virtual memory and what sessions share: who may touch what, and when it really ends.
#include <thread>

#include "proto/driver/generated/wire_ops.h"
#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

using shm::Op;

constexpr uint64_t kPiece = uint64_t{2} << 20;
constexpr uint32_t kFileDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

// The fake driver with virtual memory that only counts: addresses are numbers.
class VirtualDriver {
 public:
  static server::DriverTable Table(const server::DriverTable& base) {
    num_reserved = num_physical = num_mapped = 0;
    server::DriverTable table = base;
    table.cuMemAddressReserve = [](CUdeviceptr* address, size_t size, size_t, CUdeviceptr,
                                   unsigned long long) -> CUresult {
      ++num_reserved;
      *address = next_address.fetch_add(size);
      return CUDA_SUCCESS;
    };
    table.cuMemAddressFree = [](CUdeviceptr, size_t) -> CUresult { return --num_reserved, CUDA_SUCCESS; };
    table.cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                           unsigned long long) -> CUresult {
      if (properties->requestedHandleTypes != 0) return CUDA_ERROR_NOT_SUPPORTED;  // it cannot export
      if (size % kPiece != 0) return CUDA_ERROR_INVALID_VALUE;
      *handle = static_cast<CUmemGenericAllocationHandle>(++last_handle);
      return ++num_physical, CUDA_SUCCESS;
    };
    table.cuMemRelease = [](CUmemGenericAllocationHandle) -> CUresult { return --num_physical, CUDA_SUCCESS; };
    table.cuMemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) -> CUresult {
      return ++num_mapped, CUDA_SUCCESS;
    };
    table.cuMemUnmap = [](CUdeviceptr, size_t size) -> CUresult {
      return num_mapped -= static_cast<int>(size / kPiece), CUDA_SUCCESS;
    };
    table.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) -> CUresult { return CUDA_SUCCESS; };
    return table;
  }
  static inline std::atomic<int> num_reserved{0}, num_physical{0}, num_mapped{0};

 private:
  static inline std::atomic<uint64_t> next_address{uint64_t{1} << 44};
  static inline std::atomic<uint64_t> last_handle{0};
};

class SharingTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    table_ = VirtualDriver::Table(driver_.table());
    config.driver_table_for_testing = &table_;
    config.limits.device_memory_bytes = 8 * kPiece;
  }
  void SetUp() override {
    ExecutorFixture::SetUp();
    client_ = Connect();
    other_client_ = Connect();
    ASSERT_TRUE(client_ && other_client_);
    channel_ = client_->OpenChannel();
    other_ = other_client_->OpenChannel();
    ASSERT_TRUE(channel_ && other_);
  }
  static uint64_t Reserve(ScriptedChannel& channel, uint64_t size) {
    return channel.Call(Op::kReserveAddresses, Payload().Put(shm::ReserveAddresses{size, 0, 0, 0})).Get<uint64_t>();
  }
  static Answer Create(ScriptedChannel& channel, uint64_t size, uint32_t location = CU_MEM_LOCATION_TYPE_DEVICE) {
    const shm::PhysicalProperties properties{CU_MEM_ALLOCATION_TYPE_PINNED, kFileDescriptor, location, 0, 0, 0, 0, 0};
    return channel.Call(Op::kCreatePhysical, Payload().Put(shm::CreatePhysical{properties, size, 0}));
  }
  static uint32_t Map(ScriptedChannel& channel, uint64_t address, uint64_t handle, uint64_t size = kPiece) {
    return channel.Call(Op::kMapPhysical, Payload().Put(shm::MapPhysical{address, size, 0, handle, 0})).result;
  }
  static uint32_t Span(ScriptedChannel& channel, Op op, uint64_t address, uint64_t size) {
    return channel.Call(op, Payload().Put(shm::AddressSpan{address, size})).result;
  }
  static uint32_t Grant(ScriptedChannel& channel, uint64_t address, uint64_t size, uint32_t flags) {
    return channel.Call(Op::kSetAccess, Payload().Put(shm::AddressSpan{address, size}).Put(shm::AccessGrant{0, flags}))
        .result;
  }
  static uint32_t CopyIn(ScriptedChannel& channel, uint64_t from, uint64_t to, uint64_t size) {
    return channel.Call(Op::kCopy, Payload().Put(shm::Copy{to, from, size, 1, 0, 0})).result;
  }
  static Answer OfferOf(ScriptedChannel& channel, shm::SharedKind kind, uint64_t what) {
    return channel.Call(Op::kOffer, Payload().Put(shm::Offer{static_cast<uint32_t>(kind), 0, what}));
  }
  static Answer Open(ScriptedChannel& channel, const shm::SharedName& name, uint64_t handle = 0) {
    return channel.Call(Op::kOpenShared, Payload().Put(shm::OpenShared{name, handle, 0, 0}));
  }
  int Live(const std::string& kind) { return driver_.live()[kind]; }

  server::DriverTable table_;
  std::unique_ptr<ScriptedClient> client_, other_client_;
  std::unique_ptr<ScriptedChannel> channel_, other_;
};

TEST_F(SharingTest, MapsOnlyIntoItsOwnReservations) {
  const uint64_t base = Reserve(*channel_, 4 * kPiece);
  const uint64_t others = Reserve(*other_, 4 * kPiece);
  const auto handle = Create(*channel_, kPiece).Get<uint64_t>();
  ASSERT_NE(handle, 0u);
  EXPECT_EQ(Map(*channel_, others, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Map(*channel_, base + 4 * kPiece, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Map(*channel_, base, handle + 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Map(*channel_, base, handle, 2 * kPiece), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Map(*channel_, UINT64_MAX - 10, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Map(*channel_, base, handle), 0u);
  EXPECT_EQ(Map(*channel_, base, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Span(*other_, Op::kUnmapPhysical, base, kPiece), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Span(*other_, Op::kFreeAddresses, base, 4 * kPiece), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Grant(*other_, base, kPiece, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Span(*channel_, Op::kFreeAddresses, base, 4 * kPiece), CUDA_ERROR_INVALID_VALUE);  // something is mapped
  EXPECT_EQ(Span(*channel_, Op::kUnmapPhysical, base, kPiece / 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Span(*channel_, Op::kUnmapPhysical, base, 5 * kPiece), CUDA_ERROR_INVALID_VALUE);  // more than is reserved
  EXPECT_EQ(Span(*channel_, Op::kUnmapPhysical, base, 2 * kPiece), 0u);                        // a hole at its end
  EXPECT_EQ(Span(*channel_, Op::kUnmapPhysical, base, kPiece), 0u);                            // a hole
  EXPECT_EQ(Span(*channel_, Op::kFreeAddresses, base, 2 * kPiece), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Span(*channel_, Op::kFreeAddresses, base, 4 * kPiece), 0u);
  EXPECT_EQ(VirtualDriver::num_reserved, 1);
}

TEST_F(SharingTest, CopiesReachWhatIsMappedAndAccessible) {
  const uint64_t base = Reserve(*channel_, 4 * kPiece);
  const auto first = Create(*channel_, kPiece).Get<uint64_t>();
  const auto second = Create(*channel_, kPiece).Get<uint64_t>();
  ASSERT_EQ(Map(*channel_, base, first), 0u);
  ASSERT_EQ(Map(*channel_, base + kPiece, second), 0u);
  EXPECT_EQ(CopyIn(*channel_, base, base, 0), CUDA_ERROR_INVALID_VALUE);  // no device may access it yet
  ASSERT_EQ(Grant(*channel_, base, kPiece, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), 0u);
  EXPECT_EQ(CopyIn(*channel_, base, base, 0), 0u);
  EXPECT_EQ(CopyIn(*channel_, base, base + kPiece - 8, 16), CUDA_ERROR_INVALID_VALUE);  // into the second
  EXPECT_EQ(CopyIn(*other_, base, base, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Grant(*channel_, base, 3 * kPiece, 3), CUDA_ERROR_INVALID_VALUE);  // a hole
}

TEST_F(SharingTest, WhatMayOnlyBeReadIsAccessible) {
  const uint64_t base = Reserve(*channel_, 2 * kPiece);
  const auto handle = Create(*channel_, kPiece).Get<uint64_t>();
  ASSERT_EQ(Map(*channel_, base, handle), 0u);
  ASSERT_EQ(Map(*channel_, base + kPiece, handle), 0u);
  ASSERT_EQ(Grant(*channel_, base, kPiece, CU_MEM_ACCESS_FLAGS_PROT_READ), 0u);
  ASSERT_EQ(Grant(*channel_, base + kPiece, kPiece, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), 0u);
  EXPECT_EQ(CopyIn(*channel_, base, base + kPiece, 0), 0u);
  ASSERT_EQ(Grant(*channel_, base, kPiece, CU_MEM_ACCESS_FLAGS_PROT_NONE), 0u);
  EXPECT_EQ(CopyIn(*channel_, base, base + kPiece, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharingTest, MemoryLivesWithItsLastHandleOrMapping) {
  const uint64_t base = Reserve(*channel_, 4 * kPiece);
  const auto handle = Create(*channel_, kPiece).Get<uint64_t>();
  ASSERT_EQ(Map(*channel_, base, handle), 0u);
  ASSERT_EQ(Map(*channel_, base + kPiece, handle), 0u);
  EXPECT_EQ(executor_->Snapshot().at(0).figures["device_memory_bytes"], kPiece);
  const auto again = channel_->Call(Op::kRetainPhysical, Payload().PutWord(base + 100)).Get<uint64_t>();
  EXPECT_EQ(again, handle);
  EXPECT_EQ(channel_->Call(Op::kReleasePhysical, Payload().PutWord(handle)).result, 0u);
  EXPECT_EQ(channel_->Call(Op::kReleasePhysical, Payload().PutWord(handle)).result, 0u);
  EXPECT_EQ(channel_->Call(Op::kReleasePhysical, Payload().PutWord(handle)).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Span(*channel_, Op::kUnmapPhysical, base, kPiece), 0u);
  EXPECT_EQ(VirtualDriver::num_physical, 1);
  EXPECT_EQ(Span(*channel_, Op::kUnmapPhysical, base + kPiece, kPiece), 0u);
  EXPECT_EQ(VirtualDriver::num_physical, 0);
  EXPECT_EQ(executor_->Snapshot().at(0).figures["device_memory_bytes"], 0u);
  EXPECT_EQ(channel_->Call(Op::kRetainPhysical, Payload().PutWord(base)).result, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharingTest, RefusesWhatItCannotGive) {
  EXPECT_EQ(Create(*channel_, kPiece, CU_MEM_LOCATION_TYPE_HOST_NUMA).result, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Create(*channel_, 16 * kPiece).result, CUDA_ERROR_OUT_OF_MEMORY);  // the session's limit
  EXPECT_EQ(VirtualDriver::num_physical, 0);
}

TEST_F(SharingTest, TheEndOfASessionLetsGoOfEverything) {
  const uint64_t base = Reserve(*channel_, 4 * kPiece);
  const auto handle = Create(*channel_, kPiece).Get<uint64_t>();
  Create(*channel_, kPiece);  // never mapped
  ASSERT_EQ(Map(*channel_, base, handle), 0u);
  ASSERT_EQ(Grant(*channel_, base, kPiece, 3), 0u);
  const auto name = OfferOf(*channel_, shm::SharedKind::kPhysical, handle).Get<shm::SharedName>();
  const Answer opened = Open(*other_, name);
  ASSERT_EQ(opened.result, 0u);
  channel_.reset();
  client_.reset();
  WaitForEnds(1);
  EXPECT_EQ(VirtualDriver::num_mapped, 0);
  EXPECT_EQ(VirtualDriver::num_reserved, 0);
  EXPECT_EQ(VirtualDriver::num_physical, 1);  // the other session holds it
  const auto other_handle = opened.Get<shm::OpenedShared>().value;
  EXPECT_EQ(other_->Call(Op::kReleasePhysical, Payload().PutWord(other_handle)).result, 0u);
  EXPECT_EQ(VirtualDriver::num_physical, 0);
  EXPECT_EQ(Open(*other_, name).result, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharingTest, AnOpenedAllocationOutlivesItsOwner) {
  const uint64_t address = Allocate(*channel_, 4096);
  const auto name = OfferOf(*channel_, shm::SharedKind::kAllocation, address).Get<shm::SharedName>();
  EXPECT_EQ(OfferOf(*channel_, shm::SharedKind::kAllocation, address).Get<shm::SharedName>().token[0], name.token[0]);
  EXPECT_EQ(OfferOf(*channel_, shm::SharedKind::kAllocation, address + 8).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(OfferOf(*other_, shm::SharedKind::kAllocation, address).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CopyIn(*other_, address, address, 16), CUDA_ERROR_INVALID_VALUE);

  shm::SharedName guessed = name;
  ++guessed.token[1];
  EXPECT_EQ(Open(*other_, guessed).result, CUDA_ERROR_INVALID_VALUE);
  guessed = name;
  guessed.kind = static_cast<uint32_t>(shm::SharedKind::kEvent);
  EXPECT_EQ(Open(*other_, guessed).result, CUDA_ERROR_INVALID_VALUE);
  guessed = name;
  ++guessed.executor;
  EXPECT_EQ(Open(*other_, guessed).result, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Open(*channel_, name).result, CUDA_ERROR_INVALID_CONTEXT);  // its own, as natively

  const auto opened = Open(*other_, name).Get<shm::OpenedShared>();
  EXPECT_EQ(opened.value, address);
  EXPECT_EQ(opened.size_bytes, 4096u);
  EXPECT_EQ(Open(*other_, name).Get<shm::OpenedShared>().num_opens, 2u);
  EXPECT_EQ(CopyIn(*other_, address, address + 1024, 1024), 0u);
  EXPECT_EQ(other_->Call(Op::kFree, Payload().PutWord(address)).result, CUDA_ERROR_INVALID_VALUE);

  EXPECT_EQ(channel_->Call(Op::kFree, Payload().PutWord(address)).result, 0u);
  EXPECT_EQ(Live("memory"), 1);
  EXPECT_EQ(Open(*other_, name).result, CUDA_ERROR_INVALID_VALUE);  // nobody new
  EXPECT_EQ(CopyIn(*other_, address, address + 1024, 1024), 0u);
  EXPECT_EQ(other_->Call(Op::kCloseShared, Payload().PutWord(address)).Get<uint64_t>(), 1u);
  EXPECT_EQ(other_->Call(Op::kCloseShared, Payload().PutWord(address)).Get<uint64_t>(), 0u);
  EXPECT_EQ(other_->Call(Op::kCloseShared, Payload().PutWord(address)).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Live("memory"), 0);
  EXPECT_EQ(CopyIn(*other_, address, address, 16), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharingTest, WhoeverEndsLastFreesTheAllocation) {
  const uint64_t address = Allocate(*channel_, 4096);
  const auto name = OfferOf(*channel_, shm::SharedKind::kAllocation, address).Get<shm::SharedName>();
  ASSERT_EQ(Open(*other_, name).result, 0u);
  channel_.reset();
  client_.reset();
  WaitForEnds(1);
  EXPECT_EQ(Live("memory"), 1);
  other_.reset();
  other_client_.reset();
  WaitForEnds(2);
  EXPECT_EQ(Live("memory"), 0);
}

TEST_F(SharingTest, AnEventIsDestroyedByItsLastHolder) {
  constexpr uint64_t kOwn = shm::MakeHandle(shm::HandleKind::kEvent, 0, false, 1);
  constexpr uint64_t kOpened = shm::MakeHandle(shm::HandleKind::kEvent, 0, false, 5);
  constexpr uint64_t kTwice = shm::MakeHandle(shm::HandleKind::kEvent, 0, false, 6);
  const uint32_t flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  channel_->Post(Op::kCreateEvent, Payload().Put(shm::CreateEvent{kOwn, flags, 0}));
  const auto name = OfferOf(*channel_, shm::SharedKind::kEvent, kOwn).Get<shm::SharedName>();
  ASSERT_EQ(Open(*other_, name, kOpened).result, 0u);
  ASSERT_EQ(Open(*other_, name, kTwice).result, 0u);
  EXPECT_EQ(OfferOf(*other_, shm::SharedKind::kEvent, kOpened).result, CUDA_ERROR_INVALID_HANDLE);
  const auto destroy = [](ScriptedChannel& channel, uint64_t handle) {
    return channel.CallNumber(kOp_cuEventDestroy_v2, Payload().PutWord(handle)).result;
  };
  const int before = Live("event");
  EXPECT_EQ(destroy(*other_, kOpened), 0u);
  EXPECT_EQ(destroy(*channel_, kOwn), 0u);
  EXPECT_EQ(Live("event"), before);
  EXPECT_EQ(other_->Call(Op::kSynchronizeEvent, Payload().PutWord(kTwice)).result, 0u);
  EXPECT_EQ(destroy(*other_, kTwice), 0u);
  EXPECT_EQ(Live("event"), before - 1);
}

TEST_F(SharingTest, AnOpenedPoolGivesNothingOut) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const auto create = [&](CUmemAllocationHandleType type) {
    properties.handleTypes = type;
    return channel_->CallNumber(kOp_cuMemPoolCreate, Payload().Put(properties)).Get<uint64_t>();
  };
  const uint64_t plain = create(CU_MEM_HANDLE_TYPE_NONE);
  const uint64_t pool = create(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(OfferOf(*channel_, shm::SharedKind::kPool, plain).result, CUDA_ERROR_INVALID_VALUE);
  const auto name = OfferOf(*channel_, shm::SharedKind::kPool, pool).Get<shm::SharedName>();
  const auto opened = Open(*other_, name).Get<shm::OpenedShared>().value;
  ASSERT_NE(opened, 0u);
  EXPECT_EQ(other_->Call(Op::kAllocateAsync, Payload().Put(shm::AllocateAsync{64, opened, 1})).result,
            CUDA_ERROR_INVALID_VALUE);
  const auto address =
      channel_->Call(Op::kAllocateAsync, Payload().Put(shm::AllocateAsync{64, pool, 1})).Get<uint64_t>();
  const auto memory = OfferOf(*channel_, shm::SharedKind::kAllocation, address).Get<shm::SharedName>();
  EXPECT_EQ(Open(*other_, memory, opened + 16).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Open(*other_, memory, opened).Get<shm::OpenedShared>().value, address);
  channel_->Post(Op::kFreeAsync, Payload().Put(shm::FreeAsync{address, 1}));
  EXPECT_EQ(channel_->CallNumber(kOp_cuMemPoolDestroy, Payload().PutWord(pool)).result, 0u);
  EXPECT_EQ(Open(*other_, name).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CopyIn(*other_, address, address, 16), 0u);
  EXPECT_EQ(Live("memory"), 1);
  EXPECT_EQ(other_->Call(Op::kCloseShared, Payload().PutWord(address)).result, 0u);
  EXPECT_EQ(Live("memory"), 0);
}

// Once, for who has made it, until nobody holds it any more.
TEST_F(SharingTest, WhatIsOpenedCountsForItsMaker) {
  const auto first = Create(*channel_, 8 * kPiece).Get<uint64_t>();
  const auto name = OfferOf(*channel_, shm::SharedKind::kPhysical, first).Get<shm::SharedName>();
  ASSERT_NE(Create(*other_, kPiece).Get<uint64_t>(), 0u);
  const auto opened = Open(*other_, name).Get<shm::OpenedShared>().value;
  ASSERT_NE(opened, 0u);
  EXPECT_EQ(channel_->Call(Op::kReleasePhysical, Payload().PutWord(first)).result, 0u);
  EXPECT_EQ(Create(*channel_, kPiece).result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(other_->Call(Op::kReleasePhysical, Payload().PutWord(opened)).result, 0u);
  EXPECT_EQ(Create(*channel_, kPiece).result, 0u);
}

}  // namespace
}  // namespace tally::fakes
