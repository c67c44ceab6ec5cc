# A thin front for people: plain `make` builds build/duet. Everything real is in CMakeLists.txt.
.PHONY: all test asan clean format
all:
	@test -f build/build.ninja || cmake --preset release
	@cmake --build --preset release

test:
	./test.sh

asan:
	@test -f build-asan/build.ninja || cmake --preset asan
	@cmake --build --preset asan

format:
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build build-*
