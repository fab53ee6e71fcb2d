"""A SLURM cluster of two nodes on this machine, in a folder of its own: munged, slurmctld and two slurmd, all started here."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
CONF = """
ClusterName=lgbench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdTimeout=60
InactiveLimit=0
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_interval=5,sched_min_interval=0
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=1000 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=01:00:00 State=UP
"""


def why_not() -> str | None:
    """Why there can be no such cluster here; None where there can."""
    paths = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if not shutil.which(program, path=paths)]
    if missing:
        return f"{', '.join(missing)} cannot be found: apt-get install slurmctld slurmd slurm-client munge"
    return None if os.geteuid() == 0 else "only root can start slurmd"


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Inside, the cluster works, for processes that have the environment that this yields."""
    folder.chmod(0o755)
    for name in ("state", "spool/n1", "spool/n2"):
        (folder / name).mkdir(parents=True)
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(folder=folder, host=socket.gethostname(), ports=free_ports(3)))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    environ = os.environ | {"SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    munged = f"munged --foreground --force --key-file={key} --socket={folder}/munge.socket --pid-file={folder}/munged.pid"
    munged += f" --log-file={folder}/munged.log --seed-file={folder}/munged.seed"
    with ExitStack() as stack:
        for command in (munged, "slurmctld -D -i", "slurmd -D -N n1", "slurmd -D -N n2"):
            stack.enter_context(daemon(command, environ, folder))
            if command is munged:
                wait_until((folder / "munge.socket").exists)
        wait_until(lambda: said("sinfo -h -o %T", environ).split() == ["idle"], folder)
        stack.callback(said, "scancel --user=root", environ)
        yield environ


@contextmanager
def daemon(command: str, environ: dict[str, str], folder: Path) -> Iterator[None]:
    words = command.split()
    with (folder / f"{words[0]}.output").open("a") as output:
        process = subprocess.Popen(words, env=environ, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def said(command: str, environ: dict[str, str]) -> str:
    return subprocess.run(command.split(), env=environ, capture_output=True, text=True, check=False).stdout


def wait_until(condition, folder: Path | None = None, seconds: float = 600) -> None:
    """A bound for a machine that hangs, not a measure of time."""
    latest = time.monotonic() + seconds
    while not condition():
        logs = "".join(path.read_text()[-1000:] for path in folder.glob("*.log")) if folder else ""
        assert time.monotonic() < latest, logs
        time.sleep(0.2)
