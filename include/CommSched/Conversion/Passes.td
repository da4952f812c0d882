//===- Passes.td - Bufferization and lowering to the runtime ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_CONVERSION_PASSES
#define COMMSCHED_CONVERSION_PASSES

include "CommSched/Transforms/PassBase.td"

def ConvertShardToComm : Pass<"convert-shard-to-comm", "mlir::ModuleOp"> {
  let summary = "convert collectives of upstream's shard dialect";
  let description = [{
    The pass takes a partitioned program, as upstream's `--sharding-propagation` and `--shard-partition` make it. Each
    collective becomes a start and its wait. The axes of a `shard.grid` become a `comm.group`: the processes of a grid are
    numbered row by row, and these numbers are the ranks. Questions about the process (`shard.process_linear_index`,
    `shard.process_multi_index`, `shard.neighbors_linear_indices`) become arithmetic on `comm.rank`, `shard.all_slice` a slice at
    the rank's place, and `shard.update_halo` permutes between neighbours.

    | of shard | of comm |
    |---|---|
    | `all_gather`, `all_reduce`, `all_to_all`, `broadcast`, `gather`, `reduce`, `reduce_scatter`, `scatter`, `send`, `recv` | the operation of the same name; a reduction converts its input to the element type of the result first |
    | `shift` | `comm.permute`; without `rotate`, a rank without a source gets zeros |
    | `all_slice` | `tensor.extract_slice`, without communication |
    | `update_halo` | two `comm.permute` per split dimension; the borders of the grid keep their halos |
    | collectives without axes | their input |

    Refused, each with a diagnostic that says what was expected: grids of a dynamic shape, roots and peers that are values, a receive
    without a source or of a dynamic shape, a dynamic or indivisible size of a dimension that is divided among ranks, buffers in place
    of tensors, reductions that comm does not have (`bitwise_xor`, `generic`, `average` of integers), and annotations
    (`shard.shard`) that the partitioning left.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "comm::CommDialect", "mlir::linalg::LinalgDialect",
                           "mlir::tensor::TensorDialect"];
}

def ConvertStablehloToComm : Pass<"convert-stablehlo-to-comm", "mlir::ModuleOp"> {
  let summary = "convert collectives of StableHLO in MLIR's generic form";
  let description = [{
    The pass takes a program of StableHLO and Shardy, such as JAX lowers `jax.shard_map` to, in MLIR's generic form. It needs
    neither dialect: operations are known by their names. `comm-opt` reads such programs as they are; other tools need
    `--allow-unregistered-dialect`.

    - `sdy.manual_computation` is replaced by its body. The arguments and the results of the function become those of one process.
      All axes of the mesh have to be manual, and a function with a manual computation computes nothing outside of it, because only
      XLA's partitioner knows how to divide that.
    - `stablehlo.while`, `if` and `case` become operations of the scf dialect; a loop that counts between constants an `scf.for`.
    - Collectives become a start and its wait. Groups get the names of the axes of the mesh along which they are. A permute is
      one in the smallest groups along axes that have the same pairs.
    - All other operations stay. Their effects and costs are known by their names (docs/guide/Dialects.md).

    | of StableHLO | of comm | processes of a group |
    |---|---|---|
    | `all_gather`, `all_reduce`, `reduce_scatter` | the operation of the same name | without a channel, replicas; with one, replicas and all their partitions; with `use_global_device_ids`, replica * partitions + partition |
    | `all_to_all`, `collective_broadcast`, `collective_permute` | `all_to_all`, `broadcast` from the first of the group, `permute` | without a channel, replicas; with one, partitions |

    Groups are a matrix of numbers; -1 fills rows, and no numbers mean one group of all. The reduction is recognized by its region.
    Refused, each with a diagnostic that says what was expected: groups that differ in size or leave a process out, other reductions, and
    `send`, `recv`, `infeed` and `outfeed`.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "comm::CommDialect", "mlir::scf::SCFDialect",
                           "mlir::tensor::TensorDialect"];
}

def ConvertCommToMpi : Pass<"convert-comm-to-mpi", "mlir::ModuleOp"> {
  let summary = "convert collectives on buffers to upstream's mpi dialect";
  let description = [{
    The pass runs on buffers, after `comm-bufferize`. Each group becomes a communicator (`mpi.comm_split`) in each function that uses
    it, `comm.rank` the rank in `mpi.comm_world`. The program that calls the functions initializes MPI.

    The mpi dialect of LLVM 22 has no non-blocking collective, so a future becomes the requests of non-blocking messages, and its wait
    waits for all of them:

    | of comm | of mpi |
    |---|---|
    | `send`, `recv` | `isend`, `irecv` |
    | `all_gather`, `all_to_all`, both along dimension 0 | `isend` and `irecv` with every other rank of the group, and a copy |
    | `permute` in which every place is a source and a target | `irecv` and `isend` |
    | `all_reduce` with sum, product, min or max | `allreduce`, which blocks at the start |
    | `barrier` | `barrier`, which blocks at the start |

    All others are refused with this list. So are buffers that are not contiguous or have no static shape, and futures without exactly
    one wait. LLVM 22 itself lowers `comm_rank`, `comm_split`, `allreduce`, `send` and `recv` of the mpi dialect to calls, but not `isend`,
    `irecv`, `wait` and `barrier` (docs/guide/Dialects.md).
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::memref::MemRefDialect", "mlir::mpi::MPIDialect"];
}

def CommBufferize : Pass<"comm-bufferize", "mlir::ModuleOp"> {
  let summary = "bufferize a program with collectives";
  let description = [{
    The pass runs one-shot bufferization, including function boundaries, with upstream's in-place analysis: a tensor operation
    writes its destination in place if that is correct. The pass adds the facts that futures hide from the analysis. A
    collective uses its inputs and destinations until its wait, and the results of the wait are the destinations. So no
    operation overwrites a buffer in flight: such a write gets a buffer of its own. Arguments of public functions are not
    written, unless they are `comm.donated`. Destinations, mutated operands and views of the comm dialect are already storage
    and are never copied.

    The analysis cannot be used if a future leaves its block or is an argument, if a tensor comes from a buffer that other
    operations may write (`bufferization.to_tensor` without `restrict`), or if basic blocks with tensors form a loop (convert
    `scf` to `cf` behind this pass). The pass then copies before every write of a tensor in the module, and a remark gives the
    reason.

    The pass frees buffers that do not leave their block after their last use, and never before a wait that is certain to run:
    waits on buffers keep (`keeping`) the buffers in flight. If no wait is certain to run, because all are in conditions or in
    loops that may not run, the pass adds a wait at the end of the block that starts the collective. The runtime frees
    buffers whose future leaves its block. Upstream's `buffer-deallocation-pipeline` frees all others; `comm-lower-to-runtime`
    runs it next, and it does not free a buffer again.
  }];
  let options = [
    Option<"copyBeforeWrite", "copy-before-write", "bool", "false",
           "copy before every write of a tensor, without the in-place analysis">,
  ];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::bufferization::BufferizationDialect",
                           "comm::CommDialect", "mlir::memref::MemRefDialect", "mlir::scf::SCFDialect"];
}

def CommPlanBuffers : Pass<"comm-plan-buffers"> {
  let summary = "give buffers fixed offsets in one arena per block and memory space";
  let description = [{
    The pass plans buffers of static size that one operation of their own block frees, as `comm-bufferize` leaves them. They
    become views of one allocation. The plan (`Scheduling/BufferPlan/BufferPlan.h`) gives the offsets: buffers that are live
    at the same time do not overlap, and others may share space. The pass does not plan a buffer that may still be in flight
    when it is freed; the runtime keeps such a buffer until the collective has ended.

    Plain memory and the symmetric memory of each group have separate arenas. The arena of the body of an `scf.for`,
    `scf.while` or `scf.if` is allocated outside of it, as a buffer of the enclosing block, so that every iteration has its
    buffers at the same addresses. The plan depends on the module only, so all ranks get the same offsets. On a module, the
    arena of a function's symmetric memory is a global (`memref.global`) and persists between calls, unless the function may
    be called again before it returns.

    A verifier that shares no code with the planner checks every plan. Remarks give the size of each arena and the largest sum
    of live bytes.
  }];
  let options = [
    Option<"alignmentBytes", "alignment-bytes", "::commsched::ByteCount", "256",
           "alignment of offsets in bytes, a power of two; cudaMalloc aligns to 256">,
  ];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::memref::MemRefDialect",
                           "mlir::bufferization::BufferizationDialect"];
}

def CommSwitchStreams : Pass<"comm-switch-streams"> {
  let summary = "write the streams of operations down as switches between them";
  let description = [{
    The pass inserts `comm.switch_stream` where the stream (`comm.stream`) of an operation differs from that of the one before,
    so that every block begins and ends with stream 0. From then on the place of an operation says its stream, and no longer
    an attribute: upstream's patterns may build operations anew without the attributes of other dialects.
    `comm-lower-to-runtime` runs it between the memory plan, which counts on the streams, and upstream's later passes.

    It is an error if an operation of this dialect has a `comm.stream` that differs from the stream of its place.
  }];
  let dependentDialects = ["comm::CommDialect"];
}

def CommToLLVM : Pass<"comm-to-llvm", "mlir::ModuleOp"> {
  let summary = "lower collectives on buffers to calls of the runtime";
  let description = [{
    Every operation of the comm dialect becomes calls of the C ABI in CommSched/Runtime/Runtime.h. The runtime allocates and
    frees the buffers. A buffer without a known last use is released at the end of the loop iteration or of the function. The
    module gets a function `commrt_module_begin` that creates the groups and registers the schedule; the program calls it once
    per context before any other function. Upstream's lowerings convert all other operations.

    With `device`, buffers are device memory. Constants (`memref.global`) get a copy there when the program begins, and the
    lists of upstream's buffer deallocation stay in memory of the host.
  }];
  let options = [
    Option<"device", "device", "bool", "false", "buffers are device memory, which the host cannot touch">,
  ];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::LLVM::LLVMDialect", "mlir::memref::MemRefDialect"];
}

def CommFormKernels : Pass<"comm-form-kernels", "mlir::ModuleOp"> {
  let summary = "turn computations on device memory into kernels";
  let description = [{
    The pass turns each `linalg` operation on buffers, each `scf.forall` and `scf.parallel` without results, and each
    `memref.copy` between buffers that are not contiguous into one `gpu.launch` in blocks of 256 threads. A thread computes
    one element of the result; reductions run in it, in the order of linalg's loops, so that the bits are those of the
    program on a CPU. Operations without a parallel dimension run in one thread.

    `gpu-kernel-outlining` then makes functions of them, and `comm-lower-launches` lowers these.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::gpu::GPUDialect", "mlir::linalg::LinalgDialect",
                           "mlir::memref::MemRefDialect", "mlir::scf::SCFDialect"];
}

def CommLowerLaunches : Pass<"comm-lower-launches", "mlir::ModuleOp"> {
  let summary = "lower kernels and their launches to calls of the runtime";
  let description = [{
    The pass runs after `gpu-kernel-outlining` and `comm-to-llvm`. It puts all kernels of the program, equal ones once, into one
    image, which `commrt_module_begin` loads, and turns each `gpu.launch_func` into a call of `commrt_kernel_launch`. The image
    has a host build of each kernel: a function that carries out the whole grid, for emulated devices. With `ptx` it also has
    their PTX, by upstream's lowering. PTX is code for every later architecture, too.

    Two programs that a context runs need different names of their images.
  }];
  let options = [
    Option<"ptx", "ptx", "bool", "false", "compile the kernels to PTX; without it, the image runs on emulated devices only">,
    Option<"imageName", "image-name", "std::string", [{"commsched"}], "the name of the image">,
    Option<"chip", "chip", "std::string", [{"sm_80"}], "the oldest architecture that the PTX is for">,
  ];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::gpu::GPUDialect", "mlir::LLVM::LLVMDialect",
                           "mlir::memref::MemRefDialect", "mlir::scf::SCFDialect"];
}

def CommDeviceMemory : Pass<"comm-device-memory", "mlir::ModuleOp"> {
  let summary = "replace accesses of the host to device memory by copies";
  let description = [{
    The pass runs after `comm-form-kernels`, on what remains for the host. A `memref.copy` between contiguous buffers becomes a
    copy by the runtime, in the order of the current stream. A `memref.load` becomes a copy of one element to the host, which
    waits for the stream, and a `memref.store` a copy of one element to the device: programs need them for conditions and for
    sizes. Each is reported by a remark. Memory of `memref.alloca`, and constants that are only loaded, are the host's.

    It is an error if the index of a load or a store depends on a loop around it, because such a loop computes on elements: it
    should be a `linalg` operation. Any other access of the host to device memory is an error, too.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::LLVM::LLVMDialect", "mlir::memref::MemRefDialect"];
}

def CommCheckStatus : Pass<"comm-check-status", "mlir::ModuleOp"> {
  let summary = "return from compiled code at the first error of the runtime";
  let description = [{
    The pass runs last in the lowering, on functions of the LLVM dialect. After each call of the runtime that can fail, and
    after each call of a function that contains one, it adds a branch that returns from the function on an error. The
    returned values are then zero. The context holds the error, with the source location of the failed collective.
  }];
  let dependentDialects = ["mlir::LLVM::LLVMDialect"];
}

#endif // COMMSCHED_CONVERSION_PASSES
