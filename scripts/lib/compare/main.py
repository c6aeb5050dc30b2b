"""From the command line to the report."""
import os
import signal
import sys

from . import plot, process, report
from .campaign import Campaign
from .options import read, Wrong


class Stopped(BaseException):
    """A signal that should end this process, after it has cleaned up."""

    def __init__(self, number):
        super().__init__(number)
        self.number = number


def stop(number, _frame):
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # the clean-up is not to be interrupted
    raise Stopped(number)


def main(arguments, root):
    """The exit status."""
    try:
        options = read(arguments, root)
    except Wrong as wrong:
        print("compare: %s" % wrong, file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    process.become_reaper()
    campaign = Campaign(options)
    stopped = None
    try:
        campaign.run()
    except Stopped as signalled:
        stopped = signalled.number
    sys.stdout.reconfigure(errors="replace")
    try:
        if campaign.points:
            for line in report.text(campaign):
                print(line)
            sys.stdout.flush()
    except BrokenPipeError:  # who reads has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    failed = any(point.wrong() for point in campaign.points) or (campaign.counter and campaign.counter.tool is None)
    try:
        if options.json:
            report.write_json(campaign, options.json)
        if options.plot and campaign.points:
            keys = options.plot_metrics.split(",") if options.plot_metrics else None
            plot.draw(campaign, options.plot, keys)
            campaign.say("plotted %s.svg and %s.png" % (options.plot, options.plot))
    except (OSError, plot.Failed) as error:
        print("compare: %s" % error, file=sys.stderr)
        failed = True
    if stopped:
        print("compare: stopped by signal %d; the commands were ended" % stopped, file=sys.stderr)
        return 128 + stopped
    return 1 if failed else 0
