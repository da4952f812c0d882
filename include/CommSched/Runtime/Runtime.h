//===- Runtime.h - The C ABI that scheduled programs call -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Starts and waits of collectives for compiled programs, over interchangeable backends (threads, sim, mpi, nccl).
// Plain C: no dependence on MLIR, LLVM or C++.
//
// Rules that hold for every function:
//  - The result is a status, COMMRT_OK or an error, unless the declaration says otherwise. Nothing aborts, exits,
//    prints or throws.
//  - The first error of a rank latches: every later call on that context returns it. An error reaches the other
//    ranks of the job, whose pending and later calls then fail too.
//  - Nothing waits for ever. Each wait ends after the context's timeout at the latest, with a report of who waits for
//    what. (Data that is being copied at that moment arrives first, so that nobody writes to the caller's memory
//    later.)
//  - A context belongs to one rank. Different contexts may be used at the same time by different threads. Each function
//    says who may call it:
//      [any thread]             at any time while the handle lives, also beside other calls;
//      [own thread]             one thread at a time per context, with everything that belongs to it; returns at once;
//      [own thread, blocks]     the same, and may wait, up to the timeout;
//      [own thread, all ranks]  the same, and all ranks of the job make these calls in the same order;
//      [own thread, start]      returns at once; the members of the group start its collectives in the same order.
//  - Collectives of one group match across ranks in the order in which each rank starts them; those of different groups
//    are independent. Whether reductions run in rank order is a property of the backend (commrt_job_is_rank_ordered).
//  - What a token's collectives wrote may be read after its wait, by the thread that waited.
//  - Buffers are dense. A buffer given to a start stays unchanged (an output: untouched) until its token is complete.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_RUNTIME_RUNTIME_H
#define COMMSCHED_RUNTIME_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COMMRT_API __attribute__((visibility("default")))
/// Within one version functions and structures keep their form and new functions may come; a structure that may grow
/// carries its size. Version 2: messages have tags, the uneven all_to_all has rows. Version 3: commrt_options_init is
/// told the size of the caller's structure.
#define COMMRT_ABI_VERSION 3u

/// One run of N ranks. In the threads and sim backends all ranks live in this process; in mpi this process is one rank.
typedef struct commrt_job commrt_job;
/// One rank of a job.
typedef struct commrt_context commrt_context;
/// A partition of the ranks; a collective runs within the subset that holds the calling rank.
typedef struct commrt_group commrt_group;
/// Something started and perhaps still in flight: one collective or one coalesced list.
typedef struct commrt_token commrt_token;
/// An order of work on one rank. On CPU backends its work is done by the calling thread.
typedef struct commrt_stream commrt_stream;
/// A point in a stream.
typedef struct commrt_event commrt_event;

typedef enum commrt_status {
  COMMRT_OK = 0,
  COMMRT_ERR_INVALID = 1,     ///< an argument is wrong; the message says which
  COMMRT_ERR_MISMATCH = 2,    ///< ranks disagree on a collective or on the schedule
  COMMRT_ERR_TIMEOUT = 3,     ///< a wait reached its deadline
  COMMRT_ERR_PEER = 4,        ///< another rank left or died
  COMMRT_ERR_ABORTED = 5,     ///< commrt_abort was called
  COMMRT_ERR_BACKEND = 6,     ///< the library underneath failed
  COMMRT_ERR_MEMORY = 7,      ///< no memory
  COMMRT_ERR_UNSUPPORTED = 8, ///< this backend or element type cannot do that
  COMMRT_ERR_INJECTED = 9     ///< a fault that the options asked for
} commrt_status;

typedef enum commrt_kind {
  COMMRT_ALL_GATHER = 0,
  COMMRT_REDUCE_SCATTER = 1,
  COMMRT_ALL_REDUCE = 2,
  COMMRT_ALL_TO_ALL = 3,
  COMMRT_BROADCAST = 4,
  COMMRT_REDUCE = 5,
  COMMRT_GATHER = 6,
  COMMRT_SCATTER = 7,
  COMMRT_PERMUTE = 8,
  COMMRT_SEND = 9,
  COMMRT_RECV = 10,
  COMMRT_BARRIER = 11
} commrt_kind;

/// Element types. COMMRT_I1 is one byte, 0 or 1.
typedef enum commrt_dtype {
  COMMRT_F16 = 0,
  COMMRT_BF16 = 1,
  COMMRT_F32 = 2,
  COMMRT_F64 = 3,
  COMMRT_I8 = 4,
  COMMRT_I16 = 5,
  COMMRT_I32 = 6,
  COMMRT_I64 = 7,
  COMMRT_U8 = 8,
  COMMRT_U16 = 9,
  COMMRT_U32 = 10,
  COMMRT_U64 = 11,
  COMMRT_I1 = 12
} commrt_dtype;

/// Reductions. f16 and bf16 accumulate in f32 and are rounded once; integers wrap; AVG of integers truncates;
/// SCALED_SUM multiplies each input by `scale` first (floating types only). On I1, SUM and MAX are "or", PRODUCT and
/// MIN are "and".
typedef enum commrt_reduction {
  COMMRT_SUM = 0,
  COMMRT_PRODUCT = 1,
  COMMRT_MIN = 2,
  COMMRT_MAX = 3,
  COMMRT_AVG = 4,
  COMMRT_SCALED_SUM = 5
} commrt_reduction;

/// [any thread] COMMRT_ABI_VERSION of the library: a program built with another one must not go on.
COMMRT_API uint32_t commrt_abi_version(void);
/// [own thread] An error, which latches, if `version` is not the library's. Compiled programs call it first.
COMMRT_API int32_t commrt_check_abi(commrt_context *context, uint32_t version);
/// [any thread] The name of a status, kind, element type or reduction; "?" for other values. Static storage.
COMMRT_API const char *commrt_status_name(int32_t status);
COMMRT_API const char *commrt_kind_name(int32_t kind);
COMMRT_API const char *commrt_dtype_name(int32_t dtype);
COMMRT_API const char *commrt_reduction_name(int32_t reduction);
/// [any thread] Bytes of one element; 0 for an unknown type.
COMMRT_API int64_t commrt_dtype_size(int32_t dtype);

//===- Jobs and contexts ---------------------------------------------------------------------===//

typedef struct commrt_options {
  uint32_t struct_size;    ///< the caller's sizeof(commrt_options); set by commrt_options_init
  int32_t ranks;           ///< number of ranks; 0: mpi and nccl take it from the launcher. Default 1 (mpi: 0)
  const char *backend;     ///< "threads" (default), "sim", "mpi", "nccl", a registered name, or the NAME of a
                           ///< libcommrt_NAME.so; several with commas: the first that opens is taken
  int64_t timeout_ns;      ///< the longest wait; default 60 s, environment COMMRT_TIMEOUT_MS
  int32_t workers;         ///< threads, sim: threads that carry out collectives; 0 = up to 4
  int32_t trace;           ///< 1: keep what commrt_trace_write writes
  int32_t poison;          ///< 1: overwrite buffers when they are released, so that late readers show
  int32_t progress_thread; ///< mpi: 1 = a thread polls every 200 us besides commrt_progress, for ranks that have a core
                           ///< to spare; environment COMMRT_PROGRESS_THREAD
  const char *fault;       ///< NULL, or KIND@N[:rank=R][:ms=T]; see Runtime.md. Environment COMMRT_FAULT
} commrt_options;

/// [any thread] Writes the defaults of the first `size` bytes, and zero beyond what this library knows.
COMMRT_API void commrt_options_init_sized(commrt_options *options, size_t size);
/// The same for the structure as the caller was compiled with. A program built before or after the library is fine: a
/// member that only one of them knows has its default.
#define commrt_options_init(options) commrt_options_init_sized((options), sizeof(commrt_options))

/// [any thread] Opens a job. A member beyond what this library knows has to be zero. Timeouts above a year are a year.
/// On an error *job is NULL and `message` (may be NULL) holds up to message_size-1
/// characters.
COMMRT_API int32_t commrt_job_create(const commrt_options *options, commrt_job **job, char *message,
                                     size_t message_size);
/// [any thread] Closes a job whose contexts have been destroyed. NULL is fine.
COMMRT_API int32_t commrt_job_destroy(commrt_job *job);

/// What the launcher of this process says about it by environment variables (Runtime.md lists them).
typedef struct commrt_launch {
  uint32_t struct_size; ///< the caller's sizeof(commrt_launch)
  int32_t rank;         ///< -1 if no launcher started this process
  int32_t ranks;        ///< 0 if none did
  int32_t local_rank;   ///< among the processes of this machine; -1 if the launcher does not say
  const char *launcher; ///< "COMMRT_RANK", "torchrun", "Open MPI", "PMIx", "PMI" or "Slurm"; "" if none. Static storage
  const char
      *backend; ///< the backend for a program that does not choose one: "threads", "mpi" or "nccl". Static storage
} commrt_launch;
/// [any thread] Fills the members that lie within launch->struct_size. COMMRT_ERR_INVALID, with one line in `message`,
/// if the variables are malformed or contradict each other.
COMMRT_API int32_t commrt_launch_read(commrt_launch *launch, char *message, size_t size);

/// [any thread] The name of the job's backend, as long as the job lives.
COMMRT_API const char *commrt_job_backend(const commrt_job *job);
/// [any thread] The versions of the libraries underneath the backend and its devices, on one line, cut off at size-1
/// characters; "" if it has none. For keys of measurements. Returns the length.
COMMRT_API int32_t commrt_job_identify(commrt_job *job, char *text, size_t size);
/// [any thread] 1 if reductions run in rank order, whatever the timing, so that their bits depend on the inputs alone
/// and are those of every other such backend (threads, sim, mpi); otherwise 0.
COMMRT_API int32_t commrt_job_is_rank_ordered(const commrt_job *job);
/// [any thread] Ranks of the job.
COMMRT_API int32_t commrt_job_ranks(const commrt_job *job);
/// [any thread] This process's rank, or -1 where every rank lives in this process.
COMMRT_API int32_t commrt_job_local_rank(const commrt_job *job);

/// [any thread] Makes the context of `rank`, once per rank.
COMMRT_API int32_t commrt_context_create(commrt_job *job, int32_t rank, commrt_context **context);
/// [own thread, blocks] Ends the rank: cancels what is in flight and releases everything that belongs to the context,
/// tokens, streams, events, groups and buffers included. Ranks that wait for this one, now or later, get
/// COMMRT_ERR_PEER. NULL is fine.
COMMRT_API int32_t commrt_context_destroy(commrt_context *context);
/// [any thread] The rank, or the number of ranks; -1 for NULL.
COMMRT_API int32_t commrt_rank(const commrt_context *context);
COMMRT_API int32_t commrt_ranks(const commrt_context *context);

/// [any thread] 1 if buffers are device memory: the caller's code must neither read nor write them, but by commrt_copy,
/// and commrt_wait does not block; otherwise 0.
COMMRT_API int32_t commrt_context_is_device(const commrt_context *context);

/// [any thread] The context that compiled code on the calling thread uses. commrt_current gives NULL before the first
/// commrt_make_current on that thread.
COMMRT_API void commrt_make_current(commrt_context *context);
COMMRT_API commrt_context *commrt_current(void);

//===- Program: the check before anything can hang -------------------------------------------===//

/// One collective of the program, in schedule order.
typedef struct commrt_site {
  int32_t kind;         ///< commrt_kind
  int32_t dtype;        ///< commrt_dtype, or -1 where there is none
  int64_t count;        ///< elements, or -1 where only known at run time
  const char *group;    ///< name of the group
  const char *location; ///< where in the source
  int64_t cost_ns;      ///< predicted duration; the sim backend's clock uses it
} commrt_site;

/// [own thread, all ranks] Presents this rank's schedule and compares it with every other rank's. Collective over the
/// job. On a difference all ranks get COMMRT_ERR_MISMATCH with the first site that differs, its kind, group, type, size
/// and location on both sides. `signature` may be 0; the sites are compared in any case. `sites` stays alive until
/// commrt_program_end.
COMMRT_API int32_t commrt_program_begin(commrt_context *context, uint64_t signature, const commrt_site *sites,
                                        int64_t num_sites);
/// [own thread, all ranks] The same with the sites as compilers store them: per site [kind, dtype, count, offset of the
/// group's name, offset of the location, cost_ns], the offsets into `strings`, whose texts end with a zero each.
/// Nothing is copied but pointers.
COMMRT_API int32_t commrt_program_begin_packed(commrt_context *context, uint64_t signature, const int64_t *sites,
                                               int64_t num_sites, const char *strings);
/// The kind of a commrt_message that is a wait.
#define COMMRT_AWAIT (-1)
/// One step of a rank that messages depend on: a message that it starts, a collective that it starts, or a wait.
typedef struct commrt_message {
  int32_t kind;         ///< commrt_kind, or COMMRT_AWAIT
  int32_t dtype;        ///< commrt_dtype
  int64_t count;        ///< elements, or -1 where only known at run time
  const char *group;    ///< name of a group that was made
  const char *location; ///< where in the source
  int64_t peer;         ///< of messages: member of the rank's subset
  int64_t tag;
  int64_t batch;   ///< grows where a wait or the start of a collective or of a list comes between two messages
  int64_t stream;  ///< compute lane that starts it or that waits
  int64_t awaited; ///< of waits: the place of the start in the list
} commrt_message;
/// [own thread] Announces, for the next commrt_program_begin, all messages that the program starts on this rank, in
/// order, each of which has to be certain to start; 0 says that there are none. Collectives and waits between them may
/// be listed, too: all collectives of a group or none. If all ranks announce, at most 16 MiB in all and 256 MiB times
/// ranks, they compare them then: a message without its other side or with another type or size there, and messages
/// that wait for each other, end the program on all ranks with COMMRT_ERR_MISMATCH and both locations. On nccl messages
/// from one member to another need one order on both sides, whatever their tags. The texts stay alive until then.
COMMRT_API int32_t commrt_program_messages(commrt_context *context, const commrt_message *messages,
                                           int64_t num_messages);
/// [own thread] The same as compilers store them: per step [kind, dtype, count, offset of the group's name, offset of
/// the location, peer, tag, batch, stream, awaited], the offsets into `strings`.
COMMRT_API int32_t commrt_program_messages_packed(commrt_context *context, const int64_t *messages,
                                                  int64_t num_messages, const char *strings);
/// [own thread, all ranks] Waits for all tokens of this rank, then for all ranks. Collective over the job.
COMMRT_API int32_t commrt_program_end(commrt_context *context);

//===- Groups and streams --------------------------------------------------------------------===//

/// [own thread, all ranks] Makes the group `name` from a partition: subset i is ranks[offsets[i] .. offsets[i+1]).
/// Empty subsets and ranks in no subset are fine; a start on a rank in no subset completes at once and touches nothing.
/// All ranks of the job make their groups in the same order. The second call with a name gives the first group. Owned
/// by the context.
COMMRT_API int32_t commrt_group_create(commrt_context *context, const char *name, int64_t num_subsets,
                                       const int64_t *offsets, const int64_t *ranks, commrt_group **group);
/// [own thread] The group of a name; NULL and an error for a name that was not made.
COMMRT_API int32_t commrt_group_find(commrt_context *context, const char *name, commrt_group **group);
/// [any thread] Members of the calling rank's subset (0 if it is in none), and its place among them (-1 if none).
COMMRT_API int32_t commrt_group_size(const commrt_group *group);
COMMRT_API int32_t commrt_group_rank(const commrt_group *group);

typedef enum commrt_stream_kind { COMMRT_STREAM_COMPUTE = 0, COMMRT_STREAM_COMM = 1 } commrt_stream_kind;

/// [own thread] The stream `lane` of a kind; the same arguments give the same stream. Compute lane 0 is the default,
/// which is also meant by NULL. Owned by the context.
COMMRT_API int32_t commrt_stream_get(commrt_context *context, int32_t kind, int32_t lane, commrt_stream **stream);
/// [own thread] The stream on which the collectives of `group` run (its sends and receives if `messages` is not 0), for
/// events. Owned by the group. COMMRT_ERR_UNSUPPORTED, which does not latch, on CPU backends and for a rank in no
/// subset.
COMMRT_API int32_t commrt_group_stream(commrt_group *group, int32_t messages, commrt_stream **stream);
/// [own thread] Later starts and computations belong to `stream`: they come after what was put there before, and an
/// event recorded there covers them.
COMMRT_API int32_t commrt_set_stream(commrt_context *context, commrt_stream *stream);

/// [own thread] An event that is complete when everything that was issued to `stream` so far is.
COMMRT_API int32_t commrt_event_record(commrt_context *context, commrt_stream *stream, commrt_event **event);
/// [own thread] The same, and the event keeps the time at which it was complete: on devices that of the stream, on CPU
/// backends that of this call.
COMMRT_API int32_t commrt_event_record_timed(commrt_context *context, commrt_stream *stream, commrt_event **event);
/// [own thread] The time from `begin` to `end`, ns: two timed events of one context that are complete. An event that is
/// not timed or not complete is COMMRT_ERR_INVALID, which does not latch.
COMMRT_API int32_t commrt_event_elapsed(commrt_event *begin, commrt_event *end, int64_t *ns);
/// [own thread, blocks] `stream` goes on when `event` is complete. On CPU backends the caller does the stream's work,
/// so it blocks; on devices it returns at once.
COMMRT_API int32_t commrt_event_await(commrt_context *context, commrt_stream *stream, commrt_event *event);
/// [own thread]
COMMRT_API int32_t commrt_event_test(commrt_event *event, int32_t *done);
/// [own thread]
COMMRT_API int32_t commrt_event_release(commrt_event *event);

//===- Starts --------------------------------------------------------------------------------===//
//
// Each returns at once. n = members of the group, r = the caller's place, [a][b] = dense row-major layout. `site` is
// the index in the program's sites, or -1. `token` receives a reference that commrt_token_release gives back; inside
// commrt_coalesce_begin/end it may be NULL and is not written. `outer` is the product of the dimensions before the one
// that is gathered or scattered (1 for the leading one).

/// [own thread, start] in [outer][count] -> out [outer][n][count]. In place: in = out + r * count, with outer = 1.
COMMRT_API int32_t commrt_all_gather_start(commrt_group *group, const void *in, void *out, int64_t outer, int64_t count,
                                           int32_t dtype, int64_t site, commrt_token **token);
/// [own thread, start] in [outer][n][count] -> out [outer][count]. In place: out = in + r * count, with outer = 1.
COMMRT_API int32_t commrt_reduce_scatter_start(commrt_group *group, const void *in, void *out, int64_t outer,
                                               int64_t count, int32_t dtype, int32_t reduction, double scale,
                                               int64_t site, commrt_token **token);
/// [own thread, start] in [count] -> out [count]. In place: in = out.
COMMRT_API int32_t commrt_all_reduce_start(commrt_group *group, const void *in, void *out, int64_t count, int32_t dtype,
                                           int32_t reduction, double scale, int64_t site, commrt_token **token);
/// [own thread, start] The sum of the members' inputs in one shot: every member reads all inputs itself, in one round.
/// For small sums in memory that the members reach. `in` and `out` must not overlap, as others read `in` while `out` is
/// written; `in` may be written again after the wait. All members call this or all call commrt_all_reduce_start. The
/// result has the same bits. The backends threads and mpi have such a path; nccl carries out an ordinary
/// all_reduce.
COMMRT_API int32_t commrt_all_reduce_one_shot_start(commrt_group *group, const void *in, void *out, int64_t count,
                                                    int32_t dtype, int64_t site, commrt_token **token);
/// [own thread, start] Block j goes to member j. A block has `count` elements; in is [split_outer][n][count /
/// split_outer], out is [concat_outer][n][count / concat_outer]: the sizes before the dimension that is split, or
/// concatenated. In place: in = out.
COMMRT_API int32_t commrt_all_to_all_start(commrt_group *group, const void *in, void *out, int64_t split_outer,
                                           int64_t concat_outer, int64_t count, int32_t dtype, int64_t site,
                                           commrt_token **token);
/// [own thread, start] Uneven: send_counts[j] rows of `inner` elements go to member j, recv_counts[j] come from it. in
/// is [outer][sum of send_counts][inner], out is [outer][sum of recv_counts][inner], both in member order. The counts
/// (n entries each) are copied. In place: in = out.
COMMRT_API int32_t commrt_all_to_all_v_start(commrt_group *group, const void *in, const int64_t *send_counts, void *out,
                                             const int64_t *recv_counts, int64_t outer, int64_t inner, int32_t dtype,
                                             int64_t site, commrt_token **token);
/// [own thread] Fails with COMMRT_ERR_INVALID unless the counts of an uneven all_to_all (n entries) are not negative
/// and add up to `rows`, which the buffer has. Compiled code calls it where only the run time knows. O(n).
COMMRT_API int32_t commrt_check_rows(commrt_group *group, const int64_t *counts, int64_t rows, int64_t site);
/// [own thread, start] in [count] at member `root` -> out [count] everywhere. `in` is only read at the root. In place:
/// in = out.
COMMRT_API int32_t commrt_broadcast_start(commrt_group *group, const void *in, void *out, int64_t count, int32_t dtype,
                                          int32_t root, int64_t site, commrt_token **token);
/// [own thread, start] in [count] -> out [count] at member `root`; elsewhere `out` is not touched.
COMMRT_API int32_t commrt_reduce_start(commrt_group *group, const void *in, void *out, int64_t count, int32_t dtype,
                                       int32_t reduction, double scale, int32_t root, int64_t site,
                                       commrt_token **token);
/// [own thread, start] in [outer][count] -> out [outer][n][count] at member `root`; elsewhere `out` is not touched.
COMMRT_API int32_t commrt_gather_start(commrt_group *group, const void *in, void *out, int64_t outer, int64_t count,
                                       int32_t dtype, int32_t root, int64_t site, commrt_token **token);
/// [own thread, start] in [outer][n][count] at member `root` -> out [outer][count] everywhere.
COMMRT_API int32_t commrt_scatter_start(commrt_group *group, const void *in, void *out, int64_t outer, int64_t count,
                                        int32_t dtype, int32_t root, int64_t site, commrt_token **token);
/// [own thread, start] pairs [num_pairs][2]: members (source, target); each is at most once a source and once a target.
/// A member that is no target gets zeros. The pairs are copied.
COMMRT_API int32_t commrt_permute_start(commrt_group *group, const void *in, void *out, int64_t count, int32_t dtype,
                                        const int64_t *pairs, int64_t num_pairs, int64_t site, commrt_token **token);
/// [own thread, start] To member, or from member, `peer`. Sends and receives between two members match by tag, and in
/// order within one tag. `tag` is not negative (mpi: below half of MPI_TAG_UB).
COMMRT_API int32_t commrt_send_start(commrt_group *group, const void *in, int64_t count, int32_t dtype, int32_t peer,
                                     int64_t tag, int64_t site, commrt_token **token);
COMMRT_API int32_t commrt_recv_start(commrt_group *group, void *out, int64_t count, int32_t dtype, int32_t peer,
                                     int64_t tag, int64_t site, commrt_token **token);
COMMRT_API int32_t commrt_barrier_start(commrt_group *group, int64_t site, commrt_token **token);

/// [own thread] Starts between begin and end, also on different groups, share one token. Not nested.
COMMRT_API int32_t commrt_coalesce_begin(commrt_context *context);
COMMRT_API int32_t commrt_coalesce_end(commrt_context *context, commrt_token **token);

//===- Waits ---------------------------------------------------------------------------------===//

/// [own thread, blocks] `stream` (NULL: default) goes on when the token is complete. On CPU backends this blocks the
/// caller; on devices it returns at once, and an error of the collective shows in a later call. May be repeated.
COMMRT_API int32_t commrt_wait(commrt_token *token, commrt_stream *stream);
/// [own thread, blocks] Blocks the caller, at most timeout_ns (< 0: the context's timeout). A timeout is an error of
/// the job and latches.
COMMRT_API int32_t commrt_wait_host(commrt_token *token, int64_t timeout_ns);
/// [own thread] *done = 1 if complete. Makes progress, never blocks.
COMMRT_API int32_t commrt_test(commrt_token *token, int32_t *done);
/// [own thread] Where output `index` of the token's starts goes, in the order of the starts.
COMMRT_API int32_t commrt_token_output(commrt_token *token, int64_t index, void **pointer);
/// [own thread] Gives the caller's reference back; what is in flight goes on. NULL is fine.
COMMRT_API int32_t commrt_token_release(commrt_token *token);
/// [own thread] Moves communication on. Cheap where nothing is needed (threads); call it between computations (mpi).
COMMRT_API int32_t commrt_progress(commrt_context *context);

//===- Buffers -------------------------------------------------------------------------------===//

typedef enum commrt_buffer_kind {
  COMMRT_BUFFER_PLAIN = 0,
  /// At the same offset in the symmetric memory of every rank. All ranks make and release their symmetric buffers in
  /// the same order and with the same sizes, which is checked; under mpi making one waits for the others. Where the
  /// memory of a released buffer is still in use by a collective in flight, the call that reuses it waits for that
  /// collective.
  COMMRT_BUFFER_SYMMETRIC = 1
} commrt_buffer_kind;

/// [own thread] 64-byte aligned; bytes = 0 gives a valid pointer that must not be read. Also serves after an error, so
/// that compiled code that is on its way out does not compute on a null pointer. On devices it is device memory, for
/// every stream of the context.
COMMRT_API int32_t commrt_alloc(commrt_context *context, int32_t kind, int64_t bytes, void **pointer);
/// [own thread] Releases the buffer when the last collective in flight that uses any part of it is complete; returns at
/// once.
COMMRT_API int32_t commrt_free(commrt_context *context, void *pointer);
/// [own thread] The same, and also not before the given tokens are complete.
COMMRT_API int32_t commrt_free_after(commrt_context *context, void *pointer, commrt_token *const *tokens,
                                     int64_t num_tokens);
typedef enum commrt_copy_direction {
  COMMRT_COPY_TO_DEVICE = 0,
  COMMRT_COPY_FROM_DEVICE = 1,
  COMMRT_COPY_ON_DEVICE = 2
} commrt_copy_direction;
/// [own thread, blocks] Copies in the order of `stream` (NULL: the stream of commrt_set_stream). TO_DEVICE: `from` may
/// be written again on return. FROM_DEVICE: `to` may be read on return; waits for what was put on the stream before.
/// ON_DEVICE returns at once. On CPU backends each is a copy by the caller. The two do not overlap.
COMMRT_API int32_t commrt_copy(commrt_context *context, void *to, const void *from, int64_t bytes, int32_t direction,
                               commrt_stream *stream);
/// [own thread, all ranks] A symmetric buffer for the collectives of `group` that has a name and stays until
/// commrt_program_end: compiled code makes its arenas of symmetric memory when it begins, and every call finds the same
/// memory at the same offset, so that a library may register it once. COMMRT_ERR_INVALID if the program has the name.
COMMRT_API int32_t commrt_arena_create(commrt_group *group, const char *name, int64_t bytes);
/// [own thread] A plain buffer that has a name, holds a copy of `data`, and stays until commrt_program_end: constants
/// of compiled code, which on devices have to be in device memory. commrt_arena_find finds it. COMMRT_ERR_INVALID if
/// the program has the name.
COMMRT_API int32_t commrt_constant_create(commrt_context *context, const char *name, const void *data, int64_t bytes);
/// [own thread] The buffer of that name. Also serves after an error, as commrt_alloc does.
COMMRT_API int32_t commrt_arena_find(commrt_context *context, const char *name, void **pointer);
/// [own thread] The group that an arena is for, by an address within it; NULL for other buffers.
COMMRT_API commrt_group *commrt_arena_group(commrt_context *context, const void *pointer);
/// [own thread] The offset of a byte of a symmetric buffer in the rank's symmetric memory: equal on all ranks.
COMMRT_API int32_t commrt_symmetric_offset(commrt_context *context, const void *pointer, int64_t *offset);
/// [any thread] Bytes of buffers not yet released, and the most there ever were.
COMMRT_API int64_t commrt_allocated_bytes(const commrt_context *context);
COMMRT_API int64_t commrt_peak_bytes(const commrt_context *context);

/// [any thread] The present moment, for commrt_release_since.
COMMRT_API int64_t commrt_mark(const commrt_context *context);
/// [own thread] Releases every buffer, token and event that the context made since `mark` and that was not released
/// before, but those in `kept`: buffers by an address within them, tokens (with the buffers of their outputs) and
/// events by their handle. NULLs and other addresses in `kept` are fine. This is how compiled code leaves a loop's
/// iteration or a function. Takes time for what is released and kept only.
COMMRT_API int32_t commrt_release_since(commrt_context *context, int64_t mark, const void *const *kept,
                                        int64_t num_kept);

//===- Computations --------------------------------------------------------------------------===//

enum {
  COMMRT_OPERAND_WRITTEN = 1, ///< the operand's storage is written
  COMMRT_OPERAND_OUTPUT = 2,  ///< and its old contents do not matter
  COMMRT_OPERAND_HOST = 4     ///< the address is one of the host on devices, too: a number that is only read
};

/// [own thread] Carries out computation `name` on dense operands: a reference kernel where the name and the shapes are
/// those of one (Runtime.md), otherwise an opaque one, whose outputs are a function of the name and of every bit
/// of its inputs. `meta` is [dtype, flags, rank, sizes...] per operand, then [count, extra...]. Makes progress before
/// and after. On devices its kernels are put on the stream of commrt_set_stream, and the call returns at once; where
/// there is no kernel, the operands are copied to the host and back in the order of that stream, and it blocks.
COMMRT_API int32_t commrt_compute(commrt_context *context, const char *name, int64_t num_operands,
                                  void *const *operands, const int64_t *meta, int64_t cost_ns);
/// [any thread] 1 if computations of this name have a kernel, for operands that fit it; 0 if they are opaque.
COMMRT_API int32_t commrt_has_kernel(const char *name);
/// [own thread] With `on`, a computation takes at least its cost_ns of real time, without making progress meanwhile. On
/// devices its stream does, by the device's clock, and the call returns at once.
COMMRT_API int32_t commrt_emulate_costs(commrt_context *context, int32_t on);

//===- Kernels of compiled programs ----------------------------------------------------------===//

/// The host build of a kernel: one call does the work of the whole grid. `arguments` point to the values of the launch;
/// `grid` and `block` have three entries each. Backends without a device call it, and so does an emulated CUDA runtime,
/// on a thread of its own and with addresses at which the host reaches the device's memory.
typedef void (*commrt_host_kernel)(void *const *arguments, const uint32_t *grid, const uint32_t *block);

/// One kernel of an image.
typedef struct commrt_image_kernel {
  const char *name;              ///< as in the code: `extern "C"`, or the mangled name
  const int64_t *argument_bytes; ///< the size of each argument's value
  int64_t num_arguments;
  commrt_host_kernel host; ///< NULL: none
} commrt_image_kernel;

/// Code for a device, and what is known of its kernels.
typedef struct commrt_image_info {
  uint32_t struct_size; ///< the caller's sizeof(commrt_image_info)
  const char *name;     ///< within the context
  const void *code;     ///< PTX text, machine code or a fat binary for CUDA; NULL: host builds alone
  int64_t code_bytes;
  /// Kernels that are not listed can be launched on devices only.
  const commrt_image_kernel *kernels;
  int64_t num_kernels;
} commrt_image_info;

/// Kernels that can be launched by name.
typedef struct commrt_image commrt_image;

/// [own thread] Loads an image into the context, which owns it. What `info` points to is copied, host kernels have to
/// stay. Loading the same code and kernels under the name again gives the image that is there; others under its name
/// are COMMRT_ERR_INVALID. COMMRT_ERR_UNSUPPORTED: a backend over devices that loads no images.
COMMRT_API int32_t commrt_image_load(commrt_context *context, const commrt_image_info *info, commrt_image **image);
/// [own thread] The image of a name; NULL and an error for a name that was not loaded.
COMMRT_API int32_t commrt_image_find(commrt_context *context, const char *name, commrt_image **image);
/// [own thread, blocks] Waits for the compute streams, then forgets the image: after COMMRT_OK none of its kernels
/// runs. After an error they may run until the job is destroyed. NULL is fine.
COMMRT_API int32_t commrt_image_unload(commrt_image *image);
/// [own thread] Launches a kernel with a grid of blocks of threads, in the order of `stream` (NULL: the stream of
/// commrt_set_stream), which is a compute stream. `arguments` point to the values, which are copied. A grid without
/// blocks launches nothing. Returns at once; backends without devices carry the host build out.
COMMRT_API int32_t commrt_kernel_launch(commrt_image *image, const char *kernel, int64_t grid_x, int64_t grid_y,
                                        int64_t grid_z, int64_t block_x, int64_t block_y, int64_t block_z,
                                        int64_t shared_bytes, void *const *arguments, commrt_stream *stream);

//===- Graphs --------------------------------------------------------------------------------===//

/// What a rank started and computed between two calls, which a device repeats as one launch.
typedef struct commrt_graph commrt_graph;

/// [own thread, all ranks] From here on starts, waits of streams, events, kernels and copies on the device are
/// noted and not carried out. Waits for everything in flight first. Buffers that are made meanwhile belong to the
/// graph: they keep their address in all launches, and stay at least until it is destroyed. COMMRT_ERR_UNSUPPORTED,
/// which latches, on backends without graphs and where several ranks with a device each live in one process; and until
/// commrt_graph_end for what needs the host: waits that block, tests, copies to and from the host, computations without
/// a kernel on the device, new groups, arenas and symmetric buffers, releases of buffers that were made before.
COMMRT_API int32_t commrt_graph_begin(commrt_context *context);
/// [own thread, all ranks] Ends this; also after an error, then *graph is NULL. Owned by the context. Tokens that were
/// made meanwhile are complete, and say nothing about the launches.
COMMRT_API int32_t commrt_graph_end(commrt_context *context, commrt_graph **graph);
/// [own thread, all ranks] Carries the graph out, in the order of the default stream, after what is on the other
/// compute streams and before what comes there next. Returns at once; in a job that is traced it first waits for the
/// launch before, whose times it reads. A launch that takes longer than the timeout is an error of the job.
COMMRT_API int32_t commrt_graph_launch(commrt_graph *graph);
/// [own thread, blocks] Waits for its launches. NULL is fine.
COMMRT_API int32_t commrt_graph_destroy(commrt_graph *graph);

//===- Errors and reports --------------------------------------------------------------------===//

/// [any thread] The latched status, and its message (cut to size, always terminated; `message` may be NULL).
COMMRT_API int32_t commrt_last_error(const commrt_context *context, char *message, size_t size);
/// [any thread] Ends the job on all ranks with this status and message.
COMMRT_API int32_t commrt_abort(commrt_context *context, int32_t status, const char *message);
typedef void (*commrt_error_handler)(void *user, int32_t rank, int32_t status, const char *message);
/// [any thread] Called once, on the thread of the call that first returns the error.
COMMRT_API int32_t commrt_set_error_handler(commrt_context *context, commrt_error_handler handler, void *user);
/// [any thread] Writes what is in flight and who waits for what to a text file.
COMMRT_API int32_t commrt_dump(commrt_context *context, const char *path);

//===- Time ----------------------------------------------------------------------------------===//

/// [own thread] Nanoseconds since the job began: the monotonic clock; in sim this rank's virtual clock.
COMMRT_API int64_t commrt_clock_ns(const commrt_context *context);
/// [own thread] sim: the compute lane works for `ns`. Elsewhere nothing.
COMMRT_API int32_t commrt_advance(commrt_context *context, int64_t ns);
/// [own thread] A span of computation for the trace. `name` is copied.
COMMRT_API int32_t commrt_trace_compute(commrt_context *context, const char *name, int64_t begin_ns, int64_t end_ns);

/// [own thread] A mark in the trace, in the order of the default stream, behind what is on the other computations'
/// streams by now. Returns at once.
COMMRT_API int32_t commrt_trace_mark(commrt_context *context);

/// On devices the times are those of the device, on one clock for all ranks, which is commrt_clock_ns within the delay
/// of a launch. They are known after commrt_program_end; until then a record has the time of its call.
typedef struct commrt_trace_record {
  int32_t kind;     ///< commrt_kind; 100: a wait; 101: a computation; 102: a mark
  int64_t site;     ///< -1 if none
  int64_t begin_ns; ///< a collective: when it was started; on devices, when its turn on its stream came
  int64_t end_ns;   ///< a collective: when it was complete
  const char *name; ///< group or computation; lives as long as the context
} commrt_trace_record;
/// [own thread] Number of records, and record i. Only with options.trace, and while nothing is in flight.
COMMRT_API int64_t commrt_trace_size(const commrt_context *context);
COMMRT_API int32_t commrt_trace_get(const commrt_context *context, int64_t index, commrt_trace_record *record);
/// [own thread] When the last member of its group began collective `index` of the trace, on the clock of the records:
/// from then on it moved data, before that it waited. COMMRT_ERR_UNSUPPORTED, with the rank's own begin, if that is not
/// known: on CPU backends, for messages and other records, and before commrt_program_end.
COMMRT_API int32_t commrt_trace_last_begin(const commrt_context *context, int64_t index, int64_t *ns);
/// [own thread] By how much the clock of the records may differ from that of rank 0, on devices.
COMMRT_API int64_t commrt_trace_clock_error_ns(const commrt_context *context);
/// [own thread] Writes this rank's records as Chrome/Perfetto JSON.
COMMRT_API int32_t commrt_trace_write(commrt_context *context, const char *path);

/// [any thread] The reduction that all backends use: out[i] = ins[0][i] op ins[1][i] ... in this order. `out` may be
/// one of the inputs.
COMMRT_API int32_t commrt_reduce_local(int32_t dtype, int32_t reduction, double scale, int64_t num_inputs,
                                       const void *const *ins, void *out, int64_t count);

#ifdef __cplusplus
}
#endif

#endif // COMMSCHED_RUNTIME_RUNTIME_H
