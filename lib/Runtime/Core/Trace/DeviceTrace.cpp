//===- DeviceTrace.cpp - A trace with the times of a device -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// On a device, calls return before anything has happened. So a record begins with the time of its call, and gets the
// times of the device when the program ends.
//
// A device gives the time between two events as a float of milliseconds, whose step after 10 s is a microsecond. So
// times are measured from an anchor, an event that is at most a tenth of a second older on the host, and anchors from
// each other.
//
// Each rank's device has a clock of its own. To bring them together the ranks run barriers: no rank leaves one before
// every rank has entered it, so the times at which two ranks enter and leave bound the difference of their clocks from
// both sides. The middle of the narrowest bounds is taken, half of their distance is the largest error.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include <algorithm>
#include <climits>
#include <utility>

using namespace commsched::runtime;

bool commsched::runtime::tracesDevice(const commrt_context *context) {
  const commrt_device_ops *device = context->job->device;
  return context->job->trace && device && COMMRT_REACHES(device, commrt_device_ops, span) && device->record_timed &&
         device->elapsed && device->span;
}

//===- Anchors -------------------------------------------------------------------------------===//

/// How long an anchor serves: then the step of its float is below 10 ns.
static constexpr std::chrono::milliseconds anchorLife(100);

static void *recordTimed(commrt_context *context, const commrt_stream *stream) {
  void *event = nullptr;
  if (int32_t status = context->job->device->record_timed(context->peer, streamHandle(context, stream), &event))
    fail(context, status, "cannot record a timed event");
  return event;
}

/// The anchor of what is recorded now; the number of anchors with an error, which latches.
static size_t currentAnchor(commrt_context *context) {
  std::vector<TimeAnchor> &anchors = context->anchors;
  Clock::time_point now = Clock::now();
  // What is recorded in a capture is timed at each launch, which sets the anchor.
  if (context->isCapturing)
    return 0;
  if (!anchors.empty() && now - anchors.back().made <= anchorLife)
    return anchors.size() - 1;
  void *event = recordTimed(context, nullptr);
  if (event)
    anchors.push_back({event, now, anchors.empty() ? 0 : -1});
  return event ? anchors.size() - 1 : anchors.size();
}

/// The event's time on the device's clock; false with an error, which latches. The event is done.
static bool readTime(commrt_context *context, size_t anchor, void *event, int64_t &ns) {
  std::vector<TimeAnchor> &anchors = context->anchors;
  if (!event || anchor >= anchors.size())
    return false;
  auto elapsed = [&](void *from, void *to) {
    int32_t status = context->job->device->elapsed(context->peer, from, to, &ns);
    if (status)
      fail(context, status, "cannot read the time of an event");
    return status == COMMRT_OK;
  };
  size_t next = anchor;
  while (anchors[next].ns < 0)
    --next;
  for (++next; next <= anchor; ++next) {
    if (!elapsed(anchors[next - 1].event, anchors[next].event))
      return false;
    anchors[next].ns = anchors[next - 1].ns + ns;
  }
  if (!elapsed(anchors[anchor].event, event))
    return false;
  ns += anchors[anchor].ns;
  return true;
}

//===- Records -------------------------------------------------------------------------------===//

static int64_t addRecord(commrt_context *context, const commrt_trace_record &record) {
  Lock lock(context->mutex);
  context->trace.push_back(record);
  return static_cast<int64_t>(context->trace.size()) - 1;
}

/// Adds a record, now or at each launch of what is captured, with a span for its times.
static void addSpan(commrt_context *context, const commrt_trace_record &record, DeviceSpan span) {
  span.captured = record;
  span.record = context->isCapturing ? -1 : addRecord(context, record);
  span.anchor = currentAnchor(context);
  context->spans.push_back(span);
}

void commsched::runtime::traceStart(commrt_context *context, Work &work) {
  work.isTraced = true;
  const commrt_work &base = work.base;
  if (!context->isAligning)
    addSpan(context, {base.kind, base.site, work.beginNs, work.beginNs, base.group}, {-1, &work});
}

void *commsched::runtime::traceEvent(commrt_context *context, const commrt_stream *stream) {
  return tracesDevice(context) && context->status == COMMRT_OK ? recordTimed(context, stream) : nullptr;
}

void commsched::runtime::traceEvents(commrt_context *context, int32_t kind, int64_t site, const char *name, void *begin,
                                     void *end) {
  int64_t now = contextNs(context);
  if (begin)
    addSpan(context, {kind, site, now, now, name}, {-1, nullptr, begin, end});
  else
    addRecord(context, {kind, site, now, now, name});
}

void commsched::runtime::traceComputation(commrt_context *context, const char *name, void *begin,
                                          const commrt_stream *stream) {
  if (!begin)
    return;
  const char *kept = nullptr;
  {
    Lock lock(context->mutex);
    kept = context->names.insert(name).first->c_str();
  }
  traceEvents(context, 101, -1, kept, begin, traceEvent(context, stream));
}

void commsched::runtime::forgetSpan(commrt_context *context, const DeviceSpan &span) {
  const commrt_device_ops *device = context->job->device;
  for (void *event : {span.begin, span.end})
    if (event)
      device->release(context->peer, event);
  if (!span.work)
    return;
  span.work->isTraced = false;
  if (!span.work->isKept)
    return; // its token releases it
  if (span.work->base.state)
    device->release_work(context->peer, &span.work->base);
  delete span.work;
}

/// Reads the times of a span, which is done; false if it has none.
static bool readSpan(commrt_context *context, const DeviceSpan &span, int64_t &begin, int64_t &end) {
  void *from = span.begin, *to = span.end ? span.end : span.begin;
  if (span.work &&
      (!span.work->base.state || context->job->device->span(context->peer, &span.work->base, &from, &to) != COMMRT_OK))
    return false;
  return readTime(context, span.anchor, from, begin) && readTime(context, span.anchor, to, end);
}

static bool isDone(commrt_context *context, const DeviceSpan &span) {
  Lock lock(context->mutex);
  return !span.work || span.work->isRetired || span.work->token->pending == 0;
}

void commsched::runtime::resolveTrace(commrt_context *context) {
  std::vector<DeviceSpan> spans;
  spans.swap(context->spans);
  for (const DeviceSpan &span : spans) {
    int64_t begin = 0, end = 0;
    if (!isDone(context, span)) {
      context->spans.push_back(span);
      continue;
    }
    if (readSpan(context, span, begin, end)) {
      Lock lock(context->mutex);
      commrt_trace_record &record = context->trace[span.record];
      record.begin_ns = begin + context->deviceZeroNs;
      record.end_ns = end + context->deviceZeroNs;
    }
    forgetSpan(context, span);
  }
}

void commsched::runtime::beginGraphTimes(commrt_graph &graph) {
  graph.context->anchors.back().made = {}; // a new one, so that the launch comes soon after it
  size_t anchor = currentAnchor(graph.context);
  for (DeviceSpan &span : graph.spans)
    span.anchor = anchor;
  graph.hasTimes = !graph.spans.empty();
}

int32_t commsched::runtime::readGraphTimes(commrt_graph &graph) {
  commrt_context *context = graph.context;
  if (!std::exchange(graph.hasTimes, false))
    return latched(context);
  if (int32_t status = waitStreams(context))
    return status;
  for (const DeviceSpan &span : graph.spans) {
    commrt_trace_record record = span.captured;
    if (!readSpan(context, span, record.begin_ns, record.end_ns))
      continue;
    record.begin_ns += context->deviceZeroNs;
    record.end_ns += context->deviceZeroNs;
    addRecord(context, record);
  }
  return latched(context);
}

void commsched::runtime::dropTrace(commrt_context *context) {
  for (commrt_graph *graph : std::unordered_set<commrt_graph *>(context->graphs))
    dropGraph(graph);
  if (!tracesDevice(context))
    return;
  std::vector<Work *> retired;
  {
    Lock lock(context->mutex);
    retired = context->retired;
  }
  // None is kept any longer than its token.
  for (Work *work : retired)
    work->isTraced = false;
  for (const DeviceSpan &span : std::exchange(context->spans, {}))
    forgetSpan(context, span);
  for (const TimeAnchor &anchor : std::exchange(context->anchors, {}))
    context->job->device->release(context->peer, anchor.event);
}

//===- Clocks --------------------------------------------------------------------------------===//

static constexpr int kRounds = 4;
static constexpr const char *kClockGroup = "commrt.clock";

namespace {
/// When a rank entered and left the barriers, on the clock of its device, and the zero of that on its context's clock.
struct Meeting {
  int64_t entered[kRounds], left[kRounds];
  int64_t zero;
};
} // namespace

static void keepLower(void *, const void *, int64_t) {}

/// Times the barriers that bring the clocks of the ranks together, on this rank's side.
static int32_t compareClocks(commrt_context *context, Meeting &meeting) {
  commrt_group *group = nullptr;
  std::vector<int64_t> ranks(context->job->ranks);
  for (size_t i = 0; i < ranks.size(); ++i)
    ranks[i] = static_cast<int64_t>(i);
  const int64_t offsets[] = {0, context->job->ranks};
  if (int32_t status = commrt_group_create(context, kClockGroup, 1, offsets, ranks.data(), &group))
    return status;
  context->isAligning = true;
  commrt_token *tokens[kRounds] = {};
  int32_t status = COMMRT_OK;
  size_t anchor = currentAnchor(context);
  for (commrt_token *&token : tokens)
    status = status ? status : commrt_barrier_start(group, -1, &token);
  // Streams wait as well: what is compared first on the device is not mixed with the program's first collectives.
  for (int i = 0; i < kRounds && status == COMMRT_OK; ++i)
    if ((status = commrt_wait(tokens[i], nullptr)) == COMMRT_OK)
      status = commrt_wait_host(tokens[i], -1);
  for (int i = 0; i < kRounds && status == COMMRT_OK; ++i)
    if (!readSpan(context, {-1, tokens[i]->works.front(), nullptr, nullptr, anchor}, meeting.entered[i],
                  meeting.left[i]))
      status = fail(context, COMMRT_ERR_BACKEND, "comparing clocks: the backend does not know when a barrier ran");
  for (commrt_token *token : tokens)
    if (token) {
      for (Work *work : token->works)
        work->isTraced = false;
      commrt_token_release(token);
    }
  context->isAligning = false;
  return status;
}

void commsched::runtime::beginDeviceClock(commrt_context *context) {
  void *event = traceEvent(context, nullptr);
  if (!event)
    return;
  size_t anchor = currentAnchor(context);
  int64_t now = elapsedNs(context->job), ns = 0;
  if (waitStreams(context) == COMMRT_OK && readTime(context, anchor, event, ns))
    context->deviceZeroNs = now - ns;
  context->job->device->release(context->peer, event);
}

int32_t commsched::runtime::alignClocks(commrt_context *context) {
  if (int32_t status = waitStreams(context))
    return status;
  resolveTrace(context);
  context->clockShiftNs = 0;
  beginDeviceClock(context);
  if (context->job->ranks == 1 || context->status != COMMRT_OK)
    return latched(context);
  Meeting mine = {}, first;
  mine.zero = context->deviceZeroNs;
  if (int32_t status = compareClocks(context, mine))
    return status;
  first = mine;
  if (int32_t status = combineRanks(context, "comparing clocks", &first, sizeof(first), keepLower))
    return status;
  if (context->rank == 0)
    return latched(context); // its clock is the one of all
  int64_t least = INT64_MIN, most = INT64_MAX;
  for (int i = 0; i < kRounds; ++i) {
    least = std::max(least, first.entered[i] - mine.left[i]);
    most = std::min(most, first.left[i] - mine.entered[i]);
  }
  // Clocks that tick in steps may cross the bounds by one.
  context->clockErrorNs = std::max<int64_t>(0, (most - least + 1) / 2);
  int64_t zero = first.zero + least + (most - least) / 2;
  context->clockShiftNs = zero - context->deviceZeroNs;
  context->deviceZeroNs = zero;
  return latched(context);
}

//===- The last rank's begin -----------------------------------------------------------------===//

/// Above this many collectives times subsets their begins are not exchanged.
static constexpr int64_t kMostBegins = int64_t(1) << 20;

static void combineMost(void *lower, const void *higher, int64_t bytes) {
  auto *a = static_cast<int64_t *>(lower);
  const auto *b = static_cast<const int64_t *>(higher);
  for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(int64_t)); ++i)
    a[i] = std::max(a[i], b[i]);
}

static int32_t combineMost(commrt_context *context, std::vector<int64_t> &values) {
  return values.empty() ? COMMRT_OK
                        : combineRanks(context, "comparing the begins of collectives", values.data(),
                                       static_cast<int64_t>(values.size() * sizeof(int64_t)), combineMost);
}

int32_t commsched::runtime::exchangeBegins(commrt_context *context) {
  // The k-th collective that the members of a subset start is the same on all of them.
  std::vector<const commrt_group *> groups(context->groups.size());
  std::unordered_map<std::string, const commrt_group *> byName;
  for (auto &[name, group] : context->groups) {
    groups[group->number] = group.get();
    byName[name] = group.get();
  }
  struct Place {
    int64_t record, group, number;
  };
  std::vector<Place> places;
  std::vector<int64_t> counts(groups.size(), 0), begins;
  {
    Lock lock(context->mutex);
    for (size_t i = context->lastBegins.size(); i < context->trace.size(); ++i) {
      const commrt_trace_record &record = context->trace[i];
      if (record.kind > COMMRT_BARRIER || record.kind == COMMRT_SEND || record.kind == COMMRT_RECV)
        continue;
      int64_t group = byName[record.name]->number;
      places.push_back({static_cast<int64_t>(i), group, counts[group]++});
    }
    context->lastBegins.resize(context->trace.size(), INT64_MIN);
  }
  if (int32_t status = combineMost(context, counts))
    return status;
  std::vector<int64_t> offsets;
  int64_t total = 0;
  for (const commrt_group *group : groups) {
    offsets.push_back(total);
    total += counts[group->number] * std::max<int64_t>(1, group->subsets);
  }
  if (total > kMostBegins)
    return COMMRT_OK;
  begins.assign(total, INT64_MIN);
  auto slot = [&](const Place &place) {
    return offsets[place.group] + groups[place.group]->subset * counts[place.group] + place.number;
  };
  {
    Lock lock(context->mutex);
    for (const Place &place : places)
      begins[slot(place)] = context->trace[place.record].begin_ns;
  }
  if (int32_t status = combineMost(context, begins))
    return status;
  Lock lock(context->mutex);
  for (const Place &place : places)
    context->lastBegins[place.record] = begins[slot(place)];
  return COMMRT_OK;
}
