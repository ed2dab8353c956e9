#include "client-shim/arrivals/arrival_learner.h"

#include <algorithm>
#include <bit>

namespace tally::client_shim {
namespace {

// Three of four: what is expected in vain costs best-effort work more than a hidden switch gives the service.
constexpr int kRightOfFour = 3;
// Of the leads on either side, those that are left out: one of 32.
constexpr size_t kLeftOut = 20;
// On either side of the window.
constexpr uint32_t kMarginNs = 30'000;

size_t FirstPlace(uint64_t key) {
  return (key >> 1) % (ArrivalLearner::kSites / ArrivalLearner::kWays) * ArrivalLearner::kWays;
}

}  // namespace

ArrivalLearner::Site* ArrivalLearner::Find(uint64_t key) {
  const size_t first = FirstPlace(key);
  for (size_t way = 0; way < kWays; ++way) {
    if (sites_[first + way].key == key) return &sites_[first + way];
  }
  return nullptr;
}

ArrivalLearner::Site& ArrivalLearner::FindOrMake(uint64_t key, uint64_t now_ns) {
  Site* site = Find(key);
  if (site == nullptr) {
    Site* const first = &sites_[FirstPlace(key)];
    site = std::min_element(first, first + kWays, [](const Site& a, const Site& b) { return a.used_ns < b.used_ns; });
    *site = {};
    site->key = key;
  }
  site->used_ns = now_ns;
  return *site;
}

void ArrivalLearner::NoteOutcome(uint64_t key, bool is_right) {
  Site* const site = Find(key);  // null: others have taken its place
  if (site == nullptr) return;
  site->outcomes = site->outcomes << 1 | (is_right ? 1 : 0);
  site->num_outcomes = static_cast<uint8_t>(std::min(site->num_outcomes + 1, kOutcomes));
}

void ArrivalLearner::NoteLead(Site& site, uint32_t lead_ns) {
  site.leads[site.next_lead] = lead_ns;
  site.next_lead = static_cast<uint8_t>((site.next_lead + 1) % kLeads);
  site.num_leads = static_cast<uint8_t>(std::min<size_t>(site.num_leads + 1, kLeads));
  std::array<uint32_t, kLeads> sorted = site.leads;
  std::sort(sorted.begin(), sorted.begin() + site.num_leads);
  const uint32_t from = sorted[site.num_leads / kLeftOut];
  site.from_ns = from > kMarginNs ? from - kMarginNs : 1;
  site.until_ns = sorted[site.num_leads - 1 - site.num_leads / kLeftOut] + kMarginNs;
}

bool ArrivalLearner::IsBelieved(const Site& site) {
  return site.num_outcomes >= kTrained && std::popcount(site.outcomes) * 4 >= site.num_outcomes * kRightOfFour &&
         site.until_ns >= kShortestLeadNs && site.until_ns - site.from_ns <= kWidestWindowNs;
}

// Those to which nothing came.
void ArrivalLearner::Expire(uint64_t now_ns) {
  size_t num_expired = 0;
  while (num_expired < num_pending_ && now_ns - pending_[num_expired].at_ns > kHorizonNs) {
    NoteOutcome(pending_[num_expired++].key, false);
  }
  std::move(pending_.begin() + num_expired, pending_.begin() + num_pending_, pending_.begin());
  num_pending_ -= num_expired;
}

std::optional<ArrivalLearner::Window> ArrivalLearner::OnWake(uint64_t site_number, uint64_t now_ns) {
  const uint64_t key = site_number | 1;
  if (now_ns < last_ns_) num_pending_ = 0;  // the clock has jumped
  last_ns_ = now_ns;
  Expire(now_ns);
  Site& site = FindOrMake(key, now_ns);
  if (num_pending_ == kPending) {  // the oldest has no outcome
    std::move(pending_.begin() + 1, pending_.end(), pending_.begin());
    --num_pending_;
  }
  pending_[num_pending_++] = {key, now_ns, site.from_ns, site.until_ns};
  if (!IsBelieved(site)) return std::nullopt;
  return Window{now_ns + site.from_ns, now_ns + site.until_ns};
}

void ArrivalLearner::OnWorkBegun(uint64_t at_ns) {
  // Those after it wait for the next.
  size_t num_before = 0;
  for (; num_before < num_pending_ && pending_[num_before].at_ns <= at_ns; ++num_before) {
    const Pending& wake = pending_[num_before];
    const uint64_t lead_ns = at_ns - wake.at_ns;
    const bool was_known = wake.until_ns != 0;
    const bool is_near = lead_ns <= kHorizonNs;
    NoteOutcome(wake.key, is_near && (!was_known || (lead_ns >= wake.from_ns && lead_ns <= wake.until_ns)));
    Site* const site = Find(wake.key);
    if (site != nullptr && is_near) NoteLead(*site, static_cast<uint32_t>(lead_ns));
  }
  std::move(pending_.begin() + num_before, pending_.begin() + num_pending_, pending_.begin());
  num_pending_ -= num_before;
}

}  // namespace tally::client_shim
