#pragma once

#include "tools/simgpu/driver/cuda_api.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/simgpu/driver/native_kernel.h"
#include "tools/simgpu/ptx/executor.h"

namespace plexrl::simgpu {

struct Context;
class Stream;

/// What an operation gets when it runs: on whose stream, and since when the device could have begun
/// it.
struct RunScope {
  Context* context;
  Stream* stream;
  std::uint64_t start_ns;  ///< device time at which it begins
  std::uint64_t ready_ns;  ///< when this host was done with what comes before: later than start_ns
                           ///< where it lags
};

/// One piece of device work: what a stream's queue holds and what a graph's node is made of. It
/// owns copies of all its arguments. Immutable once enqueued, so that one graph node can run many
/// times.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Does the work and waits until the modelled device is done with it. Returns the device time of
  /// its end, at least scope.start_ns. An error becomes the context's sticky error. Runs on a
  /// thread of the stream.
  virtual CUresult run(const RunScope& scope, std::uint64_t* end_ns) = 0;
  virtual std::unique_ptr<Operation> clone() const = 0;
  virtual CUgraphNodeType node_type() const = 0;
};

class EmptyOperation final : public Operation {
 public:
  CUresult run(const RunScope& scope, std::uint64_t* end_ns) override;
  std::unique_ptr<Operation> clone() const override {
    return std::make_unique<EmptyOperation>(*this);
  }
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_EMPTY; }
};

/// Any copy: rows of `width` bytes, `height` of them a slice, `depth` slices. Either side is host
/// or device memory, told apart by its address; a host address that devices can't access is
/// pageable.
struct CopyShape {
  std::uint64_t source = 0, target = 0;
  int source_device = 0,
      target_device = 0;  ///< which device's page table; ignored for host addresses
  std::size_t width = 0, height = 1, depth = 1;
  std::size_t source_pitch = 0,
              source_slice = 0;  ///< bytes from row to row, and from slice to slice
  std::size_t target_pitch = 0, target_slice = 0;
};

class CopyOperation final : public Operation {
 public:
  explicit CopyOperation(CopyShape shape) : shape_(shape) {}
  /// The source's bytes are taken now; the caller may overwrite them (pageable sources of
  /// asynchronous copies).
  void snapshot_source();
  CUresult run(const RunScope& scope, std::uint64_t* end_ns) override;
  std::unique_ptr<Operation> clone() const override {
    return std::make_unique<CopyOperation>(*this);
  }
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_MEMCPY; }
  const CopyShape& shape() const { return shape_; }

 private:
  CopyShape shape_;
  std::shared_ptr<std::vector<std::byte>> staged_;
};

struct FillShape {
  std::uint64_t target = 0;
  int device = 0;
  std::uint32_t value = 0;
  unsigned element_bytes = 1;         ///< 1, 2 or 4
  std::size_t width = 0, height = 1;  ///< in elements, and rows
  std::size_t pitch = 0;              ///< bytes from row to row
};

class FillOperation final : public Operation {
 public:
  explicit FillOperation(FillShape shape) : shape_(shape) {}
  CUresult run(const RunScope& scope, std::uint64_t* end_ns) override;
  std::unique_ptr<Operation> clone() const override {
    return std::make_unique<FillOperation>(*this);
  }
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_MEMSET; }
  const FillShape& shape() const { return shape_; }

 private:
  FillShape shape_;
};

/// A function on the host, in stream order, on a thread of the driver.
class HostOperation final : public Operation {
 public:
  HostOperation(std::function<void()> call, CUDA_HOST_NODE_PARAMS parameters)
      : call_(std::move(call)), parameters_(parameters) {}
  CUresult run(const RunScope& scope, std::uint64_t* end_ns) override;
  std::unique_ptr<Operation> clone() const override {
    return std::make_unique<HostOperation>(*this);
  }
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_HOST; }
  const CUDA_HOST_NODE_PARAMS& parameters() const { return parameters_; }

 private:
  std::function<void()> call_;
  CUDA_HOST_NODE_PARAMS parameters_;
};

/// A kernel launch. `owner` keeps the module alive while the launch is queued.
class KernelOperation final : public Operation {
 public:
  KernelOperation(const ptx::Kernel* kernel, const NativeKernel* native,
                  std::shared_ptr<void> owner, ptx::LaunchConfig config)
      : kernel_(kernel), native_(native), owner_(std::move(owner)), config_(std::move(config)) {}
  /// Fills in the memory view, clock and print hook of `scope.context` itself.
  CUresult run(const RunScope& scope, std::uint64_t* end_ns) override;
  std::unique_ptr<Operation> clone() const override {
    return std::make_unique<KernelOperation>(*this);
  }
  CUgraphNodeType node_type() const override { return CU_GRAPH_NODE_TYPE_KERNEL; }
  const ptx::Kernel* kernel() const { return kernel_; }
  const ptx::LaunchConfig& config() const { return config_; }

 private:
  CUresult run_native(const RunScope& scope, std::uint64_t* end_ns);

  const ptx::Kernel* kernel_;
  const NativeKernel* native_;
  std::shared_ptr<void> owner_;
  ptx::LaunchConfig config_;
};

/// Anything else in stream order that takes no device time of its own (wait for a value, write a
/// value, give stream-ordered memory back, record or wait for an event inside a graph).
class CallOperation final : public Operation {
 public:
  using Call = std::function<CUresult(const RunScope&)>;
  CallOperation(CUgraphNodeType type, Call call) : type_(type), call_(std::move(call)) {}
  CUresult run(const RunScope& scope, std::uint64_t* end_ns) override;
  std::unique_ptr<Operation> clone() const override {
    return std::make_unique<CallOperation>(*this);
  }
  CUgraphNodeType node_type() const override { return type_; }

 private:
  CUgraphNodeType type_;
  Call call_;
};

}  // namespace plexrl::simgpu
