//===- CollectiveTimes.cpp - Times of collectives on one backend or over MPI alone ------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A server of measurements for benchmarks/runtime.py, which has one for each of the systems that it compares and asks
// them in turn. Each line of the standard input asks for one sample:
//
//     KIND BYTES CALLS IN-FLIGHT
//
// All ranks meet, and then start IN-FLIGHT collectives and wait for them until CALLS have been made. The answer is a
// line with two numbers: the microseconds per call on the slowest rank, and those of CPU time that the calling thread
// of rank 0 used. While a server waits for a line it sleeps.
//
//     CollectiveTimes threads RANKS
//     mpirun -np RANKS CollectiveTimes mpi RANKS      the mpi backend
//     mpirun -np RANKS CollectiveTimes bare RANKS     MPI's own collectives
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Runtime.h"
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>
#ifdef COMMSCHED_HAS_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#endif

namespace {
enum Kind { allReduce, allGather, reduceScatter, allToAll };
const char *const kindNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};

/// One line of the input. `bytes` is the size of the larger side of a rank: of the result of an all_gather, of the
/// input of a reduce_scatter, and of either side of the others.
struct Request {
  int64_t kind = -1; ///< a Kind; -1: no further request
  int64_t bytes = 0, calls = 0, inFlight = 1;
};

[[noreturn]] void fail(const std::string &text) {
  std::fprintf(stderr, "CollectiveTimes: %s\n", text.c_str());
  std::exit(1);
}

/// Reads the next line. Its kind is -1 at the end of the input.
Request readRequest() {
  char name[32] = "";
  Request request;
  long long bytes = 0, calls = 0, inFlight = 0;
  if (std::scanf("%31s %lld %lld %lld", name, &bytes, &calls, &inFlight) != 4)
    return request;
  for (int kind = allReduce; kind <= allToAll; ++kind)
    if (!std::strcmp(name, kindNames[kind]))
      request = {kind, bytes, calls, inFlight};
  if (request.kind < 0)
    fail(std::string("unknown collective ") + name);
  return request;
}

double microseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return double(now.tv_sec) * 1e6 + double(now.tv_nsec) * 1e-3;
}

/// One rank of one of the systems.
class Rank {
public:
  Rank(int ranks, int rank) : ranks(ranks), rank(rank) {}
  virtual ~Rank() = default;
  /// The request that rank 0 has read, on all ranks.
  virtual Request next() = 0;
  virtual void meet() = 0;
  /// The largest of the values of all ranks.
  virtual double largest(double value) = 0;
  /// `inFlight` collectives of `count` elements per block of a rank, and their end. Each has its own part of the
  /// buffers.
  virtual void call(const Request &request, int64_t count, const float *in, float *out) = 0;

  void serve() {
    std::vector<float> in, out;
    for (Request request = next(); request.kind >= 0; request = next()) {
      int64_t elements = request.bytes / int64_t(sizeof(float));
      int64_t count = request.kind == allReduce ? elements : elements / ranks;
      size_t room = elements * request.inFlight;
      in.resize(std::max(in.size(), room), 1.f);
      out.resize(std::max(out.size(), room), 1.f);
      int64_t rounds = std::max<int64_t>(1, request.calls / request.inFlight);
      for (int64_t i = 0; i < 1 + rounds / 10; ++i)
        call(request, count, in.data(), out.data());
      meet();
      double begin = microseconds(CLOCK_MONOTONIC), cpu = microseconds(CLOCK_THREAD_CPUTIME_ID);
      for (int64_t i = 0; i < rounds; ++i)
        call(request, count, in.data(), out.data());
      double own = microseconds(CLOCK_MONOTONIC) - begin;
      cpu = microseconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
      double calls = double(rounds * request.inFlight), slowest = largest(own);
      if (rank == 0) {
        std::printf("%.4f %.4f\n", slowest / calls, cpu / calls);
        std::fflush(stdout);
      }
    }
  }

protected:
  const int ranks, rank;
};

/// Hands requests from the first rank to the others, which sleep meanwhile.
class Desk {
public:
  virtual ~Desk() = default;
  virtual Request take(int rank) = 0;
};

/// Among threads.
class ThreadsDesk final : public Desk {
public:
  explicit ThreadsDesk(int ranks) : taken(ranks) {}
  Request take(int rank) override {
    if (rank == 0) {
      Request request = readRequest();
      std::lock_guard<std::mutex> lock(mutex);
      requests.push_back(request);
      changed.notify_all();
      return request;
    }
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return taken[rank] < requests.size(); });
    return requests[taken[rank]++];
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Request> requests;
  std::vector<size_t> taken;
};

#ifdef COMMSCHED_HAS_MPI
/// Among processes of mpirun.
class MpiDesk final : public Desk {
public:
  explicit MpiDesk(int ranks) : ranks(ranks) {}
  Request take(int rank) override {
    Request request;
    if (rank == 0) {
      request = readRequest();
      for (int other = 1; other < ranks; ++other)
        MPI_Send(&request, sizeof(request), MPI_BYTE, other, 0, MPI_COMM_WORLD);
      return request;
    }
    for (int arrived = 0; !arrived;) {
      MPI_Iprobe(0, 0, MPI_COMM_WORLD, &arrived, MPI_STATUS_IGNORE);
      if (!arrived)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    MPI_Recv(&request, sizeof(request), MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return request;
  }

private:
  int ranks;
};

class BareRank final : public Rank {
public:
  BareRank(int ranks, int rank) : Rank(ranks, rank), desk(ranks) {}
  Request next() override { return desk.take(rank); }
  void meet() override { MPI_Barrier(MPI_COMM_WORLD); }
  double largest(double value) override {
    double result = 0;
    MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return result;
  }
  void call(const Request &request, int64_t elements, const float *in, float *out) override {
    int count = static_cast<int>(elements);
    if (request.inFlight == 1)
      return callOne(request.kind, count, in, out);
    if (request.kind != allReduce)
      fail("only all_reduces are measured in flight");
    pending.resize(request.inFlight);
    for (int64_t i = 0; i < request.inFlight; ++i)
      MPI_Iallreduce(in + i * count, out + i * count, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &pending[i]);
    MPI_Waitall(static_cast<int>(request.inFlight), pending.data(), MPI_STATUSES_IGNORE);
  }

private:
  void callOne(int64_t kind, int count, const float *in, float *out) {
    if (kind == allReduce)
      MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (kind == allGather)
      MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, MPI_COMM_WORLD);
    if (kind == reduceScatter)
      MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (kind == allToAll)
      MPI_Alltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, MPI_COMM_WORLD);
  }
  MpiDesk desk;
  std::vector<MPI_Request> pending;
};
#endif

class RuntimeRank final : public Rank {
public:
  RuntimeRank(Desk &desk, commrt_context *context, int ranks, int rank)
      : Rank(ranks, rank), desk(desk), context(context) {
    std::vector<int64_t> offsets = {0, ranks}, members(ranks);
    std::iota(members.begin(), members.end(), 0);
    check(commrt_group_create(context, "world", 1, offsets.data(), members.data(), &group));
  }
  Request next() override { return desk.take(rank); }
  void meet() override {
    commrt_token *token = nullptr;
    check(commrt_barrier_start(group, -1, &token));
    finish(token);
  }
  double largest(double value) override {
    double result = 0;
    commrt_token *token = nullptr;
    check(commrt_all_reduce_start(group, &value, &result, 1, COMMRT_F64, COMMRT_MAX, 1.0, -1, &token));
    finish(token);
    return result;
  }
  void call(const Request &request, int64_t count, const float *in, float *out) override {
    tokens.resize(request.inFlight);
    int64_t step = request.bytes / int64_t(sizeof(float));
    for (int64_t i = 0; i < request.inFlight; ++i)
      check(start(request.kind, count, in + i * step, out + i * step, &tokens[i]));
    for (commrt_token *token : tokens)
      finish(token);
  }

private:
  int32_t start(int64_t kind, int64_t count, const float *in, float *out, commrt_token **token) {
    switch (kind) {
    case allReduce:
      return commrt_all_reduce_start(group, in, out, count, COMMRT_F32, COMMRT_SUM, 1.0, -1, token);
    case allGather:
      return commrt_all_gather_start(group, in, out, 1, count, COMMRT_F32, -1, token);
    case reduceScatter:
      return commrt_reduce_scatter_start(group, in, out, 1, count, COMMRT_F32, COMMRT_SUM, 1.0, -1, token);
    default:
      return commrt_all_to_all_start(group, in, out, 1, 1, count, COMMRT_F32, -1, token);
    }
  }
  void finish(commrt_token *token) {
    check(commrt_wait(token, nullptr));
    commrt_token_release(token);
  }
  void check(int32_t status) {
    char text[512] = "";
    if (status == COMMRT_OK)
      return;
    commrt_last_error(context, text, sizeof(text));
    fail(text);
  }
  Desk &desk;
  commrt_context *context;
  commrt_group *group = nullptr;
  std::vector<commrt_token *> tokens;
};

/// Serves as one rank of the job.
void serveRank(Desk &desk, commrt_job *job, int ranks, int rank) {
  commrt_context *context = nullptr;
  if (commrt_context_create(job, rank, &context) != COMMRT_OK)
    fail("cannot make a context");
  RuntimeRank(desk, context, ranks, rank).serve();
  commrt_program_end(context);
  commrt_context_destroy(context);
}

void serveRuntime(const char *backend, int ranks) {
  commrt_options options;
  commrt_options_init(&options);
  options.backend = backend;
  options.ranks = ranks;
  commrt_job *job = nullptr;
  char text[512] = "";
  if (commrt_job_create(&options, &job, text, sizeof(text)) != COMMRT_OK)
    fail(text);
  if (!std::strcmp(backend, "threads")) {
    ThreadsDesk desk(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] { serveRank(desk, job, ranks, rank); });
    for (std::thread &thread : threads)
      thread.join();
  } else {
#ifdef COMMSCHED_HAS_MPI
    MpiDesk desk(ranks);
    serveRank(desk, job, ranks, commrt_job_local_rank(job));
#endif
  }
  commrt_job_destroy(job);
}
} // namespace

int main(int argc, char **argv) {
  if (argc != 3)
    fail("expected a system (threads, mpi or bare) and the number of ranks");
  std::string system = argv[1];
  int ranks = std::atoi(argv[2]);
#ifdef COMMSCHED_HAS_MPI
  if (system == "bare") {
    int rank = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    BareRank(ranks, rank).serve();
    MPI_Finalize();
    return 0;
  }
#else
  if (system != "threads")
    fail("built without MPI");
#endif
  serveRuntime(argv[1], ranks);
  return 0;
}
