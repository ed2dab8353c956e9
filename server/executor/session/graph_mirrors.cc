#include "server/executor/session/graph_mirrors.h"

#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/mapped_region.h"

namespace tally::server {

using shm::MirrorCommandKind;

shm::MirrorCommand GraphMirrors::Command(MirrorCommandKind kind, uint32_t allocation, uint64_t num_bytes) {
  shm::MirrorCommand command{};
  command.kind = kind;
  command.allocation = allocation;
  command.num_bytes = num_bytes;
  return command;
}

bool GraphMirrors::Start(const DriverLibraries& libraries, int home, const std::vector<int>& ordinals) {
  if (has_started()) return home == home_device_ && error() == CUDA_SUCCESS;
  std::vector<std::unique_ptr<Mirror>> started;
  std::vector<int> others;
  for (const int ordinal : ordinals) {
    if (ordinal == home || others.size() + 1 == shm::kMirrorMaxDevices) continue;
    auto mirror = Mirror::Start({.libraries = libraries, .device = ordinal});
    if (!mirror) {
      LOG_WARNING("graphs stay on one GPU: {}", mirror.error().ToString());
      return false;
    }
    started.push_back(std::move(*mirror));
    others.push_back(ordinal);
  }
  if (started.empty()) return false;
  home_device_ = home;
  ordinals_ = std::move(others);
  mirrors_ = std::move(started);
  home_ = std::make_unique<HomeQueue>(driver_, devices_.completions(home), names_);
  queues_.push_back(home_.get());
  for (const auto& mirror : mirrors_) {
    mirror_queues_.push_back(std::make_unique<MirrorQueue>(*mirror));
    queues_.push_back(mirror_queues_.back().get());
  }
  return true;
}

bool GraphMirrors::Load(uint32_t number, const ImageBytes& image) {
  const auto file = CreateSealedMemfd("tally-image", image.bytes.size());
  if (!file) return false;
  for (size_t written = 0; written < image.bytes.size();) {
    const auto now =
        ::pwrite(file->get(), image.bytes.data() + written, image.bytes.size() - written, static_cast<off_t>(written));
    if (now <= 0) return false;
    written += static_cast<size_t>(now);
  }
  shm::MirrorCommand command = Command(MirrorCommandKind::kLoadImage, 0, image.bytes.size());
  command.image = number;
  return std::ranges::all_of(mirrors_,
                             [&](const auto& mirror) { return mirror->Do(command, {}, file->get()) == CUDA_SUCCESS; });
}

std::optional<uint32_t> GraphMirrors::NumberOf(const std::shared_ptr<ImageBytes>& image) {
  if (const auto known = images_.find(image.get()); known != images_.end()) return known->second.second;
  // Numbers of what was refused are not used again.
  const auto number = static_cast<uint32_t>(images_.size());
  const bool is_loaded = number < shm::kMirrorMaxImages && Load(number, *image);
  return images_.emplace(image.get(), std::pair(image, is_loaded ? std::optional(number) : std::nullopt))
      .first->second.second;
}

std::optional<uint32_t> GraphMirrors::NumberOf(Kernel& kernel) {
  if (const auto known = kernels_.find(&kernel); known != kernels_.end()) return known->second;
  std::optional<uint32_t>& number = kernels_[&kernel];
  const LoadedImage& owner = OwnerOf(kernel);
  const std::string name = NameOf(driver_, kernel);
  // Code of several parts, or made with options, would not be the same code.
  if (owner.bytes == nullptr || !owner.bytes->prelinked.empty() || !owner.jit_options.empty()) return std::nullopt;
  if (name.empty() || name.size() > shm::kMirrorBytes || kernels_.size() > shm::kMirrorMaxFunctions) {
    return std::nullopt;
  }
  const auto image = NumberOf(owner.bytes);
  if (!image) return std::nullopt;
  shm::MirrorCommand command = Command(MirrorCommandKind::kFunction, 0, name.size());
  command.image = *image;
  command.function = static_cast<uint32_t>(kernels_.size() - 1);
  const auto bytes = std::as_bytes(std::span(name));
  for (const auto& mirror : mirrors_) {
    if (mirror->Do(command, bytes) != CUDA_SUCCESS) return std::nullopt;
  }
  return number = command.function;
}

// `fd`: the memory of GPU `gpu`, to all others.
bool GraphMirrors::ShareOut(const MirroredAllocation& place, uint32_t gpu, int fd) {
  shm::MirrorCommand command = Command(MirrorCommandKind::kMapOther, place.number, place.num_bytes);
  command.gpu = gpu;
  for (uint32_t other = 1; other <= mirrors_.size(); ++other) {
    if (other != gpu && mirrors_[other - 1]->Do(command, {}, fd) != CUDA_SUCCESS) return false;
  }
  return true;
}

bool GraphMirrors::Map(const MirroredAllocation& place, int fd) {
  if (!ShareOut(place, 0, fd)) return false;
  for (uint32_t gpu = 1; gpu <= mirrors_.size(); ++gpu) {
    Mirror& mirror = *mirrors_[gpu - 1];
    const auto position = mirror.Post(Command(MirrorCommandKind::kMapOwn, place.number, place.num_bytes));
    if (!position || mirror.Wait(*position) != CUDA_SUCCESS) return false;
    const auto made = mirror.TakeParcel(*position);
    if (!made || !ShareOut(place, gpu, made->get())) return false;
  }
  return true;
}

const MirroredAllocation* GraphMirrors::Have(const SpreadMemory::Allocation& allocation) {
  if (const auto known = allocations_.find(allocation.address); known != allocations_.end()) {
    return &known->second.place;
  }
  if (refused_.contains(allocation.id)) return nullptr;
  if (free_numbers_.empty() && num_numbers_ == shm::kMirrorMaxAllocations) return nullptr;
  if (free_numbers_.empty()) free_numbers_.push_back(num_numbers_++);
  const UniqueFd fd = memory_.Export(allocation.id);
  OfAllocation made{.place = {free_numbers_.back(), allocation.address, allocation.num_bytes}, .charges = {}};
  free_numbers_.pop_back();
  bool is_there = fd.valid() && allocation.device == home_device_;
  for (const int ordinal : ordinals_) {
    auto charge = is_there ? take_charge_(ordinal, allocation.num_bytes) : std::nullopt;
    is_there = charge.has_value();
    if (charge) made.charges.push_back(std::move(*charge));
  }
  shm::MirrorCommand reserve = Command(MirrorCommandKind::kReserve, made.place.number, allocation.num_bytes);
  reserve.address = allocation.address;
  for (const auto& mirror : mirrors_) is_there = is_there && mirror->Do(reserve) == CUDA_SUCCESS;
  if (is_there && Map(made.place, fd.get())) {
    return &allocations_.emplace(allocation.address, std::move(made)).first->second.place;
  }
  for (const auto& mirror : mirrors_) mirror->Do(Command(MirrorCommandKind::kRelease, made.place.number, 0));
  free_numbers_.push_back(made.place.number);
  refused_.insert(allocation.id);
  return nullptr;
}

bool GraphMirrors::Has(const MirroredAllocation& allocation) const {
  const auto known = allocations_.find(allocation.address);
  return known != allocations_.end() && known->second.place.number == allocation.number;
}

void GraphMirrors::OnFreed(uint64_t address) {
  const auto known = allocations_.find(address);
  if (known == allocations_.end()) return;
  for (const auto& mirror : mirrors_) {
    mirror->Do(Command(MirrorCommandKind::kRelease, known->second.place.number, 0));
  }
  free_numbers_.push_back(known->second.place.number);
  allocations_.erase(known);
}

void GraphMirrors::ForgetCode() {
  for (const auto& [bytes, image] : images_) {
    if (!image.second) continue;
    shm::MirrorCommand command = Command(MirrorCommandKind::kUnloadImage, 0, 0);
    command.image = *image.second;
    for (const auto& mirror : mirrors_) mirror->Do(command);
  }
  images_.clear();
  kernels_.clear();
}

CUresult GraphMirrors::error() {
  for (const auto& mirror : mirrors_) {
    if (const CUresult error = mirror->error(); error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

void GraphMirrors::End() {
  for (const auto& mirror : mirrors_) mirror->End();
}

}  // namespace tally::server
