"""Where secrets come from, and that what others can read is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuq.adapters.notifyfile import load
from gpuq.adapters.secrets import LONGEST, read_secret
from gpuq.adapters.sinks.registry import make_all
from gpuq.core.notify.config import Address, Source
from gpuq.errors import ConfigError
from tests.gpuq_cli import ROOT

URL = "https://discord.com/api/webhooks/1/s3cr3t-token"


def read(source: Source, name: str, beside: Path, **environment: str) -> str:
    return read_secret(Address(source, name), "phone", environment=environment, beside=beside).reveal()


def file(path: Path, text: str = f"{URL}\n", mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_from_the_environment(tmp_path: Path) -> None:
    assert read(Source.ENVIRONMENT, "HOOK", tmp_path, HOOK=f" {URL}\n") == URL


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_from_a_file_relative_to_the_config_at_home_or_absolute(tmp_path: Path, mode: int) -> None:
    file(tmp_path / "hook", mode=mode)
    assert read(Source.FILE, "hook", tmp_path) == URL
    assert read(Source.FILE, "~/hook", Path("/nowhere"), HOME=str(tmp_path)) == URL
    assert read(Source.FILE, str(tmp_path / "hook"), Path("/nowhere")) == URL


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o606, 0o601])
def test_a_file_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    file(tmp_path / "hook", mode=mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}") as caught:
        read(Source.FILE, "hook", tmp_path)
    assert caught.value.hint.startswith(f"chmod 600 {tmp_path}/hook")


def test_the_mode_is_that_of_the_file_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file(tmp_path / "hook", mode=0o644))
    with pytest.raises(ConfigError, match="mode 0644"):
        read(Source.FILE, "link", tmp_path)


@pytest.mark.skipif(not ROOT, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path / "hook")
    os.chown(path, 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to somebody else"):
        read(Source.FILE, "hook", tmp_path)


def test_from_systemd_whose_credentials_have_a_mode_of_their_own(tmp_path: Path) -> None:
    file(tmp_path / "discord", mode=0o440)
    assert read(Source.CREDENTIAL, "discord", Path("/nowhere"), CREDENTIALS_DIRECTORY=str(tmp_path)) == URL


def test_outside_of_the_service_the_unit_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no \\$CREDENTIALS_DIRECTORY") as caught:
        read(Source.CREDENTIAL, "discord", tmp_path)
    assert "LoadCredential=discord:" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        (f"{URL}\n{URL}", "one URL and nothing else"),
        (f"url = {URL}", "one URL and nothing else"),
        (URL + "\x07", "one URL and nothing else"),
        ("x" * (LONGEST + 1), "is longer than"),
    ],
)
def test_a_file_with_something_else_in_it_is_refused_without_being_shown(tmp_path: Path, text: str, why: str) -> None:
    file(tmp_path / "hook", text)
    with pytest.raises(ConfigError, match=why) as caught:
        read(Source.FILE, "hook", tmp_path)
    assert "s3cr3t" not in str(caught.value) + caught.value.hint


def test_what_is_no_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hook", 0o600)
    with pytest.raises(ConfigError, match="is no file"):
        read(Source.FILE, "hook", tmp_path)
    with pytest.raises(ConfigError, match="is no file"):
        read(Source.FILE, ".", tmp_path)
    with pytest.raises(ConfigError, match="No such file") as missing:
        read(Source.FILE, "none", tmp_path)
    assert missing.value.hint == f"install -m 600 /dev/null {tmp_path}/none, then paste the URL into it"
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "bytes").chmod(0o600)
    with pytest.raises(ConfigError, match="is no text"):
        read(Source.FILE, "bytes", tmp_path)


def test_a_variable_that_is_not_set_says_that_services_do_not_see_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="environment variable HOOK is not set") as caught:
        read(Source.ENVIRONMENT, "HOOK", tmp_path)
    assert "service" in caught.value.hint


# -- config.toml itself ----------------------------------------------------------------------------------------


def config(home: Path, text: str, mode: int) -> dict[str, str]:
    path = home / ".config" / "gpuq" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    file(path, text, mode)
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


INLINE = f'[notify.sinks.phone]\ntype = "discord"\nurl = "{URL}"\n'


def test_a_url_in_config_toml_wants_it_0600(tmp_path: Path) -> None:
    environment = config(tmp_path, INLINE, 0o644)
    with pytest.raises(ConfigError, match="mode 0644") as caught:
        load(environment)
    assert "s3cr3t" not in str(caught.value) + caught.value.hint
    environment = config(tmp_path, INLINE, 0o600)
    assert set(make_all(load(environment), environment)) == {"phone"}


def test_without_a_secret_in_it_config_toml_may_be_read_by_all(tmp_path: Path) -> None:
    environment = config(tmp_path, '[submit]\nmem = "1G"\n[notify.sinks.a]\ntype = "log"\n', 0o644)
    assert set(load(environment).sinks) == {"a"}


def test_no_config_at_all_is_the_log(tmp_path: Path) -> None:
    assert set(load({"HOME": str(tmp_path)}).sinks) == {"log"}


def test_a_mistyped_table_is_not_silence(tmp_path: Path) -> None:
    environment = config(tmp_path, "[notfy.sinks.a]\n", 0o600)
    with pytest.raises(ConfigError, match=r"unknown table \[notfy\]; did you mean 'notify'\?"):
        load(environment)


def test_a_file_that_is_no_toml_does_not_show_its_lines(tmp_path: Path) -> None:
    environment = config(tmp_path, f"{INLINE}url = = {URL}\n", 0o600)
    with pytest.raises(ConfigError) as caught:
        load(environment)
    assert "s3cr3t" not in str(caught.value)
