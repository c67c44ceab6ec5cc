/* safetensors_test.c - what the writer writes the reader reads; every damage users have reported is refused at once,
 * naming the file. */
#include "harness/harness.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/safetensors.h"
#include "store/safetensors_write.h"

static const char *path_in(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", harness_tmp_dir(), name);
    return path;
}

/* A file of the given header text and number of data bytes; header length as told (-1 = true). */
static const char *put_file(const char *header, int64_t told_bytes, size_t data_bytes) {
    const char *path = path_in("made.safetensors");
    FILE *f = fopen(path, "wb");
    EXPECT(f != NULL);
    uint64_t n = told_bytes < 0 ? strlen(header) : (uint64_t)told_bytes;
    for (int i = 0; i < 8; i++) fputc((int)(n >> (8 * i) & 255), f);
    fputs(header, f);
    for (size_t i = 0; i < data_bytes; i++) fputc((int)i, f);
    fclose(f);
    return path;
}

static void expect_refused(const char *path, const char *what) {
    duet_st_file *file;
    duet_error err = {0};
    EXPECT_EQ(duet_st_open(path, &file, &err), DUET_E_MODEL);
    EXPECT(file == NULL);
    EXPECT_HAS(err.message, "made.safetensors: ");
    EXPECT_HAS(err.message, what);
    EXPECT_EQ(duet_mem_live_bytes(DUET_MEM_STORE), 0);
}

#define A(begin, end) "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" begin "," end "]}"
#define B(begin, end) "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[" begin "," end "]}"

TEST(safetensors_round_trip, 2000) {
    float a[3] = {1, 2, 3};
    uint16_t b[4] = {5, 6, 7, 8};
    int32_t scalar = 42;
    duet_st_entry entries[] = {{"half", DUET_BF16, DUET_SHAPE(2, 2), b},
                               {"one", DUET_I32, {.rank = 0}, &scalar},
                               {"wide", DUET_F32, DUET_SHAPE(3), a}};
    duet_st_meta meta[] = {{"key", "value \"quoted\" \xc3\xa9"}, {"n", "1"}};
    duet_error err = {0};
    EXPECT_OK(duet_st_write(path_in("x"), entries, 3, meta, 2, &err), err);
    duet_st_file *f;
    EXPECT_OK(duet_st_open(path_in("x"), &f, &err), err);
    EXPECT_EQ(duet_st_count(f), 3);
    EXPECT_STR(duet_st_metadata(f, "key"), "value \"quoted\" \xc3\xa9");
    EXPECT_EQ(duet_st_metadata_count(f), 2);
    EXPECT(!memcmp(duet_st_find(f, "wide")->data, a, sizeof a));
    EXPECT(!memcmp(duet_st_find(f, "half")->data, b, sizeof b));
    EXPECT(!memcmp(duet_st_find(f, "one")->data, &scalar, sizeof scalar));
    EXPECT_EQ(duet_st_find(f, "one")->shape.rank, 0);
    EXPECT(duet_st_find(f, "on") == NULL);
    for (int i = 0; i < 3; i++)
        EXPECT_EQ((uintptr_t)duet_st_at(f, i)->data % duet_dtype_bytes(duet_st_at(f, i)->dtype), 0);
    duet_st_close(&f);
    duet_st_close(&f);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

TEST(safetensors_accepts_padding_and_any_order, 2000) {
    duet_st_file *f;
    duet_error err = {0};
    EXPECT_OK(duet_st_open(put_file("{" B("8", "12") "," A("0", "8") "}   ", -1, 12), &f, &err), err);
    EXPECT_EQ(duet_st_find(f, "b")->data[0], 8);
    duet_st_close(&f);
    EXPECT_OK(duet_st_open(put_file("{}", -1, 0), &f, &err), err);
    EXPECT_EQ(duet_st_count(f), 0);
    duet_st_close(&f);
}

TEST(safetensors_refuses_damage, 5000) {
    const char *good = "{" A("0", "8") "," B("8", "12") "}";
    expect_refused(put_file(good, -1, 11), "truncated");
    expect_refused(put_file(good, -1, 4), "truncated");
    expect_refused(put_file(good, -1, 12 + 7), "7 trailing bytes");
    expect_refused(put_file(good, 1 << 20, 12), "truncated: the header should have 1048576 bytes");
    expect_refused(put_file(good, INT64_MAX, 12), "header of 9223372036854775807 bytes");
    expect_refused(put_file(good, 10, 12), "not valid JSON");
    expect_refused(put_file("{" A("0", "8") "," B("4", "8") "}", -1, 8), "overlaps");
    expect_refused(put_file("{" A("0", "8") "," B("10", "14") "}", -1, 14), "2 bytes before tensor b");
    expect_refused(put_file("{" A("4", "12") "}", -1, 12), "4 bytes before tensor a");
    expect_refused(put_file("{" A("0", "8") "," A("8", "16") "}", -1, 16), "not valid JSON: duplicate");
    expect_refused(put_file("{" A("0", "6") "}", -1, 6), "takes 8 bytes, but its range holds 6");
    expect_refused(put_file("{" A("8", "0") "}", -1, 8), "not a range");
    expect_refused(put_file("{" A("-8", "0") "}", -1, 8), "not a range");
    expect_refused(put_file("{\"a\":1}", -1, 8), "dtype is missing");
    expect_refused(put_file("[1]", -1, 0), "not a JSON object");
    expect_refused(put_file(" {}", -1, 0), "not a JSON object");
    expect_refused(put_file("", 0, 0), "not a JSON object");
    FILE *f = fopen(path_in("made.safetensors"), "wb");
    fputs("abc", f);
    fclose(f);
    expect_refused(path_in("made.safetensors"), "truncated: 3 bytes");
}

TEST(safetensors_refuses_bad_tensors, 5000) {
#define T(dtype, shape, range) "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" range "}}"
    expect_refused(put_file(T("\"F31\"", "[1]", "[0,4]"), -1, 4), "unknown dtype F31");
    expect_refused(put_file(T("7", "[1]", "[0,4]"), -1, 4), "dtype is missing");
    expect_refused(put_file(T("\"F32\"", "[1.0]", "[0,4]"), -1, 4), "not a whole number");
    expect_refused(put_file(T("\"F32\"", "[-1]", "[0,4]"), -1, 4), "not a whole number");
    expect_refused(put_file(T("\"F32\"", "1", "[0,4]"), -1, 4), "shape is missing");
    expect_refused(put_file(T("\"F32\"", "[1,1,1,1,1,1,1]", "[0,4]"), -1, 4), "7 dimensions");
    expect_refused(put_file(T("\"F32\"", "[4611686018427387904,4]", "[0,4]"), -1, 4), "overflows");
    expect_refused(put_file(T("\"F32\"", "[4611686018427387904]", "[0,4]"), -1, 4), "overflows");
    expect_refused(put_file(T("\"F32\"", "[99999999999999999999]", "[0,4]"), -1, 4), "not valid JSON");
    expect_refused(put_file(T("\"F32\"", "[1]", "[0]"), -1, 4), "data_offsets");
    expect_refused(put_file(T("\"F32\"", "[1]", "[0,\"4\"]"), -1, 4), "data_offsets");
    expect_refused(put_file("{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4),
                   "tensor name");
    expect_refused(
        put_file("{\"a\\u001b[2J\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4),
        "tensor name");
#undef T
}

TEST(safetensors_refuses_bad_metadata, 10000) {
    expect_refused(put_file("{\"__metadata__\":{\"k\":\"a\\u0000b\"}}", -1, 0), "not valid JSON");
    expect_refused(put_file("{\"__metadata__\":{\"k\":1}}", -1, 0), "not a string");
    expect_refused(put_file("{\"__metadata__\":[]}", -1, 0), "not an object");
    expect_refused(put_file("{\"__metadata__\":{\"k\":{\"a\":[[1]]}}}", -1, 0), "nested too deeply");
    size_t n = (1 << 20) + 100;
    char *big = malloc(n + 64);
    strcpy(big, "{\"__metadata__\":{\"k\":\"");
    memset(big + strlen(big), 'x', n);
    strcpy(big + 22 + n - 22, "\"}}");
    expect_refused(put_file(big, -1, 0), "__metadata__ is larger than");
    memset(big, '[', n);
    big[0] = '{';
    big[n] = '\0';
    expect_refused(put_file(big, -1, 0), "nested too deeply");
    free(big);
    const char *path = put_file("{\"a\":0}  ", -1, 0);
    FILE *f = fopen(path, "r+b"); /* NUL instead of the last space */
    fseek(f, 8 + 8, SEEK_SET);
    fputc(0, f);
    fclose(f);
    expect_refused(path, "NUL byte");
}

TEST(safetensors_names_a_missing_file, 1000) {
    duet_st_file *f;
    duet_error err = {0};
    EXPECT_EQ(duet_st_open(path_in("absent"), &f, &err), DUET_E_IO);
    EXPECT_HAS(err.message, "absent: cannot open: No such file");
    err = (duet_error){0};
    EXPECT_EQ(duet_st_open(harness_tmp_dir(), &f, &err), DUET_E_IO);
    EXPECT_HAS(err.message, "not a regular file");
}

TEST(safetensors_writer_is_all_or_nothing, 2000) {
    float a[4] = {1, 2, 3, 4};
    duet_st_entry entry = {"a", DUET_F32, DUET_SHAPE(4), a};
    duet_st_writer *w;
    duet_error err = {0};
    EXPECT_OK(duet_st_writer_open(path_in("w"), &entry, 1, NULL, 0, &w, &err), err);
    EXPECT_OK(duet_st_writer_put(w, a, 8, &err), err);
    EXPECT(access(path_in("w"), F_OK) != 0);
    EXPECT_EQ(duet_st_writer_commit(&w, &err), DUET_E_INTERNAL); /* 8 of 16 bytes */
    EXPECT(w == NULL);
    char command[600];
    snprintf(command, sizeof command, "test -z \"$(ls -A %s)\"", harness_tmp_dir());
    EXPECT_EQ(system(command), 0);
    duet_st_entry twice[] = {entry, entry};
    err = (duet_error){0};
    EXPECT_EQ(duet_st_writer_open(path_in("w"), twice, 2, NULL, 0, &w, &err), DUET_E_INTERNAL);
    EXPECT_EQ(duet_st_write("/dev/full/x", &entry, 1, NULL, 0, NULL), DUET_E_IO);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}
