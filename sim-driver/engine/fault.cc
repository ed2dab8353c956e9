

#include "sim-driver/engine/access_observer.h"
#include "sim-driver/engine/grid.h"
#include "sim-driver/engine/location.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {

std::string DescribeInstruction(const Grid& grid, const FunctionCode& function, const Instruction* i) {
  auto index = static_cast<size_t>(i - function.instructions.data());
  if (index >= function.sources.size()) return "unknown place";
  const SourceRef& source = function.sources[index];
  std::string_view text = *grid.code.texts[source.text];
  std::string shown(text.substr(source.begin, std::min<uint32_t>(source.end - source.begin, 160)));
  std::string in_function = function.is_kernel ? "" : Format(" in function {}", function.name);
  return Format("PTX line {} '{}'{}", source.line, shown, in_function);
}

std::string DescribeThread(const Block& block, uint32_t thread) {
  const Dim3& dims = block.cluster->grid->request.block;
  return Format("thread ({},{},{})", thread % dims.x, thread / dims.x % dims.y, thread / dims.x / dims.y);
}

std::string DescribePlace(const ObservedAccess& access) {
  const Grid& grid = *access.warp.block->cluster->grid;
  return Format("kernel {}, {}", grid.kernel.name,
                DescribeInstruction(grid, *access.warp.frame->function, &access.instruction));
}

void RaiseFault(Warp& w, const Instruction& i, uint32_t lane, int cu_result, std::string_view what) {
  if (w.stop == StopReason::kFault) return;
  const Block& block = *w.block;
  const Grid& grid = *block.cluster->grid;
  if (lane >= kLanes) lane = w.mask == 0 ? 0 : static_cast<uint32_t>(std::countr_zero(w.mask));
  block.cluster->fault =
      Fault{cu_result, Format("kernel {}, block ({},{},{}), {}, {}: {}", grid.kernel.name, block.index.x, block.index.y,
                              block.index.z, DescribeThread(block, w.index * kLanes + lane),
                              DescribeInstruction(grid, *w.frame->function, &i), what)};
  w.Stop(StopReason::kFault);
}

}  // namespace tally::sim_driver
