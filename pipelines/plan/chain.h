// A chain of linear layers, as shapes: what a plan is made of. No pointers, no CUDA.
#pragma once

#include <vector>

namespace tally::pipelines {

enum class Element { kBf16, kFp16 };
// The numbers are those of tally/pipelines.h and of the prologue of a kernel.
enum class Activation { kNone = 0, kRelu = 1, kGelu = 2, kGeluTanh = 3, kSilu = 4 };
enum class Norm { kNone = 0, kLayer = 1, kRms = 2 };
enum class TakesInput { kNo, kFirst, kLast };
// Where ReLU gave 0 a gradient ends. A forward pass writes that down, a backward one applies it.
enum class Mask { kNone = 0, kWritten = 1, kApplied = 2 };

// linear, then activation, then norm, then residual: each as far as there is one. Then the mask, and what is saved.
struct Layer {
  int hidden = 0;  // columns that come from the layer before (of the first layer: the chain's input)
  int out = 0;
  Activation activation = Activation::kNone;
  Norm norm = Norm::kNone;
  float epsilon = 0;
  TakesInput takes_input =
      TakesInput::kNo;    // besides, once more, the chain's input: before or behind the hidden columns
  bool residual = false;  // the chain's input is added to what comes out
  Mask mask = Mask::kNone;
  bool saves = false;  // what leaves it goes to memory, too

  bool operator==(const Layer&) const = default;
};

struct Chain {
  Element element = Element::kBf16;
  bool transposed = false;  // a backward pass: rows times weights as they lie, [hidden][out], without bias
  std::vector<Layer> layers;

  int input() const { return layers.empty() ? 0 : layers.front().hidden; }
  int output() const { return layers.empty() ? 0 : layers.back().out; }
  bool operator==(const Chain&) const = default;
};

// Columns of a layer's weights.
inline int ColumnsOf(const Chain& chain, const Layer& layer) {
  return layer.hidden + (layer.takes_input == TakesInput::kNo ? 0 : chain.input());
}

}  // namespace tally::pipelines
