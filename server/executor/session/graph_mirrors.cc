#include "server/executor/session/graph_mirrors.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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
  time_slices_.resize(mirrors_.size());
  // So tallyd knows that work comes there, and whom it comes beside.
  for (const int ordinal : ordinals_) core_.used_devices.Note(ordinal);
  home_ = std::make_unique<HomeQueue>(driver_, core_.devices->completions(home), names_);
  queues_.push_back(home_.get());
  for (const auto& mirror : mirrors_) {
    mirror_queues_.push_back(std::make_unique<MirrorQueue>(*mirror));
    queues_.push_back(mirror_queues_.back().get());
  }
  return true;
}

void GraphMirrors::Say(std::string_view what, std::string_view why) {
  constexpr int kMostSaid = 8;
  if (num_said_++ < kMostSaid) LOG_WARNING("graphs: {} stays on its GPU: {}", what, why);
}

CUresult GraphMirrors::Everywhere(const shm::MirrorCommand& command, std::span<const std::byte> bytes, int fd) {
  for (const auto& mirror : mirrors_) {
    if (const CUresult r = mirror->Do(command, bytes, fd); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult GraphMirrors::Load(uint32_t number, const ImageBytes& image) {
  const auto file = CreateSealedMemfd("tally-image", image.bytes.size());
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  for (size_t written = 0; written < image.bytes.size();) {
    const auto now =
        ::pwrite(file->get(), image.bytes.data() + written, image.bytes.size() - written, static_cast<off_t>(written));
    if (now <= 0) return CUDA_ERROR_OPERATING_SYSTEM;
    written += static_cast<size_t>(now);
  }
  shm::MirrorCommand command = Command(MirrorCommandKind::kLoadImage, 0, image.bytes.size());
  command.image = number;
  return Everywhere(command, {}, file->get());
}

std::optional<uint32_t> GraphMirrors::NumberOf(const std::shared_ptr<ImageBytes>& image) {
  if (const auto known = images_.find(image.get()); known != images_.end()) return known->second.second;
  // Numbers of what was refused are not used again.
  const auto number = static_cast<uint32_t>(images_.size());
  const CUresult loaded = number < shm::kMirrorMaxImages ? Load(number, *image) : CUDA_ERROR_OUT_OF_MEMORY;
  if (loaded != CUDA_SUCCESS) Say(fmt::format("code of {} bytes", image->bytes.size()), loaded);
  return images_.emplace(image.get(), std::pair(image, loaded == CUDA_SUCCESS ? std::optional(number) : std::nullopt))
      .first->second.second;
}

std::optional<uint32_t> GraphMirrors::NumberOf(Kernel& kernel) {
  if (const auto known = kernels_.find(&kernel); known != kernels_.end()) return known->second;
  std::optional<uint32_t>& number = kernels_[&kernel];
  const LoadedImage& owner = OwnerOf(kernel);
  const std::string name = NameOf(driver_, kernel);
  // Code of several parts, or made with options, would not be the same code.
  const char* const why = owner.bytes == nullptr                            ? "its code was not kept"
                          : !owner.bytes->prelinked.empty()                 ? "its code has several parts"
                          : !owner.jit_options.empty()                      ? "its code was loaded with options"
                          : name.empty() || name.size() > shm::kMirrorBytes ? "its name is too long"
                          : kernels_.size() > shm::kMirrorMaxFunctions      ? "there are too many"
                                                                            : nullptr;
  if (why != nullptr) {
    Say(name, why);
    return std::nullopt;
  }
  const auto image = NumberOf(owner.bytes);
  if (!image) return std::nullopt;
  shm::MirrorCommand command = Command(MirrorCommandKind::kFunction, 0, name.size());
  command.image = *image;
  command.function = static_cast<uint32_t>(kernels_.size() - 1);
  if (const CUresult r = Everywhere(command, std::as_bytes(std::span(name))); r != CUDA_SUCCESS) {
    Say(name, r);
    return std::nullopt;
  }
  return number = command.function;
}

// `fd`: the memory of GPU `gpu`, to all others.
CUresult GraphMirrors::ShareOut(const MirroredAllocation& place, uint32_t gpu, int fd) {
  shm::MirrorCommand command = Command(MirrorCommandKind::kMapOther, place.number, place.num_bytes);
  command.gpu = gpu;
  for (uint32_t other = 1; other <= mirrors_.size(); ++other) {
    const CUresult r = other != gpu ? mirrors_[other - 1]->Do(command, {}, fd) : CUDA_SUCCESS;
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult GraphMirrors::Map(const MirroredAllocation& place, int fd) {
  if (const CUresult r = ShareOut(place, 0, fd); r != CUDA_SUCCESS) return r;
  for (uint32_t gpu = 1; gpu <= mirrors_.size(); ++gpu) {
    Mirror& mirror = *mirrors_[gpu - 1];
    const auto position = mirror.Post(Command(MirrorCommandKind::kMapOwn, place.number, place.num_bytes));
    if (!position) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (const CUresult r = mirror.Wait(*position); r != CUDA_SUCCESS) return r;
    const auto made = mirror.TakeParcel(*position);
    if (!made) return CUDA_ERROR_OPERATING_SYSTEM;
    if (const CUresult r = ShareOut(place, gpu, made->get()); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

const MirroredAllocation* GraphMirrors::Have(const SpreadMemory::Allocation& allocation) {
  if (const auto known = allocations_.find(allocation.address); known != allocations_.end()) {
    return &known->second.place;
  }
  if (refused_.contains(allocation.id)) return nullptr;
  if (free_numbers_.empty() && num_numbers_ == shm::kMirrorMaxAllocations) return nullptr;
  if (free_numbers_.empty()) free_numbers_.push_back(num_numbers_++);
  OfAllocation made{.place = {free_numbers_.back(), allocation.address, allocation.num_bytes}, .charges = {}};
  free_numbers_.pop_back();
  const std::string why = WhyNot(allocation, &made);
  if (why.empty()) return &allocations_.emplace(allocation.address, std::move(made)).first->second.place;
  Say(fmt::format("memory of {} bytes at {:#x}", allocation.num_bytes, allocation.address), why);
  for (const auto& mirror : mirrors_) mirror->Do(Command(MirrorCommandKind::kRelease, made.place.number, 0));
  free_numbers_.push_back(made.place.number);
  refused_.insert(allocation.id);
  return nullptr;
}

std::string GraphMirrors::WhyNot(const SpreadMemory::Allocation& allocation, OfAllocation* made) {
  if (allocation.device != home_device_) return "it is another GPU's";
  const UniqueFd fd = memory_.Export(allocation.id);
  if (!fd.valid()) return "the driver does not export it";
  for (const int ordinal : ordinals_) {
    auto charge = take_charge_(ordinal, allocation.num_bytes);
    if (!charge) return fmt::format("GPU {} has no room for it", ordinal);
    made->charges.push_back(std::move(*charge));
  }
  shm::MirrorCommand reserve = Command(MirrorCommandKind::kReserve, made->place.number, allocation.num_bytes);
  reserve.address = allocation.address;
  if (const CUresult r = Everywhere(reserve); r != CUDA_SUCCESS) {
    return fmt::format("its address is not to be had there ({})", CudaErrorName(driver_, r));
  }
  const CUresult mapped = Map(made->place, fd.get());
  return mapped == CUDA_SUCCESS ? "" : fmt::format("it could not be mapped ({})", CudaErrorName(driver_, mapped));
}

bool GraphMirrors::Has(const MirroredAllocation& allocation) const {
  const auto known = allocations_.find(allocation.address);
  return known != allocations_.end() && known->second.place.number == allocation.number;
}

void GraphMirrors::KeepTimeSlices() {
  for (size_t i = 0; i < mirrors_.size(); ++i) {
    const auto wanted = core_.time_slices.on(ordinals_[i]);
    if (wanted == std::exchange(time_slices_[i], wanted)) continue;
    shm::MirrorCommand command = Command(MirrorCommandKind::kTimeSlice, 0, 0);
    command.value = static_cast<uint32_t>(wanted.count());
    mirrors_[i]->Post(command);
  }
}

void GraphMirrors::DropTasks() {
  for (const auto& [gpu, task] : std::exchange(*dropped_, {})) {
    shm::MirrorCommand command = Command(MirrorCommandKind::kDropTask, 0, 0);
    command.task = task;
    mirrors_[gpu - 1]->Do(command);
    free_tasks_.push_back(task);
  }
}

std::unique_ptr<const DefinedTask> GraphMirrors::Define(uint32_t gpu, std::span<const StepCommand> commands) {
  DropTasks();
  if (commands.size() > kMostCommands || (free_tasks_.empty() && num_tasks_ == shm::kMirrorMaxTasks)) return nullptr;
  if (free_tasks_.empty()) free_tasks_.push_back(num_tasks_++);
  auto task = std::make_unique<const DefinedTask>(dropped_, gpu, free_tasks_.back());
  free_tasks_.pop_back();
  if (const CUresult r = DescribeTask(*mirrors_[gpu - 1], task->number(), commands); r != CUDA_SUCCESS) {
    Say(fmt::format("a task of {} commands", commands.size()), r);
    return nullptr;
  }
  return task;
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
  DropTasks();
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
