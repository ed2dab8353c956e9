#include "scheduler/window/repeated_window.h"

#include <algorithm>

#include "base/mixed_hash.h"

namespace tally::scheduler {
std::optional<Window::Entry> RepeatedWindow::Admit(uint64_t name, std::span<const Access> accesses, Extent extent) {
  if (num_admitted_ == kMostSlots) return std::nullopt;
  if (name == 0) name = NameOf(accesses, extent);
  // The window was empty, so slots are given out in turn.
  const auto slot = static_cast<Slot>(num_admitted_);
  for (Step& step : PlacesOf(state_, name)) {
    if (step.state != state_ || step.name != name) continue;
    step.last_use = num_windows_;
    const size_t begin = accesses_.size();
    accesses_.insert(accesses_.end(), accesses.begin(), accesses.end());
    held_.push_back({begin, accesses_.size(), extent});
    state_ = step.next;
    ++num_admitted_;
    return Window::Entry{slot, step.edges};
  }
  CatchUp();
  const std::optional<Window::Entry> entry = window_.Admit(accesses, extent);
  ++num_compared_;
  ++num_admitted_;
  Learn(name, entry->edges);
  return entry;
}

void RepeatedWindow::CatchUp() {
  for (; num_caught_up_ < held_.size(); ++num_caught_up_) {
    const Held& held = held_[num_caught_up_];
    window_.Admit(std::span(accesses_).subspan(held.begin, held.end - held.begin), held.extent);
    ++num_compared_;
  }
}

void RepeatedWindow::Clear() {
  while (window_.pending() != 0) window_.Complete(FirstOf(window_.pending()));
  held_.clear();
  accesses_.clear();
  num_caught_up_ = 0;
  num_admitted_ = 0;
  ++num_windows_;
  state_ = 0;
}

std::span<RepeatedWindow::Step> RepeatedWindow::PlacesOf(uint64_t state, uint64_t name) {
  if (steps_.empty()) return {};
  // States and names often grow together: mixed one after the other, not with each other.
  const uint64_t set = Mixed(Mixed(Mixed(0, state), name), 0) % (kMostStates / kWays);
  return std::span(steps_).subspan(set * kWays, kWays);
}

void RepeatedWindow::Learn(uint64_t name, SlotSet edges) {
  if (steps_.empty()) steps_.resize(kMostStates);
  // An empty one was never of use.
  Step& place = *std::ranges::min_element(PlacesOf(state_, name), {}, &Step::last_use);
  place = {.state = state_, .name = name, .next = ++last_state_, .edges = edges, .last_use = num_windows_};
  state_ = last_state_;
}

uint64_t RepeatedWindow::NameOf(std::span<const Access> accesses, Extent extent) {
  uint64_t hash = Mixed(accesses.size(), static_cast<uint64_t>(extent));
  for (const Access& access : accesses) {
    hash = Mixed(Mixed(hash, access.box.begin()), access.box.end());
    hash = Mixed(hash, access.box.pitch() ^ static_cast<uint64_t>(access.kind));
  }
  if (named_.empty()) named_.resize(kMostNamed);
  const std::span<Named> places = std::span(named_).subspan(hash % (kMostNamed / kWays) * kWays, kWays);
  for (Named& known : places) {
    if (known.name == 0 || known.extent != extent || !std::ranges::equal(known.accesses, accesses)) continue;
    known.last_use = num_windows_;
    return known.name;
  }
  Named& place = *std::ranges::min_element(places, {}, &Named::last_use);
  place.name = 0;  // until it has other accesses
  place.accesses.assign(accesses.begin(), accesses.end());
  place.extent = extent;
  place.last_use = num_windows_;
  return place.name = next_name_++;
}

}  // namespace tally::scheduler
