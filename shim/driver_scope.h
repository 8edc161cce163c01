#pragma once

#include "interpose/driver.h"
#include "shim/log.h"

namespace plexrl::shim {

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
