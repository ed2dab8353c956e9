#include "sim-driver/engine/opcode_table.h"

namespace tally::sim_driver {
namespace {

OpcodeTable MakeTable() {
  OpcodeTable table;
  AddIntegerOpcodes(table);
  AddBitOpcodes(table);
  AddMoveOpcodes(table);
  AddComparisonOpcodes(table);
  AddFloatOpcodes(table);
  AddConversionOpcodes(table);
  AddMemoryOpcodes(table);
  AddAddressOpcodes(table);
  AddAtomicOpcodes(table);
  AddControlOpcodes(table);
  AddCallOpcodes(table);
  AddWarpOpcodes(table);
  AddBarrierOpcodes(table);
  AddAsyncOpcodes(table);
  AddMBarrierOpcodes(table);
  AddRegisterPoolOpcodes(table);
  AddMmaOpcodes(table);
  AddMatrixMoveOpcodes(table);
  AddWarpgroupOpcodes(table);
  AddSpecialOpcodes(table);
  AddTextureOpcodes(table);
  return table;
}

}  // namespace

const Opcode* FindOpcode(std::string_view name) {
  static const OpcodeTable table = MakeTable();
  auto found = table.find(name);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace tally::sim_driver
