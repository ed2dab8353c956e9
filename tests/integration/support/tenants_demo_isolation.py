"""What one tenant tries against another, and what it meets."""
import os
import subprocess
import sys
import time


def pod_like_client(demo):
    """A pod with a grant: unchanged image, no variable of Tally's, no GPU device file."""
    demo.start()
    demo.ctl("grant", "create", "team-a", "--memory", "16M", "--namespace", "blue", "--pod", "job-0")
    demo.answer(demo.pod("team-a", python=("-c", "import os; print(*sorted(os.listdir('/dev')))"), said="pod --grant team-a -- ls /dev"))
    run = demo.pod("team-a", "serve")
    demo.shown(run.stdout.readline())
    demo.ctl("ps")
    demo.answer(demo.pod("team-a", "memory", str(17 << 20)))
    demo.shown("(its device has 16 MiB; 17 MiB more: CUDA's out of memory, 2; 4 KiB: 0)")


def forged_class(demo):
    """A best-effort tenant asks for the high-priority class."""
    demo.start()
    demo.ctl("grant", "create", "modest")
    run = demo.pod("modest", "serve", TALLY_PRIORITY="high")
    demo.answer(run)
    demo.why("modest")


def foreign_socket(demo):
    """A pod looks for the socket of another tenant: only its own directory is there. Nor does a user of the machine get to it."""
    demo.start()
    for tenant in ("mine", "theirs"):
        demo.ctl("grant", "create", tenant)
    look = "import os; print(sorted(os.listdir('/run/tally')), os.path.exists('/run/tally/../grants/theirs'))"
    demo.answer(demo.pod("mine", python=("-c", look), said="pod --grant mine -- ls /run/tally; ls /run/tally/../grants/theirs"))
    path = os.path.join(demo.directory, "grants", "theirs", "tally.sock")
    demo.shown("$ setpriv --reuid 1000 ls -l " + path)
    demo.shown(subprocess.run(["ls", "-l", path], user=1000, group=1000, extra_groups=[], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False).stdout)


def stolen_descriptor(demo):
    """A program hands its connection to another one: whoever says hello there is the tenant of that socket, and no more."""
    demo.start()
    from support.daemon_fixture import Refused, Session, connected, hello
    demo.ctl("grant", "create", "robbed", "--memory", "8M")
    connection = connected(os.path.join(demo.directory, "grants", "robbed", "tally.sock"))
    demo.shown("(the thief has the descriptor, and says that it is 'rich' and high-priority)")
    connection.send(hello(tenant="rich", priority=1))
    try:
        Session.answered_on(connection)
    except Refused as refused:
        demo.shown(f"refused: {refused.sentence}")
    connection = connected(os.path.join(demo.directory, "grants", "robbed", "tally.sock"))
    demo.shown("(again, without the class)")
    connection.send(hello(tenant="rich"))
    demo.session = Session.answered_on(connection)
    demo.ctl("ps")


def revoked_grant(demo):
    """A grant is revoked while its program runs."""
    demo.start()
    demo.ctl("grant", "create", "gone")
    run = demo.pod("gone", "serve")
    demo.shown(run.stdout.readline())
    demo.ctl("grant", "revoke", "gone")
    demo.answer(run)
    demo.shown("(46, device unavailable, or 709, context destroyed: an error of CUDA's, at its next call)")
    demo.why("gone")


def faulting_neighbour(demo):
    """Two tenants of user 0: one faults every second, the other's requests go on."""
    demo.start()
    for tenant in ("serving", "faulty"):
        demo.ctl("grant", "create", tenant)
    service = demo.pod("serving", "serve")
    demo.shown(service.stdout.readline())
    for _ in range(5):
        demo.answer(demo.pod("faulty", "fault"))
        time.sleep(1)
    demo.shown(f"(700: illegal address. The service {'runs: none of its requests has failed' if service.poll() is None else 'HAS ENDED'})")
    demo.ctl("ps")
    if service.poll() is not None:
        sys.exit("a neighbour's fault has ended a service")


CASES = (pod_like_client, forged_class, foreign_socket, stolen_descriptor, revoked_grant, faulting_neighbour)
