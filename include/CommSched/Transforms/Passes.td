//===- Passes.td - The project's passes -------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_PASSES
#define COMMSCHED_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

/// The machine whose costs a pass believes.
def MachineOption : Option<"machine", "machine", "std::string", "\"\"",
                           "machine profile: the name of a shipped one, or a path; by default the one of --comm-machine, or "
                           "h100-sxm">;

/// What may be reordered, and at what cost in memory. Shared by all scheduling passes.
def CollectiveOrderOption
    : Option<"collectiveOrder", "collective-order", "::commsched::CollectiveOrder",
             "::commsched::CollectiveOrder::Free", "which collectives keep their relative order",
             [{::llvm::cl::values(
               clEnumValN(::commsched::CollectiveOrder::Free, "free", "only dependences hold"),
               clEnumValN(::commsched::CollectiveOrder::Group, "group", "those of one group do"),
               clEnumValN(::commsched::CollectiveOrder::Program, "program", "all do"))}]>;
def MemoryBudgetRatioOption
    : Option<"memoryBudgetRatio", "memory-budget-ratio", "double", "0.0",
             "the peak may exceed the input's by this fraction of it">;
def MemoryLimitBytesOption
    : Option<"memoryLimitBytes", "memory-limit-bytes", "int64_t", "-1",
             "the peak may reach this many bytes, arguments that live throughout not counted; overrides the ratio "
             "where not negative">;

//===--------------------------------------------------------------------------------------===//
// Scheduling
//===--------------------------------------------------------------------------------------===//

/// What the solver may do.
defvar solverOptions = [
  Option<"bucketing", "bucketing", "bool", "true", "merge collectives">,
  Option<"bucketCapBytes", "bucket-cap-bytes", "int64_t", "-1",
         "largest merged collective of any kind, bytes; no limit where negative">,
  Option<"allGatherCapBytes", "all-gather-cap-bytes", "int64_t", "-1", "the same for all-gathers alone">,
  Option<"reduceScatterCapBytes", "reduce-scatter-cap-bytes", "int64_t", "-1", "the same for reduce-scatters alone">,
  Option<"allReduceCapBytes", "all-reduce-cap-bytes", "int64_t", "-1", "the same for all-reduces alone">,
  Option<"effort", "effort", "int64_t", "-1",
         "steps that one search may take: 0 for the first answer, negative for the default (about a second)">,
];

def CommSchedule : Pass<"comm-schedule"> {
  let summary = "decide order and buckets together, under a hard peak-memory limit";
  let description = [{
    Reorders every block with collectives, and merges collectives, so that the makespan of the cost model is as small as
    the search finds. The peak never exceeds the limit, and the result is never slower than the input, which is the
    first incumbent. An input above the limit is first brought down; where that fails, the pass says by how much and
    fails. Every answer is checked by the ScheduleVerifier before it is applied. Equal input and options give equal
    output; effort is counted in steps, not in time.

    Remarks: per collective, where it moved, with how many others it was merged, how much of it is exposed before and
    after, and what limits it.
  }];
  let options = [MachineOption, CollectiveOrderOption, MemoryBudgetRatioOption, MemoryLimitBytesOption] # solverOptions;
}

//===--------------------------------------------------------------------------------------===//
// Rewrites
//===--------------------------------------------------------------------------------------===//

def CommBucket : Pass<"comm-bucket"> {
  let summary = "merge collectives of one kind, group, element type and reduction, greedily by bytes";
  let description = [{
    All-gathers, reduce-scatters and all-reduces fill one bucket of their key after the other, in program order, up to a
    cap. None joins that depends on a member, through whatever path, and no two buckets come to depend on each other.
    Packed buckets go through one buffer: a copy-in (which does the casts of single-use inputs), one collective, and
    copies or views of its pieces. Coalesced ones are one start over the members' own tensors. The results are equal bit
    for bit.

    Merged are collectives of one tensor of static size and whole bytes, along dimension 0, without a destination, and with
    one wait in the same block; not on memrefs. The search of `comm-schedule` decides buckets together with the order;
    this pass is for a given rule. See `docs/Rewrites.md`.

    Remarks: per bucket what was merged, per collective why it was not, and the traffic before and after. An error where
    bytes were lost, a warning where time or peak are not what the models said of the buckets.
  }];
  let options = [
    MachineOption,
    ListOption<"capBytes", "cap-bytes", "int64_t",
               "largest merged collective in bytes (gathered, or sent) by number of the bucket; the last holds for the rest; "
               "no limit where negative or not given">,
    ListOption<"allGatherCapBytes", "all-gather-cap-bytes", "int64_t", "the same for all-gathers, in place of cap-bytes">,
    ListOption<"reduceScatterCapBytes", "reduce-scatter-cap-bytes", "int64_t",
               "the same for reduce-scatters, in place of cap-bytes">,
    ListOption<"allReduceCapBytes", "all-reduce-cap-bytes", "int64_t", "the same for all-reduces, in place of cap-bytes">,
    Option<"form", "form", "::commsched::BucketForm", "::commsched::BucketForm::Packed", "how a bucket's data moves",
           [{::llvm::cl::values(
             clEnumValN(::commsched::BucketForm::Packed, "packed", "through one buffer"),
             clEnumValN(::commsched::BucketForm::Coalesced, "coalesced", "one start over the members' buffers"))}]>,
    Option<"mixedTypes", "mixed-types", "bool", "false",
           "merge collectives of different element types: packed all-gathers as bytes, coalesced ones of any kind as they "
           "are; packed reductions never, as they compute with their elements">,
    Option<"fsdpOnly", "fsdp-only", "bool", "false",
           "merge only all-gathers of the function's arguments and reduce-scatters that only reach its results, through "
           "casts and views, and no all-reduces">,
    Option<"fsdpExact", "fsdp-exact", "bool", "false",
           "fsdp-only as PyTorch's bucketing has it: with one cast of the element type at most, and no views">,
    ListOption<"kinds", "kinds", "std::string", "what to merge: all_gather, reduce_scatter, all_reduce; all by default">,
  ];
}

def CommReinplaceAllGather : Pass<"comm-reinplace-all-gather"> {
  let summary = "let all-gathers write the buffer of their copy-in";
  let description = [{
    An all-gather of the slice of a `comm.fsdp.all_gather_copy_in`, itself or through a cast, that makes new storage
    becomes one `into` the buffer of the copy-in, which then does the cast. Left alone, with a remark that says why, where the
    buffer has other users, the copy-in is for another group or stands in another block, the all-gather has another
    destination (on memrefs it has one) or another shape, or the copy-in converts already. See `docs/Rewrites.md`.
  }];
}

def CommRealizeBuffers : Pass<"comm-realize-buffers"> {
  let summary = "decide what storage collectives use";
  let description = [{
    To run last among the rewrites, before bufferization (or on buffers). Per block:

    - A wait for what an earlier one waited for goes; its values are the earlier one's. (One-shot collectives have waits like
      others here: nothing in this dialect blocks at its start. The wait says that the sum is there and that the input may be
      written again.)
    - A result that is only copied into a parameter (`comm.fsdp.copy`) is written there (`into` it), if nothing touches that
      storage between start and copy, and the copy goes.
    - A sum up to the threshold becomes `one_shot`: every rank reads the others' inputs itself. One that writes its input, which
      the others read meanwhile, gets a result of its own, copied there after the wait; on buffers it stays as it is.
      Other all-reduces, and
      broadcasts, of one or several tensors write their inputs (`into` them) where nothing uses these afterwards.
    - What collectives of any kind read and write is put into `#comm.symmetric` memory of their group. On tensors the
      collective is marked (`comm.symmetric`), and `comm-bufferize` makes the buffers; on buffers the allocations' memory
      space is changed at once.

    The last two need storage that the block makes for itself, of static size: no argument's, no constant's, none that leaves
    the block, none that is planned for another group already; to write an input, also no part of a larger storage. Remarks
    say what was done, or why not.
  }];
  let options = [
    Option<"oneShotThresholdBytes", "one-shot-threshold-bytes", "int64_t", "131072",
           "largest all-reduce that is done in one shot, bytes; 0 for none">,
    Option<"symmetric", "symmetric", "bool", "true",
           "put inputs and outputs into symmetric memory; one-shot collectives have theirs there in any case">,
    ListOption<"peerGroups", "peer-groups", "std::string",
               "groups whose ranks reach each other's memory, by symbol name: only these get symmetric memory and one-shot "
               "sums; all where not given">,
  ];
  let dependentDialects = ["::commsched::comm::CommDialect"];
}

def CommDecomposeAllToAll : Pass<"comm-decompose-all-to-all"> {
  let summary = "exchange along the leading dimension only";
  let description = [{
    An all-to-all on tensors that splits or concatenates along another dimension than the first becomes a transposition that
    brings the pieces to the front, an all-to-all along the leading dimension, and after the wait a transposition that puts
    them in their place; uneven pieces too. Bits do not change. For backends that move contiguous pieces only (the lowering of
    this project takes any dimension). Left alone, with a remark: dynamic sizes, given destinations, buffers, and a future
    that leaves its block.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def CommRemoveUnshardedParamUsage : Pass<"comm-remove-unsharded-param-usage"> {
  let summary = "read gathered values instead of the parameters that they are copied into";
  let description = [{
    Where the storage of a function's argument is only ever resized to full, copied into, used and resized to 0, in this
    order, once or repeatedly, the uses read what was copied, and the copies and resizes go. Each argument is decided on by
    itself, and has to be a tensor of static size. A remark says which operation stands in the way otherwise: unbalanced or
    partial resizes, a write of the parameter or of what was copied, a use (of a view too) where the storage is empty, a use
    that leaves the function. See `docs/Rewrites.md`.
  }];
}

//===--------------------------------------------------------------------------------------===//
// Looking
//===--------------------------------------------------------------------------------------===//

def CommReport : Pass<"comm-report", "::mlir::ModuleOp"> {
  let summary = "report makespan, exposed communication, peak memory and lower bounds";
  let description = [{
    Measures every block with collectives by the models and prints a table to standard error. Changes nothing but the
    `comm.schedule_signature` of functions. Within the pipeline `reorder-comm-overlap` one report covers what was before
    the pipeline and what is after it.
  }];
  let options = [
    MachineOption,
    Option<"reportFile", "report-file", "std::string", "\"\"", "write the report as JSON to this file">,
    Option<"timelineFile", "timeline-file", "std::string", "\"\"",
           "write the timeline to this file: a page where it ends in .html, a Perfetto trace otherwise">,
    Option<"table", "table", "bool", "true", "print the table to standard error">,
  ];
}

def CommPareto : Pass<"comm-pareto", "::mlir::ModuleOp"> {
  let summary = "find out what memory buys: makespan against peak memory";
  let description = [{
    Solves every block with collectives as `comm-schedule` would, for limits from the lowest peak that can be reached to
    none at all, and writes the answers that no cheaper one matches: as JSON, and as a picture. Changes nothing. Every
    limit costs one search; limits are solved in parallel.

    `comm-opt --comm-pareto=FILE` runs it on the input, before everything else.
  }];
  let options = [
    MachineOption, CollectiveOrderOption,
    Option<"file", "file", "std::string", "\"\"", "write the curves as JSON to this file">,
    Option<"picture", "picture", "std::string", "\"\"",
           "write the picture (SVG) to this file; by default beside `file`, with the suffix .svg">,
    Option<"limits", "limits", "int32_t", "16", "limits to solve for; at least 3">,
  ] # solverOptions;
}

def CommVerify : Pass<"comm-verify", "::mlir::ModuleOp"> {
  let summary = "check that collectives are waited for, their buffers are left alone, and ranks agree";
  let description = [{
    An error for each of these, at its place:
    - a future that nobody waits for and that does not leave the function;
    - a wait that no path reaches;
    - a buffer in flight that is written, or a destination that is read, before a wait that is certain to run;
    - a collective under control flow that depends on the rank: not all ranks would come to it.

    Stamps `comm.schedule_signature`, the hash of the sequence of collectives, on every function that has any.
  }];
}

//===--------------------------------------------------------------------------------------===//
// Reordering, after the passes of PyTorch Inductor
//===--------------------------------------------------------------------------------------===//

/// A pass that gives the blocks of functions a new order. It runs on any operation; functions in parallel.
class ReorderingPass<string name> : Pass<name> {
  let options = [MachineOption, CollectiveOrderOption];
}

/// What the two peak-preserving passes share.
defvar peakOptions = [
  MachineOption, CollectiveOrderOption,
  Option<"memoryBudgetRatio", "memory-budget-ratio", "double", "0.2",
         "how far the peak may rise, as a fraction of the input's peak; passes in a row share one input">,
  Option<"memoryLimitBytes", "memory-limit-bytes", "int64_t", "-1",
         "a limit that takes the place of the budget; none where negative">,
  Option<"useRuntimeEstimates", "use-runtime-estimates", "bool", "false",
         "stop when hidden, and refuse moves that raise net exposed time or the makespan">,
  Option<"extraOverlapPermille", "extra-overlap-permille", "int64_t", "500",
         "hidden means that compute covers 1 + this many thousandths of the collective's time">,
  Option<"commTimePermille", "comm-time-permille", "int64_t", "2000", "thousandths at which collectives' times count">,
  Option<"computeTimePermille", "compute-time-permille", "int64_t", "1000", "thousandths at which computes' times count">,
  Option<"unsafeCollectivesReorder", "unsafe-collectives-reorder", "bool", "true",
         "collectives may pass each other where neither a dependence nor collective-order forbids it">,
  Option<"moveLimit", "move-limit", "int32_t", "-1", "move only the first so many collectives; all where negative">,
  Option<"prefetchLimit", "prefetch-limit-nodes", "int32_t", "-1",
         "let each collective pass no more than so many operations; any number where negative">,
  Option<"groupLimit", "group-limit-nodes", "int32_t", "256", "take along no more than so many operations at once">,
  Option<"memoryRecompute", "memory-recompute", "bool", "false", "recount all live bytes after every collective">,
];

def CommRaise : ReorderingPass<"comm-raise"> {
  let summary = "start collectives as early as dependences allow";
  let description = [{
    Schedules anew: among the ready operations, the one that leads to the earliest collective goes first, and otherwise
    the one that stood first. Collectives keep their relative order. Memory is no concern: run it where the peak does not
    matter, or before `comm-schedule`, which keeps to a limit.

    Remarks: per start how many operations it passed, its exposed time before and after, and what it depends on; per block
    makespan, exposed time and peak before and after. All passes of this section say as much.
  }];
}

def CommSinkWaits : ReorderingPass<"comm-sink-waits"> {
  let summary = "wait for collectives as late as dependences allow";
  let description = [{
    Schedules anew: a wait goes only when nothing else is ready. Memory is no concern. Running it twice changes nothing
    more, and the same holds of `comm-raise`.
  }];
}

def CommReorderComputeForOverlap : ReorderingPass<"comm-reorder-compute-for-overlap"> {
  let summary = "follow each collective with compute until its cost is covered";
  let description = [{
    Raises starts and sinks waits at once, and after each collective issues ready operations that are neither
    collectives nor waits until their costs add up to the collective's: first those that the next collective needs and
    this one does not make, then those that are free, by their place. Memory is no concern.
  }];
}

def CommReorderPreservingPeakMemory : Pass<"comm-reorder-preserving-peak-memory"> {
  let summary = "move starts left within a memory budget";
  let description = [{
    Takes the starts from left to right and moves each left past its predecessors, together with what it depends on,
    until something stops it: a dependence that may not be taken along (another start, unless `group-with-collectives`;
    without estimates, a matrix multiplication), the memory limit, another collective (where these may not pass each
    other) or the beginning of the block.

    With `use-runtime-estimates` it also stops when compute hides it, and where passing the next operation would expose
    the group's waits by more than it saves. The makespan that the cost model predicts never rises: moves that would
    raise it are taken back, all of them or, found by halving, those that do.

    The limit is the input's peak times 1 + `memory-budget-ratio`. Several passes in a row take it from the first one's
    input. An input that is above a `memory-limit-bytes` does not get any higher.

    Remarks: per start as in `comm-raise`, with the limiting factor and its numbers ("peak memory: passing 'matmul' would
    reach 4.91 GiB, limit 4.63 GiB").
  }];
  let options = peakOptions # [
    Option<"groupWithCollectives", "group-with-collectives", "bool", "false",
           "a start may take along another start that it depends on">,
  ];
}

def CommSinkWaitsPreservingPeakMemory : Pass<"comm-sink-waits-preserving-peak-memory"> {
  let summary = "move waits right within a memory budget";
  let description = [{
    The mirror image of `comm-reorder-preserving-peak-memory`: takes the waits from right to left and moves each right
    past its successors, together with what depends on it. It takes neither waits nor starts along, and passes a start
    only with `swap-with-collectives`.
  }];
  let options = peakOptions # [
    Option<"swapWithCollectives", "swap-with-collectives", "bool", "false", "a wait may move past a start">,
  ];
}

def CommOrderCollectives : Pass<"comm-order-collectives"> {
  let summary = "fix the order of all collectives as it is now";
  let description = [{
    Marks the collectives of each block `comm.pinned`: no later pass lets pinned operations pass each other, or merges
    them. A block with a single collective needs no mark.
  }];
}

def CommOrderFsdp : ReorderingPass<"comm-order-fsdp"> {
  let summary = "bring the parts of fully sharded collectives together, one group after the other";
  let description = [{
    Puts [cast, copy-in, all-gather] and [wait, copy-outs, their views] next to each other, likewise [copy-in,
    reduce-scatter] and [wait and what follows from it up to the next copy-in], and runs the second half of each before
    the first half of the next of its kind. The copy-ins and copy-outs are the `comm.fsdp` operations; collectives
    without them are left alone.

    An operation belongs to the first group that asks for it. Where a layer is used again, its second gather forms groups
    of its own. A group that a dependence leads out of and back into is let go, and its remark says so.

    Later passes keep what this one has arranged: each half becomes a unit (`comm.unit`), which no pass tears apart or
    merges with others, and each first half comes after the second half before it (`comm.after_unit`). Running the pass
    again begins anew.
  }];
}

def CommAlignCosts : Pass<"comm-align-costs", "::mlir::ModuleOp"> {
  let summary = "give every rank the same costs: the median over ranks";
  let description = [{
    Ranks that measure their costs measure different ones, and would decide differently. Writes the median over several
    machine profiles, one per rank, into the `comm.cost` of matrix multiplications and their like (of an even number the
    lower one), in blocks with collectives; linalg's contractions, and loops with one inside, are among them. The order of
    the profiles does not matter. An embedder supplies a function that gathers the ranks' costs instead: the context's
    `Environment::gather`, `commschedContextSetGather` in C, or `createCommAlignCosts(machine, gather)`; it is called once per
    module.

    Remarks: per operation what it costs from here on and between what the ranks were.
  }];
  let options = [
    ListOption<"profiles", "profiles", "std::string", "machine profiles, one per rank: names or paths">,
    Option<"allCompute", "all-compute", "bool", "false", "align every operation that is not free">,
  ];
  let dependentDialects = ["::commsched::comm::CommDialect"];
}

#endif // COMMSCHED_TRANSFORMS_PASSES
