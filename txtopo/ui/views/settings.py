"""The settings of a run, those that differ from their defaults first."""

from __future__ import annotations

from collections.abc import Iterable

from txtopo.inspect.run.settings import Settings, SettingValue
from txtopo.ui.markup.elements import Markup, tag
from txtopo.ui.views.tables import none, table


def settings_part(settings: Settings) -> Markup:
    """Return what the topology was called with, what was set, and what was left as it is."""
    arguments = settings.arguments
    called = arguments and [tag("h3", "Arguments"), table(("argument", "value"), arguments.items())]
    if not settings.settings:
        return tag("div", called, none(settings.why or "the settings of this run are unknown"))
    changed = [setting for setting in settings.settings if not setting.is_default]
    unchanged = [setting for setting in settings.settings if setting.is_default]
    return tag(
        "div",
        called,
        tag("h3", "Set for this run"),
        _settings(changed, with_default=True) if changed else none("every setting has its default"),
        tag(
            "details",
            tag("summary", f"{len(unchanged):,} settings at their defaults"),
            _settings(unchanged),
            data_key="others",
        ),
    )


def _settings(settings: Iterable[SettingValue], *, with_default: bool = False) -> Markup:
    rows = (
        [
            [tag("code", setting.name), setting.in_python and tag("small", setting.in_python)],
            tag("code", setting.value),
            *([tag("code", setting.default)] if with_default else []),
            setting.purpose,
        ]
        for setting in settings
    )
    heads = ("setting", "value", *(["default"] if with_default else []), "purpose")
    return table(heads, rows)
