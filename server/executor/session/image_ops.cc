// Images: pieces, modules, libraries.
#include "server/executor/session/jit_options.h"
#include "server/executor/session/operations.h"

namespace tally::server {
namespace {

struct LoadRequest {
  shm::LoadImage head{};
  std::shared_ptr<ImageBytes> bytes;
  JitOptions options;
  std::vector<char> info_log;
  std::vector<char> error_log;
};

CUresult ReadRequest(ServedRequest& served, WireReader& in, LoadRequest* request) {
  in.TakeStruct(&request->head);
  const bool options_fine = request->options.Read(in, request->head.num_options);
  if (options_fine && !in.AtEnd()) return served.Malformed();
  if (const CUresult r = served.session().code.images.Take(request->head, &request->bytes); r != CUDA_SUCCESS) return r;
  if (!options_fine) {
    served.session().code.images.Return(*request->bytes);
    return CUDA_ERROR_INVALID_VALUE;
  }
  request->options.AddLogs(request->head.info_log_bytes, request->head.error_log_bytes, &request->info_log,
                           &request->error_log);
  return CUDA_SUCCESS;
}

// With gates in it, if launches of this session may be stopped.
std::shared_ptr<const GatedCode> GatesFor(ServedRequest& served, const LoadRequest& request) {
  const SessionState& session = served.session();
  if (session.core.variants == nullptr || session.keeps_kernels ||
      session.is_high_priority.load(std::memory_order_relaxed))
    return nullptr;
  served.ForgetCurrentDevice();  // a context may be made current on the way
  auto gated = session.core.variants->GateImage(PartsOf(*request.bytes));
  if (served.context() != nullptr) served.EnterDevice(served.context()->device());
  return gated;
}

// Loads it by `load(what the driver takes)`, with gates if possible.
template <typename Load>
CUresult LoadWithGates(ServedRequest& served, const LoadRequest& request, LoadedImage& image, const Load& load) {
  image.gated = GatesFor(served, request);
  if (image.gated != nullptr && load(image.gated->image.data()) == CUDA_SUCCESS) return CUDA_SUCCESS;
  image.gated = nullptr;
  return load(request.bytes->pointer());
}

// Keeps the image, or gives its bytes back if the driver did not take it; logs go into the reply either way.
CUresult Finish(ServedRequest& served, ClientNames& names, LoadRequest& request, CUresult result,
                std::unique_ptr<LoadedImage> image, WireWriter& out) {
  SessionState& session = served.session();
  uint64_t handle = 0;
  if (result == CUDA_SUCCESS) {
    image->bytes = request.bytes;
    request.options.CopyNumbers(&image->jit_options, &image->jit_values);
    handle = names.NameOf(image->is_library ? shm::HandleKind::kLibrary : shm::HandleKind::kModule, image.get());
    image->handle = handle;
    if (request.bytes->may_print) session.NoteMayPrint();
    session.code.loaded.push_back(std::move(image));
  } else {
    session.code.images.Return(*request.bytes);
  }
  PutLoadedImage(out, handle, request.options, request.info_log, request.error_log);
  return result;
}

CUresult Unload(ServedRequest& served, WireReader& in, shm::HandleKind kind) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  auto* image = static_cast<LoadedImage*>(served.session().handles(kind).Find(handle));
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (image->is_borrowed) return CUDA_ERROR_NOT_PERMITTED;
  served.session().code.Unload(image);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult ServeWriteImage(ServedRequest& served, WireReader& in, WireWriter&) {
  shm::WriteImage piece{};
  in.TakeStruct(&piece);
  const std::span<const std::byte> bytes = in.TakeBytes(piece.size_bytes);
  if (!in.AtEnd()) return served.Malformed();
  const char* reason = nullptr;
  return served.session().code.images.Write(piece, bytes, &reason) ? CUDA_SUCCESS : served.Malformed(reason);
}

CUresult ServeLoadModule(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  LoadRequest request;
  if (const CUresult r = ReadRequest(served, in, &request); r != CUDA_SUCCESS) return r;
  auto image = std::make_unique<LoadedImage>();
  const CUresult result = LoadWithGates(served, request, *image, [&](const void* bytes) {
    return served.driver().cuModuleLoadDataEx(&image->module, bytes, request.options.count(), request.options.options(),
                                              request.options.values());
  });
  return Finish(served, names, request, result, std::move(image), out);
}

CUresult ServeLoadLibrary(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  LoadRequest request;
  if (const CUresult r = ReadRequest(served, in, &request); r != CUDA_SUCCESS) return r;
  auto image = std::make_unique<LoadedImage>();
  image->is_library = true;
  const CUresult result = LoadWithGates(served, request, *image, [&](const void* bytes) {
    return LoadLibraryData(served.driver(), bytes, request.options.options(), request.options.values(),
                           request.options.count(), &image->library);
  });
  return Finish(served, names, request, result, std::move(image), out);
}

CUresult ServeLibraryModule(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::GetByName request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  auto* library = static_cast<LoadedImage*>(session.handles(shm::HandleKind::kLibrary).Find(request.owner));
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUmodule module = nullptr;
  if (const CUresult r = served.driver().cuLibraryGetModule(&module, library->library); r != CUDA_SUCCESS) return r;
  for (const auto& known : session.code.loaded) {
    if (known->is_borrowed && known->module == module) {
      out.PutWord(known->handle);
      return CUDA_SUCCESS;
    }
  }
  auto image = std::make_unique<LoadedImage>();
  image->is_borrowed = true;
  image->module = module;
  image->library_image = library;
  image->handle = names.NameOf(shm::HandleKind::kModule, image.get());
  out.PutWord(image->handle);
  session.code.loaded.push_back(std::move(image));
  return CUDA_SUCCESS;
}

CUresult ServeUnloadModule(ServedRequest& served, WireReader& in, WireWriter&) {
  return Unload(served, in, shm::HandleKind::kModule);
}
CUresult ServeUnloadLibrary(ServedRequest& served, WireReader& in, WireWriter&) {
  return Unload(served, in, shm::HandleKind::kLibrary);
}

}  // namespace tally::server
