#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/simgpu/ptx/executor.h"
#include "tools/simgpu/ptx/warp.h"

namespace plexrl::simgpu::ptx {

/// What all blocks of one execution share.
struct Launch {
  LaunchConfig config;
  const Program* program = nullptr;
  const Code* entry = nullptr;
  const std::byte* pool = nullptr;
  std::uint64_t static_shared_bytes = 0;  ///< dynamic shared memory begins here
  std::uint64_t shared_bytes = 0;         ///< static and dynamic
  std::vector<std::byte> grid_memory;  ///< behind %envreg1 and %envreg2; empty when not cooperative
  std::unordered_map<const Code*, std::vector<Frame*>> free_frames;
  Fault fault;
  std::uint64_t finished_instructions = 0;  ///< of warps that are gone
  std::uint64_t finished_global_bytes = 0;
};

/// One named barrier of a block.
struct Barrier {
  std::uint32_t arrived = 0;   ///< threads
  std::uint32_t expected = 0;  ///< threads; 0: all living threads of the block
  std::uint32_t waiting = 0;   ///< threads that are blocked
  std::uint32_t count = 0;     ///< barrier.red: threads whose predicate was true
  std::uint32_t votes = 0;     ///< barrier.red: threads that gave a predicate
};

struct Block {
  Launch* launch = nullptr;
  std::uint32_t index[3] = {};
  std::uint32_t living = 0;  ///< threads
  Barrier barriers[16];
  std::vector<std::byte> shared;
  std::vector<std::unique_ptr<Warp>> warps;
};

/// Device time as the warp sees it, in ns.
std::uint64_t clock_ns(const Warp& warp);

/// The lanes exit. Completes barriers that waited for them only.
void exit_lanes(Warp& warp, std::uint32_t mask);

/// The lanes arrive at a barrier and, unless `is_arrive`, wait there. `expected` 0: all living
/// threads. Completes the barrier when the last one arrives. False when the operands are out of
/// range.
bool arrive(Warp& warp, std::uint32_t id, std::uint32_t expected, std::uint32_t mask,
            bool is_arrive, std::uint32_t votes);

/// Gives the lanes a new frame on top of the warp's current one (none: the kernel's own). nullptr
/// when the call stack is used up.
Frame* enter(Warp& warp, const Code* code, const CallSite* site, std::uint32_t mask,
             std::uint32_t return_pc);
/// Takes the lanes out of the frame; the frame goes when it is empty.
void leave(Warp& warp, Frame* frame, std::uint32_t mask);
void destroy(Frame* frame);

/// Host address of generic memory, for the rare readers (printf, assert). nullptr when the lane
/// can't access it.
std::byte* generic_address(Warp& warp, std::uint64_t address, std::size_t bytes, int lane);
/// A string in generic memory, at most 64 KiB.
std::string read_string(Warp& warp, std::uint64_t address, int lane);

/// The operation of each cold instruction (one copy, not one for each CPU level).
OpFn special_register_op();  ///< imm: SpecialRegister; mode: register width
OpFn shared_base_op();       ///< d = where dynamic shared memory begins + imm; mode: register width
OpFn local_address_op();     ///< d = the frame's local memory + imm; mode: register width
OpFn call_op();              ///< extra: CallSite; a: function address when indirect
OpFn return_op();
OpFn exit_op();
OpFn barrier_op();  ///< see control.cc
OpFn warp_barrier_op();
OpFn vote_op();
OpFn match_op();
OpFn active_mask_op();
OpFn redux_op();
OpFn trap_op();
OpFn sleep_op();
OpFn fence_op();
OpFn indexed_branch_op();
OpFn print_op();
OpFn assert_op();
OpFn address_space_op();  ///< isspacep; imm: window, mode: Place

enum class SpecialRegister : std::uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kNwarpId,
  kSmId,
  kNsmId,
  kGridId,
  kLaneMaskEq,
  kLaneMaskLt,
  kLaneMaskLe,
  kLaneMaskGt,
  kLaneMaskGe,
  kClock,
  kClockHi,
  kClock64,
  kGlobalTimer,
  kGlobalTimerLo,
  kGlobalTimerHi,
  kDynamicShared,
  kTotalShared,
  kEnvReg1,
  kEnvReg2,
  kZero,
};

}  // namespace plexrl::simgpu::ptx
