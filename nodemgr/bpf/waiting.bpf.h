/* What a thread that is not on a CPU waits for: from the system call that it is in, the call's
 * arguments, and the kernel's file behind a descriptor. Reads only; whatever can't be read makes
 * the answer vaguer, never wrong by more than that.
 *
 * A call on several descriptors (poll, select, epoll) counts as a wait for the most telling one of
 * them: `rank`. */
#pragma once

#include <asm/unistd_64.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/magic.h>
#include <linux/stat.h>

#include "nodemgr/bpf/gap_events.h"
#include "nodemgr/bpf/kernel_types.h"

#ifndef __NR_futex_waitv
#define __NR_futex_waitv 449
#endif
#define NR_FUTEX_WAKE 454
#define NR_FUTEX_WAIT 455
#define NR_PREADV2 327
#define NR_EPOLL_PWAIT2 441
#define PIDFS_MAGIC 0x50494446
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define STATE_STOPPED_OR_TRACED (4 | 8)
#define STATE_DEAD 0x80
#define MOST_FDS 8 /* of one call that are looked at */

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 512);
  __type(key, __u32);
  __type(value, __u8);
} gpus SEC(".maps");

/* From dull to telling. */
enum rank { RANK_NONE, RANK_WAKEUP, RANK_PLAIN, RANK_FILE, RANK_PEER, RANK_GPU, RANK_REMOTE };

struct pollfd_words {
  int fd;
  short events, revents;
};

/* The youngest child of the thread or of its process's first thread: who is started last is waited
 * for most. */
static __always_inline bool youngest_child_of(struct task_struct* task, char* name) {
  struct list_head* last = BPF_CORE_READ(task, children.prev);
  void* head = (void*)task + bpf_core_field_offset(struct task_struct, children);
  if (!last || (void*)last == head) return false;
  struct task_struct* child = (void*)last - bpf_core_field_offset(struct task_struct, sibling);
  BPF_CORE_READ_INTO((char(*)[PLEXRL_NAME])name, child, comm);
  return true;
}

__noinline int name_child(unsigned long of, struct plexrl_cause* cause) {
  struct task_struct* task = (void*)of;
  if (!task || !cause) return false;
  if (youngest_child_of(task, cause->name)) return true;
  struct task_struct* leader = BPF_CORE_READ(task, group_leader);
  return leader && youngest_child_of(leader, cause->name);
}

static __always_inline void name_file(struct file* file, struct plexrl_cause* cause) {
  const unsigned char* name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
  if (name) bpf_probe_read_kernel_str(cause->name, PLEXRL_NAME, name);
}

static __always_inline int wait_on_socket(struct file* file, struct task_struct* task,
                                          struct plexrl_cause* cause) {
  struct socket* socket = BPF_CORE_READ(file, private_data);
  struct sock* sock = BPF_CORE_READ(socket, sk);
  unsigned short family = BPF_CORE_READ(sock, __sk_common.skc_family);
  if (family == AF_UNIX) {
    struct pid* peer = BPF_CORE_READ(sock, sk_peer_pid);
    cause->kind = PLEXRL_PIPE;
    if (peer) cause->number = (__u32)BPF_CORE_READ(peer, numbers[0].nr);
    if (peer && cause->number != (__u32)BPF_CORE_READ(task, tgid)) return RANK_PEER;
    cause->number = 0; /* a pair of its own: a child may have the other one */
    cause->inode = BPF_CORE_READ(file, f_inode, i_ino);
    return name_child((unsigned long)task, cause) ? RANK_PEER : RANK_WAKEUP;
  }
  cause->kind = family == AF_INET || family == AF_INET6 ? PLEXRL_NETWORK : PLEXRL_OTHER;
  if (cause->kind == PLEXRL_OTHER) return RANK_PLAIN;
  cause->port = bpf_ntohs(BPF_CORE_READ(sock, __sk_common.skc_dport));
  if (cause->port == 0) return RANK_FILE; /* it listens */
  if (family == AF_INET) {
    cause->family = 4;
    unsigned int address = BPF_CORE_READ(sock, __sk_common.skc_daddr);
    __builtin_memcpy(cause->address, &address, sizeof address);
  } else {
    cause->family = 6;
    BPF_CORE_READ_INTO((unsigned char(*)[16])cause->address, sock,
                       __sk_common.skc_v6_daddr.in6_u.u6_addr8);
  }
  return RANK_REMOTE;
}

/* Files without a place: their name says what they are. */
static __always_inline int wait_on_anonymous(struct file* file, struct task_struct* task,
                                             struct plexrl_cause* cause) {
  name_file(file, cause); /* "[eventfd]" */
  char first = cause->name[1], second = cause->name[2];
  __builtin_memset(cause->name, 0, PLEXRL_NAME);
  cause->kind = PLEXRL_OTHER;
  if (first == 'e' && second == 'v') cause->kind = PLEXRL_LOCK; /* eventfd, eventpoll */
  if (first == 't' || first == 's') cause->kind = PLEXRL_SLEEP; /* timerfd, signalfd */
  if (first == 'i' && second == 'o') cause->kind = PLEXRL_DISK; /* io_uring */
  if (first == 'p' && second == 'i') {                          /* pidfd */
    cause->kind = PLEXRL_SUBPROCESS;
    return name_child((unsigned long)task, cause) ? RANK_PEER : RANK_FILE;
  }
  return cause->kind == PLEXRL_LOCK ? RANK_WAKEUP : RANK_PLAIN;
}

static __always_inline int wait_on_file(struct file* file, struct task_struct* task,
                                        struct plexrl_cause* cause) {
  if (!file || !task) return RANK_NONE;
  struct inode* inode = BPF_CORE_READ(file, f_inode);
  unsigned short type = BPF_CORE_READ(inode, i_mode) & S_IFMT;
  unsigned long magic = BPF_CORE_READ(inode, i_sb, s_magic);
  if (type == S_IFSOCK) return wait_on_socket(file, task, cause);
  if (magic == ANON_INODE_FS_MAGIC) return wait_on_anonymous(file, task, cause);
  if (magic == PIDFS_MAGIC) {
    cause->kind = PLEXRL_SUBPROCESS;
    return name_child((unsigned long)task, cause) ? RANK_PEER : RANK_FILE;
  }
  if (type == S_IFIFO) {
    cause->kind = PLEXRL_PIPE;
    cause->inode = BPF_CORE_READ(inode, i_ino);
    return name_child((unsigned long)task, cause) ? RANK_PEER : RANK_FILE;
  }
  name_file(file, cause);
  if (type == S_IFCHR) {
    __u32 device = BPF_CORE_READ(inode, i_rdev);
    bool is_gpu = bpf_map_lookup_elem(&gpus, &device) != 0;
    cause->kind = is_gpu ? PLEXRL_GPU : PLEXRL_OTHER;
    return is_gpu ? RANK_GPU : RANK_PLAIN;
  }
  cause->kind = PLEXRL_DISK;
  return RANK_FILE;
}

static __always_inline struct file* file_of(struct task_struct* task, unsigned int fd) {
  struct fdtable* table = BPF_CORE_READ(task, files, fdt);
  if (!table || fd >= BPF_CORE_READ(table, max_fds)) return 0;
  struct file** slots = BPF_CORE_READ(table, fd);
  struct file* file = 0;
  bpf_probe_read_kernel(&file, sizeof file, slots + fd);
  return file;
}

/* `best` becomes the wait on this file if that tells more. Addresses as numbers, and not static: so
 * the verifier looks at it once, not at each call. */
__noinline int consider_file(unsigned long file, unsigned long task, struct plexrl_cause* best,
                             int best_rank) {
  if (!best) return best_rank;
  struct plexrl_cause cause = {};
  int rank = wait_on_file((struct file*)file, (struct task_struct*)task, &cause);
  if (rank <= best_rank) return best_rank;
  *best = cause;
  return rank;
}

/* The address as a number, which the verifier does not take a trusted pointer for. */
static __always_inline unsigned long address_of(const void* thing) {
  unsigned long number = 0;
  bpf_probe_read_kernel(&number, sizeof number, &thing);
  return number;
}

static __always_inline int consider(struct file* file, struct task_struct* task,
                                    struct plexrl_cause* best, int best_rank) {
  return consider_file((unsigned long)file, address_of(task), best, best_rank);
}

/* The memory of another process can be read where the program may sleep only. */
static __always_inline void read_user(void* out, __u32 bytes, unsigned long from,
                                      struct task_struct* task, bool is_current) {
  if (is_current) {
    bpf_probe_read_user(out, bytes, (void*)from);
  } else {
    bpf_copy_from_user_task(out, bytes, (void*)from, task, 0);
  }
}

/* Nothing but what another thread of the process can make ready: then it waits for a time, if there
 * is one. */
static __always_inline void settle(struct plexrl_cause* cause, int rank, bool has_timeout) {
  if (rank > RANK_WAKEUP) return;
  __builtin_memset(cause, 0, sizeof *cause);
  cause->kind = has_timeout || rank == RANK_NONE ? PLEXRL_SLEEP : PLEXRL_LOCK;
}

static __always_inline void wait_in_poll(struct task_struct* task, unsigned long fds,
                                         unsigned long count, bool has_timeout, bool is_current,
                                         struct plexrl_cause* cause) {
  struct pollfd_words words[MOST_FDS];
  int rank = RANK_NONE;
  for (int i = 0; i < MOST_FDS; ++i) words[i].fd = -1;
  if (count >= MOST_FDS) {
    read_user(words, sizeof words, fds, task, is_current);
  } else {
    for (int i = 0; i < MOST_FDS; ++i) {
      if (i >= count) break;
      read_user(&words[i], sizeof words[i], fds + i * sizeof words[i], task, is_current);
    }
  }
  for (int i = 0; i < MOST_FDS; ++i) {
    if (i >= count || words[i].fd < 0) continue;
    rank = consider(file_of(task, words[i].fd), task, cause, rank);
  }
  settle(cause, rank, has_timeout);
}

/* Of a word that is not 0. */
__noinline int lowest_bit(unsigned long word) {
  int bit = 0;
  for (int width = 32; width > 0; width >>= 1) {
    if ((word & ((1ul << width) - 1)) != 0) continue;
    word >>= width;
    bit += width;
  }
  return bit;
}

static __always_inline void wait_in_select(struct task_struct* task, const unsigned long* sets,
                                           bool has_timeout, bool is_current,
                                           struct plexrl_cause* cause) {
  int rank = RANK_NONE;
  for (int set = 0; set < 2; ++set) { /* to read, to write */
    unsigned long bits = 0;
    if (sets[set] != 0) read_user(&bits, sizeof bits, sets[set], task, is_current);
    for (int i = 0; i < MOST_FDS / 2; ++i) {
      if (bits == 0) break;
      rank = consider(file_of(task, lowest_bit(bits)), task, cause, rank);
      bits &= bits - 1;
    }
  }
  settle(cause, rank, has_timeout);
}

static __always_inline void wait_in_epoll(struct task_struct* task, unsigned int fd,
                                          bool has_timeout, struct plexrl_cause* cause) {
  struct file* file = file_of(task, fd);
  struct eventpoll* poll = file ? BPF_CORE_READ(file, private_data) : 0;
  struct rb_node* queue[2 * MOST_FDS] = {};
  unsigned int end = 1;
  int rank = RANK_NONE;
  if (poll) queue[0] = BPF_CORE_READ(poll, rbr.rb_root.rb_node);
  for (unsigned int at = 0; at < MOST_FDS; ++at) { /* the tree from its root, level by level */
    struct rb_node* node = queue[at];
    if (!node) continue;
    struct epitem* item = (void*)node - bpf_core_field_offset(struct epitem, rbn);
    rank = consider(BPF_CORE_READ(item, ffd.file), task, cause, rank);
    if (end < 2 * MOST_FDS - 1) {
      queue[end & (2 * MOST_FDS - 1)] = BPF_CORE_READ(node, rb_left);
      queue[(end + 1) & (2 * MOST_FDS - 1)] = BPF_CORE_READ(node, rb_right);
      end += 2;
    }
  }
  settle(cause, rank, has_timeout);
}

/* Fills `cause`, which is all zeros. `state`: the thread's; not 0. */
static __always_inline void find_cause(struct task_struct* task, struct pt_regs* regs, long state,
                                       bool is_current, struct plexrl_cause* cause) {
  if (state & STATE_STOPPED_OR_TRACED) {
    cause->kind = PLEXRL_STOPPED;
    return;
  }
  long call = (long)BPF_CORE_READ(regs, orig_ax);
  unsigned long args[5] = {BPF_CORE_READ(regs, di), BPF_CORE_READ(regs, si),
                           BPF_CORE_READ(regs, dx), BPF_CORE_READ(regs, r10),
                           BPF_CORE_READ(regs, r8)};
  if (call < 0) { /* in an exception */
    cause->kind = PLEXRL_PAGE_FAULT;
    return;
  }
  switch (call) {
    case __NR_nanosleep:
    case __NR_clock_nanosleep:
    case __NR_pause:
    case __NR_rt_sigsuspend:
    case __NR_rt_sigtimedwait:
    case __NR_restart_syscall:
      cause->kind = PLEXRL_SLEEP;
      return;
    case __NR_futex:
    case __NR_futex_waitv:
    case NR_FUTEX_WAIT:
    case __NR_semop:
    case __NR_semtimedop:
    case __NR_msgrcv:
    case __NR_mq_timedreceive:
    case __NR_flock:
    case __NR_fcntl:
      cause->kind = PLEXRL_LOCK;
      return;
    case __NR_wait4:
    case __NR_waitid:
    case __NR_vfork:
    case __NR_clone:
    case __NR_clone3:
      cause->kind = PLEXRL_SUBPROCESS;
      name_child(address_of(task), cause);
      return;
    case __NR_poll:
      wait_in_poll(task, args[0], args[1], (int)args[2] >= 0, is_current, cause);
      return;
    case __NR_ppoll:
      wait_in_poll(task, args[0], args[1], args[2] != 0, is_current, cause);
      return;
    case __NR_select:
    case __NR_pselect6:
      wait_in_select(task, &args[1], args[4] != 0, is_current, cause);
      return;
    case __NR_epoll_wait:
    case __NR_epoll_pwait:
      wait_in_epoll(task, args[0], (int)args[3] >= 0, cause);
      return;
    case NR_EPOLL_PWAIT2:
      wait_in_epoll(task, args[0], args[3] != 0, cause);
      return;
    case __NR_read:
    case __NR_write:
    case __NR_readv:
    case __NR_writev:
    case __NR_pread64:
    case __NR_pwrite64:
    case __NR_preadv:
    case __NR_pwritev:
    case NR_PREADV2:
    case NR_PREADV2 + 1:
    case __NR_recvfrom:
    case __NR_sendto:
    case __NR_recvmsg:
    case __NR_sendmsg:
    case __NR_recvmmsg:
    case __NR_sendmmsg:
    case __NR_accept:
    case __NR_accept4:
    case __NR_connect:
    case __NR_ioctl:
    case __NR_fsync:
    case __NR_fdatasync:
    case __NR_sync_file_range:
    case __NR_ftruncate:
    case __NR_fallocate:
    case __NR_getdents64:
    case __NR_sendfile:
    case __NR_splice:
    case __NR_copy_file_range:
    case __NR_close:
      if (consider(file_of(task, args[0]), task, cause, RANK_NONE) != RANK_NONE) return;
      break;
    case __NR_open:
    case __NR_openat:
    case __NR_stat:
    case __NR_lstat:
    case __NR_newfstatat:
    case __NR_statx:
    case __NR_access:
    case __NR_unlink:
    case __NR_unlinkat:
    case __NR_rename:
    case __NR_renameat2:
    case __NR_mkdir:
    case __NR_sync:
    case __NR_syncfs:
    case __NR_io_uring_enter:
    case __NR_io_getevents:
    case __NR_execve:
      cause->kind = PLEXRL_DISK;
      return;
    case __NR_mmap:
    case __NR_munmap:
    case __NR_mprotect:
    case __NR_madvise:
    case __NR_mremap:
    case __NR_brk:
    case __NR_msync:
      cause->kind = PLEXRL_PAGE_FAULT;
      return;
  }
  cause->kind = PLEXRL_OTHER;
  cause->number = (__u32)call;
}
