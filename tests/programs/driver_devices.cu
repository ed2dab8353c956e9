// Driver API: initialisation, versions, devices, errors, entry points, profiler, logs and core dump settings.
#include "tests/programs/driver_symbols.h"

namespace {

void BeforeInit() {
  int version = 0, count = 0;
  OK(DRIVER(cuDriverGetVersion)(&version));
  EXPECT(version >= 12000);
  INVALID(DRIVER(cuDriverGetVersion)(nullptr));
  EXPECT_CODE(CUDA_ERROR_NOT_INITIALIZED, DRIVER(cuDeviceGetCount)(&count));
  INVALID(DRIVER(cuInit)(1));
  OK(DRIVER(cuInit)(0));
  OK(DRIVER(cuInit)(0));
}

void Devices() {
  int count = 0;
  OK(DRIVER(cuDeviceGetCount)(&count));
  INVALID(DRIVER(cuDeviceGetCount)(nullptr));
  EXPECT(count >= 1);
  CUdevice device = -1;
  OK(DRIVER(cuDeviceGet)(&device, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_DEVICE, DRIVER(cuDeviceGet)(&device, count));
  EXPECT_CODE(CUDA_ERROR_INVALID_DEVICE, DRIVER(cuDeviceGet)(&device, -1));
  INVALID(DRIVER(cuDeviceGet)(nullptr, 0));

  char name[256] = {};
  OK(DRIVER(cuDeviceGetName)(name, sizeof(name), device));
  EXPECT(name[0] != '\0');
  INVALID(DRIVER(cuDeviceGetName)(nullptr, 10, device));
  EXPECT_CODE(CUDA_ERROR_INVALID_DEVICE, DRIVER(cuDeviceGetName)(name, sizeof(name), count));

  CUuuid old_uuid{}, uuid{};
  OK(DRIVER(cuDeviceGetUuid)(&old_uuid, device));
  OK(DRIVER(cuDeviceGetUuid_v2)(&uuid, device));
  EXPECT(memcmp(&uuid, &old_uuid, sizeof(uuid)) == 0);
  INVALID(DRIVER(cuDeviceGetUuid_v2)(nullptr, device));
  char luid[8];
  unsigned int mask = 0;
  DRIVER(cuDeviceGetLuid)(luid, &mask, device);  // a Windows notion: any answer will do

  size_t bytes = 0;
  OK(DRIVER(cuDeviceTotalMem_v2)(&bytes, device));
  EXPECT(bytes >= size_t{1} << 28);
  INVALID(DRIVER(cuDeviceTotalMem_v2)(nullptr, device));

  int major = 0, minor = -1, value = 0;
  OK(DRIVER(cuDeviceComputeCapability)(&major, &minor, device));
  OK(DRIVER(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  EXPECT(value == major && major >= 8);
  OK(DRIVER(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
  EXPECT(value == minor);
  INVALID(DRIVER(cuDeviceGetAttribute)(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
  INVALID(DRIVER(cuDeviceGetAttribute)(&value, static_cast<CUdevice_attribute>(9999), device));
  CUdevprop properties{};
  OK(DRIVER(cuDeviceGetProperties)(&properties, device));
  OK(DRIVER(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device));
  EXPECT(properties.maxThreadsPerBlock == value && properties.SIMDWidth == 32);
  size_t width = 0;
  OK(DRIVER(cuDeviceGetTexture1DLinearMaxWidth)(&width, CU_AD_FORMAT_FLOAT, 1, device));
  EXPECT(width >= 1 << 20);
  INVALID(DRIVER(cuDeviceGetTexture1DLinearMaxWidth)(nullptr, CU_AD_FORMAT_FLOAT, 1, device));
  OK(DRIVER(cuDeviceGetExecAffinitySupport)(&value, CU_EXEC_AFFINITY_TYPE_SM_COUNT, device));

  char bus[64] = {};
  CUdevice found = -1;
  OK(DRIVER(cuDeviceGetPCIBusId)(bus, sizeof(bus), device));
  INVALID(DRIVER(cuDeviceGetPCIBusId)(nullptr, sizeof(bus), device));
  OK(DRIVER(cuDeviceGetByPCIBusId)(&found, bus));
  EXPECT(found == device);
  FAILS(DRIVER(cuDeviceGetByPCIBusId)(&found, "ffff:ff:1f.0"));
  INVALID(DRIVER(cuDeviceGetByPCIBusId)(nullptr, bus));
}

void Peers() {
  int can = -1;
  OK(DRIVER(cuDeviceCanAccessPeer)(&can, 0, 0));
  EXPECT(can == 0 || can == 1);
  INVALID(DRIVER(cuDeviceCanAccessPeer)(nullptr, 0, 0));
  EXPECT_CODE(CUDA_ERROR_INVALID_DEVICE, DRIVER(cuDeviceCanAccessPeer)(&can, 0, 4096));
  FAILS(DRIVER(cuDeviceGetP2PAttribute)(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
  const CUatomicOperation operations[] = {CU_ATOMIC_OPERATION_INTEGER_ADD};
  unsigned int capabilities[1] = {};
  OK(DRIVER(cuDeviceGetHostAtomicCapabilities)(capabilities, operations, 1, 0));
  INVALID(DRIVER(cuDeviceGetHostAtomicCapabilities)(nullptr, operations, 1, 0));
  FAILS(DRIVER(cuDeviceGetP2PAtomicCapabilities)(nullptr, operations, 1, 0, 0));
  int count = 0;
  OK(DRIVER(cuDeviceGetCount)(&count));
  if (count < 2) return;
  OK(DRIVER(cuDeviceGetP2PAttribute)(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  OK(DRIVER(cuDeviceGetP2PAtomicCapabilities)(capabilities, operations, 1, 0, 1));
}

void Errors() {
  const char* text = nullptr;
  OK(DRIVER(cuGetErrorName)(CUDA_ERROR_NOT_FOUND, &text));
  EXPECT(strcmp(text, "CUDA_ERROR_NOT_FOUND") == 0);
  OK(DRIVER(cuGetErrorString)(CUDA_ERROR_NOT_FOUND, &text));
  EXPECT(text != nullptr && text[0] != '\0');
  INVALID(DRIVER(cuGetErrorName)(static_cast<CUresult>(4711), &text));
  EXPECT(text == nullptr);
  INVALID(DRIVER(cuGetErrorString)(static_cast<CUresult>(4711), &text));
}

void EntryPoints() {
  void* function = nullptr;
  OK(DRIVER(cuGetProcAddress)("cuMemAlloc", &function, 3020, CU_GET_PROC_ADDRESS_DEFAULT));
  EXPECT(function == check::DriverSymbol("cuMemAlloc_v2"));
  CUdriverProcAddressQueryResult status;
  OK(DRIVER(cuGetProcAddress_v2)("cuLaunchKernel", &function, 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                                 &status));
  EXPECT(function == check::DriverSymbol("cuLaunchKernel_ptsz") && status == CU_GET_PROC_ADDRESS_SUCCESS);
  // What is not there is no error: the status says so.
  OK(DRIVER(cuGetProcAddress_v2)("cuNothing", &function, 12000, 0, &status));
  EXPECT(function == nullptr && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  function = &status;
  OK(DRIVER(cuGetProcAddress_v2)("cuNothing", &function, 12000, 0, nullptr));
  EXPECT(function == nullptr);
  OK(DRIVER(cuGetProcAddress_v2)("cuLaunchKernelEx", &function, 11000, 0, &status));
  EXPECT(function == nullptr && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  // One function, an ABI for each version: before, from and after the one in which it changed.
  OK(DRIVER(cuGetProcAddress_v2)("cuCtxGetDevice", &function, 12000, 0, &status));
  EXPECT(function == check::DriverSymbol("cuCtxGetDevice"));
  OK(DRIVER(cuGetProcAddress_v2)("cuStreamGetCaptureInfo", &function, 12000, 0, &status));
  EXPECT(function == check::DriverSymbol("cuStreamGetCaptureInfo_v2"));
  OK(DRIVER(cuGetProcAddress_v2)("cuStreamGetCaptureInfo", &function, 10010, 0, &status));
  EXPECT(function == check::DriverSymbol("cuStreamGetCaptureInfo"));
  int version = 0;
  OK(DRIVER(cuDriverGetVersion)(&version));
  INVALID(DRIVER(cuGetProcAddress_v2)("cuInit", &function, version + 10, 0, &status));
  if (check::IsTally()) {
    INVALID(DRIVER(cuGetProcAddress_v2)(nullptr, &function, 12000, 0, &status));
    INVALID(DRIVER(cuGetProcAddress_v2)("cuInit", nullptr, 12000, 0, &status));
  }
  // TOOLS_TLS, which libraries ask for the current context; and a table that nobody knows.
  const unsigned char kTls[16] = {0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47,
                                  0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc};
  CUuuid id;
  memcpy(&id, kTls, sizeof(id));
  const void* table = nullptr;
  OK(DRIVER(cuGetExportTable)(&table, &id));
  EXPECT(table != nullptr);
  memset(&id, 0x5a, sizeof(id));
  FAILS(DRIVER(cuGetExportTable)(&table, &id));
}

// What a profiler, the driver's log and the core dump do is nobody's business here, but the calls must not hurt.
void Bystanders() {
  DRIVER(cuProfilerInitialize)("", "", CU_OUT_KEY_VALUE_PAIR);
  DRIVER(cuProfilerStart)();
  DRIVER(cuProfilerStop)();
  CUlogIterator at = 0;
  OK(DRIVER(cuLogsCurrent)(&at, 0));
  if (check::IsTally()) INVALID(DRIVER(cuLogsCurrent)(nullptr, 0));
  char text[4096] = "left";
  size_t size = sizeof(text);
  OK(DRIVER(cuLogsDumpToMemory)(&at, text, &size, 0));
  EXPECT(size <= sizeof(text));
  OK(DRIVER(cuLogsDumpToFile)(&at, "/dev/null", 0));
  CUlogsCallbackHandle callback = nullptr;
  OK(DRIVER(cuLogsRegisterCallback)([](void*, CUlogLevel, char*, size_t) {}, nullptr, &callback));
  OK(DRIVER(cuLogsUnregisterCallback)(callback));
  bool is_enabled = true;
  size = sizeof(is_enabled);
  OK(DRIVER(cuCoredumpGetAttributeGlobal)(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_enabled, &size));
  EXPECT(!is_enabled);
  CUcontext context = nullptr;
  OK(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
  OK(DRIVER(cuCtxSetCurrent)(context));
  size = sizeof(is_enabled);
  OK(DRIVER(cuCoredumpGetAttribute)(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_enabled, &size));
  EXPECT(!is_enabled);
  OK(DRIVER(cuDevicePrimaryCtxRelease_v2)(0));
}

void Checks() {
  BeforeInit();
  Devices();
  Peers();
  Errors();
  EntryPoints();
  Bystanders();
}

}  // namespace

int main(int argc, char** argv) { return check::RunDriverProgram(argc, argv, Checks); }
