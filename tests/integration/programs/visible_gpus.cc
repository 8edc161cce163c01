// For run_placement.py: prints the UUID of each GPU that the process sees, as CUDA_VISIBLE_DEVICES
// spells it.
#include <cstdio>

#include "tests/integration/programs/program.h"

using namespace plexrl::integration;

int main() {
  CHECK(cuInit(0));
  int count = 0;
  CHECK(cuDeviceGetCount(&count));
  for (int i = 0; i < count; ++i) {
    CUuuid uuid;
    CHECK(cuDeviceGetUuid(&uuid, i));
    std::printf("GPU-");
    for (int byte = 0; byte < 16; ++byte) {
      const bool begins_a_part = byte == 4 || byte == 6 || byte == 8 || byte == 10;
      std::printf("%s%02x", begins_a_part ? "-" : "", static_cast<unsigned char>(uuid.bytes[byte]));
    }
    std::printf("\n");
  }
}
