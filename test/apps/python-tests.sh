#!/bin/bash
# CPython's own tests, each with the same result as natively: test_threading, test_thread, test_queue.
#
#   python-tests.sh [OPTIONS of lib.sh] [all | MODULE...]
#
# all: besides these, those of sockets, TLS, polling, signals, children, pools of threads and of processes, and the
# modules of the library that serve and ask; takes an hour for each of -c and -i.
takes_verbs=1
# shellcheck source=test/apps/lib.sh
source "$(dirname "$(readlink -f "$0")")/lib.sh"
modules=(test_queue test_thread test_threading)
if [[ ${1:-} == all ]]; then
    modules+=(test_threading_local test_threadsignals test_signal test_fork1 test_wait3 test_wait4 test_os test_posix test_pty
        test_popen test_faulthandler test_select test_poll test_epoll test_selectors test_socket test_socketserver test_ssl
        test_timeout test_subprocess test_io test_mmap test_logging test_sched test_context test_asyncgen test_httpservers
        test_urllib2_localnet test_xmlrpc test_ftplib test_poplib test_imaplib test_smtplib test_mailbox test_asyncio
        test_concurrent_futures test_multiprocessing_fork test_multiprocessing_spawn test_multiprocessing_forkserver
        test_multiprocessing_main_handling)
    [[ $carriers != '2 1' ]] || carriers=2
    limit=3000
elif (($#)); then
    modules=("$@")
    limit=3000
fi
[[ $carriers != '2 1' ]] || carriers='1 2 4'
[[ -f $library ]] || { echo "$test_name: no library: build it first, or say where it is with -l" >&2 && exit 2; }
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
    tr '\n' ' ' | sed -E 's/ (test\w+ \([^)]*\)) /\n\1 /g; s/^(test\w+ \([^)]*\)) /\1 /' |
        sed -nE 's/^(test\w+ \([^)]*\)).* (ok|skipped|FAIL|ERROR|expected failure)( .*)?$/\1 \2/p' | sort
}
for module in "${modules[@]}"; do
    uses=cpu,subprocess
    [[ $module != test_socketserver && $module != test_timeout ]] || uses+=,network # that of the machine will do
    # Sockets of virtual machines: where the host does not answer, natively too, this waits for ever.
    compare -f results $module bash -c 'exec 2>&1; exec "$@"' - "$python" -m test -v -u "$uses" -i '*VSOCK*' \
        --tempdir "$work" "$module"
done
finish
