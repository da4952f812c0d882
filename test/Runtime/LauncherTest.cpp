//===- LauncherTest.cpp - Tests of the launchers' environment variables -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The environments are those that the launchers set: torchrun of PyTorch 2.13, mpirun of Open MPI 4.1 (both as printed
// by `env`), and what the documentation of Slurm, Hydra and Cray says.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Launcher.h"
#include "CommSched/Runtime/Runtime.h"
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>

using namespace commsched::runtime;

namespace {
using Variables = std::map<std::string, std::string>;

Environment environmentOf(const Variables &variables) {
  return [&variables](const char *name) -> const char * {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

std::string launchError(const Variables &variables) {
  Launch launch;
  std::string error = readLaunch(environmentOf(variables), launch);
  if (!error.empty()) {
    EXPECT_EQ(launch.rank, -1);
    EXPECT_EQ(launch.ranks, 0);
  }
  return error;
}

void expectLaunch(const Variables &variables, const char *launcher, int32_t rank, int32_t ranks, int32_t localRank) {
  Launch launch;
  ASSERT_EQ(readLaunch(environmentOf(variables), launch), "");
  EXPECT_EQ(launch.launcher, launcher);
  EXPECT_EQ(launch.rank, rank);
  EXPECT_EQ(launch.ranks, ranks);
  EXPECT_EQ(launch.localRank, localRank);
}

const Variables ofTorchrun = {{"GROUP_RANK", "1"},
                              {"GROUP_WORLD_SIZE", "2"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "node0"},
                              {"MASTER_PORT", "34141"},
                              {"RANK", "3"},
                              {"ROLE_NAME", "default"},
                              {"ROLE_RANK", "3"},
                              {"ROLE_WORLD_SIZE", "4"},
                              {"TORCHELASTIC_MAX_RESTARTS", "0"},
                              {"TORCHELASTIC_RESTART_COUNT", "0"},
                              {"TORCHELASTIC_RUN_ID", "12b35343"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                              {"WORLD_SIZE", "4"}};
const Variables ofOpenMpi = {
    {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_NODE_RANK", "0"},  {"OMPI_COMM_WORLD_RANK", "2"},
    {"OMPI_COMM_WORLD_SIZE", "4"},       {"OMPI_MCA_orte_precondition_transports", "0e5411b1191d7f61-1bfc46f6c79976b1"},
    {"PMIX_NAMESPACE", "571015169"},     {"PMIX_RANK", "2"}};
const Variables ofSlurm = {{"SLURM_JOB_ID", "200505"},   {"SLURM_LOCALID", "3"}, {"SLURM_NNODES", "2"},
                           {"SLURM_NTASKS", "16"},       {"SLURM_PROCID", "7"},  {"SLURM_STEP_ID", "0"},
                           {"SLURM_STEP_NUM_TASKS", "8"}};

Variables with(Variables variables, const Variables &more) {
  for (const auto &[name, value] : more)
    variables[name] = value;
  return variables;
}

/// Tests that a process that no launcher started is none's, and that this is not an error.
TEST(Launcher, None) { expectLaunch({{"PATH", "/bin"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}}, "", -1, 0, -1); }

int32_t localRanksOf(const Variables &variables) {
  Launch launch;
  EXPECT_EQ(readLaunch(environmentOf(variables), launch), "");
  return launch.localRanks;
}

/// Tests the number of processes of this machine, which some launchers say.
TEST(Launcher, LocalRanks) {
  EXPECT_EQ(localRanksOf(ofTorchrun), 2);
  EXPECT_EQ(localRanksOf(ofOpenMpi), 2);
  EXPECT_EQ(localRanksOf({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}}), 2);
  EXPECT_EQ(localRanksOf({{"PMI_RANK", "9"}, {"PMI_SIZE", "12"}, {"PMI_LOCAL_SIZE", "3"}}), 3);
  EXPECT_EQ(localRanksOf(ofSlurm), 0);
  EXPECT_EQ(launchError(with(ofOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "5"}})),
            "OMPI_COMM_WORLD_LOCAL_SIZE is '5', expected a number from 1 to 4");
}

/// Tests the variables of each launcher.
TEST(Launcher, EachLauncher) {
  expectLaunch({{"COMMRT_RANK", "0"}, {"COMMRT_SIZE", "1"}}, "COMMRT_RANK", 0, 1, -1);
  expectLaunch({{"COMMRT_RANK", "5"}, {"COMMRT_SIZE", "6"}, {"COMMRT_LOCAL_RANK", "2"}}, "COMMRT_RANK", 5, 6, 2);
  expectLaunch(ofTorchrun, "torchrun", 3, 4, 1);
  expectLaunch(ofOpenMpi, "Open MPI", 2, 4, 0);
  expectLaunch({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}, "PMI", 1, 2,
               1);
  expectLaunch({{"PMI_RANK", "9"}, {"PMI_SIZE", "12"}, {"PMI_LOCAL_RANK", "1"}}, "PMI", 9, 12, 1);
  expectLaunch(ofSlurm, "Slurm", 7, 8, 3);
  // srun --mpi=pmix
  expectLaunch(with(ofSlurm, {{"PMIX_RANK", "7"}, {"PMIX_NAMESPACE", "slurm.pmix.200505.0"}}), "PMIx", 7, 8, 3);
}

const char *backendOf(const Variables &variables) {
  Launch launch;
  EXPECT_EQ(readLaunch(environmentOf(variables), launch), "");
  return backendFor(launch);
}

/// Tests which backend a program gets that does not choose one.
TEST(Launcher, Backends) {
  EXPECT_STREQ(backendOf({}), "threads");
  EXPECT_STREQ(backendOf(ofOpenMpi), "mpi");
  EXPECT_STREQ(backendOf({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), "mpi");
  EXPECT_STREQ(backendOf(ofTorchrun), "nccl");
  EXPECT_STREQ(backendOf({{"COMMRT_RANK", "0"}, {"COMMRT_SIZE", "1"}}), "nccl");
  EXPECT_STREQ(backendOf(ofSlurm), "nccl");
  EXPECT_STREQ(backendOf({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "0"}}), "threads");
}

/// Tests the C function: it fills what the caller's structure has, and says what is wrong.
TEST(Launcher, CFunction) {
  for (const char *name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_STEP_ID", "SLURM_STEPID"})
    unsetenv(name);
  setenv("COMMRT_RANK", "1", 1);
  setenv("COMMRT_SIZE", "3", 1);
  commrt_launch launch = {};
  char message[256] = "x";
  launch.struct_size = sizeof(launch);
  EXPECT_EQ(commrt_launch_read(&launch, message, sizeof(message)), COMMRT_OK);
  EXPECT_STREQ(message, "");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.ranks, 3);
  EXPECT_EQ(launch.local_rank, -1);
  EXPECT_STREQ(launch.launcher, "COMMRT_RANK");
  EXPECT_STREQ(launch.backend, "nccl");
  commrt_launch shorter = {};
  shorter.struct_size = offsetof(commrt_launch, ranks);
  shorter.ranks = 77;
  EXPECT_EQ(commrt_launch_read(&shorter, nullptr, 0), COMMRT_OK);
  EXPECT_EQ(shorter.rank, 1);
  EXPECT_EQ(shorter.ranks, 77);
  setenv("COMMRT_RANK", "3", 1);
  EXPECT_EQ(commrt_launch_read(&launch, message, sizeof(message)), COMMRT_ERR_INVALID);
  EXPECT_STREQ(message, "COMMRT_RANK is 3, but COMMRT_SIZE is 3: ranks are counted from 0");
  EXPECT_EQ(launch.rank, -1);
  EXPECT_STREQ(launch.backend, "");
  unsetenv("COMMRT_RANK");
  unsetenv("COMMRT_SIZE");
  EXPECT_EQ(commrt_launch_read(&launch, message, sizeof(message)), COMMRT_OK);
  EXPECT_EQ(launch.rank, -1);
  EXPECT_STREQ(launch.backend, "threads");
  EXPECT_EQ(commrt_launch_read(nullptr, message, sizeof(message)), COMMRT_ERR_INVALID);
  launch.struct_size = 0;
  EXPECT_EQ(commrt_launch_read(&launch, nullptr, 0), COMMRT_ERR_INVALID);
}

/// Tests that an older srun, which gives a step its number by another name, is understood, and that a batch script,
/// which is one process whatever SLURM_NTASKS says, is not taken for a rank.
TEST(Launcher, SlurmStepsAndScripts) {
  expectLaunch({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEPID", "0"}}, "Slurm", 1, 4, -1);
  expectLaunch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}}, "", -1, 0, -1);
}

/// Tests that the first of several launchers counts, in the documented order.
TEST(Launcher, Order) {
  Variables all = with(with(ofSlurm, ofOpenMpi), {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  expectLaunch(all, "Open MPI", 2, 4, 0);
  all = with(all, ofTorchrun);
  expectLaunch(all, "torchrun", 3, 4, 1);
  expectLaunch(with(all, {{"COMMRT_RANK", "8"}, {"COMMRT_SIZE", "9"}}), "COMMRT_RANK", 8, 9, -1);
}

/// Tests that every malformed or contradictory value is one line that names the variable, and that nothing is
/// half-read.
TEST(Launcher, BadValues) {
  const Variables good = {{"COMMRT_RANK", "1"}, {"COMMRT_SIZE", "2"}, {"COMMRT_LOCAL_RANK", "1"}};
  for (const char *bad : {"", " 1", "1 ", "+1", "-1", "1.0", "0x1", "one", "99999999999999999999"}) {
    for (const char *name : {"COMMRT_RANK", "COMMRT_SIZE", "COMMRT_LOCAL_RANK"}) {
      std::string error = launchError(with(good, {{name, bad}}));
      EXPECT_EQ(error.rfind(std::string(name) + " is '" + bad + "', expected a number from ", 0), 0u) << error;
    }
  }
  EXPECT_EQ(launchError(with(good, {{"COMMRT_SIZE", "0"}})), "COMMRT_SIZE is '0', expected a number from 1 to 1048576");
  EXPECT_EQ(launchError(with(good, {{"COMMRT_SIZE", std::string(5000, '7')}})),
            "COMMRT_SIZE is '" + std::string(40, '7') + "...', expected a number from 1 to 1048576");
  EXPECT_EQ(launchError(with(good, {{"COMMRT_RANK", "2"}})),
            "COMMRT_RANK is 2, but COMMRT_SIZE is 2: ranks are counted from 0");
  EXPECT_EQ(launchError(with(good, {{"COMMRT_LOCAL_RANK", "2"}})), "COMMRT_LOCAL_RANK is 2, but COMMRT_SIZE is 2");
  EXPECT_EQ(launchError({{"COMMRT_SIZE", "2"}}), "COMMRT_SIZE is set, but COMMRT_RANK is not");
  EXPECT_EQ(launchError({{"COMMRT_LOCAL_RANK", "2"}}), "COMMRT_LOCAL_RANK is set, but COMMRT_RANK is not");
  for (const auto &[rank, size] : Variables{{"COMMRT_RANK", "COMMRT_SIZE"},
                                            {"RANK", "WORLD_SIZE"},
                                            {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
                                            {"PMI_RANK", "PMI_SIZE"}})
    EXPECT_EQ(launchError({{rank, "0"}}).rfind(rank + " is set, but " + size + " is not; set COMMRT_RANK", 0), 0u);
  // The launcher that counts decides, also where it is wrong.
  EXPECT_EQ(launchError(with(ofOpenMpi, {{"RANK", "x"}, {"WORLD_SIZE", "2"}})),
            "RANK is 'x', expected a number from 0 to 1048575");
}

MeetingPoint meetingPoint(const Variables &variables) {
  MeetingPoint point;
  EXPECT_EQ(readMeetingPoint(environmentOf(variables), point), "");
  return point;
}

std::string meetingError(const Variables &variables) {
  MeetingPoint point;
  return readMeetingPoint(environmentOf(variables), point);
}

/// Tests that the port after torchrun's is taken where its agent listens at the port itself, and only there.
TEST(Launcher, Ports) {
  EXPECT_EQ(meetingPoint(ofTorchrun).port, 34142);
  EXPECT_EQ(meetingPoint(with(ofTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).port, 34141);
  EXPECT_EQ(meetingPoint(with(ofTorchrun, {{"COMMRT_PORT", "29501"}})).port, 29501);
  EXPECT_EQ(meetingPoint({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}).port, 1);
  EXPECT_EQ(meetingError(with(ofTorchrun, {{"MASTER_PORT", "65535"}})),
            "torchrun's agent listens at MASTER_PORT 65535, and there is no port after it; set COMMRT_PORT");
  EXPECT_EQ(meetingError(with(ofTorchrun, {{"MASTER_PORT", "0"}})),
            "MASTER_PORT is '0', expected a number from 1 to 65535");
  EXPECT_EQ(meetingError({{"MASTER_ADDR", "a"}}), "MASTER_PORT is not set: rank 0 listens at MASTER_ADDR:MASTER_PORT");
}

/// Tests addresses: names, IPv6 with and without brackets, and one of ours before the launcher's.
TEST(Launcher, Addresses) {
  const Variables port = {{"MASTER_PORT", "2"}};
  EXPECT_EQ(meetingPoint(with(port, {{"MASTER_ADDR", "node0.cluster"}})).host, "node0.cluster");
  EXPECT_EQ(meetingPoint(with(port, {{"MASTER_ADDR", "::1"}})).host, "::1");
  EXPECT_EQ(meetingPoint(with(port, {{"MASTER_ADDR", "[fd00::2]"}})).host, "fd00::2");
  EXPECT_EQ(meetingPoint(with(port, {{"MASTER_ADDR", "a"}, {"COMMRT_ADDR", "b"}})).host, "b");
  EXPECT_EQ(meetingError(with(port, {{"MASTER_ADDR", ""}})), "MASTER_ADDR is empty, expected a name or an address");
  EXPECT_EQ(meetingError(with(port, {{"MASTER_ADDR", std::string(2000, 'a')}})),
            "MASTER_ADDR is too long, expected a name or an address");
  EXPECT_EQ(meetingError(port), "MASTER_ADDR is not set: rank 0 listens at MASTER_ADDR:MASTER_PORT");
}

/// Tests the secret, the name of the job and the longest silence.
TEST(Launcher, SecretAndJob) {
  const Variables place = {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  EXPECT_EQ(meetingPoint(place).secret, "");
  EXPECT_EQ(meetingPoint(place).job, "");
  EXPECT_EQ(meetingPoint(place).silenceMs, 30'000);
  EXPECT_EQ(meetingPoint(with(place, {{"COMMRT_SILENCE_MS", "250"}})).silenceMs, 250);
  EXPECT_EQ(meetingError(with(place, {{"COMMRT_SILENCE_MS", "0"}})),
            "COMMRT_SILENCE_MS is '0', expected a number from 1 to 86400000");
  EXPECT_EQ(meetingPoint(place).startMs, 0);
  EXPECT_EQ(meetingPoint(with(place, {{"COMMRT_START_TIMEOUT_MS", "600000"}})).startMs, 600'000);
  EXPECT_EQ(meetingError(with(place, {{"COMMRT_START_TIMEOUT_MS", "1s"}})),
            "COMMRT_START_TIMEOUT_MS is '1s', expected a number from 1 to 86400000");
  MeetingPoint underMpi = meetingPoint(with(place, ofOpenMpi));
  EXPECT_EQ(underMpi.secret, "0e5411b1191d7f61-1bfc46f6c79976b1");
  EXPECT_EQ(underMpi.job, "571015169");
  EXPECT_EQ(meetingPoint(with(with(place, ofOpenMpi), {{"COMMRT_SECRET", "s"}, {"COMMRT_JOB", "j"}})).secret, "s");
  EXPECT_EQ(meetingPoint(ofTorchrun).job, "12b35343.0");
  EXPECT_EQ(meetingPoint(with(place, ofSlurm)).job, "200505.0");
  EXPECT_EQ(meetingPoint(with(place, {{"COMMRT_SECRET", std::string(256, 's')}})).secret.size(), 256u);
  EXPECT_EQ(meetingError(with(place, {{"COMMRT_SECRET", std::string(257, 's')}})),
            "COMMRT_SECRET has 257 bytes, expected at most 256");
}
} // namespace
