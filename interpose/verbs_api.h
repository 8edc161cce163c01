#pragma once

#include <cstddef>
#include <cstdint>

/// The functions of libibverbs that register memory, declared by hand: its headers need not be
/// there. Forms of version IBVERBS_1.1 and later; those of 1.0 (2005, other structures) are not
/// caught where a program looks them up, and call these.

extern "C" {

struct ibv_pd;
struct ibv_mr;

/// What of a registration ibv_rereg_mr changes, and what its failures leave behind
/// (ibv_rereg_mr(3)). Only what PlexRL looks at.
enum : int {
  IBV_REREG_MR_CHANGE_TRANSLATION = 1,
  IBV_REREG_MR_ERR_INPUT = -1,          ///< as it was
  IBV_REREG_MR_ERR_DONT_FORK_NEW = -2,  ///< as it was
  IBV_REREG_MR_ERR_DO_FORK_OLD = -3,    ///< changed as asked
};

#define VERBS_API(symbol, result, cls, params, args) result symbol params;
#include "interpose/verbs_api.def"
#undef VERBS_API

}  // extern "C"
