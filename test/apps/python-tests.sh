#!/bin/bash
# CPython's own tests of threads: test_threading, test_thread, test_queue, with the same result as natively.
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
[[ $carriers != '2 1' ]] || carriers=2
need "$python" python3
if ! "$python" -c 'import test.test_threading' 2>/dev/null; then
    package=libpython3.$("$python" -c 'import sys; print(sys.version_info[1])')-testsuite
    [[ ! $install ]] || apt-get -q install -y --no-install-recommends "$package" >/dev/null 2>&1
    if ! "$python" -c 'import test.test_threading' 2>/dev/null; then
        echo "$test_name: skipped: no test.test_threading (package $package; --install installs it)"
        exit 77
    fi
fi
cd "$work" || exit 1

# One line a test: its name and what became of it, which may come after what the test printed. Names come twice
# where a class inherits them.
results() {
    tr '\n' ' ' | sed -E 's/ (test_\w+ \([^)]*\)) /\n\1 /g; s/^(test_\w+ \([^)]*\)) /\1 /' |
        sed -nE 's/^(test_\w+ \([^)]*\)).* (ok|skipped|FAIL|ERROR|expected failure)( .*)?$/\1 \2/p' | sort
}
for module in test_queue test_thread test_threading; do
    compare -f results $module bash -c 'exec 2>&1; exec "$@"' - "$python" -m unittest -v test.$module
done
finish
