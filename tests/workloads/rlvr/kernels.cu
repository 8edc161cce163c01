// Kernels of the rlvr workload. No atomics on floats: each output element has one thread that sums
// in a fixed order, so results are the same bits in every run on one device.
//
// The policy: hidden = relu(Ea[a] + Eb[b] + b1), logits = W2 hidden + b2, softmax. `Shape` in
// trainer.h has the same layout.

struct Shape {
  int modulus;  // P: operands and answers are 0..P-1
  int hidden;   // H: threads of a block in most kernels
  int samples;  // G: answers sampled for each prompt
};

// Offsets into the parameter vector: Ea [P,H], Eb [P,H], b1 [H], W2 [P,H], b2 [P].
__device__ int ea_offset(Shape) { return 0; }
__device__ int eb_offset(Shape s) { return s.modulus * s.hidden; }
__device__ int b1_offset(Shape s) { return 2 * s.modulus * s.hidden; }
__device__ int w2_offset(Shape s) { return b1_offset(s) + s.hidden; }
__device__ int b2_offset(Shape s) { return w2_offset(s) + s.modulus * s.hidden; }

// Counter-based generator (the finaliser of SplitMix64): the same number for the same (key,
// counter), in any order.
__device__ unsigned long long mix64(unsigned long long key, unsigned long long counter) {
  unsigned long long z = key + counter * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

__device__ float uniform01(unsigned long long key, unsigned long long counter) {
  return (float)(mix64(key, counter) >> 40) * (1.0f / 16777216.0f);
}

extern "C" __global__ void init_params(float* params, int count, unsigned long long key,
                                       float scale) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) params[i] = (2.0f * uniform01(key, i) - 1.0f) * scale;
}

// Grid: prompts. Block: hidden. Shared: hidden + modulus floats.
extern "C" __global__ void forward(Shape s, const float* params, const int2* prompts, float* hidden,
                                   float* probs) {
  extern __shared__ float shared[];
  float* logits = shared + s.hidden;
  const int t = threadIdx.x;
  const int2 prompt = prompts[blockIdx.x];
  float h = params[ea_offset(s) + prompt.x * s.hidden + t] +
            params[eb_offset(s) + prompt.y * s.hidden + t] + params[b1_offset(s) + t];
  h = h > 0.0f ? h : 0.0f;
  shared[t] = h;
  hidden[blockIdx.x * s.hidden + t] = h;
  __syncthreads();
  if (t < s.modulus) {
    float sum = params[b2_offset(s) + t];
    for (int k = 0; k < s.hidden; ++k) sum += shared[k] * params[w2_offset(s) + t * s.hidden + k];
    logits[t] = sum;
  }
  __syncthreads();
  if (t < s.modulus) {
    float top = logits[0];
    for (int j = 1; j < s.modulus; ++j) top = logits[j] > top ? logits[j] : top;
    float total = 0.0f;
    for (int j = 0; j < s.modulus; ++j) total += __expf(logits[j] - top);
    probs[blockIdx.x * s.modulus + t] = __expf(logits[t] - top) / total;
  }
}

// Grid: prompts. Block: samples. Draws an answer from the policy and keeps the probability it had.
extern "C" __global__ void sample(Shape s, const float* probs, unsigned long long key, int* answers,
                                  float* chosen) {
  const int i = blockIdx.x * s.samples + threadIdx.x;
  const float u = uniform01(key, i);
  const float* p = probs + blockIdx.x * s.modulus;
  int answer = 0;
  float sum = p[0];
  while (answer < s.modulus - 1 && u >= sum) sum += p[++answer];
  answers[i] = answer;
  chosen[i] = p[answer];
}

// Grid: prompts of the minibatch. Block: modulus. Policy gradient with an importance ratio (cut at
// 2) against the policy that sampled: d/dlogit_j = sum over samples of advantage * ratio *
// (1[answer = j] - p_j).
extern "C" __global__ void grad_logits(Shape s, const float* probs, const int* answers,
                                       const float* chosen, const float* advantages, float scale,
                                       float* dlogits) {
  const int j = threadIdx.x;
  const float* p = probs + blockIdx.x * s.modulus;
  float sum = 0.0f;
  for (int g = 0; g < s.samples; ++g) {
    const int i = blockIdx.x * s.samples + g;
    const int answer = answers[i];
    const float ratio = p[answer] / chosen[i];
    const float weight = advantages[i] * (ratio > 2.0f ? 2.0f : ratio);
    sum += weight * ((answer == j ? 1.0f : 0.0f) - p[j]);
  }
  dlogits[blockIdx.x * s.modulus + j] = sum * scale;
}

// Grid: prompts of the minibatch. Block: hidden.
extern "C" __global__ void grad_hidden(Shape s, const float* params, const float* hidden,
                                       const float* dlogits, float* dhidden) {
  const int i = blockIdx.x * s.hidden + threadIdx.x;
  float sum = 0.0f;
  for (int j = 0; j < s.modulus; ++j)
    sum += dlogits[blockIdx.x * s.modulus + j] * params[w2_offset(s) + j * s.hidden + threadIdx.x];
  dhidden[i] = hidden[i] > 0.0f ? sum : 0.0f;
}

// Grid: modulus. Block: hidden. W2 and b2.
extern "C" __global__ void grad_output(Shape s, const float* hidden, const float* dlogits,
                                       int prompts, float* grads) {
  const int j = blockIdx.x, t = threadIdx.x;
  float weight = 0.0f, bias = 0.0f;
  for (int b = 0; b < prompts; ++b) {
    const float d = dlogits[b * s.modulus + j];
    weight += d * hidden[b * s.hidden + t];
    bias += d;
  }
  grads[w2_offset(s) + j * s.hidden + t] = weight;
  if (t == 0) grads[b2_offset(s) + j] = bias;
}

// Grid: 2 * modulus + 1. Block: hidden. A row of Ea, a row of Eb, or b1.
extern "C" __global__ void grad_input(Shape s, const int2* prompts, const float* dhidden, int count,
                                      float* grads) {
  const int row = blockIdx.x, t = threadIdx.x;
  float sum = 0.0f;
  for (int b = 0; b < count; ++b) {
    const int2 prompt = prompts[b];
    const bool mine =
        row < s.modulus ? prompt.x == row : row == 2 * s.modulus || prompt.y == row - s.modulus;
    if (mine) sum += dhidden[b * s.hidden + t];
  }
  grads[row * s.hidden + t] = sum;
}

// Adam, ascending. The corrections are 1 / (1 - beta^t).
extern "C" __global__ void adam(float* params, const float* grads, float* m, float* v, int count,
                                float rate, float correct1, float correct2) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float g = grads[i];
  m[i] = 0.9f * m[i] + 0.1f * g;
  v[i] = 0.99f * v[i] + 0.01f * g * g;
  params[i] += rate * (m[i] * correct1) / (sqrtf(v[i] * correct2) + 1e-8f);
}

// ---- the padding that stands for a large model's state

extern "C" __global__ void fill_state(uint4* state, unsigned long long count,
                                      unsigned long long key) {
  const unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i >= count) return;
  const unsigned z = (unsigned)mix64(key, i);
  state[i] = make_uint4(z, z * 2654435761u, z ^ 0x55555555u, z + 0x01234567u);
}

// Rewrites 16 bytes a thread. What goes in depends on the gradients, so that a lost or stale page
// anywhere shows up in everything that follows.
extern "C" __global__ void stir_state(uint4* state, unsigned long long count, const unsigned* grads,
                                      int grad_count, unsigned step) {
  const unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
  if (i >= count) return;
  const unsigned g = grads[(unsigned)i % (unsigned)grad_count] + step;
  const uint4 x = state[i];
  state[i] = make_uint4(x.y * 1664525u + g, x.z + g, x.w ^ g, x.x + 0x9E3779B9u);
}

// Changes one word in each `stride` words: every page of the state is written in every step.
extern "C" __global__ void touch_state(unsigned* state, unsigned long long words, unsigned stride,
                                       unsigned step) {
  const unsigned long long i = (blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x) * stride;
  if (i < words) state[i] = state[i] * 1664525u + step;
}

// ---- device time that stands for a large model's kernels

__device__ unsigned long long global_ns() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

extern "C" __global__ void hold(unsigned long long ns) {
  const unsigned long long start = global_ns();
  while (global_ns() - start < ns) __nanosleep(100000);
}
