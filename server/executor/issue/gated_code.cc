#include "server/executor/issue/gated_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cubin-transforms/add_gates.h"
#include "ptx-transforms/transform.h"

namespace tally::server {
namespace {

using Json = nlohmann::json;

}  // namespace

Result<GatedCode> GateMachineCode(std::span<const std::byte> image, uint32_t arch, const CubinLinker& link) {
  auto cubin = cubin_transforms::CubinForDevice(image, arch);
  if (cubin && link && cubin_transforms::IsRelocatable(*cubin)) cubin = link(*cubin);
  if (!cubin) return std::unexpected(cubin.error());
  auto gated = cubin_transforms::AddGates(*cubin);
  if (!gated) return std::unexpected(gated.error());
  GatedCode code;
  for (const cubin_transforms::GatedKernel& kernel : gated->kernels) {
    if (kernel.is_gated()) {
      code.gates[kernel.name] = {kernel.hidden_offset, true, true};
    } else {
      code.refusals[kernel.name] = kernel.refusal;
    }
  }
  if (code.gates.empty()) return Error(StatusCode::kNotFound, "no kernel of it has a gate");
  code.image = std::move(gated->cubin);
  return code;
}

Result<GatedCode> GateText(std::span<const std::byte> image, uint32_t arch) {
  auto text = NewestPtx({image}, arch);
  if (!text) return std::unexpected(text.error());
  ptx_transforms::TransformOptions options;
  options.pipelines = {{"gate_entry"}};
  options.placement = ptx_transforms::Placement::kReplace;
  const auto transformed = ptx_transforms::TransformText(std::move(*text), options);
  if (!transformed) return std::unexpected(transformed.error());
  GatedCode code;
  for (const ptx_transforms::KernelVariant& variant : transformed->variants) {
    if (!variant.is_done()) {
      code.refusals[variant.kernel] = variant.refusal.sentence;
      continue;
    }
    code.gates[variant.kernel] = {variant.hidden_parameter_offset, variant.gates_clusters, variant.waits_for_blocks};
  }
  if (code.gates.empty()) return Error(StatusCode::kNotFound, "no kernel of it has a gate");
  const auto bytes = std::as_bytes(std::span(transformed->text));
  code.image.assign(bytes.begin(), bytes.end());
  code.image.push_back(std::byte{0});
  return code;
}

// The size of what follows, names and numbers as CBOR, then the image as it is: it may be large.
std::vector<std::byte> Serialize(const GatedCode& code) {
  Json gates = Json::object();
  for (const auto& [kernel, gate] : code.gates) {
    gates[kernel] = {gate.hidden_offset, gate.gates_clusters, gate.waits_for_blocks};
  }
  const std::vector<uint8_t> head = Json::to_cbor({{"gates", std::move(gates)}, {"refusals", code.refusals}});
  const uint64_t head_bytes = head.size();
  std::vector<std::byte> bytes(sizeof(head_bytes) + head.size() + code.image.size());
  std::memcpy(bytes.data(), &head_bytes, sizeof(head_bytes));
  std::memcpy(bytes.data() + sizeof(head_bytes), head.data(), head.size());
  std::copy(code.image.begin(), code.image.end(), bytes.end() - static_cast<std::ptrdiff_t>(code.image.size()));
  return bytes;
}

Result<GatedCode> DeserializeGatedCode(std::span<const std::byte> bytes) {
  uint64_t head_bytes = 0;
  if (bytes.size() < sizeof(head_bytes)) return Error(StatusCode::kDataLoss, "kept gates: too short");
  std::memcpy(&head_bytes, bytes.data(), sizeof(head_bytes));
  bytes = bytes.subspan(sizeof(head_bytes));
  if (head_bytes > bytes.size()) return Error(StatusCode::kDataLoss, "kept gates: too short");
  try {
    const auto* head = reinterpret_cast<const uint8_t*>(bytes.data());
    const Json json = Json::from_cbor(head, head + head_bytes);
    GatedCode code;
    for (const auto& [kernel, gate] : json.at("gates").items()) {
      code.gates[kernel] = {gate.at(0).get<uint32_t>(), gate.at(1).get<bool>(), gate.at(2).get<bool>()};
    }
    json.at("refusals").get_to(code.refusals);
    const auto image = bytes.subspan(head_bytes);
    code.image.assign(image.begin(), image.end());
    return code;
  } catch (const Json::exception& error) {
    return Error(StatusCode::kDataLoss, fmt::format("kept gates: {}", error.what()));
  }
}

}  // namespace tally::server
