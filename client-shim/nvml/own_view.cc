#include "client-shim/nvml/own_view.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <span>
#include <string>

#include "base/unix_socket.h"
#include "proto/control/amounts.h"
#include "proto/control/socket_paths.h"
#include "proto/driver/generated/wire_ops.h"

namespace tally::nvml {
namespace {

constexpr std::chrono::seconds kPatience{5};
// An executor that starts for us.
constexpr std::chrono::seconds kStartPatience{60};

std::mutex g_mutex;
View g_last;  // guarded by g_mutex

UniqueFd Connect() {
  for (const std::string& path : control::SocketsToTry()) {
    auto connected = ConnectUnix(path, kPatience);
    if (connected) return std::move(*connected);
  }
  return {};
}

// As libcuda.so.1 says it.
template <size_t size>
void TakeName(char (&name)[size]) {
  const char* text = std::getenv("TALLY_NAME");
  if (text == nullptr) text = program_invocation_short_name;
  std::memcpy(name, text, std::min(std::strlen(text), size - 1));
}

uint64_t OwnLimit() {
  const char* memory = std::getenv("TALLY_MEMORY");
  return memory != nullptr ? control::ParseBytes(memory).value_or(0) : 0;
}

View AskOnce() {
  const UniqueFd daemon = Connect();
  if (!daemon.valid()) return nullptr;
  shm::TenantViewRequest request{};
  request.magic = shm::kViewMagic;
  request.protocol_version = shm::kProtocolVersion;
  request.device_memory_bytes = OwnLimit();
  TakeName(request.tenant_name);
  if (!SendMessage(daemon.get(), std::as_bytes(std::span(&request, 1))).ok()) return nullptr;
  const auto answer = ReceiveMessage(daemon.get(), kPatience);
  if (!answer || answer->bytes.size() != sizeof(shm::TenantViewReply)) return nullptr;
  auto view = std::make_shared<shm::TenantViewReply>();
  std::memcpy(view.get(), answer->bytes.data(), sizeof(*view));
  if (view->magic != shm::kViewMagic || view->protocol_version != shm::kProtocolVersion || view->status_code != 0 ||
      view->num_gpus > shm::kViewGpus || view->num_processes > shm::kViewProcesses) {
    return nullptr;
  }
  for (shm::ViewGpu& gpu : view->gpu) gpu.name[sizeof(gpu.name) - 1] = '\0';
  return view;
}

// A session, and gone again: so that an executor starts, which knows the GPUs.
bool StartExecutor() {
  const UniqueFd daemon = Connect();
  if (!daemon.valid()) return false;
  shm::HelloRequest hello{};
  hello.magic = shm::kHelloMagic;
  hello.protocol_version = shm::kProtocolVersion;
  hello.api_table_hash = kApiTableHash;
  hello.only_starts = 1;
  TakeName(hello.tenant_name);
  if (!SendMessage(daemon.get(), std::as_bytes(std::span(&hello, 1))).ok()) return false;
  const auto answer = ReceiveMessage(daemon.get(), kStartPatience);
  return answer && answer->fds.size() == 1;
}

}  // namespace

View AskForView() {
  View view = AskOnce();
  if (view != nullptr && view->num_gpus == 0 && StartExecutor()) view = AskOnce();
  if (view == nullptr) return nullptr;
  const std::lock_guard lock(g_mutex);
  g_last = view;
  return view;
}

View LastView() {
  {
    const std::lock_guard lock(g_mutex);
    if (g_last != nullptr && g_last->num_gpus != 0) return g_last;
  }
  return AskForView();
}

}  // namespace tally::nvml
