// Synchronisation primitives of PTX: mbarriers, named barriers, clusters, fences, flags in global memory, dependent
// launch.
//
// Called by the kernels of cuda/sm90. Stateless wrappers of one instruction each (waits are loops around one);
// addresses of shared memory are 32-bit as the instructions want them.
#pragma once

#include <cstdint>

namespace sluice::cuda::ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// ---- mbarrier -----------------------------------------------------------------------------------------------------

__device__ __forceinline__ void mbarrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine and to the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives and announces `bytes` that bulk copies will add.
__device__ __forceinline__ void mbarrier_arrive_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// At a barrier of any block of the cluster. Orders reads of shared memory before it, no writes for the other block (a
// release at cluster scope would wait for all stores of the thread to reach L2; store_async carries data instead).
__device__ __forceinline__ void mbarrier_arrive_remote(std::uint32_t cluster_barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_barrier) : "memory");
}

// Announces `bytes` without arriving.
__device__ __forceinline__ void mbarrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ bool mbarrier_try_wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}\n"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done != 0;
}

// Does not wait at all.
__device__ __forceinline__ bool mbarrier_test(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile("{\n .reg .pred p;\n mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}\n"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done != 0;
}

__device__ __forceinline__ void mbarrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

// For barriers that store_async of other blocks of the cluster completes: acquires what they stored.
__device__ __forceinline__ void mbarrier_wait_cluster(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n .reg .pred p;\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        " selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// ---- Named barriers of a block; `threads` counts those that arrive and those that wait ------------------------------

__device__ __forceinline__ void barrier_sync(std::uint32_t id, std::uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void barrier_arrive(std::uint32_t id, std::uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- The thread ---------------------------------------------------------------------------------------------------

// threadIdx.x, read anew at each place, so that what follows from it takes no registers in between, while weights are
// on their way to most of them.
__device__ __forceinline__ std::uint32_t this_thread() {
  std::uint32_t thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// The thread's place in its warp, read anew as well.
__device__ __forceinline__ std::int32_t this_lane() { return static_cast<std::int32_t>(this_thread() % 32); }

// A value of which nothing is computed ahead of here, for the same reason.
__device__ __forceinline__ std::int32_t from_here(std::int32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// ---- Clusters -----------------------------------------------------------------------------------------------------

__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Blocks of the cluster, 1 without one.
__device__ __forceinline__ std::uint32_t cluster_blocks() {
  std::uint32_t blocks;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  return blocks;
}

// Address, in the cluster's window, of `address` of this block in block `rank`.
__device__ __forceinline__ std::uint32_t cluster_address(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// 16 bytes into a block of the cluster, counted there by a barrier of the same block that expects them.
__device__ __forceinline__ void store_async(std::uint32_t cluster_address, std::uint32_t cluster_barrier,
                                            std::int32_t a, std::int32_t b, std::int32_t c, std::int32_t d) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   cluster_address),
               "r"(a), "r"(b), "r"(c), "r"(d), "r"(cluster_barrier)
               : "memory");
}

// All threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- Fences and flags -----------------------------------------------------------------------------------------------

// Orders this thread's ordinary accesses to shared memory before later ones of the copy engine and the tensor cores.
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The same for global memory.
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

__device__ __forceinline__ void add_release(std::uint32_t* flag, std::uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ void store_release(std::uint32_t* flag, std::uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

// Adds 1 to counters[at] and returns what was there; orders nothing. As an addition the compiler would make it for all
// lanes of a warp at once and share out the answer; this one has a bound, which is never reached. The address is made
// here anew: the loaders have no registers to keep it.
__device__ __forceinline__ std::uint32_t fetch_increment(std::uint32_t* counters, std::int32_t at) {
  std::uint32_t before;
  asm volatile(
      "{\n .reg .u64 a;\n mad.wide.s32 a, %2, 4, %1;\n atom.relaxed.gpu.global.inc.u32 %0, [a], 0x7FFFFFFF;\n}\n"
      : "=r"(before)
      : "l"(counters), "r"(at)
      : "memory");
  return before;
}

__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* flag) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// The same without the order that load_acquire gives: for a loop that ends with one.
__device__ __forceinline__ std::uint32_t load_relaxed(const std::uint32_t* flag) {
  std::uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// Adds without an order of anything else.
__device__ __forceinline__ void add_relaxed(std::uint32_t* flag, std::uint32_t value) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

// Adds 1, and goes from `last` to 0. Without an order of anything else.
__device__ __forceinline__ void count_around(std::uint32_t* count, std::uint32_t last) {
  asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(count), "r"(last) : "memory");
}

// Two flags that lie together, as they are at one time or at two.
__device__ __forceinline__ uint2 load_relaxed_pair(const void* at) {
  uint2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at) : "memory");
  return v;
}

// Of data that tells by itself whether it was written: the loads of a loop, and the stores that end it. No order
// between any two; each element is whole. Of elements of 1 and 2 bytes PTX does not promise that, since the loads are
// wider than the stores: it rests on the hardware, which writes an aligned element to L2 at once.
__device__ __forceinline__ uint4 load_relaxed_vector(const void* at) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_relaxed(std::uint32_t* at, std::uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ void store_relaxed(std::uint16_t* at, std::uint16_t value) {
  asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(at), "h"(value) : "memory");
}
__device__ __forceinline__ void store_relaxed(std::uint8_t* at, std::uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u8 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

// Until the flag has reached `value`; what was written before it was raised is visible then. An acquiring load drops
// the multiprocessor's L1 cache, so the loop has none.
__device__ __forceinline__ void wait_for_count(const std::uint32_t* flag, std::uint32_t value) {
  while (load_relaxed(flag) < value) {
  }
  load_acquire(flag);
}

// The same until the flag is not 0; returns what it is.
__device__ __forceinline__ std::uint32_t wait_for_value(const std::uint32_t* flag) {
  while (load_relaxed(flag) == 0) {
  }
  return load_acquire(flag);
}

// ---- Dependent launch -----------------------------------------------------------------------------------------------

// Until the kernel before has finished and its writes are visible.
__device__ __forceinline__ void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Lets the next kernel start as blocks of this one leave room.
__device__ __forceinline__ void allow_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---- Registers ------------------------------------------------------------------------------------------------------

template <int Count>
__device__ __forceinline__ void registers_grow() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

template <int Count>
__device__ __forceinline__ void registers_shrink() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

}  // namespace sluice::cuda::ptx
