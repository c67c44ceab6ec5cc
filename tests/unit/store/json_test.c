/* json_test.c - documents from outside: bounded, exact about types, every message with file and key. */
#include "harness/harness.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "store/json.h"

static duet__doc doc_of(const char *text) {
    duet__doc doc;
    duet_error err = {0};
    EXPECT_OK(duet__doc_parse(text, strlen(text), "f.json", &doc, &err), err);
    return doc;
}

static void expect_bad(const char *text, const char *what) {
    duet__doc doc;
    duet_error err = {0};
    EXPECT_EQ(duet__doc_parse(text, strlen(text), "f.json", &doc, &err), DUET_E_MODEL);
    EXPECT_HAS(err.message, "f.json: ");
    EXPECT_HAS(err.message, what);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

TEST(json_getters, 1000) {
    duet__doc doc = doc_of("{\"a\":{\"b\":3,\"c\":0.5,\"n\":null},\"l\":[1,2],\"s\":\"x\",\"e\":[]}");
    int64_t i = 0;
    double f = 0;
    int32_t list[2], n;
    duet_error err = {0};
    EXPECT_EQ(duet__doc_i64(&doc, "a.b", 0, 9, &i, &err), DUET_OK);
    EXPECT_EQ(i, 3);
    EXPECT_EQ(duet__doc_f64(&doc, "a.b", 0, 9, &f, &err), DUET_OK);
    EXPECT(f == 3.0);
    EXPECT_EQ(duet__doc_i32s(&doc, "l", 2, 0, 9, list, &n, &err), DUET_OK);
    EXPECT_EQ(list[1] + n, 4);
    EXPECT_STR(duet__doc_string(&doc, "s"), "x");
    EXPECT(duet__doc_has(&doc, "a.c") && !duet__doc_has(&doc, "a.n") && !duet__doc_has(&doc, "a.b.c"));
    static const char *const keys[] = {"a.b", "a.c", "a.n", "a.x", "s"};
    static const char *const what[] = {"key a.b must be between 4 and 9 (got 3)",
                                       "key a.c must be an integer", "key a.n is missing",
                                       "key a.x is missing", "key s must be an integer"};
    for (int k = 0; k < 5; k++) {
        err = (duet_error){0};
        EXPECT_EQ(duet__doc_i64(&doc, keys[k], 4, 9, &i, &err), DUET_E_MODEL);
        EXPECT_HAS(err.message, what[k]);
    }
    err = (duet_error){0};
    EXPECT_EQ(duet__doc_i32s(&doc, "l", 1, 0, 9, list, &n, &err), DUET_E_MODEL);
    EXPECT_HAS(err.message, "key l must have 1 to 1 entries (got 2)");
    EXPECT_EQ(duet__doc_i32s(&doc, "e", 2, 0, 9, list, &n, NULL), DUET_E_MODEL);
    duet__doc_close(&doc);
    duet__doc_close(&doc);
    EXPECT_EQ(duet_mem_live_total_bytes(), 0);
}

TEST(json_refuses, 5000) {
    expect_bad("", "not valid JSON");
    expect_bad("[1]", "not an object");
    expect_bad("{\"a\":1,\"a\":2}", "duplicate");
    expect_bad("{\"a\":1}}", "not valid JSON");
    expect_bad("{\"a\":\"\\u0000\"}", "not valid JSON");
    expect_bad("{\"a\":\"\xff\"}", "not valid JSON");
    expect_bad("{\"a\":1e999}", "not valid JSON");
    char *deep = malloc(1 << 20);
    memset(deep, '[', 1 << 20);
    deep[0] = '{';
    deep[(1 << 20) - 1] = '\0';
    expect_bad(deep, "nested too deeply");
    free(deep);
    EXPECT(duet__json_prescan("{\"a\":\"[[[[\\\"[[[\"}", 17, 1, 9) ==
           NULL); /* brackets in strings do not count */
    EXPECT_HAS(duet__json_prescan("[1,2,3,4]", 9, 9, 3), "too many values");
    EXPECT_HAS(duet__json_prescan("{\0}", 3, 9, 9), "NUL");
}
