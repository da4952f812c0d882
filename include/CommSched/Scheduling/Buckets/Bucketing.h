//===- Bucketing.h - The problem with buckets carried out -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A bucket merges collectives of one merge key into one. Solvers decide buckets, the pass `comm-bucket` carries them
// out in IR, and both have to agree to the nanosecond and the byte: this file is the contract between them.
//
// The rules. Members are starts of one key, pairwise independent. c(r, w) is Problem::copyCost; f is MergeKey::cost
// and g MergeKey::coalescedCost.
//
// Packed all-gather (`comm.fsdp.all_gather_copy_in`, start, wait, `comm.fsdp.split_with_sizes_copy`):
//   pack    compute, c(r, w): w is the sum of the members' input bytes, r the same, but with the cast's input bytes for
//   a
//           member whose cast is fused. Reads the inputs (the fused casts' operands), defines the gathered buffer G of
//           the sum of the output bytes, and writes this rank's slice of it. Fused casts and their buffers vanish.
//   start   in place on G, f(sum of the members' `bytes`).
//   wait    touches G.
//   unpack  compute, c(w, w) for w output bytes, one for each member, that reads G and defines the member's output; but
//           the members of at most kSmallUnpackBytes of output share one, where they are two or more. It takes over the
//           users of the member's wait. G lives until the last unpack.
// Packed reduce-scatter (`comm.fsdp.chunk_cat`, start, wait, the view op `comm.fsdp.split_with_sizes`):
//   pack    compute, c(r, w) as above: reads the inputs, defines the concatenation C of the sum of the input bytes.
//   start   reads C, defines one output buffer of the sum of the output bytes; touches both.
//   wait    touches both.
//   view    compute of cost 0: the members' outputs are views of the output buffer; takes over the waits' users.
// Packed all-reduce: the same, but the start is in place on C, and the members' outputs are views of C.
// Coalesced, every kind: one start of g(sum of `bytes`, members) and one wait over the members' own buffers; casts
// stay.
//
// Every dependence of a member's start and of its fused cast becomes one of the pack (of the start when coalesced), but
// for one on another start, which is an order of issues: the bucket's start keeps it, and one member may follow
// another. what must follow a member's start must follow the bucket's start; what must follow a member's wait must
// follow its unpack, the view, or the bucket's wait.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BUCKETS_BUCKETING_H
#define COMMSCHED_SCHEDULING_BUCKETS_BUCKETING_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/Support/Error.h"

namespace commsched {

/// How a bucket's data moves.
enum class BucketForm : uint8_t {
  /// Through one buffer that a pack kernel fills.
  Packed,
  /// One start over the members' own buffers; no copies.
  Coalesced,
};

/// Order of the members in a bucket's buffer.
enum class MemberOrder : uint8_t {
  /// As they stand in the program.
  Program,
  /// As the arguments that they gather or the results that they become stand in the signature of the function.
  Signature,
};

/// "packed" or "coalesced".
llvm::StringRef stringify(BucketForm form);

/// Several collectives merged into one.
struct Bucket {
  /// The merged starts, in packing order. Two or more.
  std::vector<NodeId> members;
  BucketForm form = BucketForm::Packed;
};

/// Members of a packed all-gather with at most this much output are unpacked by one kernel: a kernel over less is
/// bound by its launch.
inline constexpr Bytes kSmallUnpackBytes = Bytes(2) << 20;

/// What stands for a bucket in an ExpandedProblem; kNone where its form has no such node.
struct BucketNodes {
  NodeId pack = kNone;
  NodeId start = kNone;
  NodeId wait = kNone;
  /// Packed all-gather: of each member the unpack that defines its output. Members that share one repeat it.
  std::vector<NodeId> unpacks;
  /// Packed reduce-scatter and all-reduce: the view that splits the result.
  NodeId view = kNone;
};

/// A Problem with its buckets carried out. Buffers keep their ids (those that vanish have 0 bytes and no users); new
/// ones follow. It has no merge keys: what is merged is decided.
struct ExpandedProblem {
  Problem problem;
  /// Of each expanded node: the original node, or kNone where a bucket brought it.
  std::vector<NodeId> origin;
  /// Of each expanded node: its bucket, or kNone for an original node.
  std::vector<int32_t> bucketOf;
  /// Of each original node: the expanded node that does its work. A fused cast maps to the pack, a member's start to
  /// the bucket's start, a member's wait to its unpack, view or the bucket's wait.
  std::vector<NodeId> image;
  /// Of each bucket: its nodes.
  std::vector<BucketNodes> buckets;
};

/// Whether `start` may be in a bucket at all: it has a key and no workspace, neither it nor its wait is pinned or in a
/// unit, its wait depends on nothing else, and it touches nothing but its input and its own output. O(users of its
/// output).
bool isMergeable(const Problem &problem, NodeId start);

/// The cast that a pack of `start` does itself, or kNone: the member's cast if nothing else sees its result. A cast
/// that is pinned or in a unit is never fused. O(users of the cast's result).
NodeId fusedCast(const Problem &problem, NodeId start);

/// Carries out `buckets`. Nodes are numbered by a depth-first walk of the given order, so that the identity is a legal
/// order. Fails, saying which, on a bucket of fewer than two members, on members that are not mergeable, of different
/// keys or in two buckets, and on buckets that depend on themselves. O(N + E).
llvm::Expected<ExpandedProblem> expandBuckets(const Problem &problem, llvm::ArrayRef<Bucket> buckets);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BUCKETS_BUCKETING_H
