#include "client-shim/state/missing_code.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>

#include "images/fat_container.h"

namespace tally::client_shim {
namespace {

shm::DeviceDescription Device(const char* name, int major, int minor) {
  shm::DeviceDescription device{};
  std::strncpy(device.name, name, sizeof(device.name) - 1);
  device.attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = major;
  device.attribute[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR] = minor;
  return device;
}

struct Entry {
  images::FatEntryKind kind;
  uint32_t arch;
  uint64_t flags = images::fat_flag::k64Bit;
};

// A container whose entries have no payload.
std::vector<std::byte> Container(std::initializer_list<Entry> entries) {
  constexpr size_t kHeaderBytes = 16;
  constexpr size_t kEntryBytes = 64;
  std::vector<std::byte> bytes(kHeaderBytes + entries.size() * kEntryBytes);
  const auto put = [&bytes](size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  put(0, images::kFatContainerMagic);
  put(4, uint16_t{1});
  put(6, static_cast<uint16_t>(kHeaderBytes));
  put(8, uint64_t{bytes.size() - kHeaderBytes});
  size_t at = kHeaderBytes;
  for (const Entry& entry : entries) {
    put(at, static_cast<uint16_t>(entry.kind));
    put(at + 2, uint16_t{0x0101});
    put(at + 4, static_cast<uint32_t>(kEntryBytes));
    put(at + 28, entry.arch);
    put(at + 40, entry.flags);
    at += kEntryBytes;
  }
  return bytes;
}

constexpr auto kPtx = images::FatEntryKind::kPtx;
constexpr auto kCubin = images::FatEntryKind::kCubin;

TEST(MissingCode, SoftwareGpuRunsNoMachineCode) {
  const auto container = Container({{kCubin, 90}, {kCubin, 80}, {kCubin, 100, images::fat_flag::kArchSpecific}});
  EXPECT_EQ(MissingCodeSentence(Device("Tally software GPU (sm_90)", 9, 0), {container}),
            "the software GPU runs PTX (up to compute_90), and this program or a library of it has only machine code "
            "(sm_80, sm_90, sm_100a): compile it with -gencode arch=compute_90,code=compute_90, or use a GPU");
}

TEST(MissingCode, NamesPtxThatIsTooNewAndAllParts) {
  const auto first = Container({{kPtx, 120}});
  const auto second = Container({{kCubin, 100, images::fat_flag::kFamilySpecific}});
  EXPECT_EQ(
      MissingCodeSentence(Device("Tally software GPU (sm_90)", 9, 0), {first, second}),
      "the software GPU runs PTX (up to compute_90), and this program or a library of it has only machine code "
      "(sm_100f) and PTX for compute_120: compile it with -gencode arch=compute_90,code=compute_90, or use a GPU");
}

TEST(MissingCode, GpuThatIsTooOld) {
  const auto container = Container({{kPtx, 90}});
  EXPECT_EQ(
      MissingCodeSentence(Device("Tesla T4", 7, 5), {container}),
      "'Tesla T4' is a GPU for sm_75, and this program or a library of it has only PTX for compute_90: compile it "
      "with -gencode arch=compute_75,code=compute_75");
}

TEST(MissingCode, BytesThatAreNothing) {
  const std::vector<std::byte> cut(20);
  EXPECT_NE(MissingCodeSentence(Device("", 9, 0), {cut, {}}).find("has no code at all"), std::string::npos);
}

}  // namespace
}  // namespace tally::client_shim
