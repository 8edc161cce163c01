// NVML of two functions, built as libnvidia-ml.so.1.

struct memory {
  unsigned long long total, free, used;
};

__attribute__((visibility("default"))) int nvmlDeviceGetMemoryInfo(void* device,
                                                                   struct memory* memory) {
  memory->total = 42;
  return device == 0 ? 2 : 0;
}

__attribute__((visibility("default"))) int nvmlDeviceGetIndex(void* device, unsigned* index) {
  *index = 7;
  return device == 0 ? 2 : 0;
}
