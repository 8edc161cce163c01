// Compiled to fat binaries, a cubin and LTO-IR for image_test.cc.

extern "C" __device__ int bias = 5;

extern "C" __global__ void add_bias(int* p, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) p[i] += bias;
}
