// Streams, host functions, and stream memory operations.

#include <algorithm>

#include "tools/simgpu/driver/clock.h"
#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/entry_pair.h"
#include "tools/simgpu/driver/memory_pool.h"

namespace plexrl::simgpu {
namespace {

constexpr std::uint64_t kPollNs = 50'000;  // a stream that waits for a value looks so often

/// The per-thread default stream of each context that the thread used; ends with the thread.
struct PerThreadStreams {
  std::vector<std::pair<Context*, Stream*>> streams;
  ~PerThreadStreams() {
    for (const auto& [owner, stream] : streams) {
      if (driver() != nullptr) retire_stream(stream);
    }
  }
};
thread_local PerThreadStreams per_thread_streams;

Stream* per_thread_stream(Context* context) {
  for (const auto& [owner, stream] : per_thread_streams.streams) {
    if (owner == context) return stream;
  }
  Stream* const stream = make_stream(context, Stream::Kind::kPerThread, 0);
  per_thread_streams.streams.emplace_back(context, stream);
  return stream;
}

CUstream handle_of(Stream* stream) { return reinterpret_cast<CUstream>(stream); }

CUresult create_stream(CUstream* handle, unsigned flags, int priority) {
  Context* context = nullptr;
  if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
  if (handle == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const auto kind =
      flags == CU_STREAM_NON_BLOCKING ? Stream::Kind::kNonBlocking : Stream::Kind::kBlocking;
  *handle = handle_of(make_stream(context, kind, std::clamp(priority, -5, 0)));
  return CUDA_SUCCESS;
}

CUresult query_stream(bool per_thread, CUstream handle) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, per_thread, &stream); found != CUDA_SUCCESS)
    return found;
  if (const CUresult error = stream->context()->error.load(std::memory_order_acquire);
      error != CUDA_SUCCESS)
    return error;
  if (const CUresult refused = refuse_in_capture(stream); refused != CUDA_SUCCESS) return refused;
  // The legacy stream is done when the blocking streams that its next item would wait for are.
  if (!stream->is_idle()) return CUDA_ERROR_NOT_READY;
  if (stream->kind() != Stream::Kind::kLegacy) return CUDA_SUCCESS;
  const std::lock_guard lock(stream->context()->mutex);
  for (const Stream* other : stream->context()->streams) {
    if (other->kind() != Stream::Kind::kNonBlocking && !other->is_idle())
      return CUDA_ERROR_NOT_READY;
  }
  return CUDA_SUCCESS;
}

CUresult synchronize_stream(bool per_thread, CUstream handle) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, per_thread, &stream); found != CUDA_SUCCESS)
    return found;
  if (const CUresult refused = refuse_in_capture(stream); refused != CUDA_SUCCESS) return refused;
  if (const CUresult unsafe = check_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  std::vector<CompletionPtr> ends{stream->last()};
  if (stream->kind() == Stream::Kind::kLegacy) {
    const std::lock_guard lock(stream->context()->mutex);
    for (const Stream* other : stream->context()->streams) {
      if (other->kind() != Stream::Kind::kNonBlocking) ends.push_back(other->last());
    }
  }
  for (const CompletionPtr& end : ends) {
    if (end != nullptr) end->wait();
  }
  trim_pools(stream->context()->device);
  return stream->context()->error.load();
}

template <typename Read>
CUresult with_stream(bool per_thread, CUstream handle, Read read) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, per_thread, &stream); found != CUDA_SUCCESS)
    return found;
  read(stream);
  return CUDA_SUCCESS;
}

CUresult stream_flags(bool per_thread, CUstream handle, unsigned* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_stream(per_thread, handle, [&](Stream* s) {
    *flags = s->kind() == Stream::Kind::kNonBlocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
  });
}
CUresult stream_priority(bool per_thread, CUstream handle, int* priority) {
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_stream(per_thread, handle, [&](Stream* s) { *priority = s->priority(); });
}
CUresult stream_id(bool per_thread, CUstream handle, unsigned long long* id) {
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_stream(per_thread, handle, [&](Stream* s) { *id = s->id(); });
}
CUresult stream_context(bool per_thread, CUstream handle, CUcontext* context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_stream(per_thread, handle,
                     [&](Stream* s) { *context = reinterpret_cast<CUcontext>(s->context()); });
}
CUresult stream_context_v2(bool per_thread, CUstream handle, CUcontext* context,
                           CUgreenCtx* green) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (green != nullptr) *green = nullptr;
  return stream_context(per_thread, handle, context);
}
CUresult stream_device(bool per_thread, CUstream handle, CUdevice* device) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_stream(per_thread, handle, [&](Stream* s) {
    const auto& visible = driver()->visible;
    *device = static_cast<CUdevice>(
        std::find(visible.begin(), visible.end(), s->context()->device) - visible.begin());
  });
}

CUresult launch_host_function(bool per_thread, CUstream stream, CUhostFn function, void* data) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_HOST_NODE_PARAMS parameters{};
  parameters.fn = function;
  parameters.userData = data;
  return submit(stream, per_thread,
                std::make_unique<HostOperation>([=] { function(data); }, parameters));
}

CUresult add_callback(bool per_thread, CUstream handle, CUstreamCallback callback, void* data,
                      unsigned flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, per_thread, &stream); found != CUDA_SUCCESS)
    return found;
  if (stream->capture.load() != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CUDA_HOST_NODE_PARAMS none{};
  Context* const context = stream->context();
  return submit(handle, per_thread,
                std::make_unique<HostOperation>(
                    [=] { callback(handle, context->error.load(), data); }, none));
}

/// The word of a stream memory operation, as the CPU sees it; nullptr when it is not mapped.
template <typename Word>
std::atomic<Word>* word_at(const Context* context, std::uint64_t address) {
  std::uint64_t contiguous = 0;
  std::byte* host =
      driver()->addresses.translate(device_of_address(context, address), address, &contiguous);
  return reinterpret_cast<std::atomic<Word>*>(host);
}

template <typename Word>
CUresult wait_value(bool per_thread, CUstream stream, CUdeviceptr address, Word value,
                    unsigned flags) {
  if (address % sizeof(Word) != 0) return CUDA_ERROR_INVALID_VALUE;
  const unsigned comparison = flags & 3u;
  return submit(
      stream, per_thread,
      std::make_unique<CallOperation>(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [=](const RunScope& scope) {
        for (;;) {
          const auto* word = word_at<Word>(scope.context, address);
          if (word == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
          const Word seen = word->load(std::memory_order_acquire);
          bool holds = false;
          switch (comparison) {
            case CU_STREAM_WAIT_VALUE_GEQ:
              holds = static_cast<std::make_signed_t<Word>>(seen - value) >= 0;
              break;
            case CU_STREAM_WAIT_VALUE_EQ:
              holds = seen == value;
              break;
            case CU_STREAM_WAIT_VALUE_AND:
              holds = (seen & value) != 0;
              break;
            default:
              holds = static_cast<Word>(~(seen | value)) != 0;
          }
          if (holds) return CUDA_SUCCESS;
          if (!is_ready()) return CUDA_SUCCESS;  // exit has begun
          sleep_until_ns(now_ns() + kPollNs);
        }
      }));
}

template <typename Word>
CUresult write_value(bool per_thread, CUstream stream, CUdeviceptr address, Word value, unsigned) {
  if (address % sizeof(Word) != 0) return CUDA_ERROR_INVALID_VALUE;
  return submit(
      stream, per_thread,
      std::make_unique<CallOperation>(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [=](const RunScope& scope) {
        auto* word = word_at<Word>(scope.context, address);
        if (word == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
        word->store(value, std::memory_order_release);
        return CUDA_SUCCESS;
      }));
}

CUresult batch_memory_operations(bool per_thread, CUstream stream, unsigned count,
                                 CUstreamBatchMemOpParams* operations, unsigned flags) {
  if (flags != 0 || count > 256 || (count > 0 && operations == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  Stream* found = nullptr;
  if (const CUresult result = find_stream(stream, per_thread, &found); result != CUDA_SUCCESS)
    return result;
  for (unsigned i = 0; i < count; ++i) {
    const CUstreamBatchMemOpParams& one = operations[i];
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    switch (one.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        result = wait_value<std::uint32_t>(per_thread, stream, one.waitValue.address,
                                           one.waitValue.value, one.waitValue.flags);
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        result = wait_value<std::uint64_t>(per_thread, stream, one.waitValue.address,
                                           one.waitValue.value64, one.waitValue.flags);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        result = write_value<std::uint32_t>(per_thread, stream, one.writeValue.address,
                                            one.writeValue.value, 0);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        result = write_value<std::uint64_t>(per_thread, stream, one.writeValue.address,
                                            one.writeValue.value64, 0);
        break;
      case CU_STREAM_MEM_OP_BARRIER:
      case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        result = CUDA_SUCCESS;
        break;
      default:
        break;
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult find_stream(CUstream handle, bool per_thread, Stream** stream) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    Context* context = nullptr;
    if (const CUresult usable = usable_context(&context); usable != CUDA_SUCCESS) return usable;
    const bool own = handle == CU_STREAM_PER_THREAD || (handle == nullptr && per_thread);
    *stream = own ? per_thread_stream(context) : context->legacy;
    return CUDA_SUCCESS;
  }
  auto* const object = reinterpret_cast<Stream*>(handle);
  if (!is_stream(object)) return CUDA_ERROR_INVALID_HANDLE;
  *stream = object;
  return CUDA_SUCCESS;
}

CUresult submit(CUstream handle, bool per_thread, std::unique_ptr<Operation> operation,
                CompletionPtr* done) {
  Stream* stream = nullptr;
  if (const CUresult found = find_stream(handle, per_thread, &stream); found != CUDA_SUCCESS)
    return found;
  if (!stream->context()->alive.load(std::memory_order_acquire))
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const CUresult error = stream->context()->error.load(std::memory_order_acquire);
      error != CUDA_SUCCESS)
    return error;
  if (done != nullptr) *done = nullptr;
  if (stream->capture.load(std::memory_order_acquire) != nullptr)
    return capture_operation(stream, std::move(operation));
  if (stream->kind() == Stream::Kind::kLegacy) {
    const CUresult implicit = check_legacy_use(stream->context());
    if (implicit != CUDA_SUCCESS) return implicit;
  }
  CompletionPtr end = stream->enqueue(std::move(operation));
  if (done != nullptr) *done = std::move(end);
  return CUDA_SUCCESS;
}

}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned int flags) {
  SIMGPU_ENTER(cuStreamCreate);
  return create_stream(stream, flags, 0);
}
SIMGPU_EXPORT CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* stream, unsigned int flags,
                                                          int priority) {
  SIMGPU_ENTER(cuStreamCreateWithPriority);
  return create_stream(stream, flags, priority);
}
SIMGPU_EXPORT CUresult CUDAAPI cuStreamDestroy_v2(CUstream handle) {
  SIMGPU_ENTER(cuStreamDestroy_v2);
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
    return CUDA_ERROR_INVALID_HANDLE;
  auto* const stream = reinterpret_cast<Stream*>(handle);
  return retire_stream(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIMGPU_PAIR(cuStreamQuery, _ptsz, query_stream, (CUstream stream), stream)
SIMGPU_PAIR(cuStreamSynchronize, _ptsz, synchronize_stream, (CUstream stream), stream)
SIMGPU_PAIR(cuStreamGetFlags, _ptsz, stream_flags, (CUstream stream, unsigned int* flags), stream,
            flags)
SIMGPU_PAIR(cuStreamGetPriority, _ptsz, stream_priority, (CUstream stream, int* priority), stream,
            priority)
SIMGPU_PAIR(cuStreamGetId, _ptsz, stream_id, (CUstream stream, unsigned long long* id), stream, id)
SIMGPU_PAIR(cuStreamGetCtx, _ptsz, stream_context, (CUstream stream, CUcontext* context), stream,
            context)
SIMGPU_PAIR(cuStreamGetCtx_v2, _ptsz, stream_context_v2,
            (CUstream stream, CUcontext* context, CUgreenCtx* green), stream, context, green)
SIMGPU_PAIR(cuStreamGetDevice, _ptsz, stream_device, (CUstream stream, CUdevice* device), stream,
            device)
SIMGPU_PAIR(cuLaunchHostFunc, _ptsz, launch_host_function,
            (CUstream stream, CUhostFn function, void* data), stream, function, data)
SIMGPU_PAIR(cuStreamAddCallback, _ptsz, add_callback,
            (CUstream stream, CUstreamCallback callback, void* data, unsigned int flags), stream,
            callback, data, flags)
SIMGPU_PAIR(cuStreamWaitValue32_v2, _ptsz, wait_value<std::uint32_t>,
            (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags), stream,
            address, value, flags)
SIMGPU_PAIR(cuStreamWaitValue64_v2, _ptsz, wait_value<std::uint64_t>,
            (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags), stream,
            address, value, flags)
SIMGPU_PAIR(cuStreamWriteValue32_v2, _ptsz, write_value<std::uint32_t>,
            (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags), stream,
            address, value, flags)
SIMGPU_PAIR(cuStreamWriteValue64_v2, _ptsz, write_value<std::uint64_t>,
            (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags), stream,
            address, value, flags)
SIMGPU_PAIR(cuStreamBatchMemOp_v2, _ptsz, batch_memory_operations,
            (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* operations,
             unsigned int flags),
            stream, count, operations, flags)
