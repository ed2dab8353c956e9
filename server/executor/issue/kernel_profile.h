// What is known about one kernel of best-effort programs: how its launches did in each form, and which variants exist.
//
// One per (image, kernel), shared by every session of the executor that loads the same image, so that a second program
// starts with what the first one taught. Thread-safe: channels of several sessions launch, the compiler publishes,
// people look.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_cache.h"
#include "scheduler/gate_choice.h"
#include "scheduler/variant_choice.h"
#include "server/executor/issue/compiled_variants.h"
#include "server/executor/issue/kernel_report.h"

namespace tally::server {

class KernelProfile {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  // Programs with more shapes of one kernel than this run the rest of them as they are.
  static constexpr size_t kMaxShapes = 512;

  // `refusal`: why this kernel has no variants for sure (its image has no PTX); empty: they can be asked for.
  KernelProfile(std::string kernel, FileCache::Key image, std::string refusal)
      : kernel_(std::move(kernel)), image_(image), refusal_(std::move(refusal)) {}

  const std::string& kernel() const { return kernel_; }
  const FileCache::Key& image() const { return image_; }

  struct Plan {
    scheduler::LaunchCandidate candidate;
    bool is_sample = false;         // time it
    bool wants_variants = false;    // once per kernel: ask the compiler
    bool wants_candidates = false;  // the variants exist: say what can be tried for this shape (SetCandidates)
    Nanoseconds original_duration{0};
    Nanoseconds piece{0};     // what of the launch runs to its end once begun takes about so long; zero: not known
    Nanoseconds duration{0};  // of the whole launch, as far as anything is known; zero: not yet
    bool is_settled = false;  // there is no other form, or all have been tried
  };
  // Counts a launch and says how it should be done.
  Plan PlanLaunch(const LaunchShape& shape, Nanoseconds threshold);
  void OnDuration(const LaunchShape& shape, const scheduler::LaunchCandidate& candidate, Nanoseconds duration);
  void OnTurnaround(const LaunchShape& shape, const scheduler::LaunchCandidate& candidate, Nanoseconds turnaround);
  void OnSlice(const LaunchShape& shape, const scheduler::LaunchCandidate& candidate, Nanoseconds duration);
  // As PlanLaunch, for a form that nobody chose (forced_form.h).
  Plan PlanForced(const LaunchShape& shape, const scheduler::LaunchCandidate& candidate);
  // For a launch that may be gated, which goes before all other forms.
  struct GatePlan {
    bool wants_variants = false;       // once per kernel: ask the compiler
    Nanoseconds original_duration{0};  // zero: not measured
    uint64_t num_launches = 0;         // so far
  };
  GatePlan PlanGated(const LaunchShape& shape);
  // Why it has no gate, for people.
  void SetGateRefusal(const std::string& refusal);
  // It has one: counts a launch and says whether to use it. `chunk`: as GateParameters has it; `piece`: about how long
  // what has begun runs on after a stop.
  struct GateUse {
    bool is_gated = true;
    bool is_sample = false;   // time it
    Nanoseconds duration{0};  // as far as anything is known; zero: not yet
  };
  GateUse UseGate(const LaunchShape& shape, uint32_t chunk, Nanoseconds piece, Nanoseconds threshold);
  void OnGateDuration(const LaunchShape& shape, bool is_gated, Nanoseconds duration);
  // Whether its blocks run on for long after a stop, which no gate ends (GateChoice::kLongBlocks).
  bool OnGateTurnaround(const LaunchShape& shape, Nanoseconds turnaround);
  // `threshold`: what they were made for.
  void SetCandidates(const LaunchShape& shape, std::span<const scheduler::LaunchCandidate> candidates,
                     Nanoseconds threshold);

  // Null until the compiler is done.
  std::shared_ptr<const CompiledVariants> variants() const;
  void SetVariants(std::shared_ptr<const CompiledVariants> variants);

  // `threshold`: for shapes whose launches were not planned for one.
  std::vector<KernelReport> Report(Nanoseconds threshold) const;

  // What was measured, as text to keep across restarts, and back. Restoring what is not such text does nothing.
  std::string Save() const;
  void Restore(const std::string& text);
  // Whether there is more to be kept than at the last Save.
  bool has_news() const;

 private:
  struct Shape {
    explicit Shape(uint64_t num_blocks) : choice(num_blocks) {}
    scheduler::VariantChoice choice;
    uint64_t num_launches = 0;
    std::optional<Nanoseconds> threshold;  // of the last planned launch: sessions may have their own
    std::optional<scheduler::LaunchCandidate> forced;
    std::optional<scheduler::LaunchCandidate> gated;  // how it was launched last, if it can be
    scheduler::GateChoice gate;
    Nanoseconds gate_piece{0};
  };
  KernelReport ReportLocked(const LaunchShape& launch_shape, const Shape& shape, Nanoseconds threshold) const;
  std::string RemarkLocked(const Shape& shape, const KernelReport& report, Nanoseconds threshold) const;
  Shape* FindLocked(const LaunchShape& shape);

  const std::string kernel_;
  const FileCache::Key image_;
  mutable std::mutex mutex_;
  std::string refusal_;  // guarded by mutex_, as all below
  std::string gate_refusal_;
  bool is_gate_wanted_ = false;
  bool is_requested_ = false;
  std::shared_ptr<const CompiledVariants> variants_;
  std::map<LaunchShape, Shape> shapes_;
  mutable bool has_news_ = false;
};

}  // namespace tally::server
