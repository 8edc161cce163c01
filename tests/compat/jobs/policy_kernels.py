"""A softmax policy in CUDA C++, for the jobs that compile by NVRTC, and the prompts that it learns from."""
import numpy as np

from service import ANSWERS, right_answer

PROMPTS, FEATURES = 24576, 512  # 48 MiB of prompts stay on the GPU
BATCH, GROUP, STEPS, RATE = 32, 8, 14, 0.2
THREADS = 128
JUDGE, SAMPLE, LEARN = ({"grid": blocks, "block": THREADS} for blocks in
                        (BATCH, BATCH * GROUP // THREADS, FEATURES * ANSWERS // THREADS))

SOURCE = f"""
constexpr int kAnswers = {ANSWERS}, kFeatures = {FEATURES}, kBatch = {BATCH}, kGroup = {GROUP}, kThreads = {THREADS};
constexpr float kRate = {RATE}f;
""" + r"""
// A block for each prompt of the batch at *step: the probability of each answer.
extern "C" __global__ void judge(const float* prompts, const int* step, const float* weights, float* likely) {
  __shared__ float sums[kAnswers][kThreads];
  const float* prompt = prompts + size_t(*step * kBatch + blockIdx.x) * kFeatures;
  for (int answer = 0; answer < kAnswers; ++answer) {
    float total = 0;
    for (int feature = threadIdx.x; feature < kFeatures; feature += kThreads)
      total += prompt[feature] * weights[feature * kAnswers + answer];
    sums[answer][threadIdx.x] = total;
  }
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      for (int answer = 0; answer < kAnswers; ++answer) sums[answer][threadIdx.x] += sums[answer][threadIdx.x + half];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  float largest = sums[0][0], total = 0;
  for (int answer = 1; answer < kAnswers; ++answer) largest = fmaxf(largest, sums[answer][0]);
  for (int answer = 0; answer < kAnswers; ++answer) total += sums[answer][0] = expf(sums[answer][0] - largest);
  for (int answer = 0; answer < kAnswers; ++answer) likely[blockIdx.x * kAnswers + answer] = sums[answer][0] / total;
}

__device__ unsigned mix(unsigned x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// A thread for each answer of each prompt.
extern "C" __global__ void sample(const float* likely, const int* step, unsigned seed, int* answers) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float uniform = mix(seed + mix(*step * kBatch * kGroup + i)) * 0x1p-32f;
  int answer = 0;
  for (; answer < kAnswers - 1 && uniform >= likely[i / kGroup * kAnswers + answer]; ++answer)
    uniform -= likely[i / kGroup * kAnswers + answer];
  answers[i] = answer;
}

// A thread for each weight: what was better than its group becomes more likely.
extern "C" __global__ void learn(const float* prompts, const int* step, float* weights, const float* likely,
                                 const int* answers, const float* rewards) {
  const int weight = blockIdx.x * blockDim.x + threadIdx.x, feature = weight / kAnswers, answer = weight % kAnswers;
  float gradient = 0;
  for (int prompt = 0; prompt < kBatch; ++prompt) {
    const float* got = rewards + prompt * kGroup;
    float mean = 0, pull = 0;
    for (int member = 0; member < kGroup; ++member) mean += got[member] / kGroup;
    for (int member = 0; member < kGroup; ++member)
      pull += (got[member] - mean) * ((answers[prompt * kGroup + member] == answer) - likely[prompt * kAnswers + answer]);
    gradient += pull * prompts[size_t(*step * kBatch + prompt) * kFeatures + feature];
  }
  weights[weight] += kRate * gradient / (kBatch * kGroup);
}

extern "C" __global__ void advance(int* step) { ++*step; }
"""


def make_prompts(seed):
    """Each is noise with the mark of its answer in it."""
    random = np.random.default_rng(seed)
    marks = random.standard_normal((ANSWERS, FEATURES)).astype(np.float32)
    answers = [right_answer(prompt) for prompt in range(PROMPTS)]
    return marks[answers] + random.standard_normal((PROMPTS, FEATURES), dtype=np.float32)


def verified(service, step, answers):
    """The rewards of the answers to the batch of this step, as the kernels take them."""
    first = step * BATCH
    rewards = service.verify(np.repeat(range(first, first + BATCH), GROUP), answers)
    return np.array(rewards, dtype=np.float32)
