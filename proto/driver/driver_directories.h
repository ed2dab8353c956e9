// Where distributions, containers and WSL put NVIDIA's libcuda.so.1. Full paths: LD_LIBRARY_PATH may name our own.
#pragma once

#include <array>

namespace tally {

inline constexpr std::array kDriverDirectories = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64",          "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",          "/usr/lib",   "/usr/lib/x86_64-linux-gnu/nvidia", "/usr/local/cuda/compat",
    "/run/opengl-driver/lib",
};

}  // namespace tally
