#include "tools/simgpu/ptx/level/level.h"
#include "tools/simgpu/ptx/spin.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {
namespace {

/// No lane waits further on in this frame.
const Op* never() { return reinterpret_cast<const Op*>(UINTPTR_MAX); }

PLEXRL_INLINE void save(Frame& frame, std::uint32_t lanes, const Op* op) {
  const auto pc = static_cast<std::uint32_t>(op - frame.code->ops.data());
  for (int i = 0; i < kLanes; ++i) frame.pc[i] = (lanes & kBit[i]) != 0 ? pc : frame.pc[i];
}

/// Makes the lanes at the smallest pc of the newest frame active. nullptr, with warp.event set,
/// when no lane can run.
const Op* pick(Warp& warp) {
  for (;;) {
    const std::uint32_t able = warp.living & ~(warp.barred | warp.parked);
    const std::uint32_t ready = able & ~(warp.stalled | warp.spinning);
    Frame* frame = nullptr;
    for (std::uint32_t k = warp.frame_count; k > 0 && frame == nullptr; --k) {
      if ((warp.frames[k - 1]->present & ready) != 0) frame = warp.frames[k - 1];
    }
    warp.active = 0;
    if (frame != nullptr) {
      const std::uint32_t lanes = frame->present & ready;
      std::uint32_t low = UINT32_MAX;
      for (int i = 0; i < kLanes; ++i) {
        const std::uint32_t pc = (lanes & kBit[i]) != 0 ? frame->pc[i] : UINT32_MAX;
        low = pc < low ? pc : low;
      }
      std::uint32_t active = 0, next = UINT32_MAX;
      for (int i = 0; i < kLanes; ++i) {
        const std::uint32_t pc = (lanes & kBit[i]) != 0 ? frame->pc[i] : UINT32_MAX;
        active |= pc == low ? kBit[i] : 0u;
        const std::uint32_t other = pc == low ? UINT32_MAX : pc;
        next = other < next ? other : next;
      }
      const Op* const ops = frame->code->ops.data();
      warp.active = active & lanes;
      warp.next = next == UINT32_MAX ? never() : ops + next;
      warp.frame = frame;
      warp.base[0] = frame->registers;
      return ops + low;
    }
    if ((able & warp.stalled) != 0) {
      warp.stalled = 0;
      continue;
    }
    if ((able & warp.spinning) != 0) {
      warp.spinning = 0;
      warp.event = Event::kSpin;
    } else if ((warp.living & warp.parked) != 0) {
      warp.parked = 0;
      warp.is_forced = true;
      continue;
    } else {
      warp.event = warp.living == 0 ? Event::kDone : Event::kBarrier;
    }
    return nullptr;
  }
}

/// Lanes wait at `op`, or an event is set. Returns where to go on, or nullptr to leave the loop
/// with warp.event.
const Op* look_up(Warp& warp, const Op* op) {
  if (warp.active != 0) save(*warp.frame, warp.active, op);  // else the frame may be gone
  const Event event = warp.event;
  if (event == Event::kFault || event == Event::kSleep) return nullptr;
  warp.event = Event::kNone;
  if (event == Event::kBackward && warp.active != 0) after_backward_branches(warp, op);
  return pick(warp);
}

void set_event(Warp& warp, Event event) {
  warp.event = event;
  warp.next = nullptr;
}

const Op* branch_op(Warp& warp, const Op* op, std::uint32_t mask) {
  const Op* go = op + op->target;
  const std::uint32_t rest = warp.active & ~mask;
  if (rest != 0) {
    const Op* const fall = op + 1;
    const bool goes_back = go < fall;
    const Op* const high = goes_back ? fall : go;
    save(*warp.frame, goes_back ? rest : mask, high);
    warp.active = goes_back ? mask : rest;
    if (high < warp.next) warp.next = high;
    go = goes_back ? go : fall;
  }
  if (go <= op && --warp.backward_left == 0) set_event(warp, Event::kBackward);
  return go;
}

}  // namespace

OpFn branch() { return branch_op; }

Event run(Warp& warp, std::uint64_t limit) {
  warp.event = Event::kNone;
  const Op* op = pick(warp);
  std::uint64_t left = limit;
  while (op != nullptr) {
    if (op >= warp.next) [[unlikely]] {
      op = look_up(warp, op);
      if (op == nullptr) break;
    }
    if (left == 0) {
      save(*warp.frame, warp.active, op);
      warp.event = Event::kLimit;
      break;
    }
    --left;
    const std::uint32_t mask = warp.active & (predicate(warp, op->guard) ^ op->guard_flip);
    op = mask != 0 ? op->fn(warp, op, mask) : op + 1;
  }
  warp.instructions += limit - left;
  return warp.event;
}

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
