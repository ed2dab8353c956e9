#include "pipelines/stages/source.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

namespace tally::pipelines {
namespace {

constexpr std::string_view kCommon =
#include "pipelines/common.inc"
    ;
constexpr std::string_view kHopper =
#include "pipelines/hopper.inc"
    ;
constexpr std::string_view kResident =
#include "pipelines/resident.inc"
    ;
constexpr std::string_view kStreamed =
#include "pipelines/streamed.inc"
    ;

constexpr std::string_view kMma =
#include "pipelines/mma.inc"
    ;

constexpr std::string_view kTypes = R"(
typedef unsigned int uint32_t;
typedef unsigned short uint16_t;
typedef unsigned long long uint64_t;
struct Element {
  uint16_t bits;
};
enum { kNoActivation, kRelu, kGelu, kGeluTanh, kSilu };
enum { kNoNorm, kLayerNorm, kRmsNorm };
enum { kNoMask, kWritesMask, kAppliesMask };
struct Layer {
  int hidden, out, activation, norm;
  float epsilon;
  bool takes_input, residual;
  int hidden_at, input_at;  // columns of the weights
  bool saves;               // what leaves it goes to memory, too
  int mask;                 // of what leaves it
};
)";

// What a launch names the input and the weights by.
constexpr std::string_view kTensorMap = R"(
struct alignas(64) Matrix {  // a CUtensorMap
  uint64_t words[16];
};
template <int kOut>
__device__ void Product(float* sums, uint64_t rows, uint64_t right, int keep);
template <int kOut>
__device__ void Product(float* sums, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint64_t right, int keep);
)";
constexpr std::string_view kAddress = R"(
struct Matrix {
  const Element* at;
  long long pitch;  // elements
};
)";

std::string LayerRow(const Chain& chain, const Layer& layer) {
  const bool takes_input = layer.takes_input != TakesInput::kNo;
  const bool input_first = layer.takes_input == TakesInput::kFirst;
  return fmt::format("    {{{}, {}, {}, {}, {:e}f, {}, {}, {}, {}, {}, {}}},\n", layer.hidden, layer.out,
                     static_cast<int>(layer.activation), static_cast<int>(layer.norm), layer.epsilon, takes_input,
                     layer.residual, input_first ? chain.input() : 0, takes_input && !input_first ? layer.hidden : 0,
                     layer.saves, static_cast<int>(layer.mask));
}

// One instruction names all of a thread's sums, so each width needs an overload of its own.
std::string Product(int out, std::string_view element, bool from_registers, bool transposed) {
  const int sums = out / 2;
  std::string names, operands;
  for (int i = 0; i < sums; ++i) {
    fmt::format_to(std::back_inserter(names), "{}%{}", i == 0 ? "" : ", ", i);
    fmt::format_to(std::back_inserter(operands), "{}\"+f\"(sums[{}])", i == 0 ? "" : ", ", i);
  }
  const std::string left = from_registers ? fmt::format("{{%{}, %{}, %{}, %{}}}", sums, sums + 1, sums + 2, sums + 3)
                                          : fmt::format("%{}", sums);
  const int right = sums + (from_registers ? 4 : 1);
  return fmt::format(
      "template <>\n"
      "__device__ __forceinline__ void Product<{}>(float* sums, {}, uint64_t right, int keep) {{\n"
      "  asm volatile(\"{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{}, 0;\\n\"\n"
      "               \"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}, {}, %{}, p, 1, 1{}, {};\\n}}\"\n"
      "               : {}\n"
      "               : {}, \"l\"(right), \"r\"(keep));\n"
      "}}\n",
      out, from_registers ? "uint32_t a, uint32_t b, uint32_t c, uint32_t d" : "uint64_t rows", right + 1, out, element,
      element, names, left, right, from_registers ? "" : ", 0", transposed ? 1 : 0, operands,
      from_registers ? "\"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d)" : "\"l\"(rows)");
}

std::set<int> ProductWidths(const Chain& chain, const Variant& variant) {
  std::set<int> widths;
  for (const Layer& layer : chain.layers) {
    const int first = variant.resident ? layer.out : FirstHalf(layer);
    widths.insert(first);
    if (first < layer.out) widths.insert(layer.out - first);
  }
  return widths;
}

}  // namespace

std::string KernelSource(const Chain& chain, const Variant& variant) {
  const bool bf16 = chain.element == Element::kBf16;
  std::string source = fmt::format("#define TALLY_BF16 {}\n", bf16 ? 1 : 0);
  source += kTypes;
  source += "constexpr Layer kLayers[] = {\n";
  for (const Layer& layer : chain.layers) source += LayerRow(chain, layer);
  source += fmt::format(
      "}};\nconstexpr int kWarpgroups = {}, kStages = {};\nconstexpr bool kStreamed = {}, kTransposed = {};\n",
      variant.warpgroups, variant.stages, !variant.resident, chain.transposed);
  if (!variant.wgmma) {
    source += kAddress;
    source += kCommon;
    source += kMma;
    return source;
  }
  source += kTensorMap;
  for (const int width : ProductWidths(chain, variant)) {
    for (const bool from_registers : {false, true})
      source += Product(width, bf16 ? "bf16" : "f16", from_registers, chain.transposed);
  }
  source += kCommon;
  source += kHopper;
  source += variant.resident ? kResident : kStreamed;
  return source;
}

}  // namespace tally::pipelines
