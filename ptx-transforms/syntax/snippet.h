// Statements from text: how passes make new code, so that it can be read in their source as it will stand in the PTX.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "ptx-transforms/syntax/module.h"

namespace tally::ptx_transforms {

// The statements of `text`, whose names and numbers `module` keeps. They have no place in the source: the printer
// writes them afresh. The text is the caller's own: one that does not parse breaks an invariant (CHECK).
// `registers`: those of the kernel that the text names; without it a name that lacks % would be taken for a variable.
std::vector<Statement> ParseSnippet(Module& module, std::string_view text,
                                    std::initializer_list<std::string_view> registers = {});
// Formal parameters from text: ".param .align 4 .b8 slice[24], .param .b32 x".
List<Variable> ParseParameterSnippet(Module& module, std::string_view text);

}  // namespace tally::ptx_transforms
