// libibverbs of a few functions with the versions that they have there, built as libibverbs.so.1.
// What a registration returns is a number that tells which function made it.
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void* reg_mr_1_0(void* pd, void* address, size_t bytes, int access) { return (void*)10; }
EXPORT void* reg_mr_1_1(void* pd, void* address, size_t bytes, int access) { return (void*)11; }
__asm__(".symver reg_mr_1_0, ibv_reg_mr@IBVERBS_1.0");
__asm__(".symver reg_mr_1_1, ibv_reg_mr@@IBVERBS_1.1");

EXPORT int ibv_dereg_mr(void* mr) { return mr == NULL ? 22 : 0; }
EXPORT void* ibv_reg_mr_iova2(void* pd, void* address, size_t bytes, uint64_t iova,
                              unsigned access) {
  return (void*)18;
}
EXPORT void* ibv_reg_dmabuf_mr(void* pd, uint64_t offset, size_t bytes, uint64_t iova, int fd,
                               int access) {
  return (void*)112;
}
