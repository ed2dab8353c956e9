// The canary against a driver that assembles with the toolkit's ptxas and executes nothing but gates.
#include "server/executor/issue/gate_canary.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "proto/device/gate_abi.h"
#include "tests/server/executor/issue/assembled.h"

namespace tally::server {
namespace {

using device::GateParameters;
using device::GateRecord;

enum class Fault { kNone, kIgnoresGates, kLosesABlock, kRunsAllAgain, kDoesNotLoad };
Fault fault = Fault::kNone;
std::vector<std::byte> linked;
std::vector<std::byte> memory;

CUresult LinkCreate(unsigned int, CUjit_option*, void**, CUlinkState* link) {
  *link = reinterpret_cast<CUlinkState>(0x10);
  return CUDA_SUCCESS;
}
CUresult LinkAddData(CUlinkState, CUjitInputType, void* text, size_t, const char*, unsigned int, CUjit_option*,
                     void**) {
  linked = Assembled(static_cast<const char*>(text));
  return linked.empty() ? CUDA_ERROR_INVALID_PTX : CUDA_SUCCESS;
}
CUresult LinkComplete(CUlinkState, void** code, size_t* size_bytes) {
  *code = linked.data();
  *size_bytes = linked.size();
  return CUDA_SUCCESS;
}
CUresult LinkDestroy(CUlinkState) { return CUDA_SUCCESS; }
CUresult ModuleLoadData(CUmodule* module, const void*) {
  *module = reinterpret_cast<CUmodule>(0x20);
  return fault == Fault::kDoesNotLoad ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}
CUresult ModuleGetFunction(CUfunction* function, CUmodule, const char*) {
  *function = reinterpret_cast<CUfunction>(0x30);
  return CUDA_SUCCESS;
}
CUresult ModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult StreamCreate(CUstream* stream, unsigned int, int) {
  *stream = reinterpret_cast<CUstream>(0x40);
  return CUDA_SUCCESS;
}
CUresult OnStream(CUstream) { return CUDA_SUCCESS; }
CUresult MemAlloc(CUdeviceptr* address, size_t size_bytes) {
  memory.assign(size_bytes + device::kGateRecordAlignment, std::byte{0xA5});
  const auto begin = reinterpret_cast<CUdeviceptr>(memory.data());
  *address = (begin + device::kGateRecordAlignment - 1) & ~(device::kGateRecordAlignment - 1);
  return CUDA_SUCCESS;
}
CUresult MemFree(CUdeviceptr) { return CUDA_SUCCESS; }
CUresult Fill(CUdeviceptr address, unsigned int, size_t words, CUstream) {
  std::memset(reinterpret_cast<void*>(address), 0, words * 4);
  return CUDA_SUCCESS;
}
CUresult Up(CUdeviceptr to, const void* from, size_t size_bytes, CUstream) {
  std::memcpy(reinterpret_cast<void*>(to), from, size_bytes);
  return CUDA_SUCCESS;
}
CUresult Down(void* to, CUdeviceptr from, size_t size_bytes, CUstream) {
  std::memcpy(to, reinterpret_cast<const void*>(from), size_bytes);
  return CUDA_SUCCESS;
}

// What a gate does, as proto/device/gate_abi.h says.
bool MayRun(const GateParameters& gate, uint32_t block) {
  if (gate.record == 0 || fault == Fault::kIgnoresGates) return true;
  auto* record = reinterpret_cast<GateRecord*>(gate.record & ~(device::kGateRecordAlignment - 1));
  const uint32_t number = gate.base + block;
  if (number < record->start && fault != Fault::kRunsAllAgain) return false;
  if (fault == Fault::kLosesABlock && record->epoch != 0 && block == 77) return false;
  if (record->stopped == record->epoch) record->watermark = std::max(record->watermark, number + gate.chunk);
  return number < record->watermark;
}

CUresult Launch(CUfunction, unsigned int blocks, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                unsigned int, CUstream, void**, void** extra) {
  const auto* parameters = static_cast<const std::byte*>(extra[1]);
  const size_t size_bytes = *static_cast<const size_t*>(extra[3]);
  EXPECT_EQ(size_bytes, device::GateOffset(8) + sizeof(GateParameters));
  uint32_t* counts = nullptr;
  GateParameters gate{};
  std::memcpy(&counts, parameters, sizeof(counts));
  std::memcpy(&gate, parameters + device::GateOffset(8), sizeof(gate));
  for (uint32_t block = 0; block < blocks; ++block) counts[block] += MayRun(gate, block) ? 1 : 0;
  return CUDA_SUCCESS;
}

Status TestWith(Fault wanted) {
  fault = wanted;
  DriverTable driver{};
  driver.cuLinkCreate_v2 = &LinkCreate;
  driver.cuLinkAddData_v2 = &LinkAddData;
  driver.cuLinkComplete = &LinkComplete;
  driver.cuLinkDestroy = &LinkDestroy;
  driver.cuModuleLoadData = &ModuleLoadData;
  driver.cuModuleGetFunction = &ModuleGetFunction;
  driver.cuModuleUnload = &ModuleUnload;
  driver.cuStreamCreateWithPriority = &StreamCreate;
  driver.cuStreamDestroy_v2 = &OnStream;
  driver.cuStreamSynchronize = &OnStream;
  driver.cuMemAlloc_v2 = &MemAlloc;
  driver.cuMemFree_v2 = &MemFree;
  driver.cuMemsetD32Async = &Fill;
  driver.cuMemcpyHtoDAsync_v2 = &Up;
  driver.cuMemcpyDtoHAsync_v2 = &Down;
  driver.cuLaunchKernel = &Launch;
  return TestGates(driver);
}

TEST(GateCanaryTest, SingsWhereGatesWork) {
  const Status status = TestWith(Fault::kNone);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(GateCanaryTest, SeesADriverThatIgnoresGates) {
  const Status status = TestWith(Fault::kIgnoresGates);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "a kernel that was stopped before it began: block 0 has run 2 times by now, not 1");
}

TEST(GateCanaryTest, SeesALostBlock) {
  const Status status = TestWith(Fault::kLosesABlock);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "a kernel that was resumed: block 77 has run 1 times by now, not 2");
}

TEST(GateCanaryTest, SeesBlocksThatRunTwice) {
  const Status status = TestWith(Fault::kRunsAllAgain);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "a kernel that was resumed half-way: block 0 has run 4 times by now, not 3");
}

TEST(GateCanaryTest, ADriverThatDoesNotLoadItIsNoFailure) {
  EXPECT_EQ(TestWith(Fault::kDoesNotLoad).code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tally::server
