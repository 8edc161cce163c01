/* The kernel's types, as far as gap.bpf.c reads them. CO-RE: fields are found by name in the BTF of
 * the kernel that runs, so neither their order nor what is left out matters. Where a name has
 * changed, both are here, the old one as NAME___old. */
#pragma once

#define __VMLINUX_H__ 1 /* bpf_tracing.h: pt_regs below has the kernel's names of fields */
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
  struct list_head *next, *prev;
};
struct rb_node {
  struct rb_node *rb_right, *rb_left;
};
struct rb_root {
  struct rb_node* rb_node;
};
struct rb_root_cached {
  struct rb_root rb_root;
};

struct pt_regs {
  unsigned long dx, si, di, r8, r10, orig_ax;
};

struct super_block {
  unsigned long s_magic;
};
struct inode {
  unsigned short i_mode;
  struct super_block* i_sb;
  unsigned long i_ino;
  unsigned int i_rdev;
};
struct qstr {
  const unsigned char* name;
};
struct dentry {
  struct qstr d_name;
};
struct path {
  struct dentry* dentry;
};
struct file {
  void* private_data;
  struct inode* f_inode;
  struct path f_path;
};
struct fdtable {
  unsigned int max_fds;
  struct file** fd;
};
struct files_struct {
  struct fdtable* fdt;
};

struct upid {
  int nr;
};
struct pid {
  struct upid numbers[1];
};

struct task_struct {
  unsigned int __state;
  int on_cpu;
  int pid, tgid;
  char comm[16];
  struct task_struct *real_parent, *group_leader;
  struct list_head children, sibling;
  struct files_struct* files;
};
struct task_struct___old {
  long state;
};

struct in6_addr {
  union {
    unsigned char u6_addr8[16];
  } in6_u;
};
struct sock_common {
  unsigned short skc_family;
  unsigned int skc_daddr;
  unsigned short skc_dport;
  struct in6_addr skc_v6_daddr;
};
struct sock {
  struct sock_common __sk_common;
  struct pid* sk_peer_pid;
};
struct socket {
  struct sock* sk;
};

struct epoll_filefd {
  struct file* file;
};
struct epitem {
  struct rb_node rbn;
  struct epoll_filefd ffd;
};
struct eventpoll {
  struct rb_root_cached rbr;
};

struct bpf_iter_meta;
struct bpf_iter__task {
  struct bpf_iter_meta* meta;
  struct task_struct* task;
};

#pragma clang attribute pop
