#include "tools/simgpu/driver/node_work.h"

#include "tools/simgpu/driver/copy_shape.h"
#include "tools/simgpu/driver/device_memory.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/graph_memory.h"
#include "tools/simgpu/driver/launch.h"
#include "tools/simgpu/driver/module.h"

namespace plexrl::simgpu {
namespace {

// The context that a handle names, or the calling thread's.
CUresult named_context(CUcontext handle, Context** context) {
  if (handle == nullptr) return usable_context(context);
  if (!is_context(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  *context = reinterpret_cast<Context*>(handle);
  return CUDA_SUCCESS;
}

template <typename T>
const T* operation_of(const GraphNode& node) {
  return dynamic_cast<const T*>(node.work.operation.get());
}

}  // namespace

CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v2& p, NodeWork* work) {
  if (p.func == nullptr && p.kern == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  CUresult result = named_context(p.ctx, &context);
  if (result != CUDA_SUCCESS) return result;
  Function* function = nullptr;
  const CUfunction handle = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  result = find_function(handle, context, &function);
  if (result != CUDA_SUCCESS) return result;
  const auto cooperative = work->attributes.find(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  const LaunchShape shape{
      {p.gridDimX, p.gridDimY, p.gridDimZ},
      {p.blockDimX, p.blockDimY, p.blockDimZ},
      p.sharedMemBytes,
      cooperative != work->attributes.end() && cooperative->second.cooperative != 0};
  std::unique_ptr<Operation> operation;
  result = make_launch(*function, shape, p.kernelParams, p.extra, &operation);
  if (result != CUDA_SUCCESS) return result;
  work->type = CU_GRAPH_NODE_TYPE_KERNEL;
  work->context = function->image->context();
  work->operation = std::move(operation);
  return CUDA_SUCCESS;
}

CUresult copy_work(const CUDA_MEMCPY3D& p, CUcontext handle, NodeWork* work) {
  Context* context = nullptr;
  CUresult result = named_context(handle, &context);
  if (result != CUDA_SUCCESS) return result;
  CopyShape shape;
  result = shape_of(p, &shape);
  if (result != CUDA_SUCCESS) return result;
  set_devices(context, &shape);
  work->type = CU_GRAPH_NODE_TYPE_MEMCPY;
  work->context = context;
  work->operation = std::make_shared<CopyOperation>(shape);
  work->copy = p;
  return CUDA_SUCCESS;
}

CUresult fill_work(const CUDA_MEMSET_NODE_PARAMS& p, CUcontext handle, NodeWork* work) {
  Context* context = nullptr;
  const CUresult result = named_context(handle, &context);
  if (result != CUDA_SUCCESS) return result;
  const bool is_element = p.elementSize == 1 || p.elementSize == 2 || p.elementSize == 4;
  const bool is_pitched = p.height <= 1 || p.pitch >= p.width * p.elementSize;
  if (p.dst == 0 || !is_element || p.width == 0 || p.height == 0 || !is_pitched ||
      p.dst % p.elementSize != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  FillShape shape;
  shape.target = p.dst;
  shape.device = device_of_address(context, p.dst);
  shape.value = p.value;
  shape.element_bytes = p.elementSize;
  shape.width = p.width;
  shape.height = p.height;
  shape.pitch = p.pitch;
  work->type = CU_GRAPH_NODE_TYPE_MEMSET;
  work->context = context;
  work->operation = std::make_shared<FillOperation>(shape);
  return CUDA_SUCCESS;
}

CUresult host_work(const CUDA_HOST_NODE_PARAMS& p, NodeWork* work) {
  if (p.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  work->type = CU_GRAPH_NODE_TYPE_HOST;
  work->operation = std::make_shared<HostOperation>([p] { p.fn(p.userData); }, p);
  return CUDA_SUCCESS;
}

CUresult event_work(CUgraphNodeType type, CUevent event, NodeWork* work) {
  if (!is_event(event)) return CUDA_ERROR_INVALID_HANDLE;
  // What a graph records or waits for stays in this process.
  if ((reinterpret_cast<Event*>(event)->flags & CU_EVENT_INTERPROCESS) != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  work->type = type;
  work->event = reinterpret_cast<Event*>(event);
  work->context = work->event->context;
  return CUDA_SUCCESS;
}

CUresult child_work(CUgraph handle, NodeWork* work) {
  const Graph* const child = find_graph(handle);
  if (child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // "Graphs containing allocation or free nodes cannot be used as child graphs" of this kind.
  if (child->has_memory_nodes()) return CUDA_ERROR_NOT_SUPPORTED;
  work->type = CU_GRAPH_NODE_TYPE_GRAPH;
  work->child = child->clone();
  return CUDA_SUCCESS;
}

CUresult allocation_work(CUDA_MEM_ALLOC_NODE_PARAMS* p, NodeWork* work) {
  Context* context = nullptr;
  CUresult result = usable_context(&context);
  if (result != CUDA_SUCCESS) return result;
  const CUmemPoolProps& pool = p->poolProps;
  const auto ordinal = static_cast<std::size_t>(pool.location.id);
  const bool is_device = pool.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                         ordinal < driver()->visible.size() &&
                         driver()->visible[ordinal] == context->device;
  if (!is_device || pool.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  result = GraphMemory::create(context, *p, &work->memory);
  if (result != CUDA_SUCCESS) return result;
  work->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  work->context = context;
  p->dptr = work->memory->address();
  return CUDA_SUCCESS;
}

CUresult free_work(CUdeviceptr address, NodeWork* work) {
  work->memory = GraphMemory::find(address);
  if (work->memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  work->type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  work->freed = address;
  return CUDA_SUCCESS;
}

CUresult generic_work(CUgraphNodeParams* p, NodeWork* work) {
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS_v3& k = p->kernel;
      return kernel_work({k.func, k.gridDimX, k.gridDimY, k.gridDimZ, k.blockDimX, k.blockDimY,
                          k.blockDimZ, k.sharedMemBytes, k.kernelParams, k.extra, k.kern, k.ctx},
                         work);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return copy_work(p->memcpy.copyParams, p->memcpy.copyCtx, work);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS_v2& m = p->memset;
      return fill_work({m.dst, m.pitch, m.value, m.elementSize, m.width, m.height}, m.ctx, work);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return host_work({p->host.fn, p->host.userData}, work);
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      const CUresult result = child_work(p->graph.graph, work);
      if (result == CUDA_SUCCESS) p->graph.graph = handle_of(work->child.get());
      return result;
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      work->type = CU_GRAPH_NODE_TYPE_EMPTY;
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return event_work(p->type, p->eventWait.event, work);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return event_work(p->type, p->eventRecord.event, work);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
      allocation.poolProps = p->alloc.poolProps;
      allocation.bytesize = p->alloc.bytesize;
      const CUresult result = allocation_work(&allocation, work);
      if (result == CUDA_SUCCESS) p->alloc.dptr = allocation.dptr;
      return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return free_work(p->free.dptr, work);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult kernel_parameters(GraphNode* node, CUDA_KERNEL_NODE_PARAMS_v2* p) {
  const auto* const operation = operation_of<KernelOperation>(*node);
  if (operation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ptx::LaunchConfig& config = operation->config();
  node->argument_pointers.clear();
  for (const ptx::Parameter& parameter : ptx::info(*operation->kernel()).parameters) {
    const std::byte* const argument = config.parameters.data() + parameter.offset;
    node->argument_pointers.push_back(const_cast<std::byte*>(argument));
  }
  *p = {};
  p->func = reinterpret_cast<CUfunction>(function_of(operation->kernel()));
  p->gridDimX = config.grid[0];
  p->gridDimY = config.grid[1];
  p->gridDimZ = config.grid[2];
  p->blockDimX = config.block[0];
  p->blockDimY = config.block[1];
  p->blockDimZ = config.block[2];
  p->sharedMemBytes = static_cast<unsigned>(config.dynamic_shared_bytes);
  p->kernelParams = node->argument_pointers.data();
  p->ctx = reinterpret_cast<CUcontext>(node->work.context);
  return CUDA_SUCCESS;
}

CUresult copy_parameters(const GraphNode& node, CUDA_MEMCPY3D* p) {
  const auto* const operation = operation_of<CopyOperation>(node);
  if (operation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *p = node.work.copy.has_value() ? *node.work.copy : parameters_of(operation->shape());
  return CUDA_SUCCESS;
}

CUresult fill_parameters(const GraphNode& node, CUDA_MEMSET_NODE_PARAMS* p) {
  const auto* const operation = operation_of<FillOperation>(node);
  if (operation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const FillShape& shape = operation->shape();
  *p = {shape.target, shape.pitch, shape.value, shape.element_bytes, shape.width, shape.height};
  return CUDA_SUCCESS;
}

CUresult host_parameters(const GraphNode& node, CUDA_HOST_NODE_PARAMS* p) {
  const auto* const operation = operation_of<HostOperation>(node);
  if (operation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *p = operation->parameters();
  return CUDA_SUCCESS;
}

CUresult set_kernel_attribute(NodeWork* work, int attribute, const CUlaunchAttributeValue& value) {
  const auto* const launch = dynamic_cast<const KernelOperation*>(work->operation.get());
  if (launch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
    const Function* const function = function_of(launch->kernel());
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ptx::LaunchConfig config = launch->config();
    config.cooperative = value.cooperative != 0;
    work->operation = std::make_shared<KernelOperation>(launch->kernel(), function->native,
                                                        function->image, std::move(config));
  }
  work->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

}  // namespace plexrl::simgpu
