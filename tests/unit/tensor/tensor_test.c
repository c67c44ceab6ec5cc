/* tensor_test.c - half-precision conversion over every bit pattern, shape overflow, dtype names. */
#include "harness/harness.h"

#include "tensor/tensor.h"

TEST(f16_round_trips_every_value, 5000) {
    for (uint32_t h = 0; h < 65536; h++) {
        float wide = duet_f16_to_f32((uint16_t)h);
        if (isnan(wide)) {
            EXPECT(isnan(duet_f16_to_f32(duet_f32_to_f16(wide))));
            continue;
        }
        EXPECT_EQ(duet_f32_to_f16(wide), h);
    }
}

TEST(f16_rounds_to_nearest_even, 5000) {
    for (uint32_t h = 0; h < 0x7bff; h++) { /* positive finite neighbours h, h+1 */
        float low = duet_f16_to_f32((uint16_t)h), high = duet_f16_to_f32((uint16_t)(h + 1));
        float middle = 0.5f * (low + high);
        EXPECT_EQ(duet_f32_to_f16(middle), h & 1 ? h + 1 : h);
        EXPECT_EQ(duet_f32_to_f16(nextafterf(middle, 1e9f)), h + 1);
        EXPECT_EQ(duet_f32_to_f16(nextafterf(middle, 0.0f)), h);
    }
    EXPECT_EQ(duet_f32_to_f16(65519.0f), 0x7bff);
    EXPECT_EQ(duet_f32_to_f16(65520.0f), 0x7c00);
}

TEST(bf16_rounds_to_nearest_even, 5000) {
    for (uint32_t h = 0x0080; h < 0x7f7f; h++) {
        float low = duet_bf16_to_f32((uint16_t)h), high = duet_bf16_to_f32((uint16_t)(h + 1));
        float middle = low + 0.5f * (high - low);
        EXPECT_EQ(duet_f32_to_bf16(low), h);
        EXPECT_EQ(duet_f32_to_bf16(middle), h & 1 ? h + 1 : h);
    }
    EXPECT(isnan(duet_bf16_to_f32(duet_f32_to_bf16(NAN))));
}

TEST(shape_products_refuse_overflow, 1000) {
    int64_t n;
    EXPECT(duet_shape_elems(&DUET_SHAPE(2, 3, 4), &n));
    EXPECT_EQ(n, 24);
    EXPECT(!duet_shape_elems(&DUET_SHAPE(INT64_MAX, 2), &n));
    EXPECT(!duet_shape_elems(&DUET_SHAPE(-1), &n));
    char text[64];
    EXPECT_STR(duet_shape_text(&DUET_SHAPE(2, 3), text, sizeof text), "[2, 3]");
}
