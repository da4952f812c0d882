//===- NcclComm.h - Communicators and calls of the emulated NCCL ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a call is carried out. Ranks meet in mailboxes of pinned memory, one for each ordered pair of members, and in
// stream operations that wait for and write the words of a mailbox. A rank publishes its pointers for those that read
// from it, waits for the mail of those that it reads from, computes into temporary memory, says that it has taken the
// mail, waits until its own mail is taken, and only then writes its result. So a stream goes on exactly when NCCL would
// let it: its result is there, and nobody reads its input any more. All values are constants, so a captured call can be
// replayed.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_NCCLCOMM_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_NCCLCOMM_H

#include "Hooks.h"
#include "NcclApi.h"
#include "Report.h"
#include "Sync.h"
#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace emulator {

enum class Kind { AllGather, ReduceScatter, AllReduce, Broadcast, Reduce, AllToAll, Gather, Scatter, Send, Recv };
const char *nameOf(Kind kind);
size_t sizeOf(ncclDataType_t type);
/// A value of that type.
double scalarOf(ncclDataType_t type, const void *value);

/// A reduction: one of NCCL's, or a sum of inputs that are multiplied first.
struct Reduction {
  ncclRedOp_t op = ncclSum; ///< ncclNumOps: a sum with a scalar
  double scale = 1;
  ncclDataType_t type = ncclInt8; ///< of the scalar
};

/// What one rank called.
struct Call {
  Kind kind;
  const void *in = nullptr;
  void *out = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclInt8;
  Reduction reduction;
  int peer = 0; ///< the root, or the other side of a message
};

/// What one member leaves for another. In pinned memory.
struct Mail {
  uint32_t ready = 0; ///< 1: the call below is there
  uint32_t taken = 0; ///< 1: the receiver has used it
  Call call{};
};

/// Collectives and messages have mailboxes of their own.
enum Channel { kCollective, kMessage, kChannels };

/// A collective of one communicator, as a node in the order that its job's ranks call collectives in.
struct Collective {
  Call call;
  std::string communicator;
  int members = 0, callers = 0;
  int64_t level = 0;
  std::vector<Collective *> after; ///< what some rank calls next
  int before = 0;                  ///< how many live collectives have this one in `after`
  std::list<Collective>::iterator place;
};

/// All communicators that come from one ncclGetUniqueId.
struct Job {
  std::list<Collective> live;
  std::map<int, std::vector<Collective *>> last; ///< by rank: what it called last, of those that live
  std::map<int, unsigned long long> calls;       ///< by rank: how many calls it has made
};

/// A fault that NCCL_EMU_FAULT asks for.
struct Fault {
  std::string name;
  int rank = 0;
  unsigned long long call = 0; ///< 0: at once
};

/// What processes have in common of a communicator; found by its name, zero at first. The mailboxes follow.
struct alignas(Mail) Common {
  std::atomic<int> joined, isAborted, finalized;
  std::atomic<int> isTaken[64]; ///< by rank
  Mail *mail() { return reinterpret_cast<Mail *>(this + 1); }
};
/// What processes have in common of a split.
struct CommonSplit {
  std::atomic<int> posted;
  int colorAndKey[64][2]; ///< by member
};

/// A communicator, of all its members together. If ranks are processes, each has one of its own over the common memory,
/// with itself as the only member, and the calls are compared by those that get mail from each other alone.
struct Shared {
  std::string name;
  std::string id;           ///< the first communicator's, for names of common memory
  Common *common = nullptr; ///< null: ranks are threads
  std::shared_ptr<Job> job;
  int size = 0;
  std::vector<ncclComm *> members; ///< by rank; null until it has joined
  std::vector<int> devices;
  int joined = 0;
  bool isReady = false; ///< all have joined, and the mailboxes are there
  bool isAborted = false;
  int finalized = 0;    ///< members that are threads and have finalized
  Mail *mail = nullptr; ///< [channel][from][to], and one more for each member that nobody writes
  int users = 0;
  std::vector<Waiter *> waiters;
  /// Windows in order: what each member registered; a null base: nothing (yet), or no longer.
  struct Window {
    std::vector<const char *> bases;
    size_t bytes = 0;
  };
  std::vector<Window> windows;
  /// What the members called, in order; those that all have called are removed.
  struct Entry {
    Call call;
    int rank = 0; ///< the first that called it
    int callers = 0;
    Collective *node = nullptr;
  };
  std::deque<Entry> log;
  uint64_t logged = 0; ///< number of the log's first entry
  /// Splits in order: what each member gave.
  struct Split {
    std::vector<std::pair<int, int>> colorAndKey;
    std::vector<std::shared_ptr<Shared>> results; ///< by member; null: no colour
    std::vector<int> ranks;                       ///< by member
    int posted = 0;
  };
  std::map<uint64_t, Split> splits;

  bool isEnded() const { return isAborted || (common && common->isAborted); }
  Mail &mailOf(Channel channel, int from, int to) {
    return mail[(size_t(channel) * size_t(size) + size_t(from)) * size_t(size) + size_t(to)];
  }
  Mail &noMail(int member) { return mail[size_t(kChannels) * size_t(size) * size_t(size) + size_t(member)]; }
};

/// One call on its way.
struct Task {
  ncclComm *comm = nullptr;
  std::shared_ptr<Shared> shared;
  int rank = 0;
  Call call;
  /// Set once no graph launches it any more; null if it is not captured. It stays until somebody asks for the
  /// communicator's state then.
  std::shared_ptr<std::atomic<bool>> isForgotten;
  bool isLost = false;         ///< a fault: waits for ever
  std::vector<int> from, to;   ///< members that this rank reads from, and that read from it
  std::vector<char> temporary; ///< the result between the two kernels
};

/// Computes what the task's rank gets, into task.temporary, from the calls of all members that it reads from (by place
/// in `from`). Runs within an operation.
void compute(Task &task, const std::vector<const Call *> &calls);
/// Bytes of the result at call.out for this rank; 0 if it has none.
size_t resultBytes(const Task &task);
/// "ncclAllReduce(count 4, type 7, op 0)".
std::string textOf(const Call &call);
/// Reports unless the two calls belong together.
void checkSame(const Shared &shared, const Call &first, int firstRank, const Call &second, int secondRank);

} // namespace emulator

/// One member's handle. Guarded by stateLock(), which no CUDA function is called under.
struct ncclComm {
  std::shared_ptr<emulator::Shared> shared;
  int rank = 0, device = 0;
  int jobRank = 0; ///< in the first communicator
  bool isBlocking = true, isFinalized = false, isLost = false;
  bool isLate = false; ///< a fault: calls stay in progress
  bool isRevoked = false;
  std::atomic<bool> isRevoking{false}; ///< a thread lets its operations go
  std::array<int, 3> ctas{};           ///< least, most, policy
  std::atomic<bool> isFailed{false};   ///< also read by kernels
  int polls = 0;                       ///< how often it will still answer ncclInProgress
  bool isJoining = false;              ///< until all members are there
  bool isSplit = false;                ///< joins by its parent's split
  std::shared_ptr<emulator::Shared> parent;
  int parentRank = 0;
  uint64_t splitNumber = 0, splits = 0, calls = 0, windows = 0;
  std::string lastError;
  std::vector<std::pair<emulator::Call, cudaStream_t>> deferred;                ///< issued by the last poll
  std::map<std::pair<int, bool>, std::pair<cudaStream_t, cudaEvent_t>> helpers; ///< by peer and direction
  std::vector<cudaEvent_t> forks;
  cudaEvent_t order = nullptr, capturedOrder = nullptr;
  cudaStream_t lastStream = nullptr, lastCaptured = nullptr;
  bool hasLaunched = false, hasCaptured = false;
  std::list<std::unique_ptr<emulator::Task>> tasks;
  std::map<int, emulator::Reduction> reductions;
  int madeReductions = 0;
  int inCall = 0; ///< the thread that is in a function of this communicator; 0: none
};

namespace emulator {
/// Live handles. With the lock.
bool isLive(ncclComm *comm);
void forget(ncclComm *comm);
/// Removes captured calls that no graph launches any more.
void dropForgotten(ncclComm *comm);
/// Reports unless both calls use the same windows at the same offsets, or both none. With the lock.
void checkWindows(const Shared &shared, const Call &first, int firstRank, const Call &second, int secondRank);
/// Reports if the member has windows. With the lock.
void checkNoWindows(const ncclComm *comm);
/// Ends the windows of a communicator that is aborted.
void forgetWindows(const ncclComm *comm);
/// Issues calls of one communicator that were grouped. Without the lock.
void launch(ncclComm *comm, const std::vector<std::pair<Call, cudaStream_t>> &calls);
/// Completes a join whose members have all come; true if the communicator can be used. With the lock.
bool hasJoined(ncclComm *comm);
/// Enters a call into the communicator's log, and compares it with what the others called there. The collective that
/// it is, or null for a message. With the lock.
Collective *logCall(ncclComm *comm, const Call &call);
/// A new node of the job's order. With the lock.
Collective *addCollective(Shared &shared, const Call &call);
/// The rank calls these collectives next, all at once; reports if that is another order than other ranks'. With the
/// lock.
void noteOrder(const std::shared_ptr<Job> &job, int rank, const std::vector<Collective *> &nodes);
/// The fault that is asked for at this call of this rank, or null.
const Fault *faultOf(const char *name, int rank, unsigned long long call);
/// Waits, or leaves it to the group's end or to polls.
ncclResult_t startJoining(ncclComm *comm);
ncclResult_t waitUntilJoined(ncclComm *comm);
/// What every function of a communicator begins with: it is live, idle, and no other thread is in it.
class Using {
public:
  Using(const char *name, ncclComm *used);
  ~Using();
  Using(const Using &) = delete;
  Using &operator=(const Using &) = delete;

private:
  InFunction function;
  ncclComm *comm;
};

/// A pseudo-random number of polls, from NCCL_EMU_SEED and NCCL_EMU_POLLS. With the lock.
int randomPolls();
/// Reports if the function appeared in a later version than the one that is emulated.
void needsVersion(int version, const char *function);
/// Reports a failed CUDA function.
void check(cudaError_t error, const char *what);
} // namespace emulator

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_NCCLCOMM_H
