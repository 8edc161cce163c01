#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

// Includes cuda.h with every version of a function under its own name.
#include "tools/simgpu/driver/cuda_api.h"

namespace {

struct Row {
  const char* base;
  int since;
  bool is_per_thread;
  const char* symbol;
};

const Row kRows[] = {
#define ENTRY(base, since, is_per_thread, symbol, type) {base, since, is_per_thread, #symbol},
#include "tools/simgpu/driver/entry_points.inc"
#undef ENTRY
};

void* library() {
  static void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return handle;
}

void* find(const char* base, int version, cuuint64_t flags,
           CUdriverProcAddressQueryResult* status) {
  void* function = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cuGetProcAddress_v2(base, &function, version, flags, status)) << base;
  return function;
}

TEST(EntryPoints, EachFormIsHandedOutFromItsVersionOn) {
  ASSERT_NE(nullptr, library());
  ASSERT_GT(std::size(kRows), 600u);
  for (const Row& row : kRows) {
    const cuuint64_t flags = row.is_per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                               : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    CUdriverProcAddressQueryResult status;
    void* const exported = dlsym(library(), row.symbol);
    ASSERT_NE(nullptr, exported) << row.symbol;
    EXPECT_EQ(exported, find(row.base, row.since, flags, &status)) << row.symbol;
    EXPECT_EQ(CU_GET_PROC_ADDRESS_SUCCESS, status) << row.symbol;
  }
}

TEST(EntryPoints, AVersionBetweenTwoMeansTheOlder) {
  void* const v2 = dlsym(library(), "cuCtxCreate_v2");
  EXPECT_EQ(v2, find("cuCtxCreate", 11030, CU_GET_PROC_ADDRESS_DEFAULT, nullptr));
  EXPECT_EQ(dlsym(library(), "cuCtxCreate_v4"), find("cuCtxCreate", 13000, 0, nullptr));
  EXPECT_EQ(dlsym(library(), "cuCtxCreate"), find("cuCtxCreate", 2000, 0, nullptr));
}

TEST(EntryPoints, PerThreadFallsBackToLegacyWhereThereIsNone) {
  void* const both =
      find("cuMemAlloc", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr);
  EXPECT_EQ(dlsym(library(), "cuMemAlloc_v2"), both);
}

TEST(EntryPoints, LooksItselfUp) {
  EXPECT_EQ(dlsym(library(), "cuGetProcAddress"), find("cuGetProcAddress", 11030, 0, nullptr));
  EXPECT_EQ(dlsym(library(), "cuGetProcAddress_v2"), find("cuGetProcAddress", 12000, 0, nullptr));
}

TEST(EntryPoints, WhatIsNotThereIsANullPointerAndAStatus) {
  CUdriverProcAddressQueryResult status;
  EXPECT_EQ(nullptr, find("cuNoSuchThing", 13000, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
  EXPECT_EQ(nullptr, find("", 0, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
  EXPECT_EQ(nullptr, find("cuMemAlloc_v2", 13000, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
  EXPECT_EQ(nullptr, find("cuMemCreate", 10000, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, status);
}

TEST(EntryPoints, TheOldFormSaysNotFound) {
  void* function = &function;
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNoSuchThing", &function, 11030, 0));
  EXPECT_EQ(nullptr, function);
  EXPECT_EQ(CUDA_SUCCESS, cuGetProcAddress("cuInit", &function, 11030, 0));
  EXPECT_EQ(dlsym(library(), "cuInit"), function);
}

TEST(EntryPoints, BadArgumentsAreRefused) {
  void* function = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2(nullptr, &function, 13000, 0, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", nullptr, 13000, 0, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", &function, 13000, 8, nullptr));
  int version = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuDriverGetVersion(&version));
  EXPECT_EQ(CUDA_VERSION, version);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            cuGetProcAddress_v2("cuInit", &function, version + 10, 0, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDriverGetVersion(nullptr));
}

TEST(EntryPoints, ThereAreNoPrivateTables) {
  const CUuuid id{};
  const void* table = &id;
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&table, &id));
  EXPECT_EQ(nullptr, table);
}

TEST(ErrorText, NamesAndDescribesEachCode) {
  const char* text = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuGetErrorName(CUDA_ERROR_NO_BINARY_FOR_GPU, &text));
  EXPECT_STREQ("CUDA_ERROR_NO_BINARY_FOR_GPU", text);
  ASSERT_EQ(CUDA_SUCCESS, cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text));
  EXPECT_STREQ("invalid argument", text);
  ASSERT_EQ(CUDA_SUCCESS, cuGetErrorString(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, &text));
  EXPECT_STREQ("graph exec update failure", text);
}

TEST(ErrorText, ACodeThatIsNoneIsAnError) {
  const char* text = "";
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(static_cast<CUresult>(123456), &text));
  EXPECT_EQ(nullptr, text);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(CUDA_SUCCESS, nullptr));
}

}  // namespace
