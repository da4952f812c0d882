//===- ProgramsTest.cpp - Random programs over the emulated libraries -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A seed decides a program of collectives and messages over three communicators, each on a stream of its own, with a
// stream of computations that makes their inputs and takes their results, all ordered by events. What each rank ends
// with is compared with a plain simulation.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"
#include <random>

using namespace emulator::test;

namespace {
constexpr int ranks = 4;
constexpr size_t count = 4, slots = 5;

/// One step: a call on a communicator from one slot to another, or a computation in a slot.
struct Step {
  enum Kind { Sum, Share, Pass, Add } kind;
  int comm; ///< 0, 1: all ranks; 2: those of the same parity
  size_t from, to;
};

std::vector<Step> program(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Step> steps;
  for (int i = 0; i < 30; ++i)
    steps.push_back({Step::Kind(random() % 4), int(random() % 3), random() % slots, random() % slots});
  return steps;
}

using Slots = std::vector<std::vector<int32_t>>;

Slots inputs(int rank) {
  Slots values(slots, std::vector<int32_t>(count));
  for (size_t slot = 0; slot < slots; ++slot)
    for (size_t i = 0; i < count; ++i)
      values[slot][i] = int32_t(size_t(rank + 1) * 1000 + slot * 10 + i);
  return values;
}

/// The members of a rank's communicator.
std::vector<int> membersOf(int comm, int rank) {
  return comm == 2 ? std::vector<int>{rank % 2, rank % 2 + 2} : std::vector<int>{0, 1, 2, 3};
}

/// Integers wrap as the emulator's do.
int32_t plus(int32_t a, int32_t b) { return int32_t(uint32_t(a) + uint32_t(b)); }

std::vector<Slots> simulate(const std::vector<Step> &steps) {
  std::vector<Slots> state;
  for (int rank = 0; rank < ranks; ++rank)
    state.push_back(inputs(rank));
  for (const Step &step : steps) {
    std::vector<Slots> before = state;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<int> members = membersOf(step.comm, rank);
      auto &to = state[size_t(rank)][step.to];
      size_t place = size_t(std::find(members.begin(), members.end(), rank) - members.begin());
      auto from = [&](size_t member, size_t i) {
        return before[size_t(members[member % members.size()])][step.from][i];
      };
      for (size_t i = 0; i < count; ++i) {
        if (step.kind == Step::Add)
          to[i] = plus(to[i], 1);
        else if (step.kind == Step::Pass)
          to[i] = from(place + members.size() - 1, i);
        else if (step.kind == Step::Share) // the first part of an all-gather of one element each
          to[i] = from(i, 0);
        else
          for (size_t member = 0; member < members.size(); ++member)
            to[i] = plus(member == 0 ? 0 : to[i], from(member, i));
      }
    }
  }
  return state;
}

void addOne(void **arguments, dim3, dim3) {
  auto *data = *static_cast<int32_t **>(arguments[0]);
  for (size_t i = 0; i < count; ++i)
    data[i] = plus(data[i], 1);
}

/// Calls a step's collective. Results go through a buffer, as a slot may be both input and output.
void callStep(const Step &step, int rank, ncclComm_t comm, int32_t *from, int32_t *to, cudaStream_t stream) {
  size_t members = membersOf(step.comm, rank).size();
  int place = 0;
  NCCL(ncclCommUserRank(comm, &place));
  if (step.kind == Step::Sum) {
    NCCL(ncclAllReduce(from, to, count, ncclInt32, ncclSum, comm, stream));
  } else if (step.kind == Step::Share) {
    NCCL(ncclAllGather(from, to, 1, ncclInt32, comm, stream));
    if (members < count) // the members again, as the simulation has it
      CUDA(cudaMemcpyAsync(to + members, to, members * sizeof(int32_t), cudaMemcpyDeviceToDevice, stream));
  } else {
    NCCL(ncclGroupStart());
    NCCL(ncclSend(from, count, ncclInt32, (place + 1) % int(members), comm, stream));
    NCCL(ncclRecv(to, count, ncclInt32, (place + int(members) - 1) % int(members), comm, stream));
    NCCL(ncclGroupEnd());
  }
}

void runRank(const std::vector<Step> &steps, int rank, ncclComm_t world, cudaStream_t compute, Slots &result) {
  ncclComm_t comms[3] = {world, nullptr, nullptr};
  NCCL(ncclCommSplit(world, 0, rank, &comms[1], nullptr));
  NCCL(ncclCommSplit(world, rank % 2, rank, &comms[2], nullptr));
  size_t size = sizeof(int32_t *);
  emulatorRegisterKernel("add_one_to_all", addOne, 1, &size);
  cudaLibrary_t library;
  cudaKernel_t kernel;
  CUDA(cudaLibraryLoadData(&library, "image", nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUDA(cudaLibraryGetKernel(&kernel, library, "add_one_to_all"));
  {
    StreamOf streams[3];
    EventOf produced, done;
    constexpr size_t bytes = count * sizeof(int32_t);
    std::vector<std::unique_ptr<OnDevice<int32_t>>> data, received;
    for (const auto &values : inputs(rank))
      data.push_back(std::make_unique<OnDevice<int32_t>>(values));
    for (const Step &step : steps) {
      int32_t *from = *data[step.from], *to = *data[step.to];
      if (step.kind == Step::Add) {
        void *arguments[] = {static_cast<void *>(&to)};
        CUDA(cudaLaunchKernel(kernel, dim3{1, 1, 1}, dim3{1, 1, 1}, arguments, 0, compute));
        continue;
      }
      received.push_back(std::make_unique<OnDevice<int32_t>>(count));
      CUDA(cudaEventRecord(produced, compute));
      CUDA(cudaStreamWaitEvent(streams[step.comm], produced, 0));
      callStep(step, rank, comms[step.comm], from, *received.back(), streams[step.comm]);
      CUDA(cudaEventRecord(done, streams[step.comm]));
      CUDA(cudaStreamWaitEvent(compute, done, 0));
      CUDA(cudaMemcpyAsync(to, *received.back(), bytes, cudaMemcpyDeviceToDevice, compute));
    }
    CUDA(cudaStreamSynchronize(compute));
    for (const auto &slot : data)
      result.push_back(slot->read());
  }
  CUDA(cudaLibraryUnload(library));
  NCCL(ncclCommDestroy(comms[1]));
  NCCL(ncclCommDestroy(comms[2]));
}

class Programs : public testing::TestWithParam<unsigned> {};

// Tests that each rank ends with what the simulation says.
TEST_P(Programs, GiveWhatTheSimulationGives) {
  std::vector<Step> steps = program(GetParam());
  std::vector<Slots> expected = simulate(steps), results(ranks);
  onComm(ranks, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
    runRank(steps, rank, comm, stream, results[size_t(rank)]);
  });
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_EQ(results[size_t(rank)], expected[size_t(rank)]) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(Seeds, Programs, testing::Range(0U, 20U));
} // namespace
