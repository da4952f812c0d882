/*===- PlainC.c - The runtime used from C --------------------------------------------------------===
 *
 * Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for licence information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Shows that the header is C and what the least program looks like: two ranks, one all_reduce.
 *
 *===--------------------------------------------------------------------------------------------===*/

#include "CommSched/Runtime/Backend.h"
#include "CommSched/Runtime/Runtime.h"
#include <pthread.h>
#include <stdio.h>

static void *runRank(void *opaque) {
  commrt_context *context = opaque;
  const int64_t offsets[] = {0, 2}, ranks[] = {0, 1};
  const commrt_site site = {COMMRT_ALL_REDUCE, COMMRT_F64, 2, "world", "PlainC.c", 0};
  commrt_group *group = NULL;
  commrt_token *token = NULL;
  double data[2] = {1.0 + commrt_rank(context), 0.5};
  int32_t status = commrt_program_begin(context, 1, &site, 1);
  if (!status)
    status = commrt_group_create(context, "world", 1, offsets, ranks, &group);
  if (!status)
    status = commrt_all_reduce_start(group, data, data, 2, COMMRT_F64, COMMRT_SUM, 1.0, 0, &token);
  if (!status)
    status = commrt_wait(token, NULL);
  commrt_token_release(token);
  if (!status)
    status = commrt_program_end(context);
  commrt_context_destroy(context);
  return status == COMMRT_OK && data[0] == 3.0 && data[1] == 1.0 ? NULL : opaque;
}

int main(void) {
  commrt_options options;
  commrt_job *job = NULL;
  commrt_context *contexts[2] = {NULL, NULL};
  pthread_t threads[2];
  char message[256];
  int failed = 0;
  if (commrt_abi_version() != COMMRT_ABI_VERSION)
    return 1;
  commrt_options_init(&options);
  options.ranks = 2;
  if (commrt_job_create(&options, &job, message, sizeof(message))) {
    fprintf(stderr, "%s\n", message);
    return 1;
  }
  for (int rank = 0; rank < 2; ++rank)
    failed |= commrt_context_create(job, rank, &contexts[rank]) != COMMRT_OK;
  for (int rank = 0; rank < 2; ++rank)
    failed |= pthread_create(&threads[rank], NULL, runRank, contexts[rank]) != 0;
  for (int rank = 0; rank < 2; ++rank) {
    void *bad = NULL;
    pthread_join(threads[rank], &bad);
    failed |= bad != NULL;
  }
  failed |= commrt_job_destroy(job) != COMMRT_OK;
  printf("%s\n", failed ? "failed" : "ok");
  return failed;
}
