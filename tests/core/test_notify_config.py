"""The [notify] and [watch] tables: what is taken, what is refused, and that no message shows an address."""

from __future__ import annotations

import re
import tomllib

import pytest

from gpuq.core.config import from_table
from gpuq.core.event import QUIET, Kind
from gpuq.core.notify.config import FIELDS, Config, SinkType, Source, Watch, from_tables
from gpuq.core.notify.wording import check_template, fill
from gpuq.errors import ConfigError
from tests.gpuq_cli import SOURCE

URL = "https://discord.com/api/webhooks/1/s3cr3t"


def read(text: str) -> Config:
    table = tomllib.loads(text)
    return from_tables(table.get("notify"), table.get("watch"), "c.toml")


def test_nothing_configured_is_the_log() -> None:
    config = read("")
    assert [sink.type for sink in config.sinks.values()] == [SinkType.LOG]
    assert config.routes(Kind.JOB_ENDED) == ("log",)
    assert config.routes(Kind.JOB_STARTED) == ()
    assert config.variables == frozenset()
    assert not config.has_inline_secret


def test_everything_configured() -> None:
    config = read(
        f"""
        [notify]
        give_up = 3600
        [notify.sinks.phone]
        type = "discord"
        url_env = "MY_HOOK"
        username = "gpuq on alpha"
        timeout = 5
        [notify.sinks.ntfy]
        type = "apprise"
        url = "{URL}"
        [notify.sinks.bell]
        type = "command"
        argv = ["~/bin/bell", "--loud"]
        [notify.sinks.file]
        type = "log"
        file = "~/notices.log"
        [notify.kinds.progress]
        sinks = ["file", "file"]
        [notify.kinds.job_ended]
        title = "{{name}}"
        [watch]
        poll = 10
        digest = "23:59"
        hold_after_failures = true
        disk_free = 0.1
        fast_failures = 0
        silent_minutes = 5
        """
    )
    assert config.give_up == 3600
    assert config.sinks["phone"].timeout == 5
    assert config.sinks["phone"].username == "gpuq on alpha"
    assert config.variables == {"MY_HOOK"}
    assert config.has_inline_secret
    address = config.sinks["ntfy"].address
    assert address is not None
    assert address.source is Source.INLINE
    assert address.words == "config.toml"
    assert config.sinks["bell"].argv == ("~/bin/bell", "--loud")
    assert config.routes(Kind.PROGRESS) == ("file",), "wording or routing a kind asks to hear of it"
    assert (config.watch.poll, config.watch.digest, config.watch.hold_after_failures) == (10, "23:59", True)
    assert (config.watch.fast_failures, config.watch.silent_minutes, config.watch.memory_near) == (0, 5, 0.9)
    assert URL not in repr(config)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("notify = 3", "[notify] must be a table"),
        ("[notify]\nsink = 1", "unknown key 'sink'; did you mean 'sinks'?"),
        ("[notify]\ngive_up = 1", "between 60 and"),
        ("[notify.sinks]\nphone = 3", "must be a table"),
        ('[notify.sinks."My Phone"]\ntype="log"', "is made of a-z"),
        ("[notify.sinks.a]", "type is missing; known are discord"),
        ('[notify.sinks.a]\ntype="dicsord"', "did you mean 'discord'?"),
        ("[notify.sinks.a]\ntype=3", "type is wrong"),
        ('[notify.sinks.a]\ntype="log"\nfiel="x"', "did you mean 'file'?"),
        ('[notify.sinks.a]\ntype="log"\nfile=""', "must be the path"),
        ('[notify.sinks.a]\ntype="log"\ntimeout=3', "unknown key 'timeout'"),
        ('[notify.sinks.a]\ntype="command"', "must be a list of texts"),
        ('[notify.sinks.a]\ntype="command"\nargv="rm"', "must be a list of texts"),
        ('[notify.sinks.a]\ntype="command"\nargv=[""]', "must name a program"),
        ('[notify.sinks.a]\ntype="command"\nargv=["x"]\ntimeout=true', "must be a number between"),
        ('[notify.sinks.a]\ntype="discord"', "none of url, url_env, url_credential, url_file is given"),
        ('[notify.sinks.a]\ntype="discord"\nurl_env="A"\nurl_file="b"', "more than one of"),
        ('[notify.sinks.a]\ntype="discord"\nurl=3', "must be a text"),
        ('[notify.sinks.a]\ntype="discord"\nurl_env="MY HOOK"', "must be the name of an environment variable"),
        ('[notify.sinks.a]\ntype="discord"\nurl_credential="../x"', "systemd credential"),
        ('[notify.sinks.a]\ntype="discord"\nurl_env="A"\nusername="Discord bot"', "Discord refuses"),
        ('[notify.sinks.a]\ntype="discord"\nurl_env="A"\nusername=""', "1 to 80"),
        ("[notify.kinds.job_endet]\ntell=true", "did you mean 'job_ended'?"),
        ("[notify.kinds.job_ended]\ntel=true", "did you mean 'tell'?"),
        ('[notify.kinds.job_ended]\ntell="no"', "must be true or false"),
        ('[notify.kinds.job_ended]\nsinks="log"', "must be a list of names"),
        ('[notify.kinds.job_ended]\nsinks=["lgo"]', "no sink 'lgo'; did you mean 'log'?"),
        ('[notify.kinds.job_ended]\ntitle="{nmae}"', "unknown field {nmae}; did you mean {name}?"),
        ('[notify.kinds.job_ended]\ntitle=" "', "must not be empty"),
        ("[notify.kinds.job_ended]\ntext=3", "must be a text"),
        ('[notify.kinds.queue_empty]\ntext="{exit_code}"', "unknown field {exit_code}"),
        ("[watch]\npol=3", "did you mean 'poll'?"),
        ("[watch]\npoll=0", "between 1 and 3600"),
        ('[watch]\ndigest="9am"', "time of day"),
        ("[watch]\nhold_after_failures=1", "true or false"),
        ("[watch]\nfast_failures=2.5", "a whole number between 0 and 20"),
        ("[watch]\nfast_failures=21", "between 0 and 20"),
        ("[watch]\nmemory_near=90", "between 0.5 and 1"),
        ("watch = []", "must be a table"),
    ],
)
def test_what_is_wrong_is_named_with_what_was_meant(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert str(caught.value).startswith("c.toml")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f'[notify.sinks.a]\ntype="discord"\nurl_env="{URL}"',
        f'[notify.sinks.a]\ntype="discord"\nurl_file="{URL}"',
        f'[notify.sinks.a]\ntype="discord"\nurl_credential="{URL}"',
        f'[notify.sinks.a]\ntype="discord"\nurl=["{URL}"]',
        f'[notify.sinks.a]\ntype="discord"\nuri="{URL}"',
        f'[notify.sinks.a]\ntype="{URL}"',
        f'[notify.sinks."{URL}"]\ntype="log"',
        f'[notify.sinks.a]\n"{URL}"=1',
        f'[notify.sinks.a]\ntype="discord"\nurl_file="{URL.removeprefix("https://")}"',
        f'[notify.sinks.a]\ntype="discord"\nurl_env="{URL.rpartition("/")[2]:x<68}"',
        f'[notify.sinks.a]\ntype="discord"\nurl_credential="{URL.rpartition("/")[2]:x<68}"',
        f'[notify.sinks.a]\ntype="discord"\nurl="{URL} {URL}"',
        f'[notify.sinks.a]\ntype="discord"\nurl="""{URL}\n/x"""',
        f'[notify.sinks.a]\ntype="log"\nfile="{URL}"',
        f'[notify.kinds.job_ended]\nsinks=["{URL}"]',
        f'[notify.kinds."{URL}"]\ntell=true',
        f'[notify]\n"{URL}"=1',
    ],
)
def test_an_address_in_the_wrong_place_is_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert "s3cr3t" not in str(caught.value) + caught.value.hint
    if "url_" in text and "/webhooks/" in text:
        assert "is a URL itself; change the URL if others saw it" in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [
        "{name.__class__}",
        "{name[0]}",
        "{name!r}",
        "{name:>9999999}",
        "{0}",
        "{}",
        "{name",
        "name}",
        "{na me}",
        "x" * 2001,
    ],
)
def test_a_template_holds_names_and_nothing_else(template: str) -> None:
    with pytest.raises(ValueError, match=r"brace|longer"):
        check_template(template, ["name"])


def test_a_template_is_filled_in() -> None:
    check_template("{{{name}}} {score}", ["name", "score"])
    assert fill("{{{name}}} {score}", {"name": "{score}"}) == "{{score}} "


def test_every_kind_has_fields() -> None:
    assert set(FIELDS) == set(Kind)


# -- what the documentation says -----------------------------------------------------------------------------------

DOCS = (SOURCE / "docs" / "notices.md").read_text()


def test_every_example_in_the_documentation_is_taken() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    assert len(blocks) == 3
    config = read("\n".join(blocks))
    assert set(config.sinks) == {"phone", "chat", "bell", "file"}
    assert config.watch == Watch(), "what is shown is what is taken without a word"
    shown = set(re.findall(r"^(\w+) = ", blocks[-1], re.MULTILINE))
    assert shown == set(Watch.__struct_fields__)
    assert config.routes(Kind.PROBLEM) == ("phone", "file")
    readme = re.search(r"```toml\n(\[notify\..*?)```", (SOURCE / "README.md").read_text(), re.DOTALL)
    assert readme
    assert set(read(readme[1]).sinks) == {"phone"}


def test_the_documentation_names_every_field_of_every_kind() -> None:
    told: dict[str, set[str]] = {kind.value: set() for kind in Kind if kind is not Kind.TEST}
    section = DOCS.split("Fields, by kind:")[1].split("Whoever")[0]
    for line in section.strip().splitlines():
        kinds, _, fields = line.removeprefix("- ").partition(": ")
        named = set(re.findall(r"`(\w+)`", kinds))
        chosen = set(told) - named if kinds.startswith("all but") else named or set(told)
        for kind in chosen:
            told[kind] |= set(fields.split())
    assert told == {kind.value: set(FIELDS[kind]) for kind in Kind if kind is not Kind.TEST}


def test_the_documentation_says_of_every_kind_whether_it_is_told() -> None:
    for kind in set(Kind) - {Kind.TEST}:
        row = next(line for line in DOCS.splitlines() if line.startswith("| `") and f"`{kind.value}`" in line)
        assert row.split("|")[2].strip() == ("yes" if kind in QUIET else "no")


def test_in_a_project_these_tables_are_told_where_they_belong() -> None:
    with pytest.raises(ConfigError, match="about a person") as caught:
        from_table({"notify": {}}, "gpuq.toml")
    assert caught.value.hint == "it belongs into ~/.config/gpuq/config.toml"
