#include <cstring>
#include <string>

#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {
namespace {

class DeviceTest : public DriverTest {};

TEST_F(DeviceTest, DescribesItself) {
  int version = 0, count = 0;
  EXPECT_OK(cuDriverGetVersion(&version));
  EXPECT_EQ(13000, version);
  EXPECT_OK(cuDeviceGetCount(&count));
  EXPECT_EQ(1, count);
  char name[64];
  EXPECT_OK(cuDeviceGetName(name, sizeof name, 0));
  EXPECT_STREQ("Tally software GPU (sm_90)", name);
  size_t total = 0;
  EXPECT_OK(cuDeviceTotalMem_v2(&total, 0));
  EXPECT_EQ(size_t{4} << 30, total);
  char bus[16];
  EXPECT_OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
  CUdevice again = -1;
  EXPECT_OK(cuDeviceGetByPCIBusId(&again, bus));
  EXPECT_EQ(0, again);
}

TEST_F(DeviceTest, ShortNameBufferIsTerminated) {
  char name[6];
  EXPECT_OK(cuDeviceGetName(name, sizeof name, 0));
  EXPECT_STREQ("Tally", name);
}

TEST_F(DeviceTest, EveryAttributeIsAnswered) {
  for (int attribute = 1; attribute < CU_DEVICE_ATTRIBUTE_MAX; ++attribute) {
    int value = -7;
    EXPECT_OK(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), 0)) << attribute;
    EXPECT_NE(-7, value) << attribute;
  }
  int value = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX), 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, -1));
}

TEST_F(DeviceTest, EveryErrorHasNameAndSentence) {
  for (int code = 0; code < 1000; ++code) {
    const char* name = nullptr;
    const char* sentence = nullptr;
    const CUresult got = cuGetErrorName(static_cast<CUresult>(code), &name);
    EXPECT_EQ(got, cuGetErrorString(static_cast<CUresult>(code), &sentence));
    EXPECT_EQ(got == CUDA_SUCCESS, name != nullptr && sentence != nullptr) << code;
  }
  const char* name = nullptr;
  EXPECT_OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &name));
  EXPECT_STREQ("CUDA_ERROR_ILLEGAL_ADDRESS", name);
  EXPECT_OK(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &name));
  EXPECT_STREQ("an illegal memory access was encountered", name);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(static_cast<CUresult>(555), &name));
}

TEST_F(DeviceTest, MissingOutPointersAreRefused) {
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDriverGetVersion(nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDeviceGetCount(nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDeviceGet(nullptr, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDeviceGetName(nullptr, 4, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDeviceGetUuid_v2(nullptr, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDeviceTotalMem_v2(nullptr, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(CUDA_SUCCESS, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemGetInfo_v2(nullptr, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(nullptr, 4));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(nullptr, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuEventCreate(nullptr, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(nullptr, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(nullptr, kTestPtx));
}

}  // namespace
}  // namespace tally::sim_driver
