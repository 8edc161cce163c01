#pragma once

#include <cstddef>
#include <cstdint>

#include "tools/simgpu/ptx/executor.h"
#include "tools/simgpu/ptx/program.h"

/// The state of running warps. Plain structs without inline functions of the standard library: the
/// interpreter's files are compiled for several CPU levels, and the linker must not take a shared
/// inline function from the newest.
namespace plexrl::simgpu::ptx {

struct Block;
struct Launch;

/// Why the interpreter's loop was left, or has to look up from straight-line execution.
enum class Event : std::uint8_t {
  kNone,
  kRegroup,   ///< active lanes left (exit, return, barrier, call): choose others
  kBackward,  ///< as many backward branches as were granted
  kLimit,     ///< as many instructions as were granted
  kBarrier,   ///< every living lane waits at a block barrier
  kSpin,      ///< nothing can change until time passes or somebody else writes memory
  kSleep,     ///< nanosleep
  kDone,      ///< no living lane
  kFault,
};

/// One activation of a function, for the lanes that called it together. Lanes of one warp may be in
/// different frames.
struct Frame {
  const Code* code = nullptr;
  std::byte* registers = nullptr;
  std::byte* params = nullptr;  ///< 32 blocks of code->param_bytes
  std::uint32_t members = 0;    ///< lanes that have not returned from it
  std::uint32_t present = 0;    ///< members that are not in a callee
  std::uint32_t pc[kLanes] =
      {};  ///< index of the next operation, for present lanes that are not active
  Frame* parent = nullptr;
  const CallSite* site = nullptr;  ///< the call in the parent
  std::uint32_t return_pc = 0;
  std::uint32_t local_base = 0;  ///< its part of each lane's local memory
};

struct Warp {
  // Hot: read by every operation.
  const std::byte* base[2] = {};  ///< registers of the current frame, pool of constants
  const Op* next =
      nullptr;  ///< smallest operation of a waiting lane further on; nullptr when event is set
  std::uint32_t active = 0;
  Event event = Event::kNone;
  bool is_probing = false;   ///< stores are compared with what was there
  bool has_changed = false;  ///< memory changed since the probe began
  bool is_forced = false;    ///< the next synchronising operation doesn't wait for missing lanes
  std::uint32_t backward_left = 1;  ///< backward branches until Event::kBackward
  std::uint64_t global_bytes = 0;
  std::uint64_t writes =
      0;  ///< counts stores and atomics that others may see; those without effect only at times

  const AddressSpace* memory = nullptr;
  std::byte* shared = nullptr;
  std::uint64_t shared_bytes = 0;
  std::byte* local = nullptr;
  std::uint64_t local_stride = 0;  ///< bytes of one lane
  const std::byte* kernel_params = nullptr;
  std::uint64_t kernel_param_bytes = 0;
  std::byte* grid_memory = nullptr;

  Frame* frame = nullptr;
  Frame** frames = nullptr;  ///< in order of creation
  std::uint32_t frame_count = 0;
  std::uint32_t frame_capacity = 0;

  std::uint32_t living = 0;    ///< lanes that exist and have not exited
  std::uint32_t barred = 0;    ///< wait at a block barrier
  std::uint32_t parked = 0;    ///< wait for other lanes at a synchronising operation
  std::uint32_t stalled = 0;   ///< had their share of backward branches; others first
  std::uint32_t spinning = 0;  ///< found to loop without effect
  std::uint8_t barrier_id[kLanes] = {};

  // Finding loops without effect; see spin.h.
  std::uint64_t probe_hash = 0;
  const Op* probe_op = nullptr;
  std::uint32_t probe_left = 0;
  std::uint32_t probe_interval = 0;
  std::uint32_t since_probe = 0;
  std::uint32_t granted = 0;       ///< the backward branches last granted
  std::uint32_t since_switch = 0;  ///< backward branches since other lanes had a turn
  bool clock_is_frozen = false;
  std::uint64_t frozen_ns = 0;

  Block* block = nullptr;
  Launch* launch = nullptr;
  std::uint32_t index = 0;    ///< in its block
  std::uint64_t wake_ns = 0;  ///< after Event::kSleep
  std::uint64_t instructions = 0;
  std::uint32_t arrived[16] = {};  ///< lanes that have arrived, by barrier id
};

/// Interprets until an event that the scheduler has to see, at most `limit` operations.
using RunFn = Event (*)(Warp& warp, std::uint64_t limit);

/// Records a fault and stops the warp. `op` gives the line.
void raise_fault(Warp& warp, const Op* op, Fault::Kind kind, std::uint64_t address);

/// An address outside the arena and outside what the operation's fast path knows: windows, pinned
/// host memory. nullptr when the lane can't access it.
std::byte* slow_address(Warp& warp, std::uint64_t address, std::size_t bytes, int lane);

}  // namespace plexrl::simgpu::ptx
