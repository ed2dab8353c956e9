// import_globals: a variant in a module of its own works on the variables of the program's module.
#pragma once

#include <memory>

#include "ptx-transforms/passes/pass.h"

namespace tally::ptx_transforms {

// Every reference to a .global or .const variable of the module becomes one to an address that is loaded from a table
// of u64 in the .const space, which the host fills in before the first launch (transform.h: ImportedVariable). As a
// .const variable then lies in another module's constant bank, it is read through the global space (ld.global.nc, which
// may be used because constants do not change while a kernel runs).
//
// Not imported: string literals of the compiler ($str, __unnamed_), which no program can write or name; .shared
// variables, which belong to the block.
std::unique_ptr<Pass> MakeImportGlobalsPass();

}  // namespace tally::ptx_transforms
