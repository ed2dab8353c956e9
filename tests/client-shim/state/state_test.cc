// The client's own books: addresses, reservations, visible devices, context storage, handles.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <span>
#include <thread>
#include <vector>

#include "client-shim/entry/runtime_handshake.h"
#include "client-shim/state/address_map.h"
#include "client-shim/state/address_reservations.h"
#include "client-shim/state/context_storage.h"
#include "client-shim/state/handle_names.h"
#include "client-shim/state/kernels.h"
#include "client-shim/state/pools.h"
#include "client-shim/state/slot_table.h"
#include "client-shim/state/visible_devices.h"

namespace tally::client_shim {
namespace {

Allocation At(uint64_t address, uint64_t size) {
  Allocation allocation;
  allocation.address = address;
  allocation.size_bytes = size;
  return allocation;
}

TEST(AddressMap, FindsWhatContainsAnAddress) {
  AddressMap map;
  map.Insert(At(0x1000, 0x100));
  map.Insert(At(0x1100, 0x100));
  EXPECT_FALSE(map.Find(0xfff));
  EXPECT_EQ(map.Find(0x10ff)->address, 0x1000u);
  EXPECT_EQ(map.Find(0x1100)->address, 0x1100u);
  EXPECT_FALSE(map.Find(0x1200));
  EXPECT_TRUE(map.Covers(0x1000, 0x100));
  EXPECT_FALSE(map.Covers(0x1001, 0x100));
  EXPECT_FALSE(map.Covers(0x1001, ~uint64_t{0}));
  EXPECT_NE(map.Find(0x1000)->buffer_id, map.Find(0x1100)->buffer_id);
  EXPECT_TRUE(map.Remove(0x1000));
  EXPECT_FALSE(map.Remove(0x1000));
  EXPECT_FALSE(map.Remove(0x1101));
}

TEST(AddressMap, AdjoiningMappingsAreOnePiece) {
  AddressMap map;
  for (const uint64_t address : {0x1000, 0x1100, 0x1300}) {
    Allocation mapping = At(address, 0x100);
    mapping.kind = MemoryKind::kMapped;
    map.Insert(mapping);
  }
  map.Insert(At(0x1400, 0x100));  // an allocation behind the last
  EXPECT_TRUE(map.Covers(0x1080, 0x180));
  EXPECT_FALSE(map.Covers(0x1080, 0x181));
  EXPECT_FALSE(map.Covers(0x1380, 0x100));
  EXPECT_FALSE(map.Covers(0x1080, ~uint64_t{0}));
  EXPECT_FALSE(map.Find(0x1000)->is_ipc_capable());
  EXPECT_TRUE(map.Find(0x1400)->is_ipc_capable());
}

TEST(AddressReservations, HoldsLargeRangesWhole) {
  AddressReservations reservations;
  constexpr uint64_t kBase = 0x520000000000;
  constexpr uint64_t kSize = uint64_t{160} << 30;
  EXPECT_TRUE(reservations.HoldWhole(kBase, kSize));
  EXPECT_FALSE(reservations.HoldWhole(kBase + kSize / 2, kSize));  // overlaps
  EXPECT_TRUE(reservations.HoldWhole(kBase + kSize, kSize));
  reservations.ReleaseWhole(kBase + kSize, kSize);
  reservations.ReleaseWhole(kBase, kSize);
  EXPECT_TRUE(reservations.HoldWhole(kBase + kSize / 2, kSize));
  reservations.ReleaseWhole(kBase + kSize / 2, kSize);
}

bool IsFree(uint64_t address) {
  void* probe = ::mmap(reinterpret_cast<void*>(address), 4096, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (probe != reinterpret_cast<void*>(address)) return false;
  ::munmap(probe, 4096);
  return true;
}

TEST(AddressReservations, KeepAFewThatWereReleased) {
  AddressReservations reservations;
  constexpr uint64_t kBase = 0x530000000000;
  constexpr uint64_t kGranule = AddressReservations::kGranuleBytes;
  EXPECT_TRUE(reservations.Hold(kBase, kGranule));
  reservations.ReleaseSoon(kBase, kGranule);
  EXPECT_FALSE(IsFree(kBase));
  EXPECT_TRUE(reservations.Hold(kBase, 2 * kGranule)) << "what is kept can be held again, with more";
  // Not many are kept, and none that is held again.
  for (uint64_t i = 2; i < 100; ++i) {
    EXPECT_TRUE(reservations.Hold(kBase + i * kGranule, 100));
    reservations.ReleaseSoon(kBase + i * kGranule, 100);
  }
  EXPECT_FALSE(IsFree(kBase));
  EXPECT_FALSE(IsFree(kBase + kGranule));
  uint64_t num_kept = 0;
  for (uint64_t i = 2; i < 100; ++i) num_kept += IsFree(kBase + i * kGranule) ? 0 : 1;
  EXPECT_LE(num_kept, 32u);
  reservations.ReleaseSoon(kBase, 2 * kGranule);
  EXPECT_TRUE(reservations.HoldWhole(kBase, 128 * kGranule)) << "what is only kept is in nobody's way";
  reservations.ReleaseWhole(kBase, 128 * kGranule);
  EXPECT_TRUE(reservations.Hold(kBase, 1000 * kGranule));
  reservations.ReleaseSoon(kBase, 1000 * kGranule);
  EXPECT_TRUE(IsFree(kBase)) << "large ones go at once";
}

TEST(AddressReservations, ShareGranulesAndRefuseWhatIsMapped) {
  AddressReservations reservations;
  constexpr uint64_t kBase = 0x510000000000;
  constexpr uint64_t kGranule = AddressReservations::kGranuleBytes;
  EXPECT_TRUE(reservations.Hold(kBase, 100));
  EXPECT_TRUE(reservations.Hold(kBase + 512, 2 * kGranule));  // shares the first granule
  EXPECT_FALSE(IsFree(kBase + kGranule));
  reservations.Release(kBase, 100);
  EXPECT_FALSE(IsFree(kBase));
  reservations.Release(kBase + 512, 2 * kGranule);
  EXPECT_TRUE(IsFree(kBase));
  EXPECT_TRUE(IsFree(kBase + kGranule));

  EXPECT_TRUE(reservations.Hold(kBase, 5 * kGranule));
  EXPECT_TRUE(reservations.Hold(kBase + 2 * kGranule, 100));
  reservations.Release(kBase, 5 * kGranule);
  for (const uint64_t granule : {0, 1, 3, 4}) EXPECT_TRUE(IsFree(kBase + granule * kGranule)) << granule;
  EXPECT_FALSE(IsFree(kBase + 2 * kGranule)) << "somebody else holds it";
  reservations.Release(kBase + 2 * kGranule, 100);
  EXPECT_TRUE(IsFree(kBase + 2 * kGranule));

  void* mine = ::mmap(reinterpret_cast<void*>(kBase + kGranule + 4096), 4096, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_NE(mine, MAP_FAILED);
  EXPECT_FALSE(reservations.Hold(kBase, 2 * kGranule));
  EXPECT_TRUE(IsFree(kBase)) << "a failed hold leaves nothing behind";
  ::munmap(mine, 4096);
}

std::vector<shm::DeviceDescription> ThreeDevices() {
  std::vector<shm::DeviceDescription> devices(3);
  for (int i = 0; i < 3; ++i) {
    for (auto& byte : devices[i].uuid) byte = static_cast<uint8_t>(0x10 * (i + 1));
  }
  devices[2].uuid[15] = 0x31;
  return devices;
}

TEST(VisibleDevices, ReadsTheVariableAsTheDriverDoes) {
  const auto devices = ThreeDevices();
  const auto visible = [&](const char* filter) { return VisibleDevices(filter, devices); };
  EXPECT_EQ(visible(nullptr), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(visible(""), std::vector<int>{});
  EXPECT_EQ(visible("2,0"), (std::vector<int>{2, 0}));
  EXPECT_EQ(visible(" 1 "), std::vector<int>{1});
  EXPECT_EQ(visible("1,7,0"), std::vector<int>{1});  // ends at the first that is none
  EXPECT_EQ(visible("-1"), std::vector<int>{});
  EXPECT_EQ(visible("0,0"), std::unexpected(CUDA_ERROR_INVALID_DEVICE));
  EXPECT_EQ(visible("0,GPU-1010"), std::unexpected(CUDA_ERROR_INVALID_DEVICE));
  EXPECT_EQ(visible("0,7,0"), std::vector<int>{0});  // ends before it
  EXPECT_EQ(visible("GPU-2020,0"), (std::vector<int>{1, 0}));
  EXPECT_EQ(visible("GPU-"), std::vector<int>{});  // more than one
  EXPECT_EQ(VisibleDevices("GPU-", std::span(devices).first(2)), std::vector<int>{});
  EXPECT_EQ(VisibleDevices("GPU-", std::span(devices).first(1)), std::vector<int>{0});
  EXPECT_EQ(visible("x"), std::vector<int>{});
}

TEST(ContextStorage, ForgetsWhatWasRemovedAndRunsDestructorsAtTheContextsEnd) {
  ContextStorage storage;
  int key = 0, value = 0;
  void* found = nullptr;
  EXPECT_FALSE(storage.Get(1, &key, &found));
  static int destroyed;
  destroyed = 0;
  storage.Put(1, &key, &value, [](CUcontext, void*, void* stored) {
    EXPECT_NE(stored, nullptr);
    ++destroyed;
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(storage.Get(1, &key, &found));
    EXPECT_EQ(found, &value);
  }
  EXPECT_FALSE(storage.Get(2, &key, &found));
  EXPECT_TRUE(storage.Remove(1, &key));
  EXPECT_FALSE(storage.Get(1, &key, &found)) << "a remembered answer outlived its entry";
  EXPECT_EQ(destroyed, 0);
  storage.Put(1, &key, &value, [](CUcontext, void*, void*) { ++destroyed; });
  storage.EndContext(1, nullptr);
  EXPECT_EQ(destroyed, 1);
  EXPECT_FALSE(storage.Get(1, &key, &found));
}

TEST(Pools, TheDefaultIsCurrentAgainWhereARemovedOneWas) {
  Pools pools;
  pools.Add(5, 0);
  pools.Add(6, 1);
  pools.SetCurrent(0, 5);
  pools.SetCurrent(1, 6);
  pools.Remove(5);
  EXPECT_EQ(pools.Current(0), 0u);
  EXPECT_EQ(pools.Current(1), 6u);
  EXPECT_EQ(pools.DeviceOf(5), -1);
  EXPECT_EQ(pools.DeviceOf(6), 1);
  pools.SetCurrent(1, 0);
  EXPECT_EQ(pools.Current(1), 0u);
}

struct Thing {
  uint64_t handle = 0;
};

TEST(HandleNames, StaleNamesFindNothing) {
  HandleNames names(shm::HandleKind::kEvent);
  SlotTable<Thing> things;
  const uint64_t first = names.Take();
  EXPECT_EQ(shm::HandleKindOf(first), shm::HandleKind::kEvent);
  EXPECT_FALSE(shm::IsServerNamed(first));
  things.Insert(std::make_unique<Thing>(Thing{first}));
  EXPECT_NE(things.Find(first), nullptr);
  EXPECT_NE(things.Remove(first), nullptr);
  names.Return(first);
  const uint64_t second = names.Take();
  EXPECT_EQ(shm::HandleIndexOf(second), shm::HandleIndexOf(first));
  EXPECT_NE(second, first);
  things.Insert(std::make_unique<Thing>(Thing{second}));
  EXPECT_EQ(things.Find(first), nullptr);
  EXPECT_NE(things.Find(second), nullptr);
}

// The first two answers are constants; the third depends on every input. That the digest is the right one is shown by
// ShimCalls.StaticRuntimeAcceptsTheDriver: the runtime itself checks it.
TEST(Kernels, AFunctionIsNeverTheOneOfAnotherContext) {
  const auto function_in = [](uint32_t context) {
    return shm::MakeHandle(shm::HandleKind::kFunction, 0xff, true, shm::kMaxHandleIndex - context);
  };
  Kernel kernel;
  EXPECT_EQ(kernel.FunctionIn(0), 0u);
  EXPECT_EQ(kernel.Twin(), 0u);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (const uint32_t context : {0u, 1u, shm::kMaxContexts - 1}) {
    threads.emplace_back([&, context] {
      while (!stop.load(std::memory_order_relaxed)) kernel.KeepFunction(context, function_in(context));
    });
  }
  uint64_t num_found = 0, num_wrong = 0;
  while (num_found < 200000) {
    for (const uint32_t context : {0u, 1u, shm::kMaxContexts - 1}) {
      const uint64_t function = kernel.FunctionIn(context);
      if (function == 0) continue;
      num_wrong += function != function_in(context) ? 1 : 0;
      ++num_found;
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0u);
  EXPECT_EQ(shm::HandleKindOf(kernel.Twin()), shm::HandleKind::kFunction);
}

TEST(RuntimeHandshake, CoversEveryInput) {
  HandshakeInput::Device device{};
  HandshakeInput input;
  input.driver_version = 13000;
  input.devices = {&device, 1};
  EXPECT_EQ(AnswerHandshake(13000, input).word[0], 0x3341181C03CB675Cu);
  EXPECT_EQ(AnswerHandshake(13001, input).word[0], 0x1841181C03CB675Cu);
  const uint64_t plain = AnswerHandshake(13002, input).word[0];
  const auto changes = [&](auto change) {
    HandshakeInput changed = input;
    change(&changed);
    return AnswerHandshake(13002, changed).word[0] != plain;
  };
  EXPECT_TRUE(changes([](HandshakeInput* i) { i->process_id = 1; }));
  EXPECT_TRUE(changes([](HandshakeInput* i) { i->thread_id = 1; }));
  EXPECT_TRUE(changes([](HandshakeInput* i) { i->unix_seconds = 1; }));
  EXPECT_TRUE(changes([](HandshakeInput* i) { i->check_function_address = 1; }));
  EXPECT_TRUE(changes([](HandshakeInput* i) { i->devices = {}; }));
  device.pci_bus = 1;
  EXPECT_NE(AnswerHandshake(13002, input).word[0], plain);
}

}  // namespace
}  // namespace tally::client_shim
