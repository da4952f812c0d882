//===- Backend.h - The table of functions that a runtime backend supplies ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The core (libcommrt) keeps contexts, tokens, buffers, errors and faults; a backend moves bytes. A backend is a shared
// library libcommrt_NAME.so that exports commrt_backend_entry, or a table that the program registers. Tables carry
// their version and size: a function that lies beyond struct_size counts as absent.
//
// Threads: open, close and attach are called by any thread, one call per rank at a time. group_create, group_destroy,
// submit, progress, combine and detach are called by the thread that uses the rank's context; abort and describe by any
// thread, describe not beside detach. Ranks of one process call at the same time.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_RUNTIME_BACKEND_H
#define COMMSCHED_RUNTIME_BACKEND_H

#include "CommSched/Runtime/Runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Version 3: `combine` instead of an exchange of all values, `abandon`.
#define COMMRT_BACKEND_ABI_VERSION 3u

/// One collective of one rank. The core owns it until `complete` (device backends: until release_work).
typedef struct commrt_work {
  uint32_t struct_size;
  int32_t kind;      ///< commrt_kind
  int32_t dtype;     ///< commrt_dtype
  int32_t reduction; ///< commrt_reduction
  double scale;
  const void *in;
  void *out;
  int64_t count; ///< elements of one block, as in Runtime.h
  int32_t root;  ///< member; broadcast, reduce, gather, scatter
  int32_t peer;  ///< member; send, recv
  int64_t tag;   ///< send, recv: they match by members and tag, in order within one tag
  /// permute: the member that this one sends to, receives from; -1 none.
  int32_t send_to, recv_from;
  /// all_to_all, uneven: n entries each. NULL in the even form.
  const int64_t *send_counts, *recv_counts;
  /// Hash of everything in which ranks must agree; ranks compare it before they move data.
  uint64_t fingerprint;
  int64_t site;
  const char *group;    ///< name, for messages
  const char *location; ///< source location, for messages; may be NULL
  int64_t cost_ns;      ///< predicted
  int64_t issue_ns;     ///< sim: the rank's virtual clock at the start
  int64_t delay_ns;     ///< injected fault: not carried out before this much time has passed
  int32_t injected;     ///< a mismatch was injected: the fingerprint is wrong on purpose
  void *owner;          ///< the core's
  /// all_reduce: not 0 where every member is to read all inputs itself; `in` and `out` do not overlap. A backend may
  /// carry out an ordinary one instead.
  int32_t one_shot;
  // What follows is for backends with COMMRT_BACKEND_DEVICE. For the others the core stages, and both outers are 1.
  /// `in` is [in_outer][n][count / in_outer], `out` is [out_outer][n][count / out_outer]; uneven: in_outer rows of
  /// send_counts[j] / in_outer elements for each member, and so for `out`. `in` and `out` may be the same buffer, also
  /// for all_to_all and permute.
  int64_t in_outer, out_outer;
  void *stream; ///< the producer's: the work begins when what was put there before its start is done
  void *state;  ///< the backend's, from submit until release_work
} commrt_work;

/// What the core offers to a backend.
typedef struct commrt_host {
  uint32_t struct_size;
  /// [any thread] The work is done (or cancelled); exactly once for each submitted work. Backends may hold their locks.
  void (*complete)(commrt_work *work, int32_t status, int64_t virtual_end_ns);
  /// [any thread] The job failed; `rank` is where it began. `context` is attach's.
  void (*failed)(void *context, int32_t status, int32_t rank, const char *message);
  /// [any thread] A line about the work. Returns the length.
  int32_t (*describe)(const commrt_work *work, char *text, size_t size);
  /// [any thread] In place of `complete`, with an error, for a work whose memory something outside may still read or
  /// write: the core never frees or reuses the buffers of it that are its own.
  void (*abandon)(commrt_work *work, int32_t status);
} commrt_host;

/// Puts the values of some ranks, and of those that follow them, together: lower = combine(lower, higher). Associative.
typedef void (*commrt_combine_fn)(void *lower, const void *higher, int64_t bytes);

typedef struct commrt_backend_config {
  uint32_t struct_size;
  int32_t ranks;
  int32_t workers;
  int32_t progress_thread;
  int32_t virtual_clock;
  int64_t timeout_ns;
  int32_t trace; ///< 1: the core keeps a trace, for which it asks for the spans of works
} commrt_backend_config;

/// One launch of a kernel. Its sizes are within CUDA's limits, and none is 0.
typedef struct commrt_kernel_call {
  uint32_t struct_size;
  const char *kernel;
  uint32_t grid[3], block[3];
  int64_t shared_bytes;
  void *const *arguments; ///< to the values, which may change on return
} commrt_kernel_call;

/// result (+)= left * right, for each index of the batch dimensions. Strides are in elements, those of a matrix of rows
/// and columns; batch strides are indexed by operand (left, right, result), then by dimension.
typedef struct commrt_product {
  uint32_t struct_size;
  int32_t left_type, right_type, result_type; ///< commrt_dtype
  const void *left, *right;
  void *result;
  int64_t m, n, k;
  int64_t left_strides[2], right_strides[2], result_strides[2];
  int32_t batch_rank;  ///< at most 8
  int32_t accumulates; ///< not 0: adds to what the result holds
  int64_t batch_sizes[8], batch_strides[3][8];
} commrt_product;

/// What a backend offers whose buffers are device memory. Streams, events and memory are handles of the backend; NULL
/// is no stream. Called by the thread that uses the rank's context, except where it says otherwise. Functions up to
/// `fill` are required; what follows may be NULL, or lie beyond struct_size.
typedef struct commrt_device_ops {
  uint32_t struct_size;
  /// The stream `lane` of a commrt_stream_kind; the same arguments give the same stream. Lives until close.
  int32_t (*stream)(void *peer, int32_t kind, int32_t lane, void **stream);
  /// An event that is done when everything that was put on `stream` before is.
  int32_t (*record)(void *peer, void *stream, void **event);
  /// What is put on `stream` later waits for the event. Never blocks the caller.
  int32_t (*stream_wait)(void *peer, void *stream, void *event);
  int32_t (*query)(void *peer, void *event, int32_t *done);
  /// [any time until close] Gives the event back.
  void (*release)(void *peer, void *event);
  /// What is put on `stream` later waits for the work. Never blocks the caller. For works that were submitted, also
  /// completed ones, until release_work. That includes works that move nothing: compiled programs count on it that what
  /// follows the wait comes after what `work->stream` had before the start.
  int32_t (*wait_work)(void *peer, commrt_work *work, void *stream);
  /// [any time until close] The core has done with a work that is complete.
  void (*release_work)(void *peer, commrt_work *work);
  /// Works submitted between the two are started together, at the end; those of one group may become one launch.
  int32_t (*group_begin)(void *peer);
  int32_t (*group_end)(void *peer);
  /// Memory that is valid for what is put on `stream` later; not zeroed. Not for bytes = 0. COMMRT_ERR_MEMORY: none.
  int32_t (*alloc)(void *peer, int64_t bytes, void *stream, void **pointer);
  /// [any time until close] Takes the memory back when what was put on `stream` before is done.
  int32_t (*free)(void *peer, void *pointer, void *stream);
  /// A copy in the order of `stream`. TO_DEVICE: `from` may be written again on return. FROM_DEVICE: returns when the
  /// bytes are there, or with COMMRT_ERR_TIMEOUT after `timeout_ns`.
  int32_t (*copy)(void *peer, void *to, const void *from, int64_t bytes, int32_t direction, void *stream,
                  int64_t timeout_ns);
  /// Sets bytes in the order of `stream`.
  int32_t (*fill)(void *peer, void *to, int32_t byte, int64_t bytes, void *stream);

  /// Registers part of a segment, at the same offset on all ranks, for the collectives of `group`. All members call it,
  /// in the same order.
  int32_t (*window_create)(void *group, void *base, int64_t bytes, void **window, char *message, size_t size);
  /// [any time until close] The same order on all members. NULL is fine.
  void (*window_destroy)(void *group, void *window);

  /// As `record`, and the event keeps the time at which it was done.
  int32_t (*record_timed)(void *peer, void *stream, void **event);
  /// The time from one timed event to another, ns. Both are done.
  int32_t (*elapsed)(void *peer, void *begin, void *end, int64_t *ns);
  /// The stream on which the collectives of a group run, or its messages if `messages` is not 0.
  int32_t (*group_stream)(void *group, int32_t messages, void **stream);

  /// Loads code; copies what it keeps, but host kernels. The three are there together, or none is.
  int32_t (*image_load)(void *peer, const commrt_image_info *info, void **image, char *message, size_t size);
  /// [any time until close] No more launches. Without `idle` kernels that were launched may still run.
  void (*image_unload)(void *peer, void *image, int32_t idle);
  /// Puts the kernel on the stream; never blocks.
  int32_t (*launch)(void *peer, void *image, const commrt_kernel_call *call, void *stream, char *message, size_t size);

  /// With commrt_backend_config.trace, together with record_timed and elapsed: timed events of the moments when the
  /// work's turn on its stream came and when it ended there. The backend's until release_work. NULL for a work that was
  /// put on no stream.
  int32_t (*span)(void *peer, const commrt_work *work, void **begin, void **end);

  /// The kernels of lib/Runtime/Kernels/Device/Kernels.h, which the backend owns, or why there are none.
  int32_t (*kernels)(void *peer, void **image, char *message, size_t size);
  /// Puts a product on the stream, by a library of its vendor; never blocks. Sums in f32, or f64 if the operands are,
  /// in an order of the library's. COMMRT_ERR_UNSUPPORTED: no library, or not for such operands.
  int32_t (*product)(void *peer, const commrt_product *what, void *stream, char *message, size_t size);

  // Graphs; the four are there together, or none is.

  /// From here on what is put on streams is noted in a graph, and not carried out. Everything on all streams is done.
  /// Until capture_end a work is complete when a stream waits for it (wait_work completes it), `alloc` gives memory of
  /// the graph, and events of `record_timed` and `span` get their time at each launch. COMMRT_ERR_UNSUPPORTED, and
  /// nothing is captured, if the rank can capture none.
  int32_t (*capture_begin)(void *peer, char *message, size_t size);
  /// Ends it, also after an error, and completes the works that were submitted meanwhile. *graph may be set with an
  /// error, too.
  int32_t (*capture_end)(void *peer, void **graph, char *message, size_t size);
  /// Carries the graph out in the order of the default compute stream; never blocks.
  int32_t (*graph_launch)(void *peer, void *graph, char *message, size_t size);
  /// Its launches are done, if there was no error. Memory of it that was not freed stays until it is.
  void (*graph_destroy)(void *peer, void *graph);
} commrt_device_ops;

/// The part of the operations that every device backend has.
#define COMMRT_DEVICE_REQUIRED_SIZE offsetof(commrt_device_ops, window_create)

enum {
  COMMRT_BACKEND_POLLED = 1u,      ///< waits must call progress
  COMMRT_BACKEND_PER_PROCESS = 2u, ///< one rank per process
  COMMRT_BACKEND_VIRTUAL = 4u,     ///< complete's virtual_end_ns is meant
  COMMRT_BACKEND_RANK_ORDER = 8u,  ///< reductions run in rank order: their bits are a function of the inputs alone
  COMMRT_BACKEND_DEVICE = 16u,     ///< buffers are device memory, and the table has `device`
  COMMRT_BACKEND_ORDERED = 32u     ///< messages of two members match in order, whatever their tags
};

typedef struct commrt_backend {
  uint32_t abi_version; ///< COMMRT_BACKEND_ABI_VERSION
  uint32_t struct_size;
  const char *name;
  uint32_t flags;
  /// Opens the job; *ranks and *local_rank (-1: all) tell how many there are and which is here.
  int32_t (*open)(const commrt_backend_config *config, void **job, int32_t *ranks, int32_t *local_rank, char *message,
                  size_t size);
  void (*close)(void *job);
  int32_t (*attach)(void *job, int32_t rank, const commrt_host *host, void *context, void **peer);
  /// Cancels and completes all works of this rank.
  void (*detach)(void *peer);
  /// Collective over the job, in the same order everywhere. `index` -1: the rank is in no subset.
  int32_t (*group_create)(void *peer, const char *name, const int32_t *members, int32_t size, int32_t index,
                          void **group, char *message, size_t message_size);
  void (*group_destroy)(void *group);
  /// Starts a work and returns at once. On an error `complete` is not called for it.
  int32_t (*submit)(void *group, commrt_work *work);
  int32_t (*progress)(void *peer);
  /// value = the values of all ranks combined in the order of the ranks, equal on all. Collective over the job; not in
  /// flight with another one. Ranks that give different `bytes` get COMMRT_ERR_MISMATCH. On a timeout the message says
  /// which ranks are missing. Memory and messages are linear in the number of ranks, all ranks together.
  int32_t (*combine)(void *peer, void *value, int64_t bytes, commrt_combine_fn combine, int64_t timeout_ns,
                     char *message, size_t size);
  /// Tells every rank (host->failed there, not here) and cancels what is in flight.
  void (*abort)(void *peer, int32_t status, const char *message);
  /// Who waits for what, as text.
  int32_t (*describe)(void *peer, char *text, size_t size);

  // All above is required. What follows may be NULL, or lie beyond struct_size.

  /// Zeroed memory of `bytes` for symmetric buffers, this rank's part of segment `index`, until close. All ranks ask
  /// for the same segments in the same order; the core has checked that. Absent: the core takes ordinary memory.
  int32_t (*segment_create)(void *peer, int64_t index, int64_t bytes, void **base, char *message, size_t size);
  /// With COMMRT_BACKEND_DEVICE; otherwise not looked at.
  const commrt_device_ops *device;
  /// [any thread] The versions of the libraries underneath and the devices, on one line. Returns the length.
  int32_t (*identify)(void *job, char *text, size_t size);
  /// Whether each rank carries out what it starts one after the other, whatever its group, so that groups can wait for
  /// each other. Absent: they never do.
  int32_t (*is_serial)(void *job);
} commrt_backend;

/// The part of the table that every backend has.
#define COMMRT_BACKEND_REQUIRED_SIZE offsetof(commrt_backend, segment_create)
/// Whether a structure that carries its size is large enough for a member, so that later members may follow.
#define COMMRT_REACHES(pointer, type, member)                                                                          \
  ((pointer)->struct_size >= offsetof(type, member) + sizeof((pointer)->member))
/// Whether a table has one of the functions that may be absent.
#define COMMRT_BACKEND_HAS(table, member) (COMMRT_REACHES(table, commrt_backend, member) && (table)->member)

/// [any thread] Makes a table known under its name, for the rest of the process; the table stays alive. Not for names
/// of built-in backends, nor for a name that another table has.
COMMRT_API int32_t commrt_backend_register(const commrt_backend *backend);

/// [any thread] The table of backend `name` as commrt_job_create finds it, or of the control plane, `tcp`, for a
/// backend that is built over another one. Its library stays loaded. On an error *backend is NULL and `message` (may be
/// NULL) says why.
COMMRT_API int32_t commrt_backend_find(const char *name, const commrt_backend **backend, char *message, size_t size);

/// What libcommrt_NAME.so exports. NULL if it cannot serve that version.
typedef const commrt_backend *(*commrt_backend_entry_fn)(uint32_t abi_version);
#define COMMRT_BACKEND_ENTRY "commrt_backend_entry"

#ifdef __cplusplus
}
#endif

#endif // COMMSCHED_RUNTIME_BACKEND_H
