// What a graph says about itself: parameters of nodes that capture made, and its picture for Graphviz.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/unique_fd.h"
#include "server/executor/session/graph_target.h"
#include "server/executor/session/operations.h"

namespace tally::server {
namespace {

CUresult ReadNode(ServedRequest& served, ClientNames& names, WireReader& in, CUgraphNode* node) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  return names.Find(shm::HandleKind::kGraphNode, handle, node);
}

// An array as the session knows it; addresses are the same on both sides.
CUarray ArrayName(ServedRequest& served, CUarray array) {
  return reinterpret_cast<CUarray>(served.session().handles(shm::HandleKind::kArray).FindHandle(array));
}

constexpr size_t kMaxTextBytes = size_t{64} << 20;

// The driver writes pictures to files: this one has no name.
CUresult DrawGraph(ServedRequest& served, CUgraph graph, unsigned int flags, std::string* text) {
  const UniqueFd file(::memfd_create("tally-graph", MFD_CLOEXEC));
  if (!file.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::string path = fmt::format("/proc/self/fd/{}", file.get());
  if (const CUresult r = served.driver().cuGraphDebugDotPrint(graph, path.c_str(), flags); r != CUDA_SUCCESS) return r;
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  if (size < 0 || static_cast<size_t>(size) > kMaxTextBytes) return CUDA_ERROR_OPERATING_SYSTEM;
  text->resize(static_cast<size_t>(size));
  const ssize_t count = ::pread(file.get(), text->data(), text->size(), 0);
  return count == size ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace

CUresult ServeGetCopyNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  CUgraphNode node = nullptr;
  if (const CUresult r = ReadNode(served, names, in, &node); r != CUDA_SUCCESS) return r;
  CUDA_MEMCPY3D copy{};
  if (const CUresult r = served.driver().cuGraphMemcpyNodeGetParams(node, &copy); r != CUDA_SUCCESS) return r;
  copy.srcArray = ArrayName(served, copy.srcArray);
  copy.dstArray = ArrayName(served, copy.dstArray);
  copy.reserved0 = nullptr;
  copy.reserved1 = nullptr;
  out.PutStruct(copy);
  return CUDA_SUCCESS;
}

CUresult ServeGetHostNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  CUgraphNode node = nullptr;
  if (const CUresult r = ReadNode(served, names, in, &node); r != CUDA_SUCCESS) return r;
  CUDA_HOST_NODE_PARAMS host{};
  if (const CUresult r = served.driver().cuGraphHostNodeGetParams(node, &host); r != CUDA_SUCCESS) return r;
  const auto& kept = served.session().host_calls.kept;
  const auto call = std::find_if(kept.begin(), kept.end(), [&](const auto& one) { return one.get() == host.userData; });
  if (call == kept.end()) return CUDA_ERROR_NOT_SUPPORTED;  // a function of the driver's own
  out.PutWord((*call)->token);
  return CUDA_SUCCESS;
}

CUresult ServeGraphText(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::GraphText request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  CUgraph graph = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraph, request.graph, &graph); r != CUDA_SUCCESS) return r;
  if (served.driver().cuGraphDebugDotPrint == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  // Drawn for the first piece, kept for the others.
  std::string& text = served.session().graphs.text;
  if (request.offset_bytes == 0) {
    if (const CUresult r = DrawGraph(served, graph, request.flags, &text); r != CUDA_SUCCESS) return r;
  }
  const uint64_t offset = std::min<uint64_t>(request.offset_bytes, text.size());
  const size_t size = std::min<size_t>(text.size() - offset, kMaxReplyPayloadBytes / 2);
  out.PutWord(text.size());
  out.PutText(std::span(text).subspan(offset, size));
  if (offset + size == text.size()) text = {};
  return CUDA_SUCCESS;
}

}  // namespace tally::server
