#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/simgpu/ptx/texture.h"

/// The simulated GPU's PTX executor: loads PTX text and runs kernels on the CPU, a warp of 32 lanes
/// at a time.
///
/// It knows nothing of the driver API, of streams or of processes. The driver
/// (`tools/simgpu/driver`) hands it PTX, tells it where module variables live, and drives an
/// `Execution` until it is done. Addresses are device addresses (64 bit); the executor turns them
/// into host addresses through an `AddressSpace` only.
///
/// Reference: NVIDIA, "Parallel Thread Execution ISA". Approximate functions (ex2, lg2, sin, rcp,
/// …) are computed by our own fixed polynomials or exactly rounded host arithmetic: the same bits
/// on every CPU, not a GPU's last bits.
namespace plexrl::simgpu::ptx {

/// How a device address becomes a host address. One per (process, device); owned by the driver.
///
/// [arena_base, arena_base + arena_bytes) is translated by a one-level page table whose entries are
/// host addresses of whole pages in the pool (nullptr: not mapped for this device). Entries change
/// while kernels run; they are read with memory_order_acquire. Anything outside the arena goes to
/// `host_range`, which answers for pinned host memory.
struct AddressSpace {
  std::uint64_t arena_base = 0;
  std::uint64_t arena_bytes = 0;
  unsigned page_shift = 21;
  const std::atomic<std::byte*>* pages = nullptr;  ///< arena_bytes >> page_shift entries
  /// Host address of [addr, addr + bytes) if the device may access that host memory, else nullptr.
  std::byte* (*host_range)(void* context, std::uint64_t addr, std::size_t bytes) = nullptr;
  /// What a texture or surface object is; nullptr when there is none of that number.
  std::shared_ptr<const Texture> (*find_texture)(void* context, std::uint64_t object) = nullptr;
  std::shared_ptr<const TexelArray> (*find_surface)(void* context, std::uint64_t object) = nullptr;
  /// Of a multicast address: host addresses of the `bytes` at it in the memory of each device, into
  /// `out`. How many there are, at most kMaxReplicas; 0: no multicast address, or `device` may not
  /// use it.
  static constexpr std::size_t kMaxReplicas = 16;
  std::size_t (*find_replicas)(void* context, int device, std::uint64_t addr, std::size_t bytes,
                               std::byte** out) = nullptr;
  int device = 0;  ///< for `find_replicas`
  void* context = nullptr;
};

/// A module-scope variable (.global or .const). The driver allocates `bytes` of device memory for
/// it, fills it with `initial` (padded with zeros), applies `relocations`, and calls
/// Module::set_address before the first launch.
struct Variable {
  struct Relocation {
    std::size_t offset;  ///< where in the variable
    std::string symbol;  ///< variable or function whose address is stored there (8 bytes)
    std::int64_t addend;
  };
  /// As in the source; private variables of several sources that share a name get a suffix "@…".
  std::string name;
  std::size_t bytes = 0;
  std::size_t alignment = 1;
  bool is_const = false;
  bool is_managed = false;  ///< to be accessible to the host at the same address
  std::vector<std::byte> initial;
  std::vector<Relocation> relocations;
};

struct Parameter {
  std::size_t offset;
  std::size_t bytes;
};

/// What the driver tells about a kernel (cuFuncGetAttribute, cuFuncGetParamInfo).
struct KernelInfo {
  std::string name;
  std::vector<Parameter>
      parameters;  ///< in order; offsets follow natural alignment as the PTX ABI lays them out
  std::size_t parameter_bytes = 0;
  std::size_t static_shared_bytes = 0;
  std::size_t local_bytes = 0;  ///< per thread
  int registers = 0;            ///< declared 32-bit registers, capped at 255
  int max_threads = 1024;       ///< from .maxntid / .reqntid
};

class Kernel;

enum class LoadError {
  kNone,
  kInvalidPtx,              ///< syntax; CUDA_ERROR_INVALID_PTX
  kUnsupportedInstruction,  ///< valid PTX that this executor lacks; the log names it and its line
  kTargetTooNew,            ///< .target above the device's; CUDA_ERROR_NO_BINARY_FOR_GPU
  kUnresolvedSymbol,  ///< an .extern that no source defines; CUDA_ERROR_INVALID_PTX at load or link
};

/// One loaded image: one PTX text, or several linked together. Immutable after loading but for
/// `set_address`, so launches on several threads share it.
class Module {
 public:
  /// Decodes everything: an instruction that can't be executed is an error here, never at launch.
  /// `sm` is the device's architecture, for example 75. On failure returns nullptr, sets *error,
  /// and *log says what and in which line ("line 17: unknown instruction 'foo.bar.u32'").
  static std::unique_ptr<Module> load(std::span<const std::string_view> sources, int sm,
                                      LoadError* error, std::string* log);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const Kernel* find_kernel(
      std::string_view name) const;  ///< nullptr when there is none; lives as long as the module
  std::vector<const Kernel*> kernels() const;  ///< in source order
  const std::vector<Variable>& variables() const;
  void set_address(std::string_view variable, std::uint64_t device_address);
  /// The value that a function's address has on the device (for relocations and function pointers).
  std::uint64_t function_address(std::string_view name) const;

 private:
  struct Impl;
  explicit Module(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

const KernelInfo& info(const Kernel& kernel);

struct Fault {
  enum class Kind {
    kNone,
    kIllegalAddress,
    kMisalignedAddress,
    kTrap,
    kIllegalInstruction,
    kAssert
  };
  Kind kind = Kind::kNone;
  std::uint64_t address = 0;
  int line = 0;      ///< line in the PTX source
  std::string text;  ///< for the log
};

struct LaunchConfig {
  std::uint32_t grid[3] = {1, 1, 1};
  std::uint32_t block[3] = {1, 1, 1};
  std::size_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;  ///< laid out as KernelInfo::parameters says
  const AddressSpace* memory = nullptr;
  bool cooperative = false;  ///< all blocks are resident at once (grid barriers)
  /// Blocks that may be under way when not cooperative. A further block is started only when all
  /// that are under way wait or have had a long turn, so usually one runs at a time.
  int resident_blocks = 8;
  /// 0: blocks begin in order of their linear index. Else in an order drawn by this number, which
  /// shows programs that count on one.
  std::uint64_t block_order = 0;
  /// The device's clock in ns (%globaltimer; %clock counts it at `clock_khz`). Must not go
  /// backwards.
  std::uint64_t (*now_ns)(void* context) = nullptr;
  void* now_context = nullptr;
  std::uint32_t clock_khz = 1'000'000;
  /// Receives the text of device-side printf; nullptr drops it.
  void (*print)(void* context, std::string_view text) = nullptr;
  void* print_context = nullptr;
};

/// A kernel that is running. One thread at a time drives it; different executions may run on
/// different threads. Blocks run in the order that LaunchConfig::block_order says, warps in order,
/// so float atomics give the same result every time that executions don't overlap. How often `run`
/// is called, and with what budget, changes no result.
///
/// The module must outlive its executions. Limits of a launch (threads, shared memory, grid) are
/// the driver's to check.
class Execution {
 public:
  enum class State {
    kDone,
    kBudgetUsed,  ///< more to do: call run again
    kWaiting,     ///< every living warp sleeps (nanosleep), polls a clock, or spins on memory: call
                  ///< again at wake_ns()
    kFault,       ///< stopped by an error; see fault()
  };
  Execution(const Kernel& kernel, LaunchConfig config);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  State run(std::uint64_t warp_instructions);
  /// After kWaiting: device time at which something can go on. Pollers give now + a short interval
  /// that grows, so that a kernel that spins for seconds costs no core.
  std::uint64_t wake_ns() const;
  const Fault& fault() const;
  std::uint64_t warp_instructions() const;  ///< executed so far, for the time model
  std::uint64_t global_bytes()
      const;  ///< bytes loaded and stored in global memory so far, for the time model

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plexrl::simgpu::ptx
