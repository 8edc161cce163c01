#pragma once

#include <string>
#include <vector>

namespace plexrl::simgpu::ptx {

/// How a test kernel became PTX: "O3" and "G" by nvcc when the tests were built, "nvrtc" and
/// "nvrtcG" at run time.
std::vector<std::string> compile_variants();

/// The PTX of tests/unit/ptx/kernels/<name>.cu. Empty, with *reason set, when this machine can't
/// make it.
std::string kernel_ptx(const std::string& name, const std::string& variant, std::string* reason);

}  // namespace plexrl::simgpu::ptx
