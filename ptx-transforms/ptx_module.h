// Front desk of the PTX front end: parse text, look at or edit the tree, print it.
//
//   ParseModule (syntax/parser.h)  text -> Module, or "ptx:LINE:COL: expected ..."
//   Module, Function, Statement, Instruction, Operand (syntax/module.h, syntax/ast.h)
//   PrintModule (syntax/printer.h) Module -> text; what nobody edited is byte for byte the source
//
// No GPU, no CUDA, no threads; the same input gives the same output everywhere.
#pragma once

#include "ptx-transforms/syntax/ast.h"         // IWYU pragma: export
#include "ptx-transforms/syntax/diagnostic.h"  // IWYU pragma: export
#include "ptx-transforms/syntax/module.h"      // IWYU pragma: export
#include "ptx-transforms/syntax/parser.h"      // IWYU pragma: export
#include "ptx-transforms/syntax/printer.h"     // IWYU pragma: export
