"""From a job on a real Slurm to the message in the channel."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.embedded import Embedded
from tests.gpuq_cli import Project, until
from tests.webhook import TOKEN, Post, Reply, serve

FAILS = r"""
for n in 1 2 3; do printf 'Epoch 1: %d0%%\r' $n; done; echo
python3 -c "print('\033[31mred\033[0m')"
echo '```@everyone'
for n in $(seq 30); do echo "step $n"; done
exit 3
"""
SCORED = """
echo '{"mean": 0.97}' > "$GPUQ_RUN_DIR"/cv.json
"""
NEVER = "p=$PPID; while kill -0 $p; do sleep 0.2; done"
"""Does not return before the watcher is gone."""


@pytest.mark.one_release
def test_what_happens_to_jobs_is_posted_once_in_order_and_in_words(slurm_shared: Embedded, project: Project) -> None:
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "gpuq" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    with serve() as server:
        server.script = [Reply(), Reply(status=429, body=b'{"retry_after": 0.2}'), Reply(status=502, body=b"<html>")]
        config.write_text(
            f'[notify.sinks.phone]\ntype = "discord"\nurl = "{server.url}"\n'
            f'[notify.sinks.silent]\ntype = "command"\nargv = ["bash", "-c", "{NEVER}"]\ntimeout = 200\n'
        )
        config.chmod(0o600)
        project.run("dino/lr_3e_4", FAILS)
        project.run("cnn", SCORED, config='[results]\nfiles = ["cv.json"]\nscore = "cv.json:mean"\n')
        watcher = project.start("--debug", "watch")
        try:
            until(lambda: project.gpuq("watch", "status", "--json").ok().json["running"], lambda: "not running")
            project.gpuq("chain", "dino/lr_3e_4", "cnn").ok()
            array = slurm_shared.sbatch(
                "true", "--array=1-5", "--hold", "--mem=20", "--job-name=sweep", cwd=project.root
            )
            until(lambda: len(titles(server.posts)) >= 2, lambda: titles(server.posts))
            slurm_shared.must("scancel", str(array))
            until(lambda: "The queue is empty" in titles(server.posts), lambda: titles(server.posts))
        finally:
            watcher.terminate()
            ran = project.finish(watcher, "watch", timeout=30)
        posts = [post for post in server.posts if post.status < 300]
        assert len({post.payload["embeds"][0]["footer"]["text"] for post in posts}) == len(posts), "none twice"
        told = titles(posts)
        failed, scored = find(posts, "dino/lr\\_3e\\_4 attempt 1 FAILED"), find(posts, "cnn attempt 1 SUCCEEDED")
        assert told.index(failed.title) < told.index(scored.title)
        assert scored.title.endswith(": mean 0.97")
        assert sum("sweep" in one for one in told) == 1, "an array that never began is one notice"
        assert "5 CANCELLED" in find(posts, "sweep").title
        description = failed.payload["embeds"][0]["description"]
        assert "step 30\n```" in description
        (log,) = failed.files.values()
        assert "Epoch 1: 30%\n" in log
        assert "Epoch 1: 10%" not in log
        assert "\x1b" not in log + description
        assert failed.payload["allowed_mentions"] == {"parse": []}
        assert "Next: cnn" in description
        assert TOKEN not in ran.stdout + ran.stderr
        status = project.gpuq("notify", "status", "--json").ok()
        assert TOKEN not in status.stdout
        waiting = {one["name"]: one["waiting"] for one in json.loads(status.stdout)["sinks"]}
        assert waiting["phone"] == 0
        assert waiting["silent"] == len(posts), "the sink that does not return has delayed nobody"


def titles(posts: list[Post]) -> list[str]:
    return [post.title for post in posts if post.status < 300]


def find(posts: list[Post], words: str) -> Post:
    """The only one whose title has these words."""
    (found,) = [post for post in posts if words in post.title]
    return found
