#include "client-shim/origins/pairing.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "client-shim/origins/triton_cache.h"
#include "client-shim/transport/session.h"
#include "images/cubin.h"
#include "images/fat_writer.h"
#include "images/ptx_text.h"

namespace tally::client_shim {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
constexpr size_t kMaxPtxBytes = size_t{64} << 20;

struct Knowledge {
  PtxOrigins origins{kMaxBytes};
  TritonCache triton;
};
Knowledge* g_knowledge = nullptr;

Knowledge& KnowledgeOfProcess() {
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] {
    g_knowledge = new Knowledge;
    const auto unlock = [] {
      g_knowledge->origins.mutex().unlock();
      g_knowledge->triton.mutex().unlock();
    };
    ::pthread_atfork(
        [] {
          g_knowledge->triton.mutex().lock();
          g_knowledge->origins.mutex().lock();
        },
        unlock, unlock);
  });
  return *g_knowledge;
}

bool Fits(const images::CubinView& view, const std::string& ptx, const images::PtxHead& head) {
  if (head.target > view.arch() || (head.suffix != 0 && head.target != view.arch())) return false;
  return std::all_of(view.kernels().begin(), view.kernels().end(),
                     [&](const images::CubinKernel& kernel) { return images::DefinesKernel(ptx, kernel.name); });
}

}  // namespace

PtxOrigins& Origins() { return KnowledgeOfProcess().origins; }

bool IsPtxKept() {
  const char* wish = std::getenv("TALLY_KEEP_PTX");
  if (wish != nullptr && std::string_view(wish) == "0") return false;
  const Session* session = CurrentSession();
  return session == nullptr || session->wants_ptx();
}

std::vector<std::byte> PairWithPtx(std::span<const std::byte> cubin, const std::string& path,
                                   std::span<const uint32_t> capabilities) {
  const auto view = images::CubinView::Parse(cubin);
  if (!view || !view->is_linked() || view->kernels().empty()) return {};
  if (capabilities.empty() || !std::all_of(capabilities.begin(), capabilities.end(),
                                           [&](uint32_t capability) { return capability == view->arch(); })) {
    return {};
  }
  Knowledge& knowledge = KnowledgeOfProcess();
  PtxText ptx = knowledge.origins.Find(cubin);
  if (ptx == nullptr) {
    ptx = PtxBesideCubin(path);
    // Triton compiles one kernel at a time.
    if (ptx == nullptr && view->kernels().size() == 1) ptx = knowledge.triton.Find(TritonCacheOfEnvironment(), cubin);
    if (ptx != nullptr) knowledge.origins.Learn(cubin, ptx);  // for the next device
  }
  if (ptx == nullptr || ptx->size() > kMaxPtxBytes) return {};
  const auto head = images::ReadPtxHead(*ptx);
  if (!head || !Fits(*view, *ptx, *head)) return {};
  return images::WriteCubinWithPtx(cubin, view->arch(), *ptx, *head);
}

}  // namespace tally::client_shim
