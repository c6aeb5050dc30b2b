#!/usr/bin/perl
# Interpreter threads: shared data, cond_wait, queues, semaphores, join with values, signals, thread-local data.
# Prints what came out, which is the same in every run.
use strict;
use warnings;
use threads;
use threads::shared;
use Thread::Queue;
use Thread::Semaphore;
use Time::HiRes qw(sleep time);
use IO::Socket::INET;

my $n = shift // 30;
my $wrong : shared = 0;

sub check {
    my ($right, $what) = @_;
    return if $right;
    lock $wrong;
    $wrong++;
    print "wrong: $what\n";
}

# values given and returned, of every context
{
    my @threads = map { my $i = $_; threads->create({ context => 'list' }, sub { return ($i, $i * $i, "x" x $i) }) } 1 .. $n;
    my $sum = 0;
    for my $thread (@threads) {
        my ($i, $square, $string) = $thread->join;
        $sum += $i + $square + length $string;
    }
    print "joined: $sum\n";
    my ($death) = threads->create(sub { no warnings 'threads'; die "as it should\n" });
    $death->join;
    check($death->error eq "as it should\n", 'the error of a thread');
}

# a lock, its condition, and time-outs
{
    my $turn : shared = 0;
    my @threads = map {
        my $i = $_;
        threads->create(sub {
            for my $round (0 .. 9) {
                lock $turn;
                cond_wait($turn) until $turn == $round * $n + $i;
                $turn++;
                cond_broadcast($turn);
            }
        });
    } 0 .. $n - 1;
    $_->join for @threads;
    lock $turn;
    my $before = time;
    check(!cond_timedwait($turn, $before + 0.05), 'a wait that nobody ends');
    check(time >= $before + 0.05, 'a wait too short');
    print "turns: $turn\n";
}

# queues, and what shared containers hold
{
    my ($in, $out) = (Thread::Queue->new, Thread::Queue->new);
    my @workers = map {
        threads->create(sub {
            my $done = 0;
            while (defined(my $job = $in->dequeue)) {
                sleep 0.001 if $job->{number} % 16 == 0;
                $out->enqueue($job->{number} * 2);
                $done++;
            }
            return $done;
        });
    } 1 .. $n;
    $in->enqueue({ number => $_ }) for 1 .. 500;
    $in->end;
    my $done = 0;
    $done += $_->join for @workers;
    my ($sum, $value) = (0);
    $sum += $value while defined($value = $out->dequeue_nb);
    print "jobs: $done $sum\n";
}

# semaphores; no more than three inside
{
    my $few = Thread::Semaphore->new(3);
    my %state : shared = (inside => 0, most => 0, all => 0);
    my @threads = map {
        threads->create(sub {
            for (1 .. 5) {
                $few->down;
                { lock %state; $state{all}++; $state{inside}++; $state{most} = $state{inside} if $state{inside} > $state{most} }
                sleep 0.0005;
                { lock %state; $state{inside}-- }
                $few->up;
            }
        });
    } 1 .. $n;
    $_->join for @threads;
    check($state{most} <= 3, "$state{most} inside");
    print "semaphore: $state{all}\n";
}

# signals to a thread, which perl runs in it; detached threads; regular expressions and numbers in each
{
    my $ready = Thread::Semaphore->new(0);
    my $kill : shared = 0;
    my $thread = threads->create(sub {
        local $SIG{KILL} = sub { lock $kill; $kill++; threads->exit };
        $ready->up;
        sleep 0.01 while 1;
    });
    $ready->down;
    $thread->kill('KILL')->join;
    my $ended = Thread::Semaphore->new(0);
    threads->create(sub { $ended->up })->detach for 1 .. $n;
    $ended->down($n);
    my @found = map { my $i = $_; threads->create(sub { my ($c, $text) = (0, "abc$i" x 50); $c += $1 while $text =~ /c(\d+)/g; return sprintf '%.3f', $c / 7 }) } 1 .. 8;
    print "signals: $kill; numbers: @{[map { $_->join } @found]}\n";
}

# a server with a thread for each connection
{
    my $server = IO::Socket::INET->new(Listen => 100, LocalAddr => '127.0.0.1') or die "no server: $@";
    my $port = $server->sockport;
    my $acceptor = threads->create(sub {
        my @threads;
        for (1 .. $n) {
            my $connection = $server->accept;
            push @threads, threads->create(sub {
                while (my $line = <$connection>) {
                    sleep 0.002;
                    print $connection scalar reverse($line =~ s/\n//r) . "\n";
                }
            });
            close $connection;
        }
        $_->join for @threads;
    });
    my @clients = map {
        my $i = $_;
        threads->create(sub {
            my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or return 0;
            my $right = 0;
            for my $j (1 .. 5) {
                print $socket "line $j of $i\n";
                $right++ if scalar(<$socket>) eq reverse("line $j of $i") . "\n";
            }
            close $socket;
            return $right;
        });
    } 1 .. $n;
    my $right = 0;
    $right += $_->join for @clients;
    $acceptor->join;
    print "answers: $right\n";
}

# a child in the midst of it, and its status
{
    my @threads = map { my $i = $_; threads->create(sub { my $text = `echo $i`; chomp $text; return $text + ($? >> 8) }) } 1 .. 10;
    my $sum = 0;
    $sum += $_->join for @threads;
    print "children: $sum\n";
}
print "wrong: $wrong\n";
exit($wrong ? 1 : 0);
