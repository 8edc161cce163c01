#include <cstdio>
#include <string>

#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/graph.h"
#include "tools/simgpu/driver/graph_memory.h"
#include "tools/simgpu/ptx/executor.h"

// "Graph Management" of the driver API: user objects, drawing a graph, the memory that graphs use.

namespace plexrl::simgpu {
namespace {

const char* type_name(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "WAIT_EVENT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    default:
      return "OTHER";
  }
}

std::string label_of(const GraphNode& node) {
  std::string label = type_name(node.work.type);
  const auto* const launch = dynamic_cast<const KernelOperation*>(node.work.operation.get());
  if (launch != nullptr) label += "\\n" + ptx::info(*launch->kernel()).name;
  return label;
}

// A graph as a subgraph of a DOT file, its child graphs inside.
void draw(const Graph& graph, const std::string& name, std::FILE* file) {
  std::fprintf(file, "subgraph cluster_%s {\nlabel=\"graph_%s\"\n", name.c_str(), name.c_str());
  for (const auto& node : graph.nodes) {
    const auto id = static_cast<unsigned long long>(node->id);
    std::fprintf(file, "\"node_%llu\" [label=\"%llu\\n%s\"];\n", id, id, label_of(*node).c_str());
    for (const GraphEdge& edge : node->dependents) {
      std::fprintf(file, "\"node_%llu\" -> \"node_%llu\";\n", id,
                   static_cast<unsigned long long>(edge.other->id));
    }
    if (node->work.child != nullptr) draw(*node->work.child, std::to_string(id), file);
  }
  std::fputs("}\n", file);
}

bool is_ordinal(CUdevice device) {
  return device >= 0 && static_cast<std::size_t>(device) < driver()->visible.size();
}

UserObject* object_of(CUuserObject handle) { return reinterpret_cast<UserObject*>(handle); }

}  // namespace
}  // namespace plexrl::simgpu

using namespace plexrl::simgpu;

SIMGPU_EXPORT CUresult CUDAAPI cuGraphDebugDotPrint(CUgraph hGraph, const char* path,
                                                    unsigned int) {
  SIMGPU_ENTER(cuGraphDebugDotPrint);
  const std::lock_guard lock(graph_mutex());
  const Graph* const graph = find_graph(hGraph);
  if (graph == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* const file = std::fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  std::fputs("digraph dot {\n", file);
  draw(*graph, "0", file);
  std::fputs("}\n", file);
  return std::fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

SIMGPU_EXPORT CUresult CUDAAPI cuUserObjectCreate(CUuserObject* object_out, void* ptr,
                                                  CUhostFn destroy, unsigned int initialRefcount,
                                                  unsigned int flags) {
  SIMGPU_ENTER(cuUserObjectCreate);
  // "Currently it is required to pass CU_USER_OBJECT_NO_DESTRUCTOR_SYNC."
  const bool is_valid = object_out != nullptr && destroy != nullptr && initialRefcount > 0 &&
                        flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
  if (!is_valid) return CUDA_ERROR_INVALID_VALUE;
  *object_out = reinterpret_cast<CUuserObject>(new UserObject{ptr, destroy, initialRefcount});
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned int count) {
  SIMGPU_ENTER(cuUserObjectRetain);
  if (object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(graph_mutex());
  object_of(object)->references += count;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int count) {
  SIMGPU_ENTER(cuUserObjectRelease);
  if (object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(graph_mutex());
  if (count > object_of(object)->references) return CUDA_ERROR_INVALID_VALUE;
  release_user_object(object_of(object), count);
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object,
                                                       unsigned int count, unsigned int flags) {
  SIMGPU_ENTER(cuGraphRetainUserObject);
  const std::lock_guard lock(graph_mutex());
  Graph* const found = find_graph(graph);
  const bool is_valid =
      found != nullptr && object != nullptr && count > 0 && flags <= CU_GRAPH_USER_OBJECT_MOVE;
  if (!is_valid) return CUDA_ERROR_INVALID_VALUE;
  // Moved references are the caller's; others are new.
  if (flags != CU_GRAPH_USER_OBJECT_MOVE) object_of(object)->references += count;
  found->user_objects[object_of(object)] += count;
  return CUDA_SUCCESS;
}

SIMGPU_EXPORT CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject object,
                                                        unsigned int count) {
  SIMGPU_ENTER(cuGraphReleaseUserObject);
  const std::lock_guard lock(graph_mutex());
  Graph* const found = find_graph(graph);
  if (found == nullptr || object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto held = found->user_objects.find(object_of(object));
  if (held == found->user_objects.end() || held->second < count) return CUDA_ERROR_INVALID_VALUE;
  held->second -= count;
  if (held->second == 0) found->user_objects.erase(held);
  release_user_object(object_of(object), count);
  return CUDA_SUCCESS;
}

// What a graph gives back goes to the device at once, so what is reserved is what is used, and
// there is nothing to trim.
SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device) {
  SIMGPU_ENTER(cuDeviceGraphMemTrim);
  return is_ordinal(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

SIMGPU_EXPORT CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device,
                                                            CUgraphMem_attribute attr,
                                                            void* value) {
  SIMGPU_ENTER(cuDeviceGetGraphMemAttribute);
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool is_peak =
      attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  const int machine_device = driver()->visible[static_cast<std::size_t>(device)];
  *static_cast<cuuint64_t*>(value) =
      is_peak ? GraphMemory::peak_bytes(machine_device) : GraphMemory::used_bytes(machine_device);
  return CUDA_SUCCESS;
}

// "Only high watermarks can be set, and only to zero."
SIMGPU_EXPORT CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice device,
                                                            CUgraphMem_attribute attr,
                                                            void* value) {
  SIMGPU_ENTER(cuDeviceSetGraphMemAttribute);
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  const bool is_peak =
      attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  if (!is_peak || value == nullptr || *static_cast<const cuuint64_t*>(value) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  GraphMemory::reset_peak(driver()->visible[static_cast<std::size_t>(device)]);
  return CUDA_SUCCESS;
}
