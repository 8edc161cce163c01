#include "interpose/api.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace plexrl::interpose {
namespace {

TEST(Api, FindsEveryRowByItsName) {
  for (size_t i = 0; i < kApiCount; ++i) {
    const Api api = static_cast<Api>(i);
    EXPECT_EQ(find_api(name(api)), api) << name(api);
  }
}

TEST(Api, KnowsNoOtherNames) {
  EXPECT_EQ(find_api(""), Api::kCount);
  EXPECT_EQ(find_api("cuMemAlloc_v9"), Api::kCount);
  EXPECT_EQ(find_api("cudaMalloc"), Api::kCount);
  EXPECT_EQ(find_api("cuLaunchKerne"), Api::kCount);
}

TEST(Api, OnlyWhatPassesThroughHasAReason) {
  for (size_t i = 0; i < kApiCount; ++i) {
    const ApiRow& r = row(static_cast<Api>(i));
    EXPECT_EQ(r.passes_because != nullptr, r.cls == ApiClass::through) << r.name;
  }
}

// A reason is a sentence for users, and no promise.
TEST(Api, AReasonToPassIsASentence) {
  for (size_t i = 0; i < kApiCount; ++i) {
    const ApiRow& r = row(static_cast<Api>(i));
    if (r.passes_because == nullptr) continue;
    const std::string reason = r.passes_because;
    EXPECT_GE(reason.size(), 30u) << r.name;
    EXPECT_EQ(reason.find(" yet"), std::string::npos) << r.name;
  }
}

TEST(Api, WhatNamesMemoryOrOtherProcessesDoesNotSimplyPass) {
  const std::set<std::string> names_none = {
      "cuMemHostGetDevicePointer", "cuMemHostGetDevicePointer_v2", "cuMemHostGetFlags",
      "cuMemGetAllocationGranularity", "cuMulticastGetGranularity"};
  for (size_t i = 0; i < kApiCount; ++i) {
    const ApiRow& r = row(static_cast<Api>(i));
    const std::string symbol = r.name;
    const auto begins = [&](const char* text) { return symbol.starts_with(text); };
    const bool names_memory = begins("cuMem") || begins("cuIpc") || begins("cuMulticast") ||
                              begins("cuImport") || begins("cuExternal") || begins("cuGraphics") ||
                              begins("cuCheckpoint") || begins("cuPointer") ||
                              symbol.find("MemPool") != std::string::npos ||
                              symbol.find("GraphMem") == 8;
    const bool simply_passes = r.cls == ApiClass::pass && !names_none.contains(symbol);
    EXPECT_FALSE(names_memory && simply_passes) << symbol;
  }
}

// A form and its per-thread sibling differ in the default stream only.
TEST(Api, PerThreadFormsHaveTheClassOfTheirLegacyForm) {
  for (size_t i = 0; i < kApiCount; ++i) {
    const std::string symbol = row(static_cast<Api>(i)).name;
    if (!symbol.ends_with("_ptsz") && !symbol.ends_with("_ptds")) continue;
    const Api legacy = find_api(symbol.substr(0, symbol.size() - 5));
    ASSERT_NE(legacy, Api::kCount) << symbol;
    EXPECT_EQ(row(legacy).cls, row(static_cast<Api>(i)).cls) << symbol;
  }
}

TEST(Api, WhatSubmitsWorkIsGated) {
  for (size_t i = 0; i < kApiCount; ++i) {
    const ApiRow& r = row(static_cast<Api>(i));
    const std::string symbol = r.name;
    const bool is_work = symbol.starts_with("cuLaunch") || symbol.starts_with("cuMemcpy") ||
                         symbol.starts_with("cuMemset") || symbol.starts_with("cuMemPrefetch");
    if (!is_work) continue;
    EXPECT_EQ(r.cls, ApiClass::gate) << symbol;
  }
}

// By their handlers: they may need memory for nodes that allocate.
TEST(Api, GraphsAreSubmittedByHandlers) {
  for (const char* symbol : {"cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload"}) {
    EXPECT_EQ(row(find_api(symbol)).cls, ApiClass::memory) << symbol;
  }
}

TEST(Api, HarmlessNamesAreNotInTheTable) {
  EXPECT_TRUE(is_harmless("cuGraphGetId"));
  EXPECT_EQ(find_api("cuGraphGetId"), Api::kCount);
  EXPECT_FALSE(is_harmless("cuLaunchKernel"));
}

}  // namespace
}  // namespace plexrl::interpose
