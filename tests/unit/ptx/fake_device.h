#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/simgpu/ptx/executor.h"

namespace plexrl::simgpu::ptx {

/// A device for tests of the executor: an arena of 64 KiB pages, a bump allocator, a clock that
/// only moves when told to, and a launcher. Nothing is freed before the end.
class FakeDevice {
 public:
  static constexpr std::uint64_t kArenaBase = 0x7000'0000'0000ull;
  static constexpr unsigned kPageShift = 16;
  static constexpr std::size_t kPages = 1024;

  FakeDevice();

  /// Zeroed device memory, aligned to 256 bytes. A page without memory follows, so that overruns
  /// fault.
  std::uint64_t allocate(std::size_t bytes);
  std::byte* host(std::uint64_t address, std::size_t bytes) const;

  template <typename T>
  std::uint64_t upload(const std::vector<T>& values) {
    const std::uint64_t address = allocate(values.size() * sizeof(T));
    write(address, values);
    return address;
  }
  template <typename T>
  void write(std::uint64_t address, const std::vector<T>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::memcpy(host(address + i * sizeof(T), sizeof(T)), &values[i], sizeof(T));
    }
  }
  template <typename T>
  std::vector<T> download(std::uint64_t address, std::size_t count) const {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(&values[i], host(address + i * sizeof(T), sizeof(T)), sizeof(T));
    }
    return values;
  }

  /// The number of a texture or surface object, for kernels.
  std::uint64_t add_texture(const Texture& texture);
  std::uint64_t add_surface(const TexelArray& texels);
  /// A multicast address whose bytes lie at `members`, which are memory of this device.
  std::uint64_t add_multicast(std::size_t bytes, std::vector<std::uint64_t> members);

  const AddressSpace& memory() const { return memory_; }
  std::uint64_t now_ns = 1'000'000;
  std::string printed;

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::unique_ptr<std::atomic<std::byte*>[]> pages_;
  std::size_t next_page_ = 1;
  std::vector<std::shared_ptr<const Texture>> textures_;
  std::vector<std::shared_ptr<const TexelArray>> surfaces_;
  struct Multicast {
    std::uint64_t address;
    std::size_t bytes;
    std::vector<std::uint64_t> members;
  };
  std::vector<Multicast> multicasts_;
  AddressSpace memory_;
};

/// Loads PTX and places its variables on the device. Fails the test when that does not work.
std::unique_ptr<Module> load_module(FakeDevice& device,
                                    const std::vector<std::string_view>& sources, int sm = 75);

/// Kernel arguments, laid out as the kernel says.
class Arguments {
 public:
  template <typename T>
  Arguments& add(const T& value) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    values_.emplace_back(bytes, bytes + sizeof(T));
    return *this;
  }
  std::vector<std::byte> pack(const KernelInfo& info) const;

 private:
  std::vector<std::vector<std::byte>> values_;
};

struct Size3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

struct Shape {
  Size3 grid;
  Size3 block;
  std::size_t dynamic_shared_bytes = 0;
  bool cooperative = false;
};

LaunchConfig make_config(FakeDevice& device, const Kernel& kernel, const Shape& shape,
                         const Arguments& arguments);

/// Runs to the end, moving the clock to the wake time whenever the kernel waits. Returns the fault
/// (kind kNone when all went well).
Fault run_kernel(FakeDevice& device, const Module& module, std::string_view name,
                 const Shape& shape, const Arguments& arguments);

}  // namespace plexrl::simgpu::ptx
