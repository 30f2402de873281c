"""The systemd user unit of the watcher, as text. `ops/systemd/gpuq-watch.service` is what it gives for a usual host."""

from __future__ import annotations

from collections.abc import Mapping

NAME = "gpuq-watch.service"
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "GPUQ_LOCAL_DIR", "GPUQ_BACKEND", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
"""Variables of the caller that say which Slurm is watched and where things are kept. No secret is among them."""


def unit(program: str, environment: Mapping[str, str]) -> str:
    """program: the command that `watch` is given to, each word quoted where it must be."""
    lines = [f'Environment="{name}={_quote(environment[name])}"' for name in KEPT if environment.get(name)]
    path = environment.get("PATH", "")
    if path:
        lines.append(f'Environment="PATH={_quote(path)}"')
    return _TEXT.format(program=program, environment="".join(f"{line}\n" for line in lines))


def quoted(words: tuple[str, ...]) -> str:
    """A command line for ExecStart= (systemd.service(5), "COMMAND LINES")."""
    return " ".join(f'"{_quote(word)}"' if any(c in word for c in " \t\"'\\$") else _quote(word) for word in words)


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")


_TEXT = """\
# The watcher of gpuq, as a service of one user. `gpuq watch install` writes it with this host's paths;
# by hand: copy it to ~/.config/systemd/user, then systemctl --user enable --now gpuq-watch.

[Unit]
Description=gpuq watch: tells when jobs end and when the GPU idles
# It tries for ever: a watcher that has given up is one nobody hears of.
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={program} watch
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=5
# It pings from a thread that looks whether the loop goes round.
WatchdogSec=120
# SIGTERM delivers what it can within five seconds; the rest waits in the outbox.
TimeoutStopSec=10
{environment}# A webhook's URL: not in this file. For example
# LoadCredential=discord:%h/.config/gpuq/discord-url
# and in config.toml: [notify.sinks.phone] type = "discord", url_credential = "discord"

# It reads, asks Slurm, writes its database and the records of your runs, and talks to chat services.
NoNewPrivileges=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
MemoryHigh=256M

[Install]
WantedBy=default.target
"""
