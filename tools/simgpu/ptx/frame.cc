#include <cstdlib>
#include <cstring>

#include "tools/simgpu/ptx/launch.h"

namespace plexrl::simgpu::ptx {
namespace {

constexpr std::uint64_t kMaxLocalBytes = 512 << 10;  ///< of one lane, as on real devices
constexpr std::uint32_t kMaxFrames = 4096;

std::byte* allocate(std::size_t bytes) {
  const std::size_t rounded = (bytes + 127) / 64 * 64;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  if (memory != nullptr) std::memset(memory, 0, rounded);
  return memory;
}

Frame* new_frame(Launch& launch, const Code* code) {
  std::vector<Frame*>& free = launch.free_frames[code];
  if (!free.empty()) {
    Frame* const frame = free.back();
    free.pop_back();
    return frame;
  }
  auto* const frame = new Frame;
  frame->code = code;
  frame->registers = allocate(code->register_bytes);
  frame->params = allocate(std::size_t{code->param_bytes} * kLanes);
  return frame;
}

bool grow_local(Warp& warp, std::uint64_t stride) {
  if (stride <= warp.local_stride) return true;
  if (stride > kMaxLocalBytes) return false;
  std::uint64_t fresh = warp.local_stride * 2 > stride ? warp.local_stride * 2 : stride;
  fresh = (fresh + 63) / 64 * 64;
  std::byte* const memory = allocate(fresh * kLanes);
  for (std::uint64_t lane = 0; lane < kLanes && warp.local != nullptr; ++lane) {
    std::memcpy(memory + lane * fresh, warp.local + lane * warp.local_stride, warp.local_stride);
  }
  std::free(warp.local);
  warp.local = memory;
  warp.local_stride = fresh;
  return true;
}

}  // namespace

Frame* enter(Warp& warp, const Code* code, const CallSite* site, std::uint32_t mask,
             std::uint32_t return_pc) {
  Frame* const parent = warp.frame;
  std::uint64_t local_base = 0;
  if (parent != nullptr)
    local_base = parent->local_base + (parent->code->local_bytes + 15ull) / 16 * 16;
  if (warp.frame_count >= kMaxFrames || !grow_local(warp, local_base + code->local_bytes))
    return nullptr;
  if (warp.frame_count == warp.frame_capacity) {
    warp.frame_capacity = warp.frame_capacity == 0 ? 4 : warp.frame_capacity * 2;
    warp.frames =
        static_cast<Frame**>(std::realloc(warp.frames, warp.frame_capacity * sizeof(Frame*)));
  }
  Frame* const frame = new_frame(*warp.launch, code);
  frame->members = mask;
  frame->present = mask;
  frame->parent = parent;
  frame->site = site;
  frame->return_pc = return_pc;
  frame->local_base = static_cast<std::uint32_t>(local_base);
  std::memset(frame->pc, 0, sizeof(frame->pc));
  if (parent != nullptr) parent->present &= ~mask;
  warp.frames[warp.frame_count++] = frame;
  return frame;
}

void leave(Warp& warp, Frame* frame, std::uint32_t mask) {
  frame->members &= ~mask;
  frame->present &= ~mask;
  if (frame->members != 0) return;
  for (std::uint32_t k = warp.frame_count; k > 0; --k) {
    if (warp.frames[k - 1] != frame) continue;
    std::memmove(warp.frames + k - 1, warp.frames + k, (warp.frame_count - k) * sizeof(Frame*));
    --warp.frame_count;
    break;
  }
  warp.launch->free_frames[frame->code].push_back(frame);
}

void destroy(Frame* frame) {
  std::free(frame->registers);
  std::free(frame->params);
  delete frame;
}

}  // namespace plexrl::simgpu::ptx
