// Which code decodes which PTX opcode. Each family adds its own.
#pragma once

#include <string_view>
#include <unordered_map>

#include "sim-driver/engine/lowering.h"

namespace tally::sim_driver {

struct Opcode {
  // Emits instructions for lowering.instruction(); false if it recorded why it cannot.
  bool (*decode)(Lowering& lowering) = nullptr;
  // May wait or end lanes, or is more than one step: under a guard it is branched around, not masked.
  bool branches_around = false;
};

using OpcodeTable = std::unordered_map<std::string_view, Opcode>;

void AddIntegerOpcodes(OpcodeTable& table);
void AddBitOpcodes(OpcodeTable& table);
void AddMoveOpcodes(OpcodeTable& table);
void AddComparisonOpcodes(OpcodeTable& table);
void AddFloatOpcodes(OpcodeTable& table);
void AddConversionOpcodes(OpcodeTable& table);
void AddMemoryOpcodes(OpcodeTable& table);
void AddAddressOpcodes(OpcodeTable& table);
void AddAtomicOpcodes(OpcodeTable& table);
void AddControlOpcodes(OpcodeTable& table);
void AddCallOpcodes(OpcodeTable& table);
void AddWarpOpcodes(OpcodeTable& table);
void AddBarrierOpcodes(OpcodeTable& table);
void AddAsyncOpcodes(OpcodeTable& table);
void AddMBarrierOpcodes(OpcodeTable& table);
void AddRegisterPoolOpcodes(OpcodeTable& table);
void AddMmaOpcodes(OpcodeTable& table);
void AddMatrixMoveOpcodes(OpcodeTable& table);
void AddWarpgroupOpcodes(OpcodeTable& table);
void AddSpecialOpcodes(OpcodeTable& table);
void AddTextureOpcodes(OpcodeTable& table);

// Null for an opcode that nobody decodes.
const Opcode* FindOpcode(std::string_view name);

bool DecodeWarpBarrier(Lowering& lowering);        // bar.warp.sync: warp_ops.cc
bool DecodeArriveAfterCopies(Lowering& lowering);  // cp.async.mbarrier.arrive: mbarrier.cc
bool DecodeTensorCopy(Lowering& lowering);         // cp.async.bulk.tensor: tensor_copy.cc

// The half of a float family: add, fma, ... of f16, f16x2, bf16 and bf16x2 (half.cc); null if there is none.
bool DecodeHalf(Lowering& lowering);
// The same for f32 and f64 (floating.cc).
bool DecodeFloat(Lowering& lowering);

}  // namespace tally::sim_driver
