#pragma once

#include "tools/simgpu/driver/graph.h"

/// From the parameters of a node to what it does, and back.
///
/// All of these check their parameters and copy what they point to. Errors are those that the
/// reference gives for the Add and SetParams calls.
namespace plexrl::simgpu {

CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v2& parameters, NodeWork* work);
CUresult copy_work(const CUDA_MEMCPY3D& parameters, CUcontext context, NodeWork* work);
CUresult fill_work(const CUDA_MEMSET_NODE_PARAMS& parameters, CUcontext context, NodeWork* work);
CUresult host_work(const CUDA_HOST_NODE_PARAMS& parameters, NodeWork* work);
CUresult event_work(CUgraphNodeType type, CUevent event, NodeWork* work);
/// The child is copied.
CUresult child_work(CUgraph child, NodeWork* work);
CUresult allocation_work(CUDA_MEM_ALLOC_NODE_PARAMS* parameters, NodeWork* work);
CUresult free_work(CUdeviceptr address, NodeWork* work);
/// Any of them, by parameters->type. What a node hands back (the address of an allocation, the
/// embedded child graph) is written into *parameters.
CUresult generic_work(CUgraphNodeParams* parameters, NodeWork* work);

/// Of a kernel node; the pointers stay valid while the node is not changed.
CUresult kernel_parameters(GraphNode* node, CUDA_KERNEL_NODE_PARAMS_v2* parameters);
CUresult copy_parameters(const GraphNode& node, CUDA_MEMCPY3D* parameters);
CUresult fill_parameters(const GraphNode& node, CUDA_MEMSET_NODE_PARAMS* parameters);
CUresult host_parameters(const GraphNode& node, CUDA_HOST_NODE_PARAMS* parameters);

/// Only CU_LAUNCH_ATTRIBUTE_COOPERATIVE changes what a launch does; others are kept for the asker.
CUresult set_kernel_attribute(NodeWork* work, int attribute, const CUlaunchAttributeValue& value);

}  // namespace plexrl::simgpu
