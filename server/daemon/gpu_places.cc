#include "server/daemon/gpu_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace tally::server {
namespace {

std::string NameOf(std::span<const uint8_t> uuid, size_t ordinal) {
  if (std::ranges::all_of(uuid, [](uint8_t byte) { return byte == 0; })) return fmt::format("GPU {}", ordinal);
  return control::NameOfGpu(uuid);
}

}  // namespace

std::vector<size_t> GpuPlaces::PlacesOf(const control::LinkGpus& gpus) {
  std::vector<size_t> places;
  for (size_t ordinal = 0; ordinal < gpus.num_gpus; ++ordinal) {
    const std::string name = NameOf(gpus.uuid[ordinal], ordinal);
    size_t place = static_cast<size_t>(std::ranges::find(names_, name) - names_.begin());
    if (place == names_.size() && names_.size() < control::kMostGpus) names_.push_back(name);
    place = std::min(place, names_.size() - 1);
    places.push_back(place);
  }
  return places;
}

control::SessionFigures ByPlaces(const control::SessionFigures& figures, const std::vector<size_t>& places) {
  control::SessionFigures moved = figures;
  for (const control::Figure figure : control::kAllFigures) {
    if (figure.row().entries != control::FigureEntries::kByGpu) continue;
    const auto from = figures.entries(figure);
    const auto to = moved.entries(figure);
    for (const bool is_high_priority : {false, true}) {
      for (size_t i = 0; i < places.size(); ++i) to[control::GpuEntry(i, is_high_priority)] = 0;
      for (size_t i = 0; i < places.size(); ++i) {
        to[control::GpuEntry(places[i], is_high_priority)] += from[control::GpuEntry(i, is_high_priority)];
      }
    }
  }
  return moved;
}

}  // namespace tally::server
