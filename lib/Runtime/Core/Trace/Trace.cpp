//===- Trace.cpp - Clock, trace and dump ------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What a run leaves behind for people: a Chrome/Perfetto trace of one rank, and a text of what is in flight.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include <cinttypes>
#include <cstdio>

using namespace commsched::runtime;

int64_t commrt_clock_ns(const commrt_context *context) { return context ? contextNs(context) : -1; }

int32_t commrt_advance(commrt_context *context, int64_t ns) {
  if (!context || ns < 0)
    return COMMRT_ERR_INVALID;
  context->virtualNs += ns;
  return latched(context);
}

int32_t commrt_trace_compute(commrt_context *context, const char *name, int64_t beginNs, int64_t endNs) {
  if (!context || !name)
    return COMMRT_ERR_INVALID;
  if (!context->job->trace)
    return COMMRT_OK;
  Lock lock(context->mutex);
  context->trace.push_back({101, -1, beginNs, endNs, context->names.insert(name).first->c_str()});
  return COMMRT_OK;
}

int32_t commrt_trace_mark(commrt_context *context) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (!context->job->trace)
    return latched(context);
  if (context->job->device && context->status == COMMRT_OK)
    joinComputeStreams(context);
  void *event = traceEvent(context, nullptr);
  traceEvents(context, 102, -1, "", event, nullptr);
  return latched(context);
}

int64_t commrt_trace_size(const commrt_context *context) {
  if (!context)
    return -1;
  Lock lock(context->mutex);
  return static_cast<int64_t>(context->trace.size());
}

int32_t commrt_trace_get(const commrt_context *context, int64_t index, commrt_trace_record *record) {
  if (!context || !record)
    return COMMRT_ERR_INVALID;
  Lock lock(context->mutex);
  if (index < 0 || index >= static_cast<int64_t>(context->trace.size()))
    return COMMRT_ERR_INVALID;
  *record = context->trace[index];
  return COMMRT_OK;
}

int32_t commrt_trace_last_begin(const commrt_context *context, int64_t index, int64_t *ns) {
  if (!context || !ns)
    return COMMRT_ERR_INVALID;
  Lock lock(context->mutex);
  if (index < 0 || index >= static_cast<int64_t>(context->trace.size()))
    return COMMRT_ERR_INVALID;
  bool isKnown = index < static_cast<int64_t>(context->lastBegins.size()) && context->lastBegins[index] != INT64_MIN;
  *ns = isKnown ? context->lastBegins[index] : context->trace[index].begin_ns;
  return isKnown ? COMMRT_OK : COMMRT_ERR_UNSUPPORTED;
}

int64_t commrt_trace_clock_error_ns(const commrt_context *context) { return context ? context->clockErrorNs : -1; }

static void printQuoted(FILE *file, const char *text) {
  std::fputc('"', file);
  for (; *text; ++text) {
    unsigned char c = *text;
    if (c == '"' || c == '\\')
      std::fprintf(file, "\\%c", c);
    else if (c < 0x20)
      std::fprintf(file, "\\u%04x", c);
    else
      std::fputc(c, file);
  }
  std::fputc('"', file);
}

/// Chrome's times are microseconds; three decimals keep the nanoseconds.
static void printMicroseconds(FILE *file, int64_t ns) {
  std::fprintf(file, "%" PRId64 ".%03d", ns / 1000, int(ns % 1000));
}

int32_t commrt_trace_write(commrt_context *context, const char *path) {
  if (!context || !path)
    return COMMRT_ERR_INVALID;
  FILE *file = std::fopen(path, "w");
  if (!file)
    return fail(context, COMMRT_ERR_INVALID, std::string("cannot write ") + path);
  Lock lock(context->mutex);
  std::fprintf(file, "{\"traceEvents\":[");
  bool first = true;
  for (const commrt_trace_record &record : context->trace) {
    bool isWait = record.kind == 100, isCompute = record.kind == 101;
    if (record.kind == 102)
      continue;
    std::fprintf(file, "%s\n{\"ph\":\"X\",\"pid\":%d,\"tid\":", first ? "" : ",", context->rank);
    first = false;
    printQuoted(file, isWait || isCompute ? "compute" : record.name);
    std::fprintf(file, ",\"name\":");
    printQuoted(file, isWait ? "wait" : isCompute ? record.name : commrt_kind_name(record.kind));
    std::fprintf(file, ",\"ts\":");
    printMicroseconds(file, record.begin_ns);
    std::fprintf(file, ",\"dur\":");
    printMicroseconds(file, record.end_ns - record.begin_ns);
    std::fprintf(file, ",\"args\":{\"site\":%" PRId64 "}}", record.site);
  }
  std::fprintf(file, "\n]}\n");
  bool good = std::fflush(file) == 0 && !std::ferror(file);
  good &= std::fclose(file) == 0;
  return good ? COMMRT_OK : COMMRT_ERR_INVALID;
}

int32_t commrt_dump(commrt_context *context, const char *path) {
  if (!context || !path)
    return COMMRT_ERR_INVALID;
  char report[4096] = "", message[4096] = "";
  {
    Lock lock(context->peerMutex);
    if (!context->detached)
      context->job->backend->describe(context->peer, report, sizeof(report));
  }
  int32_t status = commrt_last_error(context, message, sizeof(message));
  FILE *file = std::fopen(path, "w");
  if (!file)
    return COMMRT_ERR_INVALID;
  std::fprintf(file, "rank %d of %d, backend %s\nstatus: %s\n", context->rank, context->job->ranks,
               context->job->backend->name, commrt_status_name(status));
  if (*message)
    std::fprintf(file, "error: %s\n", message);
  {
    Lock lock(context->mutex);
    std::fprintf(file, "started: %" PRId64 "\nin flight: %" PRId64 "\nbuffers: %" PRId64 " bytes\n",
                 context->started.load(), context->inFlight, context->allocated);
  }
  std::fprintf(file, "%s\n", *report ? report : "nothing waits");
  return std::fclose(file) == 0 ? COMMRT_OK : COMMRT_ERR_INVALID;
}
