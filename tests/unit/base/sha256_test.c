/* sha256_test.c - the standard's vectors, and every way of cutting a message. */
#include "harness/harness.h"

#include "base/sha256.h"

static const char *hex_of(const void *data, size_t bytes, size_t step) {
    static char hex[65];
    duet_sha256 h;
    duet_sha256_init(&h);
    for (size_t at = 0; at < bytes; at += step)
        duet_sha256_add(&h, (const char *)data + at, bytes - at < step ? bytes - at : step);
    duet_sha256_hex(&h, hex);
    return hex;
}

TEST(sha256_standard_vectors, 2000) {
    EXPECT_STR(hex_of("", 0, 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_STR(hex_of("abc", 3, 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    EXPECT_STR(hex_of(two, strlen(two), 100),
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static char million[1000000];
    memset(million, 'a', sizeof million);
    EXPECT_STR(hex_of(million, sizeof million, 777),
               "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(sha256_does_not_depend_on_cuts, 2000) {
    char data[300], whole[65];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 37);
    for (size_t n = 0; n <= sizeof data; n += 13) {
        strcpy(whole, hex_of(data, n, 1000));
        for (size_t step = 1; step < 140; step += 3) EXPECT_STR(hex_of(data, n, step), whole);
    }
}
