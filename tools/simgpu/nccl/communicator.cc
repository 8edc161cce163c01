#include "tools/simgpu/nccl/communicator.h"

#include <signal.h>

#include <cstring>
#include <utility>

namespace plexrl::simgpu::nccl {
namespace {

/// What a communicator takes of its device, beside its kernel's code.
constexpr std::size_t kScratchBytes = 4 << 20;

std::mutex table_mutex;
/// Never destroyed: exit handlers may still end communicators.
auto& table = *new std::map<ncclComm_t, std::shared_ptr<Communicator>>;

/// NCCL's threads get none of the process's signals.
std::thread start_thread(std::function<void()> function) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(function));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

InContext::InContext(CUcontext context) { cuCtxPushCurrent(context); }

InContext::~InContext() {
  CUcontext popped = nullptr;
  cuCtxPopCurrent(&popped);
}

ncclResult_t Communicator::make(bool blocks, std::shared_ptr<Communicator>* made) {
  CUcontext current = nullptr;
  if (cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr) {
    const ncclResult_t result = make_for(0, made);
    if (result == ncclSuccess) (*made)->blocks_ = blocks;
    return result;
  }
  std::shared_ptr<Communicator> fresh(new Communicator);
  fresh->blocks_ = blocks;
  const ncclResult_t result = fresh->set_context(current, false);
  if (result != ncclSuccess) return result;
  *made = std::move(fresh);
  return ncclSuccess;
}

ncclResult_t Communicator::make_for(CUdevice device, std::shared_ptr<Communicator>* made) {
  CUcontext primary = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
    return ncclUnhandledCudaError;
  std::shared_ptr<Communicator> fresh(new Communicator);
  const ncclResult_t result = fresh->set_context(primary, true);
  if (result != ncclSuccess) return result;
  *made = std::move(fresh);
  return ncclSuccess;
}

ncclResult_t Communicator::set_context(CUcontext context, bool is_retained) {
  const InContext here(context);
  if (cuCtxGetDevice(&device_) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  context_ = context;
  is_retained_ = is_retained;
  const std::lock_guard lock(table_mutex);
  table[handle()] = shared_from_this();
  return ncclSuccess;
}

std::shared_ptr<Communicator> Communicator::find(ncclComm_t handle) {
  const std::lock_guard lock(table_mutex);
  const auto found = table.find(handle);
  return found != table.end() ? found->second : nullptr;
}

Communicator::~Communicator() {
  if (aside_.joinable()) aside_.detach();  // it holds a reference itself, so it is at its end
}

ncclResult_t Communicator::begin(const MeetingId& id, int ranks, int rank) {
  const InContext here(context_);
  id_ = id;
  CUuuid uuid = {};
  if (const CUresult got = cuDeviceGetUuid(&uuid, device_); got != CUDA_SUCCESS)
    return fail_cuda(got, "cuDeviceGetUuid");
  std::array<std::uint8_t, 16> device;
  std::memcpy(device.data(), uuid.bytes, device.size());
  std::string why;
  const ncclResult_t joined = meeting_.join(id, ranks, rank, device, &is_stopped_, &why);
  if (joined != ncclSuccess) return fail(joined, why);
  has_met_.store(true);
  if (const CUresult got = allocate(kScratchBytes, &scratch_); got != CUDA_SUCCESS)
    return fail_cuda(got, "memory of the communicator");
  if (const CUresult got = cuModuleLoadData(&module_, kProcessKernelPtx); got != CUDA_SUCCESS)
    return fail_cuda(got, "cuModuleLoadData");
  CUresult got = cuModuleGetFunction(&kernel_, module_, kProcessKernelName);
  for (CUevent* event : {&last_, &captured_}) {
    if (got == CUDA_SUCCESS) got = cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
  }
  return got == CUDA_SUCCESS ? ncclSuccess : fail_cuda(got, "what a communicator needs");
}

void Communicator::begin_aside(std::function<ncclResult_t()> begin) {
  if (aside_.joinable()) aside_.join();  // of what was over before this was called
  {
    const std::lock_guard lock(error_mutex_);
    state_ = ncclInProgress;
  }
  aside_ = start_thread([self = shared_from_this(), begin = std::move(begin)] {
    const ncclResult_t result = begin();
    const std::lock_guard lock(self->error_mutex_);
    if (self->state_ == ncclInProgress) self->state_ = result;
  });
}

MeetingId Communicator::derive(std::uint64_t color) {
  MeetingId fresh = id_;
  std::uint64_t mixed = (++derived_ << 32) ^ color;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    mixed = (mixed ^ fresh[i]) * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 31;
    fresh[i] ^= static_cast<std::uint8_t>(mixed >> 24);
  }
  return fresh;
}

ncclResult_t Communicator::exchange(const Meeting::Word& mine, std::vector<Meeting::Word>* all) {
  const ncclResult_t result = meeting_.exchange(mine, &is_stopped_, all);
  return result == ncclSuccess ? result : fail(result, "a rank is gone, or this one was aborted");
}

ncclResult_t Communicator::finish() {
  if (!has_launched_) return ncclSuccess;
  const InContext here(context_);
  const CUresult waited = cuEventSynchronize(last_);
  return waited == CUDA_SUCCESS ? ncclSuccess : fail_cuda(waited, "cuEventSynchronize");
}

void Communicator::stop() {
  is_stopped_.store(true);
  if (has_met_) meeting_.set_state(Meeting::State::kFailed);
}

void Communicator::close() {
  if (aside_.joinable()) aside_.join();
  {
    const std::lock_guard no_kernel(turn_);
    is_closed_ = true;
    const InContext here(context_);
    if (last_ != nullptr) cuEventDestroy(last_);
    if (captured_ != nullptr) cuEventDestroy(captured_);
    if (module_ != nullptr) cuModuleUnload(module_);
    if (scratch_.bytes != 0) release(scratch_);
  }
  if (has_met_ && !is_stopped_) meeting_.set_state(Meeting::State::kLeft);
  if (is_retained_) cuDevicePrimaryCtxRelease(device_);
  const std::lock_guard lock(table_mutex);
  table.erase(handle());
}

ncclResult_t Communicator::fail(ncclResult_t error, const std::string& why) {
  const std::lock_guard lock(error_mutex_);
  if (state_ == ncclSuccess || state_ == ncclInProgress) {
    state_ = error;
    why_ = why;
  }
  return error;
}

ncclResult_t Communicator::fail_cuda(CUresult error, const char* call) {
  const char* name = nullptr;
  cuGetErrorName(error, &name);
  return fail(ncclUnhandledCudaError,
              std::string(call) + ": " + (name != nullptr ? name : "unknown error"));
}

ncclResult_t Communicator::state() const {
  const std::lock_guard lock(error_mutex_);
  return state_;
}

const char* Communicator::last_error() {
  const std::lock_guard lock(error_mutex_);
  return why_.c_str();
}

ncclResult_t Communicator::check() const {
  const ncclResult_t now = state();
  if (now == ncclInProgress) return ncclInvalidArgument;  // before it has begun
  if (is_revoked_) return ncclInvalidUsage;
  return now;
}

ncclRedOp_t Communicator::add_operator(const Reduction& reduction, std::uint64_t factor) {
  operators_[last_operator_] = {reduction, factor};
  return static_cast<ncclRedOp_t>(last_operator_++);
}

bool Communicator::remove_operator(ncclRedOp_t op) { return operators_.erase(op) != 0; }

bool Communicator::find_operator(ncclRedOp_t op, ncclDataType_t type, Operation* operation) const {
  if (!is_reducible(type)) return false;
  if (op <= ncclAvg) {
    operation->reduction = {type, op, ranks(), false, {}};
    return true;
  }
  const auto found = operators_.find(op);
  if (found == operators_.end() || found->second.reduction.type != type) return false;
  operation->reduction = found->second.reduction;
  operation->factor = found->second.factor;
  return true;
}

}  // namespace plexrl::simgpu::nccl
