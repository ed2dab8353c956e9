#include "tests/sim-driver/api/driver_fixture.h"

namespace tally::sim_driver {

// fill(out, value, n)            out[i] = value
// increment(out, n)              out[i] += 1
// scale(out, in, n)              out[i] = in[i] * factor (a __constant__)
// wait_for_flag(flag, out, v)    spins until *flag != 0, then *out = v
// copy_word(out, in)             *out = *in
// store_at(address)              *address = 7: for addresses that are not there
// trap()
// reverse(out)                   through dynamic shared memory, one block
// struct_sum(out, {a, b, c})     a 12-byte parameter
// greet(n)                       printf("block %d says %d\n", ctaid, n)
// bounded()                      .maxntid 64
// count_blocks(out)              atomicAdd(out, 1) by thread 0 of every block
const char* const kTestPtx = R"ptx(
.version 8.0
.target sm_80
.address_size 64

.extern .func (.param .b32 func_retval0) vprintf (.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);

.visible .global .align 4 .u32 counter = 41;
.visible .const .align 4 .u32 factor = 3;
.global .align 1 .b8 $str[18] = {98, 108, 111, 99, 107, 32, 37, 100, 32, 115, 97, 121, 115, 32, 37, 100, 10, 0};
.extern .shared .align 4 .b8 scratch[];

.visible .entry fill(.param .u64 out, .param .u32 value, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra $done;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r6, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.u32 [%rd4], %r1;
$done:
  ret;
}

.visible .entry increment(.param .u64 out, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra $done;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r6, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r1, [%rd4];
  add.u32 %r1, %r1, 1;
  st.global.u32 [%rd4], %r1;
$done:
  ret;
}

.visible .entry scale(.param .u64 out, .param .u64 in, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  ld.param.u32 %r2, [n];
  mov.u32 %r6, %tid.x;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra $done;
  mul.wide.u32 %rd3, %r6, 4;
  add.s64 %rd4, %rd2, %rd3;
  add.s64 %rd5, %rd1, %rd3;
  ld.global.u32 %r1, [%rd4];
  ld.const.u32 %r3, [factor];
  mul.lo.u32 %r4, %r1, %r3;
  st.global.u32 [%rd5], %r4;
$done:
  ret;
}

.visible .entry wait_for_flag(.param .u64 flag, .param .u64 out, .param .u32 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [flag];
  ld.param.u64 %rd2, [out];
  ld.param.u32 %r2, [value];
$again:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra $again;
  st.volatile.global.u32 [%rd2], %r2;
  ret;
}

.visible .entry copy_word(.param .u64 out, .param .u64 in)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  ld.volatile.global.u32 %r1, [%rd2];
  st.volatile.global.u32 [%rd1], %r1;
  ret;
}

.visible .entry store_at(.param .u64 address)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [address];
  mov.u32 %r1, 7;
  st.global.u32 [%rd1], %r1;
  ret;
}

.visible .entry trap_now()
{
  trap;
  ret;
}

.visible .entry reverse(.param .u64 out)
{
  .reg .b32 %r<9>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, scratch;
  shl.b32 %r4, %r1, 2;
  add.u32 %r5, %r3, %r4;
  st.shared.u32 [%r5], %r1;
  bar.sync 0;
  sub.u32 %r6, %r2, %r1;
  add.u32 %r6, %r6, -1;
  shl.b32 %r6, %r6, 2;
  add.u32 %r6, %r6, %r3;
  ld.shared.u32 %r7, [%r6];
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r7;
  ret;
}

.visible .entry struct_sum(.param .u64 out, .param .align 4 .b8 words[12])
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [words];
  ld.param.u32 %r2, [words+4];
  ld.param.u32 %r3, [words+8];
  add.u32 %r4, %r1, %r2;
  add.u32 %r5, %r4, %r3;
  st.global.u32 [%rd1], %r5;
  ret;
}

.visible .entry greet(.param .u32 n)
{
  .local .align 8 .b8 stack[8];
  .reg .b32 %r<4>;
  .reg .b64 %rd<5>;
  ld.param.u32 %r1, [n];
  mov.u64 %rd1, stack;
  cvta.local.u64 %rd2, %rd1;
  mov.u32 %r2, %ctaid.x;
  st.local.v2.u32 [%rd1], {%r2, %r1};
  mov.u64 %rd3, $str;
  cvta.global.u64 %rd4, %rd3;
  {
  .param .b64 param0;
  st.param.b64 [param0], %rd4;
  .param .b64 param1;
  st.param.b64 [param1], %rd2;
  .param .b32 retval0;
  call.uni (retval0), vprintf, (param0, param1);
  ld.param.b32 %r3, [retval0];
  }
  ret;
}

.visible .entry bounded()
.maxntid 64, 1, 1
{
  ret;
}

.visible .entry count_blocks(.param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra $done;
  atom.global.add.u32 %r2, [%rd1], 1;
$done:
  ret;
}
)ptx";

}  // namespace tally::sim_driver
