#include "ptx-transforms/syntax/register_names.h"

#include <algorithm>
#include <array>

namespace tally::ptx_transforms {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view WithoutTrailingDigits(std::string_view name) {
  while (!name.empty() && IsDigit(name.back())) name.remove_suffix(1);
  return name;
}

}  // namespace

bool IsSpecialRegister(std::string_view name) {
  static constexpr std::array<std::string_view, 41> kNames = {"%aggr_smem_size",
                                                              "%clock",
                                                              "%clock64",
                                                              "%clock_hi",
                                                              "%cluster_ctaid",
                                                              "%cluster_ctarank",
                                                              "%cluster_nctaid",
                                                              "%cluster_nctarank",
                                                              "%clusterid",
                                                              "%ctaid",
                                                              "%current_graph_exec",
                                                              "%dynamic_smem_size",
                                                              "%globaltimer",
                                                              "%globaltimer_hi",
                                                              "%globaltimer_lo",
                                                              "%gridid",
                                                              "%is_explicit_cluster",
                                                              "%laneid",
                                                              "%lanemask_eq",
                                                              "%lanemask_ge",
                                                              "%lanemask_gt",
                                                              "%lanemask_le",
                                                              "%lanemask_lt",
                                                              "%nclusterid",
                                                              "%nctaid",
                                                              "%nsmid",
                                                              "%ntid",
                                                              "%nwarpid",
                                                              "%pm0",
                                                              "%pm1",
                                                              "%pm2",
                                                              "%pm3",
                                                              "%pm4",
                                                              "%pm5",
                                                              "%pm6",
                                                              "%pm7",
                                                              "%smid",
                                                              "%tid",
                                                              "%total_smem_size",
                                                              "%warpid",
                                                              "%reserved_smem_offset_begin"};
  if (name.size() < 4 || name[0] != '%') return false;
  // Nearly all names are %r1, %rd12, %fd3: none of the predefined ones has a digit in these places.
  if (IsDigit(name[2])) return false;
  if (IsDigit(name[3]) && name[1] != 'p') return false;
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
  if (name.starts_with("%envreg")) return name.size() > 7 && WithoutTrailingDigits(name) == "%envreg";
  if (name.starts_with("%pm") && name.ends_with("_64")) return IsSpecialRegister(name.substr(0, name.size() - 3));
  return name.starts_with("%reserved_smem_offset_");
}

void RegisterNames::CloseScope() {
  for (size_t i = scope_starts_.back(); i < declared_.size(); ++i) {
    auto& counts = declared_[i].is_range ? num_prefixes_ : num_names_;
    const auto found = counts.find(declared_[i].name);
    if (--found->second == 0) counts.erase(found);
  }
  declared_.resize(scope_starts_.back());
  scope_starts_.pop_back();
}

void RegisterNames::Declare(std::string_view name, bool is_range) {
  if (name.starts_with('%') || scope_starts_.empty()) return;  // a name with % is a register without being asked for
  declared_.push_back({name, is_range});
  ++(is_range ? num_prefixes_ : num_names_)[name];
}

void RegisterNames::DeclareVariable(std::string_view name) {
  if (name.starts_with('%')) ++percent_variables_[name];
}

bool RegisterNames::IsRegister(std::string_view name) const {
  if (name.starts_with('%')) return percent_variables_.empty() || !percent_variables_.contains(name);
  if (num_names_.contains(name)) return true;
  if (num_prefixes_.empty()) return false;
  // r<10> declares r0 to r9; t1<5> declares t10 to t14, so every split between digits counts.
  const std::string_view stem = WithoutTrailingDigits(name);
  constexpr size_t kMaxIndexDigits = 10;
  const size_t shortest = std::max(stem.size(), name.size() > kMaxIndexDigits ? name.size() - kMaxIndexDigits : 0);
  for (size_t size = shortest; size < name.size(); ++size)
    if (num_prefixes_.contains(name.substr(0, size))) return true;
  return false;
}

}  // namespace tally::ptx_transforms
