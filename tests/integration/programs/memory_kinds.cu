// Kernels on memory that the driver owns: managed variables.

__managed__ unsigned managed_total = 5;

// The sum of `value` over all threads, in memory that the host reads without a copy.
extern "C" __global__ void add_to_managed(unsigned value) { atomicAdd(&managed_total, value); }
