#include "ptx-transforms/segments/boxes.h"

#include <algorithm>

namespace tally::ptx_transforms {
namespace {

constexpr uint64_t kMaxBoxes = 16;
constexpr WideInteger kAddresses = WideInteger{1} << 64;

struct Bounds {
  WideInteger low = 0;
  WideInteger high = 0;
  bool is_bounded = true;  // above
};

struct Dimension {
  WideInteger stride = 0;
  WideInteger count = 1;
};

// The variables of one access, narrowed by what its guards say.
class Narrowing {
 public:
  Narrowing(const LaunchValues& values, Affine address, std::vector<Affine> constraints)
      : values_(values), address_(std::move(address)), constraints_(std::move(constraints)) {}

  // False: no thread makes the access.
  bool Run() {
    if (!Tighten() || !Tighten()) return false;
    for (size_t k = 0; k < constraints_.size(); ++k)
      if (constraints_[k].num_terms >= 2) Group(constraints_[k]);
    return Tighten() && Tighten();
  }
  const Affine& address() const { return address_; }

  Bounds& BoundsOf(VariableId variable) {
    for (auto& [id, bounds] : bounds_)
      if (id == variable) return bounds;
    Bounds bounds;
    bounds.high = values_.variable(variable).most;
    bounds.is_bounded = values_.variable(variable).is_bounded;
    return bounds_.emplace_back(variable, bounds).second;
  }

 private:
  // The least value of coefficient * variable; nothing if there is none.
  std::optional<WideInteger> LeastOf(const AffineTerm& term) {
    const Bounds bounds = BoundsOf(term.variable);
    if (term.coefficient < 0 && !bounds.is_bounded) return std::nullopt;
    WideInteger least = 0;
    if (__builtin_mul_overflow(term.coefficient, term.coefficient < 0 ? bounds.high : bounds.low, &least))
      return std::nullopt;
    return least;
  }
  // The least value of the constant and of all terms but those that `skip` names.
  template <typename Skip>
  std::optional<WideInteger> LeastWithout(const Affine& sum, Skip skip) {
    WideInteger least = sum.constant;
    for (uint32_t k = 0; k < sum.num_terms; ++k) {
      if (skip(sum.terms[k])) continue;
      const auto part = LeastOf(sum.terms[k]);
      if (!part || __builtin_add_overflow(least, *part, &least)) return std::nullopt;
    }
    return least;
  }

  // Bounds of single variables: of d v + rest <= 0, with the rest as small as it can be.
  bool Tighten() {
    for (const Affine& constraint : constraints_) {
      const auto all = LeastWithout(constraint, [](const AffineTerm&) { return false; });
      if (all && *all > 0) return false;
      for (uint32_t k = 0; k < constraint.num_terms; ++k) {
        const AffineTerm term = constraint.terms[k];
        const auto rest =
            LeastWithout(constraint, [&](const AffineTerm& other) { return other.variable == term.variable; });
        if (!rest) continue;
        Bounds& bounds = BoundsOf(term.variable);
        if (term.coefficient > 0) {
          const WideInteger most = FloorDivide(-*rest, term.coefficient);
          if (!bounds.is_bounded || most < bounds.high) bounds.high = most;
          bounds.is_bounded = true;
        } else {
          bounds.low = std::max(bounds.low, -FloorDivide(-*rest, -term.coefficient));
        }
        if (bounds.is_bounded && bounds.low > bounds.high) return false;
      }
    }
    return true;
  }

  // Of d1 v1 + d2 v2 + rest <= 0, where the address has s (d1 v1 + d2 v2): one variable for the sum, which is bounded
  // better than its parts are.
  void Group(const Affine& constraint) {
    WideInteger ratio = 0;
    Affine group;
    for (uint32_t k = 0; k < constraint.num_terms && group.num_terms < 2; ++k) {
      const WideInteger c = address_.CoefficientOf(constraint.terms[k].variable);
      if (c == 0 || c % constraint.terms[k].coefficient != 0) continue;
      ratio = c / constraint.terms[k].coefficient;
      group = Affine();
      for (uint32_t j = 0; j < constraint.num_terms; ++j) {
        WideInteger part = 0;
        if (__builtin_mul_overflow(constraint.terms[j].coefficient, ratio, &part)) continue;
        const bool is_alike = part == address_.CoefficientOf(constraint.terms[j].variable);
        if (is_alike) group.terms[group.num_terms++] = constraint.terms[j];
      }
    }
    if (group.num_terms < 2) return;
    const auto least = LeastWithout(group, [](const AffineTerm&) { return false; });
    const auto rest =
        LeastWithout(constraint, [&](const AffineTerm& term) { return group.CoefficientOf(term.variable) != 0; });
    if (!least || !rest) return;
    const auto most = GreatestOf(group);
    if (most && (-*rest >= *most || !HasNoGaps(group))) return;  // nothing gained, or rows lost
    const WideInteger unit = group.Stride();
    Bounds bounds;
    bounds.high = FloorDivide(-*rest - *least, unit);
    const VariableId sum = next_++;
    bounds_.emplace_back(sum, bounds);
    Replace(address_, group, sum, *least, unit);
    for (Affine& other : constraints_) Replace(other, group, sum, *least, unit);
  }

  std::optional<WideInteger> GreatestOf(Affine sum) {
    if (!sum.Scale(-1)) return std::nullopt;
    const auto least = LeastWithout(sum, [](const AffineTerm&) { return false; });
    return least ? std::optional(-*least) : std::nullopt;
  }

  // Whether the sum takes every multiple of its smallest coefficient on its way.
  bool HasNoGaps(const Affine& sum) {
    std::vector<Dimension> dimensions;
    for (uint32_t k = 0; k < sum.num_terms; ++k) {
      const Bounds bounds = BoundsOf(sum.terms[k].variable);
      const WideInteger c = sum.terms[k].coefficient;
      dimensions.push_back({c < 0 ? -c : c, bounds.high - bounds.low + 1});
    }
    std::sort(dimensions.begin(), dimensions.end(),
              [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
    WideInteger reach = dimensions[0].stride;
    for (const Dimension& dimension : dimensions) {
      if (dimension.stride > reach) return false;
      WideInteger more = 0;
      if (__builtin_mul_overflow(dimension.stride, dimension.count - 1, &more) ||
          __builtin_add_overflow(reach, more, &reach))
        return false;
    }
    return true;
  }

  // Where `in` has a multiple of the group, that of (least + unit * sum) instead.
  static void Replace(Affine& in, const Affine& group, VariableId sum, WideInteger least, WideInteger unit) {
    const WideInteger c = in.CoefficientOf(group.terms[0].variable);
    if (c == 0 || c % group.terms[0].coefficient != 0) return;
    const WideInteger ratio = c / group.terms[0].coefficient;
    Affine rest = in;
    WideInteger shift = 0, coefficient = 0;
    if (!rest.AddScaled(group, -ratio) || __builtin_mul_overflow(ratio, least, &shift) ||
        __builtin_mul_overflow(ratio, unit, &coefficient) ||
        __builtin_add_overflow(rest.constant, shift, &rest.constant))
      return;
    for (uint32_t k = 0; k < group.num_terms; ++k)
      if (rest.CoefficientOf(group.terms[k].variable) != 0) return;
    if (rest.AddTerm(sum, coefficient)) in = rest;
  }

  const LaunchValues& values_;
  Affine address_;
  std::vector<Affine> constraints_;
  std::vector<std::pair<VariableId, Bounds>> bounds_;
  VariableId next_ = VariableId{1} << 31;  // beyond those of the launch
};

// Sorted by stride. Rows of `row` bytes along all dimensions.
void Collect(WideInteger start, WideInteger row, std::vector<Dimension> dimensions, std::vector<SegmentBox>& boxes) {
  while (true) {
    // What follows without a gap makes the row longer.
    while (!dimensions.empty() && dimensions[0].stride <= row) {
      row += dimensions[0].stride * (dimensions[0].count - 1);
      dimensions.erase(dimensions.begin());
    }
    WideInteger rows = 1, pitch = row;
    std::vector<Dimension> rest;
    WideInteger num_boxes = 1;
    for (const Dimension& dimension : dimensions) {
      if (rows == 1) {
        rows = dimension.count;
        pitch = dimension.stride;
      } else if (dimension.stride % pitch == 0 && dimension.stride / pitch <= rows) {
        rows += dimension.stride / pitch * (dimension.count - 1);
      } else {
        rest.push_back(dimension);
        num_boxes = std::min(num_boxes * dimension.count, kAddresses);
      }
    }
    if (num_boxes > WideInteger{kMaxBoxes}) {  // the rows become one
      row += pitch * (rows - 1);
      dimensions = rest;
      continue;
    }
    std::vector<WideInteger> starts = {start};
    for (const Dimension& dimension : rest) {
      const size_t before = starts.size();
      for (WideInteger k = 1; k < dimension.count; ++k)
        for (size_t at = 0; at < before; ++at) starts.push_back(starts[at] + k * dimension.stride);
    }
    for (const WideInteger at : starts)
      boxes.push_back({static_cast<uint64_t>(at), static_cast<uint64_t>(row), static_cast<uint64_t>(rows),
                       static_cast<uint64_t>(pitch)});
    return;
  }
}

}  // namespace

std::optional<std::vector<SegmentBox>> BoxesOf(const LaunchValues& values, const Affine& address,
                                               const WideInteger& bytes, const std::vector<Affine>& constraints) {
  Narrowing narrowing(values, address, constraints);
  std::vector<SegmentBox> boxes;
  if (bytes <= 0 || !narrowing.Run()) return boxes;
  WideInteger start = narrowing.address().constant, span = bytes;
  std::vector<Dimension> dimensions;
  for (uint32_t k = 0; k < narrowing.address().num_terms; ++k) {
    const AffineTerm& term = narrowing.address().terms[k];
    const Bounds bounds = narrowing.BoundsOf(term.variable);
    if (!bounds.is_bounded || bounds.high - bounds.low >= kAddresses) return std::nullopt;
    const WideInteger count = bounds.high - bounds.low + 1;
    const bool is_down = term.coefficient < 0;
    const WideInteger stride = is_down ? -term.coefficient : term.coefficient;
    WideInteger first = 0, reach = 0;
    if (__builtin_mul_overflow(term.coefficient, is_down ? bounds.high : bounds.low, &first) ||
        __builtin_add_overflow(start, first, &start) || __builtin_mul_overflow(stride, count - 1, &reach) ||
        __builtin_add_overflow(span, reach, &span))
      return std::nullopt;
    if (count > 1) dimensions.push_back({stride, count});
  }
  start -= FloorDivide(start, kAddresses) * kAddresses;
  if (span > kAddresses - 1 - start) return std::nullopt;
  std::sort(dimensions.begin(), dimensions.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  Collect(start, bytes, std::move(dimensions), boxes);
  return boxes;
}

}  // namespace tally::ptx_transforms
