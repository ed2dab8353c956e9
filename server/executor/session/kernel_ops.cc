// Kernels and variables of loaded images.
#include "server/executor/session/kernel_ops.h"

#include "proto/device/gate_abi.h"
#include "server/executor/session/operations.h"

namespace tally::server {
namespace {

// The largest kernel parameter space (32764 bytes) of one-byte parameters.
constexpr size_t kMaxParameters = shm::kMaxParameterBytes;

struct NamedRequest {
  shm::GetByName head{};
  std::string name;
};

CUresult ReadRequest(ServedRequest& served, WireReader& in, NamedRequest* request) {
  in.TakeStruct(&request->head);
  const std::span<const std::byte> name = in.TakeBytes(request->head.name_bytes);
  request->name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  return in.AtEnd() ? CUDA_SUCCESS : served.Malformed();
}

LoadedImage* FindImage(SessionState& session, uint64_t handle) {
  const shm::HandleKind kind = shm::HandleKindOf(handle);
  if (kind != shm::HandleKind::kModule && kind != shm::HandleKind::kLibrary) return nullptr;
  return static_cast<LoadedImage*>(session.handles(kind).Find(handle));
}

CUresult ReadLayout(const DriverTable& driver, Kernel* kernel) {
  for (size_t i = 0; i < kMaxParameters; ++i) {
    size_t offset = 0;
    size_t size = 0;
    const CUresult result = kernel->function != nullptr
                                ? driver.cuFuncGetParamInfo(kernel->function, i, &offset, &size)
                                : driver.cuKernelGetParamInfo(kernel->kernel, i, &offset, &size);
    if (result == CUDA_ERROR_INVALID_VALUE) return CUDA_SUCCESS;  // there is no parameter i
    if (result != CUDA_SUCCESS) return result;
    kernel->layout.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(size)});
    kernel->parameter_bytes = std::max(kernel->parameter_bytes, static_cast<uint32_t>(offset + size));
  }
  return CUDA_SUCCESS;
}

// The last parameter of a kernel with a gate is ours: the program does not see it.
CUresult HideGate(const DriverTable& driver, const LoadedImage& image, Kernel* kernel) {
  const LoadedImage& owner = image.library_image != nullptr ? *image.library_image : image;
  if (owner.gated == nullptr) return CUDA_SUCCESS;
  const char* name = nullptr;
  const CUresult named = kernel->function != nullptr ? driver.cuFuncGetName(&name, kernel->function)
                                                     : driver.cuKernelGetName(&name, kernel->kernel);
  if (named != CUDA_SUCCESS) return named;
  const auto found = owner.gated->gates.find(name);
  if (found == owner.gated->gates.end()) {
    const auto refused = owner.gated->refusals.find(name);
    if (refused != owner.gated->refusals.end()) kernel->gate_refusal = refused->second;
    return CUDA_SUCCESS;
  }
  const bool is_there = !kernel->layout.empty() && kernel->layout.back().offset_bytes == found->second.hidden_offset &&
                        kernel->layout.back().size_bytes == sizeof(device::GateParameters);
  if (!is_there) return CUDA_ERROR_INVALID_IMAGE;
  kernel->gate = found->second;
  kernel->layout.pop_back();
  kernel->parameter_bytes = 0;
  for (const shm::ParameterLayout& parameter : kernel->layout) {
    kernel->parameter_bytes = std::max(kernel->parameter_bytes, parameter.offset_bytes + parameter.size_bytes);
  }
  return CUDA_SUCCESS;
}

// Attributes of a library's kernel are those of its function in a device's primary context, which must be alive.
void KeepContextAlive(ServedRequest& served) {
  CUcontext real = nullptr;
  const std::vector<int>& allowed = served.session().gpus.ordinals();
  if (served.context() == nullptr && !allowed.empty()) served.session().core.devices->Context(allowed.front(), &real);
}

void PutDescription(ServedRequest& served, const Kernel& kernel, WireWriter& out) {
  KeepContextAlive(served);
  shm::KernelDescription description{};
  description.handle = kernel.handle;
  description.num_parameters = static_cast<uint32_t>(kernel.layout.size());
  description.parameter_bytes = kernel.parameter_bytes;
  const int ordinal = served.context() != nullptr ? served.context()->device() : 0;
  description.device = static_cast<uint32_t>(ordinal);
  const CUdevice device = served.session().core.devices->device(ordinal);
  for (uint32_t i = 0; i < shm::kNumKernelAttributes; ++i) {
    const auto attribute = static_cast<CUfunction_attribute>(i);
    int value = 0;
    const CUresult result = kernel.function != nullptr
                                ? served.driver().cuFuncGetAttribute(&value, attribute, kernel.function)
                                : served.driver().cuKernelGetAttribute(&value, attribute, kernel.kernel, device);
    if (result != CUDA_SUCCESS) continue;
    description.attribute[i] = value;
    description.attribute_valid |= 1u << i;
  }
  out.PutStruct(description);
  out.PutArray(std::span(kernel.layout));
}

CUresult FindFunction(ServedRequest& served, ClientNames& names, LoadedImage* image, const std::string& name,
                      Kernel** kernel) {
  if (const auto known = image->by_name.find(name); known != image->by_name.end()) {
    *kernel = known->second;
    return CUDA_SUCCESS;
  }
  served.session().core.collectives.NoteKernel(&served.session(), name);
  CUfunction function = nullptr;
  CUkernel library_kernel = nullptr;
  const CUresult result = image->is_library
                              ? served.driver().cuLibraryGetKernel(&library_kernel, image->library, name.c_str())
                              : served.driver().cuModuleGetFunction(&function, image->module, name.c_str());
  if (result != CUDA_SUCCESS) return result;
  if (const CUresult r = NameKernel(served, names, image, function, library_kernel, kernel); r != CUDA_SUCCESS)
    return r;
  image->by_name.emplace(name, *kernel);
  return CUDA_SUCCESS;
}

CUresult Get(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out, shm::HandleKind owner_kind) {
  NamedRequest request;
  if (const CUresult r = ReadRequest(served, in, &request); r != CUDA_SUCCESS) return r;
  auto* image = static_cast<LoadedImage*>(served.session().handles(owner_kind).Find(request.head.owner));
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A client's thread may look for kernels of a library before it has a context; the driver describes them in one.
  if (served.context() == nullptr) {
    CUcontext any = nullptr;
    const std::vector<int>& allowed = served.session().gpus.ordinals();
    if (allowed.empty()) return CUDA_ERROR_NO_DEVICE;
    if (const CUresult r = served.session().core.devices->Context(allowed.front(), &any); r != CUDA_SUCCESS) return r;
    served.driver().cuCtxSetCurrent(any);
    served.ForgetCurrentDevice();
  }
  Kernel* kernel = nullptr;
  if (const CUresult r = FindFunction(served, names, image, request.name, &kernel); r != CUDA_SUCCESS) return r;
  PutDescription(served, *kernel, out);
  return CUDA_SUCCESS;
}

struct ListedKernel {
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;
  std::string name;
};

CUresult ListAll(const DriverTable& driver, const LoadedImage& image, std::vector<ListedKernel>* list) {
  // Of CUDA 12.3 and 12.4.
  const bool can_list = image.is_library
                            ? driver.cuLibraryGetKernelCount != nullptr &&
                                  driver.cuLibraryEnumerateKernels != nullptr && driver.cuKernelGetName != nullptr
                            : driver.cuModuleGetFunctionCount != nullptr &&
                                  driver.cuModuleEnumerateFunctions != nullptr && driver.cuFuncGetName != nullptr;
  if (!can_list) return CUDA_ERROR_NOT_SUPPORTED;
  unsigned int count = 0;
  const CUresult counted = image.is_library ? driver.cuLibraryGetKernelCount(&count, image.library)
                                            : driver.cuModuleGetFunctionCount(&count, image.module);
  if (counted != CUDA_SUCCESS) return counted;
  std::vector<CUfunction> functions(image.is_library ? 0 : count);
  std::vector<CUkernel> kernels(image.is_library ? count : 0);
  const CUresult listed = image.is_library ? driver.cuLibraryEnumerateKernels(kernels.data(), count, image.library)
                                           : driver.cuModuleEnumerateFunctions(functions.data(), count, image.module);
  if (listed != CUDA_SUCCESS) return listed;
  for (unsigned int i = 0; i < count; ++i) {
    ListedKernel entry;
    if (image.is_library) {
      entry.kernel = kernels[i];
    } else {
      entry.function = functions[i];
    }
    const char* name = nullptr;
    const CUresult named =
        image.is_library ? driver.cuKernelGetName(&name, entry.kernel) : driver.cuFuncGetName(&name, entry.function);
    if (named != CUDA_SUCCESS) return named;
    entry.name = name != nullptr ? name : "";
    list->push_back(std::move(entry));
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult NameKernel(ServedRequest& served, ClientNames& names, LoadedImage* image, CUfunction function, CUkernel kernel,
                    Kernel** result) {
  SessionState& session = served.session();
  const void* key = function != nullptr ? static_cast<const void*>(function) : kernel;
  if (const auto known = session.code.kernel_of.find(key); known != session.code.kernel_of.end()) {
    *result = known->second;
    return CUDA_SUCCESS;
  }
  auto made = std::make_unique<Kernel>();
  made->function = function;
  made->kernel = kernel;
  made->image = image;
  if (const CUresult r = ReadLayout(served.driver(), made.get()); r != CUDA_SUCCESS) return r;
  if (const CUresult r = HideGate(served.driver(), *image, made.get()); r != CUDA_SUCCESS) return r;
  made->handle = names.NameOf(function != nullptr ? shm::HandleKind::kFunction : shm::HandleKind::kKernel, made.get());
  if (made->handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  session.code.kernel_of[key] = made.get();
  *result = made.get();
  image->kernels.push_back(std::move(made));
  return CUDA_SUCCESS;
}

Kernel* FindKernel(SessionState& session, uint64_t handle) {
  const shm::HandleKind kind = shm::HandleKindOf(handle);
  if (kind != shm::HandleKind::kFunction && kind != shm::HandleKind::kKernel) return nullptr;
  return static_cast<Kernel*>(session.handles(kind).Find(handle));
}

CUresult ServeGetFunction(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  return Get(served, names, in, out, shm::HandleKind::kModule);
}
CUresult ServeGetKernel(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  return Get(served, names, in, out, shm::HandleKind::kLibrary);
}

CUresult ServeKernelFunction(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  NamedRequest request;
  if (const CUresult r = ReadRequest(served, in, &request); r != CUDA_SUCCESS) return r;
  auto* kernel = static_cast<Kernel*>(served.session().handles(shm::HandleKind::kKernel).Find(request.head.owner));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUfunction function = nullptr;
  if (const CUresult r = served.driver().cuKernelGetFunction(&function, kernel->kernel); r != CUDA_SUCCESS) return r;
  Kernel* of_function = nullptr;
  if (const CUresult r = NameKernel(served, names, kernel->image, function, nullptr, &of_function); r != CUDA_SUCCESS)
    return r;
  PutDescription(served, *of_function, out);
  return CUDA_SUCCESS;
}

CUresult ServeGetGlobal(ServedRequest& served, WireReader& in, WireWriter& out) {
  NamedRequest request;
  if (const CUresult r = ReadRequest(served, in, &request); r != CUDA_SUCCESS) return r;
  LoadedImage* image = FindImage(served.session(), request.head.owner);
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUdeviceptr address = 0;
  size_t size = 0;
  const DriverTable& driver = served.driver();
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (request.head.detail == shm::kOnlyManaged) {
    if (!image->is_library) return served.Malformed("managed variables are asked from libraries");
    // They have no address before the library is loaded into a context.
    CUmodule module = nullptr;
    if (const CUresult r = driver.cuLibraryGetModule(&module, image->library); r != CUDA_SUCCESS) return r;
    if (driver.cuLibraryGetManaged != nullptr) {
      result = driver.cuLibraryGetManaged(&address, &size, image->library, request.name.c_str());
    }
  } else if (image->is_library) {
    result = driver.cuLibraryGetGlobal(&address, &size, image->library, request.name.c_str());
  } else {
    result = driver.cuModuleGetGlobal_v2(&address, &size, image->module, request.name.c_str());
  }
  if (result != CUDA_SUCCESS) return result;
  unsigned is_managed = 0;
  // A managed variable that passed for another would be followed by the client, which has nothing there.
  if (const CUresult r = driver.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
      r != CUDA_SUCCESS) {
    return r;
  }
  // Asked for again, it is there already.
  served.session().memory.Add({address, size, MemoryKind::kGlobal, served.context_index(), image});
  out.PutStruct(shm::GlobalDescription{address, size, is_managed != 0 ? 1u : 0u, 0});
  return CUDA_SUCCESS;
}

CUresult ServeListKernels(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  NamedRequest request;
  if (const CUresult r = ReadRequest(served, in, &request); r != CUDA_SUCCESS) return r;
  LoadedImage* image = FindImage(served.session(), request.head.owner);
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<ListedKernel> list;
  if (const CUresult r = ListAll(served.driver(), *image, &list); r != CUDA_SUCCESS) return r;
  // As many as fit; the second word says how many are left, `detail` of the request where to go on.
  const size_t first = std::min<size_t>(request.head.detail, list.size());
  size_t bytes = 8;
  size_t count = 0;
  while (first + count < list.size()) {
    bytes += 16 + PaddedTo8(list[first + count].name.size());
    if (bytes > kMaxReplyPayloadBytes) break;
    ++count;
  }
  const std::array<uint32_t, 2> head = {static_cast<uint32_t>(count),
                                        static_cast<uint32_t>(list.size() - first - count)};
  out.PutStruct(head);
  for (size_t i = first; i < first + count; ++i) {
    const ListedKernel& entry = list[i];
    Kernel* kernel = nullptr;
    if (const CUresult r = NameKernel(served, names, image, entry.function, entry.kernel, &kernel); r != CUDA_SUCCESS)
      return r;
    image->by_name.emplace(entry.name, kernel);
    out.PutWord(kernel->handle);
    const std::array<uint32_t, 2> name = {static_cast<uint32_t>(entry.name.size()), 0};
    out.PutStruct(name);
    out.PutBytes(std::as_bytes(std::span(entry.name)));
  }
  return CUDA_SUCCESS;
}

}  // namespace tally::server
