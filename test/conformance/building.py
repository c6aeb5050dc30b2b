"""Compiling many small programs."""
import concurrent.futures
import os
import subprocess


def newer(target, *sources):
    """Is the target there and as new as what it is made from?"""
    if not os.path.exists(target):
        return False
    made = os.path.getmtime(target)
    return all(os.path.getmtime(source) <= made for source in sources if os.path.exists(source))


def command(argv, cwd=None):
    """None, or the first line with an error."""
    done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace")
    if done.returncode == 0:
        return None
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if "error" in line or "undefined reference" in line or "multiple def" in line]
    return (wrong or lines or ["failed"])[0].strip()


def in_parallel(jobs, work):
    """{key: result} of {key: function}, `jobs` at a time."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = {key: pool.submit(function) for key, function in work.items()}
        return {key: future.result() for key, future in futures.items()}
