// What the client knows about memory: whose addresses are whose, what was advised about them, what the process has
// mapped, and the exchange of its pages.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "base/mapped_region.h"
#include "client-shim/state/address_map.h"
#include "client-shim/state/managed_advice.h"
#include "client-shim/state/own_mappings.h"
#include "client-shim/state/page_swap.h"
#include "client-shim/state/registered_memory.h"

namespace {

// The fixed mapping that fails as if the system had no more; none if it is negative.
int g_fixed_mappings_until_failure = -1;

}  // namespace

extern "C" {
void* __real_mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset);
// Linked in place of mmap (CMakeLists.txt).
void* __wrap_mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  if ((flags & MAP_FIXED) != 0 && g_fixed_mappings_until_failure >= 0 && g_fixed_mappings_until_failure-- == 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return __real_mmap(address, size, protection, flags, fd, offset);
}
}

namespace tally::client_shim {
namespace {

// A slow map that cannot be wrong: one entry per byte of a small address space.
class ByteModel {
 public:
  static constexpr uint64_t kBytes = 4096;
  std::array<int, kBytes> owner{};  // 0: nobody

  bool IsFree(uint64_t begin, uint64_t size) const {
    for (uint64_t at = begin; at < begin + size; ++at) {
      if (owner[at] != 0) return false;
    }
    return true;
  }
  void Set(uint64_t begin, uint64_t size, int who) {
    for (uint64_t at = begin; at < begin + size; ++at) owner[at] = who;
  }
};

TEST(AddressMap, AgreesWithAMapOfSingleBytes) {
  std::mt19937 random(20261121);
  AddressMap map;
  ByteModel model;
  std::map<int, Allocation> alive;
  int next = 1;
  const auto pick = [&](uint64_t below) { return std::uniform_int_distribution<uint64_t>(0, below - 1)(random); };
  for (int step = 0; step < 20000; ++step) {
    const uint64_t at = pick(ByteModel::kBytes);
    switch (pick(6)) {
      case 0:
      case 1: {
        const uint64_t size = 1 + pick(std::min<uint64_t>(200, ByteModel::kBytes - at));
        if (!model.IsFree(at, size)) break;
        Allocation allocation;
        allocation.address = at;
        allocation.size_bytes = size;
        allocation.context = static_cast<uint32_t>(pick(4));
        allocation.owner = 1 + pick(4);
        map.Insert(allocation);
        model.Set(at, size, next);
        alive[next++] = allocation;
        break;
      }
      case 2: {
        const int who = model.owner[at];
        const bool is_start = who != 0 && alive[who].address == at;
        EXPECT_EQ(map.Remove(at).has_value(), is_start);
        if (!is_start) break;
        model.Set(at, alive[who].size_bytes, 0);
        alive.erase(who);
        break;
      }
      case 3: {
        const auto found = map.Find(at);
        const int who = model.owner[at];
        ASSERT_EQ(found.has_value(), who != 0);
        if (found) {
          ASSERT_EQ(found->address, alive[who].address);
        }
        break;
      }
      case 4: {
        const uint64_t size = 1 + pick(std::min<uint64_t>(100, ByteModel::kBytes - at));
        int first = 0;
        bool is_one = true;
        for (uint64_t byte = at; byte < at + size; ++byte) {
          if (first == 0) first = model.owner[byte];
          is_one = is_one && model.owner[byte] == model.owner[at];
        }
        ASSERT_EQ(map.Covers(at, size), model.owner[at] != 0 && is_one);
        const auto overlap = map.FindOverlap(at, size);
        ASSERT_EQ(overlap.has_value(), first != 0);
        if (overlap) {
          ASSERT_EQ(overlap->address, alive[first].address);
        }
        break;
      }
      case 5: {
        if (pick(40) != 0) break;
        const bool by_context = pick(2) == 0;
        const uint64_t which = by_context ? pick(4) : 1 + pick(4);
        const size_t removed =
            (by_context ? map.RemoveContext(static_cast<uint32_t>(which)) : map.RemoveOwner(which)).size();
        size_t expected = 0;
        for (auto it = alive.begin(); it != alive.end();) {
          if ((by_context ? it->second.context : it->second.owner) != which) {
            ++it;
            continue;
          }
          model.Set(it->second.address, it->second.size_bytes, 0);
          it = alive.erase(it);
          ++expected;
        }
        ASSERT_EQ(removed, expected);
        break;
      }
    }
  }
  EXPECT_GT(next, 500);
}

TEST(ManagedAdvice, AgreesWithAMapOfSingleBytes) {
  constexpr uint64_t kBytes = 300;
  std::mt19937 random(7);
  ManagedAdvice advice;
  std::array<Advice, kBytes> model;
  const auto pick = [&](uint64_t below) { return std::uniform_int_distribution<uint64_t>(0, below - 1)(random); };
  for (int step = 0; step < 2000; ++step) {
    const uint64_t begin = pick(kBytes), size = 1 + pick(std::min<uint64_t>(60, kBytes - begin));
    const int what = static_cast<int>(pick(6));
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(pick(2))};
    const auto change = [&](Advice* all) {
      if (what == 0) all->is_read_mostly = true;
      if (what == 1) all->is_read_mostly = false;
      if (what == 2) all->preferred = location;
      if (what == 3) all->preferred = Advice::kNowhere;
      if (what == 4) all->accessed_by.insert(location.id);
    };
    if (what == 5) {
      advice.Forget(begin, size);
      for (uint64_t at = begin; at < begin + size; ++at) model[at] = Advice{};
    } else {
      advice.Change(begin, size, change);
      for (uint64_t at = begin; at < begin + size; ++at) change(&model[at]);
    }
    for (uint64_t at = 0; at < kBytes; ++at) {
      int visits = 0;
      advice.Visit(at, 1, [&](const Advice& here) {
        ++visits;
        ASSERT_TRUE(here == model[at]) << "byte " << at << " after step " << step;
      });
      ASSERT_EQ(visits, 1);
    }
  }
  advice.Forget(0, kBytes);
  EXPECT_EQ(advice.num_ranges(), 0u);
}

TEST(ManagedAdvice, JoinsWhatSaysTheSame) {
  ManagedAdvice advice;
  const auto set = [](Advice* all) { all->is_read_mostly = true; };
  advice.Change(0x1000, 0x1000, set);
  advice.Change(0x2000, 0x1000, set);
  EXPECT_EQ(advice.num_ranges(), 1u);
  advice.Change(0x1800, 0x1000, [](Advice* all) { all->is_read_mostly = false; });
  EXPECT_EQ(advice.num_ranges(), 2u);
}

constexpr size_t kPages = 9;
constexpr size_t kSize = kPages * kPageBytes;

char* MapPrivate() {
  void* mapped = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped != MAP_FAILED ? static_cast<char*>(mapped) : nullptr;
}
uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

TEST(FindBacking, TellsOwnPagesFromSharedFilesAndHoles) {
  char* pages = MapPrivate();
  ASSERT_NE(pages, nullptr);
  EXPECT_EQ(FindBacking(Address(pages), Address(pages) + kSize).kind, Backing::kOwnPages);
  ::mprotect(pages + kPageBytes, kPageBytes, PROT_READ);
  EXPECT_EQ(FindBacking(Address(pages), Address(pages) + kSize).kind, Backing::kNothing);
  ::munmap(pages + kPageBytes, kPageBytes);
  EXPECT_EQ(FindBacking(Address(pages), Address(pages) + kSize).kind, Backing::kNothing);
  EXPECT_EQ(FindBacking(Address(pages), Address(pages) + kPageBytes).kind, Backing::kOwnPages);
  ::munmap(pages, kSize);

  char name[] = "/dev/shm/tally-test-XXXXXX";
  UniqueFd file(::mkstemp(name));
  ASSERT_TRUE(file.valid());
  ASSERT_EQ(::ftruncate(file.get(), kSize), 0);
  void* shared = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(shared, MAP_FAILED);
  const uint64_t second_page = Address(shared) + kPageBytes;
  RangeBacking named = FindBacking(second_page, Address(shared) + kSize);
  EXPECT_EQ(named.kind, Backing::kFile);
  EXPECT_EQ(named.file_offset_bytes, kPageBytes);
  EXPECT_TRUE(named.file.valid());
  ::unlink(name);
  EXPECT_TRUE(FindBacking(second_page, second_page + kPageBytes).file.valid()) << "by the open descriptor";
  // Another file under the same name is not taken for it.
  const UniqueFd other(::open(name, O_RDWR | O_CREAT, 0600));
  struct stat mine {
  }, found{};
  RangeBacking again = FindBacking(second_page, second_page + kPageBytes);
  ASSERT_TRUE(again.file.valid());
  ::fstat(file.get(), &mine);
  ::fstat(again.file.get(), &found);
  EXPECT_EQ(mine.st_ino, found.st_ino);
  ::unlink(name);
  ::munmap(shared, kSize);
}

TEST(PageSwap, KeepsBytesAndWhatOthersWriteMeanwhile) {
  char* pages = MapPrivate();
  ASSERT_NE(pages, nullptr);
  for (size_t i = 0; i < kSize; ++i) pages[i] = static_cast<char>(i * 7);
  // A counter on each page, each with a thread of its own that misses no number.
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  std::array<std::atomic<uint32_t>, 3> written{};
  const size_t page_of[3] = {0, 4, kPages - 1};
  for (int i = 0; i < 3; ++i) {
    auto* word = reinterpret_cast<volatile uint32_t*>(pages + page_of[i] * kPageBytes);
    *word = 0;
    writers.emplace_back([&, i, word] {
      uint32_t count = 0;
      while (!stop) {
        *word = *word + 1;
        ++count;
      }
      written[i] = count;
    });
  }
  for (int round = 0; round < 50; ++round) {
    auto memory = CreateSealedMemfd("tally-test", kSize);
    ASSERT_TRUE(memory);
    ASSERT_TRUE(SwapForShared(Address(pages), kSize, memory->get()));
    ASSERT_TRUE(SwapForPrivate(Address(pages), kSize));
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  for (int i = 0; i < 3; ++i) {
    uint32_t found = 0;
    std::memcpy(&found, pages + page_of[i] * kPageBytes, 4);
    EXPECT_EQ(found, written[i]) << "page " << page_of[i];
  }
  for (size_t i = 0; i < kSize; ++i) {
    if (i % kPageBytes >= 4) {
      ASSERT_EQ(pages[i], static_cast<char>(i * 7)) << i;
    }
  }
  ::munmap(pages, kSize);
}

// The program knows only that its registration failed: its memory must be its own again, with all that it wrote.
TEST(PageSwap, ThatFailsHalfWayLeavesEverythingAsItWas) {
  for (const int num_replaced : {0, 1, 2}) {  // the first page and the last go by themselves
    char* pages = MapPrivate();
    ASSERT_NE(pages, nullptr);
    for (size_t i = 0; i < kSize; ++i) pages[i] = static_cast<char>(i * 7);
    auto memory = CreateSealedMemfd("tally-test", kSize);
    ASSERT_TRUE(memory);
    g_fixed_mappings_until_failure = num_replaced;
    EXPECT_FALSE(SwapForShared(Address(pages), kSize, memory->get()));
    EXPECT_EQ(g_fixed_mappings_until_failure, -1) << "it never came so far";
    for (const Mapping& mapping : MappingsWithin(Address(pages), Address(pages) + kSize))
      EXPECT_FALSE(mapping.is_shared) << num_replaced;
    EXPECT_EQ(FindBacking(Address(pages), Address(pages) + kSize).kind, Backing::kOwnPages);
    for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(pages[i], static_cast<char>(i * 7)) << i;
    ::munmap(pages, kSize);
  }
}

TEST(RegisteredMemory, IsTheFilesPagesUntilItIsGivenBack) {
  char* pages = MapPrivate();
  ASSERT_NE(pages, nullptr);
  std::strcpy(pages + 100, "before");
  auto memory = CreateSealedMemfd("tally-test", kSize);
  ASSERT_TRUE(memory);
  auto other = MappedRegion::Map(memory->get(), kSize);
  ASSERT_TRUE(other);
  auto* view = reinterpret_cast<char*>(other->data());
  RegisteredMemory registered;
  ASSERT_TRUE(registered.Share(Address(pages), kSize, memory->get()));
  EXPECT_STREQ(view + 100, "before");
  std::strcpy(view + 100, "shared");
  EXPECT_STREQ(pages + 100, "shared");
  registered.GiveBack(Address(pages));
  std::strcpy(view + 100, "no longer");
  EXPECT_STREQ(pages + 100, "shared");
  registered.GiveBack(Address(pages));  // nothing of ours is there any more
  EXPECT_STREQ(pages + 100, "shared");
  ::munmap(pages, kSize);
}

TEST(RegisteredMemory, LeavesAloneWhatTheProgramMappedThereSince) {
  char* pages = MapPrivate();
  ASSERT_NE(pages, nullptr);
  auto memory = CreateSealedMemfd("tally-test", kSize);
  ASSERT_TRUE(memory);
  RegisteredMemory registered;
  ASSERT_TRUE(registered.Share(Address(pages), kSize, memory->get()));
  auto own = CreateSealedMemfd("tally-test-other", kPageBytes);
  ASSERT_TRUE(own);
  ::munmap(pages, kPageBytes);
  ASSERT_NE(::mmap(pages + kPageBytes, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, own->get(), 0),
            MAP_FAILED);
  registered.GiveBack(Address(pages));
  const auto left = MappingsWithin(Address(pages), Address(pages) + kPageBytes);
  EXPECT_TRUE(left.empty() || left.front().begin > Address(pages));
  const auto others = MappingsWithin(Address(pages) + kPageBytes, Address(pages) + 2 * kPageBytes);
  ASSERT_EQ(others.size(), 1u);
  EXPECT_TRUE(others.front().is_shared);
  const auto rest = MappingsWithin(Address(pages) + 2 * kPageBytes, Address(pages) + kSize);
  for (const Mapping& mapping : rest) EXPECT_FALSE(mapping.is_shared);
  ::munmap(pages, kSize);
}

TEST(RegisteredMemory, IsCopiedForTheChildOfAFork) {
  char* pages = MapPrivate();
  ASSERT_NE(pages, nullptr);
  auto memory = CreateSealedMemfd("tally-test", kSize);
  ASSERT_TRUE(memory);
  RegisteredMemory registered;
  ASSERT_TRUE(registered.Share(Address(pages), kSize, memory->get()));
  std::strcpy(pages, "at the fork");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  registered.BeforeFork();
  const pid_t child = ::fork();
  if (child == 0) {
    registered.AfterForkInChild();
    char go = 0;
    if (::read(ends[0], &go, 1) != 1) ::_exit(3);
    const bool is_copy = std::strcmp(pages, "at the fork") == 0;
    std::strcpy(pages, "child's own");
    ::_exit(is_copy ? 0 : 1);
  }
  registered.AfterForkInParent();
  std::strcpy(pages, "parent's own");
  ASSERT_EQ(::write(ends[1], "", 1), 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(pages, "parent's own");
  const std::lock_guard is_unlocked(registered.mutex());
  ::munmap(pages, kSize);
}

}  // namespace
}  // namespace tally::client_shim
