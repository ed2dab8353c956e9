#include "tests/server/executor/fakes/fake_driver.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

namespace tally::fakes {
namespace {

FakeDriver* fake = nullptr;
CUcontext const kContext = reinterpret_cast<CUcontext>(0x1000);

template <typename Element>
CUresult FillWith(CUdeviceptr at, size_t pitch, Element value, size_t width, size_t height, CUstream stream) {
  fake->Trace("fill", stream);
  for (size_t y = 0; y < height; ++y) {
    auto* row = reinterpret_cast<Element*>(at + y * pitch);
    for (size_t x = 0; x < width; ++x) row[x] = value;
  }
  return CUDA_SUCCESS;
}

CUresult CopyLinear(void* to, const void* from, size_t size, CUstream stream) {
  fake->Trace("copy", stream);
  std::memmove(to, from, size);
  return CUDA_SUCCESS;
}

void* At(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

CUresult ParameterLayout(size_t index, size_t* offset, size_t* size) {
  if (index >= std::size(kFakeParameters)) return CUDA_ERROR_INVALID_VALUE;
  *offset = kFakeParameters[index][0];
  *size = kFakeParameters[index][1];
  return CUDA_SUCCESS;
}

void FillDevice(server::DriverTable& t) {
  t.cuInit = [](unsigned int) -> CUresult { return CUDA_SUCCESS; };
  t.cuDriverGetVersion = [](int* version) -> CUresult { return *version = 13000, CUDA_SUCCESS; };
  t.cuDeviceGetCount = [](int* count) -> CUresult { return *count = fake->num_devices.load(), CUDA_SUCCESS; };
  t.cuDeviceGet = [](CUdevice* device, int ordinal) -> CUresult { return *device = ordinal, CUDA_SUCCESS; };
  t.cuDeviceGetName = [](char* name, int size, CUdevice) -> CUresult {
    std::strncpy(name, "Fake GPU", static_cast<size_t>(size));
    return CUDA_SUCCESS;
  };
  t.cuDeviceTotalMem_v2 = [](size_t* bytes, CUdevice) -> CUresult { return *bytes = size_t{1} << 30, CUDA_SUCCESS; };
  t.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) -> CUresult {
    return *value = static_cast<int>(attribute), CUDA_SUCCESS;
  };
  t.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) -> CUresult {
    return *context = kContext, CUDA_SUCCESS;
  };
  t.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) -> CUresult { return CUDA_SUCCESS; };
  t.cuCtxSetCurrent = [](CUcontext) -> CUresult { return CUDA_SUCCESS; };
  t.cuGetErrorName = [](CUresult result, const char** name) -> CUresult {
    *name = result == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : nullptr;
    return CUDA_SUCCESS;
  };
  t.cuCtxGetLimit = [](size_t* value, CUlimit) -> CUresult { return *value = 1024, CUDA_SUCCESS; };
}

void FillStreams(server::DriverTable& t) {
  t.cuStreamCreateWithPriority = [](CUstream* stream, unsigned int, int) -> CUresult {
    return *stream = fake->Make<CUstream>("stream"), CUDA_SUCCESS;
  };
  t.cuStreamDestroy_v2 = [](CUstream stream) -> CUresult { return fake->Drop(stream, "stream"); };
  t.cuStreamSynchronize = [](CUstream) -> CUresult { return fake->Wait(); };
  t.cuStreamQuery = [](CUstream) -> CUresult { return fake->is_work_unfinished ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; };
  t.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned int) -> CUresult {
    return fake->Trace("wait", stream, event), CUDA_SUCCESS;
  };
  t.cuEventCreate = [](CUevent* event, unsigned int) -> CUresult {
    return *event = fake->Make<CUevent>("event"), CUDA_SUCCESS;
  };
  t.cuEventDestroy_v2 = [](CUevent event) -> CUresult { return fake->Drop(event, "event"); };
  t.cuEventRecord = [](CUevent event, CUstream stream) -> CUresult {
    if (!fake->IsLive(event, "event") || !fake->IsLive(stream, "stream")) return CUDA_ERROR_INVALID_HANDLE;
    return fake->Trace("record", stream, event), CUDA_SUCCESS;
  };
  t.cuEventSynchronize = [](CUevent) -> CUresult { return fake->Wait(); };
  t.cuEventQuery = [](CUevent) -> CUresult { return fake->is_work_unfinished ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; };
  t.cuLaunchHostFunc = [](CUstream, CUhostFn function, void* argument) -> CUresult {
    fake->Post([=] { function(argument); });
    return CUDA_SUCCESS;
  };
}

void FillMemory(server::DriverTable& t) {
  t.cuMemAlloc_v2 = [](CUdeviceptr* address, size_t size) -> CUresult { return fake->Allocate(address, size); };
  t.cuMemAllocPitch_v2 = [](CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                            unsigned int) -> CUresult {
    *pitch = (width + 511) / 512 * 512;
    return fake->Allocate(address, *pitch * height);
  };
  t.cuMemFree_v2 = [](CUdeviceptr address) -> CUresult { return fake->Free(address); };
  t.cuMemPoolCreate = [](CUmemoryPool* pool, const CUmemPoolProps*) -> CUresult {
    return *pool = fake->Make<CUmemoryPool>("pool"), CUDA_SUCCESS;
  };
  t.cuMemPoolGetAttribute = [](CUmemoryPool, CUmemPool_attribute, void* value) -> CUresult {
    *static_cast<uint64_t*>(value) = 0;
    return CUDA_SUCCESS;
  };
  t.cuMemPoolDestroy = [](CUmemoryPool pool) -> CUresult { return fake->Drop(pool, "pool"); };
  t.cuMemAllocFromPoolAsync = [](CUdeviceptr* address, size_t size, CUmemoryPool, CUstream) -> CUresult {
    return fake->Allocate(address, size);
  };
  t.cuMemFreeAsync = [](CUdeviceptr address, CUstream) -> CUresult { return fake->Free(address); };
  t.cuMemGetInfo_v2 = [](size_t* free_bytes, size_t* total) -> CUresult {
    return *free_bytes = size_t{1} << 29, *total = size_t{1} << 30, CUDA_SUCCESS;
  };
  t.cuMemHostRegister_v2 = [](void* address, size_t, unsigned int) -> CUresult { return fake->Register(address); };
  t.cuMemHostUnregister = [](void* address) -> CUresult { return fake->Unregister(address); };
  t.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) -> CUresult {
    return CopyLinear(At(to), At(from), size, stream);
  };
  t.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr to, const void* from, size_t size, CUstream stream) -> CUresult {
    return CopyLinear(At(to), from, size, stream);
  };
  t.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr from, size_t size, CUstream stream) -> CUresult {
    return CopyLinear(to, At(from), size, stream);
  };
  t.cuMemcpyDtoDAsync_v2 = [](CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) -> CUresult {
    return CopyLinear(At(to), At(from), size, stream);
  };
  t.cuMemcpy3DAsync_v2 = [](const CUDA_MEMCPY3D* p, CUstream stream) -> CUresult {
    fake->Trace("copy", stream);
    const auto* from = static_cast<const char*>(p->srcMemoryType == CU_MEMORYTYPE_HOST ? p->srcHost : At(p->srcDevice));
    auto* to = static_cast<char*>(p->dstMemoryType == CU_MEMORYTYPE_HOST ? p->dstHost : At(p->dstDevice));
    for (size_t z = 0; z < p->Depth; ++z) {
      for (size_t y = 0; y < p->Height; ++y) {
        std::memmove(to + ((z + p->dstZ) * p->dstHeight + y + p->dstY) * p->dstPitch + p->dstXInBytes,
                     from + ((z + p->srcZ) * p->srcHeight + y + p->srcY) * p->srcPitch + p->srcXInBytes,
                     p->WidthInBytes);
      }
    }
    return CUDA_SUCCESS;
  };
  t.cuMemsetD8Async = [](CUdeviceptr at, unsigned char value, size_t count, CUstream stream) -> CUresult {
    return FillWith<unsigned char>(at, 0, value, count, 1, stream);
  };
  t.cuMemsetD16Async = [](CUdeviceptr at, unsigned short value, size_t count, CUstream stream) -> CUresult {
    return FillWith<unsigned short>(at, 0, value, count, 1, stream);
  };
  t.cuMemsetD32Async = [](CUdeviceptr at, unsigned int value, size_t count, CUstream stream) -> CUresult {
    return FillWith<unsigned int>(at, 0, value, count, 1, stream);
  };
  t.cuMemsetD2D8Async = [](CUdeviceptr at, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) -> CUresult {
    return FillWith<unsigned char>(at, pitch, value, width, height, stream);
  };
  t.cuMemsetD2D16Async = [](CUdeviceptr at, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) -> CUresult {
    return FillWith<unsigned short>(at, pitch, value, width, height, stream);
  };
  t.cuMemsetD2D32Async = [](CUdeviceptr at, size_t pitch, unsigned int value, size_t width, size_t height,
                            CUstream stream) -> CUresult {
    return FillWith<unsigned int>(at, pitch, value, width, height, stream);
  };
}

void FillImages(server::DriverTable& t) {
  t.cuModuleLoadDataEx = [](CUmodule* module, const void*, unsigned int, CUjit_option*, void**) -> CUresult {
    return *module = fake->Make<CUmodule>("module"), CUDA_SUCCESS;
  };
  t.cuModuleUnload = [](CUmodule module) -> CUresult { return fake->Drop(module, "module"); };
  t.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char* name) -> CUresult {
    if (std::strncmp(name, "kernel", 6) != 0) return CUDA_ERROR_NOT_FOUND;
    *function = reinterpret_cast<CUfunction>(reinterpret_cast<uintptr_t>(module) + 1 + std::strlen(name));
    return CUDA_SUCCESS;
  };
  t.cuFuncGetParamInfo = [](CUfunction, size_t index, size_t* offset, size_t* size) -> CUresult {
    return ParameterLayout(index, offset, size);
  };
  t.cuFuncGetAttribute = [](int* value, CUfunction_attribute, CUfunction) -> CUresult {
    return *value = 1, CUDA_SUCCESS;
  };
  t.cuLaunchKernel = [](CUfunction function, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                        unsigned int, unsigned int, CUstream stream, void** parameters,
                        void** extra) -> CUresult { return fake->Launch(function, parameters, extra, stream); };
  t.cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) -> CUresult {
    return fake->Launch(function, parameters, extra, config->hStream);
  };
}

}  // namespace

FakeDriver::FakeDriver() {
  fake = this;
  FillDevice(table_);
  FillStreams(table_);
  FillMemory(table_);
  FillImages(table_);
  thread_ = std::thread([this] { RunHostFunctions(); });
}

FakeDriver::~FakeDriver() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const auto& [address, size] : memory_) std::free(At(address));
  for (const auto& [object, kind] : objects_) std::free(const_cast<void*>(object));
  fake = nullptr;
}

void* FakeDriver::MakeObject(const std::string& kind) {
  void* object = std::malloc(64);
  const std::lock_guard lock(mutex_);
  objects_[object] = {kind, ++numbers_[kind]};
  return object;
}

CUresult FakeDriver::Drop(const void* object, const std::string& kind) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(object);
  if (found == objects_.end() || found->second.kind != kind) return CUDA_ERROR_INVALID_HANDLE;
  objects_.erase(found);
  std::free(const_cast<void*>(object));
  return CUDA_SUCCESS;
}

bool FakeDriver::IsLive(const void* object, const std::string& kind) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(object);
  return found != objects_.end() && found->second.kind == kind;
}

std::string FakeDriver::NameOf(const void* object) const {
  const auto found = objects_.find(object);
  return found == objects_.end() ? "?" : fmt::format("{}{}", found->second.kind[0], found->second.number);
}

void FakeDriver::Trace(const std::string& what, const void* stream, const void* event) {
  const std::lock_guard lock(mutex_);
  if (trace_.size() > 100000) return;
  trace_.push_back(event == nullptr ? fmt::format("{} {}", what, NameOf(stream))
                                    : fmt::format("{} {} {}", what, NameOf(stream), NameOf(event)));
}

std::vector<std::string> FakeDriver::TakeTrace() {
  const std::lock_guard lock(mutex_);
  return std::exchange(trace_, {});
}

std::map<std::string, int> FakeDriver::live() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, int> result;
  {
    const std::lock_guard graphs_lock(graphs_.mutex());
    result = graphs_.live();
  }
  for (const auto& [object, description] : objects_) ++result[description.kind];
  if (!memory_.empty()) result["memory"] = static_cast<int>(memory_.size());
  if (!registrations_.empty()) result["registration"] = static_cast<int>(registrations_.size());
  return result;
}

CUresult FakeDriver::Allocate(CUdeviceptr* address, size_t size_bytes) {
  if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size_bytes > size_t{64} << 20) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(std::calloc(1, size_bytes));
  const std::lock_guard lock(mutex_);
  memory_[*address] = size_bytes;
  return CUDA_SUCCESS;
}

CUresult FakeDriver::Free(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  if (memory_.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(At(address));
  return CUDA_SUCCESS;
}

CUresult FakeDriver::Register(void* address) {
  const std::lock_guard lock(mutex_);
  return registrations_.insert(address).second ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult FakeDriver::Unregister(void* address) {
  const std::lock_guard lock(mutex_);
  return registrations_.erase(address) != 0 ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult FakeDriver::Launch(CUfunction, void** parameters, void** extra, CUstream stream) {
  Trace("launch", stream);
  const std::lock_guard lock(mutex_);
  ++num_launches_;
  parameters_.clear();
  if (extra != nullptr) {
    parameters_.emplace_back(static_cast<const char*>(extra[1]), *static_cast<size_t*>(extra[3]));
  } else {
    for (size_t i = 0; i < std::size(kFakeParameters); ++i) {
      parameters_.emplace_back(static_cast<const char*>(parameters[i]), kFakeParameters[i][1]);
    }
  }
  return CUDA_SUCCESS;
}

std::vector<std::string> FakeDriver::last_parameters() const {
  const std::lock_guard lock(mutex_);
  return parameters_;
}

uint64_t FakeDriver::num_launches() const {
  const std::lock_guard lock(mutex_);
  return num_launches_;
}

void FakeDriver::BreakContext(CUresult error) {
  const std::lock_guard lock(mutex_);
  broken_ = error;
}

void FakeDriver::Post(std::function<void()> host_function) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(host_function));
  changed_.notify_all();
}

CUresult FakeDriver::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return posted_.empty() && !running_; });
  return broken_;
}

void FakeDriver::RunHostFunctions() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !posted_.empty(); });
    if (posted_.empty()) return;
    auto function = std::move(posted_.front());
    posted_.pop_front();
    running_ = true;
    lock.unlock();
    function();
    lock.lock();
    running_ = false;
    changed_.notify_all();
  }
}

}  // namespace tally::fakes
