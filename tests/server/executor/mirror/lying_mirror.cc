#include "tests/server/executor/mirror/lying_mirror.h"

#include <unistd.h>

#include <random>
#include <span>

#include "base/mapped_region.h"
#include "base/unix_socket.h"
#include "proto/shm/mirror_abi.h"
#include "server/executor/mirror/mirror_process.h"

namespace tally::server {
namespace {

void ScribbleWords(shm::MirrorPage& page) {
  std::mt19937 random(5);
  for (;;) {
    for (shm::MirrorSlot& slot : page.slot) {
      slot.done.store(random() % 3 == 0 ? static_cast<uint32_t>(random()) : static_cast<uint32_t>(random() % 21));
      slot.result.store(random() % 2 == 0 ? 0 : static_cast<uint32_t>(random()));
    }
    page.header.fetched_bytes.store(random());
    page.header.num_posted.store(static_cast<uint32_t>(random()));
    page.header.magic = static_cast<uint32_t>(random());
  }
}

void SendWrongParcels(shm::MirrorPage& page) {
  const shm::MirrorParcel other{7777};
  const auto bytes = std::as_bytes(std::span(&other, 1));
  const int fds[] = {0, 0};
  for (uint32_t i = 0; i < shm::kMirrorSlots; ++i) page.slot[i].done.store(i + 1);
  while (SendMessage(kMirrorSocketFd, bytes, std::span(fds, 1)).ok() && SendMessage(kMirrorSocketFd, bytes).ok() &&
         SendMessage(kMirrorSocketFd, bytes.first(3), fds).ok()) {
  }
}

}  // namespace

int RunLyingMirror(int lie) {
  auto region = MappedRegion::Map(kMirrorPageFd, sizeof(shm::MirrorPage));
  if (!region) return 1;
  auto& page = *reinterpret_cast<shm::MirrorPage*>(region->data());
  if (lie == kEndsAtOnce) return 0;
  if (lie != kNeverReady) page.header.state.store(shm::MirrorState::kReady);
  if (lie == kRandomWords) ScribbleWords(page);
  if (lie == kWrongParcels) SendWrongParcels(page);
  if (lie == kUnknownError) page.header.error.store(123456);
  for (bool is_error = true; lie == kTakesItsErrorBack; is_error = !is_error) {
    page.header.error.store(is_error ? 700 : 0);
    ::usleep(100);
  }
  for (;;) ::pause();
}

}  // namespace tally::server
