// Kernels of the integration programs. 32-bit words and integer arithmetic, so that results are the
// same everywhere.

__device__ unsigned global_counters[256];
__device__ unsigned long long global_sum = 1;
__constant__ unsigned constant_table[16] = {1,  2,  3,  5,  7,  11, 13, 17,
                                            19, 23, 29, 31, 37, 41, 43, 47};

__device__ unsigned hash32(unsigned x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

__device__ unsigned long long index_of_thread() {
  return blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
}

// data[i] (16 bytes) from i and seed.
extern "C" __global__ void fill(uint4* data, unsigned long long vectors, unsigned seed) {
  const unsigned long long i = index_of_thread();
  if (i >= vectors) return;
  const unsigned x = hash32((unsigned)i + seed);
  data[i] = make_uint4(x, x * 3u, ~x, x + seed);
}

// data[i] = hash(data[i] + add)
extern "C" __global__ void mix(unsigned* data, unsigned long long words, unsigned add) {
  const unsigned long long i = index_of_thread();
  if (i < words) data[i] = hash32(data[i] + add);
}

// out[i] = a[i] + b[i] * factor
extern "C" __global__ void combine(unsigned* out, const unsigned* a, const unsigned* b,
                                   unsigned long long words, unsigned factor) {
  const unsigned long long i = index_of_thread();
  if (i < words) out[i] = a[i] + b[i] * factor;
}

// counts[data[i] % bins] += 1, through shared memory; bins <= 256.
extern "C" __global__ void histogram(const unsigned* data, unsigned long long words,
                                     unsigned* counts, int bins) {
  __shared__ unsigned local[256];
  for (int b = threadIdx.x; b < bins; b += blockDim.x) local[b] = 0;
  __syncthreads();
  const unsigned long long i = index_of_thread();
  if (i < words) atomicAdd(&local[data[i] % bins], 1u);
  __syncthreads();
  for (int b = threadIdx.x; b < bins; b += blockDim.x) atomicAdd(&counts[b], local[b]);
}

// Sums words into *sum with warp shuffles and one atomic a warp.
extern "C" __global__ void reduce(const unsigned* data, unsigned long long words,
                                  unsigned long long* sum) {
  const unsigned long long i = index_of_thread();
  unsigned long long value = i < words ? data[i] : 0;
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_down_sync(0xffffffffu, value, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, value);
}

// Module variables: counters that a program reads through cuModuleGetGlobal.
extern "C" __global__ void count_globals(unsigned round) {
  const unsigned i = threadIdx.x;
  global_counters[i] = global_counters[i] * 5u + constant_table[(i + round) % 16];
  if (i == 0) global_sum = global_sum * 31u + round;
}

// Keeps the device busy for about ns.
extern "C" __global__ void hold(unsigned long long ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    __nanosleep(50000);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < ns);
}
