#include "scheduler/variant_choice.h"

#include <algorithm>

namespace tally::scheduler {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

// More launches than this for one kernel cost more than any threshold is worth.
constexpr uint64_t kMostSlices = 4096;
constexpr uint32_t kMostResidentMultiples = 4;

}  // namespace

std::vector<LaunchCandidate> CandidatesFor(const LaunchSize& size, Nanoseconds original_duration,
                                           Nanoseconds threshold) {
  std::vector<LaunchCandidate> result;
  if (size.can_slice && size.num_blocks > 1) {
    const Nanoseconds piece = std::max(threshold - kGiveBackOverhead, Nanoseconds(1000));
    const uint64_t least = static_cast<uint64_t>(original_duration / piece) + 1;
    for (const uint64_t factor : {1, 2, 4}) {
      const uint64_t degree = std::min({std::max<uint64_t>(least, 2) * factor, size.num_blocks, kMostSlices});
      const LaunchCandidate candidate{LaunchForm::kSlices, static_cast<uint32_t>(degree)};
      if (std::find(result.begin(), result.end(), candidate) == result.end()) result.push_back(candidate);
    }
  }
  const uint64_t resident = uint64_t{size.num_multiprocessors} * size.max_blocks_per_multiprocessor;
  if (resident == 0) return result;
  // Evenly spread multiples, the largest first: it is the fastest as a rule.
  const uint32_t multiples = std::min(size.max_blocks_per_multiprocessor, kMostResidentMultiples);
  for (uint32_t i = multiples; i >= 1; --i) {
    const uint64_t per_multiprocessor = uint64_t{size.max_blocks_per_multiprocessor} * i / multiples;
    const uint64_t persistent_blocks = per_multiprocessor * size.num_multiprocessors;
    // With a persistent block for every block there is no block boundary at which one could yield.
    if (persistent_blocks >= size.num_blocks) continue;
    result.push_back({LaunchForm::kPersistentBlocks, static_cast<uint32_t>(persistent_blocks)});
  }
  return result;
}

VariantChoice::Entry* VariantChoice::Find(const LaunchCandidate& candidate) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.measured.candidate == candidate; });
  return found == entries_.end() ? nullptr : &*found;
}

VariantChoice::Next VariantChoice::NextLaunch(Nanoseconds threshold) {
  for (const Entry& entry : entries_) {
    if (entry.measured.num_samples < kSamplesEach) return {entry.measured.candidate, true};
    // The original alone already gives back soon enough.
    if (!has_candidates_ || entries_[0].measured.turnaround <= threshold) break;
  }
  const bool is_sample = ++num_since_sample_ >= kLaunchesBetweenSamples;
  if (is_sample) num_since_sample_ = 0;
  return {Best(threshold).candidate, is_sample};
}

bool VariantChoice::IsSample(const LaunchCandidate& candidate) {
  const Entry* entry = Find(candidate);
  if (entry != nullptr && entry->measured.num_samples < kSamplesEach) return true;
  const bool is_sample = ++num_since_sample_ >= kLaunchesBetweenSamples;
  if (is_sample) num_since_sample_ = 0;
  return is_sample;
}

Nanoseconds VariantChoice::EstimatedPiece(const LaunchCandidate& candidate, Nanoseconds duration) const {
  switch (candidate.form) {
    case LaunchForm::kOriginal:
    case LaunchForm::kGated:
      return duration;
    case LaunchForm::kSlices:
      return duration / std::max<uint32_t>(candidate.degree, 1);
    case LaunchForm::kPersistentBlocks: {
      const uint64_t rounds = (num_blocks_ + candidate.degree - 1) / std::max<uint32_t>(candidate.degree, 1);
      return duration / static_cast<int64_t>(std::max<uint64_t>(rounds, 1));
    }
  }
  return duration;
}

void VariantChoice::OnDuration(const LaunchCandidate& candidate, Nanoseconds duration) {
  Entry* entry = Find(candidate);
  if (entry == nullptr) return;
  entry->durations.Add(duration);
  Measured& measured = entry->measured;
  measured.duration = entry->durations.Median();
  measured.num_samples = std::max(measured.num_samples, static_cast<uint32_t>(entry->durations.size()));
  UpdateTurnaround(*entry);
}

void VariantChoice::UpdateTurnaround(Entry& entry) {
  Measured& measured = entry.measured;
  const Nanoseconds estimate = EstimatedPiece(measured.candidate, measured.duration) + kGiveBackOverhead;
  measured.is_turnaround_measured = !entry.turnarounds.empty();
  measured.turnaround = entry.turnarounds.OrEstimate(estimate);
}

void VariantChoice::OnTurnaround(const LaunchCandidate& candidate, Nanoseconds turnaround) {
  Entry* entry = Find(candidate);
  if (entry == nullptr) return;
  entry->turnarounds.Add(turnaround);
  UpdateTurnaround(*entry);
}

bool VariantChoice::WantsVariants(Nanoseconds threshold) const {
  const Measured& original = entries_[0].measured;
  const bool lacks_candidates = !has_candidates_ || threshold * kMuchSooner <= candidates_for_;
  return lacks_candidates && original.num_samples >= kSamplesEach && original.turnaround > threshold;
}

void VariantChoice::SetCandidates(std::span<const LaunchCandidate> candidates, Nanoseconds threshold) {
  candidates_for_ = has_candidates_ ? std::min(candidates_for_, threshold) : threshold;
  has_candidates_ = true;
  for (const LaunchCandidate& candidate : candidates) {
    if (Find(candidate) != nullptr) continue;
    Entry& entry = entries_.emplace_back();
    entry.measured.candidate = candidate;
  }
}

const VariantChoice::Measured& VariantChoice::Best(Nanoseconds threshold) const {
  const Measured* fastest = nullptr;  // that meets the threshold
  const Measured* soonest = &entries_[0].measured;
  for (const Entry& entry : entries_) {
    const Measured& measured = entry.measured;
    if (measured.num_samples == 0) continue;
    if (measured.turnaround <= threshold && (fastest == nullptr || measured.duration < fastest->duration)) {
      fastest = &measured;
    }
    const bool is_dear = measured.duration > original().duration * kMostSlowdown;
    if (measured.turnaround < soonest->turnaround && !is_dear) soonest = &measured;
  }
  return fastest != nullptr ? *fastest : *soonest;
}

Nanoseconds VariantChoice::PieceOf(const LaunchCandidate& candidate) const {
  const Measured& measured = Of(candidate);
  if (measured.candidate != candidate || measured.num_samples == 0) {
    return EstimatedPiece(candidate, original().duration);
  }
  return std::max(measured.turnaround - kGiveBackOverhead, Nanoseconds(0));
}

VariantChoice::Nanoseconds VariantChoice::DurationOf(const LaunchCandidate& candidate) const {
  const Measured& measured = Of(candidate);
  return measured.num_samples != 0 ? measured.duration : original().duration;
}

const VariantChoice::Measured& VariantChoice::Of(const LaunchCandidate& candidate) const {
  for (const Entry& entry : entries_) {
    if (entry.measured.candidate == candidate) return entry.measured;
  }
  return original();
}

bool VariantChoice::is_settled() const {
  return has_candidates_ && std::all_of(entries_.begin(), entries_.end(),
                                        [](const Entry& entry) { return entry.measured.num_samples >= kSamplesEach; });
}

std::vector<VariantChoice::Measured> VariantChoice::Everything() const {
  std::vector<Measured> result;
  for (const Entry& entry : entries_) result.push_back(entry.measured);
  return result;
}

void VariantChoice::Restore(std::span<const Measured> measured, Nanoseconds candidates_for) {
  candidates_for_ = candidates_for;
  for (const Measured& one : measured) {
    Entry* entry = Find(one.candidate);
    if (entry == nullptr) entry = &entries_.emplace_back();
    entry->measured = one;
    entry->durations.Assign(1, one.duration);
    entry->turnarounds.Assign(one.is_turnaround_measured ? kSamplesEach : 0, one.turnaround);
    UpdateTurnaround(*entry);
    has_candidates_ = has_candidates_ || one.candidate.form != LaunchForm::kOriginal;
  }
}

}  // namespace tally::scheduler
