//===- ImagesTest.cpp - Kernels that programs carry -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One kernel, as PTX and as a host build: GPUs run the one, every other backend and the emulated CUDA runtime the
// other.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"

using namespace commsched::test;

namespace {
/// void scale(float *data, int64_t count, float factor), by clang 22 for compute capability 7.0.
constexpr char scalePtx[] = R"(.version 7.5
.target sm_70
.address_size 64
.visible .entry scale(.param .u64 data, .param .u64 count, .param .f32 factor)
{
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<11>;
  ld.param.b64 %rd4, [count];
  ld.param.b64 %rd5, [data];
  cvta.to.global.u64 %rd1, %rd5;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r4, %ctaid.x;
  mul.wide.u32 %rd6, %r2, %r4;
  mov.u32 %r5, %tid.x;
  cvt.u64.u32 %rd7, %r5;
  add.s64 %rd10, %rd6, %rd7;
  setp.ge.s64 %p1, %rd10, %rd4;
  @%p1 bra $done;
  ld.param.b32 %r1, [factor];
  mov.u32 %r3, %nctaid.x;
  mul.wide.u32 %rd2, %r2, %r3;
  shl.b64 %rd8, %rd10, 2;
  add.s64 %rd9, %rd1, %rd8;
  shl.b64 %rd3, %rd2, 2;
$next:
  ld.global.b32 %r6, [%rd9];
  mul.rn.f32 %r7, %r1, %r6;
  st.global.b32 [%rd9], %r7;
  add.s64 %rd10, %rd10, %rd2;
  add.s64 %rd9, %rd9, %rd3;
  setp.lt.s64 %p2, %rd10, %rd4;
  @%p2 bra $next;
$done:
  ret;
}
)";

void scaleOnHost(void *const *arguments, const uint32_t *grid, const uint32_t *block) {
  float *data = *static_cast<float **>(arguments[0]);
  int64_t count = *static_cast<int64_t *>(arguments[1]), threads = int64_t(grid[0]) * block[0];
  float factor = *static_cast<float *>(arguments[2]);
  for (int64_t thread = 0; thread < threads; ++thread)
    for (int64_t i = thread; i < count; i += threads)
      data[i] *= factor;
}

constexpr int64_t scaleBytes[] = {sizeof(float *), sizeof(int64_t), sizeof(float)};
constexpr commrt_image_kernel scaleKernels[] = {{"scale", scaleBytes, 3, scaleOnHost}};
constexpr commrt_image_info scaleInfo = {sizeof(commrt_image_info), "test.scale", scalePtx,
                                         sizeof(scalePtx),          scaleKernels, 1};
constexpr int64_t count = 1000;

commrt_image *load(commrt_context *context, const commrt_image_info &info = scaleInfo) {
  commrt_image *image = nullptr;
  EXPECT_EQ(commrt_image_load(context, &info, &image), COMMRT_OK);
  return image;
}

/// data *= factor with fewer threads than elements.
int32_t scale(commrt_image *image, float *data, float factor, commrt_stream *stream = nullptr) {
  int64_t n = count;
  void *arguments[] = {&data, &n, &factor};
  int32_t status = commrt_kernel_launch(image, "scale", 3, 1, 1, 64, 1, 1, 0, arguments, stream);
  // The values were copied.
  n = -1;
  data = nullptr;
  return status;
}

/// Tests that launches run in the order of their stream, and that events order two streams.
TEST(Images, LaunchesFollowTheirStream) {
  expectAllOk(runRanks(2, {}, [](commrt_context *context) {
    commrt_image *image = load(context);
    Memory<float> data(context, count, 1);
    commrt_stream *second = nullptr;
    commrt_event *event = nullptr;
    ASSERT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, 1, &second), COMMRT_OK);
    for (int i = 0; i < 10; ++i)
      ASSERT_EQ(scale(image, data.data(), i % 2 ? 3 : 0.5F), COMMRT_OK);
    ASSERT_EQ(commrt_event_record(context, nullptr, &event), COMMRT_OK);
    ASSERT_EQ(commrt_event_await(context, second, event), COMMRT_OK);
    ASSERT_EQ(scale(image, data.data(), 32, second), COMMRT_OK);
    ASSERT_EQ(commrt_event_release(event), COMMRT_OK);
    ASSERT_EQ(commrt_event_record(context, second, &event), COMMRT_OK);
    ASSERT_EQ(commrt_event_await(context, nullptr, event), COMMRT_OK);
    EXPECT_EQ(data.values(), std::vector<float>(count, 243));
    ASSERT_EQ(commrt_event_release(event), COMMRT_OK);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

/// Tests that a kernel reads what a collective wrote, and a collective what a kernel wrote.
TEST(Images, LaunchesBetweenCollectives) {
  expectAllOk(runRanks(2, {}, [](commrt_context *context) {
    commrt_image *image = load(context);
    commrt_group *group = worldGroup(context);
    Memory<float> in(context, count, 1 + static_cast<float>(commrt_rank(context))), out(context, count, 0);
    for (float factor : {2.0F, 0.25F}) {
      commrt_token *token = nullptr;
      ASSERT_EQ(scale(image, in.data(), factor), COMMRT_OK);
      ASSERT_EQ(commrt_all_reduce_start(group, in.data(), out.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
                COMMRT_OK);
      ASSERT_EQ(finish(token), COMMRT_OK);
      ASSERT_EQ(scale(image, out.data(), 10), COMMRT_OK);
    }
    EXPECT_EQ(out.values(), std::vector<float>(count, 15));
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

/// Tests that an image is found by its name until it is unloaded, and that unloading lets its kernels end.
TEST(Images, NamesAndLifetime) {
  auto results = runRanks(1, {}, [](commrt_context *context) {
    commrt_image *image = load(context), *found = nullptr;
    EXPECT_EQ(load(context), image);
    ASSERT_EQ(commrt_image_find(context, "test.scale", &found), COMMRT_OK);
    EXPECT_EQ(found, image);
    Memory<float> data(context, count, 1);
    float *address = data.data();
    int64_t n = count;
    float factor = 3;
    void *arguments[] = {&address, &n, &factor};
    ASSERT_EQ(commrt_kernel_launch(image, "scale", 0, 1, 1, 64, 1, 1, 0, arguments, nullptr), COMMRT_OK);
    ASSERT_EQ(scale(image, address, 2), COMMRT_OK);
    ASSERT_EQ(commrt_image_unload(image), COMMRT_OK);
    EXPECT_EQ(data.values(), std::vector<float>(count, 2)); // the grid without blocks did nothing
    // Its name is free again.
    ASSERT_EQ(scale(load(context), data.data(), 4), COMMRT_OK);
    EXPECT_EQ(data[0], 8);
    EXPECT_EQ(commrt_image_unload(nullptr), COMMRT_OK);
    EXPECT_EQ(commrt_image_find(context, "other", &found), COMMRT_ERR_INVALID);
    EXPECT_EQ(found, nullptr);
  });
  expectAllFailed(results, COMMRT_ERR_INVALID, {"no image 'other' was loaded"});
}

/// Tests that what cannot be launched or loaded says why.
TEST(Images, WrongCallsSayWhatIsWrong) {
  using Body = std::function<int32_t(commrt_context *)>;
  auto launch = [](const char *kernel, int64_t gridY, int64_t blockX, int64_t blockZ, int64_t shared) {
    return [=](commrt_context *context) {
      return commrt_kernel_launch(load(context), kernel, 1, gridY, 1, blockX, 1, blockZ, shared, nullptr, nullptr);
    };
  };
  auto loading = [](std::function<void(commrt_image_info &)> change) {
    return [=](commrt_context *context) {
      commrt_image_info info = scaleInfo;
      commrt_image *image = load(context);
      change(info);
      return commrt_image_load(context, &info, &image);
    };
  };
  static const int64_t noBytes[] = {0};
  static const commrt_image_kernel twice[] = {scaleKernels[0], scaleKernels[0]}, empty[] = {{"k", noBytes, 1, nullptr}},
                                   nameless[] = {{}};
  const std::vector<std::pair<const char *, Body>> cases = {
      {"kernel 'scale' of image 'test.scale': a grid of 1 x 65536 x 1 blocks, expected at most 2147483647 x 65535 x "
       "65535",
       launch("scale", 65536, 1, 1, 0)},
      {"a grid of 1 x -1 x 1 blocks", launch("scale", -1, 1, 1, 0)},
      {"blocks of 1024 x 1 x 2 threads, expected 1 to 1024 x 1024 x 64, and at most 1024 together",
       launch("scale", 1, 1024, 2, 0)},
      {"blocks of 0 x 1 x 1 threads", launch("scale", 1, 0, 1, 0)},
      {"-1 bytes of shared memory", launch("scale", 1, 1, 1, -1)},
      {"the kernel's name is NULL", launch(nullptr, 1, 1, 1, 0)},
      {"another image has the name 'test.scale'", loading([](commrt_image_info &info) { --info.code_bytes; })},
      {"the size of its code is 0 bytes", loading([](commrt_image_info &info) { info.code_bytes = 0; })},
      {"the structure is too small", loading([](commrt_image_info &info) { info.struct_size = 8; })},
      {"two kernels have the name 'scale'", loading([](commrt_image_info &info) {
         info.kernels = twice;
         info.num_kernels = 2;
       })},
      {"argument 0 of 'k' has 0 bytes", loading([](commrt_image_info &info) { info.kernels = empty; })},
      {"kernel 0 has no name", loading([](commrt_image_info &info) { info.kernels = nameless; })},
      {"it has -1 kernels", loading([](commrt_image_info &info) { info.num_kernels = -1; })},
      {"a launch on a stream of communication",
       [](commrt_context *context) {
         commrt_stream *stream = nullptr;
         commrt_stream_get(context, COMMRT_STREAM_COMM, 0, &stream);
         return scale(load(context), nullptr, 1, stream);
       }},
  };
  for (const auto &[text, body] : cases)
    expectAllFailed(
        runRanks(1, {}, [&body = body](commrt_context *context) { EXPECT_EQ(body(context), COMMRT_ERR_INVALID); }),
        COMMRT_ERR_INVALID, {text});
}

/// Tests that a kernel that the image lacks is an error of every rank.
TEST(Images, MissingKernels) {
  auto results = runRanks(2, {}, [](commrt_context *context) {
    if (commrt_rank(context) == 0)
      EXPECT_NE(commrt_kernel_launch(load(context), "scales", 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr), COMMRT_OK);
    EXPECT_NE(commrt_program_end(context), COMMRT_OK);
  });
  for (const RankResult &result : results) {
    EXPECT_NE(result.status, COMMRT_OK);
    EXPECT_NE(result.message.find("kernel 'scales' of image 'test.scale'"), std::string::npos) << result.message;
  }
}
} // namespace
