#include "server/executor/session/wire_codec.h"

#include "server/executor/session/client_names.h"

namespace tally::server {

CUdevice WireReader::TakeDevice(ServedRequest& served) {
  const uint64_t ordinal = TakeWord();
  if (!served.session().gpus.Has(ordinal)) {
    Fail();
    return 0;
  }
  return served.session().core.devices->device(static_cast<int>(ordinal));
}

void WireWriter::PutHandleOf(ClientNames& names, shm::HandleKind kind, void* value) {
  PutWord(value != nullptr ? names.NameOf(kind, value) : 0);
}

}  // namespace tally::server
