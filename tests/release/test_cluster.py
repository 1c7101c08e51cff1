"""A real Ray cluster of two nodes, one of which is lost during a run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldp_slicing.keys import new_key_file
from ldp_slicing.release.settings import ReleaseSettings
from tests.formats.shards import shard
from tests.release.helpers import outputs, plant, release, small_images
from tests.release.processes import Run, Watch, command, wait_for

# A process of its own keeps Ray's threads, warnings and files out of this one. It prints the address of the cluster,
# and removes a node when it reads a line.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print("address", cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(second, allow_graceful=False)
print("lost", flush=True)
sys.stdin.readline()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    pytest.importorskip("ray")
    environment = os.environ | {"RAY_DISABLE_IMPORT_WARNING": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], env=environment, **pipes) as running:
        assert running.stdout is not None
        assert running.stdin is not None
        address = next(line.split()[1] for line in running.stdout if line.startswith("address"))
        yield address, running
        running.stdin.write("\n\n")
        running.stdin.close()
        running.wait()


def test_a_cluster_that_loses_a_node_releases_the_same_bytes(
    cluster: tuple[str, subprocess.Popen[str]], tmp_path: Path
) -> None:
    address, nodes = cluster
    files = {**small_images(1200, 60, 50), "shard.tar": shard(small_images(40, 8, 8)), "bad.png": b"text"}
    source, target, ledger = plant(tmp_path / "in", files), tmp_path / "out", tmp_path / "ledger.sqlite"
    new_key_file(tmp_path / "key")
    watch = Watch(target, ledger)
    with Run(
        *command(source, target, ledger, "--engine", "ray", "--address", address, "--key", str(tmp_path / "key"))
    ) as run:
        wait_for(100, target, run)
        assert nodes.stdin is not None
        assert nodes.stdout is not None
        print(file=nodes.stdin, flush=True)
        assert nodes.stdout.readline() == "lost\n"
        done = watch.look()
        out, err = run.output()
    assert run.returncode == 1, err
    result = json.loads(out)
    assert [problem["source"] for problem in result["problems"]] == ["bad.png"]
    assert result["complete"]
    assert 100 <= done < 1201
    watch.at_the_end(1201, 1240)
    release(source, tmp_path / "here", ReleaseSettings(20.0), key=tmp_path / "key", ledger=tmp_path / "other.sqlite")
    assert outputs(tmp_path / "here") == outputs(target)


def test_an_interrupted_run_on_ray_is_resumed_here(cluster: tuple[str, subprocess.Popen[str]], tmp_path: Path) -> None:
    address, _ = cluster
    source, target, ledger = (
        plant(tmp_path / "in", small_images(600, 60, 50)),
        tmp_path / "out",
        tmp_path / "ledger.sqlite",
    )
    watch = Watch(target, ledger)
    with Run(*command(source, target, ledger, "--engine", "ray", "--address", address, "--workers", "1")) as run:
        wait_for(20, target, run)
        run.send_signal(2)
        run.output()
    assert run.returncode == 130
    assert 20 <= watch.look() < 600
    ran = subprocess.run(command(source, target, ledger), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    watch.at_the_end(600)


def actors() -> list[int]:
    found = list[int]()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"ray::WorkerActor" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def test_a_stalled_actor_of_a_killed_run_writes_nothing_beside_a_finished_card(
    cluster: tuple[str, subprocess.Popen[str]], tmp_path: Path
) -> None:
    """An actor cannot hold the lock of its run. Ray ends it, and the next run waits until that has happened."""
    address, _ = cluster
    source = plant(tmp_path / "in", small_images(600, 60, 50))
    target, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    watch, before = Watch(target, ledger), set(actors())
    with Run(*command(source, target, ledger, "--engine", "ray", "--address", address, "--workers", "1")) as run:
        wait_for(20, target, run)
        stalled = set(actors()) - before
        for actor in stalled:
            os.kill(actor, signal.SIGSTOP)
        run.kill()
    assert stalled
    done = watch.look()
    for path in sorted(source.iterdir())[300:]:  # the next run has less to do than the actor
        path.unlink()
    ran = subprocess.run(command(source, target, ledger), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert not stalled & set(actors())
    watch.at_the_end(max(300, done))


def test_an_unreachable_cluster_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    source = plant(tmp_path / "in", small_images(3))
    options = ("--engine", "ray", "--address", "127.0.0.1:1")
    ran = subprocess.run(
        command(source, tmp_path / "out", tmp_path / "l.sqlite", *options), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2, ran.stderr
    assert "127.0.0.1:1 cannot be reached" in ran.stderr
    assert not (tmp_path / "out").exists()
