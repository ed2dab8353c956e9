#include "server/variants/gated_code.h"

#include "cubin-transforms/add_gates.h"
#include "ptx-transforms/transform.h"

namespace tally::server {
namespace {

Result<std::span<const std::byte>> OnlyPart(const ImageParts& image) {
  if (image.size() == 1) return image.front();
  return Error(StatusCode::kUnimplemented, "it is linked from several parts");
}

}  // namespace

Result<GatedCode> GateMachineCode(const ImageParts& image, uint32_t arch) {
  const auto part = OnlyPart(image);
  if (!part) return std::unexpected(part.error());
  const auto cubin = cubin_transforms::CubinForDevice(*part, arch);
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

Result<GatedCode> GateText(const ImageParts& image, uint32_t arch) {
  const auto part = OnlyPart(image);
  if (!part) return std::unexpected(part.error());
  auto text = NewestPtx(image, arch);
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

}  // namespace tally::server
