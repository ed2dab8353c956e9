// cuLink*: images put together by the driver's linker.
#include <algorithm>

#include "server/executor/session/jit_options.h"
#include "server/executor/session/operations.h"

namespace tally::server {
namespace {

LinkState* FindLink(SessionState& session, uint64_t handle) {
  return static_cast<LinkState*>(session.handles(shm::HandleKind::kLinkState).Find(handle));
}

// The logs grow with each step; the caller gets them from the start every time, as natively.
void PutLogs(WireWriter& out, uint64_t handle, const LinkState& link) {
  const auto length = [](const std::vector<char>& log) {
    return static_cast<uint32_t>(log.empty() ? 0 : ::strnlen(log.data(), log.size()));
  };
  const shm::LoadedImage head{handle, length(link.info_log), length(link.error_log)};
  out.PutStruct(head);
  if (head.info_log_bytes != 0) out.PutBytes(std::as_bytes(std::span(link.info_log).first(head.info_log_bytes)));
  if (head.error_log_bytes != 0) out.PutBytes(std::as_bytes(std::span(link.error_log).first(head.error_log_bytes)));
}

}  // namespace

CUresult ServeLinkCreate(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::LoadImage request{};
  in.TakeStruct(&request);
  JitOptions options;
  if (!options.Read(in, request.num_options)) return in.ok() ? CUDA_ERROR_INVALID_VALUE : served.Malformed();
  if (!in.AtEnd()) return served.Malformed();
  auto link = std::make_unique<LinkState>();
  options.AddLogs(request.info_log_bytes, request.error_log_bytes, &link->info_log, &link->error_log);
  if (const CUresult r =
          served.driver().cuLinkCreate_v2(options.count(), options.options(), options.values(), &link->link);
      r != CUDA_SUCCESS) {
    return r;
  }
  const uint64_t handle = names.NameOf(shm::HandleKind::kLinkState, link.get());
  if (handle == 0) {
    served.driver().cuLinkDestroy(link->link);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  static_cast<void>(link.release());  // the table owns it
  out.PutWord(handle);
  return CUDA_SUCCESS;
}

CUresult ServeLinkAdd(ServedRequest& served, WireReader& in, WireWriter& out) {
  shm::LinkAdd request{};
  in.TakeStruct(&request);
  JitOptions options;
  const bool options_fine = options.Read(in, request.num_options);
  const std::span<const std::byte> name_bytes = in.TakeBytes(request.name_bytes);
  if (options_fine && !in.AtEnd()) return served.Malformed();
  const std::string name(reinterpret_cast<const char*>(name_bytes.data()), name_bytes.size());
  SessionState& session = served.session();
  LinkState* link = FindLink(session, request.handle);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!options_fine) return CUDA_ERROR_INVALID_VALUE;
  shm::LoadImage image_request{};
  image_request.image = request.image;
  switch (request.input_type) {
    case CU_JIT_INPUT_PTX:
      image_request.format = static_cast<uint32_t>(shm::ImageFormat::kPtx);
      break;
    case CU_JIT_INPUT_CUBIN:
      image_request.format = static_cast<uint32_t>(shm::ImageFormat::kElf);
      break;
    case CU_JIT_INPUT_FATBINARY:
      image_request.format = static_cast<uint32_t>(shm::ImageFormat::kContainer);
      break;
    default:  // objects and archives: nothing here can tell whether their bytes are sound
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  std::shared_ptr<ImageBytes> image;
  if (const CUresult r = session.code.images.Take(image_request, &image); r != CUDA_SUCCESS) return r;
  const CUresult result = served.driver().cuLinkAddData_v2(
      link->link, static_cast<CUjitInputType>(request.input_type), const_cast<void*>(image->pointer()),
      image->bytes.size(), name.c_str(), options.count(), options.options(), options.values());
  if (image->may_print) session.NoteMayPrint();
  link->inputs.push_back(std::move(image));
  PutLogs(out, 0, *link);
  return result;
}

CUresult ServeLinkComplete(ServedRequest& served, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  LinkState* link = FindLink(served.session(), handle);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  void* code = nullptr;
  size_t size = 0;
  const CUresult result = served.driver().cuLinkComplete(link->link, &code, &size);
  if (result == CUDA_SUCCESS) {
    const auto* bytes = static_cast<const std::byte*>(code);
    link->result.assign(bytes, bytes + size);
  }
  PutLogs(out, link->result.size(), *link);
  return result;
}

CUresult ServeReadLinked(ServedRequest& served, WireReader& in, WireWriter& out) {
  shm::ReadLinked request{};
  in.TakeStruct(&request);
  if (!in.AtEnd() || request.size_bytes > shm::kMaxReplyBytes / 2) return served.Malformed();
  LinkState* link = FindLink(served.session(), request.handle);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (request.offset_bytes > link->result.size() || request.size_bytes > link->result.size() - request.offset_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out.PutBytes(std::span(link->result).subspan(request.offset_bytes, request.size_bytes));
  return CUDA_SUCCESS;
}

CUresult ServeLinkDestroy(ServedRequest& served, WireReader& in, WireWriter&) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  const std::unique_ptr<LinkState> link(FindLink(session, handle));
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  session.handles(shm::HandleKind::kLinkState).Remove(handle);
  for (const auto& input : link->inputs) session.code.images.Return(*input);
  return served.driver().cuLinkDestroy(link->link);
}

}  // namespace tally::server
