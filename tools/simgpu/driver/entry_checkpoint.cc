// Checkpoints of processes ("CUDA Checkpointing", CUDA driver API).

#include <algorithm>
#include <cstring>

#include "tools/simgpu/driver/driver.h"

namespace plexrl::simgpu {
namespace {

CUresult give_order(int pid, ProcessOrder what, unsigned timeout_ms = 0) {
  const int answer = driver()->machine->order(pid, what, timeout_ms);
  if (answer == Machine::kNoProcess) return CUDA_ERROR_INVALID_VALUE;
  if (answer == Machine::kLate) return CUDA_ERROR_NOT_READY;
  return static_cast<CUresult>(answer);
}

template <typename T, std::size_t N>
bool is_zero(const T (&reserved)[N]) {
  return std::all_of(std::begin(reserved), std::end(reserved), [](T one) { return one == 0; });
}

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuCheckpointProcessGetRestoreThreadId(int pid, int* tid) {
  SIMGPU_ENTER_LOCKED(cuCheckpointProcessGetRestoreThreadId);
  Machine::ProcessInfo info{};
  if (tid == nullptr || !driver()->machine->process_info(pid, &info))
    return CUDA_ERROR_INVALID_VALUE;
  *tid = info.thread;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCheckpointProcessGetState(int pid, CUprocessState* state) {
  SIMGPU_ENTER_LOCKED(cuCheckpointProcessGetState);
  Machine::ProcessInfo info{};
  if (state == nullptr || !driver()->machine->process_info(pid, &info))
    return CUDA_ERROR_INVALID_VALUE;
  *state = static_cast<CUprocessState>(info.state);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) {
  SIMGPU_ENTER_LOCKED(cuCheckpointProcessLock);
  if (args != nullptr && (args->reserved0 != 0 || !is_zero(args->reserved1)))
    return CUDA_ERROR_INVALID_VALUE;
  return give_order(pid, ProcessOrder::kLock, args == nullptr ? 0 : args->timeoutMs);
}

SIMGPU_EXPORT CUresult CUDAAPI cuCheckpointProcessCheckpoint(int pid,
                                                             CUcheckpointCheckpointArgs* args) {
  SIMGPU_ENTER_LOCKED(cuCheckpointProcessCheckpoint);
  if (args != nullptr && !is_zero(args->reserved)) return CUDA_ERROR_INVALID_VALUE;
  return give_order(pid, ProcessOrder::kCheckpoint);
}

SIMGPU_EXPORT CUresult CUDAAPI cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) {
  SIMGPU_ENTER_LOCKED(cuCheckpointProcessRestore);
  if (args != nullptr) {
    if (args->reserved1 != 0 || !is_zero(args->reserved)) return CUDA_ERROR_INVALID_VALUE;
    if (args->gpuPairsCount != 0 && args->gpuPairs == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < args->gpuPairsCount; ++i) {  // each GPU comes back where it was
      const CUcheckpointGpuPair& pair = args->gpuPairs[i];
      if (std::memcmp(&pair.oldUuid, &pair.newUuid, sizeof pair.oldUuid) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return give_order(pid, ProcessOrder::kRestore);
}

SIMGPU_EXPORT CUresult CUDAAPI cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs* args) {
  SIMGPU_ENTER_LOCKED(cuCheckpointProcessUnlock);
  if (args != nullptr && !is_zero(args->reserved)) return CUDA_ERROR_INVALID_VALUE;
  return give_order(pid, ProcessOrder::kUnlock);
}
