#include "tests/server/executor/mirror/mirror_world.h"

#include <unistd.h>

#include <cstring>
#include <span>
#include <utility>

#include "base/mapped_region.h"
#include "server/executor/driver/address_arena.h"
#include "server/executor/driver/driver_libraries.h"

namespace tally::server {
namespace {

using shm::MirrorCommandKind;

std::span<const std::byte> BytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }

UniqueFd FileOf(const std::string& text) {
  auto file = CreateSealedMemfd("image", text.size());
  EXPECT_TRUE(file.has_value());
  EXPECT_EQ(::pwrite(file->get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return std::move(*file);
}

AddressArena& HomeArena() {
  static AddressArena& arena = *new AddressArena(HomeDriver(), AddressArena::kOfHome);
  return arena;
}

}  // namespace

DriverLibraries SimLibraries() {
  return {.choice = control::DriverChoice::kSim, .cuda_path = {}, .sim_path = TALLY_SIM_DRIVER_PATH};
}

const DriverTable& HomeDriver() {
  static const DriverTable& table = [] {
    auto loaded = LoadDriver(SimLibraries());
    EXPECT_TRUE(loaded.has_value()) << loaded.error().ToString();
    return std::ref(*new DriverTable(loaded->table));
  }();
  return table;
}

void UseHomeContext() {
  static CUcontext context = nullptr;
  if (context == nullptr) {
    EXPECT_EQ(HomeDriver().cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  }
  EXPECT_EQ(HomeDriver().cuCtxSetCurrent(context), CUDA_SUCCESS);
}

HomeAllocation::HomeAllocation(uint32_t number, uint64_t num_bytes) : number_(number), num_bytes_(num_bytes) {
  const DriverTable& driver = HomeDriver();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  address_ = HomeArena().Take(num_bytes).value_or(0);
  EXPECT_NE(address_, 0u);
  EXPECT_EQ(driver.cuMemCreate(&memory_, num_bytes, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemMap(address_, num_bytes, 0, memory_, 0), CUDA_SUCCESS);
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(driver.cuMemSetAccess(address_, num_bytes, &access, 1), CUDA_SUCCESS);
  int fd = -1;
  EXPECT_EQ(driver.cuMemExportToShareableHandle(&fd, memory_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  fd_ = UniqueFd(fd);
}

HomeAllocation::~HomeAllocation() {
  const DriverTable& driver = HomeDriver();
  EXPECT_EQ(driver.cuMemUnmap(address_, num_bytes_), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemRelease(memory_), CUDA_SUCCESS);
  EXPECT_TRUE(HomeArena().Give(address_, num_bytes_));
}

void HomeAllocation::Write(const std::vector<uint32_t>& words) {
  EXPECT_EQ(HomeDriver().cuMemcpyHtoD_v2(address_, words.data(), words.size() * sizeof(uint32_t)), CUDA_SUCCESS);
}

std::vector<uint32_t> HomeAllocation::Read() const {
  std::vector<uint32_t> words(num_bytes_ / sizeof(uint32_t));
  EXPECT_EQ(HomeDriver().cuMemcpyDtoH_v2(words.data(), address_, num_bytes_), CUDA_SUCCESS);
  return words;
}

shm::MirrorCommand MirrorWorld::Command(MirrorCommandKind kind, uint32_t allocation, uint64_t offset,
                                        uint64_t num_bytes) {
  shm::MirrorCommand command{};
  command.kind = kind;
  command.allocation = allocation;
  command.offset = offset;
  command.num_bytes = num_bytes;
  return command;
}

MirrorWorld::MirrorWorld(int num_gpus, const std::string& image, const std::vector<std::string>& kernels) {
  UseHomeContext();
  completions_ = std::make_unique<CompletionSource>(HomeDriver());
  CUmodule module = nullptr;
  EXPECT_EQ(HomeDriver().cuModuleLoadDataEx(&module, image.c_str(), 0, nullptr, nullptr), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kernels.size(); ++i) {
    EXPECT_EQ(HomeDriver().cuModuleGetFunction(&names_.functions[i], module, kernels[i].c_str()), CUDA_SUCCESS);
  }
  owned_queues_.push_back(std::make_unique<HomeQueue>(HomeDriver(), *completions_, names_));
  for (int gpu = 1; gpu < num_gpus; ++gpu) {
    auto mirror = Mirror::Start({.libraries = SimLibraries(), .device = gpu});
    if (!mirror) {
      ADD_FAILURE() << mirror.error().ToString();
      return;
    }
    LoadCode(**mirror, image, kernels);
    mirrors_.push_back(std::move(*mirror));
    owned_queues_.push_back(std::make_unique<MirrorQueue>(*mirrors_.back()));
  }
  for (const auto& queue : owned_queues_) queues_.push_back(queue.get());
}

void MirrorWorld::LoadCode(Mirror& mirror, const std::string& image, const std::vector<std::string>& kernels) {
  const UniqueFd file = FileOf(image);
  EXPECT_EQ(mirror.Do(Command(MirrorCommandKind::kLoadImage, 0, 0, image.size()), {}, file.get()), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kernels.size(); ++i) {
    shm::MirrorCommand command = Command(MirrorCommandKind::kFunction, 0, 0, kernels[i].size());
    command.function = i;
    EXPECT_EQ(mirror.Do(command, BytesOf(kernels[i])), CUDA_SUCCESS);
  }
}

HomeAllocation& MirrorWorld::Allocate(uint64_t num_bytes) {
  const auto number = static_cast<uint32_t>(allocations_.size());
  allocations_.push_back(std::make_unique<HomeAllocation>(number, num_bytes));
  const MirroredAllocation place = allocations_.back()->place();
  names_.allocations[number] = place.address;
  shm::MirrorCommand reserve = Command(MirrorCommandKind::kReserve, number, 0, num_bytes);
  reserve.address = place.address;
  for (const auto& mirror : mirrors_) EXPECT_EQ(mirror->Do(reserve), CUDA_SUCCESS);
  return *allocations_.back();
}

void MirrorWorld::ShareHome() {
  for (const auto& allocation : allocations_) {
    const MirroredAllocation place = allocation->place();
    for (const auto& mirror : mirrors_) {
      EXPECT_EQ(
          mirror->Do(Command(MirrorCommandKind::kMapShared, place.number, 0, place.num_bytes), {}, allocation->fd()),
          CUDA_SUCCESS);
    }
  }
}

void MirrorWorld::GiveOwn() {
  for (const auto& allocation : allocations_) GiveOwn(*allocation);
}

// By granules, as where only some of an allocation is needed; home's in one piece.
void MirrorWorld::GiveOwn(const HomeAllocation& allocation) {
  const MirroredAllocation place = allocation.place();
  for (uint32_t gpu = 0; gpu <= mirrors_.size(); ++gpu) {
    const uint64_t step = gpu == 0 ? place.num_bytes : kGranule;
    for (uint64_t offset = 0; offset < place.num_bytes; offset += step) {
      UniqueFd made;
      if (gpu != 0) {
        const auto position =
            mirror(static_cast<int>(gpu)).Post(Command(MirrorCommandKind::kMapOwn, place.number, offset, step));
        ASSERT_TRUE(position.has_value());
        ASSERT_EQ(mirror(static_cast<int>(gpu)).Wait(*position), CUDA_SUCCESS);
        auto parcel = mirror(static_cast<int>(gpu)).TakeParcel(*position);
        ASSERT_TRUE(parcel.has_value()) << parcel.error().ToString();
        made = std::move(*parcel);
      }
      shm::MirrorCommand command = Command(MirrorCommandKind::kMapOther, place.number, offset, step);
      command.gpu = gpu;
      for (uint32_t other = 1; other <= mirrors_.size(); ++other) {
        if (other == gpu) continue;
        EXPECT_EQ(mirror(static_cast<int>(other)).Do(command, {}, gpu == 0 ? allocation.fd() : made.get()),
                  CUDA_SUCCESS);
      }
    }
  }
}

std::vector<MirroredAllocation> MirrorWorld::places() const {
  std::vector<MirroredAllocation> places;
  for (const auto& allocation : allocations_) places.push_back(allocation->place());
  return places;
}

uint64_t MirrorWorld::copied_bytes() const {
  uint64_t num_bytes = 0;
  for (const auto& mirror : mirrors_) num_bytes += mirror->fetched_bytes() + mirror->written_back_bytes();
  return num_bytes;
}

}  // namespace tally::server
