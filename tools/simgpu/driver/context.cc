#include "tools/simgpu/driver/context.h"

#include <algorithm>

#include "tools/simgpu/driver/context_stack.h"
#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/small_blocks.h"
#include "tools/simgpu/driver/stream.h"

namespace plexrl::simgpu {
namespace {

thread_local std::vector<Context*> stack;
std::atomic<std::uint64_t> next_context_id{1};
constexpr std::uint64_t kContextVmmCalls =
    20;  // making a context costs as much driver time as so many cuMemCreate

}  // namespace

Context::Context() : id(next_context_id.fetch_add(1)) {}
Context::~Context() = default;

std::vector<Context*>& context_stack() { return stack; }

Context* current_context() { return stack.empty() ? nullptr : stack.back(); }

CUresult usable_context(Context** context) {
  Context* const current = current_context();
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!current->alive.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const CUresult error = current->error.load(std::memory_order_acquire); error != CUDA_SUCCESS)
    return error;
  *context = current;
  return CUDA_SUCCESS;
}

bool is_context(CUcontext handle) {
  const std::lock_guard lock(driver()->mutex);
  const auto& all = driver()->contexts;
  return std::find(all.begin(), all.end(), reinterpret_cast<Context*>(handle)) != all.end();
}

CUresult make_context(int ordinal, unsigned flags, Context** made) {
  Machine& machine = *driver()->machine;
  auto context = std::make_unique<Context>();
  context->device = driver()->visible[static_cast<std::size_t>(ordinal)];
  context->flags = flags;
  machine.spend_driver_time(machine.spec().vmm_ns * kContextVmmCalls);
  if (machine.spec().context_bytes > 0 &&
      !machine.allocate(context->device, machine.spec().context_bytes, &context->memory)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Context* const raw = context.release();
  raw->blocks = make_small_blocks(raw->device);
  raw->legacy = make_stream(raw, Stream::Kind::kLegacy, 0);
  const std::lock_guard lock(driver()->mutex);
  driver()->contexts.push_back(raw);
  *made = raw;
  return CUDA_SUCCESS;
}

void destroy_context(Context* context) {
  if (!context->alive.exchange(false)) return;
  for (;;) {  // work in flight ends first; then nothing can be enqueued any more
    std::vector<Stream*> streams;
    {
      const std::lock_guard lock(context->mutex);
      streams = context->streams;
    }
    for (const Stream* stream : streams) stream->synchronize();
    const std::lock_guard lock(context->mutex);
    if (streams.size() == context->streams.size()) break;
  }
  free_context_memory(context);
  if (context->memory != 0) driver()->machine->release(context->memory);
  context->memory = 0;
  const std::lock_guard lock(driver()->mutex);
  auto& all = driver()->contexts;
  all.erase(std::remove(all.begin(), all.end(), context), all.end());
}

}  // namespace plexrl::simgpu
