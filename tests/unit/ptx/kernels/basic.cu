// Elementwise with a tail guard, a shared-memory matrix product, a divergent loop with early
// return, vector loads, dynamic shared memory.

extern "C" __global__ void add(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}

#define TILE 16
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float sa[TILE][TILE], sb[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += TILE) {
    sa[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
    sb[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < TILE; ++i) sum = __fmaf_rn(sa[threadIdx.y][i], sb[i][threadIdx.x], sum);
    __syncthreads();
  }
  c[row * n + column] = sum;
}

// Steps of the Collatz sequence.
extern "C" __global__ void collatz(const unsigned* start, int* steps, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long x = start[i];
  if (x == 0) {
    steps[i] = -1;
    return;
  }
  int count = 0;
  while (x != 1) {
    x = (x & 1) ? 3 * x + 1 : x / 2;
    ++count;
    if (count > 1000) {
      steps[i] = -2;
      return;
    }
  }
  steps[i] = count;
}

extern __shared__ float4 reversed[];
extern "C" __global__ void vectors(const float4* in, float4* out, double2* wide) {
  int t = threadIdx.x;
  reversed[blockDim.x - 1 - t] = in[t];
  __syncthreads();
  float4 v = reversed[t];
  out[t] = make_float4(v.w, v.z, v.y, v.x);
  wide[t] = make_double2((double)v.x * 2, (double)v.y + 1);
}
