//===- SeamTest.cpp - Backends that come from elsewhere ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Backends by registration, fallback from one to the next, and what the nccl backend says of libraries that are
// missing, old, incomplete or complete. The libraries are fakes with the same symbols.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Backend.h"
#include "Nccl/Libraries/NcclSymbols.h"
#include "RuntimeTestSupport.h"
#include <arpa/inet.h>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace commsched::test;
using namespace commsched::runtime;

namespace {
/// The libraries that the loader is to find; empty: a file that is not there.
struct FakeLibraries {
  FakeLibraries(const std::string &nccl, const std::string &cudart) {
    setenv("COMMRT_NCCL_LIBRARY", pathOf(nccl).c_str(), 1);
    setenv("COMMRT_CUDART_LIBRARY", pathOf(cudart).c_str(), 1);
  }
  ~FakeLibraries() {
    unsetenv("COMMRT_NCCL_LIBRARY");
    unsetenv("COMMRT_CUDART_LIBRARY");
  }
  static std::string pathOf(const std::string &name) {
    return std::string(COMMSCHED_FAKES "/lib") + (name.empty() ? "nothing" : name) + ".so";
  }
};

std::string openNccl(int32_t expected, int32_t ranks = 1) {
  commrt_options options;
  commrt_options_init(&options);
  options.backend = "nccl";
  options.ranks = ranks;
  commrt_job *job = nullptr;
  char message[1024];
  EXPECT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), expected);
  EXPECT_EQ(job, nullptr);
  EXPECT_EQ(std::string(message).find('\n'), std::string::npos);
  return message;
}

void contains(const std::string &text, const std::string &part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

TEST(Nccl, NoLibrary) {
  FakeLibraries fakes("", "FakeCudart");
  std::string text = openNccl(COMMRT_ERR_BACKEND);
  contains(text, "nccl: cannot load NCCL: ");
  contains(text, "libnothing.so: cannot open shared object file");
  contains(text, "COMMRT_NCCL_LIBRARY");
}
TEST(Nccl, NoCudaRuntime) {
  FakeLibraries fakes("FakeNccl", "");
  contains(openNccl(COMMRT_ERR_BACKEND), "cannot load the CUDA runtime: ");
}
TEST(Nccl, MissingFunctionsAreAllNamed) {
  FakeLibraries fakes("FakeNcclIncomplete", "FakeCudart");
  contains(openNccl(COMMRT_ERR_BACKEND), "libFakeNcclIncomplete.so) lacks ncclCommSplit, ncclAllGather");
}
TEST(Nccl, AnotherLibraryAltogether) {
  FakeLibraries fakes("FakeCudart", "FakeCudart");
  contains(openNccl(COMMRT_ERR_BACKEND), "lacks ncclGetVersion, ");
}
TEST(Nccl, OldVersion) {
  FakeLibraries fakes("FakeNcclOld", "FakeCudart");
  contains(openNccl(COMMRT_ERR_BACKEND), "NCCL is version 2.8.4; at least 2.18.0 is needed");
}
TEST(Nccl, NoDriver) {
  FakeLibraries fakes("FakeNccl", "FakeCudartNoDriver");
  contains(openNccl(COMMRT_ERR_BACKEND), "no GPU can be used: CUDA driver version is insufficient");
}
TEST(Nccl, OldCudaRuntime) {
  FakeLibraries fakes("FakeNccl", "FakeCudartOld");
  contains(openNccl(COMMRT_ERR_BACKEND), "the CUDA runtime is version 11.8; at least 12.0 is needed");
}
TEST(Nccl, NoDevice) {
  FakeLibraries fakes("FakeNccl", "FakeCudartNoDevice");
  contains(openNccl(COMMRT_ERR_BACKEND), "this machine has no GPU");
}
TEST(Nccl, MoreRanksThanDevices) {
  FakeLibraries fakes("FakeNccl", "FakeCudart");
  contains(openNccl(COMMRT_ERR_BACKEND, 3), "expected at least 3 GPUs for the ranks of this machine, got 2");
}
// Tests that threads share no GPU even if NCCL lets processes do so: NCCL ends their collectives.
TEST(Nccl, ThreadsShareNoDevice) {
  FakeLibraries fakes("FakeNcclShares", "FakeCudart");
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  contains(openNccl(COMMRT_ERR_BACKEND, 3), "ranks that are threads of one process cannot share a GPU");
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}
TEST(Nccl, OpensWhereEverythingIsThere) {
  FakeLibraries fakes("FakeNccl", "FakeCudart");
  commrt_options options;
  commrt_options_init(&options);
  options.backend = "nccl";
  options.ranks = 2;
  commrt_job *job = nullptr;
  char message[1024];
  ASSERT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_OK) << message;
  EXPECT_EQ(commrt_job_is_rank_ordered(job), 0);
  EXPECT_EQ(commrt_job_local_rank(job), -1);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
  setenv("COMMRT_NCCL_EXACT", "1", 1);
  ASSERT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_OK) << message;
  EXPECT_EQ(commrt_job_is_rank_ordered(job), 1);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
  unsetenv("COMMRT_NCCL_EXACT");
}
TEST(Nccl, NoControlPlane) {
  FakeLibraries fakes("FakeNccl", "FakeCudart");
  setenv("COMMRT_NCCL_CONTROL", "nonsense", 1);
  contains(openNccl(COMMRT_ERR_BACKEND), "no control plane: no backend 'nonsense'");
  unsetenv("COMMRT_NCCL_CONTROL");
}

/// A port that nobody listens at, for the moment.
int freePort() {
  int handle = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(handle, reinterpret_cast<sockaddr *>(&address), size), 0);
  EXPECT_EQ(getsockname(handle, reinterpret_cast<sockaddr *>(&address), &size), 0);
  close(handle);
  return ntohs(address.sin_port);
}

/// One rank of two processes, which meet over tcp; what it ends with goes to `target`.
[[noreturn]] void runProcess(int32_t rank, int port, const char *nccl, int target) {
  setenv("COMMRT_RANK", std::to_string(rank).c_str(), 1);
  setenv("COMMRT_SIZE", "2", 1);
  setenv("COMMRT_LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("COMMRT_ADDR", "127.0.0.1", 1);
  setenv("COMMRT_PORT", std::to_string(port).c_str(), 1);
  FakeLibraries fakes(nccl, "FakeCudart");
  commrt_options options;
  commrt_options_init(&options);
  options.backend = "nccl";
  options.ranks = 2;
  commrt_job *job = nullptr;
  char message[2048];
  if (commrt_job_create(&options, &job, message, sizeof(message)) == COMMRT_OK) {
    commrt_context *context = nullptr;
    if (commrt_context_create(job, rank, &context) == COMMRT_OK) {
      worldGroup(context);
      commrt_last_error(context, message, sizeof(message));
      commrt_context_destroy(context);
    }
    commrt_job_destroy(job);
  }
  ssize_t written = write(target, message, std::strlen(message));
  _exit(written > 0 ? 0 : 1);
}

/// Found before NCCL could hang over it, on both ranks.
TEST(Nccl, VersionsThatDifferAmongRanks) {
  int port = freePort(), ends[2][2];
  pid_t children[2];
  const char *libraries[] = {"FakeNccl", "FakeNcclOther"};
  for (int32_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(pipe(ends[rank]), 0);
    children[rank] = fork();
    if (children[rank] == 0)
      runProcess(rank, port, libraries[rank], ends[rank][1]);
    close(ends[rank][1]);
  }
  for (int32_t rank = 0; rank < 2; ++rank) {
    std::string text;
    char part[512];
    for (ssize_t size; (size = read(ends[rank][0], part, sizeof(part))) > 0;)
      text.append(part, size);
    close(ends[rank][0]);
    int status = 0;
    waitpid(children[rank], &status, 0);
    EXPECT_EQ(status, 0);
    contains(text, "all ranks need the same version of NCCL: rank 0 has 2.28.9, rank 1 has 2.27.3");
  }
}

/// The pointers are the functions that they are named after, with the arguments in their places.
TEST(Nccl, FunctionsAreCalledAsDeclared) {
  FakeLibraries fakes("FakeNccl", "FakeCudart");
  NcclLibraries libraries;
  ASSERT_EQ(libraries.load(), "");
  const NcclApi &nccl = libraries.nccl;
  EXPECT_EQ(nccl.alltoAll, nullptr); // optional, and not there
  EXPECT_EQ(nccl.memAlloc, nullptr);
  NcclUniqueId id;
  ncclComm *comm = nullptr;
  ASSERT_EQ(nccl.getUniqueId(&id), 0);
  ASSERT_EQ(nccl.commInitRankConfig(&comm, 8, id, 3, nullptr), 0);
  int result = -1;
  ASSERT_EQ(nccl.commGetAsyncError(comm, &result), 0);
  EXPECT_EQ(result, 0); // the id arrived by value, all 128 bytes
  void *handle = dlopen(FakeLibraries::pathOf("FakeNccl").c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(handle, nullptr);
  auto *last = static_cast<long *>(dlsym(handle, "fakeLast"));
  auto *stream = reinterpret_cast<cudaStream *>(0x1234);
  auto expectLast = [&](long count, long type, long third) {
    EXPECT_EQ(last[0], count);
    EXPECT_EQ(last[1], type);
    EXPECT_EQ(last[2], third);
    EXPECT_EQ(last[3], 0x1234);
  };
  float in[2] = {1, 2}, out[2] = {};
  int bf16 = ncclTypeOf(COMMRT_BF16).number;
  ASSERT_EQ(nccl.allReduce(in, out, 2, bf16, 4, comm, stream), 0);
  expectLast(2, 9, 4);
  EXPECT_EQ(out[1], 2.f);
  ASSERT_EQ(nccl.allGather(in, out, 5, 7, comm, stream), 0);
  expectLast(5, 7, -1);
  ASSERT_EQ(nccl.reduceScatter(in, out, 6, 7, 1, comm, stream), 0);
  expectLast(6, 7, 1);
  ASSERT_EQ(nccl.broadcast(in, out, 7, 0, 2, comm, stream), 0);
  expectLast(7, 0, 2);
  ASSERT_EQ(nccl.reduce(in, out, 8, 7, 3, 5, comm, stream), 0);
  expectLast(8, 7, 305);
  ASSERT_EQ(nccl.send(in, 9, 7, 6, comm, stream), 0);
  expectLast(9, 7, 6);
  ASSERT_EQ(nccl.recv(out, 10, 7, 4, comm, stream), 0);
  expectLast(10, 7, 4);
  dlclose(handle);
  EXPECT_EQ(libraries.cuda.setDevice(1), 0);
  EXPECT_EQ(libraries.cuda.setDevice(2), 101);
  EXPECT_EQ(libraries.cuda.eventQuery(nullptr), 600);
}

/// CUDA's libraries stay once they were loaded.
TEST(Nccl, LibrariesAreNotUnloaded) {
  FakeLibraries fakes("FakeNccl", "FakeCudart");
  {
    NcclLibraries libraries;
    ASSERT_EQ(libraries.load(), "");
  }
  for (const char *name : {"FakeNccl", "FakeCudart"}) {
    void *handle = dlopen(FakeLibraries::pathOf(name).c_str(), RTLD_NOW | RTLD_NOLOAD);
    EXPECT_NE(handle, nullptr) << name;
    if (handle)
      dlclose(handle);
  }
}

/// Each element type has a number of its own size; bf16 is not mistaken for another 16-bit type.
TEST(Nccl, TypesAndReductions) {
  constexpr int bytesOf[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2}; // by NCCL's number
  for (int32_t dtype = COMMRT_F16; dtype <= COMMRT_I1; ++dtype) {
    NcclType type = ncclTypeOf(dtype);
    ASSERT_GE(type.number, 0);
    EXPECT_EQ(bytesOf[type.number] * type.perElement, commrt_dtype_size(dtype)) << commrt_dtype_name(dtype);
  }
  EXPECT_EQ(ncclTypeOf(COMMRT_F16).number, 6);
  EXPECT_EQ(ncclTypeOf(COMMRT_BF16).number, 9);
  EXPECT_EQ(ncclTypeOf(99).number, -1);
  EXPECT_EQ(ncclReductionOf(COMMRT_MIN, COMMRT_F32), 3);
  EXPECT_EQ(ncclReductionOf(COMMRT_MAX, COMMRT_F32), 2);
  EXPECT_EQ(ncclReductionOf(COMMRT_AVG, COMMRT_F32), 4);
  EXPECT_EQ(ncclReductionOf(COMMRT_AVG, COMMRT_BF16), -1);
  EXPECT_EQ(ncclReductionOf(COMMRT_AVG, COMMRT_F16), -1);
  EXPECT_EQ(ncclReductionOf(COMMRT_AVG, COMMRT_I32), -1);
  EXPECT_EQ(ncclReductionOf(COMMRT_SUM, COMMRT_I1), 2);
  EXPECT_EQ(ncclReductionOf(COMMRT_SUM, COMMRT_I16), -1);
}

//===- Registered backends, and one after the other ------------------------------------------===//

/// The least backend there can be: one rank, and nothing but all_reduce, which copies.
struct OneRank {
  const commrt_host *host;
};

const commrt_backend oneRankBackend = {
    COMMRT_BACKEND_ABI_VERSION,
    COMMRT_BACKEND_REQUIRED_SIZE,
    "one-rank",
    0,
    [](const commrt_backend_config *config, void **job, int32_t *ranks, int32_t *local, char *message, size_t size) {
      *job = new OneRank();
      *ranks = 1;
      *local = -1;
      return int32_t(COMMRT_OK);
    },
    [](void *job) { delete static_cast<OneRank *>(job); },
    [](void *job, int32_t, const commrt_host *host, void *, void **peer) {
      static_cast<OneRank *>(job)->host = host;
      *peer = job;
      return int32_t(COMMRT_OK);
    },
    [](void *) {},
    [](void *peer, const char *, const int32_t *, int32_t, int32_t, void **group, char *, size_t) {
      *group = peer;
      return int32_t(COMMRT_OK);
    },
    [](void *) {},
    [](void *group, commrt_work *work) {
      if (work->kind != COMMRT_ALL_REDUCE)
        return int32_t(COMMRT_ERR_UNSUPPORTED);
      std::memcpy(work->out, work->in, work->count * commrt_dtype_size(work->dtype));
      static_cast<OneRank *>(group)->host->complete(work, COMMRT_OK, 0);
      return int32_t(COMMRT_OK);
    },
    [](void *) { return int32_t(COMMRT_OK); },
    [](void *, void *, int64_t, commrt_combine_fn, int64_t, char *, size_t) { return int32_t(COMMRT_OK); },
    [](void *, int32_t, const char *) {},
    [](void *, char *text, size_t size) {
      if (size > 0)
        *text = 0;
      return int32_t(COMMRT_OK);
    },
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

TEST(Backends, RegisteredByName) {
  ASSERT_EQ(commrt_backend_register(&oneRankBackend), COMMRT_OK);
  ASSERT_EQ(commrt_backend_register(&oneRankBackend), COMMRT_OK); // the same one again is fine
  RunOptions how;
  how.backend = "one-rank";
  expectAllOk(runRanks(1, how, [](commrt_context *context) {
    float in = 3, out = 0;
    commrt_token *token;
    void *symmetric; // of a table that ends before segment_create
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, 100, &symmetric), COMMRT_OK);
    std::memset(symmetric, 1, 100);
    ASSERT_EQ(commrt_all_reduce_start(worldGroup(context), &in, &out, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    EXPECT_EQ(out, 3.f);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
  auto results = runRanks(1, how, [](commrt_context *context) {
    commrt_token *token;
    EXPECT_EQ(commrt_barrier_start(worldGroup(context), -1, &token), COMMRT_ERR_UNSUPPORTED);
  });
  expectAllFailed(results, COMMRT_ERR_UNSUPPORTED, {"cannot start barrier on @world"});
}

/// A backend that gives its works up while something outside may still write to their buffers: these stay.
TEST(Backends, AbandonedBuffersAreNeverFreed) {
  static commrt_work *open;
  static const commrt_host *host;
  commrt_backend table = oneRankBackend;
  table.name = "abandons";
  table.attach = [](void *job, int32_t, const commrt_host *given, void *, void **peer) {
    host = given;
    *peer = job;
    return int32_t(COMMRT_OK);
  };
  table.submit = [](void *, commrt_work *work) {
    open = work;
    return int32_t(COMMRT_OK);
  };
  table.abort = [](void *, int32_t status, const char *) { host->abandon(open, status); };
  static const commrt_backend kept = table;
  ASSERT_EQ(commrt_backend_register(&kept), COMMRT_OK);
  constexpr int64_t bytes = 1 << 20;
  char *plain = nullptr, *symmetric = nullptr;
  RunOptions how;
  how.backend = "abandons"; // poisons what it releases
  runRanks(1, how, [&](commrt_context *context) {
    void *in = nullptr, *out = nullptr;
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, bytes, &in), COMMRT_OK);
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, bytes, &out), COMMRT_OK);
    std::memset(in, 1, bytes);
    std::memset(out, 2, bytes);
    commrt_token *token;
    ASSERT_EQ(commrt_all_reduce_start(worldGroup(context), in, out, bytes, COMMRT_I8, COMMRT_SUM, 1, -1, &token),
              COMMRT_OK);
    EXPECT_EQ(commrt_abort(context, COMMRT_OK, "enough"), COMMRT_ERR_ABORTED);
    EXPECT_EQ(finish(token), COMMRT_ERR_ABORTED);
    EXPECT_EQ(commrt_free(context, in), COMMRT_OK);
    EXPECT_EQ(commrt_free(context, out), COMMRT_OK);
    plain = static_cast<char *>(in);
    symmetric = static_cast<char *>(out);
  });
  EXPECT_EQ(plain[bytes - 1], 1);
  EXPECT_EQ(symmetric[bytes - 1], 2);
}

TEST(Backends, BadTablesAreRefused) {
  commrt_backend bad = oneRankBackend;
  bad.abi_version = COMMRT_BACKEND_ABI_VERSION + 1;
  EXPECT_EQ(commrt_backend_register(&bad), COMMRT_ERR_INVALID);
  bad = oneRankBackend;
  bad.struct_size = COMMRT_BACKEND_REQUIRED_SIZE - 1;
  EXPECT_EQ(commrt_backend_register(&bad), COMMRT_ERR_INVALID);
  bad = oneRankBackend;
  bad.name = "threads";
  EXPECT_EQ(commrt_backend_register(&bad), COMMRT_ERR_INVALID);
  ASSERT_EQ(commrt_backend_register(&oneRankBackend), COMMRT_OK);
  bad = oneRankBackend; // another table of a name that is taken
  EXPECT_EQ(commrt_backend_register(&bad), COMMRT_ERR_INVALID);
  EXPECT_EQ(commrt_backend_register(nullptr), COMMRT_ERR_INVALID);
}

/// A context that could not be attached may be made again.
TEST(Backends, AFailedAttachMayBeRepeated) {
  static int attempts;
  static commrt_backend table = oneRankBackend;
  table.name = "fails-once";
  table.attach = [](void *job, int32_t rank, const commrt_host *host, void *context, void **peer) {
    return ++attempts == 1 ? int32_t(COMMRT_ERR_BACKEND) : oneRankBackend.attach(job, rank, host, context, peer);
  };
  ASSERT_EQ(commrt_backend_register(&table), COMMRT_OK);
  RunOptions how;
  how.backend = "fails-once";
  commrt_job *job = openJob(1, how);
  EXPECT_EQ(commrt_job_is_rank_ordered(job), 0); // its table says nothing
  commrt_context *context = nullptr;
  EXPECT_EQ(commrt_context_create(job, 0, &context), COMMRT_ERR_BACKEND);
  ASSERT_EQ(commrt_context_create(job, 0, &context), COMMRT_OK);
  commrt_context_destroy(context);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
}

TEST(Backends, TablesThatLackAFunctionAreRefused) {
  commrt_backend bad = oneRankBackend;
  bad.name = "lacks";
  bad.progress = nullptr;
  EXPECT_EQ(commrt_backend_register(&bad), COMMRT_ERR_INVALID);
  bad.progress = oneRankBackend.progress;
  bad.combine = nullptr;
  EXPECT_EQ(commrt_backend_register(&bad), COMMRT_ERR_INVALID);
}

int numSegments = 0;

int32_t createSegment(void *, int64_t, int64_t bytes, void **base, char *, size_t) {
  static std::vector<char> memory;
  memory.assign(bytes, 0);
  *base = memory.data();
  ++numSegments;
  return COMMRT_OK;
}

/// A table of a later version of the header: what this one knows of it works. And one that ends in the middle.
TEST(Backends, LargerAndSmallerTables) {
  struct Larger {
    commrt_backend table;
    void (*unknown)();
  };
  static Larger larger = {oneRankBackend, nullptr};
  larger.table.name = "larger";
  larger.table.struct_size = sizeof(Larger);
  larger.table.segment_create = createSegment;
  static commrt_backend exact = larger.table, smaller = larger.table;
  exact.name = "exact";
  exact.struct_size = offsetof(commrt_backend, segment_create) + sizeof(exact.segment_create);
  smaller.name = "smaller";
  smaller.struct_size = COMMRT_BACKEND_REQUIRED_SIZE;
  for (auto [table, segments] : {std::pair(&larger.table, 1), std::pair(&exact, 1), std::pair(&smaller, 0)}) {
    ASSERT_EQ(commrt_backend_register(table), COMMRT_OK);
    numSegments = 0;
    RunOptions how;
    how.backend = table->name;
    expectAllOk(runRanks(1, how, [](commrt_context *context) {
      void *symmetric;
      ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, 100, &symmetric), COMMRT_OK);
      std::memset(symmetric, 1, 100);
    }));
    EXPECT_EQ(numSegments, segments) << table->name;
  }
}

/// The current folder may be anybody's.
TEST(Backends, NotFromTheCurrentFolder) {
  std::string before = std::filesystem::current_path();
  std::filesystem::current_path(COMMSCHED_FAKES);
  ASSERT_TRUE(std::filesystem::exists("libcommrt_fake.so"));
  unsetenv("COMMRT_FAKE_BACKEND_LOADED");
  commrt_options options;
  commrt_options_init(&options);
  options.backend = "fake";
  commrt_job *job = nullptr;
  char message[2048];
  for (const char *folder : {"", static_cast<const char *>(nullptr)}) {
    if (folder)
      setenv("COMMRT_BACKEND_PATH", folder, 1);
    else
      unsetenv("COMMRT_BACKEND_PATH");
    EXPECT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_ERR_BACKEND);
    EXPECT_EQ(std::getenv("COMMRT_FAKE_BACKEND_LOADED"), nullptr) << message;
    contains(message, "no backend 'fake'");
  }
  setenv("COMMRT_BACKEND_PATH", COMMSCHED_FAKES, 1); // where it was asked for it is found
  EXPECT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_ERR_BACKEND);
  contains(message, "backend 'fake' cannot be used: it has another version");
  EXPECT_NE(std::getenv("COMMRT_FAKE_BACKEND_LOADED"), nullptr);
  unsetenv("COMMRT_BACKEND_PATH");
  std::filesystem::current_path(before);
}

TEST(Backends, TheFirstThatOpensIsTaken) {
  FakeLibraries fakes("", "");
  commrt_options options;
  commrt_options_init(&options);
  options.backend = "nccl,nonsense,threads";
  options.ranks = 2;
  commrt_job *job = nullptr;
  char message[2048];
  ASSERT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_OK) << message;
  EXPECT_STREQ(commrt_job_backend(job), "threads");
  EXPECT_EQ(commrt_job_is_rank_ordered(job), 1);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
  options.backend = "nccl,nonsense";
  EXPECT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_ERR_BACKEND);
  contains(message, "nccl: cannot load NCCL");
  contains(message, "; no backend 'nonsense'");
  EXPECT_EQ(commrt_job_backend(nullptr), nullptr);
}

TEST(Abi, VersionIsThatOfTheHeader) { EXPECT_EQ(commrt_abi_version(), COMMRT_ABI_VERSION); }
} // namespace
