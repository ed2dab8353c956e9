#include "ptx-transforms/opt/segments_json.h"

#include <nlohmann/json.hpp>

namespace tally::ptx_transforms {
namespace {

std::string_view ObjectName(GlobalAccess::Object object) {
  if (object == GlobalAccess::Object::kMemory) return "memory";
  return object == GlobalAccess::Object::kTexture ? "texture" : "tensor-map";
}

nlohmann::ordered_json AccessAsJson(const KernelSegments& segments, const GlobalAccess& access) {
  nlohmann::ordered_json json = {{"class", ClassName(access.at_best)},
                                 {"kind", KindName(access.kind)},
                                 {"object", ObjectName(access.object)},
                                 {"address", FormulaAsText(segments, access.address)},
                                 {"guards", GuardsAsText(segments, access)},
                                 {"roots", RootsAsText(segments, access)},
                                 {"line", access.position.line},
                                 {"instruction", access.what}};
  if (access.extent != kNoNode) {
    json["extent"] = FormulaAsText(segments, access.extent);
  } else {
    json["bytes"] = access.bytes;
  }
  return json;
}

}  // namespace

std::string SegmentsAsJson(std::span<const KernelSegments> kernels) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const KernelSegments& segments : kernels) {
    nlohmann::ordered_json barriers = nlohmann::ordered_json::array();
    for (const SegmentBarrier& barrier : BarriersOf(segments))
      barriers.push_back({{"code", barrier.code}, {"meaning", BarrierMeaning(barrier.code)}, {"seen", barrier.seen}});
    nlohmann::ordered_json loops = nlohmann::ordered_json::array();
    for (uint32_t k = 0; k < segments.loops.size(); ++k)
      loops.push_back({{"line", segments.loops[k].position.line}, {"goes_on_while", TripsAsText(segments, k)}});
    nlohmann::ordered_json accesses = nlohmann::ordered_json::array();
    for (const GlobalAccess& access : segments.accesses) accesses.push_back(AccessAsJson(segments, access));
    all.push_back({{"kernel", segments.kernel},
                   {"class", VerdictOf(segments)},
                   {"barriers", barriers},
                   {"loops", loops},
                   {"accesses", accesses}});
  }
  const nlohmann::ordered_json json = {{"kernels", all}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tally::ptx_transforms
