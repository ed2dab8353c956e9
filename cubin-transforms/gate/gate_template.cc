#include "cubin-transforms/gate/gate_template.h"

namespace tally::cubin_transforms {
namespace {
#include "cubin-transforms/gate_templates.inc"
}  // namespace

std::span<const GateTemplate> GateTemplates() { return kTemplates; }

const GateTemplate* FindGateTemplate(uint32_t arch) {
  if (arch == 87 || arch == 88) arch = 86;
  for (const GateTemplate& gate : kTemplates)
    if (gate.arch == arch) return &gate;
  return nullptr;
}

}  // namespace tally::cubin_transforms
