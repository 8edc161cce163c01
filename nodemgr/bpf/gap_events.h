/* What the kernel half (gap.bpf.c) and the user half (gap_probe.cc) of plexrl-observer share. C,
 * because one half is.
 *
 *   watched   tgid -> 1              processes of gangs in a gap; nothing else is looked at
 *   gpus      device number -> 1     character devices that are GPUs
 *   threads   tid -> plexrl_thread   what each thread of them does now, and since when
 *   totals    plexrl_total -> ns     how long each did what, up to then
 *   wakers    plexrl_wake -> ns      of waits for a lock: which thread of the watched ended them
 *
 * The user half enters a process, has the iterator note what its threads do at that moment, and
 * from then on the scheduler's events keep `threads` and `totals` right. It adds what is going on
 * when it reads. Times are CLOCK_MONOTONIC, in ns. Pids are those of the initial pid namespace. The
 * two halves are always built together: there is no version. */
#pragma once

#include <linux/types.h>

enum plexrl_kind {
  PLEXRL_CPU = 1,   /* on a CPU */
  PLEXRL_CPU_QUEUE, /* could run, and has no CPU */
  PLEXRL_SLEEP,     /* until a time, or for a signal */
  PLEXRL_LOCK,      /* for another thread: futex, eventfd, semaphore, file lock */
  PLEXRL_NETWORK,   /* family, address, port: the other side, where there is one */
  PLEXRL_PIPE, /* pipe or local socket; name or pid: who may be at the other end; inode: of the pipe
                */
  PLEXRL_SUBPROCESS, /* for a child; name: its command */
  PLEXRL_DISK,       /* name: of the file */
  PLEXRL_GPU,        /* in a GPU's device file; name: of the file */
  PLEXRL_PAGE_FAULT, /* for a page, or for the address space */
  PLEXRL_STOPPED,    /* by a signal or a debugger */
  PLEXRL_OTHER,      /* number: of the system call; name: of the file, if there is one */
};

enum { PLEXRL_NAME = 16 };

struct plexrl_cause {
  __u8 kind;
  __u8 family; /* 4 or 6; 0: no address */
  __u16 port;
  __u32 number; /* PLEXRL_OTHER: system call; PLEXRL_PIPE: pid at the other end, 0: see name and
                   inode */
  __u64 inode;
  union {
    __u8 address[16]; /* network byte order; the first four for family 4 */
    char name[PLEXRL_NAME];
  };
};

struct plexrl_thread {
  __u64 since_ns;
  __u64 runs; /* how often it got a CPU since it is watched */
  __u32 tgid;
  __u32 waker; /* tid; 0: none is known */
  char name[PLEXRL_NAME];
  struct plexrl_cause now; /* kind 0: it has ended */
};

struct plexrl_total {
  __u32 tgid;
  __u32 tid;
  struct plexrl_cause cause;
};

struct plexrl_wake {
  __u32 tgid;
  __u32 tid;
  __u32 waker;
  __u32 waker_tgid;
};
