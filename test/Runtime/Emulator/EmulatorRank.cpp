//===- EmulatorRank.cpp - A rank that is a process --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The programs of ProcessesTest.cpp: EmulatorRank PROGRAM RANK. The environment names the job's folder and the devices'
// memory.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

using namespace emulator::test;

namespace {
constexpr int ranks = 3;

/// The job's folder has the devices' memory and files by which its processes talk.
std::string inFolder(const char *name) { return std::string(getenv("EMU_TEST_FOLDER")) + "/" + name; }

/// Waits until a file is there and complete; it appears by renaming.
void waitForFile(const std::string &path) {
  while (access(path.c_str(), R_OK) != 0)
    usleep(1000);
}

/// The id that rank 0 leaves for the others.
ncclUniqueId exchangeId(int rank) {
  ncclUniqueId id;
  std::string path = inFolder("id"), unfinished = path + ".part";
  if (rank == 0) {
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    FILE *file = fopen(unfinished.c_str(), "wb");
    EXPECT_EQ(fwrite(&id, sizeof(id), 1, file), 1U);
    fclose(file);
    rename(unfinished.c_str(), path.c_str());
  }
  waitForFile(path);
  FILE *file = fopen(path.c_str(), "rb");
  EXPECT_EQ(fread(&id, sizeof(id), 1, file), 1U);
  fclose(file);
  return id;
}

/// A sum over all, and a gather within a split.
void collectives(int rank, ncclComm_t world) {
  {
    StreamOf stream;
    OnDevice<float> data(std::vector<float>{float(rank + 1)}), gathered(ranks);
    for (float expected : {6.0F, 18.0F, 54.0F}) {
      NCCL(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, world, stream));
      CUDA(cudaStreamSynchronize(stream));
      EXPECT_EQ(data.read()[0], expected);
    }
    ncclComm_t part = nullptr;
    NCCL(ncclCommSplit(world, rank == 1 ? NCCL_SPLIT_NOCOLOR : 0, -rank, &part, nullptr));
    if (part) {
      OnDevice<float> own(std::vector<float>{float(rank)});
      NCCL(ncclAllGather(own, gathered, 1, ncclFloat32, part, stream));
      CUDA(cudaStreamSynchronize(stream));
      EXPECT_EQ(gathered.read()[0], 2);
      EXPECT_EQ(gathered.read()[1], 0);
      NCCL(ncclCommDestroy(part));
    }
  }
  NCCL(ncclCommDestroy(world));
}

/// Rank 1 is killed before the second sum; the others abort.
void killed(int rank, ncclComm_t world) {
  StreamOf stream;
  EventOf last;
  OnDevice<float> data(std::vector<float>{1});
  NCCL(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, world, stream));
  CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(data.read()[0], ranks);
  if (rank == 1)
    raise(SIGKILL);
  NCCL(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, world, stream));
  CUDA(cudaEventRecord(last, stream));
  waitForFile(inFolder("killed"));
  if (rank == 0) // rank 2's abort may let it go
    EXPECT_EQ(cudaEventQuery(last), cudaErrorNotReady);
  if (rank == 2)
    waitForFile(inFolder("looked"));
  else
    fclose(fopen(inFolder("looked").c_str(), "wb"));
  NCCL(ncclCommAbort(world));
  CUDA(cudaStreamSynchronize(stream));
}

/// Ranks call different collectives.
void different(int rank, ncclComm_t world) {
  StreamOf stream;
  OnDevice<float> data(std::vector<float>{1, 1, 1});
  rank ? ncclAllReduce(data, data, 2, ncclFloat32, ncclSum, world, stream)
       : ncclAllReduce(data, data, 3, ncclFloat32, ncclSum, world, stream);
  CUDA(cudaStreamSynchronize(stream));
}

/// Two processes on one device.
void sameDevice(int rank, ncclComm_t world) {
  CUDA(cudaSetDevice(0));
  void *memory = nullptr;
  if (rank == 0) {
    CUDA(cudaMalloc(&memory, 64));
    fclose(fopen(inFolder("taken").c_str(), "wb"));
    waitForFile(inFolder("killed")); // made when rank 1 has ended
    CUDA(cudaFree(memory));
  } else if (rank == 1) {
    waitForFile(inFolder("taken"));
    CUDA(cudaMalloc(&memory, 64));
  }
  NCCL(ncclCommDestroy(world));
}

} // namespace

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) {
    fprintf(stderr, "usage: EmulatorRank PROGRAM RANK\n");
    return 1;
  }
  std::string program = argv[1];
  int rank = int(strtol(argv[2], nullptr, 10));
  EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
  ncclComm_t world = join(exchangeId(rank), ranks, rank);
  if (program == "collectives")
    collectives(rank, world);
  else if (program == "killed")
    killed(rank, world);
  else if (program == "different")
    different(rank, world);
  else
    sameDevice(rank, world);
  return testing::Test::HasFailure() ? 1 : 0;
}
