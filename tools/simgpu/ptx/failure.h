#pragma once

#include <string>
#include <utility>

#include "tools/simgpu/ptx/executor.h"

namespace plexrl::simgpu::ptx {

/// Why a module can't be loaded. Thrown by the parser, the decoder and the linker, caught in
/// Module::load; it never leaves this folder.
struct Failure {
  LoadError error = LoadError::kInvalidPtx;
  std::string message;

  Failure(LoadError error, int line, std::string_view text)
      : error(error), message("line " + std::to_string(line) + ": " + std::string(text)) {}
  Failure(LoadError error, std::string text) : error(error), message(std::move(text)) {}
};

}  // namespace plexrl::simgpu::ptx
