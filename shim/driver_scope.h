#pragma once

#include "interpose/driver.h"
#include "shim/log.h"

namespace plexrl::shim {

/// Errors after which a context is dead (the driver's reference: "must be destroyed").
constexpr bool is_sticky(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return true;
    default:
      return false;
  }
}

/// At which level a failure of the driver is told that would be told at `usual`. The driver closes
/// in exit(), whatever the agent is doing with it then: nothing is wrong, the memory goes with the
/// process.
constexpr LogLevel failure_level(CUresult result, LogLevel usual) noexcept {
  return result == CUDA_ERROR_DEINITIALIZED ? LogLevel::kInfo : usual;
}

/// For the shim's own calls: whatever capture the job has in progress, they neither join nor break
/// it (cuThreadExchangeStreamCaptureMode, CU_STREAM_CAPTURE_MODE_RELAXED). Costs one call each way,
/// so not for the hot path. Works without a current context.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept { driver.cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { driver.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// Makes `context` current in this thread for a while; the job's own choice comes back after.
class PushedContext {
 public:
  explicit PushedContext(CUcontext context) noexcept
      : result_(driver.cuCtxPushCurrent_v2(context)) {}
  ~PushedContext() {
    CUcontext popped = nullptr;
    if (ok()) driver.cuCtxPopCurrent_v2(&popped);
  }
  PushedContext(const PushedContext&) = delete;
  PushedContext& operator=(const PushedContext&) = delete;

  bool ok() const noexcept { return result_ == CUDA_SUCCESS; }
  CUresult result() const noexcept { return result_; }

 private:
  CUresult result_;
};

}  // namespace plexrl::shim
