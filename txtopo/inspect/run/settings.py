"""The settings of a topology's last run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from txtopo.config import SETTINGS
from txtopo.files.records import in_camel_case
from txtopo.inspect.run.known import KnownRun
from txtopo.text.secrecy import HIDDEN, is_secret, shown


@attrs.frozen(field_transformer=in_camel_case)
class SettingValue:
    """A setting of a run."""

    name: str
    in_python: str = ""
    value: str = ""
    default: str = ""
    is_default: bool = True
    purpose: str = ""
    is_secret: bool = False


@attrs.frozen(field_transformer=in_camel_case)
class Settings:
    """The settings of a run, and the arguments of its topology's function."""

    settings: Sequence[SettingValue] = ()
    arguments: Mapping[str, str] = attrs.field(factory=dict)
    why: str = ""


def settings(known: KnownRun, arguments: Mapping[str, str]) -> Settings:
    """Return all settings with their values, the changed ones first; raise ConfigError if they can't be read."""
    if known.run is None:
        known.timeline.check("run")
        return Settings(arguments=dict(arguments), why="no run has recorded its settings here")
    given = known.run.settings
    listed = []
    for name in [*SETTINGS, *(name for name in given if name not in SETTINGS)]:
        setting = SETTINGS.get(name)
        default, texts = "", set[str]()
        if setting is not None:
            own = attrs.evolve(setting, default=setting.plain_default) if known.is_plain else setting
            default = own.default_text
            texts = {default, str(shown("", own.converted(own.default)))}  # runs of before recorded the latter
        is_default = name not in given or given[name] in texts
        value = default if is_default else str(shown(name, given[name]))
        listed.append(
            SettingValue(
                name,
                in_python="" if setting is None else setting.keyword,
                value=value,
                default=default,
                is_default=is_default,
                purpose="" if setting is None else setting.purpose,
                is_secret=value == HIDDEN or is_secret(name),
            )
        )
    listed.sort(key=lambda setting: (setting.is_default, setting.name))
    return Settings(listed, {name: str(shown(name, value)) for name, value in arguments.items()})
