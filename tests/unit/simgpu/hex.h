#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace plexrl::simgpu {

/// A handle as text, for another process: in its arguments or in what it says.
template <typename Handle>
std::string hex(const Handle& handle) {
  std::string text;
  char digits[3];
  for (std::size_t i = 0; i < sizeof handle; ++i) {
    std::snprintf(digits, sizeof digits, "%02x",
                  reinterpret_cast<const unsigned char*>(&handle)[i]);
    text += digits;
  }
  return text;
}

template <typename Handle>
Handle from_hex(const std::string& text) {
  Handle handle{};
  for (std::size_t i = 0; i < sizeof handle && 2 * i < text.size(); ++i) {
    unsigned byte = 0;
    std::sscanf(text.c_str() + 2 * i, "%2x", &byte);
    reinterpret_cast<unsigned char*>(&handle)[i] = static_cast<unsigned char>(byte);
  }
  return handle;
}

}  // namespace plexrl::simgpu
