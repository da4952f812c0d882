//===- Passes.td - The project's passes -------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_PASSES
#define COMMSCHED_TRANSFORMS_PASSES

include "CommSched/Transforms/PassBase.td"

/// The machine that gives the costs of operations and collectives.
def MachineOption : Option<"machine", "machine", "std::string", "\"\"",
                           "machine profile: the name of a shipped profile, or a path; default: that of --comm-machine, or "
                           "h100-sxm">;

/// Constraints on order and memory. All scheduling passes share these options.
def CollectiveOrderOption
    : Option<"collectiveOrder", "collective-order", "::commsched::CollectiveOrder",
             "::commsched::CollectiveOrder::Free", "collectives that keep their relative order",
             [{::llvm::cl::values(
               clEnumValN(::commsched::CollectiveOrder::Free, "free", "none; only dependences hold"),
               clEnumValN(::commsched::CollectiveOrder::Group, "group", "the collectives of each group"),
               clEnumValN(::commsched::CollectiveOrder::Program, "program", "all collectives"))}]>;
def MemoryBudgetRatioOption
    : Option<"memoryBudgetRatio", "memory-budget-ratio", "double", "0.0",
             "amount by which the peak may exceed the input's peak, as a fraction of it; negative: by which it has to be "
             "below">;
def MemoryLimitBytesOption
    : Option<"memoryLimitBytes", "memory-limit-bytes", "::commsched::ByteCount", "-1",
             "hard limit on peak memory in bytes, excluding arguments that are live throughout the block; if >= 0, "
             "overrides memory-budget-ratio">;

def LimitedMemoryOption
    : Option<"limitedMemory", "limit", "::commsched::LimitedMemory", "::commsched::LimitedMemory::Live",
             "memory that the limit is about",
             [{::llvm::cl::values(
               clEnumValN(::commsched::LimitedMemory::Live, "live", "buffers that are live together"),
               clEnumValN(::commsched::LimitedMemory::Arena, "arena",
                          "the arena of a buffer plan, with the largest workspace"))}]>;

/// Noise of durations.
defvar noiseOptions = [
  Option<"scenarios", "scenarios", "int32_t", "0", "number of scenarios in which durations vary">,
  Option<"collectiveSpreadPermille", "collective-spread-permille", "int32_t", "300",
         "standard deviation of the logarithm of a collective's duration, permille, if its cost has no error bar">,
  Option<"computeSpreadPermille", "compute-spread-permille", "int32_t", "0",
         "the same for all other operations">,
];
def ObjectiveOption
    : Option<"objective", "objective", "::commsched::Objective", "::commsched::Objective::Robust",
             "what the search minimizes",
             [{::llvm::cl::values(
               clEnumValN(::commsched::Objective::Robust, "robust", "the makespan, and within 0.1 % of it the regret"),
               clEnumValN(::commsched::Objective::Regret, "regret", "the regret alone"),
               clEnumValN(::commsched::Objective::Makespan, "makespan", "the makespan alone"))}]>;

//===--------------------------------------------------------------------------------------===//
// Scheduling
//===--------------------------------------------------------------------------------------===//

/// Options of the solver. Passes that search share them.
defvar solverOptions = [
  Option<"bucketing", "bucketing", "bool", "true", "merge collectives">,
  Option<"bucketCapBytes", "bucket-cap-bytes", "::commsched::ByteCount", "-1",
         "largest merged collective, bytes; negative: unlimited">,
  Option<"effort", "effort", "int64_t", "-1",
         "maximum number of steps of one search; 0: only the first answer, negative: the default (about a second, more for over 8,000 operations)">,
];

def CommSchedule : Pass<"comm-schedule"> {
  let summary = "decide order and buckets together, under a hard limit on peak memory";
  let description = [{
    The pass reorders every block that contains collectives, and merges collectives, to minimize the makespan of the cost
    model. It searches; it does not prove that its answer is optimal. The peak never exceeds the limit. The result is never
    slower than the input, which is the first incumbent. If the input exceeds the limit, the pass first reduces its peak. If
    this fails, the pass fails with an error that states the lowest peak it found. With `limit=arena` the limit holds for the
    arena of the buffer plan (`comm-plan-buffers`), which may be larger than the peak of live bytes: the pass searches again
    with less live memory until the plan fits.

    An independent verifier checks every answer before the pass applies it. Equal input and equal options give equal output,
    because effort is counted in steps and not in seconds. `effort` limits the steps of one search. See `docs/contributing/Scheduler.md`.

    Collectives may take longer than planned. By default (`objective=robust`), the pass also looks for answers in case they
    take 1.5 times or twice as long, and plays every answer and the input if they take 0.75 to 2 times as long. It takes the
    answer with the least regret, the largest distance to a lower bound at any of these scales, of those that take at most
    0.1 % longer as planned than the fastest one. An answer that takes over 1 % longer than an input within the limit at any
    of the scales is not taken. `objective=regret` minimizes the regret alone, and `objective=makespan` ignores other
    scales. With `effort=0` or `limit=arena` the default is the makespan; with `objective=regret` a warning or
    an error says so. If activities share resources, nothing is claimed of the scales between those that were played.

    With `time-budget-ratio=0.02`, the pass takes the schedule with the lowest peak that it finds among those that take at
    most 2 % longer than the fastest one. It bisects between limits on the peak, with up to ten more searches.

    Remarks: one per collective, with its positions, its bucket, its exposed time before and after, and its limiting factor
    (`docs/guide/Remarks.md`).
  }];
  let options = [MachineOption, CollectiveOrderOption, MemoryBudgetRatioOption, MemoryLimitBytesOption, LimitedMemoryOption,
                 ObjectiveOption,
                 Option<"timeBudgetRatio", "time-budget-ratio", "double", "-1.0",
                        "look for the lowest peak of schedules that take at most this fraction longer than the fastest one; "
                        "negative: look for the fastest one">,
                 ListOption<"without", "without", "std::string",
                            "phases of the search and lenses to leave out, by name, to see what each of them earns">] # solverOptions;
}

def CommSplitStrands : Pass<"comm-split-strands", "::mlir::ModuleOp"> {
  let summary = "split activations into strands, so that one communicates while another computes";
  let description = [{
    A tensor-parallel reduction or an expert-parallel exchange often has nothing independent beside it, and then no order
    hides it. The pass splits the operations around such collectives along a dimension of the activations (the tokens) into
    `k` strands. While one strand communicates, another one computes. Weights and their collectives stay whole. Operations
    that mix the rows of the dimension, or that no rule describes, stay whole, too: the strands are joined before them.

    The pass searches over the dimensions that collectives carry, how much work around each collective is split (the
    window), the number of strands up to `max-strands`, the distance between the strands (the stagger), and the regions
    that stay whole. It schedules each candidate as `comm-schedule` does, under the limit of the input, and takes the
    fastest. The input itself, scheduled, is always a candidate: a block that would not be faster stays unchanged. So does
    a block for which a lower bound over all splits says that none gains 0.2 % (`docs/contributing/Bounds.md`, Lemma 19). A block that is split also gets the order and the buckets of its schedule. The results of the program
    do not change, bit for bit, if the kernels compute a row regardless of the number of rows. With `allow-reassociation`, sums
    over the split dimension are split, too: every strand adds what it has to one buffer. Then the sums of floating-point
    numbers may round differently; those of integers are always split. See `docs/guide/Strands.md`.

    Remarks: one per block, one per region of connected operations, split or not, and one per candidate, with the numbers.
    The attribute `strands` of the function holds the bound, the time without a split and the break-even for the report.
  }];
  let options = [
    MachineOption, CollectiveOrderOption, MemoryBudgetRatioOption, MemoryLimitBytesOption,
    Option<"maxStrands", "max-strands", "int64_t", "4", "largest number of strands, at most 8">,
    Option<"force", "force", "bool", "false",
           "split into exactly max-strands strands, faster or not, and keep the order of the program; for tests">,
    Option<"stagger", "stagger", "int64_t", "-1",
           "split operations by which each strand is behind the one before it; negative: search">,
    Option<"window", "window", "int64_t", "-1",
           "work to split on each side of a collective, in percent of the collective's time; 0: all; negative: search">,
    Option<"dimension", "dimension", "int64_t", "-1",
           "number of the only dimension to split, in the order in which they are tried; negative: search">,
    Option<"allowReassociation", "allow-reassociation", "bool", "false",
           "split sums over the dimension, too, such as gradients of weights: their terms are added in another order">,
  ] # solverOptions;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect",
                           "::commsched::comm::CommDialect"];
}

def CommPlanMemory : Pass<"comm-plan-memory", "::mlir::ModuleOp"> {
  let summary = "decide what is kept for late readers and what is made again, together with the order";
  let description = [{
    A value that is read again much later is either kept until then, or made again: an activation is computed again, a
    parameter is gathered again. The pass decides this for every value of a block, together with the order and the buckets,
    to minimize the makespan of the cost model under the limit on peak memory. It works where the early and the late readers
    are in one block, such as the forward and the backward pass of a model as one function.

    The pass clones what makes a value in front of the readers behind the widest gap between two readers, and finds what the
    program makes twice by itself, such as a second all-gather of one shard. A search over prices of memory and of the lanes
    then removes what is better kept; `comm-schedule`'s solver judges each plan. The best plan is carried out, with the
    order and the buckets of its schedule. A block stays unchanged if no plan is shorter than its schedule without one.

    Only operations are made again that are pure and deterministic. An operation that draws random numbers is pinned
    (`comm.pinned`) and never repeated. A value is not made again if something in between may write what it is made from.
    After the rewrite, an independent check compares the value number of everything that is read with that before.
    See `docs/guide/MemoryPlan.md`.

    Remarks: one per block with the values and bytes that are kept or made again unlike in the program, and with times and
    peaks.
  }];
  let options = [
    MachineOption, CollectiveOrderOption, MemoryBudgetRatioOption, MemoryLimitBytesOption,
    Option<"force", "force", "::commsched::ForcedPlan", "::commsched::ForcedPlan::None",
           "what to decide, whatever it costs and without a limit; for tests",
           [{::llvm::cl::values(
             clEnumValN(::commsched::ForcedPlan::None, "none", "what is best"),
             clEnumValN(::commsched::ForcedPlan::Keep, "keep", "keep everything"),
             clEnumValN(::commsched::ForcedPlan::Again, "again", "make everything again"),
             clEnumValN(::commsched::ForcedPlan::Mixed, "mixed", "keep every second value"))}]>,
  ] # solverOptions;
  let dependentDialects = ["::commsched::comm::CommDialect"];
}

def CommPipelineLoops : Pass<"comm-pipeline-loops", "::mlir::ModuleOp"> {
  let summary = "run collectives of a loop one iteration ahead of their readers, or one behind";
  let description = [{
    The gathers of a layer in a loop over layers begin when the layer begins, and its reductions end before the next one
    begins, so no order of the body hides them. The pass moves them to other iterations. An `scf.for` becomes a software
    pipeline (upstream's `scf::pipelineForLoop`):

    - A collective that needs nothing that the loop carries, such as the gather of the parameters of layer `i`, runs one
      iteration ahead, with all that it needs. Its result crosses the iterations as a value that the loop carries.
    - A collective whose result reaches only what the loop carries, and that is read by nobody else in the loop, such as
      the reduction of gradients that are collected, runs one iteration behind. Its operands cross the iterations.

    Start and wait stay in one iteration, so that the scheduler orders the body as any other block. The pass tries both
    kinds, and each alone, on a copy of the function: it schedules all blocks and takes the fastest answer whose peak is
    within the limit. A loop stays as it is if no answer is faster, if the additional layer exceeds the limit, if its
    number of iterations is unknown or too small, or if an operation of its body has effects that nobody declares.

    The memory limit is about the peak of the function's outermost block, the loop's body included.

    Remarks: one per loop, with the times, the peaks, what crosses the iterations, and a lower bound on the time of one
    iteration in any such pipeline of this body. See `docs/guide/Loops.md`.
  }];
  let options = [MachineOption, CollectiveOrderOption, MemoryBudgetRatioOption, MemoryLimitBytesOption,
                 Option<"force", "force", "bool", "false",
                        "move all collectives that may move, faster or not and without a limit; for tests">]
                # solverOptions;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect", "::commsched::comm::CommDialect"];
}

//===--------------------------------------------------------------------------------------===//
// Rewrites
//===--------------------------------------------------------------------------------------===//

def CommBucket : Pass<"comm-bucket"> {
  let summary = "merge collectives of one kind, group, element type and reduction, greedily by bytes";
  let description = [{
    The pass merges all-gathers, reduce-scatters and all-reduces. In program order, collectives of one key (kind, group,
    element type, reduction) fill a bucket up to a cap, then the next bucket. A collective does not join a bucket if it
    depends on a member, through any path, and no two buckets depend on each other. A packed bucket uses one buffer: a
    copy-in, which also does the casts of single-use inputs, one collective, and copies or views of the pieces. A coalesced
    bucket is one start over the members' own tensors. The results are equal bit for bit, except that a reduction over more
    than two ranks may round differently on backends that reduce in another order.

    The pass merges a collective if it has one tensor of static size and whole bytes, runs along dimension 0, has no
    destination, and has exactly one wait, in the same block. It merges nothing on memrefs. It takes O(N + E + S log S) for
    N operations, E dependences and S collectives.

    With `names`, only collectives with matching names go together. A collective has the names of its location and, if it
    gathers an argument of the function, those of the argument's. With `member-order=signature`, a bucket's buffer has its
    members in the order of the arguments that they gather or of the results that they become, as FSDP2 packs the
    parameters of a module in the order in which they were registered.

    Use this pass for a given rule. `comm-schedule` decides buckets together with the order and needs no pass before it. See
    `docs/guide/Rewrites.md`.

    Remarks: one per bucket with its members, one per collective that is not merged with the reason, and one per block with
    the traffic before and after. Lost bytes are an error. The pass warns if the time or the peak differs from the model's
    prediction for the buckets.
  }];
  let options = [
    MachineOption,
    ListOption<"capBytes", "cap-bytes", "::commsched::ByteCount",
               "largest merged collective in bytes (gathered, or sent), indexed by bucket; the last entry applies to all "
               "further buckets; negative or empty: unlimited">,
    ListOption<"allGatherCapBytes", "all-gather-cap-bytes", "::commsched::ByteCount", "cap-bytes for all-gathers only; overrides cap-bytes">,
    ListOption<"reduceScatterCapBytes", "reduce-scatter-cap-bytes", "::commsched::ByteCount",
               "cap-bytes for reduce-scatters only; overrides cap-bytes">,
    ListOption<"allReduceCapBytes", "all-reduce-cap-bytes", "::commsched::ByteCount", "cap-bytes for all-reduces only; overrides cap-bytes">,
    Option<"form", "form", "::commsched::BucketForm", "::commsched::BucketForm::Packed", "how a bucket moves its data",
           [{::llvm::cl::values(
             clEnumValN(::commsched::BucketForm::Packed, "packed", "through one buffer"),
             clEnumValN(::commsched::BucketForm::Coalesced, "coalesced", "one start over the members' buffers"))}]>,
    Option<"mixedTypes", "mixed-types", "bool", "false",
           "merge collectives of different element types: packed all-gathers as bytes, coalesced collectives of any kind "
           "unchanged; packed reductions are never mixed, because they compute with their elements">,
    Option<"fsdpOnly", "fsdp-only", "bool", "false",
           "merge only all-gathers of the function's arguments, and reduce-scatters whose values reach only its results, "
           "both through casts and views; merge no all-reduces">,
    Option<"fsdpExact", "fsdp-exact", "bool", "false",
           "fsdp-only with the filter of PyTorch's bucketing: at most one cast of the element type, and no views">,
    ListOption<"kinds", "kinds", "std::string", "kinds to merge: all_gather, reduce_scatter, all_reduce; default: all three">,
    Option<"names", "names", "std::string", "\"\"",
           "pattern (a POSIX extended regular expression) of the names of collectives to merge; those go together for which "
           "its groups match the same text, or the whole pattern if it has no groups">,
    Option<"memberOrder", "member-order", "::commsched::MemberOrder", "::commsched::MemberOrder::Program",
           "order of the members in a bucket's buffer",
           [{::llvm::cl::values(
             clEnumValN(::commsched::MemberOrder::Program, "program", "as they stand in the program"),
             clEnumValN(::commsched::MemberOrder::Signature, "signature",
                        "as the arguments that they gather, or the results that they become"))}]>,
  ];
}

def CommMoveCasts : Pass<"comm-move-casts"> {
  let summary = "let collectives carry elements in the narrower of two types";
  let description = [{
    The pass looks for collectives with a cast to a wider type in front of every input, or to a narrower type behind every
    value. It moves the casts to the other side if collective and casts together take less time then, by the cost model. It
    takes O(N) for N operations.

    With `numerics=exact`, it does so where bits stay equal: across collectives that move elements, and, if the cast is in front,
    minima and maxima. With `numerics=reduced-precision-sums`, also sums and averages of elements of at least 16 bits are
    computed in the narrow type, if the cast is in front. Their remark says by how much an element may differ, as a fraction of the sum of the magnitudes
    of its terms, and the function gets the attribute `comm.numerics` with the number of such collectives and the largest of
    these bounds.

    The pass leaves a collective unchanged, with a remark, if it has a destination or a cost of its own, if a size is dynamic, if
    its future has several waits or other users, if a cast or the value has other readers or is in another block, if the program writes the storage of one of the values, and for all other
    reductions. See `docs/guide/Rewrites.md`.
  }];
  let options = [
    MachineOption,
    Option<"numerics", "numerics", "::commsched::Numerics", "::commsched::Numerics::Exact", "how far results may differ",
           [{::llvm::cl::values(
             clEnumValN(::commsched::Numerics::Exact, "exact", "not at all"),
             clEnumValN(::commsched::Numerics::ReducedPrecisionSums, "reduced-precision-sums",
                        "sums over ranks may be computed in fewer bits"))}]>,
  ];
}

def CommQuantiseGathers : Pass<"comm-quantise-gathers"> {
  let summary = "let all-gathers carry elements in 8 bits, with a scale per block: changes results";
  let description = [{
    The pass changes results: it runs only if it is named, and no pipeline has it by default. It rewrites an all-gather of
    f32, f16 or bf16 if the gather of bytes and its kernels together take less time, by the cost model. A kernel in front of the
    start packs the shard, blocks of 128 consecutive elements as 128 numbers of f8E4M3FN and one scale, and a kernel
    behind the wait unpacks what has been gathered. It takes O(N) for N operations.

    The kernels take time, too. With `min-bytes`, only gathers of at least that size are rewritten: often those that are not
    hidden behind computation.

    An element of a result differs by at most 1/16 of its magnitude, or 2^-10/224 of the largest magnitude in its block, or 2^-136.
    A block with an infinity or NaN becomes NaN. The function gets the attribute `comm.numerics` with the number of such gathers.

    The pass leaves a gather unchanged, with a remark, if an element type is another one or a size is dynamic, if it has
    a destination or a cost of its own, if its future has other users than one wait in its block, if it is part of
    a unit or on several streams, if the program writes the storage of an input or of a gathered value, and if it saves no bytes
    or no time. See `docs/guide/Rewrites.md`.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
  let options = [
    MachineOption,
    Option<"minBytes", "min-bytes", "::commsched::ByteCount", "0", "rewrite only gathers of at least so many gathered bytes">,
  ];
}

def CommReinplaceAllGather : Pass<"comm-reinplace-all-gather"> {
  let summary = "let all-gathers write the buffer of their copy-in";
  let description = [{
    The pass looks for all-gathers of the slice of a `comm.fsdp.all_gather_copy_in`, directly or through one cast, that make
    new storage. It gives them the buffer of the copy-in as destination (`into`), and moves the cast into the copy-in. It
    takes O(N) for N operations.

    The pass leaves an all-gather unchanged, with a remark, if the buffer has other users, if the copy-in is for another
    group or in another block, if the all-gather has another destination (on memrefs it always has one) or another shape,
    or if the copy-in already converts elements. See `docs/guide/Rewrites.md`.
  }];
}

def CommRealizeBuffers : Pass<"comm-realize-buffers"> {
  let summary = "decide which storage collectives use";
  let description = [{
    The pass runs last among the rewrites, before bufferization or on buffers. In each block it takes four steps:

    - It removes a wait if an earlier wait of the same future dominates it and keeps the same buffers.
    - If the only use of a result is a copy into a parameter (`comm.fsdp.copy`), and no operation uses the parameter's
      storage between the start and the copy, the collective writes the parameter directly (`into`). The pass removes the
      copy.
    - A sum of at most `one-shot-threshold-bytes` becomes `one_shot`: every rank reads the inputs of the others itself. If
      the sum writes its input, which the other ranks read, it gets a result of its own, and a copy after the wait; on buffers
      it stays unchanged. Other all-reduces, and broadcasts, write their inputs (`into`) if no later operation uses the
      inputs.
    - The inputs and outputs of all collectives move to the `#comm.symmetric` memory of their group. On tensors the pass
      marks the collective (`comm.symmetric`), and `comm-bufferize` makes the buffers. On buffers the pass changes the memory
      space of the allocations.

    The last two steps need storage of static size that the block itself allocates: not an argument, not a constant, not
    live after the block, and not planned for another group. To write an input, the storage must also not be part of a
    larger one. Remarks state each change, and the reason for each collective that stays unchanged. See `docs/guide/Buffers.md`.
  }];
  let options = [
    Option<"oneShotThresholdBytes", "one-shot-threshold-bytes", "::commsched::ByteCount", "131072",
           "largest all-reduce in bytes that becomes one_shot; 0: none">,
    Option<"symmetric", "symmetric", "bool", "true",
           "put inputs and outputs into symmetric memory; those of one-shot collectives are there in any case">,
    ListOption<"peerGroups", "peer-groups", "std::string",
               "symbol names of the groups whose ranks can access each other's memory: only these get symmetric memory and "
               "one-shot sums; empty: all groups">,
  ];
  let dependentDialects = ["::commsched::comm::CommDialect"];
}

def CommDecomposeAllToAll : Pass<"comm-decompose-all-to-all", "::mlir::ModuleOp"> {
  let summary = "turn all-to-alls into exchanges along the leading dimension";
  let description = [{
    The pass rewrites an all-to-all on tensors that splits or concatenates along a dimension other than the first, with even
    or uneven pieces. A transposition brings the pieces to the front, an all-to-all exchanges them along the leading
    dimension, and a transposition after the wait puts them in place. The values do not change.

    Use it for backends that move only contiguous pieces. The lowering of this project accepts any dimension. The pass leaves
    an all-to-all unchanged, with a remark, if a size is dynamic, if destinations are given, if it is on buffers, or if the
    future leaves its block.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def CommRemoveUnshardedParamUsage : Pass<"comm-remove-unsharded-param-usage"> {
  let summary = "read gathered values instead of the parameters that they are copied into";
  let description = [{
    The pass looks for arguments of functions whose storage is resized to full, copied into, used, and resized to 0, in this
    order, once or repeatedly. It lets the uses read the copied value and removes the copies and resizes. It decides each
    argument separately; the argument must be a tensor of static size.

    Otherwise a remark names the operation that prevents the rewrite: an unbalanced or partial resize, a write of the
    parameter or of the copied value, a use (also through a view) while the storage is empty, or a use that leaves the
    function. See `docs/guide/Rewrites.md`.
  }];
}

//===--------------------------------------------------------------------------------------===//
// Reports and checks
//===--------------------------------------------------------------------------------------===//

def CommReport : Pass<"comm-report", "::mlir::ModuleOp"> {
  let summary = "report makespan, exposed communication, peak memory and lower bounds";
  let description = [{
    The pass measures every block with collectives with the cost model and prints a table to standard error. It changes only
    the `comm.schedule_signature` of functions. In the pipeline `reorder-comm-overlap`, one report compares the module before
    the pipeline with the module after it. See `docs/guide/Report.md`.

    With `scenarios` the report also has the mean and the 95 % quantile of the makespan under noise.
  }];
  let options = [
    MachineOption,
    Option<"reportFile", "report-file", "std::string", "\"\"", "write the report as JSON to this file">,
    Option<"timelineFile", "timeline-file", "std::string", "\"\"",
           "write the timeline to this file: an HTML page if the name ends in .html, a picture for .svg, otherwise a Perfetto trace">,
    Option<"table", "table", "bool", "true", "print the table to standard error">,
  ] # noiseOptions;
}

def CommPareto : Pass<"comm-pareto", "::mlir::ModuleOp"> {
  let summary = "compute the curve of makespan against peak memory";
  let description = [{
    The pass solves every block with collectives as `comm-schedule` does, for limits from the lowest reachable peak to no
    limit. It writes the Pareto-optimal answers as JSON and as a picture, and does not change the module. Each limit costs
    one search. Limits are solved in parallel.

    `comm-opt --comm-pareto=FILE` runs it on the input, before everything else.
  }];
  let options = [
    MachineOption, CollectiveOrderOption,
    Option<"file", "file", "std::string", "\"\"", "write the curves as JSON to this file">,
    Option<"picture", "picture", "std::string", "\"\"",
           "write the picture (SVG) to this file; default: `file` with the suffix .svg">,
    Option<"limits", "limits", "int32_t", "16", "number of limits to solve for; at least 3">,
  ] # solverOptions;
}

def CommExportChakra : Pass<"comm-export-chakra", "::mlir::ModuleOp"> {
  let summary = "write execution traces for simulators (MLCommons Chakra)";
  let description = [{
    The pass writes the current order of every function with collectives as execution traces of Chakra, one file for each
    rank: `directory/FUNCTION.RANK.et`. `FUNCTION.groups.json` beside them lists the ranks of each process group. The module
    does not change. `docs/guide/Chakra.md` says what the nodes are.

    It fails, and writes no file, if a function does what a trace cannot say: collectives in regions or callees, several
    streams, futures that come in late, sizes that are unknown.
  }];
  let options = [
    MachineOption,
    Option<"directory", "directory", "std::string", "\"\"", "write the traces to this directory">,
    Option<"rank", "rank", "int64_t", "-1", "write the trace of this rank only; -1: of all ranks">,
    Option<"orderAsData", "order-as-data", "bool", "false",
           "make the order of the plan a part of data_deps, for simulators that ignore ctrl_deps">,
  ];
}

def CommVerify : Pass<"comm-verify", "::mlir::ModuleOp"> {
  let summary = "check waits, accesses to buffers in flight, and agreement between ranks";
  let description = [{
    The pass emits one located error for each of these:
    - a future without a wait that does not leave the function;
    - a collective whose waits are all in unreachable code;
    - a write of a buffer in flight, or a read of a destination in flight, before a wait that is certain to run; also in the
      next iteration of a loop, behind a branch, and in other basic blocks, by whatever name the buffer has there;
    - a dependence between operations on different streams that no event and no wait covers;
    - an operation without memory effects that makes or reads a tensor whose storage the program writes and reads again
      (docs/contributing/Rationale.md, "Values and places");
    - a collective in control flow that depends on the rank, so that not all ranks would start it.

    It sets `comm.schedule_signature`, the hash of the sequence of collectives, on every function with collectives.
  }];
}

//===--------------------------------------------------------------------------------------===//
// Reordering, after the passes of PyTorch Inductor
//===--------------------------------------------------------------------------------------===//

/// A pass that gives the blocks of functions a new order. It runs on any operation; functions in parallel.
class ReorderingPass<string name> : Pass<name> {
  let options = [MachineOption, CollectiveOrderOption];
}

/// Options of the two peak-preserving passes.
defvar peakOptions = [
  MachineOption, CollectiveOrderOption,
  Option<"memoryBudgetRatio", "memory-budget-ratio", "double", "0.2",
         "amount by which the peak may exceed the input's peak, as a fraction of it; consecutive passes share one input">,
  Option<"memoryLimitBytes", "memory-limit-bytes", "::commsched::ByteCount", "-1",
         "hard limit on peak memory in bytes; if >= 0, overrides memory-budget-ratio">,
  Option<"useRuntimeEstimates", "use-runtime-estimates", "bool", "false",
         "stop when hidden, and refuse moves that raise net exposed time or the makespan">,
  Option<"extraOverlapPermille", "extra-overlap-permille", "int64_t", "500",
         "a collective is hidden if compute covers its time plus this share of it, in permille">,
  Option<"commTimePermille", "comm-time-permille", "int64_t", "2000", "scale of the times of collectives, in permille">,
  Option<"computeTimePermille", "compute-time-permille", "int64_t", "1000", "scale of the times of computations, in permille">,
  Option<"unsafeCollectivesReorder", "unsafe-collectives-reorder", "bool", "true",
         "collectives may pass each other unless a dependence or collective-order forbids it">,
  Option<"moveLimit", "move-limit", "int32_t", "-1", "maximum number of collectives to move; negative: all">,
  Option<"prefetchLimit", "prefetch-limit-nodes", "int32_t", "-1",
         "maximum number of operations that a collective may pass; negative: unlimited">,
  Option<"groupLimit", "group-limit-nodes", "int32_t", "256", "maximum number of operations that move along with a collective">,
  Option<"memoryRecompute", "memory-recompute", "bool", "false", "recount all live bytes after every collective, to check the incremental count">,
];

def CommRaise : ReorderingPass<"comm-raise"> {
  let summary = "start collectives as early as dependences allow";
  let description = [{
    The pass reschedules the block. Among ready operations, it picks the one on which the earliest collective depends; if
    there is none, it picks the first in the given order. Collectives keep their relative order. The pass ignores memory: run
    it if the peak does not matter, or before `comm-schedule`, which observes a limit. It takes O(N + E) for N operations and
    E dependences.

    Remarks: one per start with the number of operations that it passed, its exposed time before and after, and its limiting
    factor; one per block with makespan, exposed time and peak before and after. All passes of this section emit these
    remarks (`docs/guide/Remarks.md`).
  }];
}

def CommSinkWaits : ReorderingPass<"comm-sink-waits"> {
  let summary = "wait for collectives as late as dependences allow";
  let description = [{
    The pass reschedules the block. It places a wait only when no other operation is ready. The pass ignores memory. A second
    run changes nothing; the same is true for `comm-raise`.
  }];
}

def CommReorderComputeForOverlap : ReorderingPass<"comm-reorder-compute-for-overlap"> {
  let summary = "follow each collective with compute until its cost is covered";
  let description = [{
    The pass raises starts and sinks waits together. After each collective it places ready operations that are neither
    collectives nor waits until their costs add up to the cost of the collective. It first takes operations that the next
    collective needs and that do not depend on this collective, then the other ready operations in their given order. The
    pass ignores memory.
  }];
}

def CommReorderPreservingPeakMemory : Pass<"comm-reorder-preserving-peak-memory"> {
  let summary = "move starts left within a memory budget";
  let description = [{
    The pass visits the starts from left to right. It moves each start left past its predecessors, together with the
    operations on which it depends. A start stops at a dependence that may not move with it (another start, unless
    `group-with-collectives` is set; without estimates, a matrix multiplication), at the memory limit, at another collective
    if these may not pass each other, or at the beginning of the block.

    With `use-runtime-estimates`, a start also stops when compute hides it, and when passing the next operation would expose
    the waits of the moving group by more than it saves. The predicted makespan never increases: the pass undoes moves that
    increase it, either all moves or, found by bisection, those that are responsible.

    The limit is the peak of the input times 1 + `memory-budget-ratio`. Consecutive passes share the input of the first one.
    If the input exceeds `memory-limit-bytes`, the peak does not increase further. The pass takes O((N + E + touches)
    log N) for N operations, E dependences, and all accesses to buffers.

    Remarks: one per start as in `comm-raise`, with the limiting factor and its numbers ("peak memory: passing 'matmul' would
    reach 4.91 GiB, limit 4.63 GiB").
  }];
  let options = peakOptions # [
    Option<"groupWithCollectives", "group-with-collectives", "bool", "false",
           "a start may move another start that it depends on">,
  ];
}

def CommSinkWaitsPreservingPeakMemory : Pass<"comm-sink-waits-preserving-peak-memory"> {
  let summary = "move waits right within a memory budget";
  let description = [{
    The mirror image of `comm-reorder-preserving-peak-memory`. The pass visits the waits from right to left and moves each wait
    right past its successors, together with the operations that depend on it. No other wait and no start moves with it. A
    wait passes a start only with `swap-with-collectives`.
  }];
  let options = peakOptions # [
    Option<"swapWithCollectives", "swap-with-collectives", "bool", "false", "a wait may move past a start">,
  ];
}

def CommOrderCollectives : Pass<"comm-order-collectives"> {
  let summary = "fix the current order of all collectives";
  let description = [{
    The pass marks the collectives of each block `comm.pinned`. Later passes neither merge pinned operations nor let them
    pass each other. A block with a single collective gets no mark.
  }];
}

def CommOrderFsdp : ReorderingPass<"comm-order-fsdp"> {
  let summary = "bring the parts of fully sharded collectives together, one group after the other";
  let description = [{
    The pass forms groups of adjacent operations. An all-gather gives [cast, copy-in, all-gather] and [wait, copy-outs, their
    views]. A reduce-scatter gives [copy-in, reduce-scatter] and [wait, and the operations after it up to the next copy-in].
    The second half of each runs before the first half of the next collective of the same kind. The copy-ins and copy-outs
    are `comm.fsdp` operations. The pass leaves collectives without them unchanged.

    An operation belongs to the first group that requests it. If a layer is used again, its second gather forms separate
    groups. A group is dissolved, with a remark, if a dependence path leaves and re-enters it.

    Later passes keep this arrangement. Each half becomes a unit (`comm.unit`), which passes neither split nor merge with
    others. Each first half comes after the preceding second half (`comm.after_unit`). A second run of the pass discards the
    units and forms new ones.
  }];
}

def CommMultiStream : Pass<"comm-multi-stream"> {
  let summary = "put operations on several streams, with events between them";
  let description = [{
    The pass gives operations streams (`comm.stream`) and inserts `comm.record` and `comm.await_event`. Computations go to the
    compute streams, starts to the communication streams, hybrids to the compute streams while they occupy both roles. Waits
    go to the stream of their first reader. Control flow and calls stay on stream 0. Sends and receives have the first stream
    that no option names: an event covers the collectives of its stream, and a send may end only when a receive has been
    posted that comes after the event.

    The rule is list scheduling by upward rank (HEFT). The rank of an operation is its cost plus the largest rank of its
    users, each with the cost of a synchronisation. In the order of their ranks, operations take the stream on which they end
    first; with `shared-resources`, one computation and one collective at a time run on all streams together. Unless `gate`
    is off, a block stays as it is if its predicted time is not below the sum of all costs, or if the timeline of the result
    is not shorter than that of the input.

    A dependence between streams gets an event, unless a wait or other events imply it. The memory model keeps a buffer until
    all streams know that its last reader has ended. Where the peak would pass the limit, streams get further events to wait
    for, so that buffers are known to be free in time. The peak never exceeds the limit, or that of the input if this is larger
    already.

    Each stream runs its operations in the order of the program. The pass plays the result in two orders and keeps the
    faster: the order that the program has, and that of the planned starts. If they are equal, it keeps the former.
    `issue-order` restricts it to one of the two. The order of planned starts is not possible if its peak is above the limit
    or the block has units (`comm.unit`). Passes that reorder or merge leave blocks with streams alone, so run this pass
    last. See `docs/guide/ReorderingPasses.md`.

    Remarks: one per operation with its stream and predicted times, and one per block (`docs/guide/Remarks.md`).
  }];
  let options = [
    MachineOption, MemoryBudgetRatioOption, MemoryLimitBytesOption,
    ListOption<"computeStreams", "compute-streams", "int64_t", "streams for computations, in the order in which they are tried; default: 0">,
    ListOption<"commStreams", "comm-streams", "int64_t", "streams for starts, in the order in which they are tried; default: 1">,
    Option<"syncOverheadNs", "sync-overhead-ns", "int64_t", "-1",
           "cost of a dependence between streams, ns, that the plan counts; negative: the machine's launch time of a kernel, which the timeline counts">,
    Option<"minCostNs", "min-cost-ns", "int64_t", "1000", "least cost of an operation, ns; at least 1">,
    Option<"analyticCosts", "analytic-costs", "bool", "true",
           "use the cost model; otherwise, and where the model has no cost, the bytes of the results over the bandwidth of "
           "the role decide">,
    Option<"sharedResources", "shared-resources", "bool", "true",
           "plan with one resource per role; otherwise only streams limit what runs at the same time">,
    Option<"issueOrder", "issue-order", "::commsched::IssueOrder", "::commsched::IssueOrder::Best",
           "order in which operations are issued",
           [{::llvm::cl::values(
             clEnumValN(::commsched::IssueOrder::Best, "best", "the faster of the two, that of the program if they are equal"),
             clEnumValN(::commsched::IssueOrder::Graph, "graph", "that of the program"),
             clEnumValN(::commsched::IssueOrder::StartTime, "start-time", "by planned start"))}]>,
    Option<"gate", "gate", "bool", "true", "keep the block as it is unless the prediction is below the sum of all costs and the result is faster than the "
           "input">,
  ];
  let dependentDialects = ["::commsched::comm::CommDialect"];
}

def CommAlignCosts : Pass<"comm-align-costs", "::mlir::ModuleOp"> {
  let summary = "give every rank the same costs: the median over ranks";
  let description = [{
    Ranks that measure their own costs would schedule differently. The pass combines the costs that all ranks have for the
    operations of blocks with collectives. It writes the median (of an even number, the lower median) into `comm.cost` as
    the `time`, and the least and the largest cost as its error bar. An operation on which ranks are more than 10 % apart
    gets the remark `skew`. A collective that costs the same on all ranks keeps its curve.

    The costs of the ranks come from several machine profiles, one per rank, whose order does not matter; or from a function
    that gathers them: the context's `Environment::gather`, `commschedContextSetGather` in C, `Program.set_gather` in
    Python, `comm-run --passes`, or `createCommAlignCosts(machine, gather)`. The pass calls the function twice per module.
    The first call compares what is aligned, and the second gathers the costs. If ranks have different operations, every
    rank fails with an error at the first one that differs.

    What has no time of its own, such as buckets that later passes make, the copies for them and calls, is priced by the
    machine. If ranks have different machines, further calls spread the first rank's, later passes for this machine use it
    on all ranks, and each rank gets a warning. Names and origins of profiles do not count.

    Remarks: one per operation with its aligned cost and the range of the ranks' costs.
  }];
  let options = [
    MachineOption,
    ListOption<"profiles", "profiles", "std::string", "machine profiles, one per rank: names or paths">,
    Option<"operations", "operations", "::commsched::AlignedOperations", "::commsched::AlignedOperations::All",
           "operations that are aligned",
           [{::llvm::cl::values(
             clEnumValN(::commsched::AlignedOperations::All, "all", "every operation with a cost, collectives included"),
             clEnumValN(::commsched::AlignedOperations::Compute, "compute", "every operation with a cost but collectives"),
             clEnumValN(::commsched::AlignedOperations::Products, "products", "matrix products, as Inductor does"))}]>,
  ];
  let dependentDialects = ["::commsched::comm::CommDialect"];
}

#endif // COMMSCHED_TRANSFORMS_PASSES
