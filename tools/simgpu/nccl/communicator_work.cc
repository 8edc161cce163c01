// Kernels of a communicator: how they come onto streams, and what they do there.

#include <algorithm>
#include <deque>
#include <utility>

#include "tools/simgpu/nccl/communicator.h"

namespace plexrl::simgpu::nccl {
namespace {

/// Whether a stream is in a capture, in which (0: none), and the graph that it makes.
CUresult capture_of(CUstream stream, std::uint64_t* id, CUgraph* graph) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  *id = 0;
  const CUresult result =
      cuStreamGetCaptureInfo(stream, &status, &number, graph, nullptr, nullptr, nullptr);
  if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE) *id = number;
  return result;
}

/// What is enqueued in `later` from now on waits for what `earlier` has now.
CUresult put_behind(CUstream later, CUstream earlier) {
  CUevent event = nullptr;
  CUresult result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) return result;
  result = cuEventRecord(event, earlier);
  if (result == CUDA_SUCCESS) result = cuStreamWaitEvent(later, event, 0);
  cuEventDestroy(event);
  return result;
}

}  // namespace

/// What one kernel does. It belongs to the kernel, which runs once, or to the graph that has it.
struct Communicator::Plan {
  std::shared_ptr<Communicator> communicator;
  std::vector<Operation> operations;
  bool is_captured = false;
};

ncclResult_t Communicator::launch(const std::vector<Operation>& operations,
                                  const std::vector<CUstream>& streams) {
  const InContext here(context_);
  auto plan = std::make_unique<Plan>();
  plan->communicator = shared_from_this();
  plan->operations = operations;
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = 1; i < streams.size() && result == CUDA_SUCCESS; ++i)
    result = put_behind(streams[0], streams[i]);
  if (result == CUDA_SUCCESS) result = launch_plan(std::move(plan), streams[0]);
  for (std::size_t i = 1; i < streams.size() && result == CUDA_SUCCESS; ++i)
    result = put_behind(streams[i], streams[0]);
  return result == CUDA_SUCCESS ? ncclSuccess : fail_cuda(result, "launch of a collective");
}

/// Kernels of a communicator run in the order of their launches, on whatever stream. In a capture
/// that holds for the kernels of the same capture.
CUresult Communicator::order(CUstream stream, bool captures, std::uint64_t capture) {
  if (captures)
    return capture == last_capture_ ? cuStreamWaitEvent(stream, captured_, 0) : CUDA_SUCCESS;
  if (!has_launched_ || stream == last_stream_) return CUDA_SUCCESS;
  return cuStreamWaitEvent(stream, last_, 0);
}

CUresult Communicator::launch_plan(std::unique_ptr<Plan> plan, CUstream stream) {
  std::uint64_t capture = 0;
  CUgraph graph = nullptr;
  CUresult result = capture_of(stream, &capture, &graph);
  const bool captures = capture != 0;
  if (result == CUDA_SUCCESS) result = order(stream, captures, capture);
  if (result != CUDA_SUCCESS) return result;
  plan->is_captured = captures;
  Plan* const state = plan.get();
  if (captures) {
    // The graph, and what is made of it, keeps the plan ("CUDA User Objects" of the programming
    // guide).
    CUuserObject object = nullptr;
    result = cuUserObjectCreate(
        &object, state, [](void* kept) { delete static_cast<Plan*>(kept); }, 1,
        CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS) return result;
    static_cast<void>(plan.release());
    result = cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result != CUDA_SUCCESS) return result;
  }
  ProcessKernelParameters parameters{&run_plan, state};
  void* pointers[] = {&parameters.body, &parameters.state};
  result = cuLaunchKernel(kernel_, 1, 1, 1, 32, 1, 1, 0, stream, pointers, nullptr);
  if (result != CUDA_SUCCESS) return result;
  static_cast<void>(plan.release());
  if (captures) {
    last_capture_ = capture;
    return cuEventRecord(captured_, stream);
  }
  last_stream_ = stream;
  has_launched_ = true;
  return cuEventRecord(last_, stream);
}

CUresult Communicator::run_plan(const ProcessKernelScope& scope, void* state,
                                std::uint64_t* end_ns) {
  auto* const plan = static_cast<Plan*>(state);
  const std::unique_ptr<Plan> owned(plan->is_captured ? nullptr : plan);
  const std::shared_ptr<Communicator> communicator = plan->communicator;
  return communicator->run(plan->operations, scope, end_ns);
}

/// Collectives go on one after the other; sends and receives side by side, but for those of the
/// same direction and peer.
CUresult Communicator::run(const std::vector<Operation>& operations,
                           const ProcessKernelScope& kernel, std::uint64_t* end_ns) {
  const std::lock_guard my_turn(turn_);
  if (is_closed_) return CUDA_ERROR_LAUNCH_FAILED;  // a graph that outlived its communicator
  std::map<std::pair<int, int>, std::deque<std::unique_ptr<Transfer>>> lines;
  for (const Operation& operation : operations) {
    const bool is_own = operation.is_between_two();
    const std::pair line(is_own ? operation.peer : -1,
                         is_own ? static_cast<int>(operation.kind) : 0);
    lines[line].push_back(make_transfer(operation, meeting_));
  }
  TransferScope scope{kernel, meeting_, {scratch_.address, scratch_.bytes}};
  const auto is_over = [&] {
    return is_stopped_.load(std::memory_order_relaxed) || is_revoked_.load() || kernel.is_leaving();
  };
  *end_ns = kernel.start_ns;
  int gone_before = -1;  // who was gone at the last look without progress
  while (!lines.empty() && !is_over()) {
    const std::uint32_t seen = meeting_.bell();
    bool moved = false;
    int awaited = -1;
    for (auto line = lines.begin(); line != lines.end();) {
      Transfer& first = *line->second.front();
      switch (first.step(scope)) {
        case Transfer::Step::kMoved:
          moved = true;
          break;
        case Transfer::Step::kWaits:
          // One who is gone after this will post nothing more; what it had posted before, the next
          // look sees.
          if (meeting_.is_gone(first.waits_for())) awaited = first.waits_for();
          break;
        case Transfer::Step::kDone:
          moved = true;
          *end_ns = std::max(*end_ns, first.end_ns());
          line->second.pop_front();
          break;
        case Transfer::Step::kDiffers:
          fail(ncclInvalidUsage, first.why());
          return await_end(kernel);
        case Transfer::Step::kFault:
          fail(ncclUnhandledCudaError, "a buffer of a collective is no memory of the device");
          meeting_.set_state(Meeting::State::kFailed);
          return CUDA_ERROR_ILLEGAL_ADDRESS;
      }
      line = line->second.empty() ? lines.erase(line) : std::next(line);
    }
    if (moved) {
      gone_before = -1;
      continue;
    }
    if (awaited >= 0 && awaited == gone_before) {
      fail(ncclRemoteError, "rank " + std::to_string(awaited) + " has left or ended");
      return await_end(kernel);
    }
    gone_before = awaited;
    if (awaited < 0) meeting_.wait(seen);
  }
  return CUDA_SUCCESS;
}

/// As a GPU's: a kernel whose peers don't come goes on waiting until its communicator is aborted.
CUresult Communicator::await_end(const ProcessKernelScope& kernel) {
  meeting_.set_state(Meeting::State::kFailed);
  while (!is_stopped_.load(std::memory_order_relaxed) && !is_revoked_.load() &&
         !kernel.is_leaving()) {
    meeting_.wait(meeting_.bell());
  }
  return CUDA_SUCCESS;
}

}  // namespace plexrl::simgpu::nccl
