/*===- commsched.c - The C API from plain C -------------------------------------------------===*\
|*                                                                                             *|
|* Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.                      *|
|* See LICENSE for licence information.                                                        *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                                     *|
|*                                                                                             *|
|*===-----------------------------------------------------------------------------------------===*|
|*                                                                                             *|
|* Parses, transforms and prints a program through CommSched.h, and checks what bad input gets.*|
|*                                                                                             *|
\*===-----------------------------------------------------------------------------------------===*/

#include "CommSched-c/CommSched.h"
#include "CommSched-c/Calibration.h"
#include "CommSched-c/Hlo.h"
#include "CommSched-c/Timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                                   \
      ++failures;                                                                                                      \
    }                                                                                                                  \
  } while (0)

static const char program[] = "comm.group @dp #comm.iota<[1, 4]>\n"
                              "func.func @f(%x: tensor<4xf32>) -> tensor<16xf32> {\n"
                              "  %unused = arith.constant 1 : i32\n"
                              "  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>\n"
                              "  %r = comm.wait %f : !comm.future<tensor<16xf32>>\n"
                              "  return %r : tensor<16xf32>\n"
                              "}\n";

static CommSchedModule *parse(CommSchedContext *context, const char *text) {
  return commschedModuleParse(context, text, strlen(text), "test.mlir");
}

/* Values are numbers, the arguments first; a future has the shape of its tensor. */
static void testDataflow(void) {
  CommSchedContext *context = commschedContextCreate();
  CommSchedModule *module = parse(context, program);
  CommSchedBuffer flow = commschedModuleListDataflow(module);
  CHECK(strstr(flow.data, "\"name\":\"f\",\"arguments\":[[4]]") != NULL);
  CHECK(strstr(flow.data, "[\"arith.constant\",[],[],[1],[null],[],\"value = ") != NULL);
  CHECK(strstr(flow.data, "[\"comm.all_gather\",[],[0],[2],[[16]],[],\"dim = 0 : i64, group = @dp\"]") != NULL);
  CHECK(strstr(flow.data, "[\"comm.wait\",[],[2],[3],[[16]],[],\"\"]") != NULL);
  CHECK(strstr(flow.data, "return\"") == NULL);
  CHECK(strstr(flow.data, "\"returned\":[3]") != NULL);
  commschedBufferDestroy(flow);
  commschedModuleDestroy(module);
  commschedContextDestroy(context);
}

/* Text to passes to text and bytecode, and bytecode back to the same text. */
static void testRoundTrip(void) {
  CommSchedContext *context = commschedContextCreate();
  CommSchedModule *module = parse(context, program);
  CommSchedModule *again;
  CommSchedBuffer text, bytes, text2;
  CHECK(module != NULL);
  CHECK(commschedModuleVerify(module) == 0);
  CHECK(commschedModuleRunPipeline(module, "canonicalize") == 0);
  CHECK(commschedModuleRunPipeline(module, "builtin.module(func.func(cse))") == 0);
  text = commschedModulePrint(module, 0);
  CHECK(strlen(text.data) == text.length);
  CHECK(strstr(text.data, "comm.all_gather") != NULL);
  CHECK(strstr(text.data, "arith.constant") == NULL);
  CHECK(strstr(text.data, "loc(") == NULL);
  bytes = commschedModuleWriteBytecode(module);
  CHECK(bytes.length > 4 && memcmp(bytes.data, "ML\xefR", 4) == 0);
  again = commschedModuleParse(context, bytes.data, bytes.length, NULL);
  CHECK(again != NULL);
  text2 = commschedModulePrint(again, 0);
  CHECK(strcmp(text.data, text2.data) == 0);
  commschedBufferDestroy(text2);
  text2 = commschedModulePrint(again, 1);
  CHECK(strstr(text2.data, "\"test.mlir\":4:") != NULL);
  CHECK(commschedContextGetNumMessages(context) == 0);
  commschedBufferDestroy(text);
  commschedBufferDestroy(text2);
  commschedBufferDestroy(bytes);
  commschedModuleDestroy(again);
  commschedModuleDestroy(module);
  commschedContextDestroy(context);
}

/* The messages say what is wrong, and where. */
static void testBadInput(void) {
  CommSchedContext *context = commschedContextCreate();
  CommSchedModule *module;
  CommSchedMessage message;
  CHECK(parse(context, "func.func @f() {") == NULL);
  CHECK(commschedContextGetNumMessages(context) == 1);
  message = commschedContextGetMessage(context, 0);
  CHECK(message.kind == COMMSCHED_ERROR);
  CHECK(strncmp(message.location, "test.mlir:1:", 12) == 0);
  CHECK(message.text[0] != 0);
  commschedContextClearMessages(context);
  CHECK(commschedContextGetNumMessages(context) == 0);

  CHECK(parse(context, "") == NULL);
  CHECK(strcmp(commschedContextGetMessage(context, 0).text, "the input is empty") == 0);
  CHECK(commschedContextGetMessage(context, 99).text[0] == 0);
  commschedContextClearMessages(context);

  CHECK(commschedModuleParse(context, "ML\xefR\x06", 5, "short.mlirbc") == NULL);
  CHECK(commschedContextGetNumMessages(context) >= 1);
  commschedContextClearMessages(context);

  module = parse(context, program);
  CHECK(commschedModuleRunPipeline(module, "no-such-pass") != 0);
  CHECK(strstr(commschedContextGetMessage(context, 0).text, "no-such-pass") != NULL);
  CHECK(commschedModuleRunPipeline(module, "canonicalize{") != 0);
  commschedModuleDestroy(module);

  CHECK(parse(context, "\"nobody.knows\"() : () -> ()") == NULL);
  commschedContextAllowUnregisteredDialects(context, 1);
  module = parse(context, "\"nobody.knows\"() : () -> ()");
  CHECK(module != NULL);
  commschedModuleDestroy(module);
  commschedModuleDestroy(NULL);
  commschedContextDestroy(context);
  commschedContextDestroy(NULL);
}

/* The report is JSON about the function, and an unknown machine is a message. */
static void testReport(void) {
  CommSchedContext *context = commschedContextCreate();
  CommSchedModule *module = parse(context, program);
  CommSchedBuffer report;
  CHECK(commschedModuleRunPipelineWithReport(module, "canonicalize", "h100-sxm", &report) == 0);
  CHECK(report.data[0] == '{' && strstr(report.data, "\"schema_version\": 1") != NULL);
  CHECK(strstr(report.data, "\"name\": \"f\"") != NULL);
  commschedBufferDestroy(report);
  CHECK(commschedModuleRunPipelineWithReport(module, "", NULL, &report) == 0);
  commschedBufferDestroy(report);
  CHECK(commschedContextGetNumMessages(context) == 0);
  CHECK(commschedModuleRunPipelineWithReport(module, "", "no-such-machine", &report) != 0);
  CHECK(report.data == NULL);
  CHECK(strstr(commschedContextGetMessage(context, 0).text, "no-such-machine") != NULL);
  commschedModuleDestroy(module);
  commschedContextDestroy(context);
}

/* Costs the product 4,000 ns and everything else what the library says. Counts its questions. */
static int64_t estimate(const char *name, const char *location, void *data) {
  ++*(int *)data;
  CHECK(strncmp(location, "test.mlir:", 10) == 0);
  return strcmp(name, "aten.mm.default") == 0 ? 4000 : -1;
}

/* Three ranks with the same operations: this one's times, and twice and three times as much. Counts its calls. */
static int gather(const int64_t *own, size_t count, int64_t *all, void *data) {
  size_t rank, index;
  int call = ++*(int *)data;
  for (rank = 0; rank < 3; ++rank)
    for (index = 0; index < count; ++index)
      all[rank * count + index] = call == 1 ? own[index] : own[index] * (int64_t)(rank + 1);
  return 0;
}

/* Two ranks, of which the other one says that it has one operation more. */
static int gatherOthers(const int64_t *own, size_t count, int64_t *all, void *data) {
  size_t index;
  int call = ++*(int *)data;
  for (index = 0; index < 2 * count; ++index)
    all[index] = own[index % count];
  if (call == 1)
    all[count] = own[0] + 1;
  else
    all[2 * count - 1] = 7;
  return 0;
}

static int refuse(const int64_t *own, size_t count, int64_t *all, void *data) {
  (void)own, (void)count, (void)all, (void)data;
  return 1;
}

static const char product[] = "comm.group @dp #comm.iota<[1, 4]>\n"
                              "func.func @f(%x: tensor<4xf32>) -> (tensor<16xf32>, tensor<4xf32>) {\n"
                              "  %m = comm.compute \"aten.mm.default\"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n"
                              "  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>\n"
                              "  %r = comm.wait %f : !comm.future<tensor<16xf32>>\n"
                              "  return %r, %m : tensor<16xf32>, tensor<4xf32>\n"
                              "}\n";

/* Whether comm-align-costs has given a remark of this kind and name. */
static int hasRemark(CommSchedContext *context, CommSchedMessageKind kind, const char *name) {
  size_t index;
  for (index = 0; index < commschedContextGetNumMessages(context); ++index) {
    CommSchedMessage message = commschedContextGetMessage(context, index);
    if (message.kind == kind && strcmp(message.name, name) == 0 && strcmp(message.category, "comm-align-costs") == 0 &&
        *message.text)
      return 1;
  }
  return 0;
}

/* Estimated curves come before the machine's, and the last one of a group holds. A refused one changes nothing. */
static void testCurve(CommSchedContext *context) {
  const int64_t bytes[] = {64, 1024}, descending[] = {1024, 64}, ns[] = {123000, 456000}, others[] = {5, 6};
  const int64_t negative[] = {5, -6};
  CommSchedModule *module = parse(context, product);
  CommSchedBuffer report;
  CHECK(commschedContextSetCurve(context, "all_gather", "dp", "f32", 2, bytes, others) == 0);
  CHECK(commschedContextSetCurve(context, "all_gather", "dp", "f32", 2, bytes, ns) == 0);
  CHECK(commschedContextSetCurve(context, "all_gather", "dp", "f32", 2, descending, others) != 0);
  CHECK(commschedContextSetCurve(context, "all_gather", "dp", "f32", 2, bytes, negative) != 0);
  CHECK(commschedContextSetCurve(context, "all_gather", "dp", "f32", 0, NULL, NULL) != 0);
  CHECK(commschedContextSetCurve(context, "all_gather", "dp", "f33", 2, bytes, others) != 0);
  CHECK(commschedContextSetCurve(context, "all_gather", "", "f32", 2, bytes, others) != 0);
  CHECK(commschedContextSetCurve(context, "gossip", "dp", "f32", 2, bytes, others) != 0);
  CHECK(commschedModuleRunPipelineWithReport(module, "comm-raise", NULL, &report) == 0);
  CHECK(strstr(report.data, "\"cost_ns\": 123000") != NULL);
  commschedBufferDestroy(report);
  commschedModuleDestroy(module);
}

/* The machine, the estimate and the ranks' costs reach passes that are made from text. */
static void testEnvironment(void) {
  CommSchedContext *context = commschedContextCreate();
  CommSchedModule *module = parse(context, product);
  CommSchedBuffer text;
  int questions = 0, gathered = 0;
  CHECK(commschedContextSetMachine(context, "abacus") != 0);
  CHECK(strstr(commschedContextGetMessage(context, 0).text, "abacus") != NULL);
  CHECK(commschedContextSetMachine(context, "cpu-mpi") == 0);
  CHECK(commschedModuleRunPipelineWithReport(module, "comm-raise", NULL, &text) == 0);
  CHECK(strstr(text.data, "\"machine\": \"cpu-mpi\"") != NULL);
  CHECK(strstr(text.data, "\"pass\": \"comm-raise\"") != NULL);
  commschedBufferDestroy(text);

  CHECK(commschedModuleRunPipeline(module, "comm-align-costs") != 0);
  commschedContextSetEstimate(context, estimate, &questions);
  commschedContextSetGather(context, 3, refuse, NULL);
  CHECK(commschedModuleRunPipeline(module, "comm-align-costs") != 0);
  commschedContextClearMessages(context);
  commschedContextSetGather(context, 2, gatherOthers, &gathered);
  CHECK(commschedModuleRunPipeline(module, "comm-align-costs") != 0 && gathered == 2);
  CHECK(commschedContextGetNumMessages(context) == 1);
  CHECK(strstr(commschedContextGetMessage(context, 0).text, "got 2 operations here and 3 on rank 1") != NULL);
  gathered = 0;
  commschedContextSetGather(context, 3, gather, &gathered);
  CHECK(commschedModuleRunPipeline(module, "comm-align-costs") == 0);
  CHECK(questions > 0 && gathered == 2);
  text = commschedModulePrint(module, 0);
  CHECK(strstr(text.data, "#comm.cost<time = 8000, time_lo = 4000, time_hi = 12000>") != NULL);
  CHECK(hasRemark(context, COMMSCHED_REMARK_PASSED, "cost") && hasRemark(context, COMMSCHED_REMARK_ANALYSIS, "skew"));
  commschedBufferDestroy(text);
  commschedContextSetEstimate(context, NULL, NULL);
  testCurve(context);
  commschedContextSetGather(context, 0, NULL, NULL);
  commschedModuleDestroy(module);
  commschedContextDestroy(context);
}

/* A bench of two ranks whose runs take 1 us and 1 ns per byte. */
typedef struct Bench {
  int64_t clock, bytes;
  int prepared;
} Bench;

static int benchPrepare(const CommSchedProbe *probe, void *data) {
  ((Bench *)data)->bytes = probe->bytes;
  ++((Bench *)data)->prepared;
  return strcmp(probe->kind, "all_to_all") == 0;
}

static int benchRun(int64_t *total, int64_t *issue, void *data) {
  Bench *bench = data;
  *total = 1000 + bench->bytes;
  *issue = 10;
  bench->clock += *total;
  return 0;
}

static int benchGather(const int64_t *own, size_t count, int64_t *all, void *data) {
  memcpy(all, own, count * sizeof(*own));
  memcpy(all + count, own, count * sizeof(*own));
  return 0;
}

static int64_t benchNow(void *data) { return ((Bench *)data)->clock; }
static const char *benchReason(void *data) { return "no such collective"; }

/* Two sizes, a kind that fails, and requests that are none. */
static void testCalibration(void) {
  static const char request[] =
      "{\"base\": \"cpu-mpi\", \"curves\": ["
      "{\"kind\": \"all_gather\", \"element\": \"f32\", \"ranks\": 2, \"nodes\": 1, \"ranks_per_node\": 2,"
      " \"sizes\": [4096, 8191]},"
      "{\"kind\": \"all_to_all\", \"element\": \"f32\", \"ranks\": 2, \"nodes\": 1, \"ranks_per_node\": 2}]}";
  static const char *wrong[] = {"",
                                "[]",
                                "{\"curves\": [1]}",
                                "{\"curves\": [], \"base\": \"abacus\"}",
                                "{\"curves\": [], \"recipe\": \"guess\"}",
                                "{\"curves\": [{\"kind\": \"all_gather\", \"element\": \"f32\", \"ranks\": 0}]}"};
  Bench state = {0, 0, 0};
  CommSchedBench bench = {0, 2, benchPrepare, benchRun, benchGather, benchNow, NULL, benchReason, NULL};
  CommSchedBuffer result;
  size_t i;
  bench.data = &state;
  CHECK(commschedCalibrate(&bench, request, &result) == 0);
  CHECK(state.prepared == 3);
  CHECK(strstr(result.data, "\"bytes\":4096,\"hi_ns\":5096,\"lo_ns\":5096") != NULL);
  CHECK(strstr(result.data, "\"bytes\":8192,\"hi_ns\":9192") != NULL); /* whole elements on every rank */
  CHECK(strstr(result.data, "no such collective") != NULL);
  CHECK(strstr(result.data, "\"measured\":2") != NULL);
  commschedBufferDestroy(result);
  for (i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i) {
    CHECK(commschedCalibrate(&bench, wrong[i], &result) == 1);
    CHECK(result.length > 0 && result.data[0] != '{');
    commschedBufferDestroy(result);
  }
  result = commschedCalibrationFolder();
  CHECK(result.data != NULL);
  commschedBufferDestroy(result);
}

/* What a plugin of PJRT looks like from the beginning: a size, and a chain of extensions, here an empty one. */
struct EmptyPlugin {
  size_t size;
  void *extensions;
};

static void testHlo(void) {
  CommSchedBuffer module, report;
  CHECK(commschedScheduleHlo("no module", 9, "{}", &module, &report) == 0);
  CHECK(module.length == 0);
  CHECK(strstr(report.data, "expected a module of XLA") != NULL);
  commschedBufferDestroy(module);
  commschedBufferDestroy(report);
  CHECK(commschedScheduleHlo("", 0, "{\"donation\": \"some\"}", &module, &report) == 1);
  CHECK(strstr(report.data, "donation") != NULL);
  commschedBufferDestroy(module);
  commschedBufferDestroy(report);

  struct EmptyPlugin plugin = {sizeof(plugin), NULL};
  CHECK(commschedXlaInstall(&plugin, &report) == 1);
  CHECK(strcmp(report.data, "the plugin has no extension for transformations of modules") == 0);
  commschedBufferDestroy(report);
  CHECK(commschedXlaConfigure("{\"machine\": \"no-such\"}", &report) == 1);
  CHECK(strstr(report.data, "no-such") != NULL);
  commschedBufferDestroy(report);
  CHECK(commschedXlaConfigure(NULL, &report) == 0 && report.length == 0);
  commschedBufferDestroy(report);
  report = commschedXlaTakeReports();
  CHECK(strcmp(report.data, "[]") == 0);
  commschedBufferDestroy(report);
}

/* The bytes of a file, which the caller frees; NULL if there is none. */
static char *readFile(const char *path) {
  FILE *file = fopen(path, "rb");
  long length;
  char *text;
  if (!file)
    return NULL;
  fseek(file, 0, SEEK_END);
  length = ftell(file);
  rewind(file);
  text = calloc(length + 1, 1);
  if (fread(text, 1, length, file) != (size_t)length)
    text[0] = 0;
  fclose(file);
  return text;
}

/* One rank with a kernel, a collective, and the time in which it is exposed; and each table with one wrong number. */
static void testTimeline(void) {
  static const char *const form =
      "{\"strings\": [\"</script>\", \"exposed\"], \"notes\": [], \"sides\": [{\"title\": \"rank 0\", \"note\": \"\","
      " \"begin\": %s, \"end\": 30, \"bound\": 20, \"figures\": [{\"name\": \"step\", \"ns\": 30}],"
      " \"lanes\": [\"computation\", \"stream 1\"], \"loads\": [10, 20],"
      " \"ops\": {\"kind\": [0, %s, 1], \"group\": [-1, 0, -1]},"
      " \"starts\": {\"op\": [%s], \"bytes\": [-1], \"ranks\": [2], \"exposed\": [20], \"late\": [0], \"match\": [0]},"
      " \"waits\": {\"op\": [2], \"start\": [1], \"exposed\": [20], \"factor\": [-1]},"
      " \"spans\": {\"op\": [0, 1, 2], \"row\": [0, %s, 0], \"start\": [0, 10, 10], \"length\": [10, 20%s],"
      " \"stall\": [0, 0, 1]}}]}";
  static const char *const right[] = {"0", "0", "1", "1", ", 20"};
  static const struct {
    size_t field;
    const char *value, *reason;
  } wrong[] = {{0, "31", "sides[0].end: expected at least begin, 31, got 30"},
               {1, "2", "sides[0].ops.kind[1]: expected an integer from 0 to 1, got 2"},
               {2, "3", "sides[0].starts.op[0]: expected an integer from 0 to 2, got 3"},
               {3, "2", "sides[0].spans.row[1]: expected an integer from 0 to 1, got 2"},
               {3, "\"a\"", "sides[0].spans.row[1]: expected an integer from 0 to 1, got \"a\""},
               {4, "", "sides[0].spans.length: expected an array of 3 integers"},
               {4, ", 9007199254740993", "sides[0].spans.length[2]: expected an integer from 0 to 9007199254740992"}};
  static const char *const none[] = {"", "[]", "{\"sides\": []}", "{\"strings\": [], \"notes\": [], \"sides\": [1]}"};
  static const char path[] = "commsched-timeline-test.html";
  char request[2048];
  CommSchedBuffer reason;
  size_t i;
  char *page;
  remove(path);
  for (i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i) {
    const char *fields[5];
    memcpy(fields, right, sizeof(fields));
    fields[wrong[i].field] = wrong[i].value;
    snprintf(request, sizeof(request), form, fields[0], fields[1], fields[2], fields[3], fields[4]);
    CHECK(commschedTimelineWritePage(request, strlen(request), path, &reason) == 1);
    CHECK(strstr(reason.data, wrong[i].reason) != NULL);
    commschedBufferDestroy(reason);
  }
  for (i = 0; i < sizeof(none) / sizeof(*none); ++i) {
    CHECK(commschedTimelineWritePage(none[i], strlen(none[i]), path, &reason) == 1);
    commschedBufferDestroy(reason);
  }
  snprintf(request, sizeof(request), form, right[0], right[1], right[2], right[3], right[4]);
  CHECK(commschedTimelineWritePage(request, strlen(request), "-", &reason) == 1);
  commschedBufferDestroy(reason);
  CHECK(commschedTimelineWritePage(request, strlen(request), "no-such-folder/page.html", &reason) == 1);
  CHECK(strstr(reason.data, "no-such-folder/page.html") != NULL);
  commschedBufferDestroy(reason);
  CHECK(readFile(path) == NULL); /* nothing is left behind */
  CHECK(commschedTimelineWritePage(request, strlen(request), path, &reason) == 0 && reason.length == 0);
  commschedBufferDestroy(reason);
  page = readFile(path);
  CHECK(page && strstr(page, "\"kind\":[0,0,1]") != NULL);
  CHECK(page && strstr(page, "\"\\u003c/script>\"") != NULL); /* a text cannot end the element */
  free(page);
  remove(path);
}

int main(void) {
  CHECK(commschedGetVersion()[0] != 0);
  testRoundTrip();
  testDataflow();
  testBadInput();
  testReport();
  testEnvironment();
  testCalibration();
  testHlo();
  testTimeline();
  if (failures == 0)
    printf("all checks hold\n");
  return failures != 0;
}
