#include <algorithm>
#include <bit>
#include <cstring>

#include "tools/simgpu/ptx/act.h"
#include "tools/simgpu/ptx/gather.h"
#include "tools/simgpu/ptx/launch.h"
#include "tools/simgpu/ptx/level/lanes.h"

/// Operations that change which lanes run: calls, returns, exits, barriers, sleeping, traps.
/// Compiled once, for the baseline.
namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

void set_event(Warp& warp, Event event) {
  if (warp.event == Event::kFault) return;
  warp.event = event;
  warp.next = nullptr;
}

std::byte* lane_params(const Frame& frame, int lane) {
  return frame.params + std::size_t{frame.code->param_bytes} * static_cast<std::size_t>(lane);
}

void copy_params(const std::vector<ParamRange>& to, Frame& to_frame,
                 const std::vector<ParamRange>& from, const Frame& from_frame, std::uint32_t mask) {
  const std::size_t count = std::min(to.size(), from.size());
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    for (std::size_t k = 0; k < count; ++k) {
      std::memcpy(lane_params(to_frame, lane) + to[k].offset,
                  lane_params(from_frame, lane) + from[k].offset,
                  std::min(to[k].bytes, from[k].bytes));
    }
  }
}

/// Calls `code` for the lanes. False after raising a fault.
bool call_lanes(Warp& warp, const Op* op, const Code* code, Frame& caller, std::uint32_t mask) {
  const auto& site = *static_cast<const CallSite*>(op->extra);
  const auto return_pc = static_cast<std::uint32_t>(op + 1 - caller.code->ops.data());
  Frame* const frame = enter(warp, code, &site, mask, return_pc);
  if (frame == nullptr) {
    raise_fault(warp, op, Fault::Kind::kIllegalAddress, 0);
    warp.launch->fault.text += ": call stack used up";
    return false;
  }
  copy_params(code->parameters, *frame, site.arguments, caller, mask);
  return true;
}

const Op* call(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto& site = *static_cast<const CallSite*>(op->extra);
  Frame& caller = *warp.frame;
  if (site.callee != nullptr) {
    if (!call_lanes(warp, op, site.callee, caller, mask)) return op + 1;
  } else {
    const auto& by_address = warp.launch->program->by_address;
    const auto* const address = source<std::uint64_t>(warp, op->a);
    for (std::uint32_t left = mask; left != 0;) {
      const std::uint64_t target = address[std::countr_zero(left)];
      std::uint32_t lanes = 0;
      for (int i = 0; i < kLanes; ++i) lanes |= address[i] == target ? kBit[i] : 0u;
      lanes &= left;
      left &= ~lanes;
      const std::uint64_t number = (target - kFunctionWindow) / kFunctionStep;
      if (target < kFunctionWindow || target % kFunctionStep != 0 || number >= by_address.size()) {
        raise_fault(warp, op, Fault::Kind::kIllegalInstruction, target);
        return op + 1;
      }
      if (!call_lanes(warp, op, by_address[number], caller, lanes)) return op + 1;
    }
  }
  warp.active &= ~mask;
  set_event(warp, Event::kRegroup);
  return op + 1;
}

const Op* do_exit(Warp& warp, const Op* op, std::uint32_t mask) {
  exit_lanes(warp, mask);
  set_event(warp, Event::kRegroup);
  return op + 1;
}

const Op* do_return(Warp& warp, const Op* op, std::uint32_t mask) {
  Frame* const frame = warp.frame;
  Frame* const parent = frame->parent;
  if (parent == nullptr) return do_exit(warp, op, mask);
  copy_params(frame->site->results, *parent, frame->code->results, *frame, mask);
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    parent->pc[std::countr_zero(left)] = frame->return_pc;
  }
  parent->present |= mask;
  warp.active &= ~mask;
  leave(warp, frame, mask);
  set_event(warp, Event::kRegroup);
  return op + 1;
}

/// a: barrier id, b: number of threads (absent: all). mode: 0 sync, 1 arrive, 2 red.popc, 3
/// red.and, 4 red.or with the predicate c (imm 1: negated) and the result d.
const Op* barrier(Warp& warp, const Op* op, std::uint32_t mask) {
  Frame& frame = *warp.frame;
  const int first = std::countr_zero(mask);
  const std::uint32_t id = source<std::uint32_t>(warp, op->a)[first];
  const std::uint32_t expected =
      op->b == kNoOperand ? 0 : source<std::uint32_t>(warp, op->b)[first];
  const std::uint32_t votes =
      op->c == kNoOperand ? 0 : predicate(warp, op->c) ^ (op->imm != 0 ? kAllLanes : 0);
  const bool is_arrive = op->mode == 1;
  if (!is_arrive) {
    const auto pc = static_cast<std::uint32_t>(op - frame.code->ops.data());
    for (std::uint32_t left = mask; left != 0; left &= left - 1)
      frame.pc[std::countr_zero(left)] = pc;
    warp.active &= ~mask;
  }
  if (!arrive(warp, id, expected, mask, is_arrive, votes)) {
    raise_fault(warp, op, Fault::Kind::kIllegalInstruction, 0);
  }
  set_event(warp, Event::kRegroup);
  return op + 1;
}

/// a: member mask.
const Op* warp_barrier(Warp& warp, const Op* op, std::uint32_t mask) {
  return gather(warp, op, mask, source<std::uint32_t>(warp, op->a)) ? op + 1 : op;
}

const Op* trap(Warp& warp, const Op* op, std::uint32_t) {
  raise_fault(warp, op, Fault::Kind::kTrap, 0);
  return op + 1;
}

/// a: ns.
const Op* sleep(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto* const a = source<std::uint32_t>(warp, op->a);
  std::uint32_t longest = 0;
  for (std::uint32_t left = mask; left != 0; left &= left - 1)
    longest = std::max(longest, a[std::countr_zero(left)]);
  warp.clock_is_frozen = false;
  warp.is_probing = false;
  warp.since_probe = 0;
  warp.wake_ns = clock_ns(warp) + std::min<std::uint32_t>(longest, 1'000'000);
  set_event(warp, Event::kSleep);
  return op + 1;
}

/// x86 orders loads and stores but for a store followed by a load.
const Op* fence(Warp&, const Op* op, std::uint32_t) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return op + 1;
}

/// a: index; extra: std::vector of distances, as for a branch. The lanes go to the smallest target
/// first, as always.
const Op* indexed_branch(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto& distances = *static_cast<const std::vector<std::int32_t>*>(op->extra);
  const auto* const index = source<std::uint32_t>(warp, op->a);
  Frame& frame = *warp.frame;
  const auto pc = static_cast<std::int64_t>(op - frame.code->ops.data());
  bool goes_back = false;
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    if (index[lane] >= distances.size()) {
      raise_fault(warp, op, Fault::Kind::kIllegalInstruction, index[lane]);
      return op + 1;
    }
    frame.pc[lane] = static_cast<std::uint32_t>(pc + distances[index[lane]]);
    goes_back |= distances[index[lane]] <= 0;
  }
  // Saved lanes are found again by regrouping. Loops through here are counted as backward branches
  // of one step.
  warp.active &= ~mask;
  if (goes_back && warp.backward_left > 1) --warp.backward_left;
  set_event(warp, Event::kRegroup);
  return op + 1;
}

}  // namespace
}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE

namespace plexrl::simgpu::ptx {

OpFn call_op() { return PLEXRL_PTX_LEVEL::call; }
OpFn return_op() { return PLEXRL_PTX_LEVEL::do_return; }
OpFn exit_op() { return PLEXRL_PTX_LEVEL::do_exit; }
OpFn barrier_op() { return PLEXRL_PTX_LEVEL::barrier; }
OpFn warp_barrier_op() { return PLEXRL_PTX_LEVEL::warp_barrier; }
OpFn trap_op() { return PLEXRL_PTX_LEVEL::trap; }
OpFn sleep_op() { return PLEXRL_PTX_LEVEL::sleep; }
OpFn fence_op() { return PLEXRL_PTX_LEVEL::fence; }
OpFn indexed_branch_op() { return PLEXRL_PTX_LEVEL::indexed_branch; }

}  // namespace plexrl::simgpu::ptx
