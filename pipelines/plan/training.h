// The two passes of a training as chains of their own. Pure; any thread.
//
//     forward    the chain as it is; what leaves each layer but the last is saved, and where ReLU gave 0
//     backward   over gradients, layers in reverse: of each layer's product, what goes on is masked and saved
//
// `layer` i of the backward pass has the weights of layer WeightsOf(chain, i).
#pragma once

#include <cstdint>
#include <expected>
#include <string>

#include "pipelines/plan/chain.h"

namespace tally::pipelines {

// Why a chain has no backward pass, as a sentence without a full stop. `with_dx`: its input's gradient is wanted.
std::expected<void, std::string> CheckTraining(const Chain& chain, bool with_dx);

// Of a chain that has passed it.
Chain Forward(const Chain& chain);
Chain Backward(const Chain& chain, bool with_dx);
inline size_t WeightsOf(const Chain& chain, size_t backward_layer) { return chain.layers.size() - 1 - backward_layer; }

// Where in the caller's buffers is what leaves layer `layer` of the chain, its gradient, and its mask: bytes from the
// start. Of the layer behind the last but one: the whole.
int64_t GradientsAt(const Chain& chain, size_t layer, int64_t rows);  // saved values, too
int64_t MaskAt(const Chain& chain, size_t layer, int64_t rows);
inline int64_t GradientBytes(const Chain& chain, int64_t rows) {
  return GradientsAt(chain, chain.layers.size() - 1, rows);
}
inline int64_t SavedBytes(const Chain& chain, int64_t rows) { return MaskAt(chain, chain.layers.size() - 1, rows); }

}  // namespace tally::pipelines
