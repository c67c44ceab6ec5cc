/* opinfo.c - ops.def, expanded four ways: names, sizes, a visitor of addresses, and a call by number.
 *
 * This is what lets a device move an op around (queue it, translate its addresses, send it elsewhere) without
 * knowing what it computes. */
#include "backend/device_int.h"

const char *duet__op_name(duet_op op) {
    static const char *const names[] = {
#define DUET_OP(name, ptrs, weights) #name,
#include "backend/ops.def"
#undef DUET_OP
    };
    return names[op];
}

size_t duet__op_args_bytes(duet_op op) {
    static const size_t bytes[] = {
#define DUET_OP(name, ptrs, weights) sizeof(duet_##name##_args),
#include "backend/ops.def"
#undef DUET_OP
    };
    return bytes[op];
}

#define P(member)                                                                                            \
    if (a->member) a->member = v->pointer(v, a->member);
#define W(member)                                                                                            \
    if (duet__has(a->member)) a->member = v->weight(v, a->member);
#define DUET_OP(name, ptrs, weights)                                                                         \
    static void visit_##name(void *args, duet__visitor *v) {                                                 \
        duet_##name##_args *a = args;                                                                        \
        ptrs weights                                                                                         \
    }
#include "backend/ops.def"
#undef DUET_OP
#undef P
#undef W

void duet__op_visit(duet_op op, void *args, duet__visitor *visitor) {
    static void (*const visits[])(void *, duet__visitor *) = {
#define DUET_OP(name, ptrs, weights) visit_##name,
#include "backend/ops.def"
#undef DUET_OP
    };
    visits[op](args, visitor);
}

void duet__op_run(const duet_kernels *kernels, duet_op op, const duet_kernel_ctx *ctx, const void *args) {
    switch (op) {
#define DUET_OP(name, ptrs, weights)                                                                         \
    case DUET_OP_##name:                                                                                     \
        kernels->name(ctx, args);                                                                            \
        return;
#include "backend/ops.def"
#undef DUET_OP
    case DUET_N_OPS:
        return;
    }
}

size_t duet__op_scratch_bytes(const duet_kernels *kernels, duet_op op, const void *args, int n_threads) {
    switch (op) {
#define DUET_OP(name, ptrs, weights)                                                                         \
    case DUET_OP_##name:                                                                                     \
        return kernels->name##_scratch_bytes ? kernels->name##_scratch_bytes(args, n_threads) : 0;
#include "backend/ops.def"
#undef DUET_OP
    case DUET_N_OPS:
        break;
    }
    return 0;
}
