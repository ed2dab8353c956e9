#include "server/variants/kernel_profile.h"

#include <nlohmann/json.hpp>

namespace tally::server {
namespace {

using Json = nlohmann::json;
using scheduler::LaunchCandidate;
using scheduler::LaunchForm;
using scheduler::VariantChoice;

Json ToJson(const VariantChoice::Measured& measured) {
  return {{"form", static_cast<int>(measured.candidate.form)},
          {"degree", measured.candidate.degree},
          {"duration_ns", measured.duration.count()},
          {"turnaround_ns", measured.turnaround.count()},
          {"num_samples", measured.num_samples},
          {"is_turnaround_measured", measured.is_turnaround_measured}};
}

VariantChoice::Measured MeasuredFromJson(const Json& json) {
  VariantChoice::Measured measured;
  measured.candidate.form = static_cast<LaunchForm>(json.at("form").get<int>());
  measured.candidate.degree = json.at("degree").get<uint32_t>();
  measured.duration = std::chrono::nanoseconds(json.at("duration_ns").get<int64_t>());
  measured.turnaround = std::chrono::nanoseconds(json.at("turnaround_ns").get<int64_t>());
  measured.num_samples = json.at("num_samples").get<uint32_t>();
  measured.is_turnaround_measured = json.at("is_turnaround_measured").get<bool>();
  return measured;
}

}  // namespace

KernelProfile::Shape* KernelProfile::FindLocked(const LaunchShape& shape) {
  if (const auto found = shapes_.find(shape); found != shapes_.end()) return &found->second;
  if (shapes_.size() >= kMaxShapes) return nullptr;
  return &shapes_.emplace(shape, Shape(shape.num_blocks())).first->second;
}

KernelProfile::Plan KernelProfile::PlanLaunch(const LaunchShape& launch_shape, Nanoseconds threshold) {
  const std::lock_guard lock(mutex_);
  Plan plan;
  Shape* shape = FindLocked(launch_shape);
  if (shape == nullptr) return plan;
  ++shape->num_launches;
  shape->threshold = threshold;
  const VariantChoice::Next next = shape->choice.NextLaunch(threshold);
  plan.candidate = next.candidate;
  plan.is_sample = next.is_sample;
  const bool is_original = next.candidate.form == LaunchForm::kOriginal;
  const bool is_known_from_before = !is_original && variants_ == nullptr;
  // Refused, or its code is yet to be made, or fetched.
  if (!refusal_.empty() || is_known_from_before) plan = {.candidate = {}, .is_sample = next.is_sample && is_original};
  plan.piece = shape->choice.PieceOf(plan.candidate);
  if (!refusal_.empty()) return plan;
  const bool wants = shape->choice.WantsVariants(threshold);
  if (!wants && !is_known_from_before) return plan;
  plan.wants_candidates = wants && variants_ != nullptr;
  plan.wants_variants = variants_ == nullptr && !is_requested_;
  is_requested_ = true;
  plan.original_duration = shape->choice.original().duration;
  return plan;
}

void KernelProfile::OnDuration(const LaunchShape& launch_shape, const LaunchCandidate& candidate,
                               Nanoseconds duration) {
  const std::lock_guard lock(mutex_);
  if (Shape* shape = FindLocked(launch_shape)) shape->choice.OnDuration(candidate, duration);
  has_news_ = true;
}

void KernelProfile::OnTurnaround(const LaunchShape& launch_shape, const LaunchCandidate& candidate,
                                 Nanoseconds turnaround) {
  const std::lock_guard lock(mutex_);
  if (Shape* shape = FindLocked(launch_shape)) shape->choice.OnTurnaround(candidate, turnaround);
  has_news_ = true;
}

void KernelProfile::OnSlice(const LaunchShape& launch_shape, const LaunchCandidate& candidate, Nanoseconds duration) {
  const std::lock_guard lock(mutex_);
  if (Shape* shape = FindLocked(launch_shape)) shape->choice.OnSlice(candidate, duration);
  has_news_ = true;
}

KernelProfile::Plan KernelProfile::PlanForced(const LaunchShape& launch_shape, const LaunchCandidate& candidate) {
  const std::lock_guard lock(mutex_);
  Plan plan;
  plan.candidate = candidate;
  Shape* shape = FindLocked(launch_shape);
  if (shape == nullptr) return plan;
  ++shape->num_launches;
  shape->forced = candidate;
  shape->choice.SetCandidates({&candidate, 1}, Nanoseconds(0));
  plan.is_sample = shape->choice.IsSample(candidate);
  plan.piece = shape->choice.PieceOf(candidate);
  return plan;
}

KernelProfile::GatePlan KernelProfile::PlanGated(const LaunchShape& launch_shape) {
  const std::lock_guard lock(mutex_);
  GatePlan plan;
  plan.wants_variants = refusal_.empty() && variants_ == nullptr && !is_requested_;
  is_requested_ = is_requested_ || plan.wants_variants;
  if (const auto found = shapes_.find(launch_shape); found != shapes_.end()) {
    plan.original_duration = found->second.choice.original().duration;
    plan.num_launches = found->second.num_launches;
  }
  return plan;
}

void KernelProfile::CountGated(const LaunchShape& launch_shape, uint32_t chunk) {
  const std::lock_guard lock(mutex_);
  Shape* shape = FindLocked(launch_shape);
  if (shape == nullptr) return;
  ++shape->num_launches;
  shape->gated = {LaunchForm::kGated, chunk};
}

void KernelProfile::SetCandidates(const LaunchShape& launch_shape, std::span<const LaunchCandidate> candidates,
                                  Nanoseconds threshold) {
  const std::lock_guard lock(mutex_);
  Shape* shape = FindLocked(launch_shape);
  if (shape != nullptr && shape->choice.WantsVariants(threshold)) shape->choice.SetCandidates(candidates, threshold);
}

std::shared_ptr<const CompiledVariants> KernelProfile::variants() const {
  const std::lock_guard lock(mutex_);
  return variants_;
}

void KernelProfile::SetVariants(std::shared_ptr<const CompiledVariants> variants) {
  const std::lock_guard lock(mutex_);
  if (!variants->slices.exists() && !variants->workers.exists() && !variants->gated.exists())
    refusal_ = variants->workers.refusal;
  variants_ = std::move(variants);
}

std::vector<KernelReport> KernelProfile::Report(Nanoseconds common_threshold) const {
  const std::lock_guard lock(mutex_);
  std::vector<KernelReport> reports;
  for (const auto& [launch_shape, shape] : shapes_) {
    if (shape.num_launches == 0) continue;
    const Nanoseconds threshold = shape.threshold.value_or(common_threshold);
    KernelReport report;
    report.kernel = kernel_;
    report.shape = launch_shape;
    report.num_launches = shape.num_launches;
    report.chosen = shape.forced ? shape.choice.Of(*shape.forced) : shape.choice.Best(threshold);
    if (shape.gated && !shape.forced) report.chosen.candidate = *shape.gated;
    report.original_duration = shape.choice.original().duration;
    report.gpu_time = report.chosen.duration * static_cast<int64_t>(shape.num_launches);
    const bool meets = report.chosen.turnaround <= threshold;
    if (meets && report.chosen.candidate.form == LaunchForm::kOriginal) {
      report.remark = report.chosen.num_samples == 0 ? "not measured yet" : "";
    } else if (!refusal_.empty()) {
      report.remark = refusal_;
    } else if (is_requested_ && variants_ == nullptr) {
      report.remark = "variants are being compiled";
    } else if (variants_ != nullptr && !shape.choice.is_settled()) {
      report.remark = "variants are being measured";
    } else if (!meets && report.chosen.candidate.form == LaunchForm::kOriginal) {
      report.remark = "no variant meets the threshold, or gives back sooner without taking several times as long";
    } else if (!meets) {
      report.remark = "no variant meets the threshold; this one gives back soonest";
    }
    if (shape.gated && !shape.forced) report.remark.clear();
    reports.push_back(std::move(report));
  }
  return reports;
}

std::string KernelProfile::Save() const {
  const std::lock_guard lock(mutex_);
  has_news_ = false;
  Json shapes = Json::array();
  for (const auto& [launch_shape, shape] : shapes_) {
    Json measured = Json::array();
    for (const VariantChoice::Measured& one : shape.choice.Everything()) {
      if (one.num_samples != 0) measured.push_back(ToJson(one));
    }
    shapes.push_back({{"grid", launch_shape.grid},
                      {"block", launch_shape.block},
                      {"shared_bytes", launch_shape.shared_bytes},
                      {"candidates_for_ns", shape.choice.candidates_for().count()},
                      {"measured", std::move(measured)}});
  }
  return Json{{"kernel", kernel_}, {"shapes", std::move(shapes)}}.dump();
}

void KernelProfile::Restore(const std::string& text) {
  const std::lock_guard lock(mutex_);
  try {
    const Json json = Json::parse(text);
    for (const Json& entry : json.at("shapes")) {
      LaunchShape launch_shape;
      entry.at("grid").get_to(launch_shape.grid);
      entry.at("block").get_to(launch_shape.block);
      entry.at("shared_bytes").get_to(launch_shape.shared_bytes);
      std::vector<VariantChoice::Measured> measured;
      for (const Json& one : entry.at("measured")) measured.push_back(MeasuredFromJson(one));
      const Nanoseconds candidates_for(entry.value("candidates_for_ns", int64_t{0}));
      if (Shape* shape = FindLocked(launch_shape)) shape->choice.Restore(measured, candidates_for);
    }
  } catch (const Json::exception&) {
    shapes_.clear();
  }
}

bool KernelProfile::has_news() const {
  const std::lock_guard lock(mutex_);
  return has_news_;
}

}  // namespace tally::server
