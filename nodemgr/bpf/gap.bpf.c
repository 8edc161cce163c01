// What the threads of watched processes do, from the scheduler's events. Kernel half of
// plexrl-observer; gap_events.h says how the two halves work together.
//
// A thread's time is told at its switches: off a CPU, what it waits for is found from the system
// call that it is in (waiting.bpf.h); on one again, the time since then is that wait's. There is
// nothing on system calls or page faults themselves, which would cost each of them. Processes that
// are not watched cost a look-up or two for each switch, and only while these programs are
// attached: in gaps.
#include "nodemgr/bpf/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "nodemgr/bpf/gap_events.h"
#include "nodemgr/bpf/waiting.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 4096);
  __type(key, __u32);
  __type(value, __u8);
} watched SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 16384);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, __u32);
  __type(value, struct plexrl_thread);
} threads SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 16384);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct plexrl_total);
  __type(value, __u64);
} totals SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 4096);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct plexrl_wake);
  __type(value, __u64);
} wakers SEC(".maps");

/// Additions that found a map full.
__u64 lost = 0;

static __always_inline bool is_watched(__u32 tgid) {
  return bpf_map_lookup_elem(&watched, &tgid) != 0;
}

static __always_inline long state_of(struct task_struct* task) {
  if (bpf_core_field_exists(struct task_struct, __state)) return BPF_CORE_READ(task, __state);
  struct task_struct___old* old = (void*)task;
  return BPF_CORE_READ(old, state);
}

static __always_inline void add(void* map, const void* key, __u64 ns) {
  __u64* sum = bpf_map_lookup_elem(map, key);
  if (sum) {
    __sync_fetch_and_add(sum, ns);
  } else if (bpf_map_update_elem(map, key, &ns, BPF_ANY) != 0) {
    __sync_fetch_and_add(&lost, 1);
  }
}

/// Books the time since the thread's last change to what it did.
static __always_inline void book(struct plexrl_thread* thread, __u32 tid, __u64 now) {
  struct plexrl_total key = {.tgid = thread->tgid, .tid = tid};
  key.cause = thread->now;
  if (key.cause.kind != 0 && now > thread->since_ns) add(&totals, &key, now - thread->since_ns);
  if (thread->now.kind == PLEXRL_LOCK && thread->waker != 0 && now > thread->since_ns) {
    struct plexrl_wake wake = {
        .tgid = thread->tgid, .tid = tid, .waker = thread->waker, .waker_tgid = thread->tgid};
    add(&wakers, &wake, now - thread->since_ns);
  }
  thread->waker = 0;
  thread->since_ns = now;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct* prev, struct task_struct* next) {
  __u64 now = bpf_ktime_get_ns();
  __u32 tid = prev->pid;
  __u32 tgid = prev->tgid;
  if (tgid != 0 && is_watched(tgid)) {
    struct plexrl_thread* thread = bpf_map_lookup_elem(&threads, &tid);
    struct plexrl_thread fresh = {};
    if (!thread) {
      fresh.tgid = tgid;
      fresh.since_ns = now;
      fresh.runs = 1;
      BPF_CORE_READ_INTO(&fresh.name, prev, comm);
      thread = &fresh;
    } else {
      book(thread, tid, now);
    }
    long state = preempt ? 0 : state_of(prev);
    struct plexrl_cause cause = {};
    if (state == 0) {
      cause.kind = PLEXRL_CPU_QUEUE;
    } else if (!(state & STATE_DEAD)) {
      find_cause(prev, (struct pt_regs*)bpf_task_pt_regs(prev), state, true, &cause);
    }
    thread->now = cause;
    if (thread == &fresh && bpf_map_update_elem(&threads, &tid, &fresh, BPF_ANY) != 0) {
      __sync_fetch_and_add(&lost, 1);
    }
  }
  tid = next->pid;
  tgid = next->tgid;
  if (tgid != 0 && is_watched(tgid)) {
    struct plexrl_thread* thread = bpf_map_lookup_elem(&threads, &tid);
    if (!thread) return 0;
    book(thread, tid, now);
    __builtin_memset(&thread->now, 0, sizeof thread->now);
    thread->now.kind = PLEXRL_CPU;
    thread->runs += 1;
  }
  return 0;
}

/// Who ends a wait for a lock. Timers wake in whichever thread they interrupt: only one that is in
/// a call that wakes counts.
SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct* woken) {
  __u32 tgid = woken->tgid;
  if (!is_watched(tgid)) return 0;
  struct task_struct* current = bpf_get_current_task_btf();
  if ((__u32)current->tgid != tgid) return 0;
  __u32 tid = woken->pid;
  struct plexrl_thread* thread = bpf_map_lookup_elem(&threads, &tid);
  if (!thread || thread->now.kind != PLEXRL_LOCK) return 0;
  struct pt_regs* regs = (struct pt_regs*)bpf_task_pt_regs(current);
  long call = (long)BPF_CORE_READ(regs, orig_ax);
  if (call == __NR_futex || call == NR_FUTEX_WAKE || call == __NR_write || call == __NR_semop)
    thread->waker = current->pid;
  return 0;
}

/// Notes what each thread of the watched processes does at this moment.
SEC("iter.s/task")
int note_threads(struct bpf_iter__task* context) {
  struct task_struct* task = context->task;
  if (!task) return 0;
  __u32 tgid = task->tgid;
  __u32 tid = task->pid;
  if (!is_watched(tgid)) return 0;
  struct plexrl_thread thread = {.tgid = tgid, .since_ns = bpf_ktime_get_ns()};
  BPF_CORE_READ_INTO(&thread.name, task, comm);
  long state = state_of(task);
  if (state == 0) {
    thread.now.kind = BPF_CORE_READ(task, on_cpu) ? PLEXRL_CPU : PLEXRL_CPU_QUEUE;
    thread.runs = 1;
  } else {
    find_cause(task, (struct pt_regs*)bpf_task_pt_regs(task), state, false, &thread.now);
  }
  bpf_map_update_elem(&threads, &tid, &thread, BPF_NOEXIST);
  return 0;
}
