"""One variable of a script, changed: where it is found, how it is quoted, and what is refused. Real shells are asked."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpuq.core.experiment.shellwords import constant, read_script
from gpuq.core.experiment.variation import change, find, keys, split_pair
from gpuq.errors import UsageError

SCRIPT = r"""#!/bin/bash
#SBATCH --mem=1G
# LR=1 is too much; --lr 5 as well
LR=1e-3
export WD="0.1 a"; NAME='x y'
BATCH=${BATCH:-32}
: "${EPOCHS:=10}"
cat <<-E
	LR=5 --depth 5
	E
ARGS=(--depth 4 --name=foo)
if ((1<<2)); then echo $((1<<3)) $(tool --seed 1 | cat); fi
[[ -z ${X:-} ]] && echo "--lr 7 LR=7" 'LR=8'# no comment
exec python train.py --lr "$LR" "${ARGS[@]}" \
   --warmup-steps 100 --config "${CONFIG}" --amp \
   model.depth=4 'opt.name=a b' --bias -3 > log 2>&1
"""


def differing(text: str) -> list[tuple[str, str]]:
    pairs = zip(SCRIPT.splitlines(), text.splitlines(), strict=True)
    return [(old.strip(), new.strip()) for old, new in pairs if old != new]


@pytest.mark.parametrize(
    ("pair", "key", "old", "line", "becomes"),
    [
        ("LR=3e-4", "LR", "1e-3", 4, "LR=3e-4"),
        ('WD=a"b$c`d\\', "WD", "0.1 a", 5, 'export WD="a\\"b\\$c\\`d\\\\"; NAME=\'x y\''),
        ("NAME=it's", "NAME", "x y", 5, """export WD="0.1 a"; NAME='it'"'"'s'"""),
        ("BATCH=64", "BATCH", "32", 6, "BATCH=${BATCH:-64}"),
        ("EPOCHS=20", "EPOCHS", "10", 7, ': "${EPOCHS:=20}"'),
        ("depth=5", "--depth", "4", 11, "ARGS=(--depth 5 --name=foo)"),
        ("--name=b ar", "--name", "foo", 11, "ARGS=(--depth 4 --name='b ar')"),
        ("seed=2", "--seed", "1", 12, "if ((1<<2)); then echo $((1<<3)) $(tool --seed 2 | cat); fi"),
        ("warmup_steps=200", "--warmup-steps", "100", 15, '--warmup-steps 200 --config "${CONFIG}" --amp \\'),
        ("model.depth=9", "model.depth", "4", 16, "model.depth=9 'opt.name=a b' --bias -3 > log 2>&1"),
        ("opt.name=c d", "opt.name", "a b", 16, "model.depth=4 'opt.name=c d' --bias -3 > log 2>&1"),
        ("bias=-4", "--bias", "-3", 16, "model.depth=4 'opt.name=a b' --bias -4 > log 2>&1"),
        ("BATCH=", "BATCH", "32", 6, "BATCH=${BATCH:-''}"),
        ("lr=3e-4", "LR", "1e-3", 4, "LR=3e-4"),
        ("--lr=3e-4", "LR", "1e-3", 4, "LR=3e-4"),
    ],
)
def test_exactly_the_value_is_replaced(pair: str, key: str, old: str, line: int, becomes: str) -> None:
    text, (one,) = change(SCRIPT, [split_pair(pair)], "job.sh")
    assert differing(text) == [(SCRIPT.splitlines()[line - 1].strip(), becomes)]
    assert (one.key, one.old, one.line) == (key, old, line)
    if shutil.which("bash"):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize(
    ("pair", "says", "hint"),
    [
        ("config=1", "job.sh takes config from $CONFIG, which it does not set", "write its value into job.sh"),
        ("amp=1", "job.sh:15: amp cannot be changed there: it has no value", ""),
        ("ARGS=1", "it is an array", ""),
        ("mem=2G", "has no variable or option mem", ""),
        ("epochs=3", "has no variable or option epochs", "did you mean EPOCHS?"),
        ("LR=1e-3", "nothing would change", ""),
        ("LR", "write KEY=VALUE", ""),
        ("=3", "write KEY=VALUE", ""),
        ("--=3", "write KEY=VALUE", ""),
        ("A B=3", "write KEY=VALUE", ""),
    ],
)
def test_what_cannot_be_changed_is_refused(pair: str, says: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        change(SCRIPT, [split_pair(pair)], "job.sh")
    assert says in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    "body",
    [
        "LR=1\nLR=2\n",
        "if x; then LR=1; else LR=2; fi\n",
        "LR=1\npython t.py --x ${LR:-3}\n",
        "export LR=1 && python t.py LR=2\n",
        "A=$(LR=1 true) LR=2 true\n",
    ],
)
def test_several_places_are_listed(body: str) -> None:
    with pytest.raises(UsageError, match=r"written in 2 places \(a/job.sh:\d, a/job.sh:\d\)"):
        change(f"#!/bin/bash\n{body}", [("LR", "5")], "a/job.sh")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("bash -c 'LR=1 python t.py'", "a command line of its own"),
        ('srun bash -lc "LR=1 python t.py"', "a command line of its own"),
        ("eval 'LR=1'", "a command line of its own"),
        ("for LR in 1 2; do python t.py --lr $LR; done", "a loop sets it"),
        ("LR+=0", "it is added to"),
        ("LR=1\nLR+=0", "2 places"),
        ("python t.py --LR A=1", "unless A=1 is meant as one"),
        ("LR=1\nfor LR in 1 2; do :; done", "2 places"),
    ],
)
def test_what_is_no_value_of_its_own_is_left_alone(body: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        change(f"{body}\n", [("LR", "3")], "job.sh")


def test_the_variable_of_an_option_has_to_be_written_once_too() -> None:
    with pytest.raises(UsageError, match=r"LR is written in 2 places"):
        change('LR=1\n[ -z "$BIG" ] || LR=2\npython t.py --lr "$LR"\n', [("lr", "5")], "job.sh")
    with pytest.raises(UsageError, match=r"B cannot be changed there: its value is taken from \$A"):
        change("A=$B\nB=$A\npython t.py --lr $A\n", [("lr", "5")], "job.sh")


def test_what_can_be_changed_is_listed_without_the_shells_own_options() -> None:
    found = keys(
        read_script("set -euo pipefail\nset --posix\n[[ -z $X ]] && exit\nLR=1\nrm -f a; python t.py --lr $LR -v\n")
    )
    assert found == ["LR", "--lr"]


def test_two_changes_about_one_place_are_refused_and_two_places_are_changed_together() -> None:
    with pytest.raises(UsageError, match="same place"):
        change(SCRIPT, [("depth", "5"), ("--depth", "6")], "job.sh")
    text, made = change(SCRIPT, [("--depth", "55555"), ("LR", "0.25")], "job.sh")
    assert [one.words for one in made] == ["--depth 55555", "LR=0.25"]
    assert {new for _, new in differing(text)} == {"LR=0.25", "ARGS=(--depth 55555 --name=foo)"}


FORMS = [
    ("V=old", 'printf %s "$V"'),
    ('export V="old"', 'printf %s "$V"'),
    ("V='old'; W=1", 'printf %s "$V"'),
    ("V=${V:-old}", 'printf %s "$V"'),
    ('V="${V:-old}"', 'printf %s "$V"'),
    (': "${V:=old}"', 'printf %s "$V"'),
    ("set -- --V old", 'printf %s "$2"'),
    ("set -- --V='old' x", 'printf %s "${1#--V=}"'),
    ("set -- 'V=old'", 'printf %s "${1#V=}"'),
    ('set -- "--V=old"', 'printf %s "${1#--V=}"'),
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=12))
@example("it's")
@example('a"b$HOME`x`\\')
@example("}")
@example("a b\nc")
@example("~/x*?[!a]")
@example("-n")
@example("a.b=")
@example("<(")
@example("")
def test_a_shell_reads_back_the_value_that_was_given_whatever_it_is(value: str) -> None:
    if value == "old":
        return
    checks = []
    for number, (form, show) in enumerate(FORMS):
        if re.search(r"'|[<>]\(", value) and '"${V' in form:
            with pytest.raises(UsageError, match="cannot be written between those double quotes"):
                change(form, [("V", value)], "job.sh")
            continue
        text, _ = change(f"#!/bin/bash\n{form}\n{show}\n", [("V", value)], "job.sh")
        assert text.startswith("#!/bin/bash\n")
        checks.append(f"( {text}\n); printf '\\0'")
        (place,) = find(read_script(text), "V")
        # `--V -n` reads as two options, `--V a=1` as an option and a variable
        told_apart = not re.match(r"-|[A-Za-z_][\w.]*=", value)
        assert place.fault == "" or not told_apart, number
    ran = subprocess.run(["bash"], input="\n".join(checks).encode(), capture_output=True, check=False, timeout=60)
    assert ran.stdout.decode().split("\0") == [*([value] * len(checks)), ""], ran.stderr


@settings(max_examples=200)
@given(st.text(alphabet="ab=$'\"`\\(){}<>#;|&\n -E", max_size=40))
def test_no_text_makes_the_reader_fail_or_lose_its_place(text: str) -> None:
    for word in read_script(text).words:
        assert text[word.start : word.end] == word.raw
        assert word.line == text[: word.start].count("\n") + 1


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("a", "a"),
        ("'a b'", "a b"),
        ('"a\\$b"', "a$b"),
        ('"$x"', None),
        ("'$x'", "$x"),
        ("`x`", None),
        ("a\\ b", "a b"),
        ("''", ""),
    ],
)
def test_a_word_is_a_constant_where_the_shell_expands_nothing(raw: str, value: str | None) -> None:
    assert constant(raw) == value


def test_hydras_added_keys_are_known() -> None:
    text, (one,) = change("python t.py +trainer.epochs=5", [split_pair("+trainer.epochs=6")], "job.sh")
    assert (text, one.key) == ("python t.py +trainer.epochs=6", "+trainer.epochs")
    with pytest.raises(UsageError) as caught:
        change("python t.py +trainer.epochs=5", [split_pair("trainer.epochs=6")], "job.sh")
    assert caught.value.hint == "did you mean +trainer.epochs?"


def test_a_key_that_is_not_there_is_answered_with_those_that_are() -> None:
    text = "LR=1e-3\npython t.py --help\npython t.py --lr $LR --out x\n"
    for key, hint in (
        ("--steps", "there are: LR, --lr, --out"),
        ("--lrr", "did you mean --lr? there are also: LR, --out"),
    ):
        with pytest.raises(UsageError) as caught:
            change(text, [split_pair(f"{key}=20")], "job.sh")
        assert caught.value.hint == hint


def test_a_here_document_whose_delimiter_has_blanks_is_no_code() -> None:
    text = 'cat <<"E F" <<\'G\'"H" <<\\I\nLR=1 \'\nE F\nLR=2\nGH\nLR=3\nI\nLR=4\n'
    changed, (one,) = change(text, [split_pair("LR=5")], "job.sh")
    assert (changed, one.line) == (text.replace("LR=4", "LR=5"), 8)


def test_behind_a_redirection_from_a_process_every_word_counts() -> None:
    text = "while read -r x; do :; done < <(tool LR=1 | cat)\nLR=2\n"
    with pytest.raises(UsageError, match="in 2 places"):
        change(text, [split_pair("LR=5")], "job.sh")
    changed, _ = change("done < <(tool) \nLR=2 > >(tee LR) LR2=4\n", [split_pair("LR=5")], "job.sh")
    assert changed == "done < <(tool) \nLR=5 > >(tee LR) LR2=4\n"
