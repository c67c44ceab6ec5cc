# A thin front for people: plain `make` builds build/duet. Everything real is in CMakeLists.txt.
.PHONY: all oracle test mutants asan clean format
all:
	@test -f build/build.ninja || cmake --preset release
	@cmake --build --preset release

test:
	./test.sh

# Plant known mistakes one by one in a copy of the tree: each must make its test fail (tools/mutants/). Ten minutes on two cores.
mutants:
	python3 tools/mutants/run.py

# Re-make tests/fixtures/ with the reference implementation (docs/oracle.md): make oracle CONVERTER=FILE
oracle: all
	@test -n "$(CONVERTER)" || { echo "usage: make oracle CONVERTER=convert_minimax_h3_to_diffusers.py" >&2; exit 2; }
	HF_HUB_OFFLINE=1 $$(tools/oracle/make_env.sh) tools/oracle/make_fixtures.py --converter $(CONVERTER) --duet build/duet

asan:
	@test -f build-asan/build.ninja || cmake --preset asan
	@cmake --build --preset asan

format:
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build build-*
