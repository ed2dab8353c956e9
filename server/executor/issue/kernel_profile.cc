#include "server/executor/issue/kernel_profile.h"

#include <fmt/format.h>

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
  plan.duration = shape->choice.DurationOf(plan.candidate);
  plan.is_settled = !refusal_.empty() || shape->choice.is_settled();
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
  if (candidate.form == LaunchForm::kGated) {
    shape->gated = candidate;
    plan.is_sample = shape->gate.NextLaunch(Nanoseconds(0), Nanoseconds(0)).is_sample;
    plan.duration = shape->gate.duration();
    return plan;
  }
  shape->choice.SetCandidates({&candidate, 1}, Nanoseconds(0));
  plan.is_sample = shape->choice.IsSample(candidate);
  plan.piece = shape->choice.PieceOf(candidate);
  plan.duration = shape->choice.DurationOf(candidate);
  plan.is_settled = true;
  return plan;
}

KernelProfile::GatePlan KernelProfile::PlanGated(const LaunchShape& launch_shape) {
  const std::lock_guard lock(mutex_);
  GatePlan plan;
  is_gate_wanted_ = true;
  plan.wants_variants = refusal_.empty() && variants_ == nullptr && !is_requested_;
  is_requested_ = is_requested_ || plan.wants_variants;
  if (const auto found = shapes_.find(launch_shape); found != shapes_.end()) {
    plan.original_duration = found->second.choice.original().duration;
    plan.num_launches = found->second.num_launches;
  }
  return plan;
}

void KernelProfile::SetGateRefusal(const std::string& refusal) {
  const std::lock_guard lock(mutex_);
  gate_refusal_ = refusal;
}

KernelProfile::GateUse KernelProfile::UseGate(const LaunchShape& launch_shape, uint32_t chunk, Nanoseconds piece,
                                              Nanoseconds threshold) {
  const std::lock_guard lock(mutex_);
  Shape* shape = FindLocked(launch_shape);
  if (shape == nullptr) return {};
  ++shape->num_launches;
  shape->threshold = threshold;
  shape->gated = {LaunchForm::kGated, chunk};
  shape->gate_piece = piece;
  const Nanoseconds original = shape->choice.original().duration;
  const scheduler::GateChoice::Next next = shape->gate.NextLaunch(original, threshold);
  const bool is_gate_timed = next.is_gated && shape->gate.has_duration();
  return {next.is_gated, next.is_sample, is_gate_timed ? shape->gate.duration() : original};
}

void KernelProfile::OnGateDuration(const LaunchShape& launch_shape, bool is_gated, Nanoseconds duration) {
  const std::lock_guard lock(mutex_);
  if (Shape* shape = FindLocked(launch_shape)) shape->gate.OnDuration(is_gated, duration);
}

bool KernelProfile::OnGateTurnaround(const LaunchShape& launch_shape, Nanoseconds turnaround) {
  const std::lock_guard lock(mutex_);
  Shape* shape = FindLocked(launch_shape);
  if (shape == nullptr) return false;
  shape->gate.OnTurnaround(turnaround);
  return shape->gate.has_long_blocks();
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
  if (!variants->slices.exists() && !variants->persistent_blocks.exists() && !variants->gated.exists())
    refusal_ = variants->persistent_blocks.refusal;
  variants_ = std::move(variants);
}

std::vector<KernelReport> KernelProfile::Report(Nanoseconds common_threshold) const {
  const std::lock_guard lock(mutex_);
  std::vector<KernelReport> reports;
  for (const auto& [launch_shape, shape] : shapes_) {
    if (shape.num_launches == 0) continue;
    reports.push_back(ReportLocked(launch_shape, shape, shape.threshold.value_or(common_threshold)));
  }
  return reports;
}

KernelReport KernelProfile::ReportLocked(const LaunchShape& launch_shape, const Shape& shape,
                                         Nanoseconds threshold) const {
  KernelReport report;
  report.kernel = kernel_;
  report.shape = launch_shape;
  report.num_launches = shape.num_launches;
  const VariantChoice::Measured& original = shape.choice.original();
  report.original_duration = original.duration;
  if (shape.gated && !shape.gate.is_left_alone()) {
    report.chosen.candidate = *shape.gated;
    report.chosen.duration = shape.gate.has_duration() ? shape.gate.duration() : original.duration;
    report.chosen.num_samples = shape.gate.num_samples();
    report.chosen.is_turnaround_measured = shape.gate.is_turnaround_measured();
    const Nanoseconds piece = shape.gate_piece != Nanoseconds(0) ? shape.gate_piece : report.chosen.duration;
    report.chosen.turnaround = shape.gate.Turnaround(piece + scheduler::kGiveBackOverhead);
  } else if (shape.gated) {
    report.chosen = original;
  } else {
    report.chosen = shape.forced ? shape.choice.Of(*shape.forced) : shape.choice.Best(threshold);
  }
  report.gpu_time = report.chosen.duration * static_cast<int64_t>(shape.num_launches);
  report.remark = RemarkLocked(shape, report, threshold);
  return report;
}

std::string KernelProfile::RemarkLocked(const Shape& shape, const KernelReport& report, Nanoseconds threshold) const {
  if (shape.gated) {
    if (shape.gate.has_long_blocks()) return "its blocks run on for long after a stop, and no gate ends them";
    if (!shape.gate.is_left_alone()) return "";
    return fmt::format("short, and its gate would cost {:.1f} us a launch",
                       static_cast<double>((shape.gate.duration() - report.original_duration).count()) / 1e3);
  }
  const bool is_original = report.chosen.candidate.form == LaunchForm::kOriginal;
  if (report.chosen.turnaround <= threshold && is_original) {
    return report.chosen.num_samples == 0 ? "not measured yet" : "";
  }
  std::string gate = gate_refusal_;
  if (gate.empty() && variants_ != nullptr) gate = variants_->gated.refusal;
  gate = is_gate_wanted_ && is_original && !gate.empty() ? "; no gate: " + gate : "";
  if (!refusal_.empty()) return refusal_ + gate;
  if (is_requested_ && variants_ == nullptr) return "variants are being compiled";
  if (variants_ != nullptr && !shape.choice.is_settled()) return "variants are being measured";
  if (report.chosen.turnaround <= threshold) return "";
  if (is_original) {
    return "no variant meets the threshold, or gives back sooner without taking several times as long" + gate;
  }
  return "no variant meets the threshold; this one gives back soonest";
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
