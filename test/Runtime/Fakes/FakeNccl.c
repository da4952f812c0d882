/*===- FakeNccl.c - A library with NCCL's symbols ------------------------------------------------===
 *
 * Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for licence information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Stands in for libnccl.so.2 where there is none. It moves bytes of one rank in host memory, and keeps what the last
 * call was given. FAKE_VERSION sets the version; FAKE_INCOMPLETE leaves two functions out; with FAKE_NOTHING
 * communicators are made with any configuration, and nothing is moved.
 *
 *===--------------------------------------------------------------------------------------------===*/

#include <stddef.h>
#include <string.h>

#ifndef FAKE_VERSION
#define FAKE_VERSION 22809
#endif

typedef struct {
  char internal[128];
} Id;
struct Comm {
  int ranks, rank;
  char first, last; /* of the id */
};
static struct Comm onlyComm;
long fakeLast[4]; /* count, type, op or root, stream */

static void keep(size_t count, int type, int third, void *stream) {
  fakeLast[0] = (long)count;
  fakeLast[1] = type;
  fakeLast[2] = third;
  fakeLast[3] = (long)stream;
}

/* Calls by the thread that asks. */
static _Thread_local long fakeCalls;
long fakeCallsOfThread(void) { return fakeCalls; }

int ncclGetVersion(int *version) {
  ++fakeCalls;
  *version = FAKE_VERSION;
  return 0;
}
const char *ncclGetErrorString(int result) { return result ? "invalid argument" : "no error"; }
const char *ncclGetLastError(void *comm) { return ""; }
int ncclGetUniqueId(Id *id) {
  ++fakeCalls;
  memset(id, 7, sizeof(*id));
  return 0;
}
int ncclCommInitRankConfig(struct Comm **comm, int ranks, Id id, int rank, void *config) {
  ++fakeCalls;
  onlyComm.ranks = ranks;
  onlyComm.rank = rank;
  onlyComm.first = id.internal[0];
  onlyComm.last = id.internal[127];
  *comm = &onlyComm;
#ifdef FAKE_NOTHING
  return 0;
#else
  return config ? 4 : 0;
#endif
}
int ncclCommFinalize(struct Comm *comm) {
  ++fakeCalls;
  return 0;
}
int ncclCommDestroy(struct Comm *comm) {
  ++fakeCalls;
  return 0;
}
int ncclCommAbort(struct Comm *comm) {
  ++fakeCalls;
  return 0;
}
int ncclCommGetAsyncError(struct Comm *comm, int *result) {
  ++fakeCalls;
  *result = comm->first == 7 && comm->last == 7 ? 0 : 4;
  return 0;
}
int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op, struct Comm *comm, void *stream) {
  ++fakeCalls;
  keep(count, type, op, stream);
  return 0;
}
int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, struct Comm *comm, void *stream) {
  ++fakeCalls;
  keep(count, type, op, stream);
#ifndef FAKE_NOTHING
  memcpy(out, in, count * 4);
#endif
  return 0;
}
int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, struct Comm *comm, void *stream) {
  ++fakeCalls;
  keep(count, type, root, stream);
  return 0;
}
int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root, struct Comm *comm, void *stream) {
  ++fakeCalls;
  keep(count, type, op * 100 + root, stream);
  return 0;
}
int ncclSend(const void *in, size_t count, int type, int peer, struct Comm *comm, void *stream) {
  ++fakeCalls;
  keep(count, type, peer, stream);
  return 0;
}
int ncclRecv(void *out, size_t count, int type, int peer, struct Comm *comm, void *stream) {
  ++fakeCalls;
  keep(count, type, peer, stream);
  return 0;
}
int ncclGroupStart(void) {
  ++fakeCalls;
  return 0;
}
int ncclGroupEnd(void) {
  ++fakeCalls;
  return 0;
}
int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, struct Comm *comm) {
  ++fakeCalls;
  keep(0, type, residence, 0);
  *op = 5;
  return 0;
}
int ncclRedOpDestroy(int op, struct Comm *comm) {
  ++fakeCalls;
  return 0;
}
#ifndef FAKE_INCOMPLETE
int ncclCommSplit(struct Comm *comm, int color, int key, struct Comm **result, void *config) {
  ++fakeCalls;
#ifdef FAKE_NOTHING
  *result = comm;
#endif
  return 0;
}
int ncclAllGather(const void *in, void *out, size_t count, int type, struct Comm *comm, void *stream) {
  ++fakeCalls;
  keep(count, type, -1, stream);
  return 0;
}
#endif
