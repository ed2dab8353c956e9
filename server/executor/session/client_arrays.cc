#include "server/executor/session/client_arrays.h"

namespace tally::server {

void ClientArrays::Forget(const void* owner) {
  HandleTable& arrays = handles_[shm::HandleKind::kArray];
  std::erase_if(borrowed, [&](const auto& entry) {
    if (entry.second != owner) return false;
    arrays.Remove(arrays.FindHandle(entry.first));
    return true;
  });
  const auto size = sizes.find(owner);
  if (size == sizes.end()) return;
  memory_.CountPhysical(size->second.size_bytes, false);
  sizes.erase(size);
}

void ClientArrays::Destroy(uint32_t context) {
  const auto destroy = [&](SamplingObjects& objects, auto function) {
    std::erase_if(objects, [&](const auto& entry) {
      if (context != shm::kNoContext && entry.second.context != context) return false;
      function(entry.first);
      return true;
    });
  };
  destroy(textures, driver_.cuTexObjectDestroy);
  destroy(surfaces, driver_.cuSurfObjectDestroy);
  handles_.RemoveEach(shm::HandleKind::kMipmappedArray, context, [&](const HandleTable::Entry& entry) {
    Forget(entry.value);
    driver_.cuMipmappedArrayDestroy(static_cast<CUmipmappedArray>(entry.value));
  });
  handles_.RemoveEach(shm::HandleKind::kArray, context, [&](const HandleTable::Entry& entry) {
    if (borrowed.erase(static_cast<CUarray>(entry.value)) != 0) return;
    Forget(entry.value);
    driver_.cuArrayDestroy(static_cast<CUarray>(entry.value));
  });
}

}  // namespace tally::server
