// tally-run --jupyter: a kernelspec, so that notebooks run under tally-run with the options that were given.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace tally::launcher {

// $JUPYTER_DATA_DIR, else where Jupyter looks for a user's own. Empty: there is no home.
std::string JupyterDataDirectory();

// The kernel.json: `arguments` start tally-run, `python` is the interpreter, `tenant` may be empty.
std::string KernelspecText(const std::vector<std::string>& arguments, const std::string& python,
                           const std::string& tenant);

// Writes it into kernels/tally or kernels/tally-TENANT below `data_directory`, in place of what is there; where it is.
Result<std::string> WriteKernelspec(const std::string& data_directory, const std::vector<std::string>& arguments,
                                    const std::string& python, const std::string& tenant);

}  // namespace tally::launcher
