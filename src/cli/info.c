/* info.c - duet info: what a model directory holds. Written against duet.h alone. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static json_t *component_json(const duet_component_info *c, bool verified) {
    json_t *o = json_object();
    json_object_set_new(o, "hash", json_string(c->hash));
    json_object_set_new(o, "mapped_bytes", json_integer(c->mapped_bytes));
    json_object_set_new(o, "copied_bytes", json_integer(c->copied_bytes));
    if (!verified) return o;
    json_object_set_new(o, "sha256", json_string(c->sha256));
    json_object_set_new(o, "tensors", json_integer(c->tensors));
    json_object_set_new(o, "bytes", json_integer(c->bytes));
    json_object_set_new(o, "nonfinite_values", json_integer(c->nonfinite_values));
    json_object_set_new(o, "files", json_integer(c->files));
    json_object_set_new(o, "missing_files", json_integer(c->missing_files));
    json_object_set_new(o, "first_nonfinite",
                        c->first_nonfinite[0] ? json_string(c->first_nonfinite) : json_null());
    return o;
}

static json_t *tasks_json(const duet_model_info *i) {
    json_t *list = json_array();
    if (i->serves_t2va) json_array_append_new(list, json_string("t2va"));
    if (i->serves_fl2va) json_array_append_new(list, json_string("fl2va"));
    if (i->serves_ref2va) json_array_append_new(list, json_string("ref2va"));
    return list;
}

static json_t *info_json(const duet_model_info *i) {
    json_t *o = json_object(), *components = json_object();
    json_object_set_new(o, "path", path_json(i->path));
    json_object_set_new(o, "layout", json_string(i->layout));
    json_object_set_new(o, "tasks", tasks_json(i));
    json_object_set_new(o, "model_hash", json_string(i->model_hash));
    json_object_set_new(o, "tokenizer_hash", json_string(i->tokenizer_hash));
    json_object_set_new(o, "verified", json_boolean(i->verified));
    for (int c = 0; c < DUET_N_INFO_COMPONENTS; c++)
        json_object_set_new(components, i->component[c].name, component_json(&i->component[c], i->verified));
    json_object_set_new(o, "components", components);
    json_t *config = i->config_json ? json_loads(i->config_json, 0, NULL) : NULL;
    json_object_set_new(o, "config", config ? config : json_null());
    return o;
}

static void print_component(const duet_component_info *c, bool verified) {
    char a[32], b[32];
    printf("  %-13s %11s mapped %11s copied  %.16s\n", c->name, bytes_text(c->mapped_bytes, a, sizeof a),
           bytes_text(c->copied_bytes, b, sizeof b), c->hash);
    if (!verified) return;
    printf("  %-13s %lld tensors, %lld bytes, %lld non-finite values%s%s\n  %-13s sha256 %s\n", "",
           (long long)c->tensors, (long long)c->bytes, (long long)c->nonfinite_values,
           c->first_nonfinite[0] ? ", first in " : "", c->first_nonfinite, "", c->sha256);
}

/* The configuration as "component: key value, key value". */
static void print_config(const char *json) {
    json_t *root = json ? json_loads(json, 0, NULL) : NULL, *value, *inner;
    const char *key, *name;
    json_object_foreach(root, key, value) {
        if (!json_is_object(value)) {
            printf("  %-26s %.6g\n", key, json_number_value(value));
            continue;
        }
        printf("  %s:", key);
        json_object_foreach(value, name, inner)
            printf(" %s %lld", name, (long long)json_integer_value(inner));
        putchar('\n');
    }
    json_decref(root);
}

static void print_info(const duet_model_info *i) {
    printf("model     %s\nlayout    %s\ntasks    %s%s%s\nhash      %s\n\n", i->path, i->layout,
           i->serves_t2va ? " t2va" : "", i->serves_fl2va ? " fl2va" : "", i->serves_ref2va ? " ref2va" : "",
           i->model_hash);
    for (int c = 0; c < DUET_N_INFO_COMPONENTS; c++) print_component(&i->component[c], i->verified);
    putchar('\n');
    print_config(i->config_json);
}

int cmd_info(const opt_set *set) {
    duet_engine_options options = engine_from_options(set);
    duet_engine *engine = NULL;
    duet_model_info info = {0};
    duet_error err = {0};
    duet_status st;
    int code;
    TRY(st, done, need_option(set, OPT_model, &err));
    TRY(st, done, duet_engine_open(&options, &engine, &err));
    signals_watch(); /* --verify reads for minutes */
    signals_target(engine);
    st = duet_info(engine, is_on(set, OPT_verify), &info, &err);
    if (info.config_json && (st == DUET_OK || !is_on(set, OPT_json))) {
        if (is_on(set, OPT_json))
            print_json(info_json(&info));
        else
            print_info(&info);
    }
done:
    signals_target(NULL);
    code = st == DUET_OK ? EXIT_DONE : report_failure(st, &err, PHASE_REQUEST, is_on(set, OPT_json), NULL);
    duet_model_info_free(&info);
    duet_engine_close(&engine);
    return code;
}
