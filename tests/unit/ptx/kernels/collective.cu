// What lanes and blocks do together: shuffles, votes, matches, cooperative groups, grid barriers,
// named barriers, locks.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void reduce(const float* in, float* sum, int* count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? in[i] : 0;
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  int one = i < n;
  for (int step = 16; step > 0; step /= 2) one += __shfl_down_sync(0xffffffffu, one, step);
  if (threadIdx.x % 32 == 0) {
    atomicAdd(sum, v);
    atomicAdd(count, one);
  }
}

extern "C" __global__ void shuffles(const int* in, int* out) {
  int t = threadIdx.x;
  int v = in[t];
  out[t] = __shfl_up_sync(0xffffffffu, v, 3);
  out[32 + t] = __shfl_down_sync(0xffffffffu, v, 5, 16);
  out[64 + t] = __shfl_sync(0xffffffffu, v, t * 7);
  out[96 + t] = __shfl_sync(0xffffffffu, v, t + 1, 8);
  out[128 + t] = __shfl_xor_sync(0xffffffffu, v, 9);
  out[160 + t] = __shfl_up_sync(0xffffffffu, v, 1, 4);
}

// Launched with a warp that is not full.
extern "C" __global__ void votes(const int* in, unsigned* out, int n) {
  int t = threadIdx.x;
  unsigned members = __ballot_sync(__activemask(), 1);
  int v = in[t];
  out[t * 8 + 0] = members;
  out[t * 8 + 1] = __ballot_sync(members, v & 1);
  out[t * 8 + 2] = __all_sync(members, v >= 0);
  out[t * 8 + 3] = __any_sync(members, v == 5);
  out[t * 8 + 4] = __match_any_sync(members, v % 3);
  int same;
  out[t * 8 + 5] = __match_all_sync(members, v / 100, &same) + (same ? 1 : 0);
  if (t % 2) {
    out[t * 8 + 6] = __activemask();
    __syncwarp(__activemask());
  } else {
    out[t * 8 + 6] = 0;
  }
  out[t * 8 + 7] = __match_any_sync(members, (long long)(v % 4) << 40);
}

extern "C" __global__ void tiles(const int* in, int* out) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  int v = in[threadIdx.x];
  for (int step = 4; step > 0; step /= 2) v += tile.shfl_xor(v, step);
  if (tile.meta_group_rank() % 2) v += tile.shfl(v, 3) + tile.any(v > 50);
  tile.sync();
  out[threadIdx.x] = v * 100 + tile.thread_rank();
}

extern "C" __global__ void grid_rotate(int* data, int rounds) {
  cg::grid_group grid = cg::this_grid();
  int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int r = 0; r < rounds; ++r) {
    int v = data[(i + 1) % n];
    grid.sync();
    data[i] = v + 1;
    grid.sync();
  }
}

// Threads that have left count as arrived.
extern "C" __global__ void leavers(int* out) {
  __shared__ int sum;
  int t = threadIdx.x;
  if (t == 0) sum = 0;
  __syncthreads();
  if (t % 3 == 0) return;
  atomicAdd(&sum, t);
  __syncthreads();
  out[t] = sum;
}

extern "C" __global__ void counted(const int* in, int* out) {
  int t = threadIdx.x;
  out[t] = __syncthreads_count(in[t] > 0);
  out[blockDim.x + t] = __syncthreads_and(in[t] >= 0) * 2 + __syncthreads_or(in[t] > 90);
}

// Two warps pass a value through named barriers.
extern "C" __global__ void named(int* out) {
  __shared__ int box;
  int t = threadIdx.x;
  if (t < 32) {
    if (t == 0) box = 42;
    asm volatile("bar.arrive 3, 64;" ::: "memory");
    asm volatile("bar.sync 4, 64;" ::: "memory");
    out[t] = box;
  } else {
    asm volatile("bar.sync 3, 64;" ::: "memory");
    if (t == 32) box += 1;
    asm volatile("bar.sync 4, 64;" ::: "memory");
    out[t] = box;
  }
}

// Every lane takes the lock by itself: the lane that holds it must get its turn.
extern "C" __global__ void locked(int* lock, int* value) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  int v = *(volatile int*)value;
  *(volatile int*)value = v + 1;
  __threadfence();
  atomicExch(lock, 0);
}

extern "C" __global__ void atomics(unsigned* u, int* s, unsigned long long* l, float* f,
                                   double* d) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&u[0], t);
  atomicSub(&u[1], 3);
  atomicMin(&u[2], 1000 - t);
  atomicMax(&u[3], t * 2);
  atomicAnd(&u[4], ~(1u << (t % 32)));
  atomicOr(&u[5], 1u << (t % 32));
  atomicXor(&u[6], t);
  atomicInc(&u[7], 9);
  atomicDec(&u[8], 9);
  u[16 + t] = atomicExch(&u[9], t);
  atomicMin(&s[0], -t);
  atomicMax(&s[1], t - 500);
  atomicAdd(&l[0], 1ull << 33);
  atomicMax(&l[1], (unsigned long long)t << 35);
  atomicCAS(&l[2], 0ull, 77ull);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  __shared__ int shared;
  if (threadIdx.x == 0) shared = 0;
  __syncthreads();
  atomicAdd(&shared, 2);
  __syncthreads();
  // By compare and swap: a float maximum.
  int* word = (int*)(f + 1);
  int old = *word, assumed;
  do {
    assumed = old;
    old = atomicCAS(word, assumed, __float_as_int(fmaxf(__int_as_float(assumed), (float)(t % 97))));
  } while (old != assumed);
  if (threadIdx.x == 0) atomicAdd(&s[2], shared);
}

__device__ unsigned finished = 0;
__device__ volatile int announced;
extern "C" __global__ void last_block(const int* in, int* partial, int* total, int n) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int i = blockIdx.x; i < n; i += gridDim.x) sum += in[i];
    partial[blockIdx.x] = sum;
    announced = 1;
    __threadfence();
    is_last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    int sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += ((volatile int*)partial)[b];
    *total = sum;
  }
}
