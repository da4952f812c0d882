//===- DeviceTest.cpp - Tests of the core's requests to a device backend ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A backend whose streams and events are numbers writes down what the core asks for. Its works never end by themselves:
// each test says when they do. Memory is of the host, but the core does not know.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Backend.h"
#include "RuntimeTestSupport.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

using namespace commsched::test;

namespace {
/// The one rank, its log, and what is in flight. Handles are indices, plus one.
struct Device {
  std::vector<std::string> log;
  std::vector<commrt_work *> open;
  const commrt_host *host = nullptr;
  void *context = nullptr;
  uintptr_t streams = 0, events = 0, works = 0;
  std::set<void *> memory, liveEvents;
  int32_t queryResult = 1;
  int64_t windows = 0;

  void add(const std::string &line) { log.push_back(line); }
  bool has(const std::string &line) const { return std::find(log.begin(), log.end(), line) != log.end(); }
  void completeAll() {
    std::vector<commrt_work *> works;
    works.swap(open);
    for (commrt_work *work : works) {
      std::memcpy(work->out, work->in, work->count * commrt_dtype_size(work->dtype));
      host->complete(work, COMMRT_OK, 0);
    }
  }
};
Device device;

std::string nameOf(const void *handle) { return std::to_string(reinterpret_cast<uintptr_t>(handle)); }
std::string numberOf(commrt_work *work) { return std::to_string(reinterpret_cast<uintptr_t>(work->state)); }

// What the table does not name is absent.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
const commrt_device_ops deviceOps = {
    sizeof(commrt_device_ops),
    [](void *, int32_t kind, int32_t lane, void **stream) {
      *stream = reinterpret_cast<void *>(++device.streams);
      return int32_t(COMMRT_OK);
    },
    [](void *, void *stream, void **event) {
      *event = reinterpret_cast<void *>(++device.events);
      device.liveEvents.insert(*event);
      device.add("record " + nameOf(stream) + " as " + nameOf(*event));
      return int32_t(COMMRT_OK);
    },
    [](void *, void *stream, void *event) {
      device.add("stream " + nameOf(stream) + " waits for " + nameOf(event));
      return int32_t(COMMRT_OK);
    },
    [](void *, void *, int32_t *done) {
      *done = device.queryResult;
      return int32_t(COMMRT_OK);
    },
    [](void *, void *event) { device.liveEvents.erase(event); },
    [](void *, commrt_work *work, void *stream) {
      device.add("stream " + nameOf(stream) + " waits for work " + numberOf(work));
      return int32_t(COMMRT_OK);
    },
    [](void *, commrt_work *work) { device.add("release work " + numberOf(work)); },
    [](void *) {
      device.add("begin");
      return int32_t(COMMRT_OK);
    },
    [](void *) {
      device.add("end");
      return int32_t(COMMRT_OK);
    },
    [](void *, int64_t bytes, void *stream, void **pointer) {
      *pointer = std::aligned_alloc(64, bytes);
      device.memory.insert(*pointer);
      return int32_t(COMMRT_OK);
    },
    [](void *, void *pointer, void *stream) {
      device.add("free on " + nameOf(stream));
      device.memory.erase(pointer);
      std::free(pointer);
      return int32_t(COMMRT_OK);
    },
    [](void *, void *to, const void *from, int64_t bytes, int32_t direction, void *stream, int64_t) {
      device.add("copy " + std::to_string(direction) + " on " + nameOf(stream));
      std::memcpy(to, from, bytes);
      return int32_t(COMMRT_OK);
    },
    [](void *, void *to, int32_t byte, int64_t bytes, void *) {
      std::memset(to, byte, bytes);
      return int32_t(COMMRT_OK);
    },
    [](void *, void *base, int64_t bytes, void **window, char *, size_t) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % 4096, 0U);
      EXPECT_EQ(bytes % 4096, 0);
      ++device.windows;
      *window = base;
      return int32_t(COMMRT_OK);
    },
    [](void *, void *window) { --device.windows; },
};
#pragma GCC diagnostic pop

commrt_backend makeTable(const char *name) {
  commrt_backend table = {};
  table.abi_version = COMMRT_BACKEND_ABI_VERSION;
  table.struct_size = sizeof(commrt_backend);
  table.name = name;
  table.flags = COMMRT_BACKEND_DEVICE | COMMRT_BACKEND_POLLED;
  table.open = [](const commrt_backend_config *, void **job, int32_t *ranks, int32_t *local, char *, size_t) {
    device = {};
    *job = &device;
    *ranks = 1;
    *local = -1;
    return int32_t(COMMRT_OK);
  };
  table.close = [](void *) {};
  table.attach = [](void *job, int32_t, const commrt_host *host, void *context, void **peer) {
    device.host = host;
    device.context = context;
    *peer = job;
    return int32_t(COMMRT_OK);
  };
  table.detach = [](void *) { device.completeAll(); };
  table.group_create = [](void *peer, const char *, const int32_t *, int32_t, int32_t, void **group, char *, size_t) {
    *group = peer;
    return int32_t(COMMRT_OK);
  };
  table.group_destroy = [](void *) {};
  table.submit = [](void *, commrt_work *work) {
    work->state = reinterpret_cast<void *>(++device.works);
    device.add("submit " + numberOf(work) + " of " + nameOf(work->stream) + " with rows " +
               std::to_string(work->in_outer) + ", " + std::to_string(work->out_outer));
    device.open.push_back(work);
    return int32_t(COMMRT_OK);
  };
  table.progress = [](void *) { return int32_t(COMMRT_OK); };
  table.combine = [](void *, void *, int64_t, commrt_combine_fn, int64_t, char *, size_t) {
    return int32_t(COMMRT_OK);
  };
  table.abort = [](void *, int32_t, const char *) {};
  table.describe = [](void *, char *text, size_t size) {
    *text = 0;
    return int32_t(COMMRT_OK);
  };
  table.segment_create = [](void *, int64_t, int64_t bytes, void **base, char *, size_t) {
    static std::vector<char> memory;
    memory.assign(bytes + 4096, 0);
    *base = memory.data() + (4096 - reinterpret_cast<uintptr_t>(memory.data()) % 4096);
    return int32_t(COMMRT_OK);
  };
  table.device = &deviceOps;
  return table;
}

void onDevice(const std::function<void(commrt_context *, commrt_group *)> &body) {
  static const commrt_backend table = makeTable("test-device");
  ASSERT_EQ(commrt_backend_register(&table), COMMRT_OK);
  RunOptions how;
  how.backend = "test-device";
  expectAllOk(runRanks(1, how, [&](commrt_context *context) { body(context, worldGroup(context)); }));
  EXPECT_TRUE(device.memory.empty());
  EXPECT_TRUE(device.liveEvents.empty());
  EXPECT_EQ(device.windows, 0);
}

commrt_token *startReduce(commrt_group *group, float &in, float &out) {
  commrt_token *token = nullptr;
  EXPECT_EQ(commrt_all_reduce_start(group, &in, &out, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token), COMMRT_OK);
  return token;
}

/// A wait returns at once, and tells the stream; a completed work can still be waited for until its token goes.
TEST(Device, WaitsMakeTheStreamWait) {
  onDevice([](commrt_context *context, commrt_group *group) {
    float in = 3, out = 0;
    commrt_token *token = startReduce(group, in, out);
    EXPECT_TRUE(device.has("submit 1 of 1 with rows 1, 1"));
    ASSERT_EQ(commrt_wait(token, nullptr), COMMRT_OK);
    EXPECT_TRUE(device.has("stream 1 waits for work 1"));
    int32_t done = 1;
    ASSERT_EQ(commrt_test(token, &done), COMMRT_OK);
    EXPECT_EQ(done, 0);
    device.completeAll();
    commrt_stream *second;
    ASSERT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, 1, &second), COMMRT_OK);
    ASSERT_EQ(commrt_wait(token, second), COMMRT_OK);
    EXPECT_TRUE(device.has("stream 2 waits for work 1"));
    ASSERT_EQ(commrt_wait_host(token, -1), COMMRT_OK);
    EXPECT_EQ(out, 3);
    EXPECT_FALSE(device.has("release work 1"));
    commrt_token_release(token);
    ASSERT_EQ(commrt_progress(context), COMMRT_OK);
    EXPECT_TRUE(device.has("release work 1"));
  });
}

/// A backend that is older than timed events says that it has none, and goes on.
TEST(Device, TimedEventsMayBeAbsent) {
  onDevice([](commrt_context *context, commrt_group *group) {
    commrt_event *event = nullptr;
    commrt_stream *stream = nullptr;
    EXPECT_EQ(commrt_event_record_timed(context, nullptr, &event), COMMRT_ERR_UNSUPPORTED);
    EXPECT_EQ(event, nullptr);
    EXPECT_EQ(commrt_group_stream(group, 0, &stream), COMMRT_ERR_UNSUPPORTED);
    EXPECT_EQ(commrt_progress(context), COMMRT_OK);
  });
}

/// An event covers what was put on its stream and the collectives that were started there, and nothing later.
TEST(Device, EventsCoverTheirStreamAndItsStarts) {
  onDevice([](commrt_context *context, commrt_group *group) {
    float in = 3, out[3] = {};
    commrt_stream *second;
    ASSERT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, 1, &second), COMMRT_OK);
    ASSERT_EQ(commrt_set_stream(context, second), COMMRT_OK);
    commrt_token *covered = startReduce(group, in, out[0]);
    commrt_event *event;
    ASSERT_EQ(commrt_event_record(context, second, &event), COMMRT_OK);
    commrt_token *later = startReduce(group, in, out[1]);
    device.log.assign(1, "");
    ASSERT_EQ(commrt_event_await(context, nullptr, event), COMMRT_OK);
    EXPECT_EQ(device.log.size(), 3U);
    EXPECT_TRUE(device.has("stream 1 waits for work 1"));
    EXPECT_TRUE(std::any_of(device.log.begin(), device.log.end(),
                            [](const std::string &line) { return line.rfind("stream 1 waits for ", 0) == 0; }));
    int32_t done = 1;
    ASSERT_EQ(commrt_event_test(event, &done), COMMRT_OK);
    EXPECT_EQ(done, 0);
    device.completeAll();
    ASSERT_EQ(commrt_event_test(event, &done), COMMRT_OK);
    EXPECT_EQ(done, 1);
    device.queryResult = 0; // what the stream itself does is not done
    ASSERT_EQ(commrt_event_test(event, &done), COMMRT_OK);
    EXPECT_EQ(done, 0);
    device.queryResult = 1;
    for (commrt_token *token : {covered, later})
      commrt_token_release(token);
  });
}

/// The backend gets a coalesced list between a begin and an end, and rows as they are.
TEST(Device, ListsAndRows) {
  onDevice([](commrt_context *context, commrt_group *group) {
    float in[6] = {}, out[6] = {};
    commrt_token *token;
    ASSERT_EQ(commrt_coalesce_begin(context), COMMRT_OK);
    ASSERT_EQ(commrt_all_gather_start(group, in, out, 3, 2, COMMRT_F32, -1, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_coalesce_end(context, &token), COMMRT_OK);
    ASSERT_EQ(device.log.size(), 3U);
    EXPECT_EQ(device.log[0], "begin");
    EXPECT_NE(device.log[1].find("with rows 1, 3"), std::string::npos);
    EXPECT_EQ(device.log[2], "end");
    device.completeAll();
    ASSERT_EQ(finish(token), COMMRT_OK);
  });
}

/// A buffer stays while a collective uses it, and is then given back on the stream, behind what other streams do.
TEST(Device, MemoryGoesBackInTheOrderOfStreams) {
  onDevice([](commrt_context *context, commrt_group *group) {
    commrt_stream *second;
    ASSERT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, 1, &second), COMMRT_OK);
    void *in, *out;
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 4, &in), COMMRT_OK);
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 4, &out), COMMRT_OK);
    float value = 7;
    ASSERT_EQ(commrt_copy(context, in, &value, 4, COMMRT_COPY_TO_DEVICE, nullptr), COMMRT_OK);
    commrt_token *token;
    ASSERT_EQ(commrt_all_reduce_start(group, in, out, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token), COMMRT_OK);
    ASSERT_EQ(commrt_free(context, in), COMMRT_OK);
    ASSERT_EQ(commrt_progress(context), COMMRT_OK);
    EXPECT_FALSE(device.has("free on 1"));
    device.completeAll();
    EXPECT_EQ(device.memory.size(), 2U); // not by the thread that completes
    device.log.clear();
    ASSERT_EQ(commrt_progress(context), COMMRT_OK);
    EXPECT_EQ(device.memory.size(), 1U);
    EXPECT_EQ(device.log.back(), "free on 1");
    EXPECT_TRUE(std::any_of(device.log.begin(), device.log.end(),
                            [](const std::string &line) { return line.rfind("stream 1 waits for ", 0) == 0; }));
    ASSERT_EQ(commrt_copy(context, &value, out, 4, COMMRT_COPY_FROM_DEVICE, second), COMMRT_OK);
    EXPECT_TRUE(device.has("copy 1 on 2"));
    ASSERT_EQ(finish(token), COMMRT_OK);
    ASSERT_EQ(commrt_free(context, out), COMMRT_OK);
  });
}

/// A computation that only the host can do sees the operands there, in the order of its stream.
TEST(Device, ComputationsOnTheHost) {
  onDevice([](commrt_context *context, commrt_group *) {
    float host[3] = {1, 2, 0};
    void *data[3];
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 4, &data[i]), COMMRT_OK);
      ASSERT_EQ(commrt_copy(context, data[i], &host[i], 4, COMMRT_COPY_TO_DEVICE, nullptr), COMMRT_OK);
    }
    const int64_t meta[] = {COMMRT_F32, 0, 1, 1, COMMRT_F32, 0, 1, 1, COMMRT_F32, 3, 1, 1, 0};
    ASSERT_EQ(commrt_compute(context, "aten.add", 3, data, meta, 0), COMMRT_OK);
    ASSERT_EQ(commrt_copy(context, &host[2], data[2], 4, COMMRT_COPY_FROM_DEVICE, nullptr), COMMRT_OK);
    EXPECT_EQ(host[2], 3);
    for (void *pointer : data)
      ASSERT_EQ(commrt_free(context, pointer), COMMRT_OK);
  });
}

/// An arena is whole pages, registered until the program ends.
TEST(Device, ArenasAreRegisteredForTheirGroup) {
  onDevice([](commrt_context *context, commrt_group *group) {
    void *small;
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, 100, &small), COMMRT_OK);
    ASSERT_EQ(commrt_arena_create(group, "first", 5000), COMMRT_OK);
    ASSERT_EQ(commrt_arena_create(group, "empty", 0), COMMRT_OK);
    EXPECT_EQ(device.windows, 1);
    void *arena;
    int64_t offset;
    ASSERT_EQ(commrt_arena_find(context, "first", &arena), COMMRT_OK);
    ASSERT_EQ(commrt_symmetric_offset(context, arena, &offset), COMMRT_OK);
    EXPECT_EQ(offset, 4096);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    EXPECT_EQ(device.windows, 0);
    ASSERT_EQ(commrt_free(context, small), COMMRT_OK);
  });
}

/// Tables and operations of an older and a newer size; what is required has to be there.
TEST(Device, TablesOfOtherSizes) {
  static commrt_device_ops older = deviceOps;
  older.struct_size = COMMRT_DEVICE_REQUIRED_SIZE; // neither windows nor images
  struct Newer {
    commrt_device_ops ops;
    void (*unknown)();
  };
  static Newer newer = {deviceOps, nullptr};
  newer.ops.struct_size = sizeof(Newer);
  static commrt_backend tables[2] = {makeTable("older-device"), makeTable("newer-device")};
  tables[0].device = &older;
  tables[1].device = &newer.ops;
  for (commrt_backend &table : tables) {
    ASSERT_EQ(commrt_backend_register(&table), COMMRT_OK);
    RunOptions how;
    how.backend = table.name;
    expectAllOk(runRanks(1, how, [&](commrt_context *context) {
      ASSERT_EQ(commrt_arena_create(worldGroup(context), "arena", 100), COMMRT_OK);
      EXPECT_EQ(device.windows, &table == &tables[1] ? 1 : 0);
      ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    }));
  }
  // A table without operations, and operations that end too early or lack one.
  commrt_backend bad = makeTable("bad-device");
  bad.struct_size = offsetof(commrt_backend, device);
  EXPECT_EQ(commrt_backend_register(&bad), COMMRT_ERR_INVALID);
  bad = makeTable("bad-device");
  bad.device = nullptr;
  EXPECT_EQ(commrt_backend_register(&bad), COMMRT_ERR_INVALID);
  commrt_device_ops ops = deviceOps;
  ops.struct_size = COMMRT_DEVICE_REQUIRED_SIZE - 1;
  bad.device = &ops;
  EXPECT_EQ(commrt_backend_register(&bad), COMMRT_ERR_INVALID);
  ops = deviceOps;
  ops.copy = nullptr;
  EXPECT_EQ(commrt_backend_register(&bad), COMMRT_ERR_INVALID);
}

/// Tests that images and launches reach a table that has the functions, and that one without them says so.
TEST(Device, ImagesAndLaunches) {
  const commrt_image_kernel kernels[] = {{"kernel", nullptr, 0, nullptr}};
  const commrt_image_info info = {sizeof(info), "image", "code", 4, kernels, 1};
  for (bool hasImages : {true, false}) {
    static commrt_device_ops ops[2];
    static commrt_backend tables[2] = {makeTable("no-images"), makeTable("with-images")};
    ops[hasImages] = deviceOps;
    if (hasImages) {
      ops[hasImages].image_load = [](void *, const commrt_image_info *info, void **image, char *, size_t) {
        *image = reinterpret_cast<void *>(7);
        device.add("load " + std::string(static_cast<const char *>(info->code), info->code_bytes));
        return int32_t(COMMRT_OK);
      };
      ops[hasImages].image_unload = [](void *, void *image, int32_t idle) {
        device.add("unload " + nameOf(image) + (idle ? " idle" : ""));
      };
      ops[hasImages].launch = [](void *, void *image, const commrt_kernel_call *call, void *stream, char *text,
                                 size_t size) {
        device.add("launch " + nameOf(image) + " " + call->kernel + " " + std::to_string(call->grid[0]) + " x " +
                   std::to_string(call->block[2]) + " on " + nameOf(stream));
        bool isKnown = std::string(call->kernel) == "kernel";
        std::strncpy(text, isKnown ? "" : "no such kernel", size);
        return int32_t(isKnown ? COMMRT_OK : COMMRT_ERR_BACKEND);
      };
    }
    tables[hasImages].device = &ops[hasImages];
    ASSERT_EQ(commrt_backend_register(&tables[hasImages]), COMMRT_OK);
    RunOptions how;
    how.backend = tables[hasImages].name;
    auto results = runRanks(1, how, [&](commrt_context *context) {
      commrt_image *image = nullptr;
      if (!hasImages) {
        EXPECT_EQ(commrt_image_load(context, &info, &image), COMMRT_ERR_UNSUPPORTED);
        return;
      }
      ASSERT_EQ(commrt_image_load(context, &info, &image), COMMRT_OK);
      ASSERT_EQ(commrt_kernel_launch(image, "kernel", 2, 1, 1, 1, 1, 3, 0, nullptr, nullptr), COMMRT_OK);
      EXPECT_TRUE(device.has("load code"));
      EXPECT_TRUE(device.has("launch 7 kernel 2 x 3 on 1"));
      ASSERT_EQ(commrt_image_unload(image), COMMRT_OK);
      EXPECT_TRUE(device.has("unload 7 idle"));
      ASSERT_EQ(commrt_image_load(context, &info, &image), COMMRT_OK);
      EXPECT_EQ(commrt_kernel_launch(image, "other", 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr), COMMRT_ERR_BACKEND);
    });
    EXPECT_EQ(device.has("unload 7"), hasImages); // with the context
    if (hasImages)
      expectAllFailed(results, COMMRT_ERR_BACKEND, {"kernel 'other' of image 'image': no such kernel"});
    else
      expectAllFailed(results, COMMRT_ERR_UNSUPPORTED, {"backend 'no-images' loads no images of kernels"});
  }
}

/// Tests that a computation on a device without kernels is the host's, or an error where kernels are required.
TEST(Device, KernelsMayBeRequired) {
  static const commrt_backend table = makeTable("no-kernels");
  ASSERT_EQ(commrt_backend_register(&table), COMMRT_OK);
  RunOptions how;
  how.backend = table.name;
  auto compute = [](commrt_context *context) {
    const int64_t meta[] = {COMMRT_F32, 0, 1, 1, COMMRT_F32, COMMRT_OPERAND_WRITTEN | COMMRT_OPERAND_OUTPUT, 1, 1, 0};
    float in = -3, out = 0;
    void *operands[] = {&in, &out};
    int32_t status = commrt_compute(context, "neg", 2, operands, meta, 0);
    EXPECT_EQ(out, status == COMMRT_OK ? 3 : 0);
  };
  expectAllOk(runRanks(1, how, compute));
  setenv("COMMRT_DEVICE_KERNELS", "require", 1);
  expectAllFailed(runRanks(1, how, compute), COMMRT_ERR_UNSUPPORTED,
                  {"no kernels for the device: the backend has none"});
  unsetenv("COMMRT_DEVICE_KERNELS");
}

/// Without the flag nobody looks at the operations, and copies are the caller's.
TEST(Device, HostBackendsCopyAtOnce) {
  expectAllOk(runRanks(2, {}, [](commrt_context *context) {
    int from = 5, to = 0;
    ASSERT_EQ(commrt_copy(context, &to, &from, sizeof(to), COMMRT_COPY_ON_DEVICE, nullptr), COMMRT_OK);
    EXPECT_EQ(to, 5);
  }));
  auto results = runRanks(1, {}, [](commrt_context *context) {
    int from = 5;
    EXPECT_EQ(commrt_copy(context, nullptr, &from, sizeof(from), COMMRT_COPY_ON_DEVICE, nullptr), COMMRT_ERR_INVALID);
  });
  expectAllFailed(results, COMMRT_ERR_INVALID, {"commrt_copy: a negative size"});
}

TEST(Device, BackendsAreFoundByName) {
  const commrt_backend *backend = nullptr;
  char text[1024];
  ASSERT_EQ(commrt_backend_find("threads", &backend, text, sizeof(text)), COMMRT_OK);
  EXPECT_STREQ(backend->name, "threads");
  EXPECT_EQ(commrt_backend_find("nonsense", &backend, text, sizeof(text)), COMMRT_ERR_BACKEND);
  EXPECT_EQ(backend, nullptr);
  EXPECT_NE(std::string(text).find("no backend 'nonsense'"), std::string::npos);
}
} // namespace
